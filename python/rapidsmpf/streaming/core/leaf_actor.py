"""Into networks and out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from rapidsmpf.streaming.core.network import DeferredMessages, pull_from, push_into

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rapidsmpf.streaming.core.actor import CppActor
    from rapidsmpf.streaming.core.channel import Channel
    from rapidsmpf.streaming.core.context import Context
    from rapidsmpf.streaming.core.message import Message

__all__ = ["DeferredMessages", "pull_from_channel", "push_to_channel"]

T = TypeVar("T")


def push_to_channel(ctx: Context, ch_out: Channel[T], messages: Iterable[Message[T]]) -> CppActor:
    """Return the actor that sends messages.

    Parameters
    ----------
    ctx
        The context.
    ch_out
        Where to.
    messages
        The messages. They are left empty.

    Raises
    ------
    ValueError
        If one of them is empty.
    """
    return push_into(ch_out, messages)


def pull_from_channel(ctx: Context, ch_in: Channel[T]) -> tuple[CppActor, DeferredMessages[T]]:
    """Return the actor that takes all messages, and what has them when the network has ended.

    Parameters
    ----------
    ctx
        The context.
    ch_in
        Where from.
    """
    return pull_from(ch_in)
