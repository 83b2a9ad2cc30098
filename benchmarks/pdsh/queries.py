"""The 22 PDS-H queries, written as Polars lazy frames.

PDS-H is derived from TPC-H: the same tables, questions and default parameters. Its results are not
comparable with published TPC-H results. Money and quantities are ``Decimal(15, 2)`` in the files.
Polars rounds the product of two decimals to the larger scale of the two (cents), where the queries ask
for the exact product; read as ``Float64``, the answers are those of other databases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path

import polars as pl
import polars.selectors as cs

TABLE_NAMES = (
    "customer",
    "lineitem",
    "nation",
    "orders",
    "part",
    "partsupp",
    "region",
    "supplier",
)


class Tables:
    """Lazy scans of the eight tables of one data set.

    Parameters
    ----------
    directory
        Where the tables are: ``lineitem.parquet``, or a folder ``lineitem/`` of Parquet files.
    floats
        Read decimal columns as ``Float64``.

    Raises
    ------
    FileNotFoundError
        From the first use of a table that is not in the directory.
    """

    def __init__(self, directory: str | Path, *, floats: bool = False) -> None:
        self.directory = Path(directory)
        self.floats = floats

    def scan(self, name: str) -> pl.LazyFrame:
        """Scan one table."""
        table = pl.scan_parquet(self.source(name))
        return table.with_columns(cs.decimal().cast(pl.Float64)) if self.floats else table

    def source(self, name: str) -> Path:
        """The file, or the pattern of the files, that hold one table."""
        file = self.directory / f"{name}.parquet"
        if file.is_file():
            return file
        folder = self.directory / name
        if folder.is_dir():
            return folder / "*.parquet"
        raise FileNotFoundError(
            f"table {name!r}: neither {file} nor the folder {folder} exists; make the data with "
            f"'tpchgen-cli parquet -s 1 --output-dir={self.directory}'"
        )

    @cached_property
    def scale_factor(self) -> float:
        """The scale factor of the data: there are 10 000 suppliers per unit of scale."""
        rows: int = pl.scan_parquet(self.source("supplier")).select(pl.len()).collect().item()
        return rows / 10_000

    @property
    def customer(self) -> pl.LazyFrame:
        return self.scan("customer")

    @property
    def lineitem(self) -> pl.LazyFrame:
        return self.scan("lineitem")

    @property
    def nation(self) -> pl.LazyFrame:
        return self.scan("nation")

    @property
    def orders(self) -> pl.LazyFrame:
        return self.scan("orders")

    @property
    def part(self) -> pl.LazyFrame:
        return self.scan("part")

    @property
    def partsupp(self) -> pl.LazyFrame:
        return self.scan("partsupp")

    @property
    def region(self) -> pl.LazyFrame:
        return self.scan("region")

    @property
    def supplier(self) -> pl.LazyFrame:
        return self.scan("supplier")


def _revenue() -> pl.Expr:
    return pl.col("l_extendedprice") * (1 - pl.col("l_discount"))


def q1(tables: Tables) -> pl.LazyFrame:
    """Pricing summary report."""
    return (
        tables.lineitem.filter(pl.col("l_shipdate") <= date(1998, 9, 2))
        .group_by("l_returnflag", "l_linestatus")
        .agg(
            sum_qty=pl.col("l_quantity").sum(),
            sum_base_price=pl.col("l_extendedprice").sum(),
            sum_disc_price=_revenue().sum(),
            sum_charge=(_revenue() * (1 + pl.col("l_tax"))).sum(),
            avg_qty=pl.col("l_quantity").mean(),
            avg_price=pl.col("l_extendedprice").mean(),
            avg_disc=pl.col("l_discount").mean(),
            count_order=pl.len(),
        )
        .sort("l_returnflag", "l_linestatus")
    )


def q2(tables: Tables) -> pl.LazyFrame:
    """Minimum cost supplier."""
    offers = (
        tables.part.filter(pl.col("p_size") == 15, pl.col("p_type").str.ends_with("BRASS"))
        .join(tables.partsupp, left_on="p_partkey", right_on="ps_partkey")
        .join(tables.supplier, left_on="ps_suppkey", right_on="s_suppkey")
        .join(tables.nation, left_on="s_nationkey", right_on="n_nationkey")
        .join(
            tables.region.filter(pl.col("r_name") == "EUROPE"),
            left_on="n_regionkey",
            right_on="r_regionkey",
        )
    )
    cheapest = offers.group_by("p_partkey").agg(pl.col("ps_supplycost").min())
    return (
        offers.join(cheapest, on=["p_partkey", "ps_supplycost"])
        .select(
            "s_acctbal",
            "s_name",
            "n_name",
            "p_partkey",
            "p_mfgr",
            "s_address",
            "s_phone",
            "s_comment",
        )
        .sort("s_acctbal", "n_name", "s_name", "p_partkey", descending=[True, False, False, False])
        .head(100)
    )


def q3(tables: Tables) -> pl.LazyFrame:
    """Shipping priority."""
    day = date(1995, 3, 15)
    return (
        tables.customer.filter(pl.col("c_mktsegment") == "BUILDING")
        .join(
            tables.orders.filter(pl.col("o_orderdate") < day),
            left_on="c_custkey",
            right_on="o_custkey",
        )
        .join(
            tables.lineitem.filter(pl.col("l_shipdate") > day),
            left_on="o_orderkey",
            right_on="l_orderkey",
        )
        .group_by("o_orderkey", "o_orderdate", "o_shippriority")
        .agg(revenue=_revenue().sum())
        .select(pl.col("o_orderkey").alias("l_orderkey"), "revenue", "o_orderdate", "o_shippriority")
        .sort("revenue", "o_orderdate", descending=[True, False])
        .head(10)
    )


def q4(tables: Tables) -> pl.LazyFrame:
    """Order priority checking."""
    late = tables.lineitem.filter(pl.col("l_commitdate") < pl.col("l_receiptdate"))
    return (
        tables.orders.filter(
            pl.col("o_orderdate").is_between(date(1993, 7, 1), date(1993, 10, 1), closed="left")
        )
        .join(late, left_on="o_orderkey", right_on="l_orderkey", how="semi")
        .group_by("o_orderpriority")
        .agg(order_count=pl.len())
        .sort("o_orderpriority")
    )


def q5(tables: Tables) -> pl.LazyFrame:
    """Local supplier volume."""
    return (
        tables.region.filter(pl.col("r_name") == "ASIA")
        .join(tables.nation, left_on="r_regionkey", right_on="n_regionkey")
        .join(tables.customer, left_on="n_nationkey", right_on="c_nationkey")
        .join(
            tables.orders.filter(
                pl.col("o_orderdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
            ),
            left_on="c_custkey",
            right_on="o_custkey",
        )
        .join(tables.lineitem, left_on="o_orderkey", right_on="l_orderkey")
        .join(
            tables.supplier,
            left_on=["l_suppkey", "n_nationkey"],
            right_on=["s_suppkey", "s_nationkey"],
        )
        .group_by("n_name")
        .agg(revenue=_revenue().sum())
        .sort("revenue", descending=True)
    )


def q6(tables: Tables) -> pl.LazyFrame:
    """Forecasting revenue change."""
    return tables.lineitem.filter(
        pl.col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left"),
        pl.col("l_discount").is_between(0.05, 0.07),
        pl.col("l_quantity") < 24,
    ).select(revenue=(pl.col("l_extendedprice") * pl.col("l_discount")).sum())


def q7(tables: Tables) -> pl.LazyFrame:
    """Volume shipping."""
    pair = tables.nation.filter(pl.col("n_name").is_in(["FRANCE", "GERMANY"]))
    suppliers = tables.supplier.join(
        pair.select("n_nationkey", supp_nation="n_name"),
        left_on="s_nationkey",
        right_on="n_nationkey",
    )
    customers = tables.customer.join(
        pair.select("n_nationkey", cust_nation="n_name"),
        left_on="c_nationkey",
        right_on="n_nationkey",
    )
    return (
        customers.join(tables.orders, left_on="c_custkey", right_on="o_custkey")
        .join(
            tables.lineitem.filter(pl.col("l_shipdate").is_between(date(1995, 1, 1), date(1996, 12, 31))),
            left_on="o_orderkey",
            right_on="l_orderkey",
        )
        .join(suppliers, left_on="l_suppkey", right_on="s_suppkey")
        .filter(pl.col("supp_nation") != pl.col("cust_nation"))
        .group_by("supp_nation", "cust_nation", l_year=pl.col("l_shipdate").dt.year())
        .agg(revenue=_revenue().sum())
        .sort("supp_nation", "cust_nation", "l_year")
    )


def q8(tables: Tables) -> pl.LazyFrame:
    """National market share."""
    american = (
        tables.region.filter(pl.col("r_name") == "AMERICA")
        .join(tables.nation, left_on="r_regionkey", right_on="n_regionkey")
        .join(tables.customer, left_on="n_nationkey", right_on="c_nationkey")
        .select("c_custkey")
    )
    return (
        tables.part.filter(pl.col("p_type") == "ECONOMY ANODIZED STEEL")
        .join(tables.lineitem, left_on="p_partkey", right_on="l_partkey")
        .join(
            tables.orders.filter(pl.col("o_orderdate").is_between(date(1995, 1, 1), date(1996, 12, 31))),
            left_on="l_orderkey",
            right_on="o_orderkey",
        )
        .join(american, left_on="o_custkey", right_on="c_custkey")
        .join(tables.supplier, left_on="l_suppkey", right_on="s_suppkey")
        .join(tables.nation, left_on="s_nationkey", right_on="n_nationkey")
        .select("n_name", o_year=pl.col("o_orderdate").dt.year(), volume=_revenue())
        .group_by("o_year")
        .agg(
            mkt_share=pl.when(pl.col("n_name") == "BRAZIL").then("volume").otherwise(0.0).sum()
            / pl.col("volume").sum()
        )
        .sort("o_year")
    )


def q9(tables: Tables) -> pl.LazyFrame:
    """Product type profit measure."""
    return (
        tables.part.filter(pl.col("p_name").str.contains("green", literal=True))
        .join(tables.partsupp, left_on="p_partkey", right_on="ps_partkey")
        .join(
            tables.lineitem,
            left_on=["p_partkey", "ps_suppkey"],
            right_on=["l_partkey", "l_suppkey"],
        )
        .join(tables.supplier, left_on="ps_suppkey", right_on="s_suppkey")
        .join(tables.orders, left_on="l_orderkey", right_on="o_orderkey")
        .join(tables.nation, left_on="s_nationkey", right_on="n_nationkey")
        .select(
            nation="n_name",
            o_year=pl.col("o_orderdate").dt.year(),
            amount=_revenue() - pl.col("ps_supplycost") * pl.col("l_quantity"),
        )
        .group_by("nation", "o_year")
        .agg(sum_profit=pl.col("amount").sum())
        .sort("nation", "o_year", descending=[False, True])
    )


def q10(tables: Tables) -> pl.LazyFrame:
    """Returned item reporting."""
    return (
        tables.customer.join(
            tables.orders.filter(
                pl.col("o_orderdate").is_between(date(1993, 10, 1), date(1994, 1, 1), closed="left")
            ),
            left_on="c_custkey",
            right_on="o_custkey",
        )
        .join(
            tables.lineitem.filter(pl.col("l_returnflag") == "R"),
            left_on="o_orderkey",
            right_on="l_orderkey",
        )
        .join(tables.nation, left_on="c_nationkey", right_on="n_nationkey")
        .group_by("c_custkey", "c_name", "c_acctbal", "c_phone", "n_name", "c_address", "c_comment")
        .agg(revenue=_revenue().sum())
        .select(
            "c_custkey",
            "c_name",
            "revenue",
            "c_acctbal",
            "n_name",
            "c_address",
            "c_phone",
            "c_comment",
        )
        .sort("revenue", descending=True)
        .head(20)
    )


def q11(tables: Tables) -> pl.LazyFrame:
    """Important stock identification."""
    stock = (
        tables.partsupp.join(tables.supplier, left_on="ps_suppkey", right_on="s_suppkey")
        .join(
            tables.nation.filter(pl.col("n_name") == "GERMANY"),
            left_on="s_nationkey",
            right_on="n_nationkey",
        )
        .select("ps_partkey", value=pl.col("ps_supplycost") * pl.col("ps_availqty"))
    )
    threshold = stock.select(threshold=pl.col("value").sum() * (0.0001 / tables.scale_factor))
    return (
        stock.group_by("ps_partkey")
        .agg(pl.col("value").sum())
        .join(threshold, how="cross")
        .filter(pl.col("value") > pl.col("threshold"))
        .select("ps_partkey", "value")
        .sort("value", descending=True)
    )


def q12(tables: Tables) -> pl.LazyFrame:
    """Shipping modes and order priority."""
    urgent = pl.col("o_orderpriority").is_in(["1-URGENT", "2-HIGH"])
    return (
        tables.lineitem.filter(
            pl.col("l_shipmode").is_in(["MAIL", "SHIP"]),
            pl.col("l_commitdate") < pl.col("l_receiptdate"),
            pl.col("l_shipdate") < pl.col("l_commitdate"),
            pl.col("l_receiptdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left"),
        )
        .join(tables.orders, left_on="l_orderkey", right_on="o_orderkey")
        .group_by("l_shipmode")
        .agg(high_line_count=urgent.sum(), low_line_count=(~urgent).sum())
        .sort("l_shipmode")
    )


def q13(tables: Tables) -> pl.LazyFrame:
    """Customer distribution."""
    return (
        tables.customer.join(
            tables.orders.filter(~pl.col("o_comment").str.contains("special.*requests")),
            left_on="c_custkey",
            right_on="o_custkey",
            how="left",
        )
        .group_by("c_custkey")
        .agg(c_count=pl.col("o_orderkey").count())
        .group_by("c_count")
        .agg(custdist=pl.len())
        .sort("custdist", "c_count", descending=True)
    )


def q14(tables: Tables) -> pl.LazyFrame:
    """Promotion effect."""
    promo = pl.when(pl.col("p_type").str.starts_with("PROMO")).then(_revenue()).otherwise(0.0)
    return (
        tables.lineitem.filter(
            pl.col("l_shipdate").is_between(date(1995, 9, 1), date(1995, 10, 1), closed="left")
        )
        .join(tables.part, left_on="l_partkey", right_on="p_partkey")
        .select(promo_revenue=100.0 * promo.sum() / _revenue().sum())
    )


def q15(tables: Tables) -> pl.LazyFrame:
    """Top supplier."""
    revenue = (
        tables.lineitem.filter(
            pl.col("l_shipdate").is_between(date(1996, 1, 1), date(1996, 4, 1), closed="left")
        )
        .group_by(s_suppkey="l_suppkey")
        .agg(total_revenue=_revenue().sum())
        .filter(pl.col("total_revenue") == pl.col("total_revenue").max())
    )
    return (
        tables.supplier.join(revenue, on="s_suppkey")
        .select("s_suppkey", "s_name", "s_address", "s_phone", "total_revenue")
        .sort("s_suppkey")
    )


def q16(tables: Tables) -> pl.LazyFrame:
    """Parts/supplier relationship."""
    complained = tables.supplier.filter(pl.col("s_comment").str.contains("Customer.*Complaints")).select(
        "s_suppkey"
    )
    return (
        tables.part.filter(
            pl.col("p_brand") != "Brand#45",
            ~pl.col("p_type").str.starts_with("MEDIUM POLISHED"),
            pl.col("p_size").is_in([49, 14, 23, 45, 19, 3, 36, 9]),
        )
        .join(tables.partsupp, left_on="p_partkey", right_on="ps_partkey")
        .join(complained, left_on="ps_suppkey", right_on="s_suppkey", how="anti")
        .group_by("p_brand", "p_type", "p_size")
        .agg(supplier_cnt=pl.col("ps_suppkey").n_unique())
        .sort("supplier_cnt", "p_brand", "p_type", "p_size", descending=[True, False, False, False])
    )


def q17(tables: Tables) -> pl.LazyFrame:
    """Small-quantity-order revenue."""
    lines = tables.part.filter(pl.col("p_brand") == "Brand#23", pl.col("p_container") == "MED BOX").join(
        tables.lineitem, left_on="p_partkey", right_on="l_partkey"
    )
    limits = lines.group_by("p_partkey").agg(limit=0.2 * pl.col("l_quantity").mean())
    return (
        lines.join(limits, on="p_partkey")
        .filter(pl.col("l_quantity") < pl.col("limit"))
        .select(avg_yearly=pl.col("l_extendedprice").sum() / 7.0)
    )


def q18(tables: Tables) -> pl.LazyFrame:
    """Large volume customer."""
    large = (
        tables.lineitem.group_by("l_orderkey")
        .agg(sum_qty=pl.col("l_quantity").sum())
        .filter(pl.col("sum_qty") > 300)
    )
    return (
        tables.orders.join(large, left_on="o_orderkey", right_on="l_orderkey")
        .join(tables.customer, left_on="o_custkey", right_on="c_custkey")
        .select(
            "c_name",
            pl.col("o_custkey").alias("c_custkey"),
            "o_orderkey",
            "o_orderdate",
            "o_totalprice",
            "sum_qty",
        )
        .sort("o_totalprice", "o_orderdate", descending=[True, False])
        .head(100)
    )


def q19(tables: Tables) -> pl.LazyFrame:
    """Discounted revenue."""

    def offer(brand: str, containers: list[str], quantity: int, size: int) -> pl.Expr:
        return (
            (pl.col("p_brand") == brand)
            & pl.col("p_container").is_in(containers)
            & pl.col("l_quantity").is_between(quantity, quantity + 10)
            & pl.col("p_size").is_between(1, size)
        )

    return (
        tables.lineitem.filter(
            pl.col("l_shipmode").is_in(["AIR", "AIR REG"]),
            pl.col("l_shipinstruct") == "DELIVER IN PERSON",
        )
        .join(tables.part, left_on="l_partkey", right_on="p_partkey")
        .filter(
            offer("Brand#12", ["SM CASE", "SM BOX", "SM PACK", "SM PKG"], 1, 5)
            | offer("Brand#23", ["MED BAG", "MED BOX", "MED PKG", "MED PACK"], 10, 10)
            | offer("Brand#34", ["LG CASE", "LG BOX", "LG PACK", "LG PKG"], 20, 15)
        )
        .select(revenue=_revenue().sum())
    )


def q20(tables: Tables) -> pl.LazyFrame:
    """Potential part promotion."""
    shipped = (
        tables.lineitem.filter(
            pl.col("l_shipdate").is_between(date(1994, 1, 1), date(1995, 1, 1), closed="left")
        )
        .group_by("l_partkey", "l_suppkey")
        .agg(half=0.5 * pl.col("l_quantity").sum())
    )
    surplus = (
        tables.partsupp.join(
            tables.part.filter(pl.col("p_name").str.starts_with("forest")),
            left_on="ps_partkey",
            right_on="p_partkey",
            how="semi",
        )
        .join(shipped, left_on=["ps_partkey", "ps_suppkey"], right_on=["l_partkey", "l_suppkey"])
        .filter(pl.col("ps_availqty") > pl.col("half"))
    )
    return (
        tables.supplier.join(
            tables.nation.filter(pl.col("n_name") == "CANADA"),
            left_on="s_nationkey",
            right_on="n_nationkey",
        )
        .join(surplus, left_on="s_suppkey", right_on="ps_suppkey", how="semi")
        .select("s_name", "s_address")
        .sort("s_name")
    )


def q21(tables: Tables) -> pl.LazyFrame:
    """Suppliers who kept orders waiting."""
    # Of each order with several suppliers: how many of them were late. Where one was, it was the
    # one that kept the order waiting.
    suppliers = tables.lineitem.group_by("l_orderkey").agg(suppliers=pl.col("l_suppkey").n_unique())
    late = tables.lineitem.filter(pl.col("l_receiptdate") > pl.col("l_commitdate"))
    late_suppliers = late.group_by("l_orderkey").agg(late_suppliers=pl.col("l_suppkey").n_unique())
    return (
        late.join(suppliers.filter(pl.col("suppliers") > 1), on="l_orderkey")
        .join(late_suppliers.filter(pl.col("late_suppliers") == 1), on="l_orderkey")
        .join(
            tables.orders.filter(pl.col("o_orderstatus") == "F"),
            left_on="l_orderkey",
            right_on="o_orderkey",
        )
        .join(tables.supplier, left_on="l_suppkey", right_on="s_suppkey")
        .join(
            tables.nation.filter(pl.col("n_name") == "SAUDI ARABIA"),
            left_on="s_nationkey",
            right_on="n_nationkey",
        )
        .group_by("s_name")
        .agg(numwait=pl.len())
        .sort("numwait", "s_name", descending=[True, False])
        .head(100)
    )


def q22(tables: Tables) -> pl.LazyFrame:
    """Global sales opportunity."""
    candidates = tables.customer.select(
        "c_custkey", "c_acctbal", cntrycode=pl.col("c_phone").str.slice(0, 2)
    ).filter(pl.col("cntrycode").is_in(["13", "31", "23", "29", "30", "18", "17"]))
    average = candidates.filter(pl.col("c_acctbal") > 0).select(average=pl.col("c_acctbal").mean())
    return (
        candidates.join(tables.orders, left_on="c_custkey", right_on="o_custkey", how="anti")
        .join(average, how="cross")
        .filter(pl.col("c_acctbal") > pl.col("average"))
        .group_by("cntrycode")
        .agg(numcust=pl.len(), totacctbal=pl.col("c_acctbal").sum())
        .sort("cntrycode")
    )


@dataclass(frozen=True)
class Query:
    """One query of the benchmark.

    Attributes
    ----------
    number
        1 to 22.
    build
        Makes the lazy frame from the tables.
    order
        The columns by which the answer is sorted; empty where it is a single row. Rows with equal
        values in all of them may come in any order.
    """

    number: int
    build: Callable[[Tables], pl.LazyFrame]
    order: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"q{self.number}"


QUERIES: dict[int, Query] = {
    query.number: query
    for query in (
        Query(1, q1, ("l_returnflag", "l_linestatus")),
        Query(2, q2, ("s_acctbal", "n_name", "s_name", "p_partkey")),
        Query(3, q3, ("revenue", "o_orderdate")),
        Query(4, q4, ("o_orderpriority",)),
        Query(5, q5, ("revenue",)),
        Query(6, q6),
        Query(7, q7, ("supp_nation", "cust_nation", "l_year")),
        Query(8, q8, ("o_year",)),
        Query(9, q9, ("nation", "o_year")),
        Query(10, q10, ("revenue",)),
        Query(11, q11, ("value",)),
        Query(12, q12, ("l_shipmode",)),
        Query(13, q13, ("custdist", "c_count")),
        Query(14, q14),
        Query(15, q15, ("s_suppkey",)),
        Query(16, q16, ("supplier_cnt", "p_brand", "p_type", "p_size")),
        Query(17, q17),
        Query(18, q18, ("o_totalprice", "o_orderdate")),
        Query(19, q19),
        Query(20, q20, ("s_name",)),
        Query(21, q21, ("numwait", "s_name")),
        Query(22, q22, ("cntrycode",)),
    )
}
