"""The engine on a Ray cluster: each rank is an actor, and the script is the client.

The actors belong to the client's job: Ray ends them when the client goes away.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import pickle
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from rapidsmpf.config import Options
from rapidsmpf.integrations.context import memory_domain

from cudf_polars.engine.cluster import ClusterEngine, GivenUp, Lost, Question, refuse_rrun, wait_for_any
from cudf_polars.engine.core import ClusterInfo
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.engine.rank_host import RankHost, RankPlan
from cudf_polars.engine.rank_settings import RankSettings, resolve_options
from cudf_polars.engine.ray_own_cluster import start_ray
from cudf_polars.engine.relay import remote_error, run_captured

try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError as error:
    raise ImportError("RayEngine needs Ray: pip install ray") from error

if TYPE_CHECKING:
    from ray.actor import ActorHandle

__all__ = ["RayEngine"]

_PLACE_SECONDS = 120.0
"""How long to wait for Ray to start the actors."""
_CLOSE_SECONDS = 15.0
"""How long an actor may take to leave an engine that shuts down."""


class _RankActor:
    """A rank. Several of its methods may run at once: a query, and giving it up. All answer by a pickled reply."""

    def __init__(self) -> None:
        self._host: RankHost | None = None

    def describe(self) -> bytes:
        return run_captured(lambda: (memory_domain(), ray.util.get_node_ip_address()))

    def make_root(self, plan: RankPlan) -> bytes:
        host = self._host = RankHost(plan)
        return run_captured(lambda: host.submit(host.make_root).result())

    def join(self, plan: RankPlan, root: bytes) -> bytes:
        host = self._host = self._host or RankHost(plan)
        return run_captured(lambda: host.submit(lambda: host.join(root)).result())

    def run(self, query: Question, arguments: tuple[Any, ...]) -> bytes:
        assert self._host is not None
        return self._host.submit_query(query.epoch, query.place, query.method, arguments).result()

    def abandon(self, epoch: int, reason: str) -> None:
        if self._host is not None:
            self._host.abandon(epoch, KeyboardInterrupt(reason))

    def leave(self, reason: str | None) -> None:
        if self._host is not None:
            self._host.close(reason)


def nodes_with(resource: str) -> list[dict[str, Any]]:
    """Return the living nodes of the cluster that have some of a resource; all if none has."""
    living = [node for node in ray.nodes() if node["Alive"]]
    return [node for node in living if node["Resources"].get(resource, 0) > 0] or living


def _on_node(node: Mapping[str, Any]) -> NodeAffinitySchedulingStrategy:
    # With soft=True others come into question when an actor does not start there at once.
    return NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)


class _Actors:
    """The actors of an engine.

    Parameters
    ----------
    num_ranks
        How many; None: one for each GPU of the cluster, or without any one for each node.
    share_gpus
        Whether several may use one GPU.
    stack
        Undoes what is made here.
    """

    def __init__(self, num_ranks: int | None, share_gpus: bool, stack: contextlib.ExitStack) -> None:
        gpus = int(ray.cluster_resources().get("GPU", 0))
        nodes = nodes_with("GPU" if gpus else "CPU")
        if num_ranks is None:
            num_ranks = gpus or len(nodes)
        if gpus and num_ranks > gpus and not share_gpus:
            raise ValueError(
                f"num_ranks={num_ranks} is more than the {gpus} GPUs of the Ray cluster; engine_options"
                " allow_gpu_sharing=True lets ranks share GPUs"
            )
        on_a_node = -(-num_ranks // len(nodes))
        cpus = int(min(node["Resources"].get("CPU", 0) for node in nodes) / on_a_node)
        room = ray.available_resources().get("CPU", 0) >= cpus * num_ranks
        # Cores that other work has are shared with it: queries of several engines run beside each other.
        reserved = cpus if room else 0
        actor = ray.remote(_RankActor)
        options: dict[str, Any] = {
            "num_cpus": reserved,
            "num_gpus": min(1.0, gpus / num_ranks),
            "max_concurrency": 4,
            "max_restarts": 0,
            "runtime_env": {"env_vars": {"POLARS_MAX_THREADS": str(max(1, cpus))}},
        }
        self.actors: list[ActorHandle] = []
        for rank in range(num_ranks):
            # What reserves nothing would be put on any node, also on a head that is there for Ray alone.
            place = "SPREAD" if gpus or reserved else _on_node(nodes[rank % len(nodes)])
            handle = actor.options(scheduling_strategy=place, **options).remote()
            stack.callback(ray.kill, handle)
            self.actors.append(handle)

    def start(self, settings: RankSettings, *, ours: bool) -> tuple[list[str], list[ClusterInfo]]:
        """Make the actors ranks; returns their names and where they run, by rank.

        If the cluster is the engine's own (``ours``), each gets cores of its own.
        """
        described = [actor.describe.remote() for actor in self.actors]
        ready, missing = ray.wait(described, num_returns=len(described), timeout=_PLACE_SECONDS)
        if missing:
            raise RuntimeError(
                f"Ray started {len(ready)} of {len(described)} ranks within {_PLACE_SECONDS:.0f} s; it has room for"
                f" {ray.available_resources()}. Pass num_ranks, or wait until other work has ended."
            )
        found = self._values(described)
        one_host = len({domain for domain, _ in found}) == 1
        per_host = Counter(domain[0] for domain, _ in found)
        seen: Counter[str] = Counter()
        plans = []
        for (host, *_), address in found:
            plan = RankPlan(
                settings,
                len(self.actors),
                per_host[host],
                share=seen[host] if ours else None,
                one_host=one_host,
                address=None if one_host else address,
            )
            seen[host] += 1
            plans.append(plan)
        (root,) = self._values([self.actors[0].make_root.remote(plans[0])])
        joins = zip(self.actors, plans, strict=True)
        joined = self._values([actor.join.remote(plan, root) for actor, plan in joins])
        order = sorted(range(len(joined)), key=lambda i: int(joined[i][0]))
        infos = [joined[i][1] for i in order]
        names = [f"Ray actor of process {info.pid} on {info.hostname}" for info in infos]
        self.actors = [self.actors[i] for i in order]
        return names, infos

    def _values(self, calls: Sequence[Any]) -> list[Any]:
        """Return values of replies, in order; raises the first error (in time)."""
        values: dict[Any, Any] = {}
        waiting = list(calls)
        while waiting:
            (done,), waiting = ray.wait(waiting, num_returns=1)
            reply = pickle.loads(ray.get(done))
            if reply.error is not None:
                raise remote_error(f"the Ray actor of rank {calls.index(done)}", reply)
            values[done] = reply.value
        return [values[call] for call in calls]

    def ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> list[bytes | Lost]:
        """Call a method of all ranks; an actor that dies has its calls fail at once. Raises GivenUp after ``stop``."""
        pairs = zip(self.actors, arguments, strict=True)
        calls = [actor.run.remote(query, given) for actor, given in pairs]
        try:
            waiting = {call.future() for call in calls}
            while waiting and not stop.done():
                wait_for_any([stop, *waiting])
                waiting = {call for call in waiting if not call.done()}
            if stop.done():
                raise GivenUp
            return [self._answer(call) for call in calls]
        except BaseException as error:
            # The user's Ctrl-C, say: nobody waits for the answer any more.
            reason = f"the client gave the query up ({type(error).__name__})"
            for actor in self.actors:
                actor.abandon.remote(query.epoch, reason)
            raise

    def _answer(self, call: Any) -> bytes | Lost:
        try:
            return ray.get(call)  # type: ignore[no-any-return]
        except ray.exceptions.RayActorError as error:
            return Lost(" ".join(str(error).split()))

    def leave(self, reason: str | None = None) -> None:
        """Let the ranks go, all at once; those that are gone do not matter."""
        calls = [actor.leave.remote(reason) for actor in self.actors]
        if calls:
            ray.wait(calls, num_returns=len(calls), timeout=_CLOSE_SECONDS)


class RayEngine(ClusterEngine):
    """Runs Polars queries on actors of a Ray cluster; ``collect`` returns the whole answer to this process.

    Each actor is a rank; they are distributed over the nodes. Files are read by the actors; in-memory frames are split
    over them by position. Sinks write on the actors, one file each.

    Parameters
    ----------
    ray_init_options
        Arguments of ``ray.init``, which is called if Ray is not initialised; then it is shut down with the engine.
    num_ranks
        Number of actors. By default one for each GPU of the cluster, or without any one for each node, with all its
        cores.
    rapidsmpf_options, executor_options, engine_options
        Options by group, see :class:`~cudf_polars.engine.options.StreamingOptions`.

    Raises
    ------
    TypeError
        If an option is unknown, reserved or has the wrong type.
    ValueError
        If ``num_ranks`` is less than 1, or more than the GPUs unless ranks may share these; or if an option has a value
        that cannot be used.
    RuntimeError
        In a process of an rrun cluster, or if Ray has no room for the actors.
    TimeoutError
        If an actor does not start within the option ``bootstrap_timeout``.

    Examples
    --------
    >>> with RayEngine() as engine:  # doctest: +SKIP
    ...     pl.LazyFrame({"a": [1, 2]}).select(pl.sum("a")).collect(engine=engine).item()
    3
    """

    def __init__(
        self,
        *,
        ray_init_options: Mapping[str, Any] | None = None,
        num_ranks: int | None = None,
        rapidsmpf_options: Mapping[str, Any] | Options | None = None,
        executor_options: Mapping[str, Any] | None = None,
        engine_options: Mapping[str, Any] | None = None,
    ) -> None:
        settings = resolve_options(rapidsmpf_options, executor_options, engine_options)
        self._start(settings, ray_init_options, num_ranks)

    @classmethod
    def from_options(
        cls,
        options: StreamingOptions,
        *,
        ray_init_options: Mapping[str, Any] | None = None,
        num_ranks: int | None = None,
    ) -> Self:
        """Make an engine from options.

        Parameters
        ----------
        options
            The options.
        ray_init_options, num_ranks
            As for the constructor.
        """
        engine = cls.__new__(cls)
        settings = RankSettings(options)
        engine._start(settings, ray_init_options, num_ranks)
        return engine

    def _start(
        self, settings: RankSettings, ray_init_options: Mapping[str, Any] | None, num_ranks: int | None
    ) -> None:
        refuse_rrun("RayEngine")
        if num_ranks is not None and num_ranks < 1:
            raise ValueError(f"num_ranks must be at least 1, got {num_ranks}")
        with contextlib.ExitStack() as stack:
            ours = not ray.is_initialized()
            if ours:
                start_ray(stack, ray_init_options or {})
            actors = _Actors(num_ranks, bool(settings.options.get("allow_gpu_sharing")), stack)
            names, infos = actors.start(settings, ours=ours)
            stack.callback(actors.leave)
            super().__init__(settings.options, names, infos)
            self._actors = actors
            self._resources = stack.pop_all()

    @property
    def rank_actors(self) -> list[ActorHandle]:
        """The actors, by rank; RuntimeError after shutdown."""
        self._check_open("rank_actors")
        return list(self._actors.actors)

    def _ask(
        self,
        query: Question,
        arguments: Sequence[tuple[Any, ...]],
        stop: concurrent.futures.Future[None],
    ) -> Sequence[bytes | Lost]:
        return self._actors.ask(query, arguments, stop)

    def _close(self) -> None:
        self._resources.close()
