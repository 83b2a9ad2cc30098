"""Steps of one table that keep, drop, change or move its rows."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from differential.catalogue import Nature
from differential.expressions import Scope
from differential.promises import fixed, listed, marked, outputs, rowwise
from differential.relation import ANY_ORDER, TOTAL, Order, Relation, Rule, Schema, State, Step

__all__ = [
    "change_columns",
    "filter_rows",
    "many_functions",
    "nested",
    "rolling_column",
    "row_index",
    "said_sorted",
    "select_columns",
    "select_made",
    "several_columns",
    "shift_rows",
    "slice_rows",
    "sort_rows",
    "top_rows",
    "with_columns",
]

_OTHER_HEIGHTS = (Nature.MANY, Nature.SCALAR)


def filter_rows(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Keep rows."""
    relation = rng.choice(relations)
    found = [relation.scope(rng).predicate() for _ in range(rng.choice([1, 1, 2]))]
    texts = [t.text for t in found if t is not None]
    if not texts:
        return None
    method = "remove" if rng.random() < 0.07 else "filter"
    return Step(
        (relation.name,),
        f"{relation.name}.{method}({listed(texts)})",
        rowwise((), (), total=False, drops=True),
    )


def with_columns(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Add columns, or change some."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    names, texts, inexact = outputs(rng, relation, [scope.of_rows() for _ in range(rng.choice([1, 1, 2, 3]))])
    if not texts:
        return None
    method = "with_columns_seq" if rng.random() < 0.05 else "with_columns"
    return Step(
        (relation.name,),
        f"{relation.name}.{method}({listed(texts)})",
        rowwise(names, inexact, total=relation.state.order.total),
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
    texts = [
        text for text in found if text is not None and (rng.random() < 0.002 or relation.runs(text.text))
    ]
    if len(texts) < 3:
        return None
    written = [f"({text.text}).alias('m{number}')" for number, text in enumerate(texts)]
    inexact = [
        f"m{number}" for number, text in enumerate(texts) if text.inexact or Nature.ROWWISE not in natures
    ]
    if Nature.SCALAR in natures:
        rule = fixed(TOTAL, total=Nature.SCALAR_ORDERED in natures, inexact=inexact, height=1)
        return Step((relation.name,), f"{relation.name}.select({listed(written)})", rule)
    rule = rowwise([f"m{number}" for number in range(len(texts))], inexact, total=Nature.ORDERED in natures)
    return Step((relation.name,), f"{relation.name}.with_columns({listed(written)})", rule)


def select_columns(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Keep some columns, and compute others."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    kept = (
        rng.sample(list(relation.schema), rng.randrange(1, min(5, len(relation.schema)) + 1))
        if relation.schema
        else []
    )
    made = [scope.of_rows() for _ in range(rng.choice([0, 0, 1, 2]))]
    names, texts, inexact = outputs(rng, relation, made)
    kept = [name for name in kept if name not in names]
    texts = [*(repr(name) for name in kept), *texts]
    if not texts or not kept:
        return None
    return Step(
        (relation.name,),
        f"{relation.name}.select({listed(texts)})",
        rowwise(names, inexact, total=relation.state.order.total),
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
        made = scope.template(*_OTHER_HEIGHTS)
        if made is None:
            return None
        text = made.text
        return Step(
            (relation.name,), f"{relation.name}.select({text})", fixed(TOTAL, total=True, inexact=("*",))
        )

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.order.total:
            return None
        return State(TOTAL, inexact=state.inexact & frozenset(schema), most=state.most)

    return Step((relation.name,), f"{relation.name}.select({text})", rule)


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
            (
                f"{name}.with_columns(pl.sum_horizontal({chosen}).alias('h'), pl.max_horizontal({chosen}).alias('g'))",
                False,
            ),
            (
                f"{name}.filter(c({chosen[0]!r}).is_in({name}.select({chosen[0]!r}).collect_schema().len() * [1]))",
                False,
            ),
        ]
    text, ordered = rng.choice(forms)
    if ordered and not total:
        return None
    aggregates = any(
        part in text
        for part in ("_count())", ".count())", ".len(),", ".first())", ".last(),", ".sum())", ".min())")
    )
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
    text = f"{relation.name}.sort({listed(map(repr, keys))}, descending={flags}, nulls_last={nulls}{options})"
    if rng.random() < 0.08 and relation.exact("int"):
        number = rng.choice(relation.exact("int"))
        return Step(
            (relation.name,),
            f"{relation.name}.sort(c({number!r}) % 3, c({keys[0]!r}), maintain_order=True)",
            _by_expression(keys),
        )
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
    form = rng.choice(
        [
            "reverse()",
            "shift(1)",
            "shift(-2)",
            "interpolate()",
            "fill_null(strategy='forward')",
            "fill_null(strategy='backward')",
        ]
    )
    changed = () if form == "reverse()" else tuple(relation.schema)
    return Step(
        (relation.name,),
        f"{relation.name}.{form}",
        rowwise(changed, tuple(relation.schema) if "inter" in form else (), total=True),
    )


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
        text += f".drop({listed(map(repr, relation.schema))})"
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
        return Step(
            (relation.name,), f"{relation.name}.drop({listed(map(repr, gone))})", rowwise((), (), total=False)
        )
    if form == 1:
        new = f"r{len(names)}"
        same[name] = new

        def rename(states: Sequence[State], schema: Schema) -> State | None:
            return states[0].renamed({name: new}).only(schema)

        return Step((relation.name,), f"{relation.name}.rename({{{name!r}: {new!r}}})", rename)
    if form == 2 and (numbers := relation.exact("int")):
        name = rng.choice(numbers)
        target = rng.choice(["pl.Float64", "pl.Int64", "pl.String", "pl.Int8", "pl.Decimal(20, 1)"])
        return Step(
            (relation.name,),
            f"{relation.name}.cast({{{name!r}: {target}}}, strict={rng.random() < 0.3})",
            rowwise([name], (), total=False),
        )
    if form == 3:
        subset = rng.sample(names, rng.randrange(1, len(names) + 1))
        return Step(
            (relation.name,),
            f"{relation.name}.drop_nulls({subset if rng.random() < 0.8 else ''})",
            rowwise((), (), total=False, drops=True),
        )
    if form == 4:
        return Step((relation.name,), f"{relation.name}.fill_null(0)", rowwise(names, (), total=False))
    if form == 5:
        return Step((relation.name,), f"{relation.name}.cache()", rowwise((), (), total=False))
    if form == 6:
        return Step(
            (relation.name,),
            f"{relation.name}.map_batches(lambda frame: frame.with_columns(pl.lit(1).alias('one')), "
            f"schema={{**{relation.name}.collect_schema(), 'one': pl.Int32}})",
            rowwise(["one"], (), total=relation.state.order.total),
        )
    if form == 7 and relation.state.order.total:
        return Step(
            (relation.name,), f"{relation.name}.map_batches(lambda frame: frame.head(3))", _cut(few=True)
        )
    if form == 8 and not relation.state.inexact:
        return Step(
            (relation.name,), f"{relation.name}.drop_nans()", rowwise((), (), total=False, drops=True)
        )
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
        return Step(
            (relation.name,), f"{relation.name}.unnest({name!r}{option})", rowwise((), (), total=False)
        )
    if form == "unpivot" and (numbers := relation.exact("num")):
        chosen = rng.sample(numbers, rng.randrange(1, min(3, len(numbers)) + 1))
        index = rng.sample(
            [n for n in relation.schema if n not in chosen], min(2, len(relation.schema) - len(chosen))
        )
        if "variable" in index or "value" in index:
            return None

        def unpivoted(states: Sequence[State], schema: Schema) -> State | None:
            (state,) = states
            return State(ANY_ORDER, inexact=state.inexact & frozenset(index), most=state.most * 3)

        return Step((relation.name,), f"{relation.name}.unpivot({chosen}, index={index})", unpivoted)
    if (
        form == "pivot"
        and "t" in relation.exact("str")
        and (numbers := [n for n in relation.exact("num") if n != "t"])
    ):
        keys = [n for n in relation.exact("plain") if n not in ("t", *numbers[:1])]
        if not keys:
            return None
        key = rng.choice(keys)
        how = rng.choice(["sum", "min", "len", "max"])
        return Step(
            (relation.name,),
            f"{relation.name}.pivot('t', on_columns=['x', 'y', 'z'], index={key!r}, values={numbers[0]!r}, "
            f"aggregate_function={how!r})",
            fixed(ANY_ORDER, keys=[key]),
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
        text = f"{relation.name}.sort({listed(map(repr, keys))}, descending={flags}).{how}"
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


def rolling_column(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Add ``Expr.rolling`` of any aggregate; inside it, ranks, sorts and other windows are of the window's rows."""
    relation = rng.choice(relations)
    if not relation.scope(rng).numbered:
        return None
    times = [n for n in relation.exact("time") if rng.random() < 0.5]
    index = rng.choice(times) if times else "srt"
    sort = [index] if index == "srt" else [index, "srt"]
    period = rng.choice(["1d", "3d", "1w"] if times else ["1i", "3i", "8i", "40i"])
    options = [f"period={period!r}"]
    if rng.random() < 0.4:
        options.append(f"closed={rng.choice(['left', 'right', 'both', 'none'])!r}")
    if rng.random() < 0.3:
        options.append(f"offset={rng.choice(['-1', '-2', '0', '1']) + period[-1]!r}")
    # Sorted by what numbers them, the rows have an order, whatever they had before.
    schema = {n: t for n, t in relation.schema.items() if n != index}
    scope = Scope(rng, schema, relation.state.inexact, True, index != "srt")
    text = scope.of_window()
    if text is None:
        return None
    rest = rng.choice(["", "", ".fill_null(0)", " + pl.len()", ".over(c('srt') // 50)"])
    if rest and (text.inexact or not text.number):
        rest = ""
    rolled = f"(({text.text}).rolling({index!r}, {', '.join(options)}){rest})"

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.is_key({"srt"}) or "srt" not in schema:
            return None
        state = replace(
            state.only(schema, ["rolled"]), order=TOTAL, keys=frozenset([frozenset(["srt"])]), height=None
        )
        return marked(state, schema, ["rolled"] if text.inexact else [])

    rows = f"{relation.name}.drop_nulls({index!r}).sort({sort})"
    return Step((relation.name,), f"{rows}.with_columns({rolled}.alias('rolled'))", rule)


def said_sorted(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Sortedness that is said by hand."""
    relation = rng.choice(relations)
    scope = relation.scope(rng)
    if not scope.numbered:
        return None
    text = scope.one_of(("{num}.sum()", "{any}.count()", "{num}.max()", "{plain}.n_unique()", "pl.len()"))
    if text is None:
        return None
    name = relation.name
    forms = [
        f"{name}.sort('srt').set_sorted('srt').filter(c('srt') > 2)",
        f"{name}.sort('srt').set_sorted('srt').group_by('srt').len().sort('srt')",
        f"{name}.sort('srt').with_columns(c('srt').set_sorted()).select('srt').unique(maintain_order=True)",
        f"{name}.sort('srt', descending=True).with_columns({text.text}.over(c('srt') // 4).alias('rolled'))",
    ]

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if not state.is_key({"srt"}):
            return None
        return replace(
            state.only(schema, ["rolled"]), order=TOTAL, keys=frozenset([frozenset(["srt"])]), height=None
        )

    return Step((name,), rng.choice(forms), rule)
