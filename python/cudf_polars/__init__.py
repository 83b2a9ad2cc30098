"""Riverrun's engines for Polars: ``collect(engine=SPMDEngine())`` over cores, hosts and memory tiers.

What is here is loaded when it is first used: importing the package imports neither Dask nor Ray.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rapidsmpf.error import RankFailedError
    from rapidsmpf.given_options import OptionWithoutEffectWarning

    from cudf_polars.engine.dask import DaskEngine
    from cudf_polars.engine.gpu_hook import execute_with_cudf
    from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
    from cudf_polars.engine.options import StreamingOptions
    from cudf_polars.engine.ray import RayEngine
    from cudf_polars.engine.spmd import EqualFramesWarning, SPMDEngine, allgather_polars_dataframe
    from cudf_polars.execute.errors import QueryMismatchError
    from cudf_polars.lower.fallback import FallbackWarning
    from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id

    __version__: str

__all__ = [
    "DaskEngine",
    "EqualFramesWarning",
    "FallbackWarning",
    "HardwareBindingPolicy",
    "OptionWithoutEffectWarning",
    "QueryMismatchError",
    "RankFailedError",
    "RayEngine",
    "SPMDEngine",
    "StreamingOptions",
    "__version__",
    "allgather_polars_dataframe",
    "execute_with_cudf",
    "reserve_op_id",
]

_HOMES = {
    "DaskEngine": "cudf_polars.engine.dask",
    "EqualFramesWarning": "cudf_polars.engine.spmd",
    "FallbackWarning": "cudf_polars.lower.fallback",
    "HardwareBindingPolicy": "cudf_polars.engine.hardware_binding",
    "OptionWithoutEffectWarning": "rapidsmpf.given_options",
    "QueryMismatchError": "cudf_polars.execute.errors",
    "RankFailedError": "rapidsmpf.error",
    "RayEngine": "cudf_polars.engine.ray",
    "SPMDEngine": "cudf_polars.engine.spmd",
    "StreamingOptions": "cudf_polars.engine.options",
    "__version__": "rapidsmpf",
    "execute_with_cudf": "cudf_polars.engine.gpu_hook",
    "allgather_polars_dataframe": "cudf_polars.engine.spmd",
    "reserve_op_id": "cudf_polars.streaming.actor_graph.collectives.common",
}
"""In which module each name is defined."""


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
