"""Random expressions over the columns of a table, as text."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl

from differential.catalogue import Nature, Template, templates

__all__ = ["Scope", "Text"]


@dataclass(frozen=True)
class Text:
    """An expression.

    Attributes
    ----------
    inexact
        Whether the last digits of what it gives may differ.
    number
        Whether it is known to give a number.
    """

    text: str
    inexact: bool = False
    number: bool = False


def _is_plain(dtype: pl.DataType) -> bool:
    return (
        dtype.is_integer()
        or dtype
        in (pl.String, pl.Boolean, pl.Date, pl.Datetime, pl.Duration, pl.Time, pl.Enum, pl.Categorical)
        or dtype.is_decimal()
    )


KINDS: Mapping[str, Callable[[str, pl.DataType], bool]] = {
    "any": lambda n, t: True,
    "num": lambda n, t: t.is_numeric() and not t.is_decimal() and n[:1] != "w" and t != pl.Float16,
    "int": lambda n, t: t.is_integer() and n[:1] != "w",
    "key": lambda n, t: _is_plain(t) or t.is_float(),
    "plain": lambda n, t: _is_plain(t),
    "ord": lambda n, t: _is_plain(t) or t.is_float(),
    "str": lambda n, t: t == pl.String,
    "label": lambda n, t: t == pl.String,
    "date": lambda n, t: t == pl.String and n in ("sd", "s"),
    "bool": lambda n, t: t == pl.Boolean,
    "time": lambda n, t: t in (pl.Date, pl.Datetime),
    "list": lambda n, t: t == pl.List,
    "struct": lambda n, t: t == pl.Struct,
    "cat": lambda n, t: t == pl.Categorical,
    "nanos": lambda n, t: t == pl.Datetime("ns"),
    "datetime": lambda n, t: t == pl.Datetime and getattr(t, "time_zone", None) is None,
}
"""What a placeholder of a text stands for."""

_SCALARS = (
    "{num}.sum()",
    "{num}.sum()",
    "{num}.min()",
    "{ord}.max()",
    "{ord}.min()",
    "{any}.count()",
    "{any}.len()",
    "pl.len()",
    "{any}.null_count()",
    "{plain}.n_unique()",
    "{key}.n_unique()",
    "{num}.filter({predicate}).sum()",
    "{any}.filter({predicate}).len()",
    "{plain}.drop_nulls().len()",
    "{bool}.any()",
    "{bool}.all()",
    "{bool}.sum()",
    "{num}.cast(pl.Float64).sum()",
    "{plain}.is_in({plain}.implode()).sum()",
)
_INEXACT_SCALARS = (
    "{num}.mean()",
    "{num}.median()",
    "{num}.std()",
    "{num}.var(ddof=0)",
    "{num}.quantile(0.3)",
    "{num}.quantile(0.5, 'linear')",
    "{num}.quantile(0.9, 'midpoint')",
    "{int}.filter({predicate}).median()",
)
_ORDERED_SCALARS = (
    "{any}.first()",
    "{any}.last()",
    "{any}.get(0)",
    "{plain}.sort_by({ord}, maintain_order=True).first()",
    "{num}.cum_sum().max()",
    "{num}.diff().sum()",
    "{plain}.head(2).n_unique()",
    "{num}.shift(1).sum()",
    "{any}.first(ignore_nulls=True)",
    "{int}.index_of(3)",
    "{int}.is_sorted()",
    "{any}.implode().list.len()",
    "{int}.diff().abs().max()",
    "{int}.cum_sum().over({key}).max()",
    "{plain}.rle_id().max()",
    "{int}.rolling_max(2, min_samples=1).sum()",
    "({num} != {num}.shift(1)).sum()",
    "{int}.interpolate().max()",
    "{int}.fill_null(strategy='forward').sum()",
    "{any}.shift(1).first()",
    "{int}.diff().filter({predicate}).sum()",
    "{int}.shift(1).median()",
    "({int}.diff() - {int}.diff().min()).sum()",
    "{any}.shift(1).over({key}).last()",
    "{int}.reverse().first()",
    "{plain}.is_first_distinct().sum()",
)
_NESTED = (
    "{num}.max().sum()",
    "{any}.null_count().sum()",
    "{num}.sum().max()",
    "{plain}.n_unique().max()",
    "{num}.sum().over({key}).max()",
    "{num}.sum().over({key}).n_unique()",
    "{num}.unique().sum()",
    "{num}.sort().last()",
    "({num} - {num}.min()).sum()",
    "({num} == {num}.max()).sum()",
    "{num}.drop_nulls().sort().head(2).sum()",
    "pl.len().over({key}).max()",
    "{ord}.rank('dense').max()",
    "{plain}.is_duplicated().sum()",
    "{num}.filter({num} == {num}.max().over({key})).len()",
    "{int}.sum().over({key}).median()",
    "{int}.top_k(2).sum()",
    "({int} - {int}.min().over({key})).max()",
    "({int} > {int}.max().over({key}).min()).sum()",
    "{plain}.mode().len()",
)
_ROWWISE = (
    "({num} + {num})",
    "({num} - 1)",
    "({num} * 2)",
    "({int} % 3)",
    "{any}.is_null()",
    "{any}.is_not_null()",
    "pl.when({predicate}).then({num}).otherwise(None)",
    "pl.when({predicate}).then(1).otherwise(2)",
    "{plain}.cast(pl.String)",
    "pl.lit(7)",
    "pl.lit('x')",
    "{str}.str.len_chars()",
    "{str}.str.slice(0, 2)",
    "{int}.fill_null(0)",
    "{int}.clip(-3, 3)",
    "{plain}.eq_missing(None)",
    "pl.struct({any}, pl.lit(1).alias('one'))",
    "pl.concat_list({int}, {int})",
    "pl.coalesce({num}, pl.lit(0))",
    "{int}.map_elements(lambda x: x * 2, return_dtype=pl.Int64)",
    "{time}.dt.month()",
    "{time}.cast(pl.Int64)",
    "{list}.list.len()",
    "{date}.str.to_date(strict=False)",
    "{date}.str.to_date()",
    "{date}.str.to_datetime(strict=False)",
    "{cat}.to_physical()",
    "{label}.cast(pl.Categorical).to_physical()",
    "{label}.cast(pl.Categorical).to_physical()",
    "{cat}.cast(pl.String)",
    "{any}",
)
_WHOLE = (
    "{num}.rank('dense')",
    "{num}.rank('min', descending=True)",
    "{plain}.is_duplicated()",
    "{plain}.is_unique()",
    "{num} - {num}.sum()",
    "{num}.max() - {num}",
    "{plain}.is_in({plain}.implode())",
)
_WINDOWS = (
    "{scalar}.over({key})",
    "{scalar}.over({key}, {key})",
    "({scalar}.over({key}) + {scalar})",
    "{num}.sum().over({key}) / {num}.sum()",
    "{num}.sum().over({key}) / pl.len()",
    "({num} - {num}.sum().over({key}))",
    "{num}.rank('dense').over({key})",
    "pl.len().over({key})",
    "({num} == {num}.max().over({key}))",
    "{scalar}.over({int} % 2)",
    "{plain}.n_unique().over({key}).max().over({key})",
    "{scalar}.over({key}, mapping_strategy='join')",
)
_ORDERED = (
    "{num}.cum_sum()",
    "{any}.shift(1)",
    "{num}.sort()",
    "{plain}.sort(descending=True)",
    "{any}.reverse()",
    "{num}.cum_max()",
    "{any}.fill_null(strategy='forward')",
    "{num}.diff()",
    "{plain}.rank('ordinal')",
    "pl.int_range(pl.len())",
    "{plain}.is_first_distinct()",
    "{plain}.rle_id()",
    "{num}.cum_sum().over({key})",
    "{any}.shift(1).over({key})",
    "{any}.first().over({key})",
    "{num}.rank('ordinal').over({key})",
    "{any}.last().over({key})",
    "{num}.sort_by({ord}, maintain_order=True).over({key})",
    "{num}.reverse().over({key})",
    "pl.row_index()",
    "{any}.cum_count()",
    "{any}.shift(-2)",
    "{any}.fill_null(strategy='backward')",
    "{any}.fill_null(strategy='forward', limit=2)",
    "{int}.cum_min(reverse=True)",
    "{int}.rolling_max(4, min_samples=1)",
    "{int}.rolling_sum(3)",
    "{int}.diff(-1)",
    "{plain}.is_last_distinct()",
    "{int}.cum_sum().shift(1)",
    "pl.when(pl.int_range(pl.len()) % 2 == 0).then({int}).otherwise({int}.shift(1))",
    "{num}.cum_sum() - {num}.sum()",
)
_BY_NUMBER = (
    "{num}.cum_sum().over({key}, order_by='srt')",
    "{num}.shift(1).over({key}, order_by='srt', descending=True)",
    "{num}.first().over({key}, order_by='srt')",
    "{num}.cum_sum().over(order_by='srt')",
    "{num}.shift(1).over(1, order_by='srt', descending=True)",
    "{num}.last().over(1, order_by='srt')",
    "{plain}.rank('dense').over(1, order_by='srt')",
    "{num}.rank('ordinal').over({key}, order_by='srt')",
)
_GROUPED = (
    "{num}.unique().sort()",
    "{plain}.sort()",
    "{plain}.drop_nulls().sort()",
    "{num}.filter({predicate}).sort()",
    "{plain}.sort().head(2)",
    "{plain}.sort(descending=True).first()",
    "{num}.sum().map_elements(lambda x: x + 1, return_dtype=pl.Int64)",
    "{int}.max().map_elements(lambda x: x, return_dtype=pl.Int64)",
    "{num}.sum() - {num}.min()",
    "{num}.sum() / pl.len()",
    "pl.struct({num}.sum(), pl.len())",
    "{plain}.is_in({plain}.implode()).sum()",
)
_GROUPED_ORDERED = (
    "{any}",
    "{any}.implode()",
    "{any}.head(2)",
    "{any}.tail(1)",
    "{num}.cum_sum()",
    "{num}.shift(1)",
    "{any}.slice(1, 2)",
    "{any}.gather_every(2)",
    "{plain}.unique(maintain_order=True)",
    "{any}.sort_by({ord}, maintain_order=True)",
    "{any}.drop_nulls()",
    "{any}.reverse()",
    "{int}.map_batches(lambda s: s.cum_sum(), return_dtype=pl.Int64)",
    "{int}.map_batches(lambda s: s.sum(), return_dtype=pl.Int64, returns_scalar=True)",
)
_IN_WINDOWS = (
    "{ord}.rank('ordinal').last()",
    "{ord}.rank('min').max()",
    "{ord}.rank('dense', descending=True).first()",
    "{int}.cum_sum().last()",
    "{int}.cum_sum().max()",
    "{int}.shift(1).sum()",
    "{int}.diff().sum()",
    "{plain}.rle_id().max()",
    "{int}.rolling_max(2, min_samples=1).sum()",
    "{plain}.is_first_distinct().sum()",
    "{plain}.is_last_distinct().sum()",
    "{plain}.is_unique().sum()",
    "{int}.sort().head(2).sum()",
    "{int}.sort_by({ord}, maintain_order=True).last()",
    "{int}.top_k(2).sum()",
    "{ord}.arg_max()",
    "{int}.fill_null(strategy='forward').sum()",
    "{int}.interpolate().sum()",
    "{int}.reverse().first()",
    "{int}.unique().len()",
    "{int}.filter({predicate}).last()",
    "{int}.filter({predicate}).sum() + {int}.max()",
    "({int} - {int}.min()).sum()",
    "{int}.sum() - {int}.last()",
    "({int} == {int}.max()).sum()",
    "{plain}.mode().len()",
    "{plain}.value_counts().len()",
    "pl.row_index().max()",
    "pl.int_range(pl.len()).sum()",
)
_PREDICATES = (
    "({num} > {small})",
    "({num} <= {small})",
    "({num} >= {small})",
    "({int} % 2 == 0)",
    "({num} != {small})",
    "{any}.is_null()",
    "{any}.is_not_null()",
    "{bool}",
    "~{bool}",
    "{int}.is_in([0, 1, 2, 3, None])",
    "{str}.is_in(['a', 'x', 'foo'])",
    "{str}.str.contains('o')",
    "({str} > 'a')",
    "{int}.is_between(-2, 6)",
    "({time} > pl.lit(dt.date(2020, 1, 20)))",
    "({datetime} <= pl.lit(dt.datetime(2020, 1, 2), dtype=pl.Datetime('us')))",
    "({nanos} <= pl.lit(dt.datetime(1970, 1, 1), dtype=pl.Datetime('us')))",
    "({nanos} {order} pl.lit(dt.datetime(1970, 1, 1, 0, 0, 0, {micros}), dtype=pl.Datetime('us')))",
    "({num} == {num})",
    "({num} < {num})",
)
_WIDE_PREDICATES = (
    "({num} > {num}.min())",
    "({num} == {num}.max())",
    "({num} >= {num}.sum() / pl.len())",
    "({num} == {num}.max().over({key}))",
    "(pl.len().over({key}) > 1)",
    "{plain}.is_duplicated()",
    "{plain}.is_in({plain}.implode())",
    "({num} * pl.len() >= {num}.sum())",
    "({plain}.n_unique() > 1)",
    "({num}.rank('dense') < 4)",
)
_OF_HEIGHT = (
    "{int}.is_in(pl.Series([[k, 3] for k in range({height})]))",
    "{str}.str.find_many(pl.lit(pl.Series([['a', 'o']] * {height})))",
    "{int}.replace_strict([1, 2], [3, 4], default=pl.Series(list(range({height})), dtype=pl.Int64))",
    "pl.lit(pl.Series(list(range({height})), dtype=pl.Int64))",
    "({int} + pl.lit(pl.Series(list(range({height})), dtype=pl.Int64)))",
    "pl.int_range(0, {height})",
    "pl.repeat(3, {height})",
)


@dataclass
class Scope:
    """The columns that an expression may use.

    Attributes
    ----------
    schema
        Names and types.
    inexact
        Columns whose last digits may differ: nothing but sums and copies is made of them.
    total
        Whether the order of the rows is promised, so that expressions may depend on it.
    numbered
        Whether ``srt`` numbers the rows.
    height
        How many rows there are, if that is known.
    """

    rng: random.Random
    schema: Mapping[str, pl.DataType]
    inexact: frozenset[str]
    total: bool
    numbered: bool
    height: int | None = None

    def names(self, kind: str) -> list[str]:
        """Return the columns of a kind."""
        return [n for n, t in self.schema.items() if n not in self.inexact and KINDS[kind](n, t)]

    def column(self, kind: str) -> str | None:
        """Return the text of a column of a kind, or of what can be made one."""
        names = self.names(kind)
        if names:
            # The columns at the front are as good as those behind, but for the number of the row.
            return f"c({self.rng.choice(names)!r})"
        if not (anything := self.names("any")):
            return None
        other = f"c({self.rng.choice(anything)!r})"
        made = {
            "num": f"{other}.is_null().cast(pl.Int64)",
            "int": f"{other}.is_null().cast(pl.Int64)",
            "key": f"{other}.is_null()",
            "plain": f"{other}.is_null()",
            "ord": f"{other}.is_null()",
            "str": f"{other}.is_null().cast(pl.String)",
            "bool": f"{other}.is_null()",
        }
        return made.get(kind)

    def fill(self, text: str) -> Text | None:
        """Return a text with its placeholders filled."""
        inexact = False
        while (start := text.find("{")) >= 0:
            stop = text.index("}", start)
            kind = text[start + 1 : stop]
            if not kind.isalpha():
                return None
            if kind == "small":
                value: str | None = str(self.rng.randrange(-5, 10))
            elif kind == "order":
                value = self.rng.choice(["<", "<=", ">", ">=", "==", "!="])
            elif kind == "micros":
                value = str(self.rng.randrange(4))
            elif kind == "height":
                value = None if self.height is None or self.height > 3000 else str(self.height)
            elif kind == "predicate":
                inner = self.predicate(plain=True)
                value = None if inner is None else inner.text
            elif kind == "scalar":
                scalar = self.scalar(nested=False)
                value = None if scalar is None else f"{scalar.text}"
                inexact = inexact or (scalar is not None and scalar.inexact)
            else:
                value = self.column(kind)
            if value is None:
                return None
            text = text[:start] + value.replace("{", "\0").replace("}", "\1") + text[stop + 1 :]
        return Text(text.replace("\0", "{").replace("\1", "}"), inexact)

    def one_of(self, texts: tuple[str, ...], inexact: bool = False) -> Text | None:
        """Return one of the texts, filled."""
        for _ in range(4):
            text = self.fill(self.rng.choice(texts))
            if text is not None:
                return Text(text.text, inexact or text.inexact)
        return None

    def template(self, *natures: Nature) -> Text | None:
        """Return an expression of the catalogue."""
        usable = _usable(frozenset(n for n in self.schema if n not in self.inexact), frozenset(natures))
        if not usable:
            return None
        template = self.rng.choice(usable)
        if "srt" in template.columns and not self.numbered:
            return None
        return Text(template.text, template.inexact)

    def predicate(self, *, plain: bool = False) -> Text | None:
        """Return a condition on each row; not ``plain``, it may look at other rows."""
        roll = self.rng.random()
        if plain or roll < 0.65:
            return self.one_of(_PREDICATES)
        if roll < 0.9:
            return self.one_of(_WIDE_PREDICATES)
        first, second = self.one_of(_PREDICATES), self.one_of(_PREDICATES)
        if first is None or second is None:
            return None
        return Text(f"({first.text} {self.rng.choice('&|')} {second.text})")

    def scalar(self, *, nested: bool = True, ordered: bool = True) -> Text | None:
        """Return a value of all rows."""
        roll = self.rng.random()
        ordered = ordered and self.total
        if roll < 0.12 and ordered:
            return self.one_of(_ORDERED_SCALARS)
        if roll < 0.22 and nested:
            return self.one_of(_NESTED)
        if roll < 0.45:
            natures = (Nature.SCALAR, Nature.SCALAR_ORDERED) if ordered else (Nature.SCALAR,)
            found = self.template(*natures)
            if found is not None:
                return found
        if roll < 0.6:
            return self.one_of(_INEXACT_SCALARS, True)
        return self.one_of(_SCALARS)

    def scalar_expression(self) -> Text | None:
        """Return a value of all rows, perhaps computed of several."""
        one = self.scalar()
        if one is None or self.rng.random() < 0.6:
            return one
        return self.computed_of(one)

    def computed_of(self, one: Text) -> Text | None:
        """Return a value that is computed of ``one`` and perhaps of another."""
        form = self.rng.choice(
            [
                "({} * 2)",
                "({} / pl.len())",
                "({} - {})",
                "({} + pl.len())",
                "pl.struct({}, pl.len().alias('n'))",
                "({}).cast(pl.String)",
                "({} == {})",
            ]
        )
        if one.inexact and ("String" in form or "==" in form):
            return one
        other = self.scalar(nested=False)
        if form.count("{}") == 2:
            if other is None or other.inexact:
                return one
            return Text(form.format(one.text, other.text), one.inexact)
        # A division is the same wherever it is done, but no key.
        return Text(form.format(one.text), True if "/" in form else one.inexact)

    def of_window(self) -> Text | None:
        """Return a value of the rows of a window, in their order."""
        roll = self.rng.random()
        if roll < 0.5:
            found = self.one_of(_IN_WINDOWS)
            return None if found is None else Text(found.text, False, True)
        if roll < 0.6:
            return self.one_of(_ORDERED_SCALARS)
        return self.scalar(nested=roll < 0.75)

    def rowwise(self) -> Text | None:
        """Return an expression of each row alone."""
        if self.rng.random() < 0.5:
            found = self.template(Nature.ROWWISE)
            if found is not None:
                return found
        return self.one_of(_ROWWISE)

    def of_rows(self) -> Text | None:
        """Return a column of as many rows, from any rows."""
        roll = self.rng.random()
        if roll < 0.4:
            return self.rowwise()
        if roll < 0.6:
            found = self.one_of(_WINDOWS)
            return None if found is None else Text(found.text, True)
        if roll < 0.65:
            found = self.one_of(_WHOLE)
            return found
        if roll < 0.7 and self.numbered:
            return self.one_of(_BY_NUMBER)
        if roll < 0.8:
            natures = (Nature.WHOLE, Nature.ORDERED) if self.total else (Nature.WHOLE,)
            return self.template(*natures)
        if roll < 0.86 and self.total and self.height is not None:
            return self.one_of(_OF_HEIGHT)
        if self.total and roll < 0.95:
            return self.one_of(_ORDERED)
        return self.scalar_expression()

    def of_group(self) -> Text | None:
        """Return what a group becomes."""
        roll = self.rng.random()
        if roll < 0.2:
            return self.one_of(_GROUPED)
        if roll < 0.35 and self.total:
            return self.one_of(_GROUPED_ORDERED)
        if roll < 0.42:
            return (
                self.template(Nature.WHOLE, Nature.ORDERED, Nature.ROWWISE, Nature.MANY)
                if self.total
                else None
            )
        return self.scalar(nested=roll < 0.5)


_cache: dict[tuple[frozenset[str], frozenset[Nature]], list[Template]] = {}


def _usable(columns: frozenset[str], natures: frozenset[Nature]) -> list[Template]:
    found = _cache.get((columns, natures))
    if found is None:
        found = [
            t
            for t in templates()
            if t.nature in natures and t.columns <= columns and (t.columns or len(natures) > 1)
        ]
        if len(_cache) > 500:
            _cache.clear()
        _cache[columns, natures] = found
    return found
