"""Queries of PDS-H as SQL over files with decimals: Polars' answers, and no step that one rank gathers."""

from __future__ import annotations

import polars as pl
import pytest
from execute.compare import PARTITIONED, compare_answers, run

from benchmarks.pdsh.queries import Tables
from cudf_polars.execute.options import ExecutionOptions

DISTRIBUTED = ExecutionOptions(broadcast_limit=20_000, small_limit=3_000, read_everywhere_limit=1_000)
NAMES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
REVENUE = "sum(l_extendedprice * (1 - l_discount))"
VALUE = "sum(ps_supplycost * ps_availqty)"
GERMAN = (
    "partsupp join supplier on ps_suppkey = s_suppkey join nation on s_nationkey = n_nationkey"
    " where n_name = 'GERMANY'"
)
QUERIES = {
    1: f"""
        select l_returnflag, l_linestatus, sum(l_quantity) as q, sum(l_extendedprice) as p, {REVENUE} as d,
            sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) as c, avg(l_quantity) as aq,
            avg(l_extendedprice) as ap, avg(l_discount) as ad, count(*) as n
        from lineitem where l_shipdate <= date '1998-09-02'
        group by l_returnflag, l_linestatus order by l_returnflag, l_linestatus""",
    3: f"""
        select l_orderkey, {REVENUE} as revenue, o_orderdate, o_shippriority
        from customer join orders on c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey
        where c_mktsegment = 'BUILDING' and o_orderdate < date '1995-03-15' and l_shipdate > date '1995-03-15'
        group by l_orderkey, o_orderdate, o_shippriority order by revenue desc, o_orderdate limit 10""",
    4: """
        select o_orderpriority, count(*) as n from orders
        where o_orderdate >= date '1993-07-01' and o_orderdate < date '1993-10-01'
            and o_orderkey in (select l_orderkey from lineitem where l_commitdate < l_receiptdate)
        group by o_orderpriority order by o_orderpriority""",
    5: f"""
        select n_name, {REVENUE} as revenue
        from customer join orders on c_custkey = o_custkey join lineitem on l_orderkey = o_orderkey
            join supplier on l_suppkey = s_suppkey and c_nationkey = s_nationkey
            join nation on s_nationkey = n_nationkey join region on n_regionkey = r_regionkey
        where r_name = 'ASIA' and o_orderdate >= date '1994-01-01' and o_orderdate < date '1995-01-01'
        group by n_name order by revenue desc""",
    6: """
        select sum(l_extendedprice * l_discount) as revenue from lineitem
        where l_shipdate >= date '1994-01-01' and l_shipdate < date '1995-01-01'
            and l_discount between 0.05 and 0.07 and l_quantity < 24""",
    11: f"""
        select ps_partkey, {VALUE} as value from {GERMAN}
        group by ps_partkey having {VALUE} > (select {VALUE} * 0.01 as least from {GERMAN})
        order by value desc, ps_partkey""",
    12: """
        select l_shipmode,
            sum(case when o_orderpriority = '1-URGENT' or o_orderpriority = '2-HIGH' then 1 else 0 end) as high,
            sum(case when o_orderpriority <> '1-URGENT' and o_orderpriority <> '2-HIGH' then 1 else 0 end) as low
        from orders join lineitem on o_orderkey = l_orderkey
        where l_shipmode in ('MAIL', 'SHIP') and l_commitdate < l_receiptdate and l_shipdate < l_commitdate
            and l_receiptdate >= date '1994-01-01' and l_receiptdate < date '1995-01-01'
        group by l_shipmode order by l_shipmode""",
    14: f"""
        select 100.00 * sum(case when p_type like 'PROMO%' then l_extendedprice * (1 - l_discount) else 0 end)
            / {REVENUE} as promo
        from lineitem join part on l_partkey = p_partkey
        where l_shipdate >= date '1995-09-01' and l_shipdate < date '1995-10-01'""",
    15: f"""
        with revenue as (
            select l_suppkey as supplier_no, {REVENUE} as total from lineitem
            where l_shipdate >= date '1996-01-01' and l_shipdate < date '1996-04-01' group by l_suppkey
        )
        select s_suppkey, s_name, total from supplier join revenue on s_suppkey = supplier_no
        where total = (select max(total) from revenue) order by s_suppkey""",
    17: """
        with least as (select l_partkey as pk, 0.2 * avg(l_quantity) as q from lineitem group by l_partkey)
        select sum(l_extendedprice) / 7.0 as yearly
        from lineitem join part on p_partkey = l_partkey join least on pk = l_partkey
        where p_brand = 'Brand#23' and l_quantity < q""",
    18: """
        select c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) as q
        from customer join orders on c_custkey = o_custkey join lineitem on o_orderkey = l_orderkey
        where o_orderkey in (select l_orderkey from lineitem group by l_orderkey having sum(l_quantity) > 250)
        group by c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
        order by o_totalprice desc, o_orderdate limit 100""",
    22: """
        select substr(c_phone, 1, 2) as code, count(*) as n, sum(c_acctbal) as total from customer
        where substr(c_phone, 1, 2) in ('13', '31', '23', '29', '30', '18', '17')
            and c_acctbal > (select avg(c_acctbal) from customer where c_acctbal > 0.00)
            and c_custkey not in (select o_custkey from orders)
        group by code order by code""",
}


@pytest.mark.parametrize("options", [DISTRIBUTED, PARTITIONED], ids=["ranks", "partitions"])
@pytest.mark.parametrize("number", list(QUERIES))
def test_sql(tables: Tables, number: int, options: ExecutionOptions) -> None:
    scans = {name: pl.scan_parquet(tables.directory / f"{name}.parquet") for name in NAMES}
    query = pl.SQLContext(scans, eager=False).execute(QUERIES[number])
    actual, outcomes = run(query, 2, options)
    compare_answers(actual, query.collect(), ordered=False)
    assert not outcomes[0].fallbacks
