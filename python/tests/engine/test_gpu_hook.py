"""``collect(engine="gpu")`` and ``pl.GPUEngine`` where there is no GPU, and what they refuse."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from cudf_polars.engine import compute_device
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.lower.fallback import HostStepWarning
from support.devices import needs_no_gpu


def _query() -> pl.LazyFrame:
    frame = pl.LazyFrame({"k": [1, 2, 2], "v": [1.0, 2.0, 3.0]})
    return frame.filter(pl.col("v") > 1).group_by("k").agg(pl.col("v").sum())


@needs_no_gpu
@pytest.mark.parametrize("engine", ["gpu", pl.GPUEngine(), pl.GPUEngine(executor="streaming", device=0)])
def test_without_a_gpu_polars_answers_and_one_warning_says_so(engine: str | pl.GPUEngine) -> None:
    with pytest.warns(HostStepWarning, match="no usable GPU") as caught:
        answer = _query().collect(engine=engine)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert_frame_equal(answer, pl.DataFrame({"k": [2], "v": [5.0]}))


@needs_no_gpu
def test_raise_on_fail_raises_with_the_reason() -> None:
    with pytest.raises(Exception, match=r"no usable GPU.*raise_on_fail=True"):
        _query().collect(engine=pl.GPUEngine(raise_on_fail=True))


def test_an_option_that_is_not_known_is_an_error() -> None:
    with pytest.raises(Exception, match="unknown option 'excutor'"):
        _query().collect(engine=pl.GPUEngine(excutor="streaming"))


@needs_no_gpu
def test_an_engine_told_to_use_a_gpu_says_why_it_cannot() -> None:
    from cudf_polars import SPMDEngine

    with pytest.raises(RuntimeError, match=r"compute_device=.gpu.: .*no usable GPU"):
        SPMDEngine(executor_options={"compute_device": "gpu"})


def test_an_engine_told_to_use_the_cpu_does() -> None:
    from cudf_polars import SPMDEngine

    with SPMDEngine(executor_options={"compute_device": "cpu"}) as engine:
        assert_frame_equal(_query().collect(engine=engine), pl.DataFrame({"k": [2], "v": [5.0]}))


@pytest.mark.parametrize(
    ("wanted", "missing", "prefers"),
    [("cpu", None, True), ("auto", "libcudf", True), ("auto", None, False), ("gpu", "libcudf", False)],
)
def test_queries_on_the_cpu_of_a_machine_with_gpus_have_the_budget_of_the_host(
    monkeypatch: pytest.MonkeyPatch, wanted: str, missing: str | None, prefers: bool
) -> None:
    asked = []
    monkeypatch.setattr(compute_device, "_missing_for_gpu", lambda: missing)
    monkeypatch.setattr(compute_device, "prefer_cpu", lambda: asked.append(True) or True)
    compute_device.choose_device(StreamingOptions(compute_device=wanted))
    assert bool(asked) == prefers


def test_a_gpu_that_was_used_before_is_said_to_give_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAPIDSMPF_DEVICE", raising=False)
    monkeypatch.setattr(compute_device, "prefer_cpu", lambda: False)
    with pytest.warns(UserWarning, match="the budget of memory is the GPU's"):
        compute_device.choose_device(StreamingOptions(compute_device="cpu"))
