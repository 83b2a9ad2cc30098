"""Steps that reduce a table, or groups of its rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import polars as pl

from differential.expressions import KINDS, Scope
from differential.promises import fixed, listed, marked, outputs
from differential.relation import ANY_ORDER, TOTAL, Order, Relation, Schema, State, Step

__all__ = [
    "beside_sorted",
    "frame_aggregate",
    "group_by",
    "group_whole",
    "select_scalars",
    "time_groups",
    "unique_rows",
]


def select_scalars(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Aggregate the table to one row; the same aggregate often twice."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    texts = [scope.scalar_expression() for _ in range(rng.choice([1, 2, 2, 3]))]
    if rng.random() < 0.5 and (one := scope.scalar(nested=rng.random() < 0.2)) is not None:
        texts += [one, scope.computed_of(one)]
    _names, written, inexact = outputs(rng, relation, texts)
    if not written:
        return None
    return Step(
        (relation.name,),
        f"{relation.name}.select({listed(written)})",
        fixed(TOTAL, total=relation.state.order.total, inexact=inexact, height=1),
    )


def frame_aggregate(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Aggregate each column alike."""
    relation = rng.choice(relations)
    if relation.state.inexact or not relation.schema:
        return None
    method = rng.choice(
        ["count", "null_count", "min", "max", "sum", "mean", "median", "std", "first", "last"]
    )
    columns = relation.exact("num" if method in ("sum", "mean", "median", "std") else "ord")
    if not columns:
        return None
    ordered = method in ("first", "last")
    if ordered and not relation.state.order.total:
        return None
    chosen = rng.sample(columns, rng.randrange(1, min(4, len(columns)) + 1))
    inexact = chosen if method in ("mean", "median", "std") else ()
    return Step(
        (relation.name,),
        f"{relation.name}.select({listed(map(repr, chosen))}).{method}()",
        fixed(TOTAL, total=ordered, inexact=inexact),
    )


def group_by(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Aggregate groups."""
    relation = rng.choice(relations)
    names = [n for n in relation.exact("key") if n != "srt" or rng.random() < 0.2]
    if not names:
        return None
    scope = relation.scope(rng)
    if (structs := relation.exact("struct")) and rng.random() < 0.3:
        names = structs
    keys = rng.sample(names, min(len(names), rng.choice([1, 1, 2])))
    written_keys = [repr(k) for k in keys]
    if (
        rng.random() < 0.15
        and (computed := scope.one_of(("({int} % 3)", "{plain}.is_null()", "{str}.str.slice(0, 1)")))
        is not None
    ):
        keys = [*keys, "key"]
        written_keys.append(f"{computed.text}.alias('key')")
    inner = Scope(
        rng,
        {n: t for n, t in relation.schema.items() if n not in keys},
        relation.state.inexact,
        scope.total,
        scope.numbered and "srt" not in keys,
    )
    _outputs, texts, inexact = outputs(
        rng, Relation("", {}, relation.state), [inner.of_group() for _ in range(rng.choice([1, 2, 3]))]
    )
    if not texts:
        return None
    maintain = rng.random() < 0.3
    total = relation.state.order.total
    having = ""
    if (
        rng.random() < 0.1
        and (condition := inner.one_of(("{num}.sum() > {small}", "pl.len() > 1", "{any}.count() > 0")))
        is not None
    ):
        having = f".having({condition.text})"
    option = ", maintain_order=True" if maintain else ""

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        order = TOTAL if maintain and state.order.total else ANY_ORDER
        return marked(State(order, frozenset([frozenset(keys)]), most=state.most), schema, inexact)

    return Step(
        (relation.name,),
        f"{relation.name}.group_by({listed(written_keys)}{option}){having}.agg({listed(texts)})",
        rule,
    )


def group_whole(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Groups without ``agg``: their heads, their lengths, a function of each."""
    relation = rng.choice(relations)
    if not (names := relation.exact("key")):
        return None
    key = rng.choice(names)
    total = relation.state.order.total
    form = rng.choice(["head(2)", "tail(1)", "len()", "all()", "map_groups"] if total else ["len()"])
    if form == "map_groups":
        form = "map_groups(lambda frame: frame.head(1), schema=None)"

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        keys = frozenset([frozenset([key])]) if form in ("len()", "all()") else state.only(schema).keys
        return State(ANY_ORDER, keys, state.inexact & frozenset(schema), most=state.most)

    return Step((relation.name,), f"{relation.name}.group_by({key!r}).{form}", rule)


def unique_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Drop duplicates."""
    relation = rng.choice(relations)
    names = relation.exact("key")
    if not names:
        return None
    maintain = rng.random() < 0.4
    option = ", maintain_order=True" if maintain else ""
    total = relation.state.order.total
    keep = rng.choice(["first", "last", "none", "any"] if total else ["none", "any"])
    subset = rng.sample(names, min(len(names), rng.choice([1, 1, 2])))
    text = f"{relation.name}.unique({subset}, keep={keep!r}{option})"
    if rng.random() < 0.35:
        # All columns: which of the equal rows is kept does not show.
        if relation.state.inexact or not all(KINDS["key"](n, t) for n, t in relation.schema.items()):
            text = f"{relation.name}.select({subset}).unique(keep={keep!r}{option})"
        else:
            subset = list(relation.schema)
            text = f"{relation.name}.unique({'maintain_order=True' if maintain else ''})"
    elif keep == "any":
        text += f".select({subset})"
    needs = keep in ("first", "last") and f"unique({subset}, keep" in text

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if needs and not state.order.total:
            return None
        # Which row stands for its equals decides where it stands.
        order = (
            TOTAL
            if maintain and state.order.total and keep != "any" and ".select(" not in text
            else ANY_ORDER
        )
        state = state.only(schema)
        return replace(state, order=order, keys=state.keys | {frozenset(subset)}, height=None)

    return Step((relation.name,), text, rule)


def time_groups(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Groups by windows of time, or of an index."""
    relation = rng.choice(relations)
    times = relation.exact("time")
    numbers = [n for n in relation.exact("int") if relation.schema[n] in (pl.Int64, pl.Int32)]
    if times and (not numbers or rng.random() < 0.6):
        index, period = rng.choice(times), rng.choice(["1d", "2d", "12h", "1w"])
        if relation.schema[index] == pl.Date and "h" in period:
            period = "3d"
    elif numbers:
        index, period = rng.choice(numbers), rng.choice(["1i", "2i", "5i"])
    else:
        return None
    keys = [n for n in relation.exact("plain") if n != index]
    by = [rng.choice(keys)] if keys and rng.random() < 0.4 else []
    rest = {n: t for n, t in relation.schema.items() if n not in (index, *by)}
    scope = Scope(rng, rest, relation.state.inexact, False, False)
    names, texts, _inexact = outputs(
        rng, Relation("", {}, relation.state), [scope.scalar(nested=False) for _ in range(2)]
    )
    if not texts:
        return None
    group = f", group_by={by}" if by else ""
    closed = rng.choice(["", ", closed='both'", ", closed='left'", ", closed='none'"])
    if rng.random() < 0.5:
        method = f"group_by_dynamic({index!r}, every={period!r}{closed}{group})"
        keys_of_result: list[str] = [index, *by]
    else:
        method = f"rolling({index!r}, period={period!r}{closed}{group})"
        keys_of_result = []

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        own = frozenset([frozenset(keys_of_result)]) if keys_of_result else frozenset()
        order = Order(False, (index,)) if not by else ANY_ORDER
        if keys_of_result and not by:
            order = TOTAL
        return marked(State(order, own, most=state.most), schema, names)

    return Step(
        (relation.name,),
        f"{relation.name}.drop_nulls({index!r}).sort({index!r}).{method}.agg({listed(texts)})",
        rule,
    )


def beside_sorted(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Pair a sorted column with the rows in their order, then ask what depends on the pairs, in any order."""
    ordered = [r for r in relations if r.state.order.total and len(r.exact("num")) > 1 and r.exact("key")]
    if not ordered:
        return None
    relation = rng.choice(ordered)
    first, second = rng.sample(relation.exact("num"), 2)
    # Where equal rows have to meet, what is left of them is no longer in its order, unless that is restored.
    key = rng.choice(relation.exact("key"))
    kept = rng.choice(["", *2 * [f".unique([{key!r}], keep='first', maintain_order=True)"]])
    sort = rng.choice(["sort()", "sort(descending=True)"])
    text = (
        f"{relation.name}{kept}.with_columns(c({first!r}).{sort}.alias('sorted'))"
        f".filter(c('sorted') > {rng.randrange(-3, 6)}).select(c({second!r}).sum(), c('sorted').count().alias('n'))"
    )
    return Step((relation.name,), text, fixed(TOTAL, total=True, height=1))
