"""What the views call a function, and the name and options under which the Polars API has it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl

from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.expressions import Expr, Literal
from cudf_polars.plan.polars16.values import duration, snake

__all__ = ["fix_view", "function_name"]

# what stands before the variants of each enum of functions
_PREFIXES = {
    "BooleanFunction": "",
    "StringFunction": "str.",
    "TemporalFunction": "dt.",
    "ListFunction": "list.",
    "ArrayFunction": "arr.",
    "StructFunction": "struct.",
    "RangeFunction": "",
    "RollingFunction": "rolling_",
    "RollingFunctionBy": "rolling_",
    "EwmFunction": "ewm_",
    "BitwiseFunction": "bitwise_",
}
# where the API's name is not the view's in snake case
_RENAMED = {
    "not": "not_",
    "concat": "append",
    "str.uppercase": "str.to_uppercase",
    "str.lowercase": "str.to_lowercase",
    "str.titlecase": "str.to_titlecase",
    "str.concat_vertical": "str.join",
    "str.split_n": "str.splitn",
    "str.z_fill": "str.zfill",
    "dt.week_day": "dt.weekday",
    "dt.time_stamp": "dt.timestamp",
    "dt.d_s_t_offset": "dt.dst_offset",
    "dt.datetime_function": "dt.datetime",
    "list.length": "list.len",
    "arr.length": "arr.len",
    "struct.field_by_name": "struct.field",
    "struct.map_field_names": "struct.map_fields",
    "struct.drop_fields": "struct.drop",
}
_CORRELATIONS = {"pearson": "corr", "covariance": "covariance", "spearman_rank": "spearman_corr"}
# the first option is a duration
_BY_INTERVAL = (
    "date_range",
    "date_ranges",
    "datetime_range",
    "datetime_ranges",
    "ewm_mean_by",
    "ewm_sum_by",
    "time_range",
    "time_ranges",
)
# the views leave out the type of the result, or names in it
_BY_TYPE = ("as_struct", "replace_strict", "str.json_decode", "str.strptime", "str.to_integer")


def function_name(head: Any) -> str:
    """Return the API's name of a function.

    Parameters
    ----------
    head
        What the view calls it: a text, or a value of an enum.

    Raises
    ------
    Unreadable
        For an enum that is not known.
    """
    if isinstance(head, str):
        name = head
    else:
        family, variant = str(head).split(".")
        if family not in _PREFIXES:
            raise Unreadable(f"function {head}")
        name = _PREFIXES[family] + snake(variant)
    return _RENAMED.get(name, name)


def fix_view(
    name: str, args: tuple[Any, ...], inputs: Sequence[Expr], dtype: pl.DataType | None
) -> tuple[str, tuple[Any, ...]]:
    """Put right what the views say otherwise than the API, or leave out.

    Parameters
    ----------
    name
        Of :func:`function_name`.
    args
        Options, as the view has them.
    inputs
        Expressions that the function takes.
    dtype
        Type of its result, if Polars shows it.

    Returns
    -------
    tuple
        Name and options as :data:`cudf_polars.plan.functions.FUNCTIONS` has them.

    Raises
    ------
    Unreadable
        When the view does not say enough.
    """
    if name == "arg_max" and args:
        return "arg_sort", args
    if name == "corr":
        method, *rest = args
        return _CORRELATIONS[method], tuple(rest)
    if name == "list.set_operation":
        return "list.set_" + str(args[0]), ()
    if name in _BY_INTERVAL or (name.startswith("rolling_") and name.endswith("_by")):
        return name, (duration(args[0]), *args[1:])
    if name in _BY_TYPE:
        return _with_type(name, args, dtype)
    if name == "to_physical" and _may_hold_categories(inputs[0].dtype):
        return "to_category_codes", args
    if name == "is_in" and not isinstance(inputs[1], Literal) and inputs[0].dtype != inputs[1].dtype:
        other = inputs[1].dtype
        if not isinstance(other, pl.List | pl.Array) or other.inner != inputs[0].dtype:
            raise Unreadable("is_in of another type")
    return name, args


def _with_type(name: str, args: tuple[Any, ...], dtype: pl.DataType | None) -> tuple[str, tuple[Any, ...]]:
    """Take from the type of the result what the view does not say."""
    if dtype is None:
        raise Unreadable(f"{name} without its type")
    if name == "as_struct":
        if not isinstance(dtype, pl.Struct):
            raise Unreadable("as_struct without its type")
        return name, (tuple(f.name for f in dtype.fields),)
    if name == "str.json_decode":
        return name, (dtype,)
    if name == "str.strptime" and args[0] is None:
        name = "str.strptime_inferred"
    return name, (dtype, *args)


def _may_hold_categories(dtype: pl.DataType | None) -> bool:
    match dtype:
        case None | pl.Categorical():
            return True
        case pl.List() | pl.Array():
            return isinstance(dtype.inner, type) or _may_hold_categories(dtype.inner)
        case pl.Struct():
            return any(isinstance(f.dtype, type) or _may_hold_categories(f.dtype) for f in dtype.fields)
    return False
