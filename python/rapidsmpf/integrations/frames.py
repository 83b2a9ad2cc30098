"""Ready-made integrations for partitions that are pyarrow tables or pandas frames.

Rows go to partitions by the hash of their key columns. The hash of equal values of one type is the same in every
shuffle, so the partitions of two collections that were shuffled into the same number by keys of the same types belong
together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rapidsmpf.integrations.context import current_context
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.table import partition_and_pack, unpack_and_concat

__all__ = ["ArrowIntegration", "FrameOptions", "PandasIntegration"]


_UNKNOWN_CATEGORIES = "__UNKNOWN_CATEGORIES__"
"""What Dask puts in the place of categories that differ between partitions."""


@dataclass(frozen=True)
class FrameOptions:
    """What the integrations of this module take as ``options``.

    Attributes
    ----------
    on
        The columns that decide where a row goes.
    meta
        A partition without rows, which says names and types.
    """

    on: Sequence[str]
    meta: Any


class ArrowIntegration:
    """Partitions are ``pyarrow.Table``."""

    @classmethod
    def insert_partition(
        cls,
        df: Any,
        partition_id: int,
        partition_count: int,
        shuffler: Shuffler,
        options: FrameOptions,
        *other: Any,
    ) -> None:
        """Send each row to the partition that the hash of its keys says."""
        if df.num_rows == 0:
            return
        shuffler.insert_chunks(
            partition_and_pack(df, list(options.on), partition_count, current_context().br)
        )

    @classmethod
    def extract_partition(cls, partition_id: int, shuffler: Shuffler, options: FrameOptions) -> Any:
        """Return the rows of a partition."""
        return _extract(partition_id, shuffler, options.meta.schema)


class PandasIntegration:
    """Partitions are ``pandas.DataFrame``; the index goes along."""

    @classmethod
    def insert_partition(
        cls,
        df: Any,
        partition_id: int,
        partition_count: int,
        shuffler: Shuffler,
        options: FrameOptions,
        *other: Any,
    ) -> None:
        """Send each row to the partition that the hash of its keys says."""
        import pyarrow as pa

        schema = _pandas_schema(options.meta)
        table = pa.Table.from_pandas(df, schema=schema, preserve_index=True, nthreads=1)
        # The keys are those of the frame, so its index may have any name.
        ArrowIntegration.insert_partition(table, partition_id, partition_count, shuffler, options, *other)

    @classmethod
    def extract_partition(cls, partition_id: int, shuffler: Shuffler, options: FrameOptions) -> Any:
        """Return the rows of a partition, with the types of the collection."""
        table = _extract(partition_id, shuffler, _pandas_schema(options.meta))
        frame = table.to_pandas(split_blocks=True, self_destruct=True, use_threads=False)
        return _with_types(frame, options.meta)


def _with_types(frame: Any, meta: Any) -> Any:
    """Return a frame with the types of ``meta``, and the categories in their order."""
    frame = frame.astype({n: t for n, t in meta.dtypes.items() if t != "category" and frame[n].dtype != t})
    for name, dtype in meta.dtypes.items():
        if dtype == "category" and _UNKNOWN_CATEGORIES not in dtype.categories:
            frame[name] = frame[name].cat.set_categories(dtype.categories, ordered=dtype.ordered)
    return frame


def _extract(partition_id: int, shuffler: Shuffler, schema: Any) -> Any:
    import pyarrow as pa

    chunks = shuffler.extract(partition_id)
    if not chunks:
        return schema.empty_table()
    table = pa.table(unpack_and_concat(chunks, current_context().br))
    # Types that Arrow spells in several ways come back in the one of the collection.
    return (
        table.cast(schema)
        if table.schema.types != schema.types
        else table.replace_schema_metadata(schema.metadata)
    )


def _pandas_schema(meta: Any) -> Any:
    import pyarrow as pa

    return pa.Schema.from_pandas(meta, preserve_index=True)
