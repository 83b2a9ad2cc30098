"""What is known to differ, with the reason: faults of Polars, each with a reproduction on Polars alone.

A case is never left out; what it shows is compared with this list, and counted under its cause.
"""

from __future__ import annotations

import re

from differential.known_cause import Known
from differential.known_errors import ERRORS
from differential.known_rows import ROWS
from differential.known_types import TYPES

__all__ = ["KNOWN", "Known", "known_fault"]

KNOWN: tuple[Known, ...] = (*TYPES, *ERRORS, *ROWS)


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
