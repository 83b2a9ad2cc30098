"""The steps of which cases are made: each writes one line of Polars and knows what the line promises."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from differential import group_steps, row_steps, table_steps
from differential.queries import sql_query
from differential.relation import Relation, Step

__all__ = ["STEPS"]

Maker = Callable[[random.Random, Sequence[Relation]], "Step | None"]

STEPS: Mapping[Maker, float] = {
    row_steps.filter_rows: 3,
    row_steps.with_columns: 4,
    row_steps.many_functions: 0.8,
    row_steps.select_columns: 2.5,
    row_steps.select_made: 1,
    group_steps.select_scalars: 3,
    group_steps.frame_aggregate: 0.5,
    group_steps.group_by: 4,
    group_steps.beside_sorted: 1.3,
    group_steps.group_whole: 0.4,
    row_steps.sort_rows: 2.5,
    row_steps.slice_rows: 2.5,
    row_steps.shift_rows: 0.6,
    row_steps.row_index: 1,
    group_steps.unique_rows: 1.8,
    row_steps.change_columns: 2,
    row_steps.nested: 1.2,
    row_steps.top_rows: 1,
    group_steps.time_groups: 0.7,
    table_steps.join_tables: 4.5,
    table_steps.cross_tables: 2.6,
    table_steps.asof_tables: 1.8,
    table_steps.concat_tables: 3.2,
    table_steps.member_tables: 0.6,
    table_steps.lottery: 1.0,
    table_steps.join_own_groups: 1,
    row_steps.several_columns: 1.2,
    row_steps.rolling_column: 0.9,
    row_steps.said_sorted: 0.4,
    sql_query: 2.2,
}
"""The steps, and how often each is taken."""
