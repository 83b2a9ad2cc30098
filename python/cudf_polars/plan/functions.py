"""The functions that a plan may hold: how each is written in Polars, and which rows it needs.

One line of a table a function. The kind says how the rows of the result relate to those of the inputs; that
decides what may run on a part of the data (see :mod:`cudf_polars.plan.properties`). A name that is missing here
cannot be rebuilt, and the reader makes the expression opaque instead.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from cudf_polars.plan.function_calls import Options, named_options, parse_call
from cudf_polars.plan.function_forms import FORMS, Builder

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


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """What is known of one function.

    Attributes
    ----------
    form
        Makes the Polars expression.
    options
        Names of its options, in the order of the plan views.
    ordered
        The result depends on the order of the rows.
    deterministic
        The same input gives the same result.
    process_local
        The result has a meaning only in the process that computed it: codes of categories, which each process assigns
        in the order in which it reads them.
    constant_inputs
        Which inputs hold one value for all rows: Polars cannot take one for each row, even if they are all the same.
    """

    form: Builder
    options: Options
    kind: Kind
    ordered: bool = False
    deterministic: bool = True
    process_local: bool = False
    constant_inputs: tuple[int, ...] = ()

    def build(self, inputs: Sequence[pl.Expr], args: tuple[Any, ...]) -> pl.Expr:
        """Return the Polars expression of these inputs and options.

        Raises
        ------
        TypeError, ValueError, IndexError, AttributeError
            When Polars has none.
        """
        self.named_options(args)  # an option that is not known must not get lost
        return self.form(inputs, args)

    def named_options(self, args: tuple[Any, ...]) -> list[tuple[str, Any]]:
        """Return options, in the order of the plan views, with their names.

        Raises
        ------
        ValueError
            When there are more or fewer of them than the function has.
        """
        return named_options(self.options, args)


_KINDS = {
    "E": (Kind.ELEMENTWISE, False),
    "W": (Kind.WHOLE_COLUMN, False),
    "Wo": (Kind.WHOLE_COLUMN, True),
    "A": (Kind.AGGREGATION, False),
    "Ao": (Kind.AGGREGATION, True),
    "R": (Kind.RESHAPE, False),
    "Ro": (Kind.RESHAPE, True),
}
"""Codes of the tables; "o": the result depends on the order of the rows."""

# Methods without options, by kind.
_PLAIN = {
    "E": """
        sqrt cbrt abs exp log1p sin cos tan cot arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh
        degrees radians sign floor ceil log pow fill_null repeat_by to_physical is_null is_not_null is_finite
        is_infinite is_nan is_not_nan not_ replace
        bitwise_count_ones bitwise_count_zeros bitwise_leading_ones bitwise_leading_zeros bitwise_trailing_ones
        bitwise_trailing_zeros
        str.to_uppercase str.to_lowercase str.to_titlecase str.len_chars str.len_bytes str.starts_with str.ends_with
        str.slice str.head str.tail str.strip_chars str.strip_chars_start str.strip_chars_end str.strip_prefix
        str.strip_suffix str.zfill str.reverse str.json_path_match str.escape_regex str.extract_all
        dt.millennium dt.century dt.year dt.is_leap_year dt.iso_year dt.quarter dt.month dt.days_in_month dt.week
        dt.weekday dt.day dt.ordinal_day dt.time dt.date dt.hour dt.minute dt.second dt.millisecond dt.microsecond
        dt.nanosecond dt.month_start dt.month_end dt.base_utc_offset dt.dst_offset dt.truncate dt.round dt.offset_by
        list.len list.sum list.mean list.min list.max list.median list.arg_min list.arg_max list.slice list.shift
        list.gather_every list.drop_nulls list.count_matches list.set_union list.set_difference list.set_intersection
        list.set_symmetric_difference
        arr.len arr.sum arr.mean arr.min arr.max arr.median arr.arg_min arr.arg_max arr.shift arr.to_list
        arr.count_matches arr.dot
        struct.json_encode
    """,
    "W": "is_unique is_duplicated",
    "Wo": """
        is_first_distinct is_last_distinct reverse rle_id peak_min peak_max shift pct_change interpolate_by
    """,
    "A": "null_count product approx_n_unique has_nulls bitwise_and bitwise_or bitwise_xor",
    "Ao": "arg_min arg_max index_of max_by min_by",
    "R": "unique_counts drop_nulls drop_nans",
    "Ro": "arg_unique rle extend_constant",
}

# Name, kind, and what :func:`~cudf_polars.plan.function_calls.parse_call` reads: the options in the order of the plan
# views. Where FORMS has the function, they are only named here.
_TABLE = """
    negate                   E
    decimal_mul              E   -scale
    decimal_div              E   -scale
    trunc_int_div            E
    trunc_rem                E
    atan2                    E   -> pl.arctan2
    round                    E   decimals mode
    round_sig_figs           E   digits
    truncate                 E   decimals
    clip                     E   has_min has_max
    is_between               E   closed
    is_close                 E   abs_tol rel_tol nans_equal
    is_in                    E   nulls_equal
    any_horizontal           E   -> pl.any_horizontal
    all_horizontal           E   -> pl.all_horizontal
    sum_horizontal           E   ignore_nulls -> pl.sum_horizontal
    mean_horizontal          E   ignore_nulls -> pl.mean_horizontal
    min_horizontal           E   -> pl.min_horizontal
    max_horizontal           E   -> pl.max_horizontal
    coalesce                 E   -> pl.coalesce
    hash                     E   seed
    cut                      E   breaks labels left_closed include_breaks
    reinterpret              E   dtype
    as_struct                E   names
    replace_strict           E   return_dtype

    to_category_codes        W   -> to_physical
    rank                     W   method descending seed
    qcut                     W   quantiles labels left_closed allow_duplicates include_breaks

    interpolate              Wo  method
    shift_and_fill           Wo  &n &fill_value -> shift
    fill_null_with_strategy  Wo  strategy limit -> fill_null
    set_sorted               Wo  descending nulls_last
    cum_sum                  Wo  reverse
    cum_prod                 Wo  reverse
    cum_min                  Wo  reverse
    cum_max                  Wo  reverse
    cum_count                Wo  reverse
    arg_sort                 Wo  descending nulls_last
    shuffle                  Wo  seed

    any                      A   ignore_nulls
    all                      A   ignore_nulls
    is_empty                 A   ignore_nulls
    skew                     A   bias
    kurtosis                 A   fisher bias
    entropy                  A   base normalize
    quantile                 A   interpolation
    covariance               A   ddof -> pl.cov
    corr                     A
    spearman_corr            A   propagate_nans
    is_sorted                Ao  descending nulls_last

    unique                   R   maintain_order
    mode                     R   maintain_order
    value_counts             R   sort -parallel name normalize
    top_k                    R   reverse
    hist                     R   bin_count include_category include_breakpoint

    diff                     Ro  null_behavior
    top_k_by                 Ro  reverse
    argwhere                 Ro
    gather_every             Ro  offset n
    append                   Ro  -upcast
    search_sorted            Ro  side descending
    repeat                   Ro  -> pl.repeat
    sample                   Ro  is_fraction with_replacement shuffle seed

    str.contains             E   literal strict
    str.contains_any         E   ascii_case_insensitive
    str.find                 E   literal strict
    str.find_many            E   ascii_case_insensitive overlapping leftmost
    str.extract              E   group_index
    str.extract_groups       E   -dtype pattern
    str.extract_many         E   ascii_case_insensitive overlapping leftmost
    str.count_matches        E   literal
    str.replace              E   n literal
    str.replace_many         E   ascii_case_insensitive leftmost
    str.split                E   inclusive
    str.split_regex          E   inclusive strict
    str.split_exact          E   n inclusive
    str.splitn               E   n
    str.pad_start            E   fill_char
    str.pad_end              E   fill_char
    str.concat_horizontal    E   separator ignore_nulls -> pl.concat_str
    str.format               E   format insertions
    str.to_integer           E   dtype strict &base
    str.to_decimal           E   scale
    str.strptime             E   dtype format strict exact cache &ambiguous
    str.json_decode          E   dtype
    str.hex_encode           E
    str.hex_decode           E   strict
    str.base64_encode        E
    str.base64_decode        E   strict
    str.normalize            E   form
    str.strptime_inferred    Wo  dtype format strict exact cache &ambiguous -> str.strptime
    str.join                 Ao  delimiter ignore_nulls

    dt.total_days            E   fractional
    dt.total_hours           E   fractional
    dt.total_minutes         E   fractional
    dt.total_seconds         E   fractional
    dt.total_milliseconds    E   fractional
    dt.total_microseconds    E   fractional
    dt.total_nanoseconds     E   fractional
    dt.to_string             E   format
    dt.cast_time_unit        E   time_unit
    dt.convert_time_zone     E   time_zone
    dt.replace_time_zone     E   time_zone non_existent &ambiguous
    dt.timestamp             E   time_unit
    dt.replace               E   &year &month &day &hour &minute &second &microsecond &ambiguous
    dt.combine               E   time_unit
    dt.datetime              E   time_unit time_zone &year &month &day &hour &minute &second &microsecond &ambiguous \
                                 -> pl.datetime
    dt.duration              E   time_unit &weeks &days &hours &minutes &seconds &milliseconds &microseconds \
                                 &nanoseconds -> pl.duration

    list.std                 E   ddof
    list.var                 E   ddof
    list.sort                E   descending nulls_last
    list.get                 E   null_on_oob
    list.gather              E   null_on_oob
    list.contains            E   nulls_equal
    list.join                E   ignore_nulls
    list.diff                E   n null_behavior
    list.concat              E   -> pl.concat_list
    list.to_struct           E   fields
    list.to_array            E   width
    list.sample              E   is_fraction with_replacement shuffle seed
    arr.std                  E   ddof
    arr.var                  E   ddof
    arr.sort                 E   descending nulls_last
    arr.get                  E   null_on_oob
    arr.contains             E   nulls_equal
    arr.join                 E   ignore_nulls
    arr.to_struct            E   fields
    arr.concat               E   -> pl.concat_arr
    arr.explode              R   empty_as_null keep_nulls
    struct.field             E   name
    struct.rename_fields     E   names
    struct.prefix_fields     E   prefix -> name.prefix_fields
    struct.suffix_fields     E   suffix -> name.suffix_fields
    struct.map_fields        E   function -> name.map_fields
    struct.drop              E   names -strict

    int_range                Ro  step dtype -> pl.int_range
    date_range               Ro  interval closed arg_type!start_end_interval -> pl.date_range
    datetime_range           Ro  interval closed time_unit time_zone arg_type!start_end_interval -> pl.datetime_range
    time_range               Ro  interval closed -> pl.time_range
    linear_space             Ro  closed -> pl.linear_space
    int_ranges               E   dtype -> pl.int_ranges
    date_ranges              E   interval closed arg_type!start_end_interval -> pl.date_ranges
    datetime_ranges          E   interval closed time_unit time_zone arg_type!start_end_interval -> pl.datetime_ranges
    time_ranges              E   interval closed -> pl.time_ranges
    linear_spaces            E   closed array_width

    rolling_sum              Wo  window_size min_samples weights center ()
    rolling_mean             Wo  window_size min_samples weights center ()
    rolling_min              Wo  window_size min_samples weights center ()
    rolling_max              Wo  window_size min_samples weights center ()
    rolling_std              Wo  window_size min_samples weights center (ddof)
    rolling_var              Wo  window_size min_samples weights center (ddof)
    rolling_quantile         Wo  window_size min_samples weights center (quantile interpolation)
    rolling_rank             Wo  window_size min_samples weights!None center (method seed)
    rolling_skew             Wo  window_size min_samples weights!None center (bias)
    rolling_kurtosis         Wo  window_size min_samples weights!None center (fisher bias)
    rolling_corr_cov         Wo  window_size min_samples ddof is_corr
    rolling_sum_by           Wo  window_size min_samples closed ()
    rolling_mean_by          Wo  window_size min_samples closed ()
    rolling_min_by           Wo  window_size min_samples closed ()
    rolling_max_by           Wo  window_size min_samples closed ()
    rolling_std_by           Wo  window_size min_samples closed (ddof)
    rolling_var_by           Wo  window_size min_samples closed (ddof)
    rolling_quantile_by      Wo  window_size min_samples closed (quantile interpolation)
    rolling_rank_by          Wo  window_size min_samples closed (method seed)
    ewm_mean                 Wo  alpha adjust -bias min_samples ignore_nulls
    ewm_std                  Wo  alpha adjust bias min_samples ignore_nulls
    ewm_var                  Wo  alpha adjust bias min_samples ignore_nulls
    ewm_sum                  Wo  alpha min_samples ignore_nulls
    ewm_mean_by              Wo  half_life
    ewm_sum_by               Wo  half_life
"""

_RANDOM = ("list.sample", "sample", "shuffle")
# ``to_physical`` of what holds a Categorical
_PROCESS_LOCAL = ("to_category_codes",)
_CONSTANT_INPUTS = {
    # the old and the new values, each in one list
    "replace": (1, 2),
    "replace_strict": (1, 2),
    "str.contains_any": (1,),
    "str.replace_many": (1, 2),
}


def _specs() -> dict[str, FunctionSpec]:
    lines = [f"{name} {code}" for code, names in _PLAIN.items() for name in names.split()]
    lines += [line for line in _TABLE.splitlines() if line.strip()]
    out: dict[str, FunctionSpec] = {}
    for line in lines:
        name, code, *rest = line.split(maxsplit=2)
        call = parse_call(name, "".join(rest))
        kind, ordered = _KINDS[code]
        if name in out:
            raise ValueError(f"two lines for {name}")
        out[name] = FunctionSpec(
            FORMS.get(name, call),
            call.options,
            kind,
            ordered,
            name not in _RANDOM,
            name in _PROCESS_LOCAL,
            _CONSTANT_INPUTS.get(name, ()),
        )
    return out


FUNCTIONS = _specs()
"""Every function that a plan may hold, by name."""
