"""RapidsMPF in the workers of other libraries: Dask, Ray, or a scheduler of tasks in this process."""

from __future__ import annotations

from rapidsmpf.integrations.core import ShufflerIntegration, WorkerContext

__all__ = ["ShufflerIntegration", "WorkerContext"]
