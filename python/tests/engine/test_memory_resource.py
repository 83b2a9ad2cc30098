"""The option ``memory_resource_config``, with a module that stands for RMM."""

from __future__ import annotations

import gc
import pickle
import sys
import types
from typing import Any

import pytest

from cudf_polars import SPMDEngine
from cudf_polars.engine import compute_device, memory_resource
from cudf_polars.engine.memory_resource import build_resource, check_resource, rmm_resource
from cudf_polars.engine.options import StreamingOptions


class DeviceMemoryResource:
    """Stands for RMM's class, and keeps what it was made with."""

    def __init__(self, **options: Any) -> None:
        self.options = options


class CudaMemoryResource(DeviceMemoryResource):
    def __init__(self) -> None:
        super().__init__()


class PoolMemoryResource(DeviceMemoryResource):
    def __init__(self, upstream_mr: DeviceMemoryResource, initial_pool_size: int | None = None) -> None:
        if not isinstance(upstream_mr, DeviceMemoryResource):
            raise TypeError("upstream_mr is no resource")
        if initial_pool_size is not None and initial_pool_size % 256:
            raise ValueError("initial_pool_size is no multiple of 256")
        super().__init__(upstream_mr=upstream_mr, initial_pool_size=initial_pool_size)


class FullResource(DeviceMemoryResource):
    def __init__(self) -> None:
        raise MemoryError("out of memory")


CUDA = {"qualname": "rmm.mr.CudaMemoryResource"}
POOL = {"qualname": "rmm.mr.PoolMemoryResource", "options": {"upstream_mr": CUDA, "initial_pool_size": 512}}


@pytest.fixture
def rmm(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module in the place of ``rmm.mr``; ``current`` is its current resource, ``history`` all there were."""
    package, mr = types.ModuleType("rmm"), types.ModuleType("rmm.mr")
    package.mr = mr
    package.__path__ = []
    for kind in (DeviceMemoryResource, CudaMemoryResource, PoolMemoryResource, FullResource):
        setattr(mr, kind.__name__, kind)
    mr.not_a_class = object()
    mr.history = ["first"]

    mr.get_current_device_resource = lambda: mr.history[-1]
    mr.set_current_device_resource = mr.history.append
    monkeypatch.setitem(sys.modules, "rmm", package)
    monkeypatch.setitem(sys.modules, "rmm.mr", mr)
    monkeypatch.setattr(memory_resource, "_current", memory_resource._Current())
    return mr


def test_a_resource_that_is_given_is_used(rmm: types.ModuleType) -> None:
    given = CudaMemoryResource()
    assert check_resource("memory_resource", given) is given
    with rmm_resource(given):
        assert rmm.history[-1] is given
        with rmm_resource(given):
            pass
        with pytest.raises(RuntimeError, match="which is the given CudaMemoryResource"), rmm_resource(CUDA):
            pass
    assert rmm.history[-1] == "first"
    with pytest.raises(TypeError, match=r"memory_resource must be an rmm.mr.DeviceMemoryResource .*not int"):
        check_resource("memory_resource", 5)


def test_a_block_that_is_not_left_changes_nothing(rmm: types.ModuleType) -> None:
    def enter() -> None:
        rmm_resource(CUDA).__enter__()

    enter()
    gc.collect()
    assert len(rmm.history) == 2  # at the end of a process nothing can be imported to put the former one back


def test_a_resource_is_made_on_top_of_another(rmm: types.ModuleType) -> None:
    pool = build_resource(POOL)
    assert isinstance(pool, PoolMemoryResource)
    assert isinstance(pool.options["upstream_mr"], CudaMemoryResource)
    assert pool.options["initial_pool_size"] == 512
    assert isinstance(build_resource(CUDA), CudaMemoryResource)


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ({"qualname": "rmm.mr.NoSuchResource"}, ValueError, "there is no rmm.mr.NoSuchResource"),
        ({"qualname": "no_such_package.Resource"}, ValueError, "there is no no_such_package.Resource"),
        ({"qualname": "rmm.mr.not_a_class"}, ValueError, "not_a_class is no class"),
        ({"qualname": "collections.OrderedDict"}, TypeError, "makes no rmm.mr.DeviceMemoryResource"),
        ({**CUDA, "options": {"size": 1}}, TypeError, "CudaMemoryResource cannot be made: .*size"),
        ({**POOL, "options": {"upstream_mr": 5}}, TypeError, "upstream_mr is no resource"),
        (
            {**POOL, "options": {"upstream_mr": CUDA, "initial_pool_size": 5}},
            ValueError,
            "no multiple of 256",
        ),
        (
            {**POOL, "options": {"upstream_mr": {"qualname": "rmm.mr.FullResource"}}},
            RuntimeError,
            "FullResource cannot be made: out of memory",
        ),
    ],
)
def test_what_cannot_be_made(
    rmm: types.ModuleType, config: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=f"option memory_resource_config: .*{said}"), rmm_resource(config):
        pass
    assert rmm.history == ["first"]
    with rmm_resource(CUDA):  # what failed is not in the way
        pass


@pytest.mark.parametrize(
    ("config", "error", "said"),
    [
        ("rmm.mr.CudaMemoryResource", TypeError, "must be dict or None, not str"),
        ({}, ValueError, "needs 'qualname'"),
        ({"qualname": 5}, TypeError, "qualname must be str, not int"),
        ({"qualname": "CudaMemoryResource"}, ValueError, "'CudaMemoryResource' is not the dotted name"),
        ({"qualname": "rmm.mr."}, ValueError, "'rmm.mr.' is not the dotted name"),
        ({**CUDA, "option": {}}, TypeError, "'option' .*did you mean options"),
        ({**CUDA, "options": [1]}, TypeError, "options must be dict, not list"),
        ({**CUDA, "options": {5: 1}}, TypeError, "keys of options must be str"),
        (
            {**POOL, "options": {"upstream_mr": {"qualname": "nothing"}}},
            ValueError,
            "'nothing' is not the dotted name",
        ),
    ],
)
def test_what_is_not_written_as_a_resource(config: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        StreamingOptions(memory_resource_config=config)
    assert "memory_resource_config" in str(caught.value)
    assert "given to StreamingOptions" in str(caught.value)


def test_without_rmm_an_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rmm", None)
    monkeypatch.setitem(sys.modules, "rmm.mr", None)
    with (
        pytest.raises(ImportError, match=r"memory_resource_config needs .*pip install 'rmm-cu13"),
        rmm_resource(CUDA),
    ):
        pass


def test_a_configuration_travels_to_other_processes() -> None:
    options = pickle.loads(pickle.dumps(StreamingOptions(memory_resource_config=POOL)))
    assert options.get("memory_resource_config") == {
        "qualname": "rmm.mr.PoolMemoryResource",
        "options": {"upstream_mr": {**CUDA, "options": {}}, "initial_pool_size": 512},
    }


def test_the_former_resource_is_back_when_the_last_leaves(rmm: types.ModuleType) -> None:
    with rmm_resource(CUDA):
        (_, mine) = rmm.history
        with rmm_resource(None), rmm_resource(dict(CUDA)):
            pass
        assert rmm.history == ["first", mine]
    assert rmm.history == ["first", mine, "first"]


def test_two_resources_at_a_time_are_an_error(rmm: types.ModuleType) -> None:
    with (
        rmm_resource(None),
        pytest.raises(RuntimeError, match=r"RMM's own.*Make the engine"),
        rmm_resource(CUDA),
    ):
        pass
    with (
        rmm_resource(POOL),
        pytest.raises(RuntimeError, match="PoolMemoryResource as long as"),
        rmm_resource(CUDA),
    ):
        pass
    assert rmm.history[-1] == "first"


def test_a_rank_on_a_gpu_has_the_resource_from_before_its_memory_to_its_end(
    rmm: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    class Operators:
        def close(self) -> None:
            seen.append(rmm.history[-1])

    def open_operators(br: Any, settings: Any) -> Operators:
        seen.append(rmm.history[-1])
        return Operators()

    monkeypatch.setattr(compute_device, "open_operators", open_operators)
    monkeypatch.setattr(compute_device, "gpu_unavailable", lambda: None)
    monkeypatch.setattr("cudf_polars.execute.gpu.warm_up.warm_up", lambda device: None)
    with SPMDEngine(engine_options={"memory_resource_config": POOL}):
        assert isinstance(rmm.history[-1], PoolMemoryResource)
    first, mine, last = rmm.history
    assert (first, last) == ("first", "first")
    assert seen == [mine, mine]


def test_a_rank_that_cannot_open_its_gpu_puts_the_former_resource_back(
    rmm: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_operators(br: Any, settings: Any) -> None:
        raise RuntimeError("the GPU has fallen off the bus")

    monkeypatch.setattr(compute_device, "open_operators", open_operators)
    monkeypatch.setattr(compute_device, "gpu_unavailable", lambda: None)
    with pytest.raises(RuntimeError, match="fallen off"):
        SPMDEngine(engine_options={"memory_resource_config": CUDA})
    assert rmm.history[-1] == "first"


def test_a_rank_on_the_cpu_does_not_import_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rmm", None)
    monkeypatch.setitem(sys.modules, "rmm.mr", None)
    with SPMDEngine(
        executor_options={"compute_device": "cpu"}, engine_options={"memory_resource_config": POOL}
    ):
        pass
