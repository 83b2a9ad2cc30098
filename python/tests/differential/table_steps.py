"""Steps that bring two tables together, or a table and what was made of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from differential.expressions import Scope
from differential.promises import fixed, listed, marked
from differential.relation import ANY_ORDER, TOTAL, Order, Relation, Rule, Schema, State, Step
from differential.tables import peek

__all__ = [
    "asof_tables",
    "concat_tables",
    "cross_tables",
    "join_own_groups",
    "join_tables",
    "lottery",
    "member_tables",
]

MOST_ROWS = 30_000


def _two(rng: random.Random, relations: Sequence[Relation]) -> tuple[Relation, Relation]:
    return rng.choice(relations), rng.choice(relations)


def _unlike(rng: random.Random, relations: Sequence[Relation]) -> tuple[Relation, Relation]:
    """Return two relations, of different tables where there are such: Polars reads one that is used twice only once."""
    left = rng.choice(relations)
    others = [r for r in relations if r.name != left.name and r.state.most > 1]
    tables = [r for r in others if r.name.startswith("t")]
    right = rng.choice(tables or others or relations)
    return (left, right) if rng.random() < 0.5 else (right, left)


def _matching(rng: random.Random, left: Relation, right: Relation) -> tuple[str, str] | None:
    """Return a column of each that can be compared: of the same name, or of like types."""
    lefts, rights = left.exact("key"), right.exact("key")
    shared = [n for n in lefts if n in rights and left.schema[n] == right.schema[n]]
    if shared and rng.random() < 0.55:
        name = rng.choice(shared)
        return name, name

    def alike(a: pl.DataType, b: pl.DataType) -> bool:
        return a == b or (a.is_integer() and b.is_integer())

    pairs = [(a, b) for a in lefts for b in rights if alike(left.schema[a], right.schema[b])]
    return rng.choice(pairs) if pairs else None


def join_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Join on equal keys."""
    left, right = _two(rng, relations)
    pairs = [p for p in (_matching(rng, left, right) for _ in range(rng.choice([1, 1, 2]))) if p is not None]
    if not pairs or len(set(pairs)) < len(pairs):
        return None
    if min(len({a for a, _ in pairs}), len({b for _, b in pairs})) < len(pairs) and rng.random() < 0.5:
        return None  # a column that is a key twice now and then only
    how = rng.choice(["inner", "inner", "left", "right", "right", "full", "semi", "anti"])
    left_on, right_on = [a for a, _ in pairs], [b for _, b in pairs]
    unique_right, unique_left = right.state.is_key(right_on), left.state.is_key(left_on)
    most = (
        left.state.most * right.state.most / 3
        if not (unique_left or unique_right)
        else left.state.most + right.state.most
    )
    if how not in ("semi", "anti") and most > MOST_ROWS:
        return None
    options = ""
    coalesce = rng.choice([None, None, None, True, False])
    if how not in ("semi", "anti") and coalesce is not None:
        options += f", coalesce={coalesce}"
    nulls_equal = rng.random() < 0.2
    if nulls_equal:
        options += ", nulls_equal=True"
    maintain = rng.choice([None, None, "none", "left", "right", "left_right", "right_left"])
    if maintain and how not in ("semi", "anti"):
        options += f", maintain_order={maintain!r}"
    if rng.random() < 0.12:
        options += f", validate={rng.choice(['m:m', '1:m', 'm:1', '1:1'])!r}"
    if rng.random() < 0.15:
        options += ", suffix='_2'"
    keys = (
        f"on={left_on}"
        if left_on == right_on and rng.random() < 0.8
        else f"left_on={left_on}, right_on={right_on}"
    )
    if (
        rng.random() < 0.06
        and len(pairs) == 1
        and left.schema[left_on[0]].is_integer()
        and right.schema[right_on[0]].is_integer()
    ):
        keys = f"left_on=c({left_on[0]!r}) + 1, right_on={right_on[0]!r}"
    text = f"{left.name}.join({right.name}, {keys}, how={how!r}{options})"
    left_columns = set(left.schema)

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        a, b = states
        if how in ("semi", "anti"):
            # Polars keeps the left order there in all its engines, and promises none.
            return replace(a, order=ANY_ORDER, height=None)
        grown = a.most * b.most / 3 if not (a.is_key(left_on) or b.is_key(right_on)) else a.most + b.most
        inexact = {
            n for n in schema if n in a.inexact or n.removesuffix("_right").removesuffix("_2") in b.inexact
        }
        keys: set[frozenset[str]] = set()
        order = ANY_ORDER
        if how in ("inner", "left") and b.is_key(right_on) and not nulls_equal:
            keys = {k for k in a.keys if k <= left_columns & set(schema)}
        ordered = a.order.total and b.order.total
        if (
            maintain in ("left_right", "right_left")
            and ordered
            and not (
                how == "full"
                or (how == "left" and maintain == "right_left")
                or (how == "right" and maintain == "left_right")
            )
        ):
            order = TOTAL
        elif maintain == "left" and a.order.total and how in ("inner", "left"):
            own = [k for k in a.keys if k <= set(schema)]
            if b.is_key(right_on):
                order = TOTAL
            elif own:
                order = Order(False, tuple(sorted(own[0])))
        elif maintain == "right" and b.order.total and how == "right" and a.is_key(left_on):
            order = TOTAL
        return State(order, frozenset(keys), frozenset(inexact), None, grown)

    return Step((left.name, right.name), text, rule)


def join_own_groups(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Give each row what its group was reduced to, by a join of the table with its own groups."""
    relation = rng.choice(relations)
    names = relation.exact("plain")
    if not names:
        return None
    key = rng.choice(names)
    inner = Scope(
        rng, {n: t for n, t in relation.schema.items() if n != key}, relation.state.inexact, False, False
    )
    text = inner.scalar(nested=False)
    if text is None:
        return None
    name = relation.name
    how = rng.choice(["left", "inner", "semi", "anti", "full"])
    groups = f"{name}.group_by({key!r}).agg(({text.text}).alias('of_group'))"
    if rng.random() < 0.4:
        groups += ".filter(c('of_group').is_not_null())"
    options = (
        "" if how in ("semi", "anti") else rng.choice(["", ", nulls_equal=True", ", maintain_order='left'"])
    )
    if how == "full":
        options = ", coalesce=True"

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        ordered = "maintain_order" in options and state.order.total
        keys = frozenset() if how == "full" else state.only(schema, ["of_group"]).keys
        found = State(
            TOTAL if ordered else ANY_ORDER, keys, state.inexact & frozenset(schema), None, state.most
        )
        return marked(found, schema, ["of_group"])

    return Step((name,), f"{name}.join({groups}, on={key!r}, how={how!r}{options})", rule)


def cross_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Cross and inequality joins, often of no column of one side."""
    left, right = _unlike(rng, relations) if rng.random() < 0.8 else _two(rng, relations)
    if left.state.most * right.state.most > MOST_ROWS or not left.schema or not right.schema:
        return None
    grown = left.state.most * right.state.most

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        a, b = states
        if a.most * b.most > 2 * MOST_ROWS:
            return None
        inexact = {n for n in schema if n in a.inexact or n.removesuffix("_right") in b.inexact}
        return State(ANY_ORDER, frozenset(), frozenset(inexact), None, grown)

    sides = [(n, n if n not in left.schema else f"{n}_right") for n in right.exact("num")]
    numbers = left.exact("num")
    if rng.random() < 0.35 and sides and numbers:
        conditions = []
        for _ in range(rng.choice([1, 1, 2])):
            own, (_, other) = rng.choice(numbers), rng.choice(sides)
            conditions.append(f"c({own!r}) {rng.choice(['<', '<=', '>', '>=', '=='])} c({other!r})")
        text = f"{left.name}.join_where({right.name}, {listed(conditions)})"
    else:
        text = f"{left.name}.join({right.name}, how='cross')"
    if rng.random() < 0.7:
        # Only columns of one side are used, or none; mostly it is the larger one of which no column is.
        of_left = numbers, left.state.most
        of_right = [o for _, o in sides], right.state.most
        small, large = sorted([of_left, of_right], key=lambda side: side[1])
        names = (small if rng.random() < 0.7 else large)[0]
        if not names:
            return None
        name = rng.choice(names)
        form = rng.choice(
            [
                f"select(c({name!r}).sum())",
                f"group_by({name!r}).len()",
                f"select({name!r})",
                "select(pl.len())",
                f"select(c({name!r}).sum(), pl.len())",
                f"group_by({name!r}).agg(pl.len().alias('n'))",
                f"filter(c({name!r}) >= 2).select({name!r})",
                f"select({name!r}).unique()",
            ]
        )
        return Step(
            (left.name, right.name),
            f"{text}.{form}",
            fixed(TOTAL if "select(c" in form or form == "select(pl.len())" else ANY_ORDER),
        )
    return Step((left.name, right.name), text, rule)


def asof_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """As-of joins: the right side has one row for each value of the key."""
    left, right = _two(rng, relations)
    ons = [
        (a, b)
        for a in left.exact("plain")
        for b in right.exact("plain")
        if left.schema[a] == right.schema[b] and left.schema[a] in (pl.Int64, pl.Int32, pl.Date, pl.Datetime)
    ]
    if not ons or left.state.inexact or right.state.inexact:
        return None
    a, b = rng.choice(ons)
    if not right.state.order.total and not right.state.is_key([b]):
        return None
    strategy = rng.choice(["backward", "forward", "nearest"])
    options = f", strategy={strategy!r}"
    by = [
        n
        for n in left.exact("plain")
        if n in right.exact("plain") and left.schema[n] == right.schema[n] and n not in (a, b)
    ]
    if by and rng.random() < 0.3:
        options += f", by={rng.choice(by)!r}"
    if rng.random() < 0.2:
        options += ", allow_exact_matches=False"
    on = f"on={a!r}" if a == b else f"left_on={a!r}, right_on={b!r}"
    prepared = f"{right.name}.drop_nulls({b!r}).unique({b!r}, keep='first', maintain_order=True).sort({b!r})"
    sorts = rng.random() < (0.4 if a == "srt" else 0.93)
    sorted_left = f"{left.name}.drop_nulls({a!r}).sort({a!r})" if sorts else left.name

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        x, y = states
        if not y.order.total and not y.is_key([b]):
            return None
        if not sorts and x.order.columns[:1] != (a,) and ("by" in options or not x.order.total):
            return None  # whether it is sorted differs from run to run; with groups, Polars does not look
        order = Order(False, (a,)) if a in schema else ANY_ORDER
        if x.is_key([a]):
            order = TOTAL
        return State(
            order, frozenset(k for k in x.keys if k <= set(schema)), x.inexact | y.inexact, None, x.most
        )

    return Step((left.name, right.name), f"{sorted_left}.join_asof({prepared}, {on}{options})", rule)


def concat_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Put tables below each other, or side by side."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    form = rng.choice(
        ["vertical", "vertical", "relaxed", "diagonal", "union", *["horizontal"] * 3, *["merge_sorted"] * 3]
    )
    other = rng.choice(relations)
    first, second = scope.predicate(plain=True), scope.predicate(plain=True)
    halves = [relation.name, f"{relation.name}.filter({first.text})" if first is not None else relation.name]
    if rng.random() < 0.5 and first is not None and second is not None:
        halves[0] = f"{relation.name}.filter({second.text})"
    if rng.random() < 0.4 and relation.state.order.total:
        halves[rng.randrange(2)] += f".{rng.choice(['head(3)', 'tail(2)', 'head(1)'])}"

    def stacked(order: bool) -> Rule:
        def rule(states: Sequence[State], schema: Schema) -> State | None:
            if (
                any("." in half and ("head" in half or "tail" in half) for half in halves)
                and not states[0].order.total
            ):
                return None
            total = order and all(s.order.total for s in states)
            inexact = frozenset().union(*(s.inexact for s in states)) & frozenset(schema)
            return State(
                TOTAL if total else ANY_ORDER,
                frozenset(),
                inexact,
                None,
                sum(s.most for s in states) * (2 if len(states) == 1 else 1),
            )

        return rule

    if form in ("vertical", "union"):
        text = (
            f"pl.concat([{halves[0]}, {halves[1]}])"
            if form == "vertical"
            else f"pl.union([{halves[0]}, {halves[1]}])"
        )
        return Step((relation.name,), text, stacked(form == "vertical"))
    if form == "merge_sorted":
        keys = [n for n in relation.exact("plain") if relation.schema[n] not in (pl.Categorical, pl.Enum)]
        if not keys:
            return None
        key = rng.choice(keys)
        apart = peek(rng)
        by = ["", ", nulls_last=True", ", nulls_last=True"]
        by = [apart.choice(by)] * 2 if apart.random() < 0.9 else [apart.choice(by), apart.choice(by)]
        sides = [f"{half}.sort({key!r}{nulls})" for half, nulls in zip(halves, by, strict=True)]
        order = ", maintain_order=True" if apart.random() < 0.3 else ""
        text = f"{sides[0]}.merge_sorted({sides[1]}, {key!r}{order})"
        if rng.random() < 0.7 and relation.state.order.total:
            # Both sides from the head of the same rows.
            name = relation.name
            head = rng.choice([".head({})", ".select(pl.all().head({}))", ".slice(1, {})"]).format(
                rng.choice([1, 3, 5, 9])
            )
            conditions = [f"c({key!r}).is_not_null()" if t is None else t.text for t in (first, second)]
            sides = [f"{name}{head}.sort({key!r}).filter({condition})" for condition in conditions]
            text = f"{sides[0]}.merge_sorted({sides[1]}, {key!r})"
            if rng.random() < 0.6:
                # What follows does not ask for the order, so that Polars may look through the merge.
                by = rng.choice(relation.exact("plain"))
                return Step(
                    (name,), f"{text}.group_by({by!r}).len()", fixed(ANY_ORDER, total=True, keys=[by])
                )
            return Step((relation.name,), text, _merged(key, total=True))
        return Step(
            (relation.name,),
            text,
            _merged(key, total=any("head" in h or "tail" in h for h in halves), nulls_first=not any(by)),
        )
    if form == "horizontal" and relation is other and other.state.most <= MOST_ROWS:
        # Rows beside others of the same table.
        renamed = f"{halves[1]}.select(pl.all().name.suffix('_h'))"
        return Step(
            (relation.name, other.name),
            f"pl.concat([{halves[0]}, {renamed}], how='horizontal_extend')",
            _side_by_side,
        )
    if relation is other or relation.state.most + other.state.most > MOST_ROWS:
        return None
    if form == "horizontal":
        renamed = f"{other.name}.select(pl.all().name.suffix('_h'))"
        mode = "horizontal_extend" if rng.random() < 0.8 else "horizontal"
        if not (relation.state.order.total and other.state.order.total):
            return None
        return Step(
            (relation.name, other.name),
            f"pl.concat([{relation.name}, {renamed}], how={mode!r})",
            _side_by_side,
        )
    names = (relation.name, other.name)
    how = "diagonal" if form == "diagonal" and rng.random() < 0.3 else "diagonal_relaxed"
    if form == "relaxed":
        shared = [n for n in relation.schema if n in other.schema]
        if not shared:
            return None
        return Step(
            names,
            f"pl.concat([{names[0]}.select({shared}), {names[1]}.select({shared})], how='vertical_relaxed')",
            stacked(True),
        )
    return Step(names, f"pl.concat([{names[0]}, {names[1]}], how={how!r})", stacked(True))


def _side_by_side(states: Sequence[State], schema: Schema) -> State | None:
    if not all(s.order.total for s in states):
        return None
    inexact = states[0].inexact | {f"{n}_h" for n in states[1].inexact}
    return State(
        TOTAL, frozenset(), frozenset(inexact) & frozenset(schema), None, max(s.most for s in states)
    )


def _merged(key: str, *, total: bool, nulls_first: bool = True) -> Rule:
    # Polars compares a null as less than values: where nulls come last, the merged order depends on its batches.
    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        order = Order(False, (key,)) if nulls_first else ANY_ORDER
        return State(order, frozenset(), state.inexact, None, 2 * state.most)

    return rule


def member_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Rows whose key is, or is not, in what another table was reduced to: heads, groups, a chance choice."""
    left, right = _two(rng, relations)
    pair = _matching(rng, left, right)
    if pair is None or left.schema[pair[0]] != right.schema[pair[1]]:
        return None
    a, b = pair
    if not right.state.order.total:
        return None
    side = f"{right.name}.select({b!r}).head({rng.choice([2, 5])})"
    scope = right.scope(rng)
    if (condition := scope.predicate(plain=True)) is not None and rng.random() < 0.5:
        side = f"{right.name}.head({rng.choice([2, 5, 9])}).filter({condition.text}).select({b!r})"
    how = rng.choice(["semi", "anti"])

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        if not states[1].order.total:
            return None
        return replace(states[0], order=ANY_ORDER, height=None)

    return Step(
        (left.name, right.name), f"{left.name}.join({side}, left_on={a!r}, right_on={b!r}, how={how!r})", rule
    )


def lottery(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Choose some rows by chance, and count those of another table that match: how many is known, not which."""
    numbered = [
        r
        for r in relations
        if r.state.is_key({"srt"}) and r.schema.get("srt") == pl.Int64 and r.state.height is not None
    ]
    if len(numbered) < 2:
        return None
    small, big = sorted(rng.sample(numbered, 2), key=lambda r: r.state.height or 0)
    other = rng.choice(numbered)
    heights = small.state.height or 0, big.state.height or 0
    count = rng.choice([1, 2, 3])
    if heights[0] < count:
        return None
    # The rows chosen are to be found anywhere in the large table.
    spread = heights[1] // heights[0]
    chosen = rng.choice(
        [
            f"with_columns(chance=c('srt').shuffle()).sort('chance').head({count})",
            f"select(c('srt').shuffle().head({count}))",
            f"select(c('srt').sample({count}))",
        ]
    )
    counted = rng.choice(["pl.len()", "pl.len(), c('srt').n_unique()"])
    text = (
        f"{big.name}.join({small.name}.join({other.name}.select('srt'), on='srt', how='left').select('srt').{chosen}"
        f".select(c('srt') * {spread}), on='srt', how='semi').select({counted})"
    )

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        # Every number of the small table is in the large one.
        heights = [s.height for s in states]
        if (
            any(h is None for h in heights)
            or heights[0] > heights[1]
            or not all(s.is_key({"srt"}) for s in states)
        ):  # type: ignore[operator]
            return None
        return State(TOTAL, height=1, most=1.0)

    return Step((small.name, big.name, other.name), text, rule)
