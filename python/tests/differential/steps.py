"""The steps of which cases are made: each writes one line of Polars and knows what the line promises."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import polars as pl

from differential.catalogue import Nature
from differential.expressions import KINDS, Scope, Text
from differential.queries import sql_query
from differential.relation import ANY_ORDER, TOTAL, Order, Relation, Rule, State, Step, holds_floats

__all__ = ["STEPS", "many_functions"]

MOST_ROWS = 30_000
_MANY = (Nature.MANY, Nature.SCALAR)
Schema = Mapping[str, pl.DataType]


Maker = Callable[[random.Random, Sequence[Relation]], "Step | None"]


# --- what lines promise ----------------------------------------


def _marked(state: State, schema: Schema, names: Sequence[str]) -> State:
    """Return ``state`` with those of the columns ``names`` that hold floats inexact."""
    floats = {n for n in (schema if "*" in names else names) if n in schema and holds_floats(schema[n])}
    return replace(state, inexact=(state.inexact | floats) & frozenset(schema))


def _rowwise(changed: Sequence[str], inexact: Sequence[str], *, total: bool, drops: bool = False) -> Rule:
    """Of columns that are added or changed, or rows that are dropped."""

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        state = state.only(schema, changed)
        if drops:
            state = replace(state, height=None)
        return _marked(state, schema, inexact)

    return rule


def _fixed(order: Order, *, total: bool = False, keys: Sequence[str] = (), inexact: Sequence[str] = (), height: int | None = None) -> Rule:
    """Of a result with an order of its own; ``total`` says that the input's order must be promised."""

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        if total and not all(state.order.total for state in states):
            return None
        own = frozenset([frozenset(keys)]) if keys else frozenset()
        most = height if height is not None else max((state.most for state in states), default=1.0)
        return _marked(State(order, own, frozenset(), height, most), schema, inexact)

    return rule


def _needs_order(texts: Iterable[Text], relation: Relation) -> bool:
    # Where the order is promised, expressions may have been chosen that need it.
    return relation.state.order.total


def _list(texts: Iterable[str]) -> str:
    return ", ".join(texts)


# --- one table ----------------------------------------


def _alias(rng: random.Random, relation: Relation, number: int, text: Text) -> tuple[str, str]:
    roll = rng.random()
    name = f"z{number}"
    if roll < 0.12:
        name = rng.choice(list(relation.schema) or ["z"])
    return name, f"({text.text}).alias({name!r})"


def _outputs(rng: random.Random, relation: Relation, texts: Iterable[Text | None]) -> tuple[list[str], list[str], list[str]]:
    """Return names, texts and the names of what is inexact."""
    names: list[str] = []
    written: list[str] = []
    inexact: list[str] = []
    for text in texts:
        if text is None:
            continue
        name, aliased = _alias(rng, relation, len(relation.schema) + len(names), text)
        if name in names:
            continue
        names.append(name)
        written.append(aliased)
        if text.inexact:
            inexact.append(name)
    return names, written, inexact


def filter_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Keep rows."""
    relation = rng.choice(relations)
    found = [relation.scope(rng).predicate() for _ in range(rng.choice([1, 1, 2]))]
    texts = [t.text for t in found if t is not None]
    if not texts:
        return None
    method = "remove" if rng.random() < 0.07 else "filter"
    return Step((relation.name,), f"{relation.name}.{method}({_list(texts)})", _rowwise((), (), total=False, drops=True))


def with_columns(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Add columns, or change some."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    names, texts, inexact = _outputs(rng, relation, [scope.of_rows() for _ in range(rng.choice([1, 1, 2, 3]))])
    if not texts:
        return None
    method = "with_columns_seq" if rng.random() < 0.05 else "with_columns"
    return Step(
        (relation.name,),
        f"{relation.name}.{method}({_list(texts)})",
        _rowwise(names, inexact, total=relation.state.order.total),
    )


def many_functions(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Make columns, or values of all rows, by many functions of the catalogue at once."""
    relation = max(relations, key=lambda r: len(r.schema))
    scope = relation.scope(rng)
    total = relation.state.order.total
    kinds = [((Nature.ROWWISE,), 3.0), ((Nature.SCALAR,), 1.0)]
    if total:
        kinds += [((Nature.WHOLE, Nature.ORDERED), 1.0), ((Nature.SCALAR, Nature.SCALAR_ORDERED), 1.0)]
    natures = rng.choices([natures for natures, _ in kinds], [weight for _, weight in kinds])[0]
    found = [scope.template(*natures) for _ in range(rng.choice([4, 8, 16, 24]))]
    # One that fails would hide the others.
    texts = [text for text in found if text is not None and (rng.random() < 0.002 or relation.runs(text.text))]
    if len(texts) < 3:
        return None
    written = [f"({text.text}).alias('m{number}')" for number, text in enumerate(texts)]
    inexact = [f"m{number}" for number, text in enumerate(texts) if text.inexact or Nature.ROWWISE not in natures]
    if Nature.SCALAR in natures:
        rule = _fixed(TOTAL, total=Nature.SCALAR_ORDERED in natures, inexact=inexact, height=1)
        return Step((relation.name,), f"{relation.name}.select({_list(written)})", rule)
    rule = _rowwise([f"m{number}" for number in range(len(texts))], inexact, total=Nature.ORDERED in natures)
    return Step((relation.name,), f"{relation.name}.with_columns({_list(written)})", rule)


def select_columns(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Keep some columns, and compute others."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    kept = rng.sample(list(relation.schema), rng.randrange(1, min(5, len(relation.schema)) + 1)) if relation.schema else []
    made = [scope.of_rows() for _ in range(rng.choice([0, 0, 1, 2]))]
    names, texts, inexact = _outputs(rng, relation, made)
    kept = [name for name in kept if name not in names]
    texts = [*(repr(name) for name in kept), *texts]
    if not texts or not kept:
        return None
    return Step(
        (relation.name,), f"{relation.name}.select({_list(texts)})", _rowwise(names, inexact, total=relation.state.order.total)
    )


def select_made(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Select computed columns only, which may be a constant number of rows."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    if not relation.state.order.total:
        return None
    text = rng.choice(
        [
            "pl.int_range(pl.len()).alias('z')",
            "pl.row_index()",
            "pl.repeat(7, pl.len()).alias('z')",
            "pl.lit(1).alias('z')",
            "pl.int_range(pl.len(), dtype=pl.Int32).alias('z'), pl.len().alias('y')",
            "pl.all().head(3)",
            "pl.all().reverse()",
            "pl.all().sort_by(pl.int_range(pl.len()), descending=True)",
            "pl.all().gather_every(3)",
            "pl.all().drop_nulls()",
            "pl.all().tail(2)",
        ]
    )
    if rng.random() < 0.4:
        made = scope.template(*_MANY)
        if made is None:
            return None
        text = made.text
        return Step((relation.name,), f"{relation.name}.select({text})", _fixed(TOTAL, total=True, inexact=("*",)))

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.order.total:
            return None
        return State(TOTAL, inexact=state.inexact & frozenset(schema), most=state.most)

    return Step((relation.name,), f"{relation.name}.select({text})", rule)


def select_scalars(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Aggregate the table to one row; the same aggregate often twice."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    texts = [scope.scalar_expression() for _ in range(rng.choice([1, 2, 2, 3]))]
    if rng.random() < 0.5 and (one := scope.scalar(nested=rng.random() < 0.2)) is not None:
        texts += [one, scope.computed_of(one)]
    names, written, inexact = _outputs(rng, relation, texts)
    if not written:
        return None
    return Step(
        (relation.name,),
        f"{relation.name}.select({_list(written)})",
        _fixed(TOTAL, total=relation.state.order.total, inexact=inexact, height=1),
    )


def frame_aggregate(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Aggregate each column alike."""
    relation = rng.choice(relations)
    if relation.state.inexact or not relation.schema:
        return None
    method = rng.choice(["count", "null_count", "min", "max", "sum", "mean", "median", "std", "first", "last"])
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
        f"{relation.name}.select({_list(map(repr, chosen))}).{method}()",
        _fixed(TOTAL, total=ordered, inexact=inexact),
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
    if rng.random() < 0.15 and (computed := scope.one_of(("({int} % 3)", "{plain}.is_null()", "{str}.str.slice(0, 1)"))) is not None:
        keys = [*keys, "key"]
        written_keys.append(f"{computed.text}.alias('key')")
    inner = Scope(rng, {n: t for n, t in relation.schema.items() if n not in keys}, relation.state.inexact, scope.total, scope.numbered and "srt" not in keys)
    outputs, texts, inexact = _outputs(rng, Relation("", {}, relation.state), [inner.of_group() for _ in range(rng.choice([1, 2, 3]))])
    if not texts:
        return None
    maintain = rng.random() < 0.3
    total = relation.state.order.total
    having = ""
    if rng.random() < 0.1 and (condition := inner.one_of(("{num}.sum() > {small}", "pl.len() > 1", "{any}.count() > 0"))) is not None:
        having = f".having({condition.text})"
    option = ", maintain_order=True" if maintain else ""

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        order = TOTAL if maintain and state.order.total else ANY_ORDER
        return _marked(State(order, frozenset([frozenset(keys)]), most=state.most), schema, inexact)

    return Step((relation.name,), f"{relation.name}.group_by({_list(written_keys)}{option}){having}.agg({_list(texts)})", rule)


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


def _sorted_state(keys: Sequence[str], maintain: bool) -> Rule:
    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if state.is_key(keys) or (maintain and state.order.total):
            return replace(state, order=TOTAL)
        return replace(state, order=Order(False, tuple(keys)))

    return rule


def sort_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Sort, often so that all rows have their places."""
    relation = rng.choice(relations)
    names = relation.exact("ord")
    if not names:
        return None
    keys = rng.sample(names, min(len(names), rng.choice([1, 1, 2, 3])))
    if rng.random() < 0.6 and (known := [k for k in relation.state.keys if set(k) <= set(names)]):
        keys += [c for c in sorted(min(known, key=sorted)) if c not in keys]
    flags = [rng.random() < 0.4 for _ in keys]
    nulls = [rng.random() < 0.4 for _ in keys]
    maintain = rng.random() < 0.4
    options = ", maintain_order=True" if maintain else ""
    text = f"{relation.name}.sort({_list(map(repr, keys))}, descending={flags}, nulls_last={nulls}{options})"
    if rng.random() < 0.08 and relation.exact("int"):
        number = rng.choice(relation.exact("int"))
        return Step((relation.name,), f"{relation.name}.sort(c({number!r}) % 3, c({keys[0]!r}), maintain_order=True)", _by_expression(keys))
    return Step((relation.name,), text, _sorted_state(keys, maintain))


def _by_expression(keys: Sequence[str]) -> Rule:
    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        return state if state.order.total else replace(state, order=ANY_ORDER)

    return rule


def slice_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Cut rows by their places."""
    ordered = [r for r in relations if r.state.order.total]
    if not ordered:
        return None
    relation = rng.choice(ordered)
    form = rng.choice(
        [
            f"head({rng.choice([0, 1, 2, 5, 20])})",
            f"limit({rng.choice([1, 3, 10])})",
            f"tail({rng.choice([0, 1, 2, 5, 20])})",
            f"slice({rng.randrange(-8, 12)}, {rng.randrange(0, 12)})",
            f"slice({rng.randrange(0, 40)})",
            "first()",
            "last()",
            f"gather_every({rng.choice([1, 2, 3])}, {rng.choice([0, 1])})",
            f"gather_every(1, {rng.choice([1, 3])})",
            "gather([0])",
            "gather([0, 99999], null_on_oob=True)",
        ]
    )
    return Step((relation.name,), f"{relation.name}.{form}", _cut(few=not form.startswith("gather([0, 9")))


def _cut(*, few: bool) -> Rule:
    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.order.total:
            return None
        return replace(state, height=None, keys=state.keys if few else frozenset())

    return rule


def shift_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Steps that give each row to another place, or fill it from others."""
    ordered = [r for r in relations if r.state.order.total and not r.state.inexact]
    if not ordered:
        return None
    relation = rng.choice(ordered)
    form = rng.choice(["reverse()", "shift(1)", "shift(-2)", "interpolate()", "fill_null(strategy='forward')", "fill_null(strategy='backward')"])
    changed = () if form == "reverse()" else tuple(relation.schema)
    return Step((relation.name,), f"{relation.name}.{form}", _rowwise(changed, tuple(relation.schema) if "inter" in form else (), total=True))


def row_index(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Number the rows."""
    ordered = [r for r in relations if r.state.order.total and "index" not in r.schema]
    if not ordered:
        return None
    relation = rng.choice(ordered)
    offset = rng.choice([0, 0, 5])
    text = f"{relation.name}.with_row_index('index', offset={offset})"
    roll = rng.random()
    if roll < 0.2:
        text += ".select('index')"
    elif roll < 0.35:
        text += f".drop({_list(map(repr, relation.schema))})"
    elif roll < 0.5:
        text += f".filter(c('index') {rng.choice(['>', '<', '=='])} {rng.randrange(8)})"
    elif roll < 0.6:
        text += f".select(c('index').{rng.choice(['sum', 'max', 'first'])}())"

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.order.total:
            return None
        state = state.only(schema)
        return replace(state, keys=state.keys | {frozenset(["index"])}, height=None)

    return Step((relation.name,), text, rule)


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
        order = TOTAL if maintain and state.order.total and keep != "any" and ".select(" not in text else ANY_ORDER
        state = state.only(schema)
        return replace(state, order=order, keys=state.keys | {frozenset(subset)}, height=None)

    return Step((relation.name,), text, rule)


def change_columns(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Steps of single columns: drop, rename, cast, fill, drop nulls."""
    relation = rng.choice(relations)
    names = list(relation.schema)
    if not names:
        return None
    name = rng.choice(names)
    same: dict[str, str] = {}
    form = rng.randrange(9)
    if form == 0 and len(names) > 1:
        gone = rng.sample(names, rng.randrange(1, len(names)))
        return Step((relation.name,), f"{relation.name}.drop({_list(map(repr, gone))})", _rowwise((), (), total=False))
    if form == 1:
        new = f"r{len(names)}"
        same[name] = new

        def rename(states: Sequence[State], schema: Schema) -> State | None:
            return states[0].renamed({name: new}).only(schema)

        return Step((relation.name,), f"{relation.name}.rename({{{name!r}: {new!r}}})", rename)
    if form == 2 and (numbers := relation.exact("int")):
        name = rng.choice(numbers)
        target = rng.choice(["pl.Float64", "pl.Int64", "pl.String", "pl.Int8", "pl.Decimal(20, 1)"])
        return Step((relation.name,), f"{relation.name}.cast({{{name!r}: {target}}}, strict={rng.random() < 0.3})", _rowwise([name], (), total=False))
    if form == 3:
        subset = rng.sample(names, rng.randrange(1, len(names) + 1))
        return Step((relation.name,), f"{relation.name}.drop_nulls({subset if rng.random() < 0.8 else ''})", _rowwise((), (), total=False, drops=True))
    if form == 4:
        return Step((relation.name,), f"{relation.name}.fill_null(0)", _rowwise(names, (), total=False))
    if form == 5:
        return Step((relation.name,), f"{relation.name}.cache()", _rowwise((), (), total=False))
    if form == 6:
        return Step((relation.name,), f"{relation.name}.map_batches(lambda frame: frame.with_columns(pl.lit(1).alias('one')), schema={{**{relation.name}.collect_schema(), 'one': pl.Int32}})", _rowwise(["one"], (), total=relation.state.order.total))
    if form == 7 and relation.state.order.total:
        return Step((relation.name,), f"{relation.name}.map_batches(lambda frame: frame.head(3))", _cut(few=True))
    if form == 8 and not relation.state.inexact:
        return Step((relation.name,), f"{relation.name}.drop_nans()", _rowwise((), (), total=False, drops=True))
    return None


def nested(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Explode, unnest, unpivot, pivot."""
    relation = rng.choice(relations)
    lists = relation.exact("list")
    structs = relation.exact("struct")
    form = rng.choice(["explode", "unnest", "unpivot", "pivot"])
    if form == "explode" and lists:
        name = rng.choice(lists)
        option = rng.choice(["", ", empty_as_null=False", ", keep_nulls=False"])

        def exploded(states: Sequence[State], schema: Schema) -> State | None:
            (state,) = states
            order = state.order if state.order.total or name not in state.order.columns else ANY_ORDER
            return replace(state, order=order, keys=frozenset(), height=None, most=state.most * 3)

        return Step((relation.name,), f"{relation.name}.explode({name!r}{option})", exploded)
    if form == "unnest" and structs:
        name = rng.choice(structs)
        option = rng.choice(["", ", separator='_'"])
        return Step((relation.name,), f"{relation.name}.unnest({name!r}{option})", _rowwise((), (), total=False))
    if form == "unpivot" and (numbers := relation.exact("num")):
        chosen = rng.sample(numbers, rng.randrange(1, min(3, len(numbers)) + 1))
        index = rng.sample([n for n in relation.schema if n not in chosen], min(2, len(relation.schema) - len(chosen)))
        if "variable" in index or "value" in index:
            return None

        def unpivoted(states: Sequence[State], schema: Schema) -> State | None:
            (state,) = states
            return State(ANY_ORDER, inexact=state.inexact & frozenset(index), most=state.most * 3)

        return Step((relation.name,), f"{relation.name}.unpivot({chosen}, index={index})", unpivoted)
    if form == "pivot" and "t" in relation.exact("str") and (numbers := [n for n in relation.exact("num") if n != "t"]):
        keys = [n for n in relation.exact("plain") if n not in ("t", *numbers[:1])]
        if not keys:
            return None
        key = rng.choice(keys)
        how = rng.choice(["sum", "min", "len", "max"])
        return Step(
            (relation.name,),
            f"{relation.name}.pivot('t', on_columns=['x', 'y', 'z'], index={key!r}, values={numbers[0]!r}, aggregate_function={how!r})",
            _fixed(ANY_ORDER, keys=[key]),
        )
    return None


def top_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """The largest or smallest rows by keys that tell all rows apart, or the head of a sort."""
    relation = rng.choice(relations)
    names = set(relation.exact("ord"))
    known = [k for k in relation.state.keys if set(k) <= names]
    if not known:
        return None
    keys = sorted(rng.choice(sorted(known, key=sorted)))
    others = [n for n in names if n not in keys]
    if others and rng.random() < 0.6:
        keys = [rng.choice(sorted(others)), *keys]
    count = rng.choice([1, 3, 5, 50])
    if rng.random() < 0.5:
        flags = [rng.random() < 0.4 for _ in keys]
        how = rng.choice([f"head({count})", f"slice({rng.choice([0, 2])}, {count})", f"tail({count})"])
        text = f"{relation.name}.sort({_list(map(repr, keys))}, descending={flags}).{how}"
        total = True
    else:
        text = f"{relation.name}.{rng.choice(['top_k', 'bottom_k'])}({count}, by={keys})"
        total = False

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.is_key(keys):
            return None
        return replace(state, order=TOTAL if total else ANY_ORDER, height=None)

    return Step((relation.name,), text, rule)


def time_groups(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Groups by windows of time, or of an index."""
    relation = rng.choice(relations)
    times = [n for n in relation.exact("time")]
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
    names, texts, inexact = _outputs(rng, Relation("", {}, relation.state), [scope.scalar(nested=False) for _ in range(2)])
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
        return _marked(State(order, own, most=state.most), schema, names)

    return Step((relation.name,), f"{relation.name}.drop_nulls({index!r}).sort({index!r}).{method}.agg({_list(texts)})", rule)


# --- two tables ----------------------------------------


def _two(rng: random.Random, relations: Sequence[Relation]) -> tuple[Relation, Relation]:
    return rng.choice(relations), rng.choice(relations)


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
    if not pairs or len({a for a, _ in pairs}) < len(pairs) or len({b for _, b in pairs}) < len(pairs):
        return None
    how = rng.choice(["inner", "inner", "left", "right", "right", "full", "semi", "anti"])
    left_on, right_on = [a for a, _ in pairs], [b for _, b in pairs]
    unique_right, unique_left = right.state.is_key(right_on), left.state.is_key(left_on)
    most = left.state.most * right.state.most / 3 if not (unique_left or unique_right) else left.state.most + right.state.most
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
    keys = f"on={left_on}" if left_on == right_on and rng.random() < 0.8 else f"left_on={left_on}, right_on={right_on}"
    if rng.random() < 0.06 and len(pairs) == 1 and left.schema[left_on[0]].is_integer() and right.schema[right_on[0]].is_integer():
        keys = f"left_on=c({left_on[0]!r}) + 1, right_on={right_on[0]!r}"
    text = f"{left.name}.join({right.name}, {keys}, how={how!r}{options})"
    left_columns = set(left.schema)
    right_columns = list(right.schema)

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        a, b = states
        if how in ("semi", "anti"):
            # Polars keeps the left order there in all its engines, and promises none.
            return replace(a, order=ANY_ORDER, height=None)
        grown = a.most * b.most / 3 if not (a.is_key(left_on) or b.is_key(right_on)) else a.most + b.most
        inexact = {n for n in schema if n in a.inexact or n.removesuffix("_right").removesuffix("_2") in b.inexact}
        keys: set[frozenset[str]] = set()
        order = ANY_ORDER
        if how in ("inner", "left") and b.is_key(right_on) and not nulls_equal:
            keys = {k for k in a.keys if k <= left_columns & set(schema)}
        ordered = a.order.total and b.order.total
        if maintain in ("left_right", "right_left") and ordered and not (how == "full" or (how == "left" and maintain == "right_left") or (how == "right" and maintain == "left_right")):
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

    del right_columns
    return Step((left.name, right.name), text, rule)


def cross_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Cross and inequality joins, often of no column of one side."""
    left, right = _two(rng, relations)
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
    if rng.random() < 0.5 and sides and numbers:
        conditions = []
        for _ in range(rng.choice([1, 1, 2])):
            own, (_, other) = rng.choice(numbers), rng.choice(sides)
            conditions.append(f"c({own!r}) {rng.choice(['<', '<=', '>', '>=', '=='])} c({other!r})")
        text = f"{left.name}.join_where({right.name}, {_list(conditions)})"
    else:
        text = f"{left.name}.join({right.name}, how='cross')"
    used = rng.random()
    if used < 0.6:
        # Only columns of one side are used, or none.
        names = [n for n in left.exact("num")] if rng.random() < 0.5 else [o for _, o in sides]
        if not names:
            return None
        name = rng.choice(names)
        form = rng.choice(
            [f"select(c({name!r}).sum())", f"group_by({name!r}).len()", f"select({name!r})", "select(pl.len())", f"select(c({name!r}).sum(), pl.len())", f"group_by({name!r}).agg(pl.len().alias('n'))"]
        )
        return Step((left.name, right.name), f"{text}.{form}", _fixed(TOTAL if "select(c" in form or form == "select(pl.len())" else ANY_ORDER))
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
    by = [n for n in left.exact("plain") if n in right.exact("plain") and left.schema[n] == right.schema[n] and n not in (a, b)]
    if by and rng.random() < 0.3:
        options += f", by={rng.choice(by)!r}"
    if rng.random() < 0.2:
        options += ", allow_exact_matches=False"
    on = f"on={a!r}" if a == b else f"left_on={a!r}, right_on={b!r}"
    prepared = f"{right.name}.drop_nulls({b!r}).unique({b!r}, keep='first', maintain_order=True).sort({b!r})"
    if strategy == "nearest" and "by" not in options:
        pass
    sorted_left = f"{left.name}.drop_nulls({a!r}).sort({a!r})" if rng.random() < 0.9 else left.name

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        x, y = states
        if not y.order.total and not y.is_key([b]):
            return None
        order = Order(False, (a,)) if a in schema else ANY_ORDER
        if x.is_key([a]):
            order = TOTAL
        return State(order, frozenset(k for k in x.keys if k <= set(schema)), x.inexact | y.inexact, None, x.most)

    return Step((left.name, right.name), f"{sorted_left}.join_asof({prepared}, {on}{options})", rule)


def concat_tables(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Put tables below each other, or side by side."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    form = rng.choice(["vertical", "vertical", "relaxed", "diagonal", "union", "horizontal", "merge_sorted", "align"])
    other = rng.choice(relations)
    first, second = scope.predicate(plain=True), scope.predicate(plain=True)
    halves = [relation.name, f"{relation.name}.filter({first.text})" if first is not None else relation.name]
    if rng.random() < 0.5 and first is not None and second is not None:
        halves[0] = f"{relation.name}.filter({second.text})"
    if rng.random() < 0.4 and relation.state.order.total:
        halves[rng.randrange(2)] += f".{rng.choice(['head(3)', 'tail(2)', 'head(1)'])}"

    def stacked(order: bool) -> Rule:
        def rule(states: Sequence[State], schema: Schema) -> State | None:
            if any("." in half and ("head" in half or "tail" in half) for half in halves) and not states[0].order.total:
                return None
            total = order and all(s.order.total for s in states)
            inexact = frozenset().union(*(s.inexact for s in states)) & frozenset(schema)
            return State(TOTAL if total else ANY_ORDER, frozenset(), inexact, None, sum(s.most for s in states) * (2 if len(states) == 1 else 1))

        return rule

    if form in ("vertical", "union"):
        text = f"pl.concat([{halves[0]}, {halves[1]}])" if form == "vertical" else f"pl.union([{halves[0]}, {halves[1]}])"
        return Step((relation.name,), text, stacked(form == "vertical"))
    if form == "merge_sorted":
        keys = [n for n in relation.exact("plain") if relation.schema[n] not in (pl.Categorical, pl.Enum)]
        if not keys:
            return None
        key = rng.choice(keys)
        text = f"{halves[0]}.sort({key!r}).merge_sorted({halves[1]}.sort({key!r}), {key!r})"
        if rng.random() < 0.5 and relation.state.order.total:
            # Both sides from the head of the same rows.
            name = relation.name
            head = rng.choice([".head({})", ".select(pl.all().head({}))", ".slice(1, {})"]).format(rng.choice([1, 3, 5, 9]))
            conditions = [f"c({key!r}).is_not_null()" if t is None else t.text for t in (first, second)]
            sides = [f"{name}{head}.sort({key!r}).filter({condition})" for condition in conditions]
            text = f"{sides[0]}.merge_sorted({sides[1]}, {key!r})"
            return Step((relation.name,), text, _merged(key, total=True))
        return Step((relation.name,), text, _merged(key, total=any("head" in h or "tail" in h for h in halves)))
    if relation is other or relation.state.most + other.state.most > MOST_ROWS:
        return None
    if form == "horizontal":
        renamed = f"{other.name}.select(pl.all().name.suffix('_h'))"
        mode = "horizontal_extend" if rng.random() < 0.8 else "horizontal"
        if not (relation.state.order.total and other.state.order.total):
            return None

        def side_by_side(states: Sequence[State], schema: Schema) -> State | None:
            if not all(s.order.total for s in states):
                return None
            inexact = states[0].inexact | {f"{n}_h" for n in states[1].inexact}
            return State(TOTAL, frozenset(), frozenset(inexact) & frozenset(schema), None, max(s.most for s in states))

        return Step((relation.name, other.name), f"pl.concat([{relation.name}, {renamed}], how={mode!r})", side_by_side)
    names = (relation.name, other.name)
    if form == "align":
        return None
    how = "diagonal" if form == "diagonal" and rng.random() < 0.3 else "diagonal_relaxed"
    if form == "relaxed":
        shared = [n for n in relation.schema if n in other.schema]
        if not shared:
            return None
        return Step(names, f"pl.concat([{names[0]}.select({shared}), {names[1]}.select({shared})], how='vertical_relaxed')", stacked(True))
    return Step(names, f"pl.concat([{names[0]}, {names[1]}], how={how!r})", stacked(True))


def _merged(key: str, *, total: bool) -> Rule:
    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        return State(Order(False, (key,)), frozenset(), state.inexact, None, 2 * state.most)

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

    return Step((left.name, right.name), f"{left.name}.join({side}, left_on={a!r}, right_on={b!r}, how={how!r})", rule)


def lottery(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Choose some rows by chance, and count those of another table that match: the number is known, the rows are not."""
    numbered = [r for r in relations if r.state.is_key({"srt"}) and r.schema.get("srt") == pl.Int64 and r.state.height is not None]
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
        if any(h is None for h in heights) or heights[0] > heights[1] or not all(s.is_key({"srt"}) for s in states):  # type: ignore[operator]
            return None
        return State(TOTAL, height=1, most=1.0)

    return Step((small.name, big.name, other.name), text, rule)


def join_own_groups(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Give each row what its group was reduced to, by a join of the table with its own groups."""
    relation = rng.choice(relations)
    names = relation.exact("plain")
    if not names:
        return None
    key = rng.choice(names)
    inner = Scope(rng, {n: t for n, t in relation.schema.items() if n != key}, relation.state.inexact, False, False)
    text = inner.scalar(nested=False)
    if text is None:
        return None
    name = relation.name
    how = rng.choice(["left", "inner", "semi", "anti", "full"])
    groups = f"{name}.group_by({key!r}).agg(({text.text}).alias('of_group'))"
    if rng.random() < 0.4:
        groups += ".filter(c('of_group').is_not_null())"
    options = "" if how in ("semi", "anti") else rng.choice(["", ", nulls_equal=True", ", maintain_order='left'"])
    if how == "full":
        options = ", coalesce=True"

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        ordered = "maintain_order" in options and state.order.total
        keys = frozenset() if how == "full" else state.only(schema, ["of_group"]).keys
        found = State(TOTAL if ordered else ANY_ORDER, keys, state.inexact & frozenset(schema), None, state.most)
        return _marked(found, schema, ["of_group"])

    return Step((name,), f"{name}.join({groups}, on={key!r}, how={how!r}{options})", rule)


def several_columns(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Expressions that stand for several columns: ``all``, selectors, lists of names."""
    relation = rng.choice(relations)
    name = relation.name
    if relation.state.inexact or not relation.schema:
        return None
    total = relation.state.order.total
    numbers = relation.exact("num")
    forms = [
        (f"{name}.select(pl.all().null_count())", False),
        (f"{name}.select(pl.all().count())", False),
        (f"{name}.select(pl.selectors.numeric())", False),
        (f"{name}.select(pl.selectors.by_dtype(pl.String, pl.Int64))", False),
        (f"{name}.select(pl.exclude(pl.List, pl.Struct))", False),
        (f"{name}.select(pl.all().name.suffix('_a'))", False),
        (f"{name}.with_columns(pl.selectors.integer().is_null())", False),
        (f"{name}.select(pl.selectors.string().len(), pl.len().alias('n'))", False),
        (f"{name}.update({name}.select(pl.all()).head(2), how='left')", True),
        (f"{name}.select(pl.all().first())", True),
        (f"{name}.select(pl.all().last(), pl.len().alias('n'))", True),
        (f"{name}.select(pl.all().cum_count())", True),
        (f"{name}.select(pl.struct(pl.all()).alias('row')).unnest('row')", False),
        (f"{name}.select(pl.struct(pl.all()).alias('row'))", False),
        (f"{name}.filter(pl.any_horizontal(pl.all().is_null()))", False),
        (f"{name}.filter(~pl.all_horizontal(pl.all().is_null()))", False),
    ]
    if numbers:
        chosen = rng.sample(numbers, min(3, len(numbers)))
        forms += [
            (f"{name}.select(c({chosen}).sum())", False),
            (f"{name}.select(c({chosen}).max() - c({chosen}).min())", False),
            (f"{name}.with_columns(c({chosen}).sum().name.suffix('_s'))", False),
            (f"{name}.with_columns(c({chosen}).cum_sum().name.suffix('_s'))", True),
            (f"{name}.select(c({chosen}).head(2))", True),
            (f"{name}.with_columns(pl.sum_horizontal({chosen}).alias('h'), pl.max_horizontal({chosen}).alias('g'))", False),
            (f"{name}.filter(c({chosen[0]!r}).is_in({name}.select({chosen[0]!r}).collect_schema().len() * [1]))", False),
        ]
    text, ordered = rng.choice(forms)
    if ordered and not total:
        return None
    aggregates = any(part in text for part in ("_count())", ".count())", ".len(),", ".first())", ".last(),", ".sum())", ".min())"))
    keeps = any(part in text for part in (".filter(", "with_columns(", "numeric())", "by_dtype", "exclude"))

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if ordered and not state.order.total:
            return None
        if keeps and "is_null())" not in text:
            return replace(state.only(schema), height=None)
        if aggregates and "with_columns" not in text:
            return State(TOTAL, height=None, most=state.most)
        return State(TOTAL if state.order.total else ANY_ORDER, most=state.most)

    return Step((name,), text, rule)


def rolling_column(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Windows of rows around each, as an expression; sortedness that is said by hand."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    if not scope.numbered:
        return None
    text = scope.one_of(("{num}.sum()", "{any}.count()", "{num}.max()", "{plain}.n_unique()", "pl.len()"))
    if text is None:
        return None
    name = relation.name
    forms = [
        f"{name}.sort('srt').with_columns({text.text}.rolling('srt', period='3i').alias('rolled'))",
        f"{name}.sort('srt').set_sorted('srt').filter(c('srt') > 2)",
        f"{name}.sort('srt').set_sorted('srt').group_by('srt').len().sort('srt')",
        f"{name}.sort('srt').with_columns(c('srt').set_sorted()).select('srt').unique(maintain_order=True)",
        f"{name}.sort('srt', descending=True).with_columns({text.text}.over(c('srt') // 4).alias('rolled'))",
    ]

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.is_key({"srt"}):
            return None
        return replace(state.only(schema, ["rolled"]), order=TOTAL, keys=frozenset([frozenset(["srt"])]), height=None)

    return Step((name,), rng.choice(forms), rule)


def sql(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Ask in SQL."""
    return sql_query(rng, relations)


STEPS: Mapping[Maker, float] = {
    filter_rows: 3,
    with_columns: 4,
    many_functions: 0.8,
    select_columns: 2.5,
    select_made: 1,
    select_scalars: 3,
    frame_aggregate: 0.5,
    group_by: 4,
    group_whole: 0.4,
    sort_rows: 2.5,
    slice_rows: 2.5,
    shift_rows: 0.6,
    row_index: 1,
    unique_rows: 1.8,
    change_columns: 2,
    nested: 1.2,
    top_rows: 1,
    time_groups: 0.7,
    join_tables: 4.5,
    cross_tables: 1.7,
    asof_tables: 0.6,
    concat_tables: 2.3,
    member_tables: 0.6,
    lottery: 0.4,
    join_own_groups: 1,
    several_columns: 1.2,
    rolling_column: 0.5,
    sql: 2.2,
}
"""The steps, and how often each is taken."""
