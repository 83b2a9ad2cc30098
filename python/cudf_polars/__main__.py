"""``python -m cudf_polars``: what is installed, as ``python -m rapidsmpf`` shows it."""

from __future__ import annotations

from rapidsmpf.__main__ import report

if __name__ == "__main__":
    print(report())
