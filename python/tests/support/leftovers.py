"""What a job may leave behind: processes, shared memory, spill files."""

from __future__ import annotations

import contextlib
import os
import select
from pathlib import Path

__all__ = ["Places", "orphaned_segments", "wait_for_end"]


class Places:
    """Folders of a job's own for its shared memory and its spill files, so that other jobs do not matter.

    Parameters
    ----------
    folder
        An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self._folders = [folder / "shm", folder / "spill"]
        for path in self._folders:
            path.mkdir()

    @property
    def env(self) -> dict[str, str]:
        """Environment variables for the job."""
        shared_memory, spill = map(str, self._folders)
        return {"UCX_POSIX_DIR": shared_memory, "TMPDIR": spill}

    def check(self, pids: set[int]) -> None:
        """Fail unless these processes, which made the job, have ended and left nothing behind."""
        for pid in pids:
            wait_for_end(pid)
        for folder in self._folders:
            assert list(folder.iterdir()) == []
        segments = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
        assert [line for line in segments if int(line.split()[4]) in pids] == []


def wait_for_end(pid: int) -> None:
    """Return when a process has ended; fail if it goes on for long."""
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([process], [], [], 60)[0], f"process {pid} goes on"
    finally:
        os.close(process)


def orphaned_segments() -> set[str]:
    """Return the shared memory files of Open MPI in their usual place that no process uses any more."""
    segments = {str(path) for path in Path("/dev/shm").glob("sm_segment.*")}
    if not segments:
        return segments
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # the process has ended, or is another user's
            text = maps.read_text()
            segments = {segment for segment in segments if segment not in text}
    return segments
