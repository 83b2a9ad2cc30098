"""The client's side of an engine whose ranks are workers of a cluster: what Dask and Ray share.

The client numbers its queries, so that the ranks' collectives meet whatever else runs on the same workers, and sends
each rank the query and its part of in-memory frames. Ranks answer with a
:class:`~cudf_polars.engine.relay.RankReply`.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import pickle
import threading
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import polars as pl
from rapidsmpf import bootstrap
from rapidsmpf.error import RankFailedError
from rapidsmpf.statistics import Statistics

from cudf_polars.engine.batches import BatchSource, GatheredBatches
from cudf_polars.engine.catalog_sinks import FORMATS
from cudf_polars.engine.core import ClusterInfo, StreamingEngine
from cudf_polars.engine.folder_exchange import is_used_here
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.partition_sinks import Partitioning
from cudf_polars.engine.relay import RankReply, emit, remote_error
from cudf_polars.engine.shipping import pack_query, unpack_frame
from cudf_polars.engine.sink_destinations import UsedFolder, destination, partitioning_for_workers
from cudf_polars.engine.sinks import write_alone
from cudf_polars.engine.table_sinks import TablePlan, TableWrite
from cudf_polars.engine.turns import QueryCall, QueryCancelled
from cudf_polars.lower.fallback import report
from cudf_polars.lower.user_code import calling_place
from cudf_polars.plan.several import join_queries
from cudf_polars.streaming.actor_graph.collectives.common import EPOCH_BITS

if TYPE_CHECKING:
    from polars import QueryOptFlags

__all__ = ["ClusterEngine", "GivenUp", "Lost", "Question", "refuse_rrun", "wait_for_any"]

T = TypeVar("T")
_SIGNAL_SECONDS = 0.2
"""How often a wait for ranks lets Python look for signals."""


@dataclass(frozen=True)
class Lost:
    """Stands for the answer of a rank that can give none any more.

    Attributes
    ----------
    reason
        What is known of why.
    """

    reason: str


@dataclass(frozen=True)
class _Report:
    """How a query went, as rank 0 knows it of all."""

    text: str = field(repr=False)

    def explain(self) -> str:
        """Return the physical plan with the numbers of the run."""
        return self.text


class GivenUp(Exception):
    """The answer of the ranks is no longer wanted."""


@dataclass(frozen=True)
class Question:
    """What ranks are asked.

    Attributes
    ----------
    epoch
        The number of the query.
    place
        Where in the user's sources it is asked for, or "".
    method
        The method of :class:`~cudf_polars.engine.rank_host.RankHost` that answers.
    """

    epoch: int
    place: str
    method: str


def refuse_rrun(engine: str) -> None:
    """Raise RuntimeError in a process that ``rrun`` has started: it would start a cluster on each rank."""
    if bootstrap.is_running_with_rrun():
        raise RuntimeError(
            f"{engine} cannot be used inside an rrun cluster, where every rank runs the script. Use SPMDEngine"
            " there, or start"
            " this script without rrun."
        )


def wait_for_any(futures: Collection[concurrent.futures.Future[Any]]) -> None:
    """Return when one of ``futures`` is done; Ctrl-C ends the wait.

    Polars has the system restart what a signal interrupts, once it has run a query, and so Python's handler has to wait
    for the end of a call: none may last for long.
    """
    while not concurrent.futures.wait(
        futures, _SIGNAL_SECONDS, return_when=concurrent.futures.FIRST_COMPLETED
    ).done:
        pass


def _set(stop: concurrent.futures.Future[None]) -> None:
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        stop.set_result(None)


class ClusterEngine(StreamingEngine):
    """Base of the engines with a client. Subclass and implement :meth:`_ask` and :meth:`_close`.

    Parameters
    ----------
    options
        All options of the engine.
    names
        How to call each rank in errors, by rank: "worker tcp://10.0.0.1:4711", say.
    cluster_info
        Where each rank runs, by rank.
    """

    def __init__(
        self, options: StreamingOptions, names: Sequence[str], cluster_info: list[ClusterInfo]
    ) -> None:
        super().__init__(options, cluster_info)
        self._names = [f"rank {rank}, {name}" for rank, name in enumerate(names)]
        self._epochs = itertools.count()
        self._epoch = 0  # the last
        self._failure: RankFailedError | None = None
        self._asking = threading.Lock()  # guards what follows
        self._shut_down = False
        self._stop: concurrent.futures.Future[None] = concurrent.futures.Future()

    @abstractmethod
    def _ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> Sequence[bytes | Lost]:
        """Call a method of :class:`RankHost` on every rank, each with its arguments; return what they answer, by rank.

        When a rank is lost, the others' answers come soon. When the wait is interrupted, the query is abandoned, and so
        it is as soon as ``stop`` is done, which raises :class:`GivenUp`.
        """

    def shutdown(self) -> None:
        """Free the engine's resources; idempotent. From any thread: a query that runs on another one is given up.

        That query, and every later one, raises RuntimeError.
        """
        if not self._closed and not self._turns.is_fork:
            with self._asking:
                self._shut_down = True
                stop = self._stop
            _set(stop)
        super().shutdown()

    def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of the ranks; returns the values, or raises the error to which the others are due."""
        if self._failure is not None:
            raise _copy(self._failure)
        epoch = self._epoch = next(self._epochs) % ((1 << EPOCH_BITS) - 1) + 1
        stop: concurrent.futures.Future[None] = concurrent.futures.Future()
        with self._asking:
            self._stop = stop
            if self._shut_down:
                _set(stop)
        self._current_call.on_cancel(lambda: _set(stop))
        try:
            answers = self._ask(Question(epoch, calling_place(), method), arguments, stop)
        except GivenUp:
            if not self._shut_down:
                raise QueryCancelled("the query was cancelled") from None
            raise RuntimeError(
                "the engine was shut down, by another thread, while this query ran or before it could begin"
            ) from None
        replies = {rank: pickle.loads(a) for rank, a in enumerate(answers) if not isinstance(a, Lost)}
        emit((self._names[rank], reply) for rank, reply in replies.items())
        lost = {rank: a.reason for rank, a in enumerate(answers) if isinstance(a, Lost)}
        if lost:
            self._failure = self._failure_of(lost, replies)
            raise _copy(self._failure)
        errors = {rank: reply for rank, reply in replies.items() if reply.error is not None}
        if errors:
            # Others find that a rank has failed; the error is that of the one with an error of its own.
            own = [r for r, reply in errors.items() if not isinstance(reply.error, RankFailedError)]
            rank = min(own or errors)
            raise remote_error(self._names[rank], errors[rank])
        return [replies[rank].value for rank in range(self.nranks)]

    def _failure_of(self, lost: Mapping[int, str], replies: Mapping[int, RankReply]) -> RankFailedError:
        rank = min(lost)
        for reply in replies.values():
            error = reply.error
            if isinstance(error, RankFailedError) and error.rank in lost:
                rank = error.rank
                break
        info = self._cluster_info[rank]
        return RankFailedError(
            rank,
            info.hostname,
            info.pid,
            f"{self._names[rank].partition(', ')[2]} is lost: {lost[rank].rstrip('. ')}. Make a new engine to go on.",
        )

    def _run(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> pl.DataFrame:
        packed = pack_query(lf, optimizations, self.nranks)
        answers = self._call("collect", [(query,) for query in packed])
        self.last_query = _Report(answers[0][1])
        return _whole(value for value, _ in answers)

    def _run_all(
        self, lfs: Sequence[pl.LazyFrame], optimizations: QueryOptFlags
    ) -> list[pl.DataFrame] | None:
        if self.nranks == 1:
            return None
        packed = pack_query(join_queries(lfs), optimizations, self.nranks)
        answers = self._call("collect_all", [(query, len(lfs)) for query in packed])
        if answers[0] is None:
            return None
        self.last_query = _Report(answers[0][1])
        return [_whole(parts) for parts in zip(*(values for values, _ in answers), strict=True)]

    def _explain(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> str:
        packed = pack_query(lf, optimizations, self.nranks)
        return cast("str", self._call("explain", [(query,) for query in packed])[0])

    def _open_batches(
        self, lf: pl.LazyFrame, optimizations: QueryOptFlags, *, chunk_size: int | None, maintain_order: bool
    ) -> BatchSource:
        packed = pack_query(lf, optimizations, self.nranks)
        answers = self._call("open_batches", [(query, chunk_size, maintain_order) for query in packed])
        opened = self._epoch
        self.last_query = _Report(answers[0][2])
        first = [([unpack_frame(value) for value in values], ended) for values, ended, _ in answers]
        schema = next((f for frames, _ in first for f in frames if f.height), first[0][0][0]).schema

        def more(ranks: set[int]) -> dict[int, tuple[list[pl.DataFrame], bool]]:
            arguments = [(opened, chunk_size, rank in ranks) for rank in range(self.nranks)]
            with self._turn(QueryCall("collect_batches()")):
                self._check_open("the engine")
                answers = self._call("more_batches", arguments)
            return {
                rank: ([unpack_frame(value) for value in answers[rank][0]], answers[rank][1])
                for rank in ranks
            }

        def close() -> None:
            # Nobody waits for it; an engine that was shut down, or lost a rank, has ended its queries.
            with contextlib.suppress(Exception), self._turn(QueryCall("the end of collect_batches()")):
                if not self._closed:
                    self._call("close_batches", [(opened,)] * self.nranks)

        def leave() -> None:
            # Batches may be dropped anywhere, also where this thread has the turn.
            threading.Thread(target=close, name="riverrun-batches-end", daemon=True).start()

        return GatheredBatches(schema, first, more, leave, in_order=maintain_order)

    def _sink(
        self, lf: pl.LazyFrame, target: object, extension: str, optimizations: QueryOptFlags, **kwargs: Any
    ) -> None:
        where = destination(target)
        sent: object = where
        if isinstance(target, pl.PartitionBy):
            sent = partitioning_for_workers(target, kwargs, self.nranks)
            if isinstance(sent, str) and self.nranks > 1:
                report([sent], self._options.get("fallback_mode"))
        elif isinstance(where, Path):
            # A path that does not depend on this process's folder.
            path = where.expanduser().absolute()
            sent = UsedFolder(str(path)) if is_used_here(path.resolve()) else str(path)
        if not isinstance(sent, Partitioning) and not isinstance(where, str | Path):
            # A file object, say, is only here.
            write_alone(self._run(lf, optimizations).lazy(), target, extension, **kwargs)
            return
        packed = pack_query(lf, optimizations, self.nranks)
        told, step = self._call("sink", [(query, sent, extension, kwargs) for query in packed])[0]
        if step is None:
            self.last_query = _Report(told)
            return
        report([step], self._options.get("fallback_mode"))
        write_alone(self._run(lf, optimizations).lazy(), target, extension, **kwargs)

    def _sink_catalog(
        self,
        lf: pl.LazyFrame,
        write: Callable[[pl.LazyFrame], T],
        step: str,
        optimizations: QueryOptFlags,
        *,
        commits_later: bool,
        arguments: Mapping[str, Any],
    ) -> T:
        done: tuple[Any] | str | None = "with mode='merge'"
        if not commits_later:
            shared = FORMATS[step].read(arguments)
            plan = shared if isinstance(shared, str) else shared.plan()
            done = self._write_table(lf, plan, optimizations) if isinstance(plan, TablePlan) else plan
            if isinstance(done, tuple):
                assert isinstance(shared, TableWrite)
                return cast("T", shared.answer(done[0]))
            if done is None:
                # There is a table: Polars says what it says, and writes nothing.
                return write(pl.LazyFrame(schema=lf.collect_schema()))
        if self.nranks > 1:
            report([f"{step} {done}"], self._options.get("fallback_mode"))
        return super()._sink_catalog(
            lf, write, step, optimizations, commits_later=commits_later, arguments=arguments
        )

    def _write_table(
        self, lf: pl.LazyFrame, plan: TablePlan, optimizations: QueryOptFlags
    ) -> tuple[Any] | str | None:
        """Let the ranks write to a table; returns what came of the commit, or why they cannot."""
        try:
            packed = pack_query(lf, optimizations, self.nranks)
            told = self._call("sink_table", [(query, plan) for query in packed])[0]
        finally:
            plan.end()  # the ranks have, if they see the folder
        if not isinstance(told, tuple):
            return cast("str | None", told)
        self.last_query = _Report(told[0])
        return (told[1],)

    def _statistics_of_ranks(self, *, clear: bool) -> list[Statistics]:
        answers = self._call("statistics", [(clear,)] * self.nranks)
        return [Statistics.deserialize(value) for value in answers]


def _whole(parts: Iterable[bytes]) -> pl.DataFrame:
    """Return the answer of which the ranks gave these parts, packed."""
    frames = [unpack_frame(part) for part in parts]
    # Frames without rows say the schema when all are so.
    return pl.concat([f for f in frames if f.height] or frames[:1], how="vertical")


def _copy(error: RankFailedError) -> RankFailedError:
    """Return an error like this one, without its traceback."""
    return RankFailedError(error.rank, error.host, error.pid, error.reason)
