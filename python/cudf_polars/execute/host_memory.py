"""What memory the kernel still gives a process: its control groups have limits, and the machine an end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["HostMemory"]

_GROUPS = Path("/sys/fs/cgroup")
_MACHINE = Path("/proc/meminfo")
_MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class _Limit:
    """A control group with a limit.

    Attributes
    ----------
    nbytes
        The limit.
    used, statistics
        The files that say what of it is used, and for what.
    """

    nbytes: int
    used: Path
    statistics: Path

    def free(self) -> int:
        """Return the bytes that are left, with those of files that the kernel can drop."""
        found = _fields(self.statistics, " ")
        # Version 1 has these with and without the groups below this one. The lists of inactive and active pages do
        # not do: pages that an allocator has released and used again stay on those of files.
        files = found.get("file", found.get("total_cache", 0))
        shared = found.get("total_shmem", found.get("shmem", 0))
        return self.nbytes - int(self.used.read_text()) + files - shared + found.get("slab_reclaimable", 0)


class HostMemory:
    """The memory that this process may use beside all others that share it.

    Attributes
    ----------
    total
        The least limit, in bytes: of a control group that this process is in, or of the machine.
    """

    def __init__(self) -> None:
        self._limits = list(_limits())
        machine = _fields(_MACHINE, ":").get("MemTotal", 0) << 10
        self.total = min([machine, *(limit.nbytes for limit in self._limits)])

    def free(self) -> int:
        """Return how many more bytes can be had at least; of a limit that is gone, all."""
        left = [_free_of_machine(self.total)]
        for limit in self._limits:
            try:
                left.append(limit.free())
            except (OSError, ValueError):
                continue
        return min(left)

    def released(self) -> int:
        """Return how many bytes processes have released that the kernel has not taken yet; takes milliseconds.

        They are those of this process, and of others where these are in the group that has the least limit.
        """
        processes = {"self"}
        if self._limits:
            least = min(self._limits, key=lambda limit: limit.nbytes)
            with contextlib.suppress(OSError):
                processes = set((least.used.parent / "cgroup.procs").read_text().split()) or processes
        lists = (_fields(Path(f"/proc/{process}/smaps_rollup"), ":") for process in processes)
        return sum(found.get("LazyFree", 0) << 10 for found in lists)


def _free_of_machine(total: int) -> int:
    found = _fields(_MACHINE, ":")
    if "MemAvailable" not in found:
        return total
    files = (
        found.get("Buffers", 0)
        + found.get("Cached", 0)
        - found.get("Shmem", 0)
        + found.get("SReclaimable", 0)
    )
    return min(found["MemAvailable"], found.get("MemFree", 0) + files) << 10


def _fields(path: Path, separator: str) -> Mapping[str, int]:
    """Return the numbers of a file of the kernel's, by name; of a file that cannot be read, none."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return {}
    found = {}
    for line in lines:
        name, _, value = line.partition(separator)
        number = value.split()[:1]
        if number and number[0].isdigit():
            found[name] = int(number[0])
    return found


def _limits() -> Iterator[_Limit]:
    """Yield the control groups with a limit, from this process's own outwards."""
    try:
        groups = _MEMBERSHIP.read_text().splitlines()
    except OSError:
        return
    for line in groups:
        controllers, _, path = line.partition(":")[2].partition(":")
        if not controllers:
            base, names = _GROUPS, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = _GROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        own = base / path.lstrip("/")
        for group in (own, *own.parents):
            limit = _number(group / names[0])
            if limit is not None:
                yield _Limit(limit, group / names[1], group / "memory.stat")
            if group == base:
                break


def _number(path: Path) -> int | None:
    """Return the number in a file; None if it has none, or one that stands for no limit."""
    try:
        number = int(path.read_text())
    except (OSError, ValueError):
        return None
    return number if 0 < number < 1 << 60 else None
