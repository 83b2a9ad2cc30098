"""Queries of every shape that Polars' plans have, over small files and frames."""

from __future__ import annotations

import datetime as dt
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
from polars.io.plugins import register_io_source

c = pl.col

BASE = pl.DataFrame(
    {
        "k": [1, 2, 3, 4, 2, 1],
        "g": ["a", "b", "a", "b", "c", "c"],
        "v": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
        "d": [dt.datetime(2020, 1, i + 1) for i in range(6)],
        "l": [[1], [2, 3], [], [4], None, [5]],
        "st": [{"x": i, "y": "q"} for i in range(6)],
    }
)
FLAT = BASE.select("k", "g", "v", "d")
RIGHT = pl.DataFrame(
    {
        "k": [1, 2, 5],
        "w": [10, 20, 50],
        "d": [dt.datetime(2020, 1, i + 1) for i in range(3)],
        "g": ["a", "b", "z"],
    }
)
UNIQUE_RIGHT = RIGHT.unique("k", maintain_order=True)

OPAQUE_NODES = frozenset(
    {
        "map_groups",
        "map_batches",
        "map_batches_stream",
        "join_validate_mixed",
        "unpicklable",
    }
)
"""Queries of which a node is run as it was written."""


def write_files(folder: Path) -> None:
    """Write the files that :func:`plans` reads."""
    FLAT.write_parquet(folder / "a.parquet")
    FLAT.write_parquet(folder / "b.parquet")
    FLAT.with_columns(c("k").cast(pl.Int32), extra=pl.lit(1)).write_parquet(folder / "narrow.parquet")
    FLAT.write_ipc(folder / "a.arrow")
    FLAT.write_csv(folder / "a.csv")
    FLAT.write_csv(folder / "b.csv")
    FLAT.write_ndjson(folder / "a.ndjson")
    (folder / "odd.csv").write_text("# note\nk;t\n1;'x;y'\n2;NA\n\n3;'z'\n")
    (folder / "[odd].parquet").write_bytes((folder / "a.parquet").read_bytes())
    FLAT.write_parquet(folder / "hive", partition_by="g", mkdir=True)


def _io_source() -> pl.LazyFrame:
    def read(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        frame = FLAT if predicate is None else FLAT.filter(predicate)
        frame = frame if with_columns is None else frame.select(with_columns)
        yield frame if n_rows is None else frame.head(n_rows)

    return register_io_source(read, schema=FLAT.schema)


class _Unpicklable:
    """A function of frames that cannot be serialised."""

    def __call__(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.head(2)

    def __reduce__(self) -> str:
        raise TypeError("not to be pickled")


def _joins() -> dict[str, pl.LazyFrame]:
    left, right = FLAT.lazy(), RIGHT.lazy()
    unique = UNIQUE_RIGHT.lazy()
    out = {f"join_{how}": left.join(right, on="k", how=how) for how in _HOWS}
    keys = left.select("k", "v").with_columns(c("v").cast(pl.Int64))
    return out | {
        "join_full_coalesce": left.join(right, on="k", how="full", coalesce=True),
        "join_cross": left.join(right, how="cross"),
        "join_cross_suffix": left.join(right, how="cross", suffix="_2").filter(c("k") == c("k_2") + 1),
        "join_cross_filter": left.join(right, how="cross").filter(
            c("k") > c("k_right") + c("w") * 0, c("v") < c("w")
        ),
        "join_cross_filter_eq": left.join(right, how="cross").filter(c("k") == c("k_right")),
        "join_expr_keys": left.join(right, left_on=c("k") + 1, right_on="k"),
        "join_names": left.join(right.rename({"k": "kk"}), left_on="k", right_on="kk", how="left"),
        "join_names_keep": left.join(right, left_on="k", right_on="k", how="left", coalesce=False),
        "join_multi_nulls_equal": left.join(right, on=["k", "g"], nulls_equal=True),
        "join_maintain": left.join(right, on="k", maintain_order="left_right", how="left"),
        "join_validate": left.join(unique, on="k", validate="m:1", how="left"),
        "join_validate_mixed": left.join(unique, on="k", validate="m:1").join(
            right, on="k", how="left", suffix="_s"
        ),
        "join_asof": left.sort("d").join_asof(right.sort("d"), on="d"),
        "join_asof_by_tolerance": left.sort("d").join_asof(
            right.sort("d"), on="d", by="k", strategy="nearest", tolerance="2d"
        ),
        "join_asof_int_tolerance": left.sort("k").join_asof(
            right.sort("k"), on="k", tolerance=1, strategy="forward", allow_exact_matches=False
        ),
        "join_where_2": keys.join_where(right, c("k") < c("k_right"), c("v") > c("w") - 8),
        "join_where_1": left.join_where(right, c("k") < c("k_right")),
        "join_where_eq_and": left.join_where(right, c("g") == c("g_right"), c("k") <= c("w")),
        "join_where_any": left.join_where(right, (c("k") + c("w")) % 2 == 0),
        "join_where_or": keys.join_where(right, (c("k") > c("k_right")) | (c("v") > c("w"))),
        "join_head": left.join(right, on="k").sort("k", "v").head(2),
        "join_pruned": left.join(right, on="k").select("w", "v"),
        "join_count": left.join(right, on="k").select(pl.len()),
        "cross_count": left.join(right, how="cross").select(pl.len()),
        "join_three": left.join(right, on="k")
        .join(right.rename({"w": "w2", "k": "k2", "d": "d2"}), on="g")
        .filter(c("w2") > 1),
    }


_HOWS = ("inner", "left", "right", "full", "semi", "anti")


def _groups() -> dict[str, pl.LazyFrame]:
    lf = FLAT.lazy()
    return {
        "group": lf.group_by("g").agg(c("v").sum(), c("k").max(), pl.len()),
        "group_maintain": lf.group_by("g", maintain_order=True).agg(c("v").mean()),
        "group_expr_keys": lf.group_by(c("k") % 2, c("g")).agg(
            c("v").filter(c("k") > 1).sum().alias("z"), c("v").sort_by("k", "d").first()
        ),
        "group_first_by": lf.group_by("g").agg(c("v").sort_by("d").first(), c("v").max_by("d").alias("m")),
        "map_groups": lf.group_by("g").map_groups(lambda frame: frame.head(1), schema=None),
        "group_head": lf.group_by("g").head(1),
        "group_all": lf.group_by("g").all(),
        "group_having": lf.group_by("g").having(c("v").sum() > 2).agg(c("v").sum()),
        "group_no_aggs": lf.group_by("g").agg(),
        "group_count": lf.group_by("g").agg(c("v").sum()).select(pl.len()),
        "group_head_rows": lf.group_by("g", maintain_order=True).agg(c("v").sum()).head(2),
        "group_map_elements": lf.group_by("g").agg(
            c("v").map_elements(lambda x: x * 2, return_dtype=pl.Float64).sum()
        ),
        "group_map_batches": lf.group_by("g").agg(
            c("v").map_batches(lambda s: s.sum(), return_dtype=pl.Float64, returns_scalar=True)
        ),
        "group_dynamic": lf.sort("d")
        .group_by_dynamic("d", every="2d", period="3d", closed="both", label="right", group_by="g")
        .agg(c("v").sum()),
        "group_dynamic_options": lf.sort("d")
        .group_by_dynamic("d", every="1w", offset="-1d", include_boundaries=True, start_by="datapoint")
        .agg(c("v").sum()),
        "group_dynamic_index": lf.sort("k").group_by_dynamic("k", every="2i").agg(c("v").sum()),
        "group_rolling": lf.sort("d").rolling("d", period="2d", closed="left").agg(c("v").sum()),
        "group_rolling_by": lf.sort("d").rolling("d", period="2d", group_by="g").agg(c("v").sum()),
    }


def _frames() -> dict[str, pl.LazyFrame]:
    lf, right, nested = FLAT.lazy(), RIGHT.lazy(), BASE.lazy()
    grouped = lf.group_by("g").agg(c("v").sum())
    unique = {f"unique_{keep}": lf.unique(subset=["k"], keep=keep) for keep in _KEEPS}
    return unique | {
        "unique_maintain": lf.unique(subset=["k"], keep="first", maintain_order=True),
        "unique_all": lf.unique(),
        "unique_expr": lf.unique(subset=[c("k") % 2], keep="first", maintain_order=True),
        "unpivot": lf.unpivot(index="g", on=["k", "v"]),
        "unpivot_names": lf.unpivot(on=["k", "v"], variable_name="n", value_name="x"),
        "pivot": lf.pivot("g", on_columns=["a", "b", "c"], index="k", values="v", aggregate_function="sum"),
        "explode": nested.explode("l"),
        "explode_options": nested.explode("l", empty_as_null=True, keep_nulls=False),
        "unnest": nested.unnest("st"),
        "unnest_separator": nested.unnest("st", separator="_"),
        "concat_vertical": pl.concat([lf, lf]),
        "concat_relaxed": pl.concat([lf, lf.with_columns(c("k").cast(pl.Float64))], how="vertical_relaxed"),
        "concat_horizontal": pl.concat(
            [lf, right.rename({"k": "k2", "d": "d2", "g": "g2"})], how="horizontal_extend"
        ),
        "concat_horizontal_strict": pl.concat([lf, lf.select(k2=c("k"))], how="horizontal"),
        "union": pl.union([lf, lf.filter(c("k") > 1)]),
        "concat_diagonal": pl.concat([lf, right], how="diagonal"),
        "concat_align": pl.concat([lf, right.select("k", "w")], how="align"),
        "concat_head": pl.concat([lf.filter(c("k") > 1), lf]).head(5),
        "concat_count": pl.concat([lf, lf.filter(c("k") > 1)]).select(pl.len()),
        "slice": lf.filter(c("k") > 1).slice(1, 2),
        "tail": lf.filter(c("k") > 1).tail(2),
        "row_index": lf.with_row_index("idx", offset=10),
        "row_index_filter": lf.filter(c("k") > 1).with_row_index().filter(c("index") > 1),
        "sort_multi": lf.sort(
            "g", "k", descending=[True, False], nulls_last=[True, False], maintain_order=True
        ),
        "sort_expr": lf.sort(c("k") % 2, c("v")),
        "sort_opaque": lf.sort(c("v").map_elements(lambda x: -x, return_dtype=pl.Float64)),
        "top_k": lf.top_k(2, by="v"),
        "bottom_k": lf.bottom_k(2, by=["v", "k"], reverse=[True, False]),
        "sort_head": lf.sort("v").head(2),
        "sort_slice": lf.sort("v").slice(1, 3),
        "merge_sorted": lf.sort("k").merge_sorted(lf.sort("k"), key="k"),
        "reverse": lf.reverse(),
        "shift": lf.shift(1),
        "drop_nulls": lf.drop_nulls(),
        "fill_null": lf.fill_null(0),
        "null_count": lf.null_count(),
        "select_quantile": lf.select("k", "v").select(pl.all().quantile(0.5)),
        "count": lf.count(),
        "literal": lf.select(pl.lit(1), pl.lit("x").alias("y")),
        "select_df": lf.select("k"),
        "len_df": lf.select(pl.len()),
        "no_columns": pl.LazyFrame().select(pl.lit(1)),
        "map_batches": lf.filter(c("k") > 1).map_batches(lambda frame: frame.head(1)).select("g", "v"),
        "map_batches_stream": lf.map_batches(
            lambda frame: frame.with_columns(z=pl.lit(1)),
            streamable=True,
            schema={**FLAT.schema, "z": pl.Int32},
            predicate_pushdown=True,
        ).filter(c("k") > 1),
        "unpicklable": lf.map_batches(_Unpicklable(), schema=FLAT.schema).join(right, on="k"),
        "cse_join": grouped.join(grouped, on="g"),
        "cse_expr": lf.with_columns(a=c("v").sum() * 2, b=c("v").sum() * 3),
        "cache": lf.filter(c("k") > 1).cache().select("k"),
        "sql": pl.SQLContext(f=lf, r=right).execute(
            "select f.g, sum(w) as s from f join r on f.k = r.k where v > 1 group by f.g order by s desc limit 2"
        ),
        "set_sorted": lf.sort("k").set_sorted("k"),
        "set_sorted_two": lf.sort("k", "v", descending=True).set_sorted("k", "v", descending=True),
        "match_schema": lf.match_to_schema({**FLAT.schema}),
        "pipe_with_schema": lf.pipe_with_schema(lambda frame, schema: frame.select(next(iter(schema)))),
        "select_len": lf.select(pl.len(), c("v").sum()),
        "remove": lf.remove(c("k") > 2),
        "interpolate": lf.interpolate(),
        "gather": lf.gather([0, 1]),
        "gather_null": lf.gather([0, 99], null_on_oob=True),
        "gather_every": lf.gather_every(2),
        "rename_drop": lf.rename({"k": "kk"}).drop("v"),
        "rename_function": lf.rename(lambda name: name.upper()),
        "with_columns_seq": lf.with_columns_seq(c("k") + 1),
        "update": lf.update(right.select("k", c("w").cast(pl.Float64).alias("v")), on="k"),
        "is_in_frame": lf.filter(c("k").is_in(RIGHT["k"].implode())),
        "window": lf.with_columns(z=c("v").cum_sum().over("g", order_by="d")),
        "filter_opaque": lf.filter(c("k").map_elements(lambda x: x > 1, return_dtype=pl.Boolean)),
        "opaque_pushdown": lf.with_columns(
            z=c("v").map_elements(lambda x: x + 1, return_dtype=pl.Float64)
        ).filter(c("z") > 2, c("k") > 1),
        "opaque_renamed": lf.select(kk=c("k") * 2, v="v")
        .with_columns(z=c("kk").map_elements(lambda x: x + 1, return_dtype=pl.Int64))
        .filter(c("z") > 3)
        .select(zz="z"),
        "gather_mixed": lf.select(a=c("k").get(0), b=c("k").get(99, null_on_oob=True)),
        "nan_literal": lf.select(c("v").map_elements(lambda x: x, return_dtype=pl.Float64) + float("nan")),
        "empty": lf.filter(pl.lit(False)),
        "nested_opaque": lf.map_batches(lambda frame: frame.head(4), schema=FLAT.schema)
        .map_batches(lambda frame: frame.tail(3), schema=FLAT.schema)
        .with_columns(c("k").map_elements(lambda x: -x, return_dtype=pl.Int64)),
    }


_KEEPS = ("first", "last", "any", "none")


def _scans(folder: Path) -> dict[str, pl.LazyFrame]:
    parquet = folder / "a.parquet"
    two = [parquet, folder / "b.parquet"]
    csv = [folder / "a.csv", folder / "b.csv"]

    def scan() -> pl.LazyFrame:
        return pl.scan_parquet(parquet)

    return {
        "scan_head": scan().head(2),
        "scan_slice_negative": scan().slice(-3, 2),
        "scan_len": scan().select(pl.len()),
        "scan_filter_len": scan().filter(c("k") > 1).select(pl.len()),
        "scan_slice_len": scan().slice(1, 3).select(pl.len()),
        "scan_len_csv": pl.scan_csv(csv).select(pl.len()),
        "scan_len_ipc": pl.scan_ipc(folder / "a.arrow").select(pl.len()),
        "scan_predicate": scan().filter(c("k") > 1, c("g") == "b").select("v"),
        "scan_slice_predicate": scan().slice(1, 4).filter(c("k") > 1),
        "scan_many": pl.scan_parquet(two, include_file_paths="fp", row_index_name="ri").filter(c("k") > 1),
        "scan_row_index_slice": pl.scan_parquet(two, row_index_name="ri", row_index_offset=5).slice(4, 4),
        "scan_row_index_only": scan().with_row_index().select("index"),
        "scan_paths_only": pl.scan_parquet(two, include_file_paths="fp").select("fp"),
        "scan_brackets": pl.scan_parquet(folder / "[odd].parquet", glob=False),
        "scan_glob": pl.scan_parquet(folder / "?.parquet").select("k"),
        "scan_hive": pl.scan_parquet(folder / "hive", hive_partitioning=True).filter(c("g") == "a"),
        "scan_hive_all": pl.scan_parquet(folder / "hive", hive_partitioning=True),
        "scan_hive_only": pl.scan_parquet(folder / "hive", hive_partitioning=True).select("g"),
        "scan_schema": pl.scan_parquet(
            folder / "narrow.parquet",
            schema={**FLAT.schema, "missing": pl.String},
            missing_columns="insert",
            extra_columns="ignore",
            cast_options=pl.ScanCastOptions(integer_cast="upcast"),
        ),
        "scan_options": pl.scan_parquet(parquet, low_memory=True, use_statistics=False, parallel="columns"),
        "scan_csv": pl.scan_csv(csv[0], try_parse_dates=True).filter(c("k") > 1).select("v"),
        "scan_csv_options": pl.scan_csv(
            csv,
            null_values=["a"],
            row_index_name="ri",
            include_file_paths="fp",
            schema_overrides={"k": pl.Int32},
        ),
        "scan_csv_odd": pl.scan_csv(
            folder / "odd.csv",
            separator=";",
            quote_char="'",
            comment_prefix="#",
            null_values={"t": "NA"},
            infer_schema=False,
        ),
        "scan_csv_schema": pl.scan_csv(
            csv, schema=dict(zip("kgvd", (pl.Int8, pl.String, pl.Float32, pl.String), strict=True))
        ),
        "scan_csv_no_header": pl.scan_csv(csv[0], has_header=False, skip_rows=2, n_rows=2),
        "scan_ndjson": pl.scan_ndjson(folder / "a.ndjson").filter(c("k") > 1),
        "scan_ndjson_schema": pl.scan_ndjson(
            folder / "a.ndjson", schema_overrides={"k": pl.Float64}, row_index_name="ri"
        ),
        "scan_ipc": pl.scan_ipc(folder / "a.arrow").filter(c("k") > 1).select("g"),
        "scan_ipc_row_index": pl.scan_ipc(folder / "a.arrow", row_index_name="ri").head(2),
        "scan_lines": pl.scan_lines(csv[0]),
        "scan_bytesio": pl.scan_parquet(io.BytesIO(parquet.read_bytes())).filter(c("k") > 1).select("v"),
        "scan_top_k": scan().sort("v").head(3),
        "io_plugin": _io_source().filter(c("k") > 1).select("v"),
        "io_plugin_head": _io_source().head(2),
        "io_plugin_count": _io_source().select(pl.len()),
    }


SCAN_NAMES = (
    "scan_head",
    "scan_slice_negative",
    "scan_len",
    "scan_filter_len",
    "scan_slice_len",
    "scan_len_csv",
    "scan_len_ipc",
    "scan_predicate",
    "scan_slice_predicate",
    "scan_many",
    "scan_row_index_slice",
    "scan_row_index_only",
    "scan_paths_only",
    "scan_brackets",
    "scan_glob",
    "scan_hive",
    "scan_hive_all",
    "scan_hive_only",
    "scan_schema",
    "scan_options",
    "scan_csv",
    "scan_csv_options",
    "scan_csv_odd",
    "scan_csv_schema",
    "scan_csv_no_header",
    "scan_ndjson",
    "scan_ndjson_schema",
    "scan_ipc",
    "scan_ipc_row_index",
    "scan_lines",
    "scan_bytesio",
    "scan_top_k",
    "io_plugin",
    "io_plugin_head",
    "io_plugin_count",
)


def plans(folder: Path) -> dict[str, pl.LazyFrame]:
    """Return the queries by name."""
    return _joins() | _groups() | _frames() | _scans(folder)


def names() -> list[str]:
    """Return the names of all queries, without making those that need files."""
    builders: tuple[Callable[[], dict[str, pl.LazyFrame]], ...] = (_joins, _groups, _frames)
    return [name for build in builders for name in build()] + list(SCAN_NAMES)
