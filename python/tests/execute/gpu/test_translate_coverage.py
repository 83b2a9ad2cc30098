"""The table of what a GPU computes is complete, and so is the page that is written from it."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from cudf_polars.execute.gpu.translate.coverage import COVERAGE, NODES, TRANSLATED, Form
from cudf_polars.plan import nodes
from cudf_polars.plan.functions import FUNCTIONS

ROOT = Path(__file__).resolve().parents[4]


def test_every_function_of_the_catalogue_has_a_form_or_a_reason() -> None:
    assert sorted(COVERAGE) == sorted(FUNCTIONS)
    assert [name for name, (form, why) in COVERAGE.items() if (form is Form.HOST) != bool(why)] == []


def test_the_table_says_of_what_is_translated_that_it_is() -> None:
    assert {name for name, (form, _) in COVERAGE.items() if form is not Form.HOST} == TRANSLATED


@pytest.mark.parametrize("name", NODES)
def test_nodes_of_the_table_are_nodes_of_plans(name: str) -> None:
    assert issubclass(getattr(nodes, name), nodes.Node)


def test_the_page_is_up_to_date() -> None:
    written = runpy.run_path(str(ROOT / "scripts" / "write_gpu_coverage.py"))
    assert written["PAGE"].read_text() == written["page"](), "run: python scripts/write_gpu_coverage.py"
