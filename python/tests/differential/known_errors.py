"""Errors that Polars raises of one query and not of another that says the same, and panics of it."""

from __future__ import annotations

from differential.known_cause import Known, answers_and_raises, raises

__all__ = ["ERRORS"]

ERRORS: tuple[Known, ...] = (
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
        reproduction=raises(
            "lf = pl.LazyFrame({'g': ['c'], 's': ['foo'], 'b': [True]}).gather([0])\n"
            "lf = lf.join(lf.head(5).filter(~pl.col('b')).select('s'), left_on='g', right_on='s')\n"
            "flags = pl.QueryOptFlags(comm_subplan_elim=False)\n",
            "lf.collect(engine='streaming', optimizations=flags)",
            "PanicException",
        ),
    ),
    Known(
        name="right join over a join with the same names",
        kinds=("we raise where Polars answers",),
        detail=r"DuplicateError: column with name '\w+_right' already exists",
        text=r"how='right'",
        reason="Polars' streaming engine finds a name twice that is there once.",
        reproduction=raises(
            "a, b = pl.LazyFrame({'i': [-10, -6], 'srt': [0, 1]}), pl.LazyFrame({'srt': [1]})\n"
            "lf = a.join(a, left_on=pl.col('i') + 1, right_on='srt')\n"
            "lf = lf.join(b, left_on='srt_right', right_on='srt', how='right')\n"
            "assert lf.collect(engine='in-memory').columns == lf.collect_schema().names()\n",
            "lf.collect(engine='streaming')",
            "DuplicateError",
        ),
    ),
    Known(
        name="as-of joins by keys whose nulls come last",
        kinds=("we answer where Polars raises", "we raise where Polars answers"),
        detail=r"'asof_join' is not sorted",
        text=r"(?s)(None|_extend'|\.shift\(-).*\.join_asof\(",
        reason="Polars' streaming engine takes such keys for sorted, and the other, which also runs parts of streaming"
        " queries, does not.",
        reproduction=answers_and_raises(
            "left, right = pl.LazyFrame({'a': [1, None]}), pl.LazyFrame({'b': [0]})\n"
            "lf = left.join_asof(right, left_on='a', right_on='b')\n",
            "assert lf.collect(engine='streaming').height == 2",
            "lf.collect(engine='in-memory')",
            "InvalidOperationError",
        ),
    ),
    Known(
        name="reversed lists that are all null, written to a file",
        kinds=("we raise where Polars answers",),
        detail=r"to_arrow\(\) conversion failed: cannot convert \(Null\)",
        text=r"reverse\(\)",
        reason="Of lists that are all null, reverse() gives lists of nulls, as which no sink of Polars can write them.",
        reproduction=raises(
            "import io\n"
            "file = io.BytesIO()\n"
            "pl.DataFrame({'l': [None] * 18}, schema={'l': pl.List(pl.Int64)}).write_parquet(file, row_group_size=7)\n"
            "lf = pl.scan_parquet(file.getvalue()).select(pl.all().reverse())\n",
            "lf.sink_parquet(io.BytesIO())",
            "InvalidOperationError",
        ),
    ),
    Known(
        name="an error in rows that a slice drops",
        kinds=("we answer where Polars raises",),
        detail=r"conversion from",
        text=r"(?s)\.cast\(.*\.(first|last|head|tail|limit|slice)\(",
        reason="Polars slices before it casts, unless a column beside the cast is computed of several rows.",
        reproduction=answers_and_raises(
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
        reproduction=answers_and_raises(
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
        reproduction=answers_and_raises(
            "sides = [pl.LazyFrame({'a': [1]}), pl.LazyFrame({'b': [1, 2]})]\n"
            "lf = pl.concat(sides, how='horizontal')\n",
            "assert lf.filter(pl.lit(False)).collect().height == 0",
            "lf.collect()",
            "ShapeError",
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
        name="reversed arrays",
        kinds=("we raise where Polars answers", "wrong type of error", "some ranks return, others raise"),
        detail=r"reverse for FixedSizeList with non-numeric",
        text=r"reverse\(\)",
        reason="Polars cannot reverse arrays of texts, and panics; but not where it takes all rows for the same.",
        reproduction=raises(
            "lf = pl.LazyFrame({'a': [['p', 'q'], ['p', 'q']]}, schema={'a': pl.Array(pl.String, 2)}).reverse()\n"
            "assert lf.collect(engine='streaming').height == 2\n",
            "lf.collect(engine='in-memory')",
            "PanicException",
        ),
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
        name="a list for each row, of rows that are left out",
        kinds=("we raise where Polars answers", "we answer where Polars raises"),
        detail=r"arguments for `is_in` have different lengths",
        text=r"is_in\(pl\.Series\(\[\[",
        reason="Polars puts filters and slices under a step that compares each row with a list of its own.",
        reproduction=raises(
            "lists = pl.Series([[k] for k in range(9)])\n"
            "lf = pl.LazyFrame({'u': range(9)}).with_columns(z=pl.col('u').is_in(lists)).filter(pl.col('u') > 3)\n",
            "lf.collect()",
            "ShapeError",
        ),
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
        reproduction=raises(
            "rows = pl.DataFrame({'k': [0, 1, 2, 3], 'l': [[1, 2], [1], [2], [3]], 'm': [[2], [3], [4], [5]]})\n"
            "rows = pl.concat([rows[:1], rows[1:]], rechunk=False).lazy().filter(pl.col('k') > 0)\n",
            "faulty = rows.select(pl.col('l').list.set_union('m')).collect().height != 3",
            "PanicException",
        ),
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
        name="frames without columns side by side",
        kinds=("we raise where Polars answers", "we answer where Polars raises"),
        detail=r"zip node received non-equal length inputs|ShapeError|PanicException",
        text=r"(?s)pl\.LazyFrame\(height=.*how='horizontal'",
        reason="A select of no columns has no rows for one engine of Polars, and panics or has rows for the other.",
        reproduction=raises(
            "lf = pl.LazyFrame(height=2).select()\n",
            "pl.concat([lf, lf], how='horizontal').collect(engine='streaming')",
            "PanicException",
        ),
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
