"""One rank writes what all ranks have: for targets that take one writer, or one commit."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from typing import TypeVar, cast

import cloudpickle
import polars as pl

from cudf_polars.engine.relay import RankReply, portable, remote_error
from cudf_polars.execute.streams import scan_stream
from cudf_polars.execute.transport import Transport

__all__ = ["write_on_one_rank"]

T = TypeVar("T")

# The executor numbers its operations from 0; those of writing come after them.
_FIRST_OP = 1 << 11


def write_on_one_rank(part: pl.DataFrame, transport: Transport, write: Callable[[pl.LazyFrame], T]) -> T:
    """Gather all rows on rank 0, which writes them while they come in; all ranks end alike.

    Parameters
    ----------
    part
        This rank's rows.
    transport
        Joins the ranks; uses its operations from ``2**11`` on.
    write
        Called on rank 0 with the rows in rank order, which it can read once.

    Returns
    -------
    What ``write`` returned, on all ranks.

    Raises
    ------
    Exception
        On all ranks, what ``write`` raised on rank 0.
    RankFailedError
        If another rank fails before all its rows are with rank 0: then the rows end in an error, and ``write`` has not
        seen all of them.
    """
    schema = dict(part.schema)
    rows = transport.gather(part, op=_FIRST_OP)
    del part
    reply, error = RankReply(), None
    if transport.rank == 0:
        try:
            reply.value = write(scan_stream(rows, schema))
        except Exception as raised:
            error = raised
            reply.traceback = "".join(traceback.format_exception(raised))
            reply.error = _copy(raised)
    said = transport.allgather_bytes(
        cloudpickle.dumps(reply) if transport.rank == 0 else b"", op=_FIRST_OP + 1
    )
    if error is not None:
        raise error
    answer = reply if transport.rank == 0 else pickle.loads(said[0])
    if answer.error is not None:
        raise remote_error("rank 0", answer)
    return cast("T", answer.value)


def _copy(error: Exception) -> BaseException:
    """Return an error that can be sent, like ``error``, which keeps its traceback."""
    kept = error.__traceback__, error.__cause__, error.__context__
    try:
        sent: BaseException = pickle.loads(cloudpickle.dumps(portable(error)))
    finally:
        error.__traceback__, error.__cause__, error.__context__ = kept
    return sent
