"""How many groups the rows of files have, as two samples say that lie apart from each other.

One sample says how often a key repeats among rows that lie close together. Only two say how many keys there are: of few
keys, the second sample has many of the first one's again; keys by which the files are sorted it does not have at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from cudf_polars.lower.context import Context
from cudf_polars.lower.estimates import GroupCount
from cudf_polars.lower.findings import KeyLimit
from cudf_polars.lower.physical import Estimate
from cudf_polars.lower.scans import pipeline_parts
from cudf_polars.plan.expressions import Expr
from cudf_polars.plan.nodes import Node
from cudf_polars.plan.rebuild_expressions import to_expr

__all__ = ["count_groups", "mean_count"]

_COUNTS = "__rr_counts"
SAMPLE_ROWS = 1 << 16
"""Rows of each of a rank's two samples."""
_APART = 0.6
"""Where in a rank's rows the second sample begins. Not in their middle: rows may have a period."""


def count_groups(ctx: Context, node: Node, rows: float, keys: Sequence[Expr]) -> GroupCount | None:
    """Return how many groups ``keys`` make of the rows of ``node``, about ``rows``.

    ``None`` where these are not worth a sample, and unless ``node`` is a row pipeline over Parquet files.
    """
    if rows < ctx.builder.settings.sample_least:
        return None
    asked = node, tuple(keys)
    if asked not in ctx.group_counts:
        ctx.group_counts[asked] = _sampled(ctx, node, [to_expr(key) for key in keys])
    return ctx.group_counts[asked]


def _sampled(ctx: Context, node: Node, keys: Sequence[pl.Expr]) -> GroupCount | None:
    parts = pipeline_parts(ctx, node, SAMPLE_ROWS, (0.0, _APART))
    if parts is None:
        return None
    names = [f"__rr_key{n}" for n in range(len(keys))]
    named = [key.alias(name) for key, name in zip(keys, names, strict=True)]
    of_first, of_second = "__rr_first", "__rr_second"
    here, there, both = pl.col(of_first) > 0, pl.col(of_second) > 0, pl.col(of_first) + pl.col(of_second)
    counts = {
        "rows": both,
        "first": here,
        "second": there,
        "both": pl.lit(1, dtype=pl.UInt64),
        "once": both == 1,
        "twice": both == 2,
        "thrice": both == 3,
    }
    facts = [fact.cast(pl.UInt64).alias(name) for name, fact in counts.items()]

    def build(frames: Sequence[pl.LazyFrame], rank: int) -> pl.LazyFrame:
        samples = [
            frame.select(
                *named,
                pl.lit(place == 0, dtype=pl.Boolean).alias(of_first),
                pl.lit(place == 1, dtype=pl.Boolean).alias(of_second),
            )
            for place, frame in enumerate(frames)
        ]
        groups = pl.concat(samples).group_by(names).agg(pl.col(of_first, of_second).sum())
        # One text holds all counts of a rank, so that they stay together, and its number, so that equal counts of two
        # ranks stay apart.
        return (
            groups.select(facts)
            .sum()
            .select(pl.concat_str(pl.lit(rank), *counts, separator=" ").alias(_COUNTS))
        )

    one = ctx.builder.local(
        "SAMPLE GROUPS",
        parts,
        build,
        schema={_COUNTS: pl.String()},
        ordered=False,
        estimate=Estimate(1.0, 64.0),
    )
    table = ctx.builder.materialize(one, "to see how many groups there are")
    ctx.builder.count(table)
    (found,) = ctx.builder.findings.find_keys(table, {_COUNTS: KeyLimit(ctx.builder.settings.nranks)})
    assert found.values is not None
    return mean_count([dict(zip(counts, map(int, text.split()[1:]), strict=True)) for text in found.values])


def mean_count(ranks: Sequence[Mapping[str, int]]) -> GroupCount:
    """Return the mean counts of the ranks whose samples have rows."""
    sampled = [counts for counts in ranks if counts["rows"]] or ranks
    return GroupCount(**{name: sum(counts[name] for counts in sampled) / len(sampled) for name in sampled[0]})
