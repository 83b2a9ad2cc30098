"""The physical plan as text: fragments, what joins them, estimates, and after a run what really happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from cudf_polars.lower.physical import Local, Stream, walk

__all__ = ["RunFacts", "RunOfWhole", "explain_physical", "explain_whole", "in_partitions"]


class RunFacts(Protocol):
    """What running a stream gave: a number of each rank that has one."""

    @property
    def rows(self) -> Sequence[float]:
        """Rows."""
        ...

    @property
    def nbytes(self) -> Sequence[float]:
        """Bytes."""
        ...

    @property
    def seconds(self) -> Sequence[float]:
        """Seconds."""
        ...

    @property
    def partitions(self) -> Sequence[float]:
        """In how many parts of a rank's rows the fragment ran."""
        ...

    @property
    def spilled(self) -> Sequence[float]:
        """Bytes moved to a lower tier."""
        ...

    @property
    def lookups(self) -> Sequence[float]:
        """How many joins were by lookup."""
        ...


class RunOfWhole(Protocol):
    """What running a whole query on one rank gave."""

    @property
    def rows(self) -> int | None:
        """Rows."""
        ...

    @property
    def nbytes(self) -> float | None:
        """Bytes."""
        ...

    @property
    def seconds(self) -> float:
        """Seconds."""
        ...


def explain_whole(run: RunOfWhole | None = None) -> str:
    """Return what there is to say of a query that Polars runs as it is; after a run, with what that gave."""
    text = "One fragment on one rank: the query as Polars runs it."
    if run is None:
        return text
    return f"{text[:-1]}; {run.rows} rows, {_size(run.nbytes or 0)}, {run.seconds:.3f} s"


def in_partitions(plan: str, count: int) -> str:
    """Return the text of a plan whose ranks have so many partitions each."""
    if count == 1:
        return plan
    return f"Each rank works on {count} partitions of its rows, one after the other.\n{plan}"


def explain_physical(root: Stream, measured: Mapping[Stream, RunFacts] | None = None) -> str:
    """Return the plan that ends in ``root`` as text.

    Parameters
    ----------
    root
        The stream of the answer.
    measured
        By stream, the facts of a run; printed after the estimates: the least, the mean and the most of all ranks.

    Notes
    -----
    A fragment is printed top down, as Polars prints plans; ``<- n`` names the exchange whose output it reads.
    Exchanges are numbered in the order in which they run.
    """
    streams = walk(root)
    numbers = {s: n for n, s in enumerate((s for s in streams if not isinstance(s, Local)), start=1)}
    lines: list[str] = []
    for stream in streams:
        if isinstance(stream, Local) and stream is not root:
            continue
        if isinstance(stream, Local):
            lines.append(f"RESULT: {_facts(stream, measured)}")
            lines.extend(_fragment(stream, numbers, "  "))
            continue
        lines.append(f"{numbers[stream]}: {stream.label} -> {_facts(stream, measured)}")
        for child in stream.inputs:
            lines.extend(_fragment(child, numbers, "  "))
        if stream is root:
            lines.append(f"RESULT: <- {numbers[stream]}")
    return "\n".join(lines)


def _fragment(stream: Stream, numbers: Mapping[Stream, int], indent: str) -> list[str]:
    if (number := numbers.get(stream)) is not None:
        return [f"{indent}<- {number}"]
    lines = [f"{indent}{stream.label}"]
    for child in stream.inputs:
        lines.extend(_fragment(child, numbers, indent + "  "))
    return lines


def _facts(stream: Stream, measured: Mapping[Stream, RunFacts] | None) -> str:
    order = ", ordered" if stream.ordered else ""
    text = f"{stream.partitioning}{order}; about {_count(stream.estimate.rows)} rows, {_size(stream.estimate.nbytes)}"
    facts = None if measured is None else measured.get(stream)
    if facts is None:
        return text
    kinds: tuple[tuple[Sequence[float], Callable[[float], str], str], ...] = (
        (facts.rows, lambda value: f"{value:.0f}", " rows"),
        (facts.nbytes, _size, ""),
        (facts.seconds, lambda value: f"{value:.3f}", " s"),
        (facts.partitions if max(facts.partitions, default=0) > 1 else (), "{:.0f}".format, " partitions"),
        (facts.spilled if any(facts.spilled) else (), _size, " spilled"),
        (facts.lookups if any(facts.lookups) else (), "{:.0f}".format, " joins by lookup"),
    )
    return f"{text}; a rank {', '.join(_spread(v, show) + unit for v, show, unit in kinds if v)}"


def _spread(values: Sequence[float], show: Callable[[float], str]) -> str:
    texts = [show(value) for value in (min(values), sum(values) / len(values), max(values))]
    return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def _count(value: float) -> str:
    return f"{value:.3g}" if value >= 1e6 else f"{value:.0f}"


def _size(nbytes: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1024
    return f"{nbytes:.1f} TiB"
