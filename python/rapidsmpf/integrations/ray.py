"""Actors of Ray that share a UCXX communicator.

Subclass :class:`RapidsMPFActor`, decorate the class with ``ray.remote``, and let :func:`setup_ray_ucxx_cluster` start
the actors and connect them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rapidsmpf.communicator import ucxx
from rapidsmpf.config import Options
from rapidsmpf.integrations.context import memory_domain, with_environment
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.statistics import Statistics

try:
    import ray
except ImportError as error:
    raise ImportError("this needs Ray: pip install ray") from error

if TYPE_CHECKING:
    from rapidsmpf.communicator.communicator import Communicator
    from ray.actor import ActorClass, ActorHandle

__all__ = ["RapidsMPFActor", "setup_ray_ucxx_cluster"]

_SECONDS = 120.0


class RapidsMPFActor:
    """Base of actors that are ranks of a communicator.

    Parameters
    ----------
    nranks
        Number of actors.
    statistics
        Where to record what happens; None: nowhere.

    Examples
    --------
    >>> @ray.remote(num_cpus=1)  # doctest: +SKIP
    ... class Worker(RapidsMPFActor):
    ...     def describe(self):
    ...         return f"rank {self.rank()} of {self.nranks()}"
    >>> actors = setup_ray_ucxx_cluster(Worker, 2)  # doctest: +SKIP
    >>> ray.get([actor.describe.remote() for actor in actors])  # doctest: +SKIP
    ['rank 0 of 2', 'rank 1 of 2']
    """

    def __init__(self, nranks: int, statistics: Statistics | None = None) -> None:
        if nranks < 1:
            raise ValueError(f"nranks must be at least 1, got {nranks}")
        self._nranks = nranks
        self._statistics = Statistics(False) if statistics is None else statistics
        self._comm: Communicator | None = None
        self._one_host = False

    def memory_domain(self) -> tuple[str, ...]:
        """Return a value that is equal for actors that can share memory."""
        return memory_domain()

    def stay_on_one_host(self) -> None:
        """Know, before the actor is connected, that all can share memory: it opens no port."""
        self._one_host = True

    def setup_root(self) -> tuple[int, bytes]:
        """Become the root.

        Returns
        -------
        rank
            0.
        root_address_bytes
            What the others need for :meth:`setup_worker`.

        Raises
        ------
        RuntimeError
            If the actor is connected already.
        """
        comm = self._connect(None)
        return comm.rank, ucxx.get_root_ucxx_address(comm)

    def setup_worker(self, root_address_bytes: bytes) -> None:
        """Join the root, which calls this, too; returns when all actors have.

        Parameters
        ----------
        root_address_bytes
            The address of the root.

        Raises
        ------
        TimeoutError
            If some actor does not come.
        """
        comm = self._comm if self._comm is not None else self._connect(root_address_bytes)
        ucxx.barrier(comm, timeout=_SECONDS)

    def _connect(self, root: bytes | None) -> Communicator:
        if self._comm is not None:
            raise RuntimeError("this actor is connected already")
        options = with_environment(Options())
        if self._one_host:
            options.insert_if_absent({"ucxx_reach": "one-host"})
        # Ranks on other hosts notice the end of this one by a connection to this address.
        address = ray.util.get_node_ip_address()
        if not self._one_host and not address.startswith("127."):
            options.insert_if_absent({"coordinator_host": address})
        progress = ProgressThread(self._statistics)
        self._comm = ucxx.new_communicator(self._nranks, None, root, options, progress)
        return self._comm

    @property
    def comm(self) -> Communicator:
        """The communicator, for methods of the actor: it cannot be sent to the client.

        Raises
        ------
        RuntimeError
            If the actor is not connected yet.
        """
        if self._comm is None:
            raise RuntimeError("this actor is not connected: use setup_ray_ucxx_cluster()")
        return self._comm

    @property
    def statistics(self) -> Statistics:
        """Where what happens is recorded."""
        return self._statistics

    def is_initialized(self) -> bool:
        """Whether the actor is connected."""
        return self._comm is not None

    def rank(self) -> int:
        """Return the actor's rank; RuntimeError if it is not connected."""
        return self.comm.rank

    def nranks(self) -> int:
        """Return the number of ranks; RuntimeError if the actor is not connected."""
        return self.comm.nranks

    def to_string(self) -> str:
        """Return a description of the actor; RuntimeError if it is not connected."""
        return f"{type(self).__name__}({self.comm.get_str()})"


def setup_ray_ucxx_cluster(
    actor_cls: ActorClass[Any], num_workers: int, *args: Any, **kwargs: Any
) -> list[ActorHandle]:
    """Start actors and connect them.

    Parameters
    ----------
    actor_cls
        A remote subclass of :class:`RapidsMPFActor`, whose first argument is the number of ranks.
    num_workers
        Number of actors.
    *args, **kwargs
        More arguments of the class.

    Returns
    -------
    The actors, by rank.

    Raises
    ------
    ValueError
        If ``num_workers`` is less than 1.
    ray.exceptions.RayError
        If an actor fails.
    """
    if num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, got {num_workers}")
    actors = [actor_cls.remote(num_workers, *args, **kwargs) for _ in range(num_workers)]
    try:
        domains = ray.get([actor.memory_domain.remote() for actor in actors])
        if len(set(domains)) == 1:
            ray.get([actor.stay_on_one_host.remote() for actor in actors])
        _, root_address = ray.get(actors[0].setup_root.remote())
        ray.get([actor.setup_worker.remote(root_address) for actor in actors])
        ranks = ray.get([actor.rank.remote() for actor in actors])
    except BaseException:
        for actor in actors:
            ray.kill(actor)
        raise
    return [actor for _, actor in sorted(zip(ranks, actors, strict=True), key=lambda pair: int(pair[0]))]
