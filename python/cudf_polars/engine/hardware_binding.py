"""How a rank is bound to the hardware next to its device."""

from __future__ import annotations

import logging
import os
import threading
from dataclasses import dataclass

from rapidsmpf import bootstrap, topology

__all__ = ["HardwareBindingPolicy", "bind_to_device"]

_log = logging.getLogger(__name__)
_lock = threading.Lock()
_bound = False


@dataclass(frozen=True)
class HardwareBindingPolicy:
    """Which bindings an engine makes when it starts.

    A rank is bound to what is near to its GPU: the first of ``CUDA_VISIBLE_DEVICES``. Without a GPU nothing is nearer
    than the rest, and nothing is bound, except that the workers of a cluster that an engine made for itself get a
    share of the cores each. Under ``rrun`` the launcher has already given each rank its share.

    Attributes
    ----------
    skip_under_rrun
        Leave binding to the launcher.
    enabled
        Whether to bind at all.
    enable_once
        Bind once per process, not once per engine.
    raise_on_fail
        Raise RuntimeError when a binding fails, instead of going on without it.
    cpu
        All threads of the process run on the cores near the GPU.
    memory
        Memory comes first from the NUMA nodes of these cores.
    network
        UCX uses the InfiniBand devices near the GPU (``UCX_NET_DEVICES``, unless that is set).
    """

    skip_under_rrun: bool = True
    enabled: bool = True
    enable_once: bool = True
    raise_on_fail: bool = False
    cpu: bool = True
    memory: bool = True
    network: bool = False


def bind_to_device(policy: HardwareBindingPolicy, *, share: int | None = None, nshares: int = 1) -> None:
    """Bind this process as a policy says.

    Parameters
    ----------
    policy
        What to bind, and when.
    share, nshares
        Without a GPU, take this one of as many equal shares of the cores that the process may use; None: all of them.

    Raises
    ------
    RuntimeError
        If a binding fails and the policy wants to know.
    """
    global _bound
    if not policy.enabled or (policy.skip_under_rrun and bootstrap.is_running_with_rrun()):
        return
    with _lock:
        if policy.enable_once and _bound:
            return
        _bound = True
        try:
            _bind(policy, share, nshares)
        except OSError as error:
            if policy.raise_on_fail:
                raise RuntimeError(
                    f"hardware binding failed: {error}. Use HardwareBindingPolicy(enabled=False), or turn off the part"
                    " that this machine or container does not allow."
                ) from error
            _log.info("hardware binding failed: %s", error)


def _bind(policy: HardwareBindingPolicy, share: int | None, nshares: int) -> None:
    found = topology.find_device_binding()
    if found is None and share is not None:
        found = topology.plan_shares(nshares)[share]
    if found is None:
        return
    if policy.network and found.network_devices:
        os.environ.setdefault("UCX_NET_DEVICES", ",".join(found.network_devices))
    if policy.cpu:
        topology.bind_cpus(found.cpus)
    if policy.memory:
        topology.prefer_memory_of(found.memory_nodes)
