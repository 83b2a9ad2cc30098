"""Jobs that take turns: one works at a time, the processes of the others wait for a message and use no CPU meanwhile.

A job is a process, or the ranks that a launcher starts. Every process has a connection to the benchmark, over the
loopback interface, and reads from it what to run next. When a process ends, for whatever reason, its connections are
closed. So neither side waits for one that is gone: the benchmark sees that a process of a job has ended, and the
processes of all jobs end after the benchmark has. Messages are JSON, one a line; each is answered before the next is
sent.
"""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import socket
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

Message = dict[str, Any]

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
"""How long a job may take to start Python and the engine."""
_END_SECONDS = 30.0
"""How long a job may take to end by itself."""
_KILL_SECONDS = 15.0
"""How long a job may take to end after SIGTERM."""
_ERROR_SECONDS = 5.0
"""How long the other ranks may take to tell their errors after the first."""
_LOOK_SECONDS = 0.1
"""How often it is looked whether a job that starts has ended."""


class JobFailed(Exception):
    """The processes of a job have ended, or had to be ended; the text says why."""


class JobNotStarted(JobFailed):
    """A job did not come so far as to wait for its first turn."""


def take_turns(port: int, rank: int, run: Callable[[int, bool], Message], **about: object) -> None:
    """Be a process of a job: run what the benchmark asks for, until it closes the connection.

    Parameters
    ----------
    port
        Where the benchmark listens.
    rank
        The rank of this process in its job.
    run
        Runs a query, given its number and whether the run is timed; returns what is told the benchmark.
    about
        What the benchmark is told of this process before its first turn.

    Raises
    ------
    Exception
        What ``run`` raises, after the benchmark has been told.
    """
    with socket.create_connection((_HOST, port)) as channel, channel.makefile("rb") as stream:
        _send(channel, {"rank": rank, **about})
        for line in _lines(stream):
            asked = json.loads(line)
            try:
                answer = run(asked["query"], asked["timed"])
            except Exception:
                _send(channel, {"error": traceback.format_exc()})
                raise
            _send(channel, answer)


def _send(channel: socket.socket, message: Message) -> None:
    channel.sendall(json.dumps(message).encode() + b"\n")


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Yield what comes until the other end is closed, or has died."""
    with contextlib.suppress(ConnectionError):
        yield from stream


@dataclass
class _Process:
    """The connection to a process of a job."""

    channel: socket.socket
    stream: BinaryIO

    def read(self, deadline: float) -> Message | None:
        """Read the message that has begun to come; None if the process has closed its connection."""
        self.channel.settimeout(max(_LOOK_SECONDS, deadline - time.monotonic()))
        try:
            line = self.stream.readline()
        except OSError:
            return None
        if not line.endswith(b"\n"):
            return None
        message: Message = json.loads(line)
        return message

    def close(self) -> None:
        self.stream.close()
        self.channel.close()


class Job:
    """The processes that take turns as one, as the benchmark sees them; as a context, it ends them.

    Parameters
    ----------
    command
        What to start; ``--port`` and a number are added. All processes shall call :func:`take_turns` with that port.
    nranks
        How many processes that are.
    environment
        Their environment.
    log
        A file for what they print.
    """

    def __init__(
        self, command: Sequence[str], nranks: int, *, environment: Mapping[str, str], log: Path
    ) -> None:
        self.about: list[Message] = []
        """What the processes have told of themselves, by rank."""
        self._command = list(command)
        self._nranks = nranks
        self._environment = dict(environment)
        self._log = log
        self._started: subprocess.Popen[bytes] | None = None
        self._processes: dict[int, _Process] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.end(seconds=0.0 if kind else _END_SECONDS)

    @property
    def runs(self) -> bool:
        """Whether the processes have been started, and not been ended by this object."""
        return self._started is not None

    def start(self) -> None:
        """Start the processes; returns when all wait for their first turn.

        Raises
        ------
        JobNotStarted
            If one ends before that, or they take too long. All have been ended then.
        """
        try:
            self._start(time.monotonic() + _START_SECONDS)
        except JobNotStarted:
            raise
        except BaseException:
            self.end(seconds=0.0)
            raise

    def _start(self, deadline: float) -> None:
        told: dict[int, Message] = {}
        with socket.create_server((_HOST, 0)) as listener, self._log.open("wb") as log:
            self._started = subprocess.Popen(
                [*self._command, "--port", str(listener.getsockname()[1])],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            listener.settimeout(_LOOK_SECONDS)
            while len(told) < self._nranks:
                if self._started.poll() is not None:
                    raise JobNotStarted(self._end_of_failed())
                if time.monotonic() > deadline:
                    self.end(seconds=0.0)
                    raise JobNotStarted(f"not ready after {_START_SECONDS:.0f} s")
                try:
                    channel, _ = listener.accept()
                except TimeoutError:
                    continue
                process = _Process(channel, channel.makefile("rb"))
                message = process.read(deadline)
                if message is None:
                    process.close()  # it has died: the launcher ends soon, and says so
                    continue
                self._processes[message["rank"]] = process
                told[message["rank"]] = message
        self.about = [told[rank] for rank in sorted(told)]

    def turn(self, query: int, *, timed: bool, seconds: float) -> list[Message]:
        """Let all processes run a query; returns what they say, by rank.

        Parameters
        ----------
        query
            The number of the query.
        timed
            Whether it is a timed run.
        seconds
            How long it may take.

        Raises
        ------
        JobFailed
            If a process raises an error, has ended, or they take too long. All have been ended then.
        """
        for process in self._processes.values():
            with contextlib.suppress(OSError):  # seen when its answer is read
                process.channel.settimeout(seconds)
                _send(process.channel, {"query": query, "timed": timed})
        answers, is_late = self._answers(time.monotonic() + seconds)
        errors = {rank: answer["error"] for rank, answer in answers.items() if answer and "error" in answer}
        if errors:
            self.end()
            rank = min(errors)
            raise JobFailed(f"rank {rank}: {errors[rank].strip()}")
        if is_late:
            self.end(seconds=0.0)
            raise JobFailed(f"not finished after {seconds:.0f} s")
        found = [answer for _, answer in sorted(answers.items()) if answer is not None]
        if len(found) < self._nranks:
            raise JobFailed(self._end_of_failed())
        return found

    def _answers(self, deadline: float) -> tuple[dict[int, Message | None], bool]:
        """Read what the processes say, by rank, None for one that has ended; and say whether one is late.

        After one has ended or told an error the others are not waited for as long: they may be waiting for that one.
        """
        answers: dict[int, Message | None] = {}
        failed = False
        with selectors.DefaultSelector() as selector:
            for rank, process in self._processes.items():
                selector.register(process.channel, selectors.EVENT_READ, rank)
            while len(answers) < self._nranks:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    return answers, not failed
                for key, _ in ready:
                    selector.unregister(key.fileobj)
                    answer = answers[key.data] = self._processes[key.data].read(deadline)
                    if not failed and (answer is None or "error" in answer):
                        failed = True
                        deadline = min(deadline, time.monotonic() + _ERROR_SECONDS)
        return answers, False

    def _end_of_failed(self) -> str:
        """End what is left of a job that a process of has ended; says how the job ended, and what it printed last."""
        status = self.end()
        how = f"was killed by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
        tail = "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])
        return f"{Path(self._command[0]).name} {how}{':' if tail else ''}\n{tail}".strip()

    def end(self, *, seconds: float = _END_SECONDS) -> int:
        """End the processes.

        Parameters
        ----------
        seconds
            How long they may take to end by themselves, as those do that wait for a turn. Then the first of them, a
            launcher or the only one, is ended by signals; a launcher ends its ranks.

        Returns
        -------
        int
            The exit status of the first; negative if a signal has killed it, 0 if nothing runs.
        """
        for process in self._processes.values():
            process.close()
        self._processes.clear()
        started, self._started = self._started, None
        if started is None:
            return 0
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return started.wait(timeout=seconds)
            started.send_signal(signal.SIGTERM)
            started.send_signal(signal.SIGCONT)  # a stopped process does not see SIGTERM
            with contextlib.suppress(subprocess.TimeoutExpired):
                return started.wait(timeout=_KILL_SECONDS)
        finally:
            started.kill()  # does nothing if it has ended
        return started.wait()
