from collections.abc import Callable
from typing import Any, Literal, TypeVar

from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource

_T = TypeVar("_T")
_Name = Literal["sum", "prod", "min", "max", "or"]

class AllReduce:
    def __init__(
        self,
        comm: Communicator,
        op_id: int,
        value: Any,
        reduction: _Name | Callable[[Any, Any], Any] = "sum",
        *,
        options: Options | None = None,
        br: BufferResource | None = None,
    ) -> None: ...
    @property
    def comm(self) -> Communicator: ...
    def finished(self) -> bool: ...
    def wait_and_extract(self, *, timeout: float | None = None) -> Any: ...

def allreduce(
    comm: Communicator,
    op_id: int,
    value: _T,
    reduction: _Name | Callable[[_T, _T], _T | None] = "sum",
    *,
    timeout: float | None = None,
) -> _T: ...
