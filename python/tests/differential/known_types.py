"""Types that Polars plans and does not give.

A part of a query that was planned for the one type cannot take the other.
"""

from __future__ import annotations

import re

from differential.known_cause import Known, plans_another_schema

__all__ = ["TYPES"]

_OF_TYPES = (
    "we raise where Polars answers",
    "wrong schema",
    "Polars' engines disagree, and we with both",
)
"""What a type shows itself by that is planned and not given."""


TYPES: tuple[Known, ...] = (
    *(
        Known(
            name=f"the type of {written}",
            kinds=_OF_TYPES,
            detail=rf"incoming: {given} != target: {planned}\b",
            text=re.escape(written) + r"\)",
            reason=f"Polars plans {planned} and gives {given}; a part of the query that was planned for the one type"
            " cannot take the other.",
            reproduction=plans_another_schema(f"lf = pl.LazyFrame({{'x': [1]}}).select({written})\n"),
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
        reproduction=plans_another_schema(
            "lf = pl.LazyFrame(schema={'x': pl.Int64}).select(pl.len().over('x', mapping_strategy='join'))\n"
        ),
    ),
    Known(
        name="the type of categories divided by a number",
        kinds=_OF_TYPES,
        detail=r"Categorical.*Float64|Float64.*Categorical",
        text=r"(?s)Categorical.* / ",
        reason="Polars plans a category, gives Float64 if all values are null, and refuses to divide others.",
        reproduction=plans_another_schema(
            "lf = pl.LazyFrame({'c': [None]}, schema={'c': pl.Categorical}).select(pl.col('c').min() / pl.len())\n"
        ),
    ),
    Known(
        name="the type of sums of UInt128",
        kinds=_OF_TYPES,
        detail=r"conversion from `u128` to `i64` failed|UInt128.*Int64|Int64.*UInt128",
        text=r"(?s)UInt128.*(cum_sum|SUM\(.*OVER)",
        reason="Polars plans Int64 of what it adds up or multiplies row after row, and gives UInt128.",
        reproduction=plans_another_schema(
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
        reproduction=plans_another_schema(
            "schema = {'a': pl.List(pl.Int16), 'b': pl.List(pl.Int64)}\n"
            "lf = pl.LazyFrame({'a': [[1]], 'b': [[2]]}, schema=schema).select(pl.col('a').list.set_difference('b'))\n"
        ),
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
        name="columns of a join over a join that does not coalesce",
        kinds=_OF_TYPES,
        detail=r"did not find column|_right",
        text=r"coalesce=False",
        reason="Polars says of the query that it has a column which its answer has not.",
        reproduction=plans_another_schema(
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
        reproduction=plans_another_schema(
            "lf = pl.LazyFrame({'l': [None]}, schema={'l': pl.List(pl.Int64)}).select(pl.col('l').list.diff())\n"
        ),
    ),
    Known(
        name="the type of values gathered in groups of no rows",
        kinds=(*_OF_TYPES, "we answer where Polars raises"),
        detail=r"List\(Null\)|expected type Null",
        text=r"(?s)\.agg\(.*\.gather\(\[",
        reason="Polars plans a list of the column's type, and gives a list of nulls where there are no rows.",
        reproduction=plans_another_schema(
            "lf = pl.LazyFrame(schema={'x': pl.String, 'k': pl.Int64})\n"
            "lf = lf.group_by('k').agg(pl.col('x').gather([0]))\n"
        ),
    ),
    Known(
        name="the type of weighted rolling means of Float16",
        kinds=_OF_TYPES,
        detail=r"Float16.*Float64|Float64.*Float16",
        text=r"rolling_mean\(.*weights",
        reason="Polars plans Float16 for it and gives Float64.",
        reproduction=plans_another_schema(
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
        reproduction=plans_another_schema(
            "lf = pl.LazyFrame({'i': [1], 'k': [2]})\n"
            "right = lf.join(lf, left_on='k', right_on='i')\n"
            "lf = lf.join(right, left_on=['i', 'k'], right_on=['k_right', 'k_right'])\n"
        ),
    ),
    Known(
        name="the type of a null's quotient",
        kinds=_OF_TYPES,
        detail=r"Null.*Float64|Float64.*Null",
        text=r"'nul'.* / ",
        reason="Polars plans a column of nulls for it and gives one of floats.",
        reproduction=plans_another_schema(
            "lf = pl.LazyFrame({'n': [None]}).select(pl.col('n') / pl.len())\n"
        ),
    ),
    Known(
        name="the type of cum_reduce",
        kinds=(*_OF_TYPES, "we answer where Polars raises", "wrong type of error"),
        detail=r"",
        text=r"cum_reduce\(",
        reason="Of columns of different types, Polars plans a struct of these and gives one of their common type.",
        reproduction=plans_another_schema(
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
)
