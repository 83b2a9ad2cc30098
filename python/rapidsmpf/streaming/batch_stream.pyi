from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")

class _ArrowSchema(Protocol):
    def __arrow_c_schema__(self) -> Any: ...

class BatchStream(Generic[T]):
    error: BaseException | None
    def __init__(
        self, schema: _ArrowSchema, batches: Iterable[T], export: Callable[[T, int, int], Any]
    ) -> None: ...
    def __arrow_c_schema__(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
