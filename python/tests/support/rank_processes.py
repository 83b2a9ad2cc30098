"""An engine whose ranks are processes joined to this one by pipes, as Dask and Ray join theirs over a network.

A query takes the same way as there (:mod:`cudf_polars.engine.shipping`, :mod:`~cudf_polars.engine.rank_host`), without
what a cluster adds, and a set of ranks that is lost can be replaced within a second.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import multiprocessing
import os
import pickle
import re
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

import polars as pl

from cudf_polars.engine.cluster import ClusterEngine, GivenUp, Lost, Question
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.rank_host import RankHost, RankPlan
from cudf_polars.engine.rank_settings import RankSettings
from cudf_polars.engine.relay import RankReply
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.lower.fallback import FallbackWarning

__all__ = ["RankProcesses"]

_THREADS = "POLARS_MAX_THREADS"
_START_SECONDS = 60.0
"""How long a rank may take to start."""
_GRACE_SECONDS = 5.0
"""How long the answers of ranks are awaited after one has been lost."""


def _surroundings() -> tuple[str, dict[str, str]]:
    """Return what a query in this process would find around it: the folder, and Polars' environment variables."""
    return os.getcwd(), {k: v for k, v in os.environ.items() if k.startswith("POLARS_")}


def _settle(folder: str, variables: Mapping[str, str]) -> None:
    os.chdir(folder)
    present = {k: v for k, v in os.environ.items() if k.startswith("POLARS_") and k != _THREADS}
    wanted = {k: v for k, v in variables.items() if k != _THREADS}
    if present != wanted:
        for name in present.keys() - wanted.keys():
            del os.environ[name]
        os.environ.update(wanted)
        pl.Config.reload_env_vars()


def _serve(calls: Connection, plan: RankPlan) -> None:
    """Be a rank until the other end of the pipe closes."""
    host = RankHost(plan)
    try:
        while True:
            surroundings, query, arguments = calls.recv()
            _settle(*surroundings)
            try:
                if isinstance(query, Question):
                    call = host.submit_query(query.epoch, query.place, query.method, arguments)
                else:
                    call = host.submit(functools.partial(getattr(host, query), *arguments))
                calls.send(call.result())
            except BaseException as error:
                calls.send(error)
    except EOFError:
        host.close()


class RankProcesses(ClusterEngine):
    """Runs queries on processes of this machine; ``collect`` returns the whole answer to this process.

    Parameters
    ----------
    nranks
        Number of ranks; each has one thread for queries.
    execution
        How queries are planned.

    Attributes
    ----------
    fallbacks
        The steps of the last query that ran on one rank for want of a distributed form.
    """

    def __init__(self, nranks: int, execution: ExecutionOptions) -> None:
        self.fallbacks: list[str] = []
        self._calls: list[Connection] = []
        self._processes: list[Any] = []
        self._lost = False
        options = StreamingOptions()
        settings = RankSettings(options, execution=execution)
        try:
            self._start_processes(RankPlan(settings, nranks, nranks, one_host=True))
            root = self._ask_one(0, "make_root")
            joined = self._ask_all("join", [(root,)] * nranks)
        except BaseException:
            self._kill()
            raise
        # Ranks are numbered as they join.
        order = sorted(range(nranks), key=lambda i: joined[i][0])
        self._calls = [self._calls[i] for i in order]
        self._processes = [self._processes[i] for i in order]
        names = [f"process {process.pid}" for process in self._processes]
        super().__init__(options, names, [joined[i][1] for i in order])

    @property
    def usable(self) -> bool:
        """Whether all ranks are still there."""
        return not (self._lost or self._closed)

    def _start_processes(self, plan: RankPlan) -> None:
        context = multiprocessing.get_context("spawn")
        former = os.environ.get(_THREADS)
        os.environ[_THREADS] = "1"
        try:
            for number in range(plan.nranks):
                ours, theirs = context.Pipe()
                process = context.Process(
                    target=_serve, args=(theirs, plan), name=f"rank-{number}", daemon=True
                )
                process.start()
                theirs.close()
                self._calls.append(ours)
                self._processes.append(process)
        finally:
            if former is None:
                del os.environ[_THREADS]
            else:
                os.environ[_THREADS] = former

    def _ask_one(self, index: int, method: str, *arguments: Any) -> Any:
        self._calls[index].send((_surroundings(), method, arguments))
        return self._answer(index)

    def _ask_all(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        surroundings = _surroundings()
        for calls, given in zip(self._calls, arguments, strict=True):
            calls.send((surroundings, method, given))
        return [self._answer(index) for index in range(len(self._calls))]

    def _answer(self, index: int) -> Any:
        if not self._calls[index].poll(_START_SECONDS):
            raise TimeoutError(f"rank process {index} did not start within {_START_SECONDS:.0f} s")
        answer = self._calls[index].recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> Sequence[bytes | Lost]:
        self.fallbacks = []
        stopped, sender = multiprocessing.Pipe(duplex=False)
        stop.add_done_callback(lambda _: sender.close())
        try:
            return self._ask_ranks(query, arguments, stopped)
        except BaseException:
            # The user's Ctrl-C, or a test's time limit: nobody knows what the ranks are at.
            self._lost = True
            raise
        finally:
            stopped.close()

    def _ask_ranks(
        self, query: Question, arguments: Sequence[tuple[Any, ...]], stopped: Connection
    ) -> list[bytes | Lost]:
        answers: dict[int, bytes | Lost] = {}
        surroundings = _surroundings()
        for rank, (calls, given) in enumerate(zip(self._calls, arguments, strict=True)):
            try:
                calls.send((surroundings, query, given))
            except OSError:
                answers[rank] = self._lose(rank)
        while len(answers) < self.nranks:
            waiting = {self._calls[rank]: rank for rank in range(self.nranks) if rank not in answers}
            ready = wait([*waiting, stopped], _GRACE_SECONDS if self._lost else None)
            if stopped in ready:
                raise GivenUp
            for calls, rank in waiting.items():
                if calls not in ready:
                    continue
                try:
                    answers[rank] = self._take(calls.recv())
                except (EOFError, OSError):
                    answers[rank] = self._lose(rank)
            if not ready:
                answers.update({rank: Lost("it waits for a rank that is lost") for rank in waiting.values()})
        return [answers[rank] for rank in range(self.nranks)]

    def _lose(self, rank: int) -> Lost:
        self._lost = True
        self._processes[rank].join(_GRACE_SECONDS)
        return Lost(f"it ended with {self._processes[rank].exitcode}")

    def _take(self, answer: Any) -> bytes | Lost:
        """Keep what a rank says of fallbacks, which is no warning here."""
        if isinstance(answer, BaseException):
            self._lost = True
            return Lost(f"{type(answer).__name__}: {answer}")
        reply: RankReply = pickle.loads(answer)
        steps = [str(warning) for warning in reply.warnings if isinstance(warning, FallbackWarning)]
        if steps:
            reply.warnings = [
                warning for warning in reply.warnings if not isinstance(warning, FallbackWarning)
            ]
            answer = pickle.dumps(reply)
            for text in steps:
                found = re.search(r"alone runs, (.*)\. Set fallback_mode", text, re.DOTALL)
                # A reason may have semicolons, too; steps begin with the name of a node.
                self.fallbacks += re.split(r"; (?=[A-Z]{3})", found[1]) if found else [text]
            self.fallbacks = list(dict.fromkeys(self.fallbacks))
        assert isinstance(answer, bytes)
        return answer

    def _close(self) -> None:
        if self._lost:
            self._kill()
            return
        for calls in self._calls:
            calls.close()
        for process in self._processes:
            process.join(_GRACE_SECONDS)
        self._kill()

    def _kill(self) -> None:
        for calls in self._calls:
            with contextlib.suppress(OSError):
                calls.close()
        for process in self._processes:
            if process.is_alive():
                process.kill()
            process.join()
