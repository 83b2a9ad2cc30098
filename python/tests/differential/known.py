"""What is known to differ, with the reason: faults of Polars, each with a reproduction on Polars alone.

A case is never left out; what it shows is compared with this list, and counted under its cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KNOWN", "Known", "known_fault"]


@dataclass(frozen=True)
class Known:
    """A cause.

    Attributes
    ----------
    kinds
        Kinds of findings that it explains.
    detail, text
        Regular expressions for what differs and for the case.
    reason
        Why it is no fault of ours.
    reproduction
        A few lines that show it with Polars alone.
    """

    name: str
    kinds: tuple[str, ...]
    detail: str
    text: str
    reason: str
    reproduction: str


KNOWN: tuple[Known, ...] = (
    *(
        Known(
            name=f"the type of {written}",
            kinds=("we raise where Polars answers",),
            detail=rf"incoming: {given} != target: {planned}\b",
            text=re.escape(written) + r"\)",
            reason=f"Polars plans {planned} and gives {given}; a part of the query that was planned for the one type"
            " cannot take the other.",
            reproduction="import polars as pl\n"
            f"lf = pl.LazyFrame({{'x': [1]}}).select({written})\n"
            "faulty = lf.collect_schema() != lf.collect().schema",
        )
        for written, planned, given in (
            ("pl.lit(2**63+5) * 2", "UInt64", "Int128"),
            ("pl.lit(None) / pl.len()", "Null", "Float64"),
        )
    ),
    Known(
        name="one row of rows that are read twice",
        kinds=("we raise where Polars answers", "wrong type of error", "some ranks return, others raise"),
        detail=r"assertion failed: pipe\.send_state == PortState::Done",
        text=r"\.gather\(|\.get\(",
        reason="Polars' streaming engine panics where rows chosen by gather are joined with the head of the same rows:"
        " always over Arrow streams, over frames without comm_subplan_elim, and not over files.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'g': ['c'], 's': ['foo'], 'b': [True]}).gather([0])\n"
        "lf = lf.join(lf.head(5).filter(~pl.col('b')).select('s'), left_on='g', right_on='s')\n"
        "flags = pl.QueryOptFlags(comm_subplan_elim=False)\n"
        "faulty = False\n"
        "try:\n"
        "    lf.collect(engine='streaming', optimizations=flags)\n"
        "except pl.exceptions.PanicException:\n"
        "    faulty = True",
    ),
    Known(
        name="right join over a join with the same names",
        kinds=("we raise where Polars answers",),
        detail=r"DuplicateError: column with name '\w+_right' already exists",
        text=r"how='right'",
        reason="Polars' streaming engine finds a name twice that is there once.",
        reproduction="import polars as pl\n"
        "a, b = pl.LazyFrame({'i': [-10, -6], 'srt': [0, 1]}), pl.LazyFrame({'srt': [1]})\n"
        "lf = a.join(a, left_on=pl.col('i') + 1, right_on='srt')\n"
        "lf = lf.join(b, left_on='srt_right', right_on='srt', how='right')\n"
        "assert lf.collect(engine='in-memory').columns == lf.collect_schema().names()\n"
        "faulty = False\n"
        "try:\n"
        "    lf.collect(engine='streaming')\n"
        "except pl.exceptions.DuplicateError:\n"
        "    faulty = True",
    ),
    Known(
        name="columns of a join over a join that does not coalesce",
        kinds=("we raise where Polars answers", "wrong schema"),
        detail=r"did not find column|_right",
        text=r"coalesce=False",
        reason="Polars says of the query that it has a column which its answer has not.",
        reproduction="import polars as pl\n"
        "a, b, c = (pl.LazyFrame(dict.fromkeys(names, [1])) for names in ('sir', 'ir', 'ruw'))\n"
        "b = b.join(c, left_on=['i', 'r'], right_on=['r', 'u'], coalesce=False)\n"
        "lf = a.join(b, left_on='i', right_on='r_right')\n"
        "faulty = lf.collect_schema() != lf.collect().schema",
    ),
    Known(
        name="the type of list.diff",
        kinds=("we raise where Polars answers", "wrong schema"),
        detail=r"expected type Null|List\(Null\)",
        text=r"list\.diff",
        reason="Of lists that are all null, Polars gives lists of nulls, whatever it planned.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'l': [None]}, schema={'l': pl.List(pl.Int64)}).select(pl.col('l').list.diff())\n"
        "faulty = lf.collect_schema() != lf.collect().schema",
    ),
    Known(
        name="the type of cum_reduce",
        kinds=("we raise where Polars answers", "wrong schema"),
        detail=r"",
        text=r"cum_reduce\(",
        reason="Of columns of different types, Polars plans a struct of these and gives one of their common type.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'i': [1], 'j': [2]}, schema={'i': pl.Int64, 'j': pl.Int32})\n"
        "lf = lf.select(pl.cum_reduce(lambda a, b: a + b, ['i', 'j']))\n"
        "faulty = lf.collect_schema() != lf.collect().schema",
    ),
    Known(
        name="the type of reversed lists",
        kinds=("we raise where Polars answers", "wrong schema"),
        detail=r"expected type Null|List\(Null\)",
        text=r"reverse\(\)",
        reason="Of lists of lists that are all null, Polars' reverse() gives lists of nulls, but not everywhere.",
        reproduction="import polars as pl\n"
        "values = pl.Series([None, None], dtype=pl.List(pl.List(pl.Int64)))\n"
        "faulty = values.reverse().dtype != values.dtype",
    ),
    Known(
        name="variance of no values",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"None.*0\.0|0\.0.*None|\[\]",
        text=r"(var|std)\(ddof=0\)",
        reason="Of a group without values, Polars gives null or 0.0, by its engine and how it walks the groups.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'g': [1], 'x': [None]}, schema={'g': pl.Int64, 'x': pl.Int64})\n"
        "lf = lf.group_by('g').agg(pl.col('x').var(ddof=0))\n"
        "faulty = not lf.collect(engine='streaming').equals(lf.collect(engine='in-memory'))",
    ),
)


def known_fault(text: str, kind: str, detail: str) -> str | None:
    """Return the name of the known cause of a finding."""
    for known in KNOWN:
        if (
            kind in known.kinds
            and re.search(known.detail, detail, re.DOTALL)
            and re.search(known.text, text, re.DOTALL)
        ):
            return known.name
    return None
