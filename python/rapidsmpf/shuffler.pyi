from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import ClassVar

from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData

class PartitionAssignment(IntEnum):
    ROUND_ROBIN = 0
    CONTIGUOUS = 1

class Shuffler:
    max_concurrent_shuffles: ClassVar[int]
    def __init__(
        self,
        comm: Communicator,
        op_id: int,
        total_num_partitions: int,
        br: BufferResource,
        partition_assignment: PartitionAssignment = PartitionAssignment.ROUND_ROBIN,
        *,
        options: Options | None = None,
    ) -> None: ...
    @property
    def comm(self) -> Communicator: ...
    @property
    def total_num_partitions(self) -> int: ...
    def insert_chunks(self, chunks: Mapping[int, PackedData]) -> None: ...
    def insert_finished(self, pids: int | Iterable[int] | None = None) -> None: ...
    def extract(self, pid: int) -> list[PackedData]: ...
    def finished(self) -> bool: ...
    def wait_any(self, *, timeout: float | None = None) -> int: ...
    def wait_on(self, pid: int, *, timeout: float | None = None) -> None: ...
    def local_partitions(self) -> list[int]: ...
    def shutdown(self, *, timeout: float | None = None) -> None: ...
