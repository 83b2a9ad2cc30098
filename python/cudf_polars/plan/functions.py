"""The functions that a plan may hold: how each is written in Polars, and which rows it needs.

One line a function. The kind says how the rows of the result relate to those of the inputs; that decides
what may run on a part of the data (see :mod:`cudf_polars.plan.properties`). A name that is missing here
cannot be rebuilt, and the reader makes the expression opaque instead.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

__all__ = ["FUNCTIONS", "FunctionSpec", "Kind"]


class Kind(enum.Enum):
    """How rows of a function's result relate to rows of its inputs."""

    ELEMENTWISE = enum.auto()
    """Row i of the result depends on row i of the inputs only."""
    WHOLE_COLUMN = enum.auto()
    """One row for each input row, but each may depend on all of them."""
    AGGREGATION = enum.auto()
    """One value."""
    RESHAPE = enum.auto()
    """Another number of rows."""


Builder = Callable[[Sequence[pl.Expr], tuple[Any, ...]], pl.Expr]


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """What is known of one function.

    Attributes
    ----------
    ordered
        The result depends on the order of the rows.
    deterministic
        The same input gives the same result.
    constant_inputs
        Which inputs hold one value for all rows: Polars cannot take one for each row, even if they are all the same.
    process_local
        The result says something only in the process that computed it: codes of categories, which each process gives
        out in the order in which it meets them.
    """

    build: Builder
    kind: Kind
    ordered: bool = False
    deterministic: bool = True
    process_local: bool = False
    constant_inputs: tuple[int, ...] = ()


FUNCTIONS: dict[str, FunctionSpec] = {}
"""Every function that a plan may hold, by name."""

_KINDS = {
    "E": (Kind.ELEMENTWISE, False),
    "W": (Kind.WHOLE_COLUMN, False),
    "Wo": (Kind.WHOLE_COLUMN, True),
    "A": (Kind.AGGREGATION, False),
    "Ao": (Kind.AGGREGATION, True),
    "R": (Kind.RESHAPE, False),
    "Ro": (Kind.RESHAPE, True),
}


def _define(
    code: str,
    table: dict[str, Builder],
    *,
    prefix: str = "",
    deterministic: bool = True,
    process_local: bool = False,
    constant_inputs: tuple[int, ...] = (),
) -> None:
    kind, ordered = _KINDS[code]
    for name, build in table.items():
        FUNCTIONS[prefix + name] = FunctionSpec(
            build, kind, ordered, deterministic, process_local, constant_inputs
        )


def _method(path: str) -> Builder:
    """``inputs[0].path(*inputs[1:])``, for functions that take expressions only."""
    parts = path.split(".")

    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        if x:
            raise ValueError(f"{path} takes no options, the plan has {x!r}")
        target: Any = a[0]
        for part in parts:
            target = getattr(target, part)
        result: pl.Expr = target(*a[1:])
        return result

    return build


def _methods(names: str, prefix: str = "") -> dict[str, Builder]:
    return {name: _method(prefix + name) for name in names.split()}


def _listed(values: Any) -> Any:
    return list(values) if isinstance(values, tuple) else values


# --- plain ----------------------------------------

_define(
    "E",
    _methods(
        "sqrt cbrt abs exp log1p sin cos tan cot arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh "
        "degrees radians sign floor ceil log pow fill_null repeat_by to_physical is_null is_not_null "
        "is_finite is_infinite is_nan is_not_nan not_"
    )
    | {
        "negate": lambda a, x: -a[0],
        "atan2": lambda a, x: pl.arctan2(a[0], a[1]),
        "round": lambda a, x: a[0].round(x[0], mode=x[1]),
        "round_sig_figs": lambda a, x: a[0].round_sig_figs(x[0]),
        "truncate": lambda a, x: a[0].truncate(x[0]),
        "clip": lambda a, x: a[0].clip(a[1] if x[0] else None, a[-1] if x[1] else None),
        "is_between": lambda a, x: a[0].is_between(a[1], a[2], closed=x[0]),
        "is_close": lambda a, x: a[0].is_close(a[1], abs_tol=x[0], rel_tol=x[1], nans_equal=x[2]),
        "any_horizontal": lambda a, x: pl.any_horizontal(*a),
        "all_horizontal": lambda a, x: pl.all_horizontal(*a),
        "sum_horizontal": lambda a, x: pl.sum_horizontal(*a, ignore_nulls=x[0]),
        "mean_horizontal": lambda a, x: pl.mean_horizontal(*a, ignore_nulls=x[0]),
        "min_horizontal": lambda a, x: pl.min_horizontal(*a),
        "max_horizontal": lambda a, x: pl.max_horizontal(*a),
        "coalesce": lambda a, x: pl.coalesce(*a),
        "hash": lambda a, x: a[0].hash(x[0]),
        "cut": lambda a, x: a[0].cut(list(x[0]), labels=_listed(x[1]), left_closed=x[2], include_breaks=x[3]),
        "reinterpret": lambda a, x: a[0].reinterpret(dtype=x[0]),
        "as_struct": lambda a, x: pl.struct([e.alias(n) for e, n in zip(a, x[0], strict=True)]),
        "is_in": lambda a, x: a[0].is_in(a[1], nulls_equal=x[0]),
    },
)
# the old and the new values, each in one list
_define(
    "E",
    {
        "replace": lambda a, x: a[0].replace(a[1], a[2]),
        "replace_strict": lambda a, x: a[0].replace_strict(
            a[1], a[2], return_dtype=x[0], **({"default": a[3]} if len(a) > 3 else {})
        ),
    },
    constant_inputs=(1, 2),
)
_define(
    "E",
    _methods(
        "bitwise_count_ones bitwise_count_zeros bitwise_leading_ones bitwise_leading_zeros "
        "bitwise_trailing_ones bitwise_trailing_zeros"
    ),
)
# ``to_physical`` of what holds a Categorical
_define("W", {"to_category_codes": _method("to_physical")}, process_local=True)
_define(
    "W",
    _methods("is_unique is_duplicated")
    | {
        "rank": lambda a, x: a[0].rank(x[0], descending=x[1], seed=x[2]),
        "qcut": lambda a, x: a[0].qcut(
            list(x[0]), labels=_listed(x[1]), left_closed=x[2], allow_duplicates=x[3], include_breaks=x[4]
        ),
    },
)
_define(
    "Wo",
    _methods("is_first_distinct is_last_distinct reverse rle_id peak_min peak_max shift pct_change")
    | {
        "interpolate_by": _method("interpolate_by"),
        "interpolate": lambda a, x: a[0].interpolate(x[0]),
        "shift_and_fill": lambda a, x: a[0].shift(a[1], fill_value=a[2]),
        "fill_null_with_strategy": lambda a, x: a[0].fill_null(strategy=x[0], limit=x[1]),
        "set_sorted": lambda a, x: a[0].set_sorted(descending=x[0], nulls_last=x[1]),
        "cum_sum": lambda a, x: a[0].cum_sum(reverse=x[0]),
        "cum_prod": lambda a, x: a[0].cum_prod(reverse=x[0]),
        "cum_min": lambda a, x: a[0].cum_min(reverse=x[0]),
        "cum_max": lambda a, x: a[0].cum_max(reverse=x[0]),
        "cum_count": lambda a, x: a[0].cum_count(reverse=x[0]),
        "arg_sort": lambda a, x: a[0].arg_sort(descending=x[0], nulls_last=x[1]),
    },
)
_define("Wo", {"shuffle": lambda a, x: a[0].shuffle(seed=x[0])}, deterministic=False)
_define(
    "A",
    _methods("null_count product approx_n_unique has_nulls bitwise_and bitwise_or bitwise_xor")
    | {
        "any": lambda a, x: a[0].any(ignore_nulls=x[0]),
        "all": lambda a, x: a[0].all(ignore_nulls=x[0]),
        "is_empty": lambda a, x: a[0].is_empty(ignore_nulls=x[0]),
        "skew": lambda a, x: a[0].skew(bias=x[0]),
        "kurtosis": lambda a, x: a[0].kurtosis(fisher=x[0], bias=x[1]),
        "entropy": lambda a, x: a[0].entropy(x[0], normalize=x[1]),
        "quantile": lambda a, x: a[0].quantile(a[1], interpolation=x[0]),
        "covariance": lambda a, x: pl.cov(a[0], a[1], ddof=x[0]),
        "corr": lambda a, x: pl.corr(a[0], a[1], method="pearson"),
        "spearman_corr": lambda a, x: pl.corr(a[0], a[1], method="spearman", propagate_nans=x[0]),
    },
)
_define(
    "Ao",
    _methods("arg_min arg_max index_of max_by min_by")
    | {
        "is_sorted": lambda a, x: a[0].is_sorted(descending=x[0], nulls_last=x[1]),
    },
)
_define(
    "R",
    _methods("unique_counts drop_nulls drop_nans")
    | {
        "unique": lambda a, x: a[0].unique(maintain_order=x[0]),
        "mode": lambda a, x: a[0].mode(maintain_order=x[0]),
        "value_counts": lambda a, x: a[0].value_counts(sort=x[0], name=x[2], normalize=x[3]),
        "top_k": lambda a, x: a[0].bottom_k(a[1]) if x[0] else a[0].top_k(a[1]),
        "hist": lambda a, x: a[0].hist(
            a[1] if len(a) > 1 else None, bin_count=x[0], include_category=x[1], include_breakpoint=x[2]
        ),
    },
)
_define(
    "Ro",
    _methods("arg_unique rle")
    | {
        "diff": lambda a, x: a[0].diff(a[1], null_behavior=x[0]),
        "top_k_by": lambda a, x: _top_k_by(a, x),
        "argwhere": lambda a, x: pl.arg_where(a[0]),
        "gather_every": lambda a, x: a[0].gather_every(x[1], x[0]),
        "append": lambda a, x: a[0].append(a[1], upcast=False),
        "extend_constant": lambda a, x: a[0].extend_constant(a[1], a[2]),
        "search_sorted": lambda a, x: a[0].search_sorted(a[1], side=x[0], descending=x[1]),
        "repeat": lambda a, x: pl.repeat(a[0], a[1]),
    },
)
_define("Ro", {"sample": lambda a, x: _sample(a, x)}, deterministic=False)


def _top_k_by(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    # the plan knows bottom_k_by as top_k_by with every flag turned round
    return a[0].top_k_by(a[2:], a[1], reverse=list(x[0]))


def _sample(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    fraction, with_replacement, shuffle, seed = x
    amount: dict[str, Any] = {"fraction" if fraction else "n": a[1]}
    return a[0].sample(**amount, with_replacement=with_replacement, shuffle=shuffle, seed=seed)


# --- strings ----------------------------------------


def _str_format(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    text, insertions = x
    pieces, last = [], 0
    raw = text.encode()  # positions are bytes
    for at in insertions:
        pieces.append(raw[last:at].decode())
        last = at
    tail = raw[last:].decode()
    parts: list[pl.Expr] = []
    for piece, e in zip(pieces, a, strict=True):
        if piece:
            parts.append(pl.lit(piece))
        parts.append(e.cast(pl.String))
    if tail:
        parts.append(pl.lit(tail))
    return pl.concat_str(parts)


def _str_replace(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    n, literal = x
    if n < 0:
        return a[0].str.replace_all(a[1], a[2], literal=literal)
    return a[0].str.replace(a[1], a[2], literal=literal, n=n)


def _strptime(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    dtype, fmt, strict, exact, cache = x
    return a[0].str.strptime(dtype, fmt, strict=strict, exact=exact, cache=cache, ambiguous=a[1])


_define(
    "E",
    {
        "to_uppercase": _method("str.to_uppercase"),
        "to_lowercase": _method("str.to_lowercase"),
        "to_titlecase": _method("str.to_titlecase"),
    }
    | _methods(
        "len_chars len_bytes starts_with ends_with slice head tail strip_chars strip_chars_start "
        "strip_chars_end strip_prefix strip_suffix zfill reverse json_path_match escape_regex extract_all",
        prefix="str.",
    )
    | {
        "contains": lambda a, x: a[0].str.contains(a[1], literal=x[0], strict=x[1]),
        "find": lambda a, x: a[0].str.find(a[1], literal=x[0], strict=x[1]),
        "find_many": lambda a, x: a[0].str.find_many(
            a[1], ascii_case_insensitive=x[0], overlapping=x[1], leftmost=x[2]
        ),
        "extract_many": lambda a, x: a[0].str.extract_many(
            a[1], ascii_case_insensitive=x[0], overlapping=x[1], leftmost=x[2]
        ),
        "replace": _str_replace,
        "extract": lambda a, x: a[0].str.extract(a[1], x[0]),
        "extract_groups": lambda a, x: a[0].str.extract_groups(x[1]),
        "count_matches": lambda a, x: a[0].str.count_matches(a[1], literal=x[0]),
        "split": lambda a, x: a[0].str.split(a[1], inclusive=x[0]),
        "split_regex": lambda a, x: a[0].str.split(a[1], inclusive=x[0], literal=False, strict=x[1]),
        "split_exact": lambda a, x: a[0].str.split_exact(a[1], x[0], inclusive=x[1]),
        "splitn": lambda a, x: a[0].str.splitn(a[1], x[0]),
        "pad_start": lambda a, x: a[0].str.pad_start(a[1], x[0]),
        "pad_end": lambda a, x: a[0].str.pad_end(a[1], x[0]),
        "concat_horizontal": lambda a, x: pl.concat_str(*a, separator=x[0], ignore_nulls=x[1]),
        "format": _str_format,
        "to_integer": lambda a, x: a[0].str.to_integer(base=a[1], dtype=x[0], strict=x[1]),
        "to_decimal": lambda a, x: a[0].str.to_decimal(scale=x[0]),
        "strptime": _strptime,
        "json_decode": lambda a, x: a[0].str.json_decode(x[0]),
        "hex_encode": lambda a, x: a[0].str.encode("hex"),
        "base64_encode": lambda a, x: a[0].str.encode("base64"),
        "hex_decode": lambda a, x: a[0].str.decode("hex", strict=x[0]),
        "base64_decode": lambda a, x: a[0].str.decode("base64", strict=x[0]),
        "normalize": lambda a, x: a[0].str.normalize(x[0].upper()),
    },
    prefix="str.",
)
_define(
    "E",
    {"contains_any": lambda a, x: a[0].str.contains_any(a[1], ascii_case_insensitive=x[0])},
    prefix="str.",
    constant_inputs=(1,),
)
_define(
    "E",
    {
        "replace_many": lambda a, x: a[0].str.replace_many(
            a[1], a[2], ascii_case_insensitive=x[0], leftmost=x[1]
        )
    },
    prefix="str.",
    constant_inputs=(1, 2),
)
# ``strptime`` without a format: the first text that is not null says it for all
_define("Wo", {"strptime_inferred": _strptime}, prefix="str.")
_define("Ao", {"join": lambda a, x: a[0].str.join(x[0], ignore_nulls=x[1])}, prefix="str.")

# --- dates and times ----------------------------------------


def _dt_replace(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    names = ("year", "month", "day", "hour", "minute", "second", "microsecond", "ambiguous")
    parts: dict[str, Any] = dict(zip(names, a[1:], strict=True))
    return a[0].dt.replace(**parts)


def _datetime(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    unit, zone = x
    year, month, day, *parts, ambiguous = a
    hour, minute, second, microsecond = parts
    return pl.datetime(
        year,
        month,
        day,
        hour,
        minute,
        second,
        microsecond,
        time_unit=unit,
        time_zone=zone,
        ambiguous=ambiguous,
    )


def _duration(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    names = ("weeks", "days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
    parts: dict[str, Any] = dict(zip(names, a, strict=True))
    return pl.duration(**parts, time_unit=x[0])


def _total(unit: str) -> Builder:
    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        result: pl.Expr = getattr(a[0].dt, "total_" + unit)(fractional=x[0])
        return result

    return build


_define(
    "E",
    _methods(
        "millennium century year is_leap_year iso_year quarter month days_in_month week weekday day "
        "ordinal_day time date hour minute second millisecond microsecond nanosecond month_start month_end "
        "base_utc_offset dst_offset truncate round offset_by",
        prefix="dt.",
    )
    | {
        f"total_{unit}": _total(unit)
        for unit in ("days", "hours", "minutes", "seconds", "milliseconds", "microseconds", "nanoseconds")
    }
    | {
        "to_string": lambda a, x: a[0].dt.to_string(x[0]),
        "cast_time_unit": lambda a, x: a[0].dt.cast_time_unit(x[0]),
        "convert_time_zone": lambda a, x: a[0].dt.convert_time_zone(x[0]),
        "replace_time_zone": lambda a, x: a[0].dt.replace_time_zone(x[0], ambiguous=a[1], non_existent=x[1]),
        "timestamp": lambda a, x: a[0].dt.timestamp(x[0]),
        "replace": _dt_replace,
        "combine": lambda a, x: a[0].dt.combine(a[1], x[0]),
        "datetime": _datetime,
        "duration": _duration,
    },
    prefix="dt.",
)

# --- lists, arrays, structs ----------------------------------------


def _list_sample(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    fraction, with_replacement, shuffle, seed = x
    amount: dict[str, Any] = {"fraction" if fraction else "n": a[1]}
    return a[0].list.sample(**amount, with_replacement=with_replacement, shuffle=shuffle, seed=seed)


_define(
    "E",
    _methods(
        "len sum mean min max median arg_min arg_max slice shift gather_every drop_nulls count_matches",
        prefix="list.",
    )
    | {
        "std": lambda a, x: a[0].list.std(ddof=x[0]),
        "var": lambda a, x: a[0].list.var(ddof=x[0]),
        "sort": lambda a, x: a[0].list.sort(descending=x[0], nulls_last=x[1]),
        "get": lambda a, x: a[0].list.get(a[1], null_on_oob=x[0]),
        "gather": lambda a, x: a[0].list.gather(a[1], null_on_oob=x[0]),
        "contains": lambda a, x: a[0].list.contains(a[1], nulls_equal=x[0]),
        "join": lambda a, x: a[0].list.join(a[1], ignore_nulls=x[0]),
        "diff": lambda a, x: a[0].list.diff(x[0], x[1]),
        "set_union": lambda a, x: a[0].list.set_union(a[1]),
        "set_difference": lambda a, x: a[0].list.set_difference(a[1]),
        "set_intersection": lambda a, x: a[0].list.set_intersection(a[1]),
        "set_symmetric_difference": lambda a, x: a[0].list.set_symmetric_difference(a[1]),
        "concat": lambda a, x: pl.concat_list(*a),
        "to_struct": lambda a, x: a[0].list.to_struct(list(x[0])),
        "to_array": lambda a, x: a[0].list.to_array(x[0]),
    },
    prefix="list.",
)
_define("E", {"sample": _list_sample}, prefix="list.", deterministic=False)
_define(
    "E",
    _methods(
        "len sum mean min max median arg_min arg_max shift to_list count_matches dot",
        prefix="arr.",
    )
    | {
        "std": lambda a, x: a[0].arr.std(ddof=x[0]),
        "var": lambda a, x: a[0].arr.var(ddof=x[0]),
        "sort": lambda a, x: a[0].arr.sort(descending=x[0], nulls_last=x[1]),
        "get": lambda a, x: a[0].arr.get(a[1], null_on_oob=x[0]),
        "contains": lambda a, x: a[0].arr.contains(a[1], nulls_equal=x[0]),
        "join": lambda a, x: a[0].arr.join(a[1], ignore_nulls=x[0]),
        "to_struct": lambda a, x: a[0].arr.to_struct(list(x[0])),
        "concat": lambda a, x: pl.concat_arr(*a),
    },
    prefix="arr.",
)
_define(
    "R",
    {"explode": lambda a, x: a[0].arr.explode(empty_as_null=x[0], keep_nulls=x[1])},
    prefix="arr.",
)
_define(
    "E",
    {
        "field": lambda a, x: a[0].struct.field(x[0]),
        "rename_fields": lambda a, x: a[0].struct.rename_fields(list(x[0])),
        "prefix_fields": lambda a, x: a[0].name.prefix_fields(x[0]),
        "suffix_fields": lambda a, x: a[0].name.suffix_fields(x[0]),
        "map_fields": lambda a, x: a[0].name.map_fields(x[0]),
        "json_encode": _method("struct.json_encode"),
        "drop": lambda a, x: a[0].struct.drop(list(x[0])),
    },
    prefix="struct.",
)

# --- ranges ----------------------------------------


def _by_interval(function: Any, arg_type: int) -> Builder:
    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        if x[arg_type] != "start_end_interval":
            raise ValueError(f"a range given by {x[arg_type]}")
        zone: dict[str, Any] = {"time_unit": x[2], "time_zone": x[3]} if arg_type == 4 else {}
        result: pl.Expr = function(a[0], a[1], interval=x[0], closed=x[1], eager=False, **zone)
        return result

    return build


_define(
    "Ro",
    {
        "int_range": lambda a, x: pl.int_range(a[0], a[1], x[0], dtype=x[1]),
        "date_range": _by_interval(pl.date_range, 2),
        "datetime_range": _by_interval(pl.datetime_range, 4),
        "time_range": lambda a, x: pl.time_range(a[0], a[1], interval=x[0], closed=x[1]),
        "linear_space": lambda a, x: pl.linear_space(a[0], a[1], a[2], closed=x[0]),
    },
)
_define(
    "E",
    {
        "int_ranges": lambda a, x: pl.int_ranges(a[0], a[1], a[2], dtype=x[0]),
        "date_ranges": _by_interval(pl.date_ranges, 2),
        "datetime_ranges": _by_interval(pl.datetime_ranges, 4),
        "time_ranges": lambda a, x: pl.time_ranges(a[0], a[1], interval=x[0], closed=x[1]),
        "linear_spaces": lambda a, x: pl.linear_spaces(
            a[0], a[1], x[1] if len(a) < 3 else a[2], closed=x[0], as_array=len(a) < 3
        ),
    },
)

# --- rolling and exponentially weighted ----------------------------------------


def _rolling(name: str, parameters: str = "") -> Builder:
    keys = parameters.split()

    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        size, min_samples, weights, center, rest = x
        options: dict[str, Any] = dict(zip(keys, rest, strict=True))
        if name not in ("rank", "skew", "kurtosis"):
            options["weights"] = _listed(weights)
        elif weights is not None:
            raise ValueError(f"rolling_{name} with weights")
        function = getattr(a[0], "rolling_" + name)
        result: pl.Expr = function(window_size=size, min_samples=min_samples, center=center, **options)
        return result

    return build


def _rolling_by(name: str, parameters: str = "") -> Builder:
    keys = parameters.split()

    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        size, min_samples, closed, rest = x
        options: dict[str, Any] = dict(zip(keys, rest, strict=True))
        function = getattr(a[0], f"rolling_{name}_by")
        result: pl.Expr = function(
            by=a[1], window_size=size, min_samples=min_samples, closed=closed, **options
        )
        return result

    return build


def _rolling_corr_cov(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
    size, min_samples, ddof, is_corr = x
    if is_corr:
        return pl.rolling_corr(a[0], a[1], window_size=size, min_samples=min_samples)
    return pl.rolling_cov(a[0], a[1], window_size=size, min_samples=min_samples, ddof=ddof)


def _ewm(name: str) -> Builder:
    def build(a: Sequence[pl.Expr], x: tuple[Any, ...]) -> pl.Expr:
        alpha, adjust, bias, min_samples, ignore_nulls = x
        options: dict[str, Any] = {} if name == "mean" else {"bias": bias}
        function = getattr(a[0], "ewm_" + name)
        result: pl.Expr = function(
            alpha=alpha, adjust=adjust, min_samples=min_samples, ignore_nulls=ignore_nulls, **options
        )
        return result

    return build


_PARAMETERS = {
    "sum": "",
    "mean": "",
    "min": "",
    "max": "",
    "std": "ddof",
    "var": "ddof",
    "quantile": "quantile interpolation",
    "rank": "method seed",
}
_define("Wo", {n: _rolling(n, p) for n, p in _PARAMETERS.items()}, prefix="rolling_")
_define(
    "Wo",
    {
        "skew": _rolling("skew", "bias"),
        "kurtosis": _rolling("kurtosis", "fisher bias"),
        "corr_cov": _rolling_corr_cov,
    },
    prefix="rolling_",
)
_define("Wo", {f"{n}_by": _rolling_by(n, p) for n, p in _PARAMETERS.items()}, prefix="rolling_")
_define(
    "Wo",
    {name: _ewm(name) for name in ("mean", "std", "var")}
    | {
        "sum": lambda a, x: a[0].ewm_sum(alpha=x[0], min_samples=x[1], ignore_nulls=x[2]),
        "mean_by": lambda a, x: a[0].ewm_mean_by(a[1], half_life=x[0]),
        "sum_by": lambda a, x: a[0].ewm_sum_by(a[1], half_life=x[0]),
    },
    prefix="ewm_",
)
