"""``collect(engine="gpu")`` and ``pl.GPUEngine``: Polars shows its plan, and what this returns takes the plan's place.

One process, one GPU, no other ranks: the operators are those that the engines use. What has no form on a GPU is run by
Polars, part by part, with one warning; without a usable GPU Polars runs the whole query.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

import polars as pl
from rapidsmpf.communicator.single import new_communicator
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.streaming.core.context import Context

from cudf_polars.engine.compute_device import gpu_unavailable, open_gpu
from cudf_polars.lower.fallback import HostStepWarning, warn_of_host_steps
from cudf_polars.lower.user_code import user_stacklevel
from cudf_polars.plan.read import UnreadablePlanError, read_traverser

__all__ = ["execute_with_cudf"]

_CONFIG = {"raise_on_fail", "executor", "executor_options", "parquet_options", "memory_resource_config"}
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
        If ``config`` has an option that is not known.

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
    reason = _unusable(config)
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
    device = _device(raise_on_fail)

    def run(
        with_columns: list[str] | None, predicate: Any, n_rows: int | None, should_time: bool = False
    ) -> Any:
        if predicate is not None:
            raise NotImplementedError(
                "Polars asks the GPU engine to filter, which it does not in version 2.1"
            )
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


@functools.cache
def _device(raise_on_fail: bool) -> Any:
    return open_gpu(_context().br(), raise_on_fail=raise_on_fail)


@functools.cache
def _context() -> Context:
    """Return the memory and threads of this process's queries outside of engines."""
    options = Options(get_environment_variables())
    return Context.from_options(new_communicator(options), options)
