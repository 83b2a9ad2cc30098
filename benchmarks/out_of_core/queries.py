"""The queries, for Polars and as SQL.

Each of the six needs all rows of the largest table at once, if it is done by the book.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from benchmarks.pdsh.queries import QUERIES as PDSH_QUERIES
from benchmarks.pdsh.queries import Tables
from benchmarks.pdsh.sql import SQL

__all__ = ["PDSH", "QUERIES", "SIX", "Query"]


@dataclass(frozen=True)
class Query:
    """A query.

    Attributes
    ----------
    lazy
        For Polars.
    sql
        For DuckDB, over views that are named as the tables; ``{scale_factor}`` stands for the tables' scale.
    is_ordered
        Whether the order of the rows is part of the answer.
    """

    lazy: Callable[[Tables], pl.LazyFrame]
    sql: str
    is_ordered: bool = False


def _sort(t: Tables) -> pl.LazyFrame:
    return t.scan("lineitem").sort("l_shipdate", "l_orderkey", "l_linenumber")


def _group(t: Tables) -> pl.LazyFrame:
    return (
        t.scan("lineitem")
        .group_by("l_orderkey", "l_suppkey")
        .agg(pl.col("l_quantity").sum().alias("quantity"), pl.len().alias("n"))
    )


def _join(t: Tables) -> pl.LazyFrame:
    lines = t.scan("lineitem").select("l_orderkey", "l_partkey", "l_suppkey", "l_quantity", "l_comment")
    orders = t.scan("orders").select("o_orderkey", "o_custkey", "o_orderdate", "o_comment")
    offers = t.scan("partsupp").select("ps_partkey", "ps_suppkey", "ps_availqty", "ps_comment")
    return lines.join(orders, left_on="l_orderkey", right_on="o_orderkey").join(
        offers, left_on=["l_partkey", "l_suppkey"], right_on=["ps_partkey", "ps_suppkey"]
    )


def _distinct(t: Tables) -> pl.LazyFrame:
    return t.scan("lineitem").select("l_comment").unique()


def _window(t: Tables) -> pl.LazyFrame:
    # As floats, for engines divide decimals each in their own way.
    price = pl.col("l_extendedprice").cast(pl.Float64)
    share = price / price.sum().over("l_suppkey")
    return t.scan("lineitem").select("l_orderkey", "l_linenumber", "l_suppkey", share.alias("share"))


def _skewed(t: Tables) -> pl.LazyFrame:
    skewed = pl.when(pl.col("l_orderkey") % 10 < 3).then(1).otherwise(pl.col("l_partkey")).alias("key")
    lines = t.scan("lineitem").select(skewed, "l_orderkey", "l_comment")
    parts = t.scan("part").select("p_partkey", "p_name", "p_comment")
    return lines.join(parts, left_on="key", right_on="p_partkey")


def _of_pdsh(number: int) -> Query:
    # As floats: Polars rounds the products of decimals, DuckDB does not.
    build = PDSH_QUERIES[number].build
    return Query(lambda t: build(Tables(t.directory, floats=True)), SQL[number])


SIX: dict[str, Query] = {
    "sort": Query(
        _sort, "SELECT * FROM lineitem ORDER BY l_shipdate, l_orderkey, l_linenumber", is_ordered=True
    ),
    "group": Query(
        _group,
        "SELECT l_orderkey, l_suppkey, SUM(l_quantity) AS quantity, COUNT(*) AS n FROM lineitem"
        " GROUP BY l_orderkey, l_suppkey",
    ),
    "join": Query(
        _join,
        "SELECT l_orderkey, l_partkey, l_suppkey, l_quantity, l_comment, o_custkey, o_orderdate, o_comment,"
        " ps_availqty, ps_comment FROM lineitem JOIN orders ON l_orderkey = o_orderkey"
        " JOIN partsupp ON l_partkey = ps_partkey AND l_suppkey = ps_suppkey",
    ),
    "distinct": Query(_distinct, "SELECT DISTINCT l_comment FROM lineitem"),
    "window": Query(
        _window,
        "SELECT l_orderkey, l_linenumber, l_suppkey, l_extendedprice::DOUBLE / SUM(l_extendedprice::DOUBLE)"
        " OVER (PARTITION BY l_suppkey) AS share FROM lineitem",
    ),
    "skewed": Query(
        _skewed,
        "SELECT key, l_orderkey, l_comment, p_name, p_comment FROM (SELECT CASE WHEN l_orderkey % 10 < 3 THEN 1"
        " ELSE l_partkey END AS key, l_orderkey, l_comment FROM lineitem) JOIN part ON key = p_partkey",
    ),
}

PDSH: dict[str, Query] = {f"q{number}": _of_pdsh(number) for number in PDSH_QUERIES}
QUERIES = SIX | PDSH
