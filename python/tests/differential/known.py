"""What is known to differ, with the reason: faults of Polars, each with a reproduction on Polars alone.

A case is never left out; what it shows is compared with this list, and counted under its cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KNOWN", "Known", "known_fault"]

_OF_TYPES = (
    "we raise where Polars answers",
    "wrong schema",
    "Polars' engines disagree, and we with both",
)
"""What a type shows itself by that is planned and not given."""


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


def _plans_another_schema(lines: str) -> str:
    """Return a reproduction: Polars plans for the query ``lf``, which the lines make, another schema than it gives."""
    return f"import polars as pl\n{lines}faulty = lf.collect_schema() != lf.collect().schema"


def _answers_and_raises(lines: str, answers: str, raises: str, error: str) -> str:
    """Return a reproduction: after the lines, Polars answers the one query and raises ``error`` for the other."""
    return (
        f"import polars as pl\n{lines}{answers}\n"
        f"try:\n    {raises}\n    faulty = False\nexcept pl.exceptions.{error}:\n    faulty = True"
    )


KNOWN: tuple[Known, ...] = (
    *(
        Known(
            name=f"the type of {written}",
            kinds=_OF_TYPES,
            detail=rf"incoming: {given} != target: {planned}\b",
            text=re.escape(written) + r"\)",
            reason=f"Polars plans {planned} and gives {given}; a part of the query that was planned for the one type"
            " cannot take the other.",
            reproduction=_plans_another_schema(f"lf = pl.LazyFrame({{'x': [1]}}).select({written})\n"),
        )
        for written, planned, given in (
            ("pl.lit(2**63+5) * 2", "UInt64", "Int128"),
            ("pl.lit(None) / pl.len()", "Null", "Float64"),
        )
    ),
    Known(
        name="the type of aggregates over groups of no rows, joined",
        kinds=(*_OF_TYPES, "we answer where Polars raises"),
        detail=r"\b(\w+)\b.*List\(\1\)|List\((\w+)\).*\b\2\b",
        text=r"over\(.*mapping_strategy='join'",
        reason="Polars plans a value and gives a list of them.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame(schema={'x': pl.Int64}).select(pl.len().over('x', mapping_strategy='join'))\n"
        ),
    ),
    Known(
        name="the type of sums of UInt128",
        kinds=_OF_TYPES,
        detail=r"conversion from `u128` to `i64` failed|UInt128.*Int64|Int64.*UInt128",
        text=r"(?s)UInt128.*(cum_sum|SUM\(.*OVER)",
        reason="Polars plans Int64 of what it adds up or multiplies row after row, and gives UInt128.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame({'x': [2**63]}, schema={'x': pl.UInt128}).select(pl.col('x').cum_sum())\n"
        ),
    ),
    Known(
        name="a type without a name",
        kinds=("wrong schema",),
        detail=r"Null.*Polars.*Unknown",
        text=r"pl\.lit\(b'ab'\) \* 2",
        reason="Of a product of bytes, which has no value, Polars plans a type that no column can have, and gives it"
        " where there are no rows; a frame made with that type has another.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'x': [1]}).select(z=pl.lit(b'ab') * 2)\n"
        "planned = lf.collect_schema()\n"
        "faulty = planned['z'] == pl.Unknown and pl.DataFrame(schema=planned).schema != planned",
    ),
    Known(
        name="the type of interpolated Booleans",
        kinds=(*_OF_TYPES, "we answer where Polars raises"),
        detail=r"Boolean.*Float64|Float64.*Boolean|conversion from `\w+` to `\w+`",
        text=r"(?s)Boolean.*interpolate\(",
        reason="Polars plans Float64, and gives Boolean or Float64 by its engine and the values.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'x': [True, False]}, schema={'x': pl.Boolean}).interpolate()\n"
        "faulty = lf.collect_schema() != lf.collect(engine='in-memory').schema",
    ),
    Known(
        name="rolling over what is neither sorted nor complete",
        kinds=("wrong type of error",),
        detail=r"(null values in `rolling`.*is not sorted|is not sorted.*null values in `rolling`)",
        text=r"rolling\(",
        reason="Polars names the null or the order, by its engine and by how it cuts the rows.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'d': [3, None, 1, 2], 'i': [1, 2, 3, 4]})\n"
        "lf = lf.select(pl.col('i').sum().rolling('d', period='2i'))\n"
        "named = set()\n"
        "for engine in ('streaming', 'in-memory'):\n"
        "    try:\n"
        "        lf.collect(engine=engine)\n"
        "    except pl.exceptions.PolarsError as error:\n"
        "        named.add(type(error))\n"
        "faulty = len(named) == 2",
    ),
    Known(
        name="the fields of runs of no rows",
        kinds=(*_OF_TYPES, "we answer where Polars raises"),
        detail=r"'len': UInt32|\blen\b",
        text=r"\.rle\(\)",
        reason="Of no rows, Polars' streaming engine gives the fields of runs in another order than it plans.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'x': []}, schema={'x': pl.Int64}).select(pl.col('x').rle())\n"
        "faulty = lf.collect(engine='streaming').schema != lf.collect_schema()",
    ),
    Known(
        name="the type of set operations on lists",
        kinds=(*_OF_TYPES, "we answer where Polars raises"),
        detail=r"incoming: \w+ != target: \w+\b|List\((Int|UInt|Float)\d+.*Polars.*List\((Int|UInt|Float)\d+"
        r"|type \w+ is incompatible with expected type",
        text=r"list\.set_\w+\(",
        reason="Of lists of different types, Polars plans the type of the first, and gives that which both have in"
        " common.",
        reproduction=_plans_another_schema(
            "schema = {'a': pl.List(pl.Int16), 'b': pl.List(pl.Int64)}\n"
            "lf = pl.LazyFrame({'a': [[1]], 'b': [[2]]}, schema=schema).select(pl.col('a').list.set_difference('b'))\n"
        ),
    ),
    Known(
        name="windows that begin at the least integer",
        kinds=("hang", "crash"),
        detail=r"",
        text=r"(?s)(lower_bound\(|'w').*group_by_dynamic\(.*every='\di'",  # 'w' has that value
        reason="Polars looks for the first window below the least integer, and never ends.",
        reproduction="""
import subprocess, sys
script = '''
import polars as pl
lf = pl.LazyFrame({"x": [-2**63]}, schema={"x": pl.Int64})
lf.group_by_dynamic("x", every="5i").agg(pl.len()).collect()
'''
try:
    subprocess.run([sys.executable, "-c", script], timeout=8)
    faulty = False
except subprocess.TimeoutExpired:
    faulty = True
""",
    ),
    Known(
        name="a left join by a key that has the suffix",
        kinds=("we raise where Polars answers", "wrong schema", "wrong rows"),
        detail=r"did not find column \w+_right|_right",
        text=r"right_on=\['\w+_right'\]",
        reason="Where the right side also has a column of the left key's name, Polars plans it with the suffix, and"
        " leaves it out.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'c': [1]}).join(\n"
        "    pl.LazyFrame({'c': [1], 'c_right': [1]}), left_on='c', right_on='c_right', how='left')\n"
        "faulty = lf.collect_schema().names() != lf.collect().columns",
    ),
    Known(
        name="row numbers of rows of which nothing is read",
        kinds=("we answer where Polars raises",),
        detail=r"ColumnNotFoundError: did not find column index",
        text=r"(?s)scan_ipc.*with_row_index\('index'",
        reason="Polars' optimiser asks a file for the numbers that a step before has made.",
        reproduction="""
import tempfile
import polars as pl
faulty = False
with tempfile.TemporaryDirectory() as folder:
    pl.DataFrame({"a": [0]}).write_ipc(f"{folder}/a.ipc")
    lf = pl.scan_ipc(f"{folder}/*.ipc")
    try:
        lf.join(lf.with_row_index("index"), on="a").select("index").collect()
    except pl.exceptions.ColumnNotFoundError:
        faulty = True
""",
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
        kinds=_OF_TYPES,
        detail=r"did not find column|_right",
        text=r"coalesce=False",
        reason="Polars says of the query that it has a column which its answer has not.",
        reproduction=_plans_another_schema(
            "a, b, c = (pl.LazyFrame(dict.fromkeys(names, [1])) for names in ('sir', 'ir', 'ruw'))\n"
            "b = b.join(c, left_on=['i', 'r'], right_on=['r', 'u'], coalesce=False)\n"
            "lf = a.join(b, left_on='i', right_on='r_right')\n"
        ),
    ),
    Known(
        name="the type of list.diff",
        kinds=_OF_TYPES,
        detail=r"expected type Null|List\(Null\)",
        text=r"list\.diff",
        reason="Of lists that are all null, Polars gives lists of nulls, whatever it planned.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame({'l': [None]}, schema={'l': pl.List(pl.Int64)}).select(pl.col('l').list.diff())\n"
        ),
    ),
    Known(
        name="as-of joins by keys whose nulls come last",
        kinds=("we answer where Polars raises",),
        detail=r"'asof_join' is not sorted",
        text=r"(?s)None.*\.join_asof\(|\.shift\(-.*\.join_asof\(",
        reason="Polars' streaming engine takes such keys for sorted, and the other, which also runs parts of streaming"
        " queries, does not.",
        reproduction=_answers_and_raises(
            "left, right = pl.LazyFrame({'a': [1, None]}), pl.LazyFrame({'b': [0]})\n"
            "lf = left.join_asof(right, left_on='a', right_on='b')\n",
            "assert lf.collect(engine='streaming').height == 2",
            "lf.collect(engine='in-memory')",
            "InvalidOperationError",
        ),
    ),
    Known(
        name="an error in rows that a slice drops",
        kinds=("we answer where Polars raises",),
        detail=r"conversion from",
        text=r"(?s)\.cast\(.*\.(first|last|head|tail|limit|slice)\(",
        reason="Polars slices before it casts, unless a column beside the cast is computed of several rows.",
        reproduction=_answers_and_raises(
            "cast = pl.col('i').cast(pl.UInt8).alias('c')\nlf = pl.LazyFrame({'i': [-3, 14]})\n",
            "assert lf.select(cast).last().collect().height == 1",
            "lf.select(cast, pl.col('i').diff(-1)).last().collect()",
            "InvalidOperationError",
        ),
    ),
    Known(
        name="an error beside a side of a join that has no rows",
        kinds=("we answer where Polars raises",),
        detail=r"gather indices are out of bounds",
        text=r"(?s)\.get\(.*\.join\(",
        reason="Without rows on one side, the other is not needed. Polars' streaming engine stops it, too, and panics.",
        reproduction="import polars as pl\n"
        "rows = pl.LazyFrame(schema={'x': pl.Int64})\n"
        "lf = rows.join(rows.select(z=pl.col('x').get(0)), how='cross')\n"
        "try:\n"
        "    lf.collect(engine='streaming')\n"
        "    faulty = False\n"
        "except pl.exceptions.PanicException:\n"
        "    faulty = True\n"
        "except pl.exceptions.OutOfBoundsError:\n"
        "    faulty = False",
    ),
    Known(
        name="rows that are not there, of which nothing is read",
        kinds=("we raise where Polars answers",),
        detail=r"gather indices are out of bounds",
        text=r"\.gather\(|\.get\(",
        reason="Polars gathers rows without columns, whether they are there or not.",
        reproduction=_answers_and_raises(
            "lf = pl.LazyFrame(schema={'x': pl.Int64}).gather([0])\n",
            "assert lf.select(z=pl.lit(1)).collect().height == 1",
            "lf.collect()",
            "OutOfBoundsError",
        ),
    ),
    Known(
        name="frames of different heights side by side, of which no row is wanted",
        kinds=("we answer where Polars raises",),
        detail=r"zip node received non-equal length inputs|cannot concat dataframes with different heights",
        text=r"(?s)how='horizontal'.*\.(join|filter)\(",
        reason="Where the other side of a join has no keys, a filter leaves no row, and Polars does not compute what is"
        " below such a filter.",
        reproduction=_answers_and_raises(
            "sides = [pl.LazyFrame({'a': [1]}), pl.LazyFrame({'b': [1, 2]})]\n"
            "lf = pl.concat(sides, how='horizontal')\n",
            "assert lf.filter(pl.lit(False)).collect().height == 0",
            "lf.collect()",
            "ShapeError",
        ),
    ),
    Known(
        name="the type of values gathered in groups of no rows",
        kinds=(*_OF_TYPES, "we answer where Polars raises"),
        detail=r"List\(Null\)|expected type Null",
        text=r"(?s)\.agg\(.*\.gather\(\[",
        reason="Polars plans a list of the column's type, and gives a list of nulls where there are no rows.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame(schema={'x': pl.String, 'k': pl.Int64})\n"
            "lf = lf.group_by('k').agg(pl.col('x').gather([0]))\n"
        ),
    ),
    Known(
        name="an error in rows that a filter drops",
        kinds=("we answer where Polars raises",),
        detail=r"conversion from",
        text=r"\.cast\(.*\n.*\.filter\(.*\n.*\.sort\(.*\.alias\('sorted'\)\)\.filter\(",
        reason="Once it sees that one value needs no sorting, Polars filters before it casts; whether it sees that in"
        " time depends on how often a plan is optimised.",
        reproduction="import polars as pl\n"
        "def ends(key):\n"
        "    lf = pl.LazyFrame({'i': [-17]}).select(pl.col('i').sum(), pl.col('i').lower_bound().alias('low'))\n"
        "    lf = lf.cast({'low': pl.Int8}).filter(pl.col('low') < pl.col('i')).with_columns(key.alias('key'))\n"
        "    try:\n"
        "        return lf.filter(pl.col('key') > 4).select('key').collect().height == 0\n"
        "    except pl.exceptions.InvalidOperationError:\n"
        "        return False\n"
        "faulty = ends(pl.col('i')) and not ends(pl.col('i').sort())",
    ),
    Known(
        name="a wrong file that nobody needs",
        kinds=("we answer where Polars raises",),
        detail=r"extra column in file outside of expected schema",
        text=r"how='cross'",
        reason="Polars finds a file that does not fit when it opens it: a part of a cross join that has no rows on the"
        " other side opens none of its own.",
        reproduction="""
import tempfile
import polars as pl
with tempfile.TemporaryDirectory() as folder:
    pl.DataFrame({"i": [1]}).write_parquet(f"{folder}/0.parquet")
    pl.DataFrame({"i": [1], "more": [2]}).write_parquet(f"{folder}/1.parquet")
    lf = pl.scan_parquet(f"{folder}/*.parquet")
    unnoticed = lf.head(1).collect().height == 1
    try:
        lf.collect()
        faulty = False
    except pl.exceptions.SchemaError:
        faulty = unnoticed
""",
    ),
    Known(
        name="the type of weighted rolling means of Float16",
        kinds=_OF_TYPES,
        detail=r"Float16.*Float64|Float64.*Float16",
        text=r"rolling_mean\(.*weights",
        reason="Polars plans Float16 for it and gives Float64.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame({'f': [1.5, 2.5]}, schema={'f': pl.Float16})\n"
            "lf = lf.select(pl.col('f').rolling_mean(2, weights=[1, 2.0]))\n"
        ),
    ),
    Known(
        name="the columns of a join by one column of the right side twice",
        kinds=_OF_TYPES,
        detail=r"",
        text=r"right_on=\['(\w+)', '\1'\]",
        reason="Polars plans that column for the result and does not give it.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame({'i': [1], 'k': [2]})\n"
            "right = lf.join(lf, left_on='k', right_on='i')\n"
            "lf = lf.join(right, left_on=['i', 'k'], right_on=['k_right', 'k_right'])\n"
        ),
    ),
    Known(
        name="a right join by one column of the right side twice",
        kinds=("wrong rows", "wrong number of rows"),
        detail=r"",
        text=r"(?s)right_on=\['(\w+)', '\1'\].*how='right'",
        reason="Pushing down the equality of the left keys, Polars gives the left side's column of the same name.",
        reproduction="import polars as pl\n"
        "a, b = pl.LazyFrame({'w': [5], 'k': [5]}), pl.LazyFrame({'k': [0, 5]})\n"
        "lf = a.join(b, left_on=['w', 'k'], right_on=['k', 'k'], how='right')\n"
        "flags = pl.QueryOptFlags(predicate_pushdown=False)\n"
        "faulty = not lf.collect().equals(lf.collect(optimizations=flags))",
    ),
    Known(
        name="the type of a null's quotient",
        kinds=_OF_TYPES,
        detail=r"Null.*Float64|Float64.*Null",
        text=r"'nul'.* / ",
        reason="Polars plans a column of nulls for it and gives one of floats.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame({'n': [None]}).select(pl.col('n') / pl.len())\n"
        ),
    ),
    Known(
        name="the type of cum_reduce",
        kinds=(*_OF_TYPES, "we answer where Polars raises", "wrong type of error"),
        detail=r"",
        text=r"cum_reduce\(",
        reason="Of columns of different types, Polars plans a struct of these and gives one of their common type.",
        reproduction=_plans_another_schema(
            "lf = pl.LazyFrame({'i': [1], 'j': [2]}, schema={'i': pl.Int64, 'j': pl.Int32})\n"
            "lf = lf.select(pl.cum_reduce(lambda a, b: a + b, ['i', 'j']))\n"
        ),
    ),
    Known(
        name="the type of reversed lists",
        kinds=_OF_TYPES,
        detail=r"expected type Null|List\(Null\)",
        text=r"reverse\(\)",
        reason="Of lists of lists that are all null, Polars' reverse() gives lists of nulls, but not everywhere.",
        reproduction="import polars as pl\n"
        "values = pl.Series([None, None], dtype=pl.List(pl.List(pl.Int64)))\n"
        "faulty = values.reverse().dtype != values.dtype",
    ),
    Known(
        name="slices of joins that keep an order",
        kinds=("Polars' engines disagree, and we with both",),
        detail=r"wrong rows|wrong order",
        text=r"(?s)maintain_order='(left|right).*(slice|head|tail|limit|LIMIT|first|last|gather)",
        reason="Polars moves the slice into the join, sees that nothing else needs the order, and gives it up: its"
        " streaming engine slices rows in any order. Without slice_pushdown the engines agree.",
        reproduction="import tempfile\n"
        "from pathlib import Path\n"
        "import polars as pl\n"
        "with tempfile.TemporaryDirectory() as name:\n"
        "    for part in range(5):\n"
        "        rows = pl.DataFrame({'a': range(part * 400, part * 400 + 400)})\n"
        "        rows.write_parquet(Path(name) / f'{part}.parquet', row_group_size=50)\n"
        "    lf = pl.scan_parquet(Path(name) / '*.parquet')\n"
        "    lf = lf.join(lf.head(300), on='a', how='left', maintain_order='left').slice(31)\n"
        "    lf = lf.select(pl.col('a').sum())\n"
        "    faulty = not lf.collect(engine='streaming').equals(lf.collect(engine='in-memory'))",
    ),
    Known(
        name="correlation of no values",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"None.*nan|nan.*None",
        text=r"pl\.corr\(",
        reason="Of a group without values, Polars gives null or NaN, by its engine and how it walks the groups.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'g': [1, 1], 'x': [None, None]}, schema={'g': pl.Int64, 'x': pl.Float64})\n"
        "lf = lf.group_by('g').agg(pl.corr('x', 'x'))\n"
        "faulty = not lf.collect(engine='streaming').equals(lf.collect(engine='in-memory'))",
    ),
    Known(
        name="rows by the variance or correlation of no values",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"\d+ rows, Polars \d+",
        text=r"(?s)(?:(?:var|std)\(ddof=0\)|pl\.corr\([^()]*\))\)\.alias\('(\w+)'\).*c\('\1'\)",
        reason="What is null or not, by the engine, decides which rows are kept.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'g': [1], 'x': [None]}, schema={'g': pl.Int64, 'x': pl.Int64})\n"
        "lf = lf.group_by('g').agg(pl.col('x').var(ddof=0)).filter(pl.col('x').is_null())\n"
        "faulty = lf.collect(engine='streaming').height != lf.collect(engine='in-memory').height",
    ),
    Known(
        name="reversed arrays",
        kinds=("we raise where Polars answers", "wrong type of error", "some ranks return, others raise"),
        detail=r"reverse for FixedSizeList with non-numeric",
        text=r"reverse\(\)",
        reason="Polars cannot reverse arrays of texts, and panics; but not where it takes all rows for the same.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'a': [['p', 'q'], ['p', 'q']]}, schema={'a': pl.Array(pl.String, 2)}).reverse()\n"
        "assert lf.collect(engine='streaming').height == 2\n"
        "faulty = False\n"
        "try:\n"
        "    lf.collect(engine='in-memory')\n"
        "except pl.exceptions.PanicException:\n"
        "    faulty = True",
    ),
    Known(
        name="validation of keys that are null",
        kinds=("we raise where Polars answers", "we answer where Polars raises"),
        detail=r"join keys did not fulfill",
        text=r"how='full'.*validate='(1:m|m:1|1:1)'",
        reason="Whether several null keys are doubles depends in a full join of Polars on which side has more rows.",
        reproduction="import polars as pl\n"
        "nulls = pl.LazyFrame({'a': [9] * 30, 'b': [None] * 30}, schema={'a': pl.Int64, 'b': pl.Int64})\n"
        "raised = []\n"
        "for rows in (5, 50):\n"
        "    other = pl.LazyFrame({'a': range(rows), 'b': range(rows)})\n"
        "    try:\n"
        "        other.join(nulls, on=['a', 'b'], how='full', validate='m:1').collect()\n"
        "        raised.append(False)\n"
        "    except pl.exceptions.ComputeError:\n"
        "        raised.append(True)\n"
        "faulty = raised == [False, True]",
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
    Known(
        name="a function of the wrong type over no group",
        kinds=("we answer where Polars raises", "we raise where Polars answers"),
        detail=r"SchemaError: expected output type .* set `return_dtype`",
        text=r"group_by.*map_(batches|elements)|map_(batches|elements).*over\(",
        reason="Of a table without rows, Polars finds the wrong type by its engine and by what follows.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame(schema={'s': pl.String, 'h': pl.Int32})\n"
        "lf = lf.group_by('s').agg(pl.col('h').map_batches(lambda s: s, return_dtype=pl.Int64))\n"
        "raised = []\n"
        "for engine in ('streaming', 'in-memory'):\n"
        "    try:\n"
        "        lf.collect(engine=engine)\n"
        "        raised.append(False)\n"
        "    except pl.exceptions.SchemaError:\n"
        "        raised.append(True)\n"
        "faulty = raised == [False, True]",
    ),
    Known(
        name="the sign of a zero that is a key of groups",
        kinds=("wrong rows",),
        detail=r"9223372036854775808.*Polars|Polars.*9223372036854775808",
        text=r"(group_by|unique)\(.*reinterpret\(",
        reason="0.0 and -0.0 are one key. Polars gives the one that comes first, and rows come in no order.",
        reproduction="import polars as pl\n"
        "def key(*values):\n"
        "    lf = pl.LazyFrame({'f': values}).group_by('f').agg(pl.len())\n"
        "    return lf.select(pl.col('f').reinterpret(dtype=pl.UInt64)).collect().item()\n"
        "faulty = key(0.0, -0.0) != key(-0.0, 0.0)",
    ),
    Known(
        name="a list for each row, of rows that are left out",
        kinds=("we raise where Polars answers", "we answer where Polars raises"),
        detail=r"arguments for `is_in` have different lengths",
        text=r"is_in\(pl\.Series\(\[\[",
        reason="Polars puts filters and slices under a step that compares each row with a list of its own.",
        reproduction="import polars as pl\n"
        "lists = pl.Series([[k] for k in range(9)])\n"
        "lf = pl.LazyFrame({'u': range(9)}).with_columns(z=pl.col('u').is_in(lists)).filter(pl.col('u') > 3)\n"
        "try:\n"
        "    lf.collect()\n"
        "    faulty = False\n"
        "except pl.exceptions.ShapeError:\n"
        "    faulty = True",
    ),
    Known(
        name="a function of rows without a partner",
        kinds=("we answer where Polars raises",),
        detail=r"unexpected value while building Series of type",
        text=r"map_(batches|elements).*join\(",
        reason="Rows that a join cannot use are filtered before it, and of rows that no filter leaves Polars asks no"
        " function.",
        reproduction="import polars as pl\n"
        "def fail(x):\n"
        "    raise ValueError\n"
        "lf = pl.LazyFrame({'a': [1]}).with_columns(z=pl.col('a').map_elements(fail, return_dtype=pl.Int64))\n"
        "faulty = lf.filter(pl.lit(False)).collect().height == 0",
    ),
    Known(
        name="nulls that hide a NaN, in groups",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"None",
        text=r"(?s)(group_by|over|rolling)\b.*drop_nans\(\)",
        reason="In groups, Polars takes a null for a NaN if there is one in the memory behind it, as a Parquet file's"
        " rows may have.",
        reproduction="import polars as pl\n"
        "import pyarrow as pa\n"
        "values = pa.array([1.0, float('nan'), 2.0]).buffers()[1]\n"
        "hidden = pa.Array.from_buffers(pa.float64(), 3, [pa.py_buffer(bytes([0b101])), values])\n"
        "rows = pl.DataFrame({'g': [1, 1, 1], 'f': pl.Series(hidden)})\n"
        "faulty = rows.group_by('g').agg(pl.col('f').drop_nans().len())['f'].item() != 3",
    ),
    Known(
        name="null keys of full and right joins, validated on the larger side or on both",
        kinds=("we answer where Polars raises", "we raise where Polars answers"),
        detail=r"join keys did not fulfill",
        text=r"(?s)how='(full|right)'.*validate=|validate=.*how='(full|right)'",
        reason="Whether several rows with a null in their key are refused depends on which side Polars builds on, which"
        " is a matter of sizes.",
        reproduction="import polars as pl\n"
        "def answers(left, right):\n"
        "    try:\n"
        "        left.lazy().join(right.lazy(), on='k', how='full', validate='1:m').collect()\n"
        "    except pl.exceptions.ComputeError:\n"
        "        return False\n"
        "    return True\n"
        "nulls = pl.DataFrame({'k': [None, None]}, schema={'k': pl.Int64})\n"
        "more = pl.DataFrame({'k': range(3000)})\n"
        "faulty = answers(nulls, more) != answers(pl.concat([nulls, more]), pl.DataFrame({'k': [1]}))",
    ),
    Known(
        name="a function of groups that a slice drops",
        kinds=("we raise where Polars answers",),
        detail=r"unexpected value while building Series of type",
        text=r"(?s)agg\(.*map_batches.*(head|limit|slice|LIMIT)",
        reason="Polars asks the function of the groups that are wanted only.",
        reproduction="import polars as pl\n"
        "def fail(x):\n"
        "    assert x[0] < 2\n"
        "    return x.sum()\n"
        "lf = pl.LazyFrame({'a': [0, 1, 2, 3]}).group_by('a', maintain_order=True)\n"
        "lf = lf.agg(z=pl.col('a').map_batches(fail, return_dtype=pl.Int64, returns_scalar=True))\n"
        "faulty = lf.head(2).collect().height == 2",
    ),
    Known(
        name="sets of lists whose first part a filter empties",
        kinds=("we answer where Polars raises", "we raise where Polars answers"),
        detail=r"PanicException: index out of bounds: the len is 1 but the index is 1",
        text=r"list\.set_\w+\(",
        reason="Polars panics if a column has several chunks, of which the first has no rows: a rank's rows may lie so"
        " where the whole table's do not, and the other way round.",
        reproduction="import polars as pl\n"
        "rows = pl.DataFrame({'k': [0, 1, 2, 3], 'l': [[1, 2], [1], [2], [3]], 'm': [[2], [3], [4], [5]]})\n"
        "rows = pl.concat([rows[:1], rows[1:]], rechunk=False).lazy().filter(pl.col('k') > 0)\n"
        "try:\n"
        "    faulty = rows.select(pl.col('l').list.set_union('m')).collect().height != 3\n"
        "except pl.exceptions.PanicException:\n"
        "    faulty = True",
    ),
    Known(
        name="lists of another type than planned, in a function of frames",
        kinds=("we answer where Polars raises",),
        detail=r"The output schema of 'LazyFrame\.map' is incorrect",
        text=r"list\.(set_\w+|diff)\(.*map_batches\(lambda frame",
        reason="Polars plans other types of these lists than it gives; a rank's rows have those of the plan.",
        reproduction="import polars as pl\n"
        "schema = {'a': pl.List(pl.Int16), 'b': pl.List(pl.Int64)}\n"
        "lf = pl.LazyFrame({'a': [[1]], 'b': [[2]]}, schema=schema).select(pl.col('a').list.set_union('b'))\n"
        "schema = lf.collect_schema()\n"
        "try:\n"
        "    lf.map_batches(lambda frame: frame, schema=schema).collect()\n"
        "    faulty = lf.collect().schema != schema\n"
        "except pl.exceptions.ComputeError:\n"
        "    faulty = True",
    ),
    Known(
        name="a format of times that the first of unordered rows gives",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"None",
        text=r"(group_by|unique|join|GROUP BY)\b.*\.str\.(to_datetime|to_date|to_time|strptime)\(",
        reason="Polars takes the format from the first value that has one, and these rows come in no order.",
        reproduction="import polars as pl\n"
        "def nulls(*texts):\n"
        "    return pl.Series(texts).str.to_datetime(strict=False).null_count()\n"
        "faulty = nulls('2020-02-03', '04/05/2021') == 1 and (\n"
        "    pl.Series(['2020-02-03', '04/05/2021']).str.to_datetime(strict=False)[1]\n"
        "    != pl.Series(['04/05/2021', '2020-02-03']).str.to_datetime(strict=False)[0]\n"
        ")",
    ),
    Known(
        name="as-of joins of rows that a later join does not need",
        kinds=("we answer where Polars raises",),
        detail=r"'asof_join' is not sorted",
        text=r"join_asof\(.*\.join\(",
        reason="Rows without a partner in the later join leave before the first, as a filter's do in Polars; the"
        " others may be sorted.",
        reproduction="import polars as pl\n"
        "left = pl.LazyFrame({'k': [2, 1], 'x': [0, 1]})\n"
        "lf = left.join_asof(pl.LazyFrame({'k': [1, 2]}), on='k')\n"
        "try:\n"
        "    lf.collect()\n"
        "    faulty = False\n"
        "except pl.exceptions.InvalidOperationError:\n"
        "    faulty = lf.filter(pl.col('x') == 1).collect().height == 1",
    ),
    Known(
        name="columns of different lengths, some of which nobody reads",
        kinds=("Polars' engines disagree, and we with both",),
        detail=r"one engine of Polars raises",
        text=r"pl\.all\(\)\.drop_nulls\(\)",
        reason="Whether Polars finds them to differ depends on its engine and on what is read of them.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'a': [1, 2], 'b': [None, 1]}).select(pl.all().drop_nulls())\n"
        "def raises(lf, engine):\n"
        "    try:\n"
        "        lf.collect(engine=engine)\n"
        "    except pl.exceptions.PolarsError:\n"
        "        return True\n"
        "    return False\n"
        "faulty = raises(lf, 'in-memory') and not raises(lf, 'streaming')",
    ),
    Known(
        name="variance of one infinite value",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"nan.*0\.0|0\.0.*nan",
        text=r"(var|std)\(ddof=0\)",
        reason="Of a group of one infinite value, Polars gives NaN or 0.0, by its engine and by what else there is.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame({'g': [1], 'x': [float('inf')]}).group_by('g').agg(pl.col('x').var(ddof=0))\n"
        "faulty = not lf.collect(engine='streaming').equals(lf.collect(engine='in-memory'))",
    ),
    Known(
        name="frames without columns side by side",
        kinds=("we raise where Polars answers", "we answer where Polars raises"),
        detail=r"zip node received non-equal length inputs|ShapeError|PanicException",
        text=r"(?s)pl\.LazyFrame\(height=.*how='horizontal'",
        reason="A select of no columns has no rows for one engine of Polars, and panics or has rows for the other.",
        reproduction="import polars as pl\n"
        "lf = pl.LazyFrame(height=2).select()\n"
        "try:\n"
        "    pl.concat([lf, lf], how='horizontal').collect(engine='streaming')\n"
        "    faulty = False\n"
        "except pl.exceptions.PanicException:\n"
        "    faulty = True",
    ),
    Known(
        name="a full join by one column twice, with columns of two types",
        kinds=("we answer where Polars raises",),
        detail=r"join received different key types|datatypes of join keys don't match",
        text=r"(?s)(left|right)_on=\[[^]]*('\w+')[^]]*\2[^]]*\].*how='full'.*coalesce=True",
        reason="Polars casts a key to the types of both of its partners; of other joins it answers the same.",
        reproduction="import polars as pl\n"
        "a = pl.LazyFrame({'i': [4]})\n"
        "b = pl.LazyFrame({'k': [1], 'i': [2]}, schema={'k': pl.UInt64, 'i': pl.Int64})\n"
        "def raises(how):\n"
        "    try:\n"
        "        a.join(b, left_on=['i', 'i'], right_on=['k', 'i'], how=how, coalesce=True).collect()\n"
        "    except pl.exceptions.PolarsError:\n"
        "        return True\n"
        "    return False\n"
        "faulty = raises('full') and not raises('left')",
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
