"""Rows that Polars' engines, or two runs of one of them, give differently."""

from __future__ import annotations

from differential.known_cause import Known, engines_differ

__all__ = ["ROWS"]

ROWS: tuple[Known, ...] = (
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
        name="as-of joins by keys of which the most are nulls at the end",
        kinds=("Polars' engines disagree, and we with both",),
        detail=r"",
        text=r"(?s)(None|_extend'|\.shift\().*\.join_asof\(",
        reason="Polars' streaming engine searches keys that are marked as sorted as if their nulls came first.",
        reproduction="import polars as pl\n"
        "keys = pl.Series('k', [19, 20, None, None, None], dtype=pl.Int64).set_sorted()\n"
        "lf = pl.LazyFrame(keys).join_asof(pl.LazyFrame({'k': [19, 20], 'v': [1, 2]}), on='k')\n"
        "faulty = lf.collect(engine='streaming')['v'].to_list()[:2] == [1, 1]",
    ),
    Known(
        name="the place of the largest or least of equal values in windows",
        kinds=("wrong rows",),
        detail=r"",
        text=r"\.arg_(max|min)\(\)\)?\.rolling\(",
        reason="Polars takes the first of them, or the last if the column is known to be sorted, as a single row is.",
        reproduction="import polars as pl\n"
        "rows = pl.DataFrame({'w': [1, 3, 3], 'i': [4, 5, 6]})\n"
        "windows = pl.col('w').arg_max().rolling('i', period='3i', closed='both', offset='0i')\n"
        "pieces = pl.concat([rows[:1], rows[1:2], rows[2:]], rechunk=False)\n"
        "faulty = pieces.equals(rows) and not pieces.select(windows).equals(rows.select(windows))",
    ),
    Known(
        name="correlation of no values",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"None.*nan|nan.*None",
        text=r"pl\.corr\(",
        reason="Of a group without values, Polars gives null or NaN, by its engine and how it walks the groups.",
        reproduction=engines_differ(
            "lf = pl.LazyFrame({'g': [1, 1], 'x': [None, None]}, schema={'g': pl.Int64, 'x': pl.Float64})\n"
            "lf = lf.group_by('g').agg(pl.corr('x', 'x'))\n"
        ),
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
        name="variance of no values",
        kinds=("wrong rows", "Polars' engines disagree, and we with both"),
        detail=r"None.*0\.0|0\.0.*None|\[\]",
        text=r"(var|std)\(ddof=0\)",
        reason="Of a group without values, Polars gives null or 0.0, by its engine and how it walks the groups.",
        reproduction=engines_differ(
            "lf = pl.LazyFrame({'g': [1], 'x': [None]}, schema={'g': pl.Int64, 'x': pl.Int64})\n"
            "lf = lf.group_by('g').agg(pl.col('x').var(ddof=0))\n"
        ),
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
        reproduction=engines_differ(
            "lf = pl.LazyFrame({'g': [1], 'x': [float('inf')]}).group_by('g').agg(pl.col('x').var(ddof=0))\n"
        ),
    ),
)
