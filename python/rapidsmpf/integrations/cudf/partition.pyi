from collections.abc import Iterable
from typing import Any, Protocol

from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData

class _DeviceTable(Protocol):
    def __arrow_c_device_array__(self, requested_schema: Any = None, **kwargs: Any) -> tuple[Any, Any]: ...

class _Stream(Protocol):
    def __cuda_stream__(self) -> tuple[int, int]: ...

def partition_and_pack(
    table: _DeviceTable,
    columns_to_hash: Iterable[int],
    num_partitions: int,
    stream: _Stream,
    br: BufferResource,
) -> dict[int, PackedData]: ...
def split_and_pack(
    table: _DeviceTable, splits: Iterable[int], stream: _Stream, br: BufferResource
) -> dict[int, PackedData]: ...
def unpack_and_concat(partitions: Iterable[PackedData], stream: _Stream, br: BufferResource) -> Any: ...
def spill_partitions(partitions: Iterable[PackedData], br: BufferResource) -> list[PackedData]: ...
def unspill_partitions(
    partitions: Iterable[PackedData], br: BufferResource, allow_overbooking: bool
) -> list[PackedData]: ...
