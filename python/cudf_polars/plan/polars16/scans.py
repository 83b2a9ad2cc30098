"""Options of scans of files, as keyword arguments of the Polars API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from cudf_polars.plan.cloud import CloudAccess, read_access
from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.nodes import Schema
from cudf_polars.plan.polars16.values import snake

__all__ = ["check_cloud", "check_usual", "cloud_access", "hive_columns", "scan_keywords"]


_UNUSUAL = ("deletion_files", "column_mapping", "default_values", "table_statistics", "row_count")


def check_usual(options: Any) -> None:
    """Refuse a scan with something that no keyword argument says.

    Raises
    ------
    Unreadable
        When it has.
    """
    for unusual in _UNUSUAL:
        try:
            value = getattr(options, unusual)
        except NotImplementedError as e:
            raise Unreadable(f"scan with {unusual}") from e
        if value is not None:
            raise Unreadable(f"scan with {unusual}")


def hive_columns(path: str, options: Any, parts: pl.DataFrame | None, schema: Schema) -> Schema | None:
    """Return the columns that come from the paths, with their types; ``None`` when there are no hive partitions.

    Parameters
    ----------
    path
        Of the first file.
    options
        Of the scan.
    parts
        Values of these columns for each file, of those that the query uses.
    schema
        Columns of the scan.
    """
    hive = options.hive_options
    if parts is None:
        return {} if hive is not None and hive["enabled"] else None
    start = int((hive or {}).get("hive_start_idx") or 0)
    keys = [part.partition("=")[0] for part in str(path)[start:].split("/")[:-1] if "=" in part]
    # the types of columns that the query does not use do not matter, their names do
    unread = {key: pl.String() for key in keys if key not in parts.schema and key not in schema}
    return dict(parts.schema) | unread


def scan_keywords(scan_type: Sequence[Any], options: Any) -> tuple[str, dict[str, Any]]:
    """Translate the reader's options to keyword arguments of ``pl.scan_*``.

    Returns
    -------
    tuple
        Kind of file, keyword arguments that differ from the defaults.
    """
    kind = scan_type[0]
    keywords: dict[str, Any] = {}
    if kind == "lines":
        keywords["name"] = scan_type[1]
    elif kind == "parquet":
        reader = json.loads(scan_type[1])
        if reader["schema"] is not None:
            keywords["schema"] = _schema_from_json(reader["schema"])
        if reader["parallel"] != "Auto":
            keywords["parallel"] = snake(reader["parallel"])
        if reader["low_memory"]:
            keywords["low_memory"] = True
        if not reader["use_statistics"]:
            keywords["use_statistics"] = False
        if reader.get("decryption_properties") is not None:
            raise Unreadable("an encrypted file")
    elif kind == "csv":
        keywords = _csv_keywords(json.loads(scan_type[1]))
    elif kind == "ndjson":
        reader = json.loads(scan_type[1])
        if reader["schema"] is not None:
            keywords["schema"] = _schema_from_json(reader["schema"])
        if reader["schema_overwrite"] is not None:
            keywords["schema_overrides"] = _schema_from_json(reader["schema_overwrite"])
        if reader["infer_schema_length"] != 100:
            keywords["infer_schema_length"] = reader["infer_schema_length"]
        if reader["low_memory"]:
            keywords["low_memory"] = True
        if reader["ignore_errors"]:
            keywords["ignore_errors"] = True
    else:
        raise Unreadable(f"{kind} scan")
    if options is not None:
        keywords.update(_unified_keywords(kind, options))
    return kind, keywords


def cloud_access(scan_type: Sequence[Any]) -> CloudAccess | None:
    """Return how the files of a scan are reached.

    Raises
    ------
    Unreadable
        When the options have an unknown form.
    """
    try:
        return read_access(scan_type[2]) if len(scan_type) > 2 else None
    except ValueError as error:
        raise Unreadable(f"a scan with {error}") from None


def check_cloud(text: str) -> None:
    """Refuse options of a cloud store that a sink cannot be given again.

    Parameters
    ----------
    text
        The options as JSON.

    Raises
    ------
    Unreadable
        When they hold credentials or a configuration.
    """
    cloud = json.loads(text)
    if cloud is None:
        return
    if cloud.get("config") is not None or cloud.get("credential_provider") is not None:
        raise Unreadable("a sink with credentials")


_CAST_DEFAULTS: dict[str, Any] = {
    "integer_upcast": False,
    "integer_to_float_cast": False,
    "float_upcast": False,
    "float_downcast": False,
    "datetime_nanoseconds_downcast": False,
    "datetime_microseconds_downcast": False,
    "datetime_milliseconds_upcast": False,
    "datetime_microseconds_upcast": False,
    "datetime_convert_timezone": False,
    "null_upcast": True,
    "categorical_to_string": False,
    "missing_struct_fields": "raise",
    "extra_struct_fields": "raise",
}
_CAST_CHOICES = {
    "integer_upcast": ("integer_cast", "upcast"),
    "integer_to_float_cast": ("integer_cast", "allow-float"),
    "float_upcast": ("float_cast", "upcast"),
    "float_downcast": ("float_cast", "downcast"),
    "datetime_nanoseconds_downcast": ("datetime_cast", "nanosecond-downcast"),
    "datetime_microseconds_downcast": ("datetime_cast", "microsecond-downcast"),
    "datetime_milliseconds_upcast": ("datetime_cast", "millisecond-upcast"),
    "datetime_microseconds_upcast": ("datetime_cast", "microsecond-upcast"),
    "datetime_convert_timezone": ("datetime_cast", "convert-timezone"),
    "categorical_to_string": ("categorical_to_string", "allow"),
}


def _unified_keywords(kind: str, options: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    policy = options.cast_columns_policy
    if policy != _CAST_DEFAULTS:
        chosen: dict[str, Any] = {}
        for key, value in policy.items():
            if key in _CAST_CHOICES:
                name, choice = _CAST_CHOICES[key]
                if value:
                    chosen.setdefault(name, []).append(choice)
            elif key in ("missing_struct_fields", "extra_struct_fields"):
                chosen[key] = value
            elif value != _CAST_DEFAULTS.get(key):
                raise Unreadable(f"scan with {key}={value}")
        if "categorical_to_string" in chosen:
            chosen["categorical_to_string"] = "allow"
        out["cast_options"] = pl.ScanCastOptions(**chosen)
    if options.missing_columns_policy != "raise":
        out["missing_columns"] = options.missing_columns_policy
    if options.extra_columns_policy != "raise":
        out["extra_columns"] = options.extra_columns_policy
    if not options.cache and kind == "parquet":
        out["cache"] = False
    hive = options.hive_options
    if hive is not None and hive["enabled"]:
        out["hive_partitioning"] = True
        if hive["schema"] is not None:
            out["hive_schema"] = dict(hive["schema"])
        if not hive["try_parse_dates"]:
            out["try_parse_hive_dates"] = False
    return out


def _csv_keywords(reader: Mapping[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for unusual in ("columns", "projection", "column_names_overwrite", "dtype_overwrite", "n_threads"):
        if reader.get(unusual) is not None:
            raise Unreadable(f"csv scan with {unusual}")
    if reader.get("fields_to_cast"):
        raise Unreadable("csv scan with fields_to_cast")
    parse = reader["parse_options"]

    def put(key: str, value: Any, default: Any) -> None:
        if value != default:
            out[key] = value

    put("separator", chr(parse["separator"]), ",")
    put("quote_char", None if parse["quote_char"] is None else chr(parse["quote_char"]), '"')
    put("eol_char", chr(parse["eol_char"]), "\n")
    put("encoding", {"Utf8": "utf8", "LossyUtf8": "utf8-lossy"}[parse["encoding"]], "utf8")
    put("empty_string_is_null", parse["missing_is_null"], True)
    put("truncate_ragged_lines", parse["truncate_ragged_lines"], False)
    put("try_parse_dates", parse["try_parse_dates"], False)
    put("decimal_comma", parse["decimal_comma"], False)
    comment = parse["comment_prefix"]
    if comment is not None:
        if not isinstance(comment, Mapping) or not {"Single", "Multi"} & set(comment):
            raise Unreadable("csv scan with a comment prefix")
        single = comment.get("Single")
        out["comment_prefix"] = chr(single) if single is not None else comment["Multi"]
    nulls = parse["null_values"]
    if nulls is not None:
        form, value = next(iter(nulls.items()))
        if form not in ("AllColumnsSingle", "AllColumns", "Named"):
            raise Unreadable("csv scan with null values")
        out["null_values"] = dict(value) if form == "Named" else value
    put("has_header", reader["has_header"], True)
    put("skip_rows", reader["skip_rows"], 0)
    put("skip_lines", reader["skip_lines"], 0)
    put("skip_rows_after_header", reader["skip_rows_after_header"], 0)
    put("infer_schema_length", reader["infer_schema_length"], 100)
    put("infer_schema_files", reader.get("infer_schema_files", 10), 10)
    put("raise_if_empty", reader["raise_if_empty"], True)
    put("ignore_errors", reader["ignore_errors"], False)
    put("low_memory", reader["low_memory"], False)
    if reader["schema"] is not None:
        out["schema"] = _schema_from_json(reader["schema"])
    if reader["schema_overwrite"] is not None:
        out["schema_overrides"] = _schema_from_json(reader["schema_overwrite"])
    return out


def _schema_from_json(value: Mapping[str, Any]) -> dict[str, pl.DataType]:
    """Types of a schema in Polars' own JSON form, by letting Polars read a literal of that type."""
    return {name: _dtype_from_json(form) for name, form in value["fields"].items()}


_SIMPLE_TYPES: dict[str, pl.DataType] = {
    t.__name__: t()
    for t in (
        pl.Boolean,
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.Int128,
        pl.UInt8,
        pl.UInt16,
        pl.UInt32,
        pl.UInt64,
        pl.UInt128,
        pl.Float16,
        pl.Float32,
        pl.Float64,
        pl.String,
        pl.Binary,
        pl.Date,
        pl.Time,
        pl.Null,
    )
}
_UNITS: dict[str, Any] = {"Nanoseconds": "ns", "Microseconds": "us", "Milliseconds": "ms"}


def _dtype_from_json(form: Any) -> pl.DataType:
    if isinstance(form, str) and form in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[form]
    if isinstance(form, Mapping):
        ((name, value),) = form.items()
        if name == "Datetime":
            unit, zone = value
            return pl.Datetime(_UNITS[unit], zone if isinstance(zone, str) or zone is None else zone["inner"])
        if name == "Duration":
            return pl.Duration(_UNITS[value])
        if name == "List":
            return pl.List(_dtype_from_json(value))
        if name == "Array":
            return pl.Array(_dtype_from_json(value[0]), value[1])
        if name == "Decimal":
            return pl.Decimal(value[0], value[1])
        if name == "Struct":
            return pl.Struct({f["name"]: _dtype_from_json(f["dtype"]) for f in value})
    raise Unreadable("a scan with a schema of unusual types")
