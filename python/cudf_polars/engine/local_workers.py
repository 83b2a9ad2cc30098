"""How a machine is shared among workers that are started on it: a GPU each, or a part of its cores."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Nanny

__all__ = ["plan_workers", "share_of_nanny", "visible_gpus"]


def visible_gpus() -> list[str]:
    """Return the GPUs that a process started here would see, as ``CUDA_VISIBLE_DEVICES`` names them."""
    if os.environ.get("RAPIDSMPF_DEVICE") == "cpu":
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() not in ("", "-1")]
    try:
        import pynvml
    except ImportError:
        return []
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        return [str(i) for i in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def plan_workers(n_workers: int | None) -> list[dict[str, str]]:
    """Return the environment of each worker of this machine.

    Parameters
    ----------
    n_workers
        How many; None: one for each visible GPU, or without any one for each NUMA node whose cores may be used.

    Raises
    ------
    ValueError
        If ``n_workers`` is less than 1.
    """
    gpus = visible_gpus()
    if n_workers is None:
        n_workers = len(gpus) or _count_numa_nodes()
    if n_workers < 1:
        raise ValueError(f"n_workers must be at least 1, got {n_workers}")
    return [_environment(i, n_workers, gpus) for i in range(n_workers)]


def share_of_nanny(nanny: Nanny) -> dict[str, str]:
    """Return the environment for a nanny's worker: its share among the nannies of this process."""
    nannies = sorted(type(nanny)._instances, key=lambda each: str(each.name))
    return _environment(nannies.index(nanny), len(nannies), visible_gpus())


def _environment(index: int, count: int, gpus: list[str]) -> dict[str, str]:
    threads = max(1, len(os.sched_getaffinity(0)) // count)
    environment = {"POLARS_MAX_THREADS": os.environ.get("POLARS_MAX_THREADS", str(threads))}
    if gpus:
        environment["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
    return environment


def _count_numa_nodes() -> int:
    """Return how many NUMA nodes have cores that this process may use; at least 1."""
    usable = os.sched_getaffinity(0)
    lists = Path("/sys/devices/system/node").glob("node[0-9]*/cpulist")
    return max(1, sum(bool(usable & _read_list(path.read_text())) for path in lists))


def _read_list(text: str) -> set[int]:
    """Read a list of the kernel's, such as ``0-3,8``."""
    numbers: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers
