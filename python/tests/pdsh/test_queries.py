"""The Polars queries of PDS-H ask what the SQL text asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.pdsh.queries import QUERIES, Tables
from benchmarks.pdsh.validate import check


@pytest.mark.parametrize("number", QUERIES)
def test_query_gives_the_answer_of_the_sql_text(number: int, tables: Tables) -> None:
    pytest.importorskip("duckdb")
    # Polars rounds products of decimals, which SQL does not.
    assert check(QUERIES[number], Tables(tables.directory, floats=True)) is None


def test_the_scale_factor_is_read_from_the_data(tables: Tables) -> None:
    assert tables.scale_factor == 0.01


def test_a_missing_table_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"'orders'.*tpchgen-cli"):
        _ = Tables(tmp_path).orders
