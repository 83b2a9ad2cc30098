"""Writes the pages of docs/ that are tables of the sources: options.md, sources.md and statistics.md.

python scripts/write_pages.py
"""

from __future__ import annotations

from pathlib import Path

from rapidsmpf.config import OptionInfo, registered_options
from rapidsmpf.statistics import StatisticInfo, registered_statistics

from cudf_polars.engine.options import StreamingOptions
from cudf_polars.lower.coverage import AGGREGATIONS, OVER_ROWS
from cudf_polars.lower.gathered import Gathered
from cudf_polars.lower.source_table import SINKS, SOURCES

DOCS = Path(__file__).resolve().parents[1] / "docs"

OPTIONS_HEAD = """# Options

This page is written by `scripts/write_pages.py` from the tables of the sources.

An option that does not exist raises `TypeError`, and so does a value of the wrong type; a value that cannot be used
raises `ValueError`. The message names the option and where it was set: an argument, or an environment variable.
A variable whose name begins like those below and is almost one of them raises, too; any other may be another program's.

## Of the engines

The fields of `cudf_polars.StreamingOptions`, for `SPMDEngine.from_options(StreamingOptions(...))` and the other engines
likewise. An engine's constructor takes the same by group: `SPMDEngine(rapidsmpf_options={...}, executor_options={...},
engine_options={...})`; there `rapidsmpf_options` may hold all options [of the library](#of-the-library). What is given
explicitly goes before the environment variable, that before the default. On the workers of Dask and Ray, options of the
group rapidsmpf that neither the script nor its environment sets come from the worker's own environment.

Sizes are numbers of bytes or text such as `"64 KiB"`, durations are seconds or text such as `"100ms"`. Where *off* is a
value, `False` means the same. Defaults are those of the library, except for `num_streaming_threads`.

"""

WITHOUT_EFFECT_HEAD = """
### Without effect

These are accepted so that scripts run unchanged. They change nothing in this version, and setting one to another value
than its default warns once (`cudf_polars.OptionWithoutEffectWarning`).

"""

LIBRARY_HEAD = """
## Of the library

The keys of `rapidsmpf.config.Options`, which the engines pass on (`rapidsmpf_options=`). A program of your own reads
their environment variables with `Options(get_environment_variables())`. Sizes are written as `512`, `64 KiB` or
`1.5 GB`, durations as `100ms`, `2 s` or `1.5` (seconds). Where *off* is a value, so are `false`, `no`, `disable` and
`disabled`. The engines check that a file can be made in `spill_directory` when they start.

"""

LIBRARY_TABLE = """| key | value | default | environment variable | meaning |
| --- | --- | --- | --- | --- |
"""

STATISTICS_HEAD = """# Statistics

What the library records in `rapidsmpf.statistics.Statistics`, when they are enabled (option `statistics`). This page is
written by `scripts/write_pages.py` from the table `cpp/include/rapidsmpf/core/statistic_names.hpp`.

Each statistic has a count of what was added, its value and the largest that was added. The value is the sum; of a
*peak* it is the largest. Merged over ranks, counts and sums are added, and the largest peak stays. `report()` prints
bytes whose time is recorded too with their bandwidth. On a machine without a GPU, *device* memory is this process's RAM
budget, and there is no *host* memory below it: what is spilled goes to disk at once, and is recorded as
`spill-bytes-device-to-disk` and back as `spill-bytes-disk-to-device`; of `spill-bytes-device-to-host` and
`spill-bytes-recv-to-host` nothing is. `get_stat` raises KeyError for what was never recorded.
"""


SOURCES_HEAD = """# Sources and sinks

This page is written by `scripts/write_pages.py` from the table `python/cudf_polars/lower/source_table.py`, which
the tests take, too. It holds for several ranks, of `rrun`, Dask or Ray alike; one rank leaves reading and writing
to Polars.

Object stores are S3, Google Cloud Storage (GCS) and Azure Blob Storage, with Polars' own `storage_options` and
`credential_provider`. What the tables below say of them is tested with each: S3 is moto's server, GCS is
fake-gcs-server for reads, and GCS and Azure are servers of the tests, which refuse requests without the key. Polars
reads the rows. Where a file is divided (footers, ends of records) is found by ranges of bytes, which takes the package
obstore: `pip install obstore`. Without it, one rank reads a remote file, and several are read by file.
Secrets are passed to the ranks and shown nowhere: not in plans, `explain`, fingerprints, warnings or logs, and not in
errors, from which users and queries of URLs are taken also where they are Polars' own.

Bytes in the query are those of `pl.scan_parquet(io.BytesIO(...))` and the like: one table, as a file is, so all ranks
have to hold the same. One rank reads them if they are more than 16 MiB, more than 64 files, or read with
`include_file_paths`; files that the query holds open (`open(path, "rb")`) make the whole query one rank's.

What one rank reads alone raises one `FallbackWarning` with the reason.

## Sources

"""

SOURCES_TAIL = """
One CSV or NDJSON file is divided at ends of records, and each rank parses its part in pieces of at most 64 MiB. Whether
a newline is in quotes is known only from the start of the file: each rank but the last counts the quotes of its part
first. So these parts are read twice, on a file system the second time mostly from memory, which is a tenth of the time.
One rank reads a text file alone if it is compressed, if its types are to be found in all of its rows
(`infer_schema_length=None`), if it has comments and quotes, or if lines that are skipped have quotes. The first rows
(`head`) of a text are read by one rank without a warning, which is faster. Row indexes and slices of texts are counted
over the ranks. Of IPC files, ranks take ranges of rows: those of one record batch may be read by two.

## Sinks

"""

SINKS_TAIL = """
On a file system the ranks write to a hidden folder beside the target, `.<name>.<token>.tmp`. When all have written,
rank 0 lets it take the target's place, in one step (`renameat2`): a reader finds the old parts or the new ones, also
when the sink is killed, which leaves a hidden folder to delete. The new folder has the permissions, owner and group of
the old one. On hosts with file systems of their own, one rank of each host does so. Parts are renamed one by one where
the system has no such step, where the target is a mount point, belongs to another account, or is the working directory
of a rank or of the client, and where its parent cannot be written to. A store changes one object at a time: the parts
of a sink have new names, `part.<rank>.<token>.<extension>`, and when all ranks have written, rank 0 deletes the parts
of former sinks. A reader before that sees old and new parts. A sink that fails leaves the old ones. One that is killed
leaves besides what it had written, which the next sink to the folder removes. After a query has failed, Polars ends the
uploads that it has begun, as if the rows until then were all: a rank waits for such objects, up to 3 s, and deletes
them. A folder with other files than parts is refused. Every rank has to call the same sink with the same kind of
target: where they differ, all raise `QueryMismatchError`.

One rank writes a folder in the same way if the store lets the package obstore list. Else, and to a single object, its
object takes its name when it is whole: what is large is uploaded in parts of 32 MiB, which the store joins at the end.
A query that fails or is killed leaves the old object; one that is killed leaves parts, which stores remove if their
rules say so. Polars writes alone, and then a query that fails leaves the rows until then in the place of the old
object, if obstore does not reach the store, with options of encryption, and for a query of `lazy=True` whose `clone()`
is collected.

To `pl.PartitionBy`, each rank writes the files of its own rows, and a partition has as many files as ranks with rows of
it. On a file system they are written to a hidden folder beside the target, and rank 0 moves them when all ranks have
written. They are numbered over the ranks, so that the names are those of one process: `key=value/00000000.parquet` and
so on, in the order of the rows. A `file_path_provider` is called by rank 0, once for each file; when it gives file
objects, they are written before any file has its place. If it gives one name to files of several ranks, because it does
not use `index_in_partition`, the query runs again and one rank writes, with a `FallbackWarning`. A target that is not
there comes as a whole. In one that is, files of the same names are replaced and others stay, as with Polars: a folder
with links to those and with the new files takes the target's place in one step, as above. With symbolic links in it,
with folders that belong to another account or in which a rank or the client works, or where there is no such step,
files are replaced one by one, which is undone when it fails, and not when the sink is killed meanwhile. In a store, a
name has a rank and a token besides, `key=value/<rank>-<number>.<token>.parquet`: the files of former sinks with the
same number and rank, or with Polars' own name of that number, are deleted when all are there. With a
`file_path_provider`, the ranks write to a hidden folder of the store, `.<token>.tmp/`, and rank 0 lets the store copy
each object to its name, one after the other; a sink that is killed then leaves some of the old files and some of the
new ones, each whole, and the hidden folder. (S3 copies objects of at most 5 GB.) A client writes alone, with a
`FallbackWarning`, with a `sinked_paths_callback`, or a function that cannot be sent to its ranks.

`sink_delta` writes by all ranks: each has deltalake write its rows to a table of its own, with the schema, partitions
and properties of the real one. On a file system these are in a hidden folder beside the real table: rank 0 moves the
files and commits them as one version, which others see or do not. In an object store they are in the real table's
folder, `riverrun-<token>/<rank>/`, where the files stay: rank 0 commits them there, and deletes the logs of the ranks'
tables. A sink that fails removes what it wrote, and one that is killed leaves the hidden folder, and files that no
version has. One rank writes alone, and on Dask and Ray that is the client, with a `FallbackWarning`, with
`mode="merge"` (under SPMD this is an error, as each rank would merge), `schema_mode` or `predicate`; with
`storage_options` to a file system; to a `DeltaTable`, a store that the package obstore does not reach, or a table with
constraints, features other than timestamps without a zone, properties of columns, or properties that matter to writers;
a new table with such properties, too. The history calls the first version of a table `CREATE TABLE`. To GCS, Delta
takes the key of a service account: deltalake knows no token of a `credential_provider` there.

`sink_iceberg` writes by all ranks with all of Polars' modes and options, also to tables with partitions or a sort
order. Each rank has Polars write its rows to data files in the table's folder, `data/<token>/<rank>/`, where they stay;
a rank without rows writes none. Rank 0 has Polars commit the files of all ranks as one snapshot. What Polars refuses
is refused before any rank writes, and all ranks raise its error. So they do where a rank fails while it writes, or the
commit fails, and then the files are removed; they stay where it is unknown whether the commit was made
(`CommitStateUnknownException`). A sink that is killed leaves the table as it was, and files that no snapshot has. On
Dask and Ray the catalog's class, name and properties are sent to the ranks, and rank 0 opens it. One rank writes
alone, with a `FallbackWarning` that says why, and on Dask and Ray that is the client: to a table with
`write.object-storage.enabled`, a folder or a store that not all ranks reach, or a catalog that rank 0 does not; with
what cannot be sent to other processes; and with a version of Polars whose sink works in another way.
"""


def _library_row(info: OptionInfo) -> str:
    value = ", ".join(f"`{word}`" for word in info.words) or info.type
    if info.can_be_off:
        value += ", or off"
    default = f"`{info.default}`" if info.default else ""
    return f"| `{info.key}` | {value} | {default} | `RAPIDSMPF_{info.key.upper()}` | {info.meaning} |\n"


def options_page() -> str:
    """Return docs/options.md."""
    library = registered_options()
    effective = "".join(_library_row(info) for info in library if info.effective)
    others = "".join(_library_row(info) for info in library if not info.effective)
    return (
        OPTIONS_HEAD
        + StreamingOptions.to_markdown(effective=True)
        + WITHOUT_EFFECT_HEAD
        + StreamingOptions.to_markdown(effective=False)
        + LIBRARY_HEAD
        + LIBRARY_TABLE
        + effective
        + "\n### Keys without effect\n\nAs above: accepted, and without effect in this version.\n\n"
        + LIBRARY_TABLE
        + others
    )


def statistics_page() -> str:
    """Return docs/statistics.md."""
    by_place: dict[str, list[StatisticInfo]] = {}
    for info in registered_statistics():
        by_place.setdefault(info.recorded, []).append(info)
    text = STATISTICS_HEAD
    for recorded, group in by_place.items():
        text += (
            f"\n## {recorded[0].upper()}{recorded[1:]}\n\n| name | unit | meaning |\n| --- | --- | --- |\n"
        )
        for info in group:
            unit = f"{info.unit}, peak" if info.kind == "peak" else info.unit or "count"
            text += f"| `{info.name}` | {unit} | {info.meaning} |\n"
    return text


def sources_page() -> str:
    """Return docs/sources.md."""
    sources = "".join(
        f"| {row.format} | {row.store} | "
        + (f"one rank: {row.why_not} |\n" if row.why_not else f"all ranks, by {row.how} |\n")
        for row in SOURCES
    )
    sinks = "".join(f"| `{row.sink}` | {row.store} | {row.how} |\n" for row in SINKS)
    return (
        SOURCES_HEAD
        + "| format | store | read by |\n| --- | --- | --- |\n"
        + sources
        + SOURCES_TAIL
        + "| sink | store | written |\n| --- | --- | --- |\n"
        + sinks
        + SINKS_TAIL
    )


COVERAGE_HEAD = """# What one rank gathers

This page is written by `scripts/write_pages.py` from the reasons of the planner (`cudf_polars.lower.gathered`).

Every step of a query that is not on this page runs on all ranks, each over its part of the rows. What is here runs on
one: it gathers the rows of the step's input, the answer is right, and a `FallbackWarning` names the step and why.
The steps before and behind it are distributed again. Steps whose input is on one rank already, because it is small, are
not warned of.

| what the warning says | steps | why |
| --- | --- | --- |
"""

OVER_ROWS_HEAD = """
## Functions over rows

Of a whole table, in `select`, `with_columns` and `filter`; over windows with keys and in `group_by` they are computed
where the rows of a key meet.

"""

AGGREGATES_HEAD = """
## Aggregates of a whole table

"""


def coverage_page() -> str:
    """Return docs/coverage.md."""
    rows = "".join(f"| {why.value} | {why.steps} | {why.reason} |\n" for why in Gathered)
    lists = [", ".join(f"`{name}`" for name in names) + ".\n" for names in (OVER_ROWS, AGGREGATIONS)]
    return COVERAGE_HEAD + rows + OVER_ROWS_HEAD + lists[0] + AGGREGATES_HEAD + lists[1]


PAGES = {
    DOCS / "coverage.md": coverage_page,
    DOCS / "sources.md": sources_page,
    DOCS / "options.md": options_page,
    DOCS / "statistics.md": statistics_page,
}

if __name__ == "__main__":
    for path, text in PAGES.items():
        path.write_text(text())
