"""SQL's arithmetic over columns of every type, and scalar sub-queries, run on all ranks and give Polars' answers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY, compare_answers, run

from cudf_polars.execute.options import ExecutionOptions

OPTIONS = {"tiny": TINY, "partitioned": PARTITIONED, "ordinary": ExecutionOptions(fallback_mode="raise")}
HEIGHTS = {"t": 900, "x": 60, "e": 0, "o": 1}
OPERANDS = ("i", "u", "f", "g", "d", "n", "2", "2.5", "-3")
SUB_QUERIES = (
    "(SELECT AVG(b) FROM {u})",
    "(SELECT MAX(a) FROM {u} WHERE s = 'a')",
    "(SELECT COUNT(*) FROM {u})",
    "(SELECT a FROM {u} ORDER BY a DESC LIMIT 1)",
    "(SELECT SUM(a) / 7 FROM {u})",
)
QUERIES = (
    "SELECT a, b FROM {t} WHERE b > {q}",
    "SELECT a, {q} AS m FROM {t}",
    "SELECT {q} AS m FROM {t}",
    "SELECT SUM(b) AS s, {q} AS m FROM {t}",
    "SELECT s, SUM(a) AS z FROM {t} WHERE a < {q} GROUP BY s HAVING SUM(a) > {p}",
    "SELECT a - {q} AS d, b FROM {t} WHERE b < {p} ORDER BY d, b LIMIT 20",
    "SELECT a FROM {t} WHERE a IN (SELECT a FROM {u} WHERE b > {q})",
    "SELECT a IN (SELECT a FROM {u}) AS i FROM {t}",
    "SELECT a, {q} + {p} AS m FROM {t} WHERE a > 5",
    "SELECT CASE WHEN a > {q} THEN 'x' ELSE 'y' END AS c, COUNT(*) AS n FROM {t} GROUP BY 1",
)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = random.Random(1)

    def values(count: int, *some: object) -> list[object]:
        return [chance.choice(some) for _ in range(count)]

    path = tmp_path_factory.mktemp("numbers") / "numbers.parquet"
    pl.DataFrame(
        {
            "k": values(200, 1, 2, 3),
            "i": values(200, None, 0, 1, -7, 12, 2**40),
            "u": values(200, None, 0, 1, 5, 255),
            "f": values(200, None, 0.0, 0.5, -2.25, 1e300),
            "g": values(200, None, 0.0, 1.5, -3.0),
            "d": values(200, None, *map(Decimal, ("0.00", "1.25", "-17.10", "99999.99"))),
            "n": values(200, None, *map(Decimal, ("0.001", "2.500", "-1.000"))),
        },
        schema={
            "k": pl.Int64(),
            "i": pl.Int64(),
            "u": pl.UInt8(),
            "f": pl.Float64(),
            "g": pl.Float32(),
            "d": pl.Decimal(10, 2),
            "n": pl.Decimal(7, 3),
        },
    ).write_parquet(path, row_group_size=23)
    return path


@pytest.mark.parametrize("options", list(OPTIONS))
@pytest.mark.parametrize("operator", ["+", "-", "*", "/", "//", "%"])
def test_arithmetic(numbers: Path, operator: str, options: str) -> None:
    """What Polars computes is asked for together, for each left operand; what it refuses, one by one."""
    tables = pl.SQLContext(numbers=pl.scan_parquet(numbers), eager=False)
    for left in OPERANDS:
        # Polars plans UInt8 for -3 and a column of UInt8, and gives Int16.
        exprs = {right: f"{left} {operator} {right}" for right in OPERANDS if {left, right} != {"-3", "u"}}
        # Sums of Float32 differ in their last digits.
        sums = {right: f"SUM({expr})" for right, expr in exprs.items() if "g" not in (left, right)}
        for form, columns in (
            ("SELECT k, {} FROM numbers", exprs),
            ("SELECT k, {} FROM numbers WHERE i < 100 GROUP BY k", sums),
        ):
            computed = []
            for right, column in columns.items():
                text = f"{column} AS z{OPERANDS.index(right)}"
                query = tables.execute(form.format(text))
                try:
                    query.collect()
                except pl.exceptions.PolarsError as error:
                    with pytest.raises(type(error)):
                        run(query, 2, OPTIONS[options])
                else:
                    computed.append(text)
            if not computed:
                continue
            query = tables.execute(form.format(", ".join(computed)))
            actual, outcomes = run(query, 2, OPTIONS[options])
            assert not outcomes[0].fallbacks, computed
            compare_answers(actual, query.collect(), ordered=False)


@pytest.mark.parametrize("what", ["DECADE", "EPOCH", "CENTURY", "MILLISECOND", "ISOYEAR", "TIME"])
def test_parts_of_times(what: str) -> None:
    times = pl.select(t=pl.datetime_range(pl.datetime(1999, 12, 30), pl.datetime(2001, 1, 9), "13h11m"))
    query = pl.SQLContext(times=times, eager=False).execute(f"SELECT EXTRACT({what} FROM t) AS z FROM times")
    actual, outcomes = run(query, 2, OPTIONS["ordinary"])
    assert not outcomes[0].fallbacks
    compare_answers(actual, pl.concat([query.collect()] * 2), ordered=False)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, pl.LazyFrame]:
    chance, folder = random.Random(0), tmp_path_factory.mktemp("tables")
    for name, height in HEIGHTS.items():
        pl.DataFrame(
            {
                "a": [chance.randint(0, 50) for _ in range(height)],
                "b": [chance.choice([None, *range(20)]) for _ in range(height)],
                "s": [chance.choice("abc") for _ in range(height)],
            },
            schema={"a": pl.Int64, "b": pl.Int64, "s": pl.String},
        ).write_parquet(folder / f"{name}.parquet", row_group_size=37)
    return {name: pl.scan_parquet(folder / f"{name}.parquet") for name in HEIGHTS}


@pytest.mark.parametrize("seed", range(60))
def test_scalar_sub_queries(tables: Mapping[str, pl.LazyFrame], seed: int) -> None:
    chance = random.Random(seed)
    names = {"t": chance.choice(["t", "t", "x", "e", "o"]), "u": chance.choice(["t", "x", "e", "o"])}
    q, p = (chance.choice(SUB_QUERIES).format(**names) for _ in range(2))
    text = QUERIES[seed % len(QUERIES)].format(q=q, p=p, **names)
    query = pl.SQLContext(tables, eager=False).execute(text)
    expected = query.collect()
    for options in OPTIONS.values():
        actual, outcomes = run(query, chance.choice([2, 3, 5]), options)
        assert not outcomes[0].fallbacks, text
        compare_answers(actual, expected, ordered="ORDER BY d" in text)


def test_a_sub_query_of_several_rows_is_refused(tables: Mapping[str, pl.LazyFrame]) -> None:
    query = pl.SQLContext(tables, eager=False).execute("SELECT a FROM t WHERE a > (SELECT a FROM x)")
    with pytest.raises(pl.exceptions.ComputeError) as expected:
        query.collect()
    with pytest.raises(pl.exceptions.ComputeError, match=str(expected.value).split("\n")[0][:20]):
        run(query, 2)


def test_rows_are_not_kept_for_a_sub_query(tables: Mapping[str, pl.LazyFrame]) -> None:
    query = pl.SQLContext(tables, eager=False).execute("SELECT a FROM t WHERE a > (SELECT AVG(a) FROM x)")
    _, outcomes = run(query, 2, OPTIONS["tiny"])
    assert "MATERIALIZE" not in outcomes[0].explain()
