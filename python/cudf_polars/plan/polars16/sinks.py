"""Options of sinks, as keyword arguments of the Polars API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.polars16.scans import check_cloud
from cudf_polars.plan.polars16.values import snake

__all__ = ["sink_keywords"]

_SINKS = {"Parquet": "sink_parquet", "Csv": "sink_csv", "Ipc": "sink_ipc", "NDJson": "sink_ndjson"}
_PARQUET_CODECS = {
    "Lz4Raw": "lz4",
    "Uncompressed": "uncompressed",
    "Snappy": "snappy",
    "Gzip": "gzip",
    "Zstd": "zstd",
}
_STATISTICS = {
    "min": "min_value",
    "max": "max_value",
    "distinct_count": "distinct_count",
    "null_count": "null_count",
}


def sink_keywords(payload: Any) -> tuple[str, str, dict[str, Any]]:
    """Translate a sink to a method of ``LazyFrame``.

    Returns
    -------
    tuple
        Name of the method, path, keyword arguments.

    Raises
    ------
    Unreadable
        For any option that is not translated exactly.
    """
    if not isinstance(payload, dict) or set(payload) != {"File"}:
        raise Unreadable("a sink that is not one file")
    file = payload["File"]
    target = file["target"]
    path = target.get("inner") if isinstance(target, dict) else target
    if not isinstance(path, str):
        raise Unreadable("a sink that is not a path")
    ((form, options),) = file["file_format"].items()
    unified = file["unified_sink_args"]
    check_cloud(json.dumps(unified["cloud_options"]))
    if unified["sinked_paths_callback"] is not None or form not in _SINKS:
        raise Unreadable("sink with a callback")
    out: dict[str, Any] = {"mkdir": unified["mkdir"], "maintain_order": unified["maintain_order"]}
    if unified["sync_on_close"] != "None":
        out["sync_on_close"] = unified["sync_on_close"].lower()

    def rest(*known: str, defaults: Mapping[str, Any]) -> None:
        for key, value in options.items():
            if key not in known and value != defaults.get(key):
                raise Unreadable(f"{_SINKS[form]} with {key}")

    if form == "Parquet":
        rest("compression", "statistics", "row_group_size", "data_page_size", defaults={})
        codec = options["compression"]
        name, level = (codec, None) if isinstance(codec, str) else next(iter(codec.items()))
        out["compression"] = _PARQUET_CODECS[name]
        if level is not None:
            raise Unreadable("sink_parquet with a compression level")
        statistics = options["statistics"]
        if statistics.get("binary_statistics_truncate_length") is not None:
            raise Unreadable("sink_parquet with truncated statistics")
        out["statistics"] = {key: statistics[name] for key, name in _STATISTICS.items()}
        out["row_group_size"], out["data_page_size"] = options["row_group_size"], options["data_page_size"]
    elif form == "Csv":
        rest(
            "include_bom",
            "include_header",
            "batch_size",
            "serialize_options",
            defaults={"compression": "Uncompressed", "check_extension": True},
        )
        text = options["serialize_options"]
        out |= {key: options[key] for key in ("include_bom", "include_header", "batch_size")}
        out |= {
            "separator": chr(text["separator"]),
            "line_terminator": text["line_terminator"],
            "quote_char": chr(text["quote_char"]),
            "null_value": text["null"],
            "decimal_comma": text["decimal_comma"],
            "quote_style": snake(text["quote_style"]),
        }
        for key in ("datetime_format", "date_format", "time_format", "float_scientific", "float_precision"):
            out[key] = text[key]
    elif form == "Ipc":
        defaults = {"compression": None, "compat_level": 1, "record_batch_statistics": False}
        rest("record_batch_size", defaults=defaults)
        out["record_batch_size"] = options["record_batch_size"]
    else:
        rest(defaults={"compression": "Uncompressed", "check_extension": True})
    return _SINKS[form], path, out
