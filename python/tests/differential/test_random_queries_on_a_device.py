"""Random queries give what Polars gives where their fragments are programs for a GPU, run by the emulator of libcudf.

``python -m differential.run --device gpu`` runs the same cases on a GPU.
"""

from __future__ import annotations

import pytest

from differential.run import Report, run_seeds

pytestmark = pytest.mark.timeout(600)  # two processes of their own do the work, on a machine that may be busy

SEEDS = 300
WHOLLY_ON_THE_DEVICE = 20


@pytest.fixture(scope="module")
def report() -> Report:
    return run_seeds(2000, SEEDS, shrink_s=10.0, device="emulated")


def test_answers_are_those_of_polars(report: Report) -> None:
    assert report.cases == SEEDS
    assert not report.broken, report.text()
    assert not report.unknown, report.text()


def test_cases_run_on_the_device(report: Report) -> None:
    """Whole, and in part: a device that gave all back to the host would answer rightly, too."""
    assert report.coverage.host_steps[""] >= WHOLLY_ON_THE_DEVICE
    assert sum(report.coverage.host_steps.values()) < 10 * SEEDS
