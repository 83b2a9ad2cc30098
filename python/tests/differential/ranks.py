"""Runs a case on ranks that are threads of this process, each with lazy frames, and rows, of its own."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs
from execute import local_transport
from execute.local_transport import Group, LocalTransport
from rapidsmpf.communicator import loopback
from rapidsmpf.config import Options
from rapidsmpf.error import RankFailedError
from rapidsmpf.streaming.core.context import Context

from cudf_polars.engine.shipping import pack_query, unpack_query
from cudf_polars.execute import queries
from cudf_polars.execute.errors import failure_of_rank
from cudf_polars.execute.exchange import RapidsmpfTransport
from cudf_polars.execute.fragments import ComputeDevice
from cudf_polars.execute.run import QueryOutcome, run_queries, run_query, stream_query
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import walk
from cudf_polars.plan.expressions import Function
from cudf_polars.plan.properties import walk as walk_expression
from cudf_polars.plan.several import join_queries
from cudf_polars.streaming.actor_graph.collectives.common import OpIds
from differential.cases import Case, build

__all__ = [
    "COUNTERS",
    "KEY_RANGES",
    "Coverage",
    "Hang",
    "LoopbackTransport",
    "RankEnd",
    "on_threads",
    "run_case",
]

KEY_RANGES = "ranges of the keys that files are sorted by"
"""Counts the cases with such streams."""

LIMIT_S = 30.0
"""Seconds that a case may take; thrice that on a machine that lets its threads wait for a processor."""
STARVED_S = 5.0
"""Seconds of these in which threads could have run and did not, by which one knows such a machine."""


class Hang(Exception):
    """The ranks did not end in time; their threads are lost."""


@dataclass(frozen=True)
class RankEnd:
    """How a rank ended: with its part of the answer, or with an error, which may be but another rank's."""

    frame: pl.DataFrame | None = None
    error: BaseException | None = None

    @property
    def is_echo(self) -> bool:
        """Whether the error says only that another rank failed."""
        return isinstance(self.error, RankFailedError | local_transport.RankFailedError)


COUNTERS = ("streams", "collectives", "functions", "nodes", "paths", "frames_held", "host_steps")


@dataclass
class Coverage:
    """What has occurred, counted by cases.

    Attributes
    ----------
    streams
        Kinds of streams of physical plans.
    collectives
        Calls of the transport.
    functions
        Functions of the catalogue in plans.
    nodes
        Nodes of plans.
    paths
        Ways of rows in partitions.
    frames_held
        Cases in which data frames waited between two steps of a rank with partitions.
    host_steps
        What ran on the CPU though the device is none, by reason; ``""`` counts the cases in which nothing did.
    """

    streams: Counter[str] = field(default_factory=Counter)
    collectives: Counter[str] = field(default_factory=Counter)
    functions: Counter[str] = field(default_factory=Counter)
    nodes: Counter[str] = field(default_factory=Counter)
    paths: Counter[str] = field(default_factory=Counter)
    frames_held: Counter[str] = field(default_factory=Counter)
    host_steps: Counter[str] = field(default_factory=Counter)

    def update(self, other: Coverage) -> None:
        """Add what another has counted."""
        for name in COUNTERS:
            getattr(self, name).update(getattr(other, name))


class LoopbackTransport(RapidsmpfTransport):
    """The real exchange between threads of one process.

    The ranks share Polars' threads, and one that reads what another has yet to send may hold the thread that the other
    needs. So no rank reads before all have sent.
    """

    def __init__(self, context: Context, group: Group, coverage: Coverage) -> None:
        super().__init__(context, OpIds(1))
        self._group = group
        self._coverage = coverage

    def _all_have_sent(self, name: str) -> None:
        self._coverage.collectives[name] += 1
        try:
            self._group.barrier.wait(LIMIT_S * 4)
        except threading.BrokenBarrierError:
            raise local_transport.RankFailedError("another rank failed") from None

    def shuffle(self, *args: Any, **kwargs: Any) -> Any:
        """As for the base."""
        stream = super().shuffle(*args, **kwargs)
        self._all_have_sent("shuffle")
        return stream

    def scatter(self, *args: Any, **kwargs: Any) -> Any:
        """As for the base."""
        stream = super().scatter(*args, **kwargs)
        self._all_have_sent("scatter")
        return stream

    def gather(self, *args: Any, **kwargs: Any) -> Any:
        """As for the base."""
        stream = super().gather(*args, **kwargs)
        self._all_have_sent("gather")
        return stream

    def allgather(self, *args: Any, **kwargs: Any) -> Any:
        """As for the base."""
        stream = super().allgather(*args, **kwargs)
        self._all_have_sent("allgather")
        return stream


class CountingTransport(LocalTransport):
    """The exchange in Python; it counts its calls."""

    def __init__(self, group: Group, rank: int, coverage: Coverage) -> None:
        super().__init__(group, rank)
        self._coverage = coverage

    def _frames(self, source: Any, call: str) -> list[pl.DataFrame]:
        self._coverage.collectives[call.split()[0]] += 1
        return super()._frames(source, call)


_reading = threading.Lock()
_plans = threading.local()


@contextmanager
def _plans_are_read_one_at_a_time() -> Iterator[None]:
    """Reading a plan keeps the GIL, which Polars' threads, all ranks' together, may need meanwhile."""
    original = queries.read_plan

    def read_plan(lf: pl.LazyFrame, flags: pl.QueryOptFlags, **how: bool) -> Any:
        with _reading:
            plan = original(lf, flags, **how)
        _plans.last = plan
        return plan

    queries.read_plan = read_plan  # type: ignore[assignment]
    try:
        yield
    finally:
        queries.read_plan = original


def _note_plan(plan: Any, coverage: Coverage) -> None:
    functions: set[str] = set()
    for node in plan.nodes:
        coverage.nodes[type(node).__name__] += 1
        for expression in getattr(node, "expressions", ()):
            functions |= {e.name for e in walk_expression(expression) if isinstance(e, Function)}
    coverage.functions.update(functions)


def _note_outcome(outcome: QueryOutcome, coverage: Coverage) -> None:
    if outcome.physical is not None:
        streams = walk(outcome.physical)
        coverage.streams.update({type(stream).__name__ for stream in streams})
        coverage.streams[KEY_RANGES] += any(stream.partitioning.boundaries is not None for stream in streams)
    coverage.paths.update(outcome.paths.counts)
    if outcome.paths.frames_held:
        coverage.frames_held["frames"] += 1


Work = Callable[[int, Any], pl.DataFrame]


def on_threads(
    nranks: int,
    work: Callable[[int], pl.DataFrame],
    failed: Callable[[int, BaseException], None],
    limit_s: float = LIMIT_S,
) -> list[RankEnd]:
    """Call ``work`` on a thread for each rank, and ``failed`` when that raises; raises Hang."""
    ends: list[RankEnd] = [RankEnd() for _ in range(nranks)]

    def body(rank: int) -> None:
        try:
            ends[rank] = RankEnd(frame=work(rank))
        except BaseException as error:  # Polars' panics are no Exception
            ends[rank] = RankEnd(error=error)
            failed(rank, error)

    threads = [
        threading.Thread(target=body, args=(rank,), name=f"rank-{rank}", daemon=True)
        for rank in range(nranks)
    ]
    for thread in threads:
        thread.start()
    for attempt in range(3):
        waited, end = _waited_for_processor(), time.monotonic() + limit_s
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if not any(thread.is_alive() for thread in threads):
            return ends
        if attempt == 2 or _waited_for_processor() - waited < STARVED_S:
            break
    raise Hang


def _waited_for_processor() -> float:
    """Return for how many seconds threads of this process could have run and did not."""
    total = 0
    for file in Path("/proc/self/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # a thread that has ended
            total += int(file.read_text().split()[1])
    return total / 1e9


def run_case(
    case: Case, folder: Path, coverage: Coverage, device: ComputeDevice | None = None
) -> list[RankEnd]:
    """Run a case on its ranks, which share ``device``; without one, Polars runs their fragments.

    Raises
    ------
    Hang
        If they do not end.
    """
    flags = case.optimizations()
    with _plans_are_read_one_at_a_time():
        packed: list[Any] = []
        if case.shipped:
            try:
                packed = list(pack_query(build(case, folder, None), flags, case.nranks))
            except BaseException as error:
                return [RankEnd(error=error)] * case.nranks

        def query(rank: int) -> tuple[Any, pl.QueryOptFlags]:
            if case.shipped:
                return unpack_query(packed[rank], rank, case.nranks)
            return build(case, folder, rank), flags

        noted = Coverage()
        outcomes: dict[int, QueryOutcome] = {}

        def work(rank: int, transport: Any) -> pl.DataFrame:
            asked, own_flags = query(rank)
            outcome = _run(case, asked, own_flags, transport, folder / f"answer{rank}.ipc", device)
            if rank == 0:
                _note_outcome(outcome, noted)
                if (plan := getattr(_plans, "last", None)) is not None:
                    _note_plan(plan, noted)
                    _plans.last = None
            outcomes[rank] = outcome
            return outcome.frame

        group = Group(case.nranks)
        if case.loopback and (case.nranks > 1 or case.budget):
            ends = _over_loopback(case, group, noted, work)
        else:
            ends = on_threads(
                case.nranks,
                lambda rank: work(rank, CountingTransport(group, rank, noted)),
                lambda _, __: group.barrier.abort(),
            )
    if device is not None and not device.is_cpu:
        steps = {step for outcome in outcomes.values() for step in outcome.host_steps}
        noted.host_steps.update(steps.union(device.take_host_steps()) or {""})
    coverage.update(noted)
    if len(outcomes) == case.nranks and (wrong := _misplaced(outcomes)):
        return [replace(end, frame=None, error=AssertionError(wrong)) for end in ends]
    return ends


def _run(
    case: Case,
    query: Any,
    flags: pl.QueryOptFlags,
    transport: Any,
    file: Path,
    device: ComputeDevice | None,
) -> QueryOutcome:
    """Run a query on one rank, with its rows of the answer."""
    given: dict[str, Any] = {"optimizations": flags, "options": case.options, "device": device}
    if case.goes_to == "answer":
        return run_query(query, transport, **given)
    if case.goes_to == "together":
        queries = [query.select(pl.len()), query]
        outcomes = run_queries(join_queries(queries), 2, transport, apart=queries, **given)
        return run_query(query, transport, **given) if outcomes is None else outcomes[1]
    took: list[pl.DataFrame] = []

    def take(rows: pl.LazyFrame) -> None:
        # One rank with memory enough has the query itself.
        own: dict[str, Any] = {
            "engine": "streaming",
            "optimizations": flags if case.nranks == 1 else pl.QueryOptFlags(),
        }
        if case.goes_to == "file" and rows.collect_schema():
            rows.sink_ipc(file, **own)
            took.append(pl.read_ipc(file))
        else:
            took.append(rows.collect(**own))

    outcome = stream_query(query, transport, take, **given)
    return replace(outcome, frame=took[0])


def _misplaced(outcomes: Mapping[int, QueryOutcome]) -> str | None:
    """Say which rows of the answer are not where the plan says; a step behind them would rely on it."""
    frames = [outcomes[rank].frame for rank in range(len(outcomes))]
    physical = outcomes[0].physical
    if physical is None:
        return None
    placed = physical.partitioning
    if placed.distribution is Distribution.SINGLE and any(frame.height for frame in frames[1:]):
        return "rows of one rank are on others"
    schema = frames[0].schema
    # A column may be a key twice.
    names = list(dict.fromkeys(min(key & set(schema), default=None) for key in placed.keys))
    if not names or not all(name and _can_be_compared(schema[name]) for name in names):
        return None
    seen: set[tuple[Any, ...]] = set()
    for frame in frames:
        # Python's times have no nanoseconds.
        here = set(frame.select(names).with_columns(cs.temporal().to_physical()).unique().rows())
        if here & seen:
            return f"rows that agree in {placed} are on several ranks"
        seen |= here
    return None


def _can_be_compared(dtype: pl.DataType) -> bool:
    return not (dtype.is_float() or dtype.is_nested() or isinstance(dtype, pl.Object))


def _over_loopback(case: Case, group: Group, noted: Coverage, work: Work) -> list[RankEnd]:
    delays = {"delay_probability": 0.3, "longest_delay": 5} if case.seed % 3 == 0 else {}
    comms = loopback.new_cluster(case.nranks, case.seed, **delays)  # type: ignore[arg-type]
    given = {"num_streaming_threads": "1"}
    if case.budget:
        given |= {"spill_device_limit": str(case.budget), "memory_reserve_timeout": "1 ms"}
    contexts = [Context.from_options(comm, Options(given)) for comm in comms]
    transports = [LoopbackTransport(context, group, noted) for context in contexts]

    def failed(rank: int, error: BaseException) -> None:
        transports[rank].abandon(failure_of_rank(error) or error)
        group.barrier.abort()

    # In tiny blocks a few rows take hundreds of steps.
    limit_s = 3 * LIMIT_S if case.budget else LIMIT_S
    ends = on_threads(case.nranks, lambda rank: work(rank, transports[rank]), failed, limit_s)
    for context in contexts:
        context.shutdown()
    return ends
