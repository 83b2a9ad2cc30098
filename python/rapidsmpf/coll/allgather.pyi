from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.statistics import Statistics

class AllGather:
    def __init__(
        self,
        comm: Communicator,
        op_id: int,
        br: BufferResource,
        statistics: Statistics | None = None,
        *,
        options: Options | None = None,
    ) -> None: ...
    @property
    def comm(self) -> Communicator: ...
    def insert(self, sequence_number: int, packed_data: PackedData) -> None: ...
    def insert_finished(self) -> None: ...
    def finished(self) -> bool: ...
    def wait_and_extract(self, ordered: bool = True, timeout_ms: float = -1) -> list[PackedData]: ...
    def extract_ready(self) -> list[PackedData]: ...

def allgather_bytes(
    comm: Communicator, op_id: int, value: bytes, *, timeout: float | None = None
) -> list[bytes]: ...
