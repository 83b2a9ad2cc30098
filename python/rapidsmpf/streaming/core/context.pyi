from types import TracebackType
from typing import Any, Literal, Self, overload

from rapidsmpf.communicator.communicator import Communicator, Logger
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.rmm_resource_adaptor import RmmResourceAdaptor
from rapidsmpf.statistics import Statistics
from rapidsmpf.streaming.core.channel import Channel

class Context:
    def __init__(
        self, comm: Communicator | None, br: BufferResource, options: Options | None = None
    ) -> None: ...
    @overload
    @classmethod
    def from_options(
        cls, comm: Communicator | None, options: Options, /, *, statistics: Statistics | None = None
    ) -> Self: ...
    @overload
    @classmethod
    def from_options(
        cls,
        comm: Communicator | None,
        mr: RmmResourceAdaptor | None,
        options: Options,
        /,
        *,
        statistics: Statistics | None = None,
    ) -> Self: ...
    @overload
    @classmethod
    def from_options(
        cls,
        comm: Communicator | None,
        *,
        options: Options,
        mr: RmmResourceAdaptor | None = None,
        statistics: Statistics | None = None,
    ) -> Self: ...
    def create_channel(self, *, messages: int = 4, max_bytes: int | None = None) -> Channel[Any]: ...
    def describe(self, format: Literal["text", "dot"] = "text") -> str: ...
    def comm(self) -> Communicator: ...
    def br(self) -> BufferResource: ...
    def options(self) -> Options: ...
    def statistics(self) -> Statistics: ...
    def logger(self) -> Logger: ...
    @property
    def num_streaming_threads(self) -> int: ...
    def shutdown(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool: ...
