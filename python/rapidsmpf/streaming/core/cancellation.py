"""Ending networks from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rapidsmpf.streaming.core.network import CancellationSource

if TYPE_CHECKING:
    from rapidsmpf.streaming.core.channel import Channel
    from rapidsmpf.streaming.core.context import Context

__all__ = ["CancellationSource", "shutdown_channels"]


async def shutdown_channels(ctx: Context, *channels: Channel[Any]) -> None:
    """Say of several channels that no more is wanted.

    Parameters
    ----------
    ctx
        The context.
    *channels
        The channels.
    """
    for channel in channels:
        await channel.shutdown(ctx)
