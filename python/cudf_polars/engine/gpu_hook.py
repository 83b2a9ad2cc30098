"""``collect(engine="gpu")`` and ``pl.GPUEngine``: Polars shows its plan, and what this returns takes the plan's place.

One process, one GPU, no other ranks: the operators are those that the engines use. What has no form on a GPU is run by
Polars, part by part, with one warning; without a usable GPU Polars runs the whole query.
"""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import polars as pl
from rapidsmpf.communicator.single import new_communicator
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.streaming.core.context import Context

from cudf_polars.engine.compute_device import gpu_unavailable, open_operators
from cudf_polars.engine.gpu_options import runtime_settings
from cudf_polars.engine.memory_resource import check_resource, rmm_resource
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.lower.fallback import HostStepWarning, warn_of_host_steps
from cudf_polars.lower.user_code import user_stacklevel
from cudf_polars.plan.read import UnreadablePlanError, read_traverser

if TYPE_CHECKING:
    from cudf_polars.execute.gpu.run import GpuDevice

__all__ = ["execute_with_cudf"]

_ENGINE_OPTIONS = {"keep_decoded_columns", "memory_resource_config", "parquet_options"}
"""What means the same as among an engine's options."""

_EXECUTOR_OPTIONS = {"max_concurrent_io_tasks"}
"""Of ``executor_options``, what means the same here. Others are for several ranks."""

_CONFIG = {"raise_on_fail", "executor", "executor_options", *_ENGINE_OPTIONS}
"""What ``pl.GPUEngine`` may be given besides its own parameters."""


def execute_with_cudf(
    traverser: Any, duration_since_start: int | None = None, *, config: pl.GPUEngine
) -> None:
    """Run a query on the GPU of this process: what Polars calls for ``engine="gpu"``.

    Parameters
    ----------
    traverser
        Polars' view of the optimised plan. It is told what to call in the plan's place, or left alone: then Polars
        runs the query.
    duration_since_start
        Not used.
    config
        The engine.

    Raises
    ------
    NotImplementedError
        With ``raise_on_fail=True``, if a part of the query cannot run on the GPU, with the reasons.
    TypeError
        If ``config`` has an option that is not known, or of the wrong type.
    ValueError
        If an option has a value that cannot be used.

    Warns
    -----
    HostStepWarning
        Once, of what runs on the CPU.
    """
    del duration_since_start
    options: Mapping[str, Any] = config.config
    for name in options:
        if name not in _CONFIG:
            raise TypeError(f"pl.GPUEngine: unknown option {name!r}; there are {', '.join(sorted(_CONFIG))}")
    raise_on_fail = bool(options.get("raise_on_fail", False))
    gpu_options = _gpu_options(options)
    resource = gpu_options.get("memory_resource_config")
    if config.memory_resource is not None and resource is not None:
        raise ValueError("pl.GPUEngine: give it memory_resource or memory_resource_config, not both")
    reason = _unusable(config)
    if reason is None and config.memory_resource is not None:
        resource = check_resource("pl.GPUEngine: memory_resource", config.memory_resource)
    if reason is None:
        try:
            root = read_traverser(traverser)
        except UnreadablePlanError as error:
            reason = str(error)
    if reason is not None:
        if raise_on_fail:
            raise NotImplementedError(f"engine='gpu': {reason} (raise_on_fail=True)")
        warnings.warn(
            f"engine='gpu': Polars runs this query on the CPU: {reason}.",
            HostStepWarning,
            stacklevel=user_stacklevel(),
        )
        return
    if raise_on_fail:
        from cudf_polars.execute.gpu.translate import refusals

        if found := refusals(root):
            texts = dict.fromkeys(str(refusal) for refusal in found)
            raise NotImplementedError(f"engine='gpu': {'; '.join(texts)} (raise_on_fail=True)")
    gpu = _open_gpu(gpu_options, resource)

    def run(
        with_columns: list[str] | None, predicate: Any, n_rows: int | None, should_time: bool = False
    ) -> Any:
        if predicate is not None:
            raise NotImplementedError(
                "Polars asks the GPU engine to filter, which it does not in version 2.1"
            )
        device = gpu.device(raise_on_fail=raise_on_fail)
        frame = device.collect_plan(root)
        if steps := device.take_host_steps():
            warn_of_host_steps(tuple(dict.fromkeys(steps)))
        if with_columns is not None:
            frame = frame.select(with_columns)
        if n_rows is not None:
            frame = frame.head(n_rows)
        return (frame, []) if should_time else frame

    traverser.set_udf(run)


def _unusable(config: pl.GPUEngine) -> str | None:
    if config.device not in (None, 0):
        return f"device={config.device} is not this process's; choose one by CUDA_VISIBLE_DEVICES"
    return gpu_unavailable()


def _gpu_options(config: Mapping[str, Any]) -> StreamingOptions:
    """Return what the options of ``pl.GPUEngine`` and the environment say of a GPU."""
    executor = config.get("executor_options")
    groups = {
        "executor_options": (executor if isinstance(executor, Mapping) else {}, _EXECUTOR_OPTIONS),
        "pl.GPUEngine": (config, _ENGINE_OPTIONS),
    }
    return StreamingOptions.from_groups(
        {},
        {
            group: {name: value for name, value in given.items() if name in known}
            for group, (given, known) in groups.items()
        },
    )


class _Gpu:
    """The operators of this process outside of engines, with settings of their own.

    They end with the last reference to this, so that a query which runs has them although another has other settings.
    """

    def __init__(self, settings: Mapping[str, Any], resource: Mapping[str, Any] | object | None) -> None:
        self.settings = (settings, resource)
        with ExitStack() as opened:
            opened.enter_context(rmm_resource(resource))
            self._operators = open_operators(_context().br(), settings)
            opened.callback(self._operators.close)
            # Not at the end of the process, in which daemon threads may be running queries.
            weakref.finalize(self, opened.pop_all().close).atexit = False

    def device(self, *, raise_on_fail: bool) -> GpuDevice:
        from cudf_polars.execute.gpu.run import GpuDevice

        return GpuDevice(self._operators, raise_on_fail=raise_on_fail)


_lock = threading.Lock()
_newest: list[_Gpu] = []
"""At most one."""


def _open_gpu(options: StreamingOptions, resource: Mapping[str, Any] | object | None) -> _Gpu:
    """Return the operators with the settings that options ask for; those with others give their memory up."""
    settings = runtime_settings(options, options.to_rapidsmpf_options())
    with _lock:
        if not _newest or _newest[0].settings != (settings, resource):
            _newest.clear()
            _newest.append(_Gpu(settings, resource))
        return _newest[0]


@functools.cache
def _context() -> Context:
    """Return the memory and threads of this process's queries outside of engines."""
    options = Options(get_environment_variables())
    return Context.from_options(new_communicator(options), options)
