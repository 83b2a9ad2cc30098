"""What is known to differ, with the reason: faults of Polars, each with a reproduction on Polars alone.

A case is never left out; what it shows is compared with this list, and counted under its cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["KNOWN", "Known", "known_fault"]


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


KNOWN: tuple[Known, ...] = ()


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
