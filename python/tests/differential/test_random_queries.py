"""Hundreds of random queries on ranks of one process give what Polars gives, and between them use all there is."""

from __future__ import annotations

import pytest

from cudf_polars.lower import physical
from cudf_polars.plan.functions import FUNCTIONS
from differential import known
from differential.ranks import KEY_RANGES
from differential.run import Report, run_seeds

pytestmark = pytest.mark.timeout(900)  # two processes of their own do the work, on a machine that may be busy

SEEDS = 1100
FUNCTIONS_AT_LEAST = 200


@pytest.fixture(scope="module")
def report() -> Report:
    return run_seeds(0, SEEDS, shrink_s=10.0)


def test_answers_are_those_of_polars(report: Report) -> None:
    assert not report.broken, report.text()
    assert not report.unknown, report.text()


def test_every_seed_was_run(report: Report) -> None:
    assert report.cases == SEEDS


def _kinds(base: type) -> set[str]:
    return {base.__name__ for base in base.__subclasses__()} | {
        n for b in base.__subclasses__() for n in _kinds(b)
    }


def test_every_kind_of_stream_occurs(report: Report) -> None:
    assert set(report.coverage.streams) - {KEY_RANGES} == _kinds(physical.Stream)
    assert report.coverage.streams[KEY_RANGES] > 0


def test_every_exchange_occurs(report: Report) -> None:
    assert set(report.coverage.collectives) >= {"shuffle", "scatter", "gather", "allgather"}


def test_most_functions_of_the_catalogue_occur(report: Report) -> None:
    assert set(report.coverage.functions) <= set(FUNCTIONS)
    missing = sorted(set(FUNCTIONS) - set(report.coverage.functions))
    assert len(report.coverage.functions) >= FUNCTIONS_AT_LEAST, missing


def test_known_faults_of_polars_are_faults_of_polars() -> None:
    for fault in known.KNOWN:
        assert fault.reason, fault.name
        shown: dict[str, object] = {}
        exec(fault.reproduction, shown)
        assert shown["faulty"], f"{fault.name} no longer shows on Polars alone: take it off the list"
