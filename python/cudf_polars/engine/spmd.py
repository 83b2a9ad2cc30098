"""The SPMD engine: the same script runs once per rank, and each process owns its part of the rows."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Self

import polars as pl
from rapidsmpf import bootstrap
from rapidsmpf.communicator import single
from rapidsmpf.config import Options, get_environment_variables, registered_options
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.utils.string import parse_duration

from cudf_polars.engine.core import ClusterInfo, StreamingEngine, check_reserved
from cudf_polars.engine.hardware_binding import bind_to_device
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.sinks import SinkTarget
from cudf_polars.execute.exchange import RapidsmpfTransport
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import QueryOutcome, run_query
from cudf_polars.streaming.actor_graph.collectives.common import next_op_ids

if TYPE_CHECKING:
    from polars import QueryOptFlags
    from rapidsmpf.communicator.communicator import Communicator

__all__ = ["SPMDEngine", "allgather_polars_dataframe"]


class SPMDEngine(StreamingEngine):
    """Runs Polars queries over the processes of an SPMD job.

    Under ``rrun`` the engine joins all ranks; otherwise it is one rank. ``collect`` returns this rank's part of
    the answer: the parts are disjoint, and joined in rank order they are the answer
    (see :func:`allgather_polars_dataframe`). All ranks must run the same queries in the same order; ranks whose
    queries differ all raise ``QueryMismatchError``.

    Parameters
    ----------
    comm
        A communicator to use; it stays open when the engine shuts down. By default the engine makes one.
    rapidsmpf_options, executor_options, engine_options
        Options by group, see :class:`StreamingOptions`. Explicit options go before environment variables.

    Raises
    ------
    TypeError
        If an option is unknown, reserved or has the wrong type.
    RankFailedError
        If another rank fails while the engine starts.
    TimeoutError
        If a rank does not start its engine within the option ``bootstrap_timeout``; the message names it.
    RuntimeError
        If this process cannot be bound to the hardware near its device, and ``hardware_binding`` says that this is an
        error.

    Examples
    --------
    >>> with SPMDEngine() as engine:
    ...     pl.LazyFrame({"a": [1, 2]}).select(pl.sum("a")).collect(engine=engine).item()
    3
    """

    def __init__(
        self,
        *,
        comm: Communicator | None = None,
        rapidsmpf_options: Mapping[str, Any] | Options | None = None,
        executor_options: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        check_reserved(executor_options, engine_options)
        given = (
            rapidsmpf_options.get_strings() if isinstance(rapidsmpf_options, Options) else rapidsmpf_options
        )
        known = {n for n, info in StreamingOptions.describe().items() if info.group == "rapidsmpf"}
        typed = {k: v for k, v in (given or {}).items() if k in known and not isinstance(v, str)}
        options = StreamingOptions.from_dict({**typed, **(executor_options or {}), **(engine_options or {})})
        # The C++ library knows more keys than the engine: what was given as strings goes through as it is.
        texts = {k: v for k, v in (given or {}).items() if isinstance(v, str)}
        self._start(comm, options, {**options.to_rapidsmpf_options(), **texts})

    @classmethod
    def from_options(cls, options: StreamingOptions, *, comm: Communicator | None = None) -> Self:
        """Make an engine from options.

        Parameters
        ----------
        options
            The options.
        comm
            A communicator to use, as for the constructor.
        """
        engine = cls.__new__(cls)
        engine._start(comm, options, options.to_rapidsmpf_options())
        return engine

    def _start(self, comm: Communicator | None, options: StreamingOptions, texts: dict[str, str]) -> None:
        bind_to_device(options.get("hardware_binding"))
        cpp_options = Options(texts)
        cpp_options.insert_if_absent(get_environment_variables())
        statistics = Statistics(bool(options.get("statistics")))
        self._owns_comm = comm is None
        if comm is None:
            progress = ProgressThread(statistics)
            if bootstrap.is_running_with_rrun():
                comm = bootstrap.create_ucxx_comm(progress_thread=progress, options=cpp_options)
            else:
                comm = single.new_communicator(cpp_options, progress)
        self._comm: Communicator | None = comm
        self._context: Context | None = Context.from_options(comm, cpp_options, statistics=statistics)
        self.last_query: QueryOutcome | None = None
        transport = RapidsmpfTransport(self._context, next_op_ids())
        local = json.dumps(asdict(ClusterInfo.local(_device_memory()))).encode()
        everyone = transport.allgather_bytes(local, op=0, timeout=_bootstrap_timeout(cpp_options))
        infos = [ClusterInfo(**json.loads(v)) for v in everyone]
        super().__init__(options, infos)
        self._execution_options = ExecutionOptions(
            fallback_mode=options.get("fallback_mode"),
            broadcast_limit=options.get("broadcast_limit") or ExecutionOptions.broadcast_limit,
            target_partition_size=options.get("target_partition_size")
            or ExecutionOptions.target_partition_size,
            max_rows_per_partition=options.get("max_rows_per_partition"),
        )

    @property
    def comm(self) -> Communicator:
        """The communicator; RuntimeError after shutdown."""
        self._check_open("comm")
        assert self._comm is not None
        return self._comm

    @property
    def context(self) -> Context:
        """The streaming context; RuntimeError after shutdown."""
        self._check_open("context")
        assert self._context is not None
        return self._context

    @property
    def rank(self) -> int:
        """This process's rank."""
        return self.comm.rank

    def __exit__(self, *exception: object) -> None:
        """Shut the engine down; if the block raised, the other ranks are told why before this one leaves."""
        error = exception[1] if len(exception) > 1 else None
        if isinstance(error, Exception) and self._owns_comm and not self._closed and self.nranks > 1:
            RapidsmpfTransport(self.context).abort(error)
        super().__exit__(*exception)

    def _close(self) -> None:
        # A communicator that the caller gave lives on with the caller; ours ends with its last user.
        if self._context is not None:
            self._context.shutdown()
        self._context = None
        self._comm = None

    def _transport(self) -> RapidsmpfTransport:
        return RapidsmpfTransport(self.context, next_op_ids())

    def _on_ranks(self, transport: RapidsmpfTransport, work: Callable[[], QueryOutcome]) -> QueryOutcome:
        """Run ``work``; if it fails here, the others' part of it fails too, and the engine goes on."""
        try:
            return work()
        except BaseException as error:
            transport.abandon(error)
            raise

    def _statistics_of_ranks(self, *, clear: bool) -> list[Statistics]:
        mine = self.context.statistics()
        values = mine.serialize()
        if clear:
            mine.clear()
        return [Statistics.deserialize(v) for v in self._transport().allgather_bytes(values, op=0)]

    def _run(self, lf: pl.LazyFrame, optimizations: QueryOptFlags) -> pl.DataFrame:
        transport = self._transport()
        outcome = self._on_ranks(
            transport,
            lambda: run_query(lf, transport, optimizations=optimizations, options=self._execution_options),
        )
        self.last_query = outcome
        return outcome.frame

    def _sink(
        self, lf: pl.LazyFrame, target: object, extension: str, optimizations: QueryOptFlags, **kwargs: Any
    ) -> None:
        transport = self._transport()

        def work() -> QueryOutcome:
            sink = SinkTarget.open(target, extension, transport)
            try:
                outcome = run_query(
                    lf, transport, optimizations=optimizations, options=self._execution_options
                )
                sink.write(outcome.frame, **kwargs)
                sink.commit()
            except BaseException:
                sink.discard()
                raise
            return outcome

        self.last_query = self._on_ranks(transport, work)


def _bootstrap_timeout(options: Options) -> float:
    default = next(o.default for o in registered_options() if o.key == "bootstrap_timeout")
    return options.get(
        "bootstrap_timeout", return_type=float, factory=lambda text: parse_duration(text or default)
    )


def _device_memory() -> int | None:
    from rapidsmpf.utils.system_info import get_device_memory

    return int(get_device_memory())


def allgather_polars_dataframe(*, engine: SPMDEngine, local_df: pl.DataFrame, op_id: int) -> pl.DataFrame:
    """Give every rank the rows of all ranks, in rank order.

    Parameters
    ----------
    engine
        The engine whose ranks take part; all of them must call this.
    local_df
        This rank's rows; the schema must be the same on all ranks, zero rows are fine.
    op_id
        The operation id, equal on all ranks: see ``reserve_op_id``.

    Returns
    -------
    pl.DataFrame
        The rows of rank 0, then those of rank 1, and so on.

    Raises
    ------
    RuntimeError
        If the engine is shut down.
    RankFailedError
        If another rank fails.
    """
    if engine.nranks == 1:
        engine.comm  # noqa: B018 - raises after shutdown
        return local_df.clone()
    transport = RapidsmpfTransport(engine.context)
    gathered = pl.DataFrame(transport.allgather(local_df, op=op_id))
    if gathered.schema != local_df.schema:
        warnings.warn(
            f"the ranks' frames have other column types than this one: {gathered.schema} and {local_df.schema}",
            stacklevel=2,
        )
    return gathered
