"""Why a step of a query is gathered on one rank: every reason of the planner, as ``docs/coverage.md`` lists them."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from cudf_polars.lower.shape import is_rowwise_step
from cudf_polars.plan.expressions import Agg, Expr, Function, Opaque, Window

__all__ = ["Gathered", "named"]


class Gathered(Enum):
    """Why a step runs on one rank; the value is what its warning says, and the rest is for the page."""

    steps: str
    reason: str

    def __new__(cls, value: str, steps: str, reason: str) -> Gathered:
        """Make a reason of its text, the steps that it is of, and why there is no other way yet."""
        made = object.__new__(cls)
        made._value_ = value
        made.steps, made.reason = steps, reason
        return made

    OTHER_ROWS = (
        "an expression looks at other rows",
        "`select`, `with_columns`, `filter` with a function of [this list](#functions-over-rows) or with columns of"
        " different lengths; `over` without keys or with literal keys of such a function, with an `order_by` that looks"
        ' at other rows, and with `mapping_strategy="explode"`',
        "the rows of a result are paired with the table's by position, or its state has more than a few values",
    )
    WHOLE_AGGREGATE = (
        "an aggregate has no partial form",
        "aggregates of a whole table by a function of [this list](#aggregates-of-a-whole-table), of a nested type, or"
        " of values that are on this page themselves; in `group_by` they are computed where a group's rows meet",
        "parts of the table have no results from which that of the table follows",
    )
    UNKNOWN_TYPE = (
        "an aggregate of unknown type",
        "aggregates whose type Polars does not show",
        "what the ranks exchange has declared types",
    )
    LITERAL_ROWS = (
        "its rows are those of a literal",
        "`select` of a literal series beside values of the table",
        "it has the rows of the literal, whatever rows a rank has",
    )
    NOT_ROWWISE_KEYS = (
        "its keys are not row-wise",
        "`sort`, `group_by` and `join` by keys that look at other rows",
        "the rank of a row follows from its own key",
    )
    NESTED_SORT_KEY = (
        "its first key has no ranges",
        "`sort` by a List, an Array, a Struct or a Null first",
        "Polars' API compares no such value with a boundary",
    )
    TIME_WINDOWS = (
        "time windows",
        "`group_by_dynamic` and `LazyFrame.rolling` without keys, over windows as wide as a rank's part of a table of"
        " more than a few rows; over an index that is a Duration or a Time",
        "each rank would need nearly all rows",
    )
    PAIRED_ROWS = (
        "rows belong together by position",
        '`pl.concat(how="horizontal")` with a table without columns',
        "rows are exchanged by their columns",
    )
    NO_SIDE_COPIED = (
        "no side may be copied",
        "joins without equal keys that keep the order of both sides or validate",
        "each row has to meet all of the other side, and one side's order would be lost",
    )
    CATEGORY_CODES = (
        "each process has its own codes of categories",
        "`to_physical` of a Categorical",
        "each process numbers the categories as it meets them",
    )
    NO_FORM = (
        "it has no distributed form",
        "`merge_sorted` of tables that are not both sorted with their nulls at one end, rows by a table of indices,"
        " functions over a table that Polars does not show",
        "their result depends on how all rows follow each other",
    )
    ONE_WRITES = (
        "one rank writes",
        "sinks [that one rank writes](sources.md)",
        "there is one file, or one writer",
    )
    HIDDEN = (
        "only Polars can run it",
        "steps that Polars' view of a plan does not show: `map_batches` and `map_groups` over tables, windows of"
        " SQL that are ordered by several keys, and its outer joins by inequalities",
        "nothing is known of the rows that they need",
    )
    ONE_READS = (
        "one rank reads it",
        "sources [that one rank reads](sources.md)",
        "they cannot be divided; the next exchange distributes their rows",
    )


def named(exprs: Iterable[Expr]) -> str:
    """Return the names of what is not row-wise in expressions, for the warning."""
    found: dict[str, None] = {}
    stack = list(exprs)
    while stack:
        expr = stack.pop(0)
        if expr.children and not is_rowwise_step(expr):
            match expr:
                case Function(name) | Agg(name):
                    found[name] = None
                case Window():
                    found["over"] = None
                case Opaque():
                    found["an expression that Polars does not show"] = None
                case _:
                    found[type(expr).__name__.lower()] = None
        if not isinstance(expr, Window):
            stack.extend(expr.children)
    return ", ".join(found)
