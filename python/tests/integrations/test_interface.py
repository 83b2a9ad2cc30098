"""The documented interface of the integrations: names, and parameters with their kinds."""

from __future__ import annotations

import inspect

import pytest
from rapidsmpf import integrations
from rapidsmpf.integrations import dask, ray, single

GRAPH = (
    "input_name, output_name, partition_count_in, partition_count_out, integration, options, *other_keys,"
    " config_options="
)


@pytest.mark.parametrize(
    ("documented", "parameters"),
    [
        (integrations.WorkerContext, "br, statistics, comm=, spill_collection=, shufflers=, options="),
        (integrations.WorkerContext.get_statistics, "self"),
        (dask.bootstrap_dask_cluster, "client, options="),
        (dask.get_worker_context, "worker="),
        (dask.rapidsmpf_shuffle_graph, GRAPH),
        (single.get_worker_context, ""),
        (single.rapidsmpf_shuffle_graph, GRAPH),
        (single.setup_worker, "options="),
        (ray.RapidsMPFActor, "nranks, statistics="),
        (ray.RapidsMPFActor.setup_root, "self"),
        (ray.RapidsMPFActor.setup_worker, "self, root_address_bytes"),
        (ray.setup_ray_ucxx_cluster, "actor_cls, num_workers, *args, **kwargs"),
    ],
    ids=lambda value: getattr(value, "__qualname__", ""),
)
def test_parameters(documented, parameters):
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    found = [
        stars.get(p.kind, "") + p.name + ("" if p.default is inspect.Parameter.empty else "=")
        for p in inspect.signature(documented).parameters.values()
    ]
    assert ", ".join(found) == parameters


def test_attributes():
    assert {"comm", "statistics", "rank", "nranks", "is_initialized", "to_string"} <= set(
        dir(ray.RapidsMPFActor)
    )
    fields = set(integrations.WorkerContext.__dataclass_fields__)
    assert {"lock", "br", "statistics", "comm", "spill_collection", "shufflers", "options"} <= fields
