"""Which functions have a distributed form over a whole table, from the tables of the modules that have them."""

from __future__ import annotations

from collections.abc import Iterable

from cudf_polars.lower.aggregates import PARTIAL_FUNCTIONS
from cudf_polars.lower.distinct_values import DISTINCT_VALUES
from cudf_polars.lower.quantiles import QUANTILES
from cudf_polars.lower.ranks import RANKS
from cudf_polars.lower.reshapes import PLACES, RESHAPES
from cudf_polars.lower.rolling_by import ROLLING_BY
from cudf_polars.lower.sequences import SEQUENCES
from cudf_polars.lower.windows import OF_EQUAL_ROWS
from cudf_polars.plan.functions import FUNCTIONS, Kind

__all__ = ["AGGREGATIONS", "OVER_ROWS"]


def _functions(kinds: Iterable[Kind], distributed: Iterable[str]) -> list[str]:
    wanted, known = set(kinds), set(distributed)
    return sorted(name for name, spec in FUNCTIONS.items() if spec.kind in wanted and name not in known)


OVER_ROWS = _functions(
    (Kind.WHOLE_COLUMN, Kind.RESHAPE),
    (*SEQUENCES, *OF_EQUAL_ROWS, *RESHAPES, *PLACES, *DISTINCT_VALUES, *RANKS, *ROLLING_BY),
)
"""Functions of whole columns that are gathered."""
AGGREGATIONS = _functions([Kind.AGGREGATION], (*PARTIAL_FUNCTIONS, *QUANTILES))
"""Functions that aggregate a whole table on one rank."""
