"""Shuffles and joins of Dask DataFrames through rapidsmpf, in one line.

>>> by_customer = shuffle(orders, on="customer_id")  # doctest: +SKIP
>>> joined = merge(orders, customers, on="customer_id", how="left")  # doctest: +SKIP

With a distributed client the workers of its cluster shuffle, else this process alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import dask.dataframe as dd
from dask.base import tokenize
from rapidsmpf.config import Options
from rapidsmpf.integrations import single
from rapidsmpf.integrations.frames import FrameOptions, PandasIntegration

if TYPE_CHECKING:
    from dask.dataframe import DataFrame

__all__ = ["merge", "shuffle"]


def shuffle(
    frame: DataFrame,
    on: str | Sequence[str],
    *,
    npartitions: int | None = None,
    config_options: Options | None = None,
) -> DataFrame:
    """Bring rows with equal keys into one partition.

    Parameters
    ----------
    frame
        A Dask DataFrame of pandas partitions.
    on
        The key columns.
    npartitions
        Number of partitions of the result; None: as many as there are.
    config_options
        Options of rapidsmpf, for the first shuffle on a cluster.

    Returns
    -------
    A Dask DataFrame with the same rows and index. Their order is not kept.

    Raises
    ------
    KeyError
        If a key is not a column.
    """
    keys = [on] if isinstance(on, str) else list(on)
    if missing := [key for key in keys if key not in frame.columns]:
        raise KeyError(f"{missing} are no columns of the frame; it has {list(frame.columns)}")
    source = frame.optimize()
    count = source.npartitions if npartitions is None else npartitions
    name = f"rapidsmpf-shuffle-{tokenize(source, keys, count)}"
    make_graph: Any
    if _has_client():
        from rapidsmpf.integrations.dask import rapidsmpf_shuffle_graph as make_graph
    else:
        make_graph = single.rapidsmpf_shuffle_graph
    graph = make_graph(
        source._name,
        name,
        source.npartitions,
        count,
        PandasIntegration,
        FrameOptions(keys, source._meta),
        config_options=config_options,
    )
    return dd.from_graph(
        {**dict(source.__dask_graph__()), **graph},
        source._meta,
        (None,) * (count + 1),
        [(name, i) for i in range(count)],
        "rapidsmpf-shuffle",
    )


def merge(
    left: DataFrame,
    right: DataFrame,
    on: str | Sequence[str],
    *,
    how: str = "inner",
    npartitions: int | None = None,
    **options: Any,
) -> DataFrame:
    """Join two Dask DataFrames by equal keys, which have to have the same types on both sides.

    Parameters
    ----------
    left, right
        What to join.
    on
        The key columns, of both.
    how
        ``"inner"``, ``"left"``, ``"right"`` or ``"outer"``.
    npartitions
        Number of partitions of the result; None: as many as the larger side has.
    options
        More arguments of :meth:`pandas.DataFrame.merge`.

    Raises
    ------
    TypeError
        If the types of a key differ.
    """
    keys = [on] if isinstance(on, str) else list(on)
    for key in keys:
        if left.dtypes[key] != right.dtypes[key]:
            raise TypeError(
                f"the key {key!r} is {left.dtypes[key]} on the left and {right.dtypes[key]} on the right: rows with"
                " equal values"
                " would not meet. Convert one side with astype()"
            )
    count = max(left.npartitions, right.npartitions) if npartitions is None else npartitions
    sides = [shuffle(side, keys, npartitions=count) for side in (left, right)]
    meta = left._meta.merge(right._meta, on=keys, how=how, **options)
    return sides[0].map_partitions(
        _merge_partitions, sides[1], keys, how, options, meta=meta, align_dataframes=False
    )


def _merge_partitions(left: Any, right: Any, on: list[str], how: str, options: dict[str, Any]) -> Any:
    return left.merge(right, on=on, how=how, **options)


def _has_client() -> bool:
    try:
        from distributed import default_client
    except ImportError:
        return False
    try:
        default_client()
    except ValueError:
        return False
    return True
