"""Waiting for memory without keeping a thread.

A request stands in the line of the arbiter of memory: first come first served, and what it needs counts as pressure
that others are spilled for. When nothing has been freed for as long as the option ``memory_reserve_timeout`` says, it
overbooks the tier or raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.streaming.core.waits import reserved

if TYPE_CHECKING:
    from rapidsmpf.config import Options
    from rapidsmpf.memory.memory_reservation import MemoryReservation
    from rapidsmpf.streaming.core.context import Context

__all__ = ["MemoryReserveOrWait", "reserve_memory"]


async def reserve_memory(
    ctx: Context,
    size: int,
    *,
    net_memory_delta: int = 0,
    mem_type: MemoryType = MemoryType.DEVICE,
    allow_overbooking: bool | None = None,
) -> MemoryReservation:
    """Wait for memory, and return a reservation of it.

    Parameters
    ----------
    ctx
        The context.
    size
        Bytes.
    net_memory_delta
        Taken for scripts that say how much memory the work will free or keep; the line is first come first served.
    mem_type
        The tier.
    allow_overbooking
        Whether the tier is overbooked when there is none; None: as the option ``allow_overbooking_by_default`` says.

    Raises
    ------
    ReservationError
        If there is none and overbooking is not allowed.
    """
    return await reserved(ctx, size, mem_type, allow_overbooking)


class MemoryReserveOrWait:
    """Waits for memory of one tier.

    Parameters
    ----------
    options
        Not used: a context has its own.
    mem_type
        The tier.
    ctx
        The context.
    """

    def __init__(self, options: Options | None, mem_type: MemoryType, ctx: Context) -> None:
        self._mem_type = mem_type
        self._context = ctx

    async def reserve_or_wait(self, size: int, net_memory_delta: int = 0) -> MemoryReservation:
        """Wait for memory; when there is none, do as the option ``allow_overbooking_by_default`` says.

        Parameters
        ----------
        size
            Bytes.
        net_memory_delta
            As for :func:`reserve_memory`.
        """
        return await reserved(self._context, size, self._mem_type, None)

    async def reserve_or_wait_or_overbook(self, size: int, net_memory_delta: int = 0) -> MemoryReservation:
        """Wait for memory; when there is none, overbook the tier.

        Parameters
        ----------
        size
            Bytes.
        net_memory_delta
            As for :func:`reserve_memory`.
        """
        return await reserved(self._context, size, self._mem_type, True)

    async def reserve_or_wait_or_fail(self, size: int, net_memory_delta: int = 0) -> MemoryReservation:
        """Wait for memory; when there is none, raise ReservationError.

        Parameters
        ----------
        size
            Bytes.
        net_memory_delta
            As for :func:`reserve_memory`.
        """
        return await reserved(self._context, size, self._mem_type, False)
