"""A memory cgroup (version 1 or 2) around the processes of a run, and what they take of it."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

__all__ = ["MemoryGroup", "NoMemoryGroup"]

_ROOT = Path("/sys/fs/cgroup")


class NoMemoryGroup(RuntimeError):
    """This process cannot make a memory cgroup."""


class MemoryGroup:
    """A group of processes whose memory is limited by the kernel.

    Parameters
    ----------
    limit
        Bytes, swap included.

    Raises
    ------
    NoMemoryGroup
        If there is no such controller, or this account may not use it.
    """

    def __init__(self, limit: int) -> None:
        is_v1 = (_ROOT / "memory" / "cgroup.procs").exists()
        own = _own_path("memory" if is_v1 else "")
        try:
            parent = _ROOT / "memory" / own if is_v1 else _delegating(_ROOT / own)
            self._path = parent / f"riverrun-benchmark-{os.getpid()}-{time.monotonic_ns()}"
            self._events = self._path / ("memory.oom_control" if is_v1 else "memory.events")
            self._path.mkdir()
            limits = ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes") if is_v1 else ("memory.max",)
            for name in limits:
                if (self._path / name).exists():
                    (self._path / name).write_text(str(limit))
            if (self._path / "memory.swap.max").exists():
                (self._path / "memory.swap.max").write_text("0")
        except OSError as error:
            raise NoMemoryGroup(f"a memory cgroup cannot be made: {error}") from error

    def enter(self) -> None:
        """Have the calling process, and all that it starts, be of the group; made for ``preexec_fn``."""
        (self._path / "cgroup.procs").write_text(str(os.getpid()))

    def processes(self) -> list[int]:
        """Return who is in the group."""
        with contextlib.suppress(OSError):
            return [int(pid) for pid in (self._path / "cgroup.procs").read_text().split()]
        return []

    def resident(self) -> int:
        """Return the bytes of anonymous and shared memory that the processes have, each page of shared memory once."""
        private = 0
        for pid in self.processes():
            with contextlib.suppress(OSError, ValueError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("RssAnon"):
                        private += int(line.split()[1]) << 10
        return private + self._shared()

    def _shared(self) -> int:
        with contextlib.suppress(OSError):
            for line in (self._path / "memory.stat").read_text().splitlines():
                if line.startswith("shmem "):
                    return int(line.split()[1])
        return 0

    def was_killed(self) -> bool:
        """Whether the kernel has ended a process of the group for want of memory."""
        with contextlib.suppress(OSError):
            for line in self._events.read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1]) > 0
        return False

    def close(self) -> None:
        """End what is left in the group, and remove it."""
        deadline = time.monotonic() + 20
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        with contextlib.suppress(OSError):
            self._path.rmdir()

    def __enter__(self) -> Self:
        """Return the group."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()


def _delegating(group: Path) -> Path:
    """Return the innermost group from this one outwards whose members may have limits of their own (version 2).

    A group with processes in it, as one's own has, may not, unless it is the root.
    """
    for each in (group, *group.parents):
        with contextlib.suppress(OSError):
            (each / "cgroup.subtree_control").write_text("+memory")
            return each
        if each == _ROOT:
            break
    raise OSError("no group here may give its members limits")


def _own_path(controller: str) -> str:
    """Return this process's group of a controller, below its root."""
    for fields in _groups():
        if controller in fields[1].split(","):
            return fields[2].lstrip("/")
    raise NoMemoryGroup("this process is in no memory cgroup")


def _groups() -> Iterator[list[str]]:
    try:
        text = Path("/proc/self/cgroup").read_text()
    except OSError as error:
        raise NoMemoryGroup(f"there are no cgroups: {error}") from error
    for line in text.splitlines():
        yield line.split(":", 2)
