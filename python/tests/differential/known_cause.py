"""A cause of differences that is no fault of ours: what it explains, why, and how Polars shows it by itself."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Known", "answers_and_raises", "engines_differ", "plans_another_schema", "raises"]


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


def plans_another_schema(lines: str) -> str:
    """Return a reproduction: Polars plans for the query ``lf``, which the lines make, another schema than it gives."""
    return f"import polars as pl\n{lines}faulty = lf.collect_schema() != lf.collect().schema"


def answers_and_raises(lines: str, answers: str, query: str, error: str) -> str:
    """Return a reproduction: after the lines, Polars answers the one query and raises ``error`` for the other."""
    return raises(f"{lines}{answers}\n", query, error)


def raises(lines: str, query: str, error: str) -> str:
    """Return a reproduction: after the lines, Polars raises ``error`` for the query."""
    return (
        f"import polars as pl\n{lines}"
        f"try:\n    {query}\n    faulty = False\nexcept pl.exceptions.{error}:\n    faulty = True"
    )


def engines_differ(lines: str) -> str:
    """Return a reproduction: Polars' engines give different rows of the query ``lf``, which the lines make."""
    return (
        f"import polars as pl\n{lines}"
        "faulty = not lf.collect(engine='streaming').equals(lf.collect(engine='in-memory'))"
    )
