"""What runs the fragments of a case: Polars, this process's GPU, or the tests' emulator of one."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from cudf_polars.execute.fragments import ComputeDevice
    from cudf_polars.execute.gpu.program import Program

__all__ = ["DEVICES", "open_device"]

# gpu-coded runs on the GPU, and codes every column of strings that it can, however few rows there are.
DEVICES = ("cpu", "gpu", "gpu-coded", "emulated")


class _Emulator:
    """Runs programs as the operators over libcudf would."""

    def run(self, program: Program, frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
        """See :class:`~cudf_polars.execute.gpu.run.ProgramRunner`."""
        from support.cudf_emulator import run

        return run(program, frames)

    def close(self) -> None:
        """Do nothing."""


@functools.cache
def open_device(name: str) -> ComputeDevice | None:
    """Return the device of this name, the same for all ranks of a process; ``None`` is for Polars.

    Raises
    ------
    RuntimeError
        If there is no GPU.
    """
    if name == "cpu":
        return None
    if name == "emulated":
        from cudf_polars.execute.gpu.run import GpuDevice

        return GpuDevice(_Emulator())
    from rapidsmpf.communicator.single import new_communicator
    from rapidsmpf.config import Options
    from rapidsmpf.streaming.core.context import Context

    from cudf_polars.engine.compute_device import gpu_unavailable, open_gpu

    if (reason := gpu_unavailable()) is not None:
        raise RuntimeError(reason)
    options = Options()
    settings = {"coded_rows": 0} if name == "gpu-coded" else {}
    return open_gpu(Context.from_options(new_communicator(options), options).br(), settings)
