"""The rows that every candidate shuffles: 32 bytes, four columns of int64, of which three follow from the first.

So each row that comes out can be checked by itself; ``RowSum`` counts rows and sums the keys' hashes. The C++ program
(``cpp/benchmarks/shuffle``) has the same columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

ROW_BYTES = 32
NAMES = ("c0", "c1", "c2", "c3")

Ints = npt.NDArray[np.uint64]


def make_columns(seed: int, rows: int) -> dict[str, npt.NDArray[np.int64]]:
    """Make ``rows`` rows, by column name; ``seed`` and the number of a row give its key."""
    keys = _mix(np.arange(1, rows + 1, dtype=np.uint64) + np.uint64(seed << 40))
    return {name: _value(keys, i).view(np.int64) for i, name in enumerate(NAMES)}


@dataclass
class RowSum:
    """How many rows there are, and a sum over them that does not depend on their order."""

    rows: int = 0
    total: int = 0

    def add(self, columns: Mapping[str, Any]) -> None:
        """Take in rows, by column name.

        Raises
        ------
        RuntimeError
            If one of them was never made.
        """
        keys = np.asarray(columns["c0"]).view(np.uint64)
        for i, name in enumerate(NAMES):
            if not np.array_equal(np.asarray(columns[name]).view(np.uint64), _value(keys, i)):
                raise RuntimeError("a row came out torn")
        self.rows += len(keys)
        self.total = (self.total + int(_mix(keys).sum())) % (1 << 64)

    def check(self, other: RowSum) -> None:
        """Raise ``RuntimeError`` unless both are sums over the same rows."""
        if self != other:
            raise RuntimeError(f"what came out is not what went in: {other} of {self}")


def make_frame(seed: int, rows: int) -> Any:
    """Make the rows as a pandas frame."""
    import pandas as pd

    return pd.DataFrame(make_columns(seed, rows))


def sum_frame(frame: Any) -> tuple[int, int]:
    """Return the fields of the ``RowSum`` of a pandas frame."""
    rows = RowSum()
    rows.add({name: frame[name].to_numpy() for name in NAMES})
    return rows.rows, rows.total


def total(sums: list[RowSum]) -> RowSum:
    """Add sums up."""
    return RowSum(sum(s.rows for s in sums), sum(s.total for s in sums) % (1 << 64))


def _value(keys: Ints, column: int) -> Ints:
    return keys if column == 0 else keys * np.uint64(2 * column + 1) + np.uint64(column)


def _mix(x: Ints) -> Ints:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
