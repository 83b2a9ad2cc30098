"""The 22 PDS-H queries are read in full."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from benchmarks.pdsh.queries import QUERIES, TABLE_NAMES, Tables
from cudf_polars.plan import nodes
from cudf_polars.plan.read import read_plan
from cudf_polars.plan.rebuild import to_lazyframe

SCHEMAS: dict[str, dict[str, pl.DataType]] = {
    "customer": {
        "c_custkey": pl.Int64(),
        "c_name": pl.String(),
        "c_address": pl.String(),
        "c_nationkey": pl.Int64(),
    }
    | {
        "c_phone": pl.String(),
        "c_acctbal": pl.Decimal(15, 2),
        "c_mktsegment": pl.String(),
        "c_comment": pl.String(),
    },
    "lineitem": {f"l_{n}": pl.Int64() for n in ("orderkey", "partkey", "suppkey")}
    | {"l_linenumber": pl.Int32()}
    | {f"l_{n}": pl.Decimal(15, 2) for n in ("quantity", "extendedprice", "discount", "tax")}
    | {f"l_{n}": pl.String() for n in ("returnflag", "linestatus")}
    | {f"l_{n}": pl.Date() for n in ("shipdate", "commitdate", "receiptdate")}
    | {f"l_{n}": pl.String() for n in ("shipinstruct", "shipmode", "comment")},
    "nation": {
        "n_nationkey": pl.Int64(),
        "n_name": pl.String(),
        "n_regionkey": pl.Int64(),
        "n_comment": pl.String(),
    },
    "orders": {"o_orderkey": pl.Int64(), "o_custkey": pl.Int64(), "o_orderstatus": pl.String()}
    | {"o_totalprice": pl.Decimal(15, 2), "o_orderdate": pl.Date(), "o_orderpriority": pl.String()}
    | {"o_clerk": pl.String(), "o_shippriority": pl.Int32(), "o_comment": pl.String()},
    "part": {"p_partkey": pl.Int64(), "p_name": pl.String(), "p_mfgr": pl.String(), "p_brand": pl.String()}
    | {"p_type": pl.String(), "p_size": pl.Int32(), "p_container": pl.String()}
    | {"p_retailprice": pl.Decimal(15, 2), "p_comment": pl.String()},
    "partsupp": {"ps_partkey": pl.Int64(), "ps_suppkey": pl.Int64(), "ps_availqty": pl.Int32()}
    | {"ps_supplycost": pl.Decimal(15, 2), "ps_comment": pl.String()},
    "region": {"r_regionkey": pl.Int64(), "r_name": pl.String(), "r_comment": pl.String()},
    "supplier": {
        "s_suppkey": pl.Int64(),
        "s_name": pl.String(),
        "s_address": pl.String(),
        "s_nationkey": pl.Int64(),
    }
    | {"s_phone": pl.String(), "s_acctbal": pl.Decimal(15, 2), "s_comment": pl.String()},
}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Tables:
    """Return tables of one row of nulls: what is read of a query does not depend on the rows."""
    folder: Path = tmp_path_factory.mktemp("pdsh")
    for name in TABLE_NAMES:
        pl.DataFrame(schema=SCHEMAS[name]).clear(1).write_parquet(folder / f"{name}.parquet")
    return Tables(folder)


@pytest.mark.parametrize("number", sorted(QUERIES))
def test_nothing_is_opaque(tables: Tables, number: int) -> None:
    plan = read_plan(QUERIES[number].build(tables))
    assert not plan.opaque
    assert not [n for n in plan.nodes if isinstance(n, nodes.OpaqueNode)]


@pytest.mark.parametrize("number", sorted(QUERIES))
def test_rebuilt_query_has_its_schema(tables: Tables, number: int) -> None:
    query = QUERIES[number].build(tables)
    assert to_lazyframe(read_plan(query).root).collect_schema() == query.collect_schema()
