"""How much memory a process can still have before the kernel kills it: by its cgroups (v1 and v2), and the machine."""

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
    """A cgroup with a memory limit.

    Attributes
    ----------
    nbytes
        The limit.
    used, statistics
        The files with the bytes that are used, and with what they are used for.
    """

    nbytes: int
    used: Path
    statistics: Path

    def free(self) -> int:
        """Return the bytes below the limit; the page cache of files counts as free."""
        found = _fields(self.statistics, " ")
        # Version 1 has a total with the groups below this one. The sum of inactive_file and active_file would be too
        # large: anonymous pages that were released by MADV_FREE, and are used again, stay on these lists.
        files = found.get("file", found.get("total_cache", 0))
        shared = found.get("total_shmem", found.get("shmem", 0))
        return self.nbytes - int(self.used.read_text()) + files - shared + found.get("slab_reclaimable", 0)


class HostMemory:
    """The memory that this process shares with others.

    Attributes
    ----------
    total
        The smallest limit, in bytes: of a cgroup that this process is in, or of the machine.
    """

    def __init__(self) -> None:
        self._limits = list(_limits())
        machine = _fields(_MACHINE, ":").get("MemTotal", 0) << 10
        self.total = min([machine, *(limit.nbytes for limit in self._limits)])

    def free(self) -> int:
        """Return how many bytes are free below every limit; a cgroup that has been removed limits nothing."""
        left = [_free_of_machine(self.total)]
        for limit in self._limits:
            try:
                left.append(limit.free())
            except (OSError, ValueError):
                continue
        return min(left)

    def released(self) -> int:
        """Return the bytes released by MADV_FREE that the kernel has not reclaimed yet; takes milliseconds.

        All processes of the cgroup with the smallest limit are asked; without a limit, this process.
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
    """Parse a file of names and numbers, one pair a line; return an empty mapping if it cannot be read."""
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
    """Yield this process's cgroup and those around it, as far as they have a limit."""
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
    """Return the limit in a file; None if there is no file, or it says that there is no limit."""
    try:
        number = int(path.read_text())
    except (OSError, ValueError):
        return None
    return number if 0 < number < 1 << 60 else None
