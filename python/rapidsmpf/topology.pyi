from collections.abc import Iterable
from dataclasses import dataclass

@dataclass(frozen=True)
class DeviceBinding:
    cpus: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    network_devices: tuple[str, ...]

def find_device_binding() -> DeviceBinding | None: ...
def bind_cpus(cpus: Iterable[int]) -> None: ...
def prefer_memory_of(nodes: Iterable[int]) -> None: ...
