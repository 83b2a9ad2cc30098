"""Partitions that the ranks of one process write."""

from __future__ import annotations

from pathlib import Path

import polars as pl
from execute import local_transport

from cudf_polars.engine.sinks import SinkTarget

__all__ = ["FRAME", "PARTS", "by_key", "check_nothing_hidden", "files", "folders", "read_all", "sink"]

_STRANGE = ["a b", "100%", "é", None, "x/y", "..", ".", "", "k=v", "a:b", "?#*+&", "\n", "'\"\\", "a b", None]
FRAME = pl.DataFrame({"k": _STRANGE, "v": range(len(_STRANGE))}, schema={"k": pl.String, "v": pl.Int64})
PARTS = [FRAME.head(9), FRAME.slice(9)]


def files(folder):
    """Return the names of all files below a folder."""
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


def folders(names):
    """Return the folders that names of files have."""
    return {name.rpartition("/")[0] for name in names}


def read_all(folder):
    """Read all rows, with the keys that the files have."""
    return pl.concat([pl.read_parquet(Path(folder) / name) for name in files(folder)])


def sink(target, parts, extension="parquet", mode="raise", **options):
    """Let a rank for each of ``parts`` write."""

    def work(transport):
        opened = SinkTarget.open(target, extension, transport, mode, options)
        try:
            opened.write(parts[transport.rank].lazy(), **options)
            told = opened.commit(b"")
            assert opened.needs is None
            return told
        except BaseException:
            opened.discard()
            raise

    return local_transport.run_ranks(len(parts), work)


def check_nothing_hidden(folder):
    """Check that no sink has left what it hid."""
    assert [path for path in Path(folder).rglob(".*") if path.name.endswith(".tmp")] == []


def by_key(args):
    """Name a file as a user may, in a folder of its key."""
    return f"{args.partition_keys.item()}/file{args.index_in_partition}"
