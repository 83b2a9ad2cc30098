"""What of Polars has a form on a GPU: a table of all functions, in which a new one cannot be forgotten.

``docs/gpu-coverage.md`` is written from it.
"""

from __future__ import annotations

import enum

from cudf_polars.execute.gpu.translate.aggregates import AGGREGATE_FUNCTIONS, AGGREGATIONS
from cudf_polars.execute.gpu.translate.functions import FORMS

__all__ = ["AGGREGATIONS", "COVERAGE", "NODES", "TRANSLATED", "Form"]


class Form(enum.Enum):
    """How a function of Polars is computed where a query runs on a GPU."""

    CALL = "call"
    """One primitive of libcudf, perhaps with a change of type."""
    COMPOSITION = "composition"
    """Several primitives."""
    HOST = "host"
    """Polars computes it on the CPU."""


TRANSLATED = frozenset((*FORMS, *AGGREGATE_FUNCTIONS))
"""The functions that the translator has a form for."""

_TABLE = """
call:
    sqrt cbrt exp sin cos tan arcsin arccos arctan sinh cosh tanh arcsinh arccosh arctanh atan2 abs floor ceil round
    is_null is_not_null not_ fill_null bitwise_count_ones reinterpret set_sorted to_physical product quantile
    str.len_chars str.len_bytes str.contains str.starts_with str.ends_with str.slice str.strip_chars
    str.strip_chars_start str.strip_chars_end str.replace str.count_matches str.zfill str.pad_start str.pad_end
    dt.year dt.month dt.day dt.weekday dt.hour dt.minute dt.second dt.ordinal_day dt.quarter dt.days_in_month
    dt.is_leap_year dt.convert_time_zone dt.replace_time_zone
    list.len list.get list.contains list.min list.max
    struct.field

composition:
    log cot degrees radians sign truncate negate pow is_nan is_not_nan is_finite is_infinite bitwise_count_zeros
    sum_horizontal mean_horizontal min_horizontal max_horizontal any_horizontal all_horizontal coalesce clip
    is_between is_in replace replace_strict
    null_count has_nulls is_empty any all
    str.contains_any str.head str.tail str.strip_prefix str.strip_suffix str.concat_horizontal str.format
    dt.millisecond dt.microsecond dt.nanosecond dt.week dt.iso_year dt.century dt.millennium dt.date dt.month_start
    dt.month_end dt.truncate dt.offset_by dt.timestamp dt.cast_time_unit dt.total_days dt.total_hours dt.total_minutes
    dt.total_seconds dt.total_milliseconds dt.total_microseconds dt.total_nanoseconds

host, libcudf has nothing like it:
    hash shuffle sample hist interpolate interpolate_by approx_n_unique index_of
    bitwise_leading_ones bitwise_leading_zeros bitwise_trailing_ones bitwise_trailing_zeros
    str.json_path_match str.json_decode struct.json_encode str.base64_encode str.base64_decode str.hex_encode
    str.hex_decode str.normalize str.escape_regex str.find_many str.extract_many str.replace_many
    dt.base_utc_offset dt.dst_offset dt.replace date_ranges datetime_ranges time_range time_ranges linear_spaces
    int_ranges rolling_quantile rolling_rank rolling_skew rolling_kurtosis rolling_corr_cov rolling_sum_by
    rolling_mean_by rolling_min_by rolling_max_by rolling_std_by rolling_var_by rolling_quantile_by rolling_rank_by
    ewm_std ewm_var ewm_sum ewm_mean_by ewm_sum_by list.median list.shift list.diff list.sample list.gather_every
    list.to_struct list.to_array list.arg_min list.arg_max struct.map_fields struct.drop qcut cut
    to_category_codes

host, a GPU has no lists of fixed length:
    arr.len arr.sum arr.mean arr.min arr.max arr.median arr.arg_min arr.arg_max arr.shift arr.to_list arr.count_matches
    arr.dot arr.std arr.var arr.sort arr.get arr.contains arr.join arr.to_struct arr.concat arr.explode

host, libcudf means something else by it:
    log1p round_sig_figs is_close str.to_uppercase str.to_lowercase str.to_titlecase str.reverse str.find str.extract
    str.extract_all str.extract_groups str.to_integer str.to_decimal str.strptime str.strptime_inferred dt.to_string
    dt.time dt.combine dt.datetime dt.duration dt.round

host, it needs the order of all rows or gives another number of them:
    reverse shift shift_and_fill diff pct_change cum_sum cum_prod cum_min cum_max cum_count rle rle_id peak_min peak_max
    is_unique is_duplicated is_first_distinct is_last_distinct rank arg_sort arg_min arg_max arg_unique argwhere max_by
    min_by top_k top_k_by unique unique_counts value_counts mode drop_nulls drop_nans extend_constant append
    search_sorted gather_every repeat repeat_by is_sorted fill_null_with_strategy str.join int_range date_range
    datetime_range linear_space rolling_sum rolling_mean rolling_min rolling_max rolling_std rolling_var ewm_mean

host, not yet:
    decimal_div decimal_mul trunc_int_div trunc_rem
    as_struct struct.rename_fields struct.prefix_fields struct.suffix_fields
    skew kurtosis entropy covariance corr spearman_corr bitwise_and bitwise_or bitwise_xor
    str.split str.split_regex str.split_exact str.splitn
    list.sum list.mean list.std list.var list.sort list.slice list.gather list.drop_nulls list.count_matches list.join
    list.concat list.set_union list.set_difference list.set_intersection list.set_symmetric_difference
"""


def _parse() -> dict[str, tuple[Form, str]]:
    out: dict[str, tuple[Form, str]] = {}
    form, reason = Form.HOST, ""
    for line in _TABLE.splitlines():
        if line.endswith(":"):
            name, _, reason = line.removesuffix(":").partition(", ")
            form = Form(name)
            continue
        for function in line.split():
            if function in out:
                raise ValueError(f"two lines for {function}")
            out[function] = form, reason
    return out


COVERAGE: dict[str, tuple[Form, str]] = _parse()
"""By the name of the function: its form, and for those of the host why."""

NODES: dict[str, str] = {
    "Scan": "local Parquet files; no row index, slice, hive partitions or column of paths",
    "DataFrameScan": "copied to the GPU",
    "Select": "row-wise expressions, aggregations of all rows, and both beside each other",
    "HStack": "as Select",
    "Filter": "with aggregations of all rows in the predicate too",
    "SimpleProjection": "",
    "GroupBy": "no time windows; one value for each group",
    "Join": "inner, left, right, full, semi, anti, cross; inequalities where the pairs are few; "
    "no as-of, no checks of keys, no promised order",
    "Sort": "with a slice: the first rows only",
    "Distinct": "",
    "Slice": "",
    "Union": "of scans with one schema, or of frames",
    "Unnest": "",
    "HintSorted": "",
}
"""The nodes of a plan that have a form on a GPU, with its limits."""
