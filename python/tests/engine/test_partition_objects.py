"""Files of a sink to ``pl.PartitionBy`` become visible in an object store."""

from __future__ import annotations

import io
import re
import traceback

import polars as pl
import pytest
from execute import local_transport
from polars.testing import assert_frame_equal

from cudf_polars.engine import partition_sinks
from cudf_polars.engine.partition_sinks import folder_of_keys
from cudf_polars.engine.sinks import SinkTarget
from cudf_polars.lower import FallbackWarning
from support.object_store import object_store
from support.partitions import FRAME, PARTS, by_key, folders, sink


def of_store(store):
    """Return the objects of a sink: names without tokens, and their rows."""
    pattern = re.compile(r"(\d{5}-[0-9a-f]{8})\.[0-9a-f]{12}\.parquet")
    return {
        pattern.sub(r"\1", name.removeprefix("bucket/out/")): value for name, value in store.objects.items()
    }


def rows_of(objects):
    return pl.concat(pl.read_parquet(io.BytesIO(value)) for value in objects.values())


def test_ranks_write_to_a_store():
    pytest.importorskip("obstore")
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        target = pl.PartitionBy("s3://bucket/out/", key="k")
        sink(target, PARTS, **options)
        found = of_store(store)
        assert_frame_equal(rows_of(found), FRAME, check_row_order=False)
        assert folders(found) == {folder_of_keys(row) for row in FRAME.select("k").iter_slices(1)}
        assert {name.rpartition("/")[2] for name in found} == {"00000-00000000", "00001-00000000"}

        # The next sink replaces what has its names; a file of Polars' name is one of them, others stay.
        first = set(store.objects)
        for name in ("k=a%20b/00000000.parquet", "k=a%20b/00000009.parquet", "k=old/00000000.parquet", "x"):
            store.objects[f"bucket/out/{name}"] = b"old"
        told = []
        sink(target, PARTS, **options, sinked_paths_callback=lambda args: told.extend(args.paths))
        old = {name for name, value in store.objects.items() if value == b"old"}
        assert old == {f"bucket/out/{n}" for n in ("k=a%20b/00000009.parquet", "k=old/00000000.parquet", "x")}
        for name in old:
            del store.objects[name]
        assert first & set(store.objects) == set()
        assert sorted(file.path for file in told) == sorted(f"s3://{name}" for name in store.objects)
        assert_frame_equal(rows_of(of_store(store)), FRAME, check_row_order=False)

        # One that fails leaves those that were there.
        before = dict(store.objects)

        def fail(column):
            raise ValueError("of this rank")

        bad = FRAME.lazy().with_columns(pl.col("v").map_batches(fail, return_dtype=pl.Int64))
        with pytest.raises(Exception, match="of this rank"):
            sink(target, [PARTS[0], bad], **options)
        assert store.objects == before


def test_what_was_not_written_keeps_nothing_in_a_store(monkeypatch):
    obstore = pytest.importorskip("obstore")
    own = obstore.delete

    def delete(store, paths):
        # As stores do that delete one object at a time.
        for path in paths:
            if f"bucket/{path}" not in memory.objects:
                raise FileNotFoundError(path)
            own(store, path)

    def work(transport):
        options = {"storage_options": memory.storage_options}
        opened = SinkTarget.open(
            pl.PartitionBy("s3://bucket/out", key="k"), "parquet", transport, "raise", options
        )
        _, target, _ = opened._parts.prepare(FRAME.lazy(), options)
        for number in range(2):
            keys = FRAME.select("k").slice(number, 1)
            args = pl.io.partition.FileProviderArgs(index_in_partition=0, partition_keys=keys)
            name = target._pl_partition_by.file_path_provider(args)
            if number:  # the first one was only announced
                memory.objects[f"bucket/out/{name}"] = b"rows"
        opened.discard()

    monkeypatch.setattr(obstore, "delete", delete)
    with object_store() as memory:
        local_transport.run_ranks(2, work)
        assert memory.objects == {}


def test_no_rows_in_a_store():
    pytest.importorskip("obstore")
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        target = pl.PartitionBy("s3://bucket/out", max_rows_per_file=10)
        sink(target, [FRAME.clear(), FRAME], **options)
        assert sorted(of_store(store)) == ["00001-00000000", "00001-00000001"]
        sink(pl.PartitionBy("s3://bucket/no", max_rows_per_file=10), [FRAME.clear()] * 2, **options)
        assert len(store.objects) == 3


def test_what_one_rank_writes_in_a_store(monkeypatch):
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        monkeypatch.setattr(partition_sinks.importlib.util, "find_spec", lambda _: None)
        with pytest.warns(FallbackWarning, match="obstore"):
            sink(pl.PartitionBy("s3://bucket/out", key="k"), PARTS, mode="warn", **options)
        assert_frame_equal(rows_of(store.objects), FRAME, check_row_order=False)


@pytest.mark.parametrize("nranks", [1, 2])
def test_the_users_names_in_a_store(nranks):
    pytest.importorskip("obstore")
    frame = pl.DataFrame({"v": [1, 2, 1], "w": range(3)})
    with object_store() as store:
        options = {"storage_options": store.storage_options}
        store.objects["bucket/out/old"] = store.objects["bucket/out/1/file0"] = b"old"
        for names in (by_key, lambda args: f"s3://bucket/out/{by_key(args)}"):
            target = pl.PartitionBy("s3://bucket/out/", key="v", file_path_provider=names)
            sink(target, [frame] * nranks, **options)
            expected = {f"bucket/out/{v}/file{rank}" for v in (1, 2) for rank in range(nranks)}
            assert store.objects.keys() == expected | {"bucket/out/old"}
            assert store.objects.pop("bucket/out/1/file0") != b"old"

        told, objects = [], {}
        target = pl.PartitionBy(
            "s3://bucket/told", max_rows_per_file=2, file_path_provider=lambda a: str(a.index_in_partition)
        )
        sink(target, [frame] * nranks, sinked_paths_callback=lambda args: told.extend(args.paths), **options)
        names = [f"s3://bucket/told/{number}" for number in range(2 * nranks)]
        assert sorted((file.path, file.num_rows) for file in told) == [
            (name, 1 + (number % 2 == 0)) for number, name in enumerate(names)
        ]

        def given(args):
            return objects.setdefault((args.partition_keys.item(), args.index_in_partition), io.BytesIO())

        before = dict(store.objects)
        sink(
            pl.PartitionBy("s3://bucket/here", key="v", file_path_provider=given), [frame] * nranks, **options
        )
        assert store.objects == before
        read = pl.concat(pl.read_parquet(io.BytesIO(file.getvalue())) for file in objects.values())
        assert_frame_equal(read, pl.concat([frame] * nranks), check_row_order=False)


def test_a_failure_while_files_get_the_users_names(monkeypatch):
    obstore = pytest.importorskip("obstore")
    frame = pl.DataFrame({"v": [1, 2, 1], "w": range(3)})

    def refuse(*_):
        raise OSError("https://secret@host")

    monkeypatch.setattr(obstore, "copy", refuse)
    with object_store() as store:
        target = pl.PartitionBy("s3://bucket/out/", key="v", file_path_provider=by_key)
        with pytest.raises(OSError, match="cannot be copied: OSError") as raised:
            sink(target, [frame] * 2, storage_options=store.storage_options)
        assert "secret" not in "".join(traceback.format_exception(raised.value))
        assert store.objects == {}
