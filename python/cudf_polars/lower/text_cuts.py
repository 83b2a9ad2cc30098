"""Where one text file (CSV, NDJSON) is cut into a range of bytes for each rank: at ends of records.

The end of a line is the end of a record unless it stands in quotes, and whether it does is known only from the start
of the file. So each rank but the last counts the quotes of its part; all counts together say how each part begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from cudf_polars.lower.byte_files import ByteFile, FileUnreadableError, open_bytes
from cudf_polars.plan.cloud import CloudAccess
from cudf_polars.plan.nodes import Scan

__all__ = [
    "TextCuts",
    "TextCutsOf",
    "TextKey",
    "TextLook",
    "TextRules",
    "decide_cuts",
    "find_cut",
    "is_cuttable",
    "last_end",
    "look_at_text",
    "nominal_cuts",
    "options_of_pieces",
    "text_key",
]

_BLOCK = 8 << 20
_HEAD = 1 << 20
_COMPRESSED = (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""How files of gzip, zstd and zlib begin, which Polars reads as texts."""


@dataclass(frozen=True)
class TextRules:
    """What tells the records of a text file apart.

    Attributes
    ----------
    eol
        The byte that ends a line.
    quote
        The byte between two of which lines may end within a record; empty if there is none.
    comment
        How a line begins that is no record; empty if none is.
    head_records
        Lines at the start of the file that are no rows.
    skips
        Whether lines before the header are skipped, which need not be records.
    """

    eol: bytes
    quote: bytes
    comment: bytes
    head_records: int
    skips: bool

    @classmethod
    def of(cls, scan: Scan) -> TextRules:
        """Return those of a scan."""
        if scan.kind != "csv":
            return cls(b"\n", b"", b"", 0, False)
        get = scan.options.get
        skipped = get("skip_rows", 0) + get("skip_lines", 0)
        return cls(
            get("eol_char", "\n").encode("latin-1"),
            (get("quote_char", '"') or "").encode("latin-1"),
            (get("comment_prefix") or "").encode(),
            skipped + bool(get("has_header", True)) + get("skip_rows_after_header", 0),
            skipped > 0,
        )


TextKey: TypeAlias = tuple[str, str, CloudAccess | None, TextRules]


@dataclass(frozen=True)
class TextCuts:
    """The bytes of each rank, from one bound to before the next; or why one rank reads the file."""

    bounds: tuple[int, ...] = ()
    reason: str = ""


TextCutsOf: TypeAlias = Callable[[Scan], TextCuts]


@dataclass(frozen=True)
class TextLook:
    """What one rank has seen of a file.

    Attributes
    ----------
    size
        Bytes of the file.
    quotes
        Quotes in this rank's part; of the last part only where that matters.
    head
        Where the lines end that are no rows.
    quotes_in_head
        Quotes before that.
    reason
        Why the file cannot be cut; empty if it can.
    """

    size: int = 0
    quotes: int = 0
    head: int = 0
    quotes_in_head: int = 0
    reason: str = ""


def is_cuttable(scan: Scan) -> bool:
    """Whether a scan is of one text file, of which ranges of bytes can be read."""
    return scan.kind in ("csv", "ndjson") and len(scan.paths) == 1 and not _refusal(scan)


def _refusal(scan: Scan) -> str:
    if scan.hive_columns:
        return "values of its columns are in its path"
    if "schema" not in scan.options and scan.options.get("infer_schema_length", 100) is None:
        return "its types are found in all of its rows"
    if scan.options.get("encoding", "utf8") not in ("utf8", "utf8-lossy"):
        return f"its encoding is {scan.options['encoding']}"
    return ""


def text_key(scan: Scan) -> TextKey:
    """Return by what the cuts of a scan's file are known."""
    return scan.kind, scan.paths[0], scan.cloud, TextRules.of(scan)


def nominal_cuts(scan: Scan, nranks: int) -> TextCuts:
    """Return cuts of equal sizes, which need not be ends of records; for plans that are only shown."""
    refusal = _refusal(scan)
    if refusal:
        return TextCuts(reason=refusal)
    look = look_at_text(text_key(scan), 0, 1 << 62)
    if look.reason:
        return TextCuts(reason=look.reason)
    return TextCuts(tuple(look.size * rank // nranks for rank in range(nranks + 1)))


def look_at_text(key: TextKey, rank: int, nranks: int) -> TextLook:
    """Look at one rank's part of a file."""
    _, path, cloud, rules = key
    try:
        with open_bytes(path, cloud) as file:
            start = file.read(0, _HEAD)
            if start.startswith(_COMPRESSED):
                return TextLook(reason="it is compressed")
            head = _end_of_head(start, rules, whole=file.size <= _HEAD)
            if head is None:
                return TextLook(reason=f"the lines before its rows have more than {_HEAD} bytes")
            low, high = file.size * rank // nranks, file.size * (rank + 1) // nranks
            # Of the last part, nobody's beginning depends on the quotes, but comments with quotes matter anywhere.
            counts = rules.quote and (rank < nranks - 1 or rules.comment)
            quotes = _count(file, rules.quote, low, high) if counts else 0
            in_head = start[:head].count(rules.quote) if rules.quote else 0
            return TextLook(file.size, quotes, head, in_head)
    except FileUnreadableError as error:
        return TextLook(reason=str(error))


def _count(file: ByteFile, byte: bytes, low: int, high: int) -> int:
    return sum(file.read(at, min(at + _BLOCK, high)).count(byte) for at in range(low, high, _BLOCK))


def _end_of_head(start: bytes, rules: TextRules, *, whole: bool) -> int | None:
    """Return where the lines end that are no rows; None if that is not within ``start``."""
    at = 0
    left = rules.head_records
    while left and at < len(start):
        end = _end_of_record(start, at, rules, 0)
        if end is None:
            return len(start) if whole else None
        line = start[at:end].strip(rules.eol + b"\r")
        if line and not (rules.comment and line.startswith(rules.comment)):
            left -= 1
        at = end
    return at


def _end_of_record(text: bytes, at: int, rules: TextRules, quotes: int) -> int | None:
    """Return the position after the next end of a record, where ``quotes`` stand before ``at``."""
    while (end := text.find(rules.eol, at)) >= 0:
        if rules.quote:
            quotes += text.count(rules.quote, at, end)
        at = end + 1
        if quotes % 2 == 0:
            return at
    return None


def decide_cuts(looks: Sequence[TextLook], rules: TextRules) -> str:
    """Return why a file cannot be cut, from what all ranks have seen; empty if it can."""
    for look in looks:
        if look.reason:
            return look.reason
    if any(look.size != looks[0].size for look in looks):
        return "the ranks see files of different sizes"
    if rules.comment and any(look.quotes for look in looks):
        return "its comments may hold quotes"
    if rules.skips and looks[0].quotes_in_head:
        return "the lines that are skipped hold quotes"
    return ""


def find_cut(key: TextKey, looks: Sequence[TextLook], rank: int) -> int:
    """Return where a rank's part of a file begins: after the first end of a record behind its equal share's start.

    Raises
    ------
    FileUnreadableError
        If the file cannot be read any more.
    """
    _, path, cloud, rules = key
    if rank == 0:
        return 0
    size = looks[0].size
    at = size * rank // len(looks)
    quotes = sum(look.quotes for look in looks[:rank])
    window = 64 << 10
    with open_bytes(path, cloud) as file:
        while at < size:
            text = file.read(at, at + window)
            end = _end_of_record(text, 0, rules, quotes)
            if end is not None:
                return max(at + end, looks[0].head)
            quotes += text.count(rules.quote) if rules.quote else 0
            at += len(text)
            window = _BLOCK
    return size


def last_end(text: bytes, rules: TextRules) -> int:
    """Return the position after the last end of a record in a text that begins with a record; 0 if none ends."""
    quotes = text.count(rules.quote) if rules.quote else 0
    at = len(text)
    while (end := text.rfind(rules.eol, 0, at)) >= 0:
        if rules.quote:
            quotes -= text.count(rules.quote, end, at)
        if quotes % 2 == 0:
            return end + 1
        at = end
    return 0


def options_of_pieces(
    options: dict[str, Any], schema: dict[str, Any], kind: str
) -> tuple[dict[str, Any], ...]:
    """Return the options of a scan for the first piece of a file, which has its header, and for the others."""
    if kind != "csv":
        left = {
            key: value
            for key, value in options.items()
            if key not in ("schema_overrides", "infer_schema_length")
        }
        return ({**left, "schema": schema},) * 2
    first = options if "schema" in options else {**options, "schema_overrides": schema}
    of_head = ("skip_rows", "skip_lines", "skip_rows_after_header", "schema_overrides", "infer_schema_length")
    rest = {key: value for key, value in options.items() if key not in of_head}
    rest |= {"schema": schema, "has_header": False, "raise_if_empty": False, "missing_columns": "insert"}
    if options.get("truncate_ragged_lines"):
        rest["extra_columns"] = "ignore"  # the first line of a piece may be a long one
    if not options.get("has_header", True):
        # Lines of other pieces may have more columns, and the first piece may have no more than what is skipped.
        first = {**{key: options[key] for key in of_head[:3] if key in options}, **rest}
    return first, rest
