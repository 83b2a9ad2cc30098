"""What can be put into messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from rapidsmpf.memory.buffer_resource import BufferResource
    from rapidsmpf.streaming.core.message import Message

__all__ = ["Payload"]


@runtime_checkable
class Payload(Protocol):
    """A chunk: what a message is made of, and what is taken out of it."""

    @classmethod
    def from_message(cls, message: Message[Any], br: BufferResource) -> Self:
        """Take the payload out of a message.

        Parameters
        ----------
        message
            It is left empty.
        br
            Where memory comes from.
        """
        ...

    def into_message(self, sequence_number: int, message: Message[Any]) -> None:
        """Put the payload into an empty message.

        Parameters
        ----------
        sequence_number
            The message's place in the order of creation.
        message
            The message.
        """
        ...
