"""What a query says of its run: rows, bytes, seconds, partitions and spilled bytes, of all ranks."""

from __future__ import annotations

import re
from pathlib import Path

import polars as pl
import pytest
from execute.compare import PARTITIONED, TINY
from execute.local_transport import LocalTransport, run_ranks

from cudf_polars.execute.measured import Measured, merge_facts, pack_facts
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.execute.run import QueryOutcome, open_query, run_query, stream_query
from cudf_polars.lower.explain import explain_physical
from cudf_polars.lower.physical import walk

pytestmark = pytest.mark.filterwarnings("ignore::cudf_polars.FallbackWarning")


class SpillingTransport(LocalTransport):
    """Says that each rank has spilled, one more MiB whenever it is asked."""

    _asked = 0

    @property
    def bytes_spilled(self) -> int:
        self._asked += 1
        return (1 << 20) * self._asked


def outcomes(nranks: int, options: ExecutionOptions = TINY) -> list[QueryOutcome]:
    """Return what each rank says of a join and a sort over rank + 1 times 100 rows."""

    def work(transport: LocalTransport) -> QueryOutcome:
        rows = 100 * (transport.rank + 1)
        frame = pl.LazyFrame({"a": range(rows), "b": [transport.rank] * rows})
        query = frame.join(frame.select("a", c="b"), on="a").sort("a", "b", "c")
        return run_query(query, transport, options=options)

    return run_ranks(nranks, work)


def test_all_ranks_say_the_same_of_all_ranks() -> None:
    each = outcomes(3)
    texts = {outcome.explain() for outcome in each}
    assert len(texts) == 1
    (text,) = texts
    sent = [line for line in text.splitlines() if "SHUFFLE by hash(a)" in line]
    assert len(sent) == 2
    for line in sent:
        assert "; a rank 100 / 200 / 300 rows, 1.6 KiB / 3.1 KiB / 4.7 KiB, " in line
        assert re.search(r", \d+\.\d{3}( / \d+\.\d{3} / \d+\.\d{3})? s$", line)
    heights = [outcome.frame.height for outcome in each]
    (result,) = (line for line in text.splitlines() if line.startswith("RESULT"))
    assert f" {min(heights)} / {sum(heights) / 3:.0f} / {max(heights)} rows, " in result


def test_parts_of_which_a_step_is_made_are_counted() -> None:
    text = outcomes(2, PARTITIONED)[0].explain()
    count = PARTITIONED.partitions
    assert f"Each rank works on {count} partitions" in text
    (sort,) = (line for line in text.splitlines() if "MATERIALIZE (to choose how to sort)" in line)
    assert sort.endswith(f" s, {count} partitions"), text


def test_bytes_that_are_spilled_meanwhile_are_counted() -> None:
    def work(transport: LocalTransport) -> str:
        spilling = SpillingTransport(transport._group, transport.rank)
        return run_query(pl.LazyFrame({"a": [1, 2]}).sort("a"), spilling, options=TINY).explain()

    text = run_ranks(2, work)[0]
    (result,) = (line for line in text.splitlines() if line.startswith("RESULT"))
    assert result.endswith(" MiB spilled")
    assert "spilled" not in outcomes(2)[0].explain()


def test_rows_that_are_written_are_counted_on_all_ranks() -> None:
    def work(transport: LocalTransport) -> tuple[str, int]:
        written: list[pl.DataFrame] = []
        outcome = stream_query(
            pl.LazyFrame({"a": range(10 * (transport.rank + 1))}).with_columns(b=pl.col("a") + 1).sort("a"),
            transport,
            lambda rows: written.append(rows.collect(engine="streaming")),
            options=TINY,
            end=lambda facts: transport.allgather_bytes(facts, op=2000),
        )
        return outcome.explain(), written[0].height

    ranks = run_ranks(2, work)
    heights = [height for _, height in ranks]
    (result,) = (line for line in ranks[0][0].splitlines() if line.startswith("RESULT"))
    shown = " / ".join(f"{v:.0f}" for v in (min(heights), sum(heights) / 2, max(heights)))
    assert f"; a rank {shown} rows, " in result
    assert ranks[0][0] == ranks[1][0]


def test_what_other_ranks_did_is_said_before_the_last_step_is_read() -> None:
    def work(transport: LocalTransport) -> str:
        opened = open_query(pl.LazyFrame({"a": range(10)}).sort("a"), transport, options=TINY)
        text = opened.outcome().explain()
        opened.rows.collect(engine="streaming")
        return text

    first, second = run_ranks(2, work)
    assert first == second
    assert "RANGE EXCHANGE" in first
    assert "; a rank 10 rows, " in first


def test_a_query_that_ran_as_it_was_says_what_it_gave(tmp_path: Path) -> None:
    def work(transport: LocalTransport) -> str:
        return run_query(pl.LazyFrame({"a": [1, 2, 3]}), transport).explain()

    (text,) = run_ranks(1, work)
    assert re.fullmatch(
        r"One fragment on one rank: the query as Polars runs it; 3 rows, 24 B, \d+\.\d{3} s", text
    )


def test_ranks_without_a_part_are_not_counted() -> None:
    def work(transport: LocalTransport) -> QueryOutcome:
        return run_query(pl.LazyFrame({"a": [transport.rank]}).select(pl.col("a").sum()), transport)

    outcome = run_ranks(2, work)[0]
    assert outcome.physical is not None
    facts = merge_facts(
        outcome.physical,
        [
            pack_facts(outcome.physical, {outcome.physical: Measured(5, 10.0, 0.5, 3, 0)}),
            pack_facts(outcome.physical, {}),
        ],
    )
    assert list(facts) == [outcome.physical]
    assert facts[outcome.physical].rows == (5,)
    line = explain_physical(outcome.physical, facts).splitlines()
    assert any(text.endswith("; a rank 5 rows, 10 B, 0.500 s, 3 partitions") for text in line)
    assert len(walk(outcome.physical)) > 1
