"""Processes that end by SIGKILL before or after any change that they make, of files or of objects in a store.

A process with everything imported is forked for each trial, so that a trial takes a tenth of a second.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Trials", "trials"]

_SOURCE = Path(__file__).with_name("changes.c")


@dataclass(frozen=True)
class Ended:
    """How a trial has ended.

    Attributes
    ----------
    was_killed
        Whether it was before it had done its work.
    changes
        How many changes of files it has made otherwise.
    """

    was_killed: bool
    changes: int


class Trials:
    """Runs functions of a module, each time in a new process.

    Parameters
    ----------
    process
        The process that is forked; it speaks lines of JSON.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, name: str, folder: Path, *arguments: Any, kill_at: int = -1, store: Any = None) -> Ended:
        """Run a function with ``arguments`` and tell how it ended.

        Parameters
        ----------
        name
            The function's.
        folder
            Whose changes are counted.
        kill_at
            The number of the change before which the process is killed. With a store, changes are its own, and every
            other number is after the change, before the answer.
        store
            A server in this process.

        Raises
        ------
        AssertionError
            If it failed in another way.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        of_files = -1 if store is not None else kill_at
        self._process.stdin.write(json.dumps([name, str(folder), of_files, arguments]) + "\n")
        self._process.stdin.flush()
        pid = int(self._process.stdout.readline())
        fuse = None if store is None else _Fuse(pid, kill_at)
        if fuse is not None:
            store.on_change = fuse
        self._go_on()
        status, changes, text = json.loads(self._process.stdout.readline())
        if fuse is not None:
            store.on_change = None
            changes = fuse.changes
        if status == -signal.SIGKILL:
            return Ended(was_killed=True, changes=changes)
        assert status == 0, text
        return Ended(was_killed=False, changes=changes)

    def _go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()


class _Fuse:
    """Kills a process at a request to a store."""

    def __init__(self, pid: int, kill_at: int) -> None:
        self._pid, self._kill_at = pid, kill_at
        self.changes = 0

    def __call__(self) -> None:
        """Called before a change, and after it: the store has nothing to do for who is killed."""
        if self.changes == self._kill_at:
            os.kill(self._pid, signal.SIGKILL)
        self.changes += 1
        if self.changes > self._kill_at >= 0:
            raise ConnectionAbortedError


@contextlib.contextmanager
def trials(module: str, folder: Path) -> Iterator[Trials]:
    """Start the process that is forked.

    Parameters
    ----------
    module
        With the functions to run.
    folder
        For what is built for that.
    """
    library = folder / "changes.so"
    command = ["gcc", "-O1", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    subprocess.run(command, check=True, timeout=60)
    path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    process = subprocess.Popen(
        [sys.executable, "-c", "from support.killed_processes import serve; serve()", module, str(library)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": ":".join(path)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield Trials(process)
    finally:
        process.communicate()


def serve() -> None:
    """Fork this process for every line of the standard input, until that ends."""
    module, library = importlib.import_module(sys.argv[1]), ctypes.CDLL(sys.argv[2])
    print("ready", flush=True)
    while line := sys.stdin.readline():
        name, folder, kill_at, arguments = json.loads(line)
        reading, writing = os.pipe()
        begin_reading, begin_writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reading)
            os.read(begin_reading, 1)
            status, text = 0, ""
            try:
                library.watch_changes(os.fsencode(folder), ctypes.c_long(kill_at))
                getattr(module, name)(folder, *arguments)
            except BaseException as error:
                status, text = 1, f"{type(error).__name__}: {error}"
            library.count_changes.restype = ctypes.c_long
            os.write(writing, json.dumps([library.count_changes(), text]).encode())
            os._exit(status)
        print(pid, flush=True)
        assert sys.stdin.readline() == "go\n"
        os.close(writing)
        os.write(begin_writing, b"x")
        told = b"".join(iter(lambda: os.read(reading, 4096), b""))  # noqa: B023
        _, status = os.waitpid(pid, 0)
        for descriptor in (reading, begin_reading, begin_writing):
            os.close(descriptor)
        changes, text = json.loads(told or b'[0, ""]')
        print(json.dumps([os.waitstatus_to_exitcode(status), changes, text]), flush=True)
