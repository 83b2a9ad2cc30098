"""The engine on a Dask cluster: each worker of the cluster is a rank, and the script is the client.

Ranks live in the workers, beside whatever Dask runs there, and talk to each other without Dask; the client reaches
them through the scheduler. ``--preload-nanny cudf_polars.engine.dask`` gives each worker that is started from the
command line its GPU, or its share of the cores.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rapidsmpf.config import Options

from cudf_polars.engine.cluster import ClusterEngine, Lost, Question, refuse_rrun
from cudf_polars.engine.local_workers import plan_workers
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.rank_settings import RankSettings, resolve_options

try:
    import distributed  # noqa: F401 - the modules below need it
except ImportError as error:
    raise ImportError("DaskEngine needs Dask: pip install dask distributed") from error
from cudf_polars.engine.dask_client import Workers
from cudf_polars.engine.dask_own_cluster import start_own_cluster
from cudf_polars.engine.dask_worker import dask_setup

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DaskEngine", "dask_setup"]


class DaskEngine(ClusterEngine):
    """Runs Polars queries on the workers of a Dask cluster; ``collect`` returns the whole answer to this process.

    Each worker is a rank. Files are read by the workers; in-memory frames are split over them by position. Sinks write
    on the workers, one file each. Queries run beside Dask's own tasks; several engines, also of different clients,
    can use one cluster at the same time. Workers that join later are used by the next engine.

    Parameters
    ----------
    dask_client
        The client of a running cluster. It and the cluster stay as they are when the engine shuts down. By default, the
        engine makes a cluster on this machine and ends it: one worker for each visible GPU, or without any one for each
        NUMA node.
    n_workers
        How many workers the engine's own cluster has instead; each gets an equal share of the machine.
    rapidsmpf_options, executor_options, engine_options
        Options by group, see :class:`~cudf_polars.engine.options.StreamingOptions`.

    Raises
    ------
    TypeError
        If an option is unknown, reserved or has the wrong type; or if the client is asynchronous.
    ValueError
        If both a client and a number of workers are given, or an option has a value that cannot be used.
    RuntimeError
        In a process of an rrun cluster; if the cluster has no workers; or if they have another Polars.
    TimeoutError
        If a worker does not start within the option ``bootstrap_timeout``.

    Examples
    --------
    >>> with DaskEngine() as engine:  # doctest: +SKIP
    ...     pl.LazyFrame({"a": [1, 2]}).select(pl.sum("a")).collect(engine=engine).item()
    3
    """

    def __init__(
        self,
        *,
        dask_client: Client | None = None,
        n_workers: int | None = None,
        rapidsmpf_options: Mapping[str, Any] | Options | None = None,
        executor_options: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = resolve_options(rapidsmpf_options, executor_options, engine_options)
        self._start(settings, dask_client, n_workers)

    @classmethod
    def from_options(
        cls, options: StreamingOptions, *, dask_client: Client | None = None, n_workers: int | None = None
    ) -> Self:
        """Make an engine from options.

        Parameters
        ----------
        options
            The options.
        dask_client, n_workers
            As for the constructor.
        """
        engine = cls.__new__(cls)
        engine._start(RankSettings(options), dask_client, n_workers)
        return engine

    def _start(self, settings: RankSettings, client: Client | None, n_workers: int | None) -> None:
        refuse_rrun("DaskEngine")
        with contextlib.ExitStack() as stack:
            ours = client is None
            if client is None:
                client = start_own_cluster(stack, plan_workers(n_workers))
            elif n_workers is not None:
                raise ValueError(
                    "n_workers is for a cluster of the engine's own: leave it out with dask_client"
                )
            elif client.asynchronous:
                raise TypeError(
                    "DaskEngine needs a synchronous client: distributed.Client(asynchronous=False)"
                )
            workers = Workers(client)
            try:
                addresses, infos = workers.start(settings, ours=ours)
            except BaseException as error:
                workers.leave(f"the engine did not start: {type(error).__name__}: {error}")
                raise
            stack.callback(workers.leave)
            super().__init__(settings.options, [f"worker {address}" for address in addresses], infos)
            self._workers = workers
            self._resources = stack.pop_all()

    def _ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> Sequence[bytes | Lost]:
        return self._workers.ask(query, arguments, stop)

    def _close(self) -> None:
        self._resources.close()
