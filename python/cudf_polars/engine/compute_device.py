"""Which compute device a rank has: a GPU, by the operators over libcudf, or the CPU, by Polars."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rapidsmpf.utils.system_info import get_device_name, get_num_gpus, prefer_cpu

from cudf_polars.engine.memory_resource import rmm_resource
from cudf_polars.execute.cpu import CpuDevice
from cudf_polars.lower.user_code import user_stacklevel

if TYPE_CHECKING:
    from rapidsmpf.memory.buffer_resource import BufferResource
    from rapidsmpf.streaming.core.context import Context

    from cudf_polars.engine.options import StreamingOptions
    from cudf_polars.execute.fragments import ComputeDevice
    from cudf_polars.execute.gpu.run import Operators

__all__ = [
    "choose_device",
    "gpu_memory",
    "gpu_unavailable",
    "has_gpu",
    "open_compute_device",
    "open_gpu",
    "open_operators",
]

_INSTALL = "pip install 'libcudf-cu13==26.10.*'"


def choose_device(options: StreamingOptions) -> None:
    """Have this process's memory and exchanges be those of the host if its queries cannot run on a GPU, or are not to.

    Else the budget would be the GPU's memory, while Polars takes that of the host. To be called before anything of the
    library is used.

    Parameters
    ----------
    options
        Of these, ``compute_device`` counts.

    Warns
    -----
    UserWarning
        If that is too late: the process has used its GPU.
    """
    wanted = options.get("compute_device")
    if wanted == "gpu" or (wanted == "auto" and _missing_for_gpu() is None):
        return
    if not prefer_cpu() and os.environ.get("RAPIDSMPF_DEVICE") != "cuda":
        warnings.warn(
            "Queries run on the CPU, but this process has used its GPU before: the budget of memory is the GPU's, not"
            " the host's. Make the engine first, or set RAPIDSMPF_DEVICE=cpu.",
            stacklevel=user_stacklevel(),
        )


@contextmanager
def gpu_memory(options: StreamingOptions) -> Iterator[None]:
    """Have RMM draw on the resource of ``memory_resource_config`` in this block, if a rank in it computes on a GPU.

    To be entered before the rank's memory is made, and left when the rank is closed.

    Raises
    ------
    ImportError
        If the package ``rmm`` is not installed.
    TypeError, ValueError
        If the option describes no resource.
    RuntimeError
        If the resource cannot be made, or this process's GPU is in use with another one.
    """
    if options.get("compute_device") == "cpu" or gpu_unavailable() is not None:
        yield
        return
    with rmm_resource(options.get("memory_resource_config")):
        yield


def open_compute_device(
    options: StreamingOptions, context: Context, settings: Mapping[str, Any]
) -> ComputeDevice:
    """Return the compute device of a rank.

    Parameters
    ----------
    options
        Of these, ``compute_device`` and ``raise_on_fail`` count.
    context
        Has the rank's memory.
    settings
        Of the operators on a GPU, by :func:`~cudf_polars.engine.gpu_options.runtime_settings`.

    Raises
    ------
    RuntimeError
        If ``compute_device`` is ``"gpu"`` and no query can run on one, with the reason.

    Warns
    -----
    UserWarning
        If ``compute_device`` is ``"auto"`` and there is a GPU that no query can run on.
    """
    wanted = options.get("compute_device")
    if wanted == "cpu":
        return CpuDevice()
    reason = gpu_unavailable()
    if reason is None:
        from cudf_polars.execute.gpu.warm_up import warm_up

        device = open_gpu(context.br(), settings, raise_on_fail=options.get("raise_on_fail"))
        warm_up(device)
        return device
    if wanted == "gpu":
        raise RuntimeError(f"compute_device='gpu': {reason}")
    if _may_use_gpus():
        warnings.warn(
            f"Queries run on the CPU: {reason}. Set compute_device='cpu' to hide this.",
            stacklevel=user_stacklevel(),
        )
    return CpuDevice()


def has_gpu() -> bool:
    """Whether the compute device of this process is a GPU."""
    return get_device_name() != "cpu"


def _may_use_gpus() -> bool:
    return os.environ.get("RAPIDSMPF_DEVICE") != "cpu" and get_num_gpus() > 0


def gpu_unavailable() -> str | None:
    """Return why no query can run on a GPU in this process, or ``None`` if it can."""
    reason = _missing_for_gpu()
    if reason is None and not has_gpu():
        return "the compute device of this process is the CPU, for an engine before had compute_device='cpu'"
    return reason


@functools.cache
def _missing_for_gpu() -> str | None:
    """Return what queries on a GPU need and this machine lacks; does not choose the device of this process."""
    if not _may_use_gpus():
        return "the compute device of this process is the CPU (no usable GPU, or RAPIDSMPF_DEVICE=cpu)"
    try:
        libcudf = importlib.import_module("libcudf")
    except ImportError:
        return f"libcudf is not installed ({_INSTALL})"
    libcudf.load_library()
    try:
        importlib.import_module("rapidsmpf.compute")
    except ImportError as error:
        return f"the operators over libcudf cannot be loaded: {error}"
    return None


def open_gpu(
    br: BufferResource, settings: Mapping[str, Any] | None = None, *, raise_on_fail: bool = False
) -> ComputeDevice:
    """Return this process's GPU as a compute device; :func:`gpu_unavailable` must have said that there is one."""
    from cudf_polars.execute.gpu.run import GpuDevice

    return GpuDevice(open_operators(br, settings or {}), raise_on_fail=raise_on_fail)


def open_operators(br: BufferResource, settings: Mapping[str, Any]) -> Operators:
    """Return the operators over libcudf on this process's GPU, with these arguments of their runtime."""
    from rapidsmpf.compute import Runtime

    from cudf_polars.execute.gpu.run import Operators

    return Operators(Runtime(br, **settings))
