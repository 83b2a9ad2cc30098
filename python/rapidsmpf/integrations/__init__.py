"""RapidsMPF in the workers and with the tables of other libraries: Dask, Ray, cuDF, or tasks in this process."""

from __future__ import annotations

from rapidsmpf.integrations.context import WorkerContext
from rapidsmpf.integrations.shuffle_phases import ShufflerIntegration

__all__ = ["ShufflerIntegration", "WorkerContext"]
