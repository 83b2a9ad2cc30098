"""Ray actors that share a communicator."""

from __future__ import annotations

import warnings

import pytest
import ray
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.integrations.ray import RapidsMPFActor, setup_ray_ucxx_cluster


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray about itself
        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    yield
    ray.shutdown()


def test_actors_are_connected():
    @ray.remote(num_cpus=0)
    class Actor(RapidsMPFActor):
        def __init__(self, nranks, greeting):
            super().__init__(nranks)
            self._greeting = greeting

        def greet(self):
            return allgather_bytes(self.comm, 1, f"{self._greeting} {self.rank()}".encode(), timeout=60)

    actors = setup_ray_ucxx_cluster(Actor, 2, greeting="from")
    assert ray.get([actor.greet.remote() for actor in actors]) == [[b"from 0", b"from 1"]] * 2
    assert ray.get([actor.rank.remote() for actor in actors]) == [0, 1]
    assert ray.get([actor.nranks.remote() for actor in actors]) == [2, 2]
    assert all(ray.get([actor.is_initialized.remote() for actor in actors]))
    assert all("Actor" in text for text in ray.get([actor.to_string.remote() for actor in actors]))


def test_an_actor_that_is_not_connected():
    actor = RapidsMPFActor(2)
    assert not actor.is_initialized()
    assert not actor.statistics.enabled
    for use in (lambda: actor.comm, actor.rank, actor.nranks, actor.to_string):
        with pytest.raises(RuntimeError, match="not connected"):
            use()


def test_wrong_numbers():
    with pytest.raises(ValueError, match="num_workers"):
        setup_ray_ucxx_cluster(None, 0)
    with pytest.raises(ValueError, match="nranks"):
        RapidsMPFActor(0)
