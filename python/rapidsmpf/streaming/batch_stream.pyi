from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar

_T = TypeVar("_T")

class _ArrowSchema(Protocol):
    def __arrow_c_schema__(self) -> Any: ...

class BatchStream(Generic[_T]):
    error: BaseException | None
    def __init__(
        self, schema: _ArrowSchema, batches: Iterable[_T], export: Callable[[_T, int, int], Any]
    ) -> None: ...
    def __arrow_c_schema__(self) -> Any: ...
    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...
