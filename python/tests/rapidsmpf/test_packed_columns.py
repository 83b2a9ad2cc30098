"""Packed data made of what another library has packed.

pylibcudf is not needed: what is used of its ``PackedColumns`` is ``release()``, which gives the metadata and the data
and leaves the object empty.
"""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.memory.stream_pool import HostStream
from rapidsmpf.utils.system_info import get_device_name

pytestmark = pytest.mark.skipif(
    get_device_name() != "cpu", reason="stands for device memory with memory of the host"
)


class DeviceBuffer:
    """Has of ``rmm.DeviceBuffer`` what is used."""

    def __init__(self, data: bytes) -> None:
        self.array = np.frombuffer(data, dtype=np.uint8).copy()
        self.ptr = self.array.ctypes.data
        self.size = self.array.nbytes


class CudaArray:
    """Device memory by the CUDA array interface."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__cuda_array_interface__ = array.__array_interface__


class PackedColumns:
    """Has of ``pylibcudf.contiguous_split.PackedColumns`` what is used."""

    def __init__(self, metadata: bytes, data: object) -> None:
        self.parts = (memoryview(metadata), data)

    def release(self):
        if self.parts is None:
            raise ValueError("Cannot release empty PackedColumns")
        parts, self.parts = self.parts, None
        return parts


def test_bytes_and_metadata_are_kept(br):
    packed = PackedData.from_cudf_packed_columns(
        PackedColumns(b"meta", DeviceBuffer(b"data!")), HostStream(), br
    )
    assert packed.metadata == b"meta"
    assert packed.to_host_bytes() == b"data!"
    assert packed.mem_type is MemoryType.DEVICE


def test_data_is_not_copied_and_is_let_go_with_the_packed_data(br):
    data = DeviceBuffer(b"data!")
    watch = weakref.ref(data)
    columns = PackedColumns(b"meta", data)
    packed = PackedData.from_cudf_packed_columns(columns, None, br)
    del columns
    data.array[0] = ord("D")
    del data
    gc.collect()
    assert watch() is not None
    assert packed.to_host_bytes() == b"Data!"
    del packed
    gc.collect()
    assert watch() is None


def test_released_columns_are_refused(br):
    columns = PackedColumns(b"meta", DeviceBuffer(b"data!"))
    PackedData.from_cudf_packed_columns(columns, None, br)
    with pytest.raises(ValueError, match="empty"):
        PackedData.from_cudf_packed_columns(columns, None, br)


def test_nothing_to_release_is_refused(br):
    columns = PackedColumns(b"meta", None)
    with pytest.raises(ValueError, match="released already"):
        PackedData.from_cudf_packed_columns(columns, None, br)


def test_data_by_the_cuda_array_interface(br):
    data = CudaArray(np.arange(100, dtype=np.uint8))
    packed = PackedData.from_cudf_packed_columns(PackedColumns(b"meta", data), None, br)
    assert packed.to_host_bytes() == bytes(range(100))


@pytest.mark.parametrize(
    "data", [CudaArray(np.arange(10, dtype=np.uint8)[::2]), CudaArray(np.arange(3)), object()]
)
def test_data_must_be_bytes_on_the_device(br, data):
    with pytest.raises(TypeError):
        PackedData.from_cudf_packed_columns(PackedColumns(b"meta", data), None, br)


def test_columns_without_rows(br):
    packed = PackedData.from_cudf_packed_columns(PackedColumns(b"meta", DeviceBuffer(b"")), None, br)
    assert packed.data_size == 0
    assert packed.metadata == b"meta"


@pytest.mark.parametrize(("columns", "stream"), [(object(), None), (PackedColumns(b"m", None), 7)])
def test_arguments_of_another_type_are_refused(br, columns, stream):
    with pytest.raises(TypeError):
        PackedData.from_cudf_packed_columns(columns, stream, br)
