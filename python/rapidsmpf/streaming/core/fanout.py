"""One stream of messages for several consumers."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from rapidsmpf.streaming.core.network import fanout_to

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rapidsmpf.streaming.core.actor import CppActor
    from rapidsmpf.streaming.core.channel import Channel
    from rapidsmpf.streaming.core.context import Context

__all__ = ["FanoutPolicy", "fanout"]


class FanoutPolicy(IntEnum):
    """Who sets the pace.

    ``BOUNDED``: the slowest consumer, for consumers that read side by side. ``UNBOUNDED``: none; what a consumer has
    not received yet waits for it, for those that read in any order.
    """

    BOUNDED = 0
    UNBOUNDED = 1


def fanout(
    ctx: Context,
    ch_in: Channel[Any],
    chs_out: Sequence[Channel[Any]],
    policy: FanoutPolicy = FanoutPolicy.BOUNDED,
) -> CppActor:
    """Return the actor that sends each message to several channels, in order.

    The last gets the message itself, the others copies; a consumer that shuts its channel gets no more, and the
    others go on.

    Parameters
    ----------
    ctx
        Threads, and memory for the copies.
    ch_in
        Where messages come from.
    chs_out
        Where they go to.
    policy
        Who sets the pace.

    Raises
    ------
    ValueError
        If there are no outputs.
    """
    return fanout_to(ctx, ch_in, chs_out, FanoutPolicy(policy) == FanoutPolicy.UNBOUNDED)
