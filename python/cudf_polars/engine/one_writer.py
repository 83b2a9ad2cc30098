"""One rank writes what all ranks have: for targets that take one writer, or one commit."""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, cast

import cloudpickle
import polars as pl

from cudf_polars.engine.relay import RankReply, portable, remote_error
from cudf_polars.execute.errors import hide_secrets
from cudf_polars.execute.streams import scan_stream
from cudf_polars.execute.transport import Transport

__all__ = ["Written", "failed_reply", "write_on_one_rank"]

T = TypeVar("T")

# The executor numbers its operations from 0; those of writing come after them.
_FIRST_OP = 1 << 11


@dataclass(frozen=True)
class Written(Generic[T]):
    """How writing ended on the rank that wrote, as all ranks know it."""

    _value: T | None
    _error: BaseException | None

    def result(self) -> T:
        """Return what the writing rank returned, or raise its error.

        Ranks that are still hearing how it ended must not be told that the query has failed: call this after the
        query's last collective, where an error of this rank is none of the others'.
        """
        if self._error is not None:
            raise self._error
        return cast("T", self._value)


def write_on_one_rank(
    part: pl.DataFrame, transport: Transport, write: Callable[[pl.LazyFrame], T]
) -> Written[T]:
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
    What ``write`` returned or raised, on all ranks.

    Raises
    ------
    RankFailedError
        If another rank fails before all its rows are with rank 0: then the rows end in an error, and ``write`` has not
        seen all of them.
    """
    schema = dict(part.schema)
    rows = transport.gather(part, op=_FIRST_OP)
    del part
    reply, raised = RankReply(), None
    if transport.rank == 0:
        try:
            reply.value = write(scan_stream(rows, schema))
        except Exception as error:
            raised, reply = error, failed_reply(error)
    said = transport.allgather_bytes(
        cloudpickle.dumps(reply) if transport.rank == 0 else b"", op=_FIRST_OP + 1
    )
    if transport.rank == 0:
        return Written(reply.value, raised)
    answer = pickle.loads(said[0])
    return Written(answer.value, None if answer.error is None else remote_error("rank 0", answer))


def failed_reply(error: Exception) -> RankReply:
    """Return an error as other ranks are told of it."""
    hide_secrets(error)
    return RankReply(traceback="".join(traceback.format_exception(error)), error=_copy(error))


def _copy(error: Exception) -> BaseException:
    """Return an error that can be sent, like ``error``, which keeps its traceback."""
    kept = error.__traceback__, error.__cause__, error.__context__
    try:
        sent: BaseException = pickle.loads(cloudpickle.dumps(portable(error)))
    finally:
        error.__traceback__, error.__cause__, error.__context__ = kept
    return sent
