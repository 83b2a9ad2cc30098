"""Reads an Arrow stream in a Polars query, with exactly the types that were sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import polars as pl
from polars.io.plugins import register_io_source

from cudf_polars.execute.transport import ArrowStream

__all__ = ["scan_stream"]


def scan_stream(source: ArrowStream, schema: Mapping[str, pl.DataType]) -> pl.LazyFrame:
    """Return a lazy frame over ``source``, which is read once.

    Parameters
    ----------
    source
        Record batches; their columns are those of ``schema``.
    schema
        Names and types of the columns.

    Notes
    -----
    The batches that Polars 2.1's own ``scan_arrow_c_stream`` yields have ``Categorical`` in place of ``Enum``,
    which the query then refuses; streams with such columns are read here, and cast batch by batch.
    """
    if not any(map(_contains_enum, schema.values())):
        return pl.scan_arrow_c_stream(source)
    from polars._plr import PyArrowCStreamReader

    reader = PyArrowCStreamReader(source)

    def batches(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        remaining = n_rows
        while (remaining is None or remaining > 0) and (batch := reader.next_batch(with_columns)) is not None:
            frame = pl.DataFrame._from_pydf(batch)
            # The batch says Categorical; its text is what matters.
            frame = frame.with_columns(
                pl.col(n).cast(schema[n]) for n in frame.columns if _contains_enum(schema[n])
            )
            if predicate is not None:
                frame = frame.filter(predicate)
            if remaining is not None:
                frame = frame.head(remaining)
                remaining -= frame.height
            yield frame

    return register_io_source(batches, schema=dict(schema))


def _contains_enum(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.Enum) or any(map(_contains_enum, _inner(dtype)))


def _inner(dtype: pl.DataType) -> Iterable[pl.DataType]:
    found: list[object] = []
    if isinstance(dtype, pl.List | pl.Array):
        found = [dtype.inner]
    elif isinstance(dtype, pl.Struct):
        found = [field.dtype for field in dtype.fields]
    return [item for item in found if isinstance(item, pl.DataType)]
