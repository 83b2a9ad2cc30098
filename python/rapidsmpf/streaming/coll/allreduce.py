"""All-reductions whose end is awaited."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rapidsmpf.coll.allreduce import AllReduce
from rapidsmpf.streaming.core.waits import reduced

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal

    from rapidsmpf.communicator.communicator import Communicator
    from rapidsmpf.streaming.core.context import Context

__all__ = ["allreduce"]

T = TypeVar("T")


async def allreduce(
    ctx: Context,
    comm: Communicator | None,
    op_id: int,
    value: T,
    reduction: Literal["sum", "prod", "min", "max"] | Callable[[T, T], T | None] = "sum",
) -> T:
    """Combine one value of each rank, and return the result; as :func:`rapidsmpf.coll.allreduce.allreduce`.

    Parameters
    ----------
    ctx
        Threads and memory.
    comm
        The ranks; None: those of the context.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress.
    value
        A number, or an array of numbers, of the same type and shape on every rank.
    reduction
        How two are combined.

    Raises
    ------
    RankFailedError
        If a rank failed.
    """
    operation = AllReduce(ctx.comm() if comm is None else comm, op_id, value, reduction, br=ctx.br())
    result: T = await reduced(ctx, operation)
    return result
