"""The schemas of Parquet files whose footers take time, so that Polars need not read a footer for each scan of a query.

Polars parses the whole footer of a file each time it plans a scan of it, and a query is planned several times until it
is read: 30 to 70 ms for one of 10 MB, which the lineitem of SF100 has. So scans are told the schemas of such files.
"""

from __future__ import annotations

import functools
import io
import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import polars as pl

from cudf_polars.plan import nodes
from cudf_polars.plan.file_versions import file_version
from cudf_polars.plan.serialized import deserialize_text, forms, write_text

__all__ = ["Told", "forget_schemas", "known_schema", "with_known_schemas", "without_known_schemas"]

_WORTH_BYTES = 1 << 17
"""Footers of a query are worth the detour through its JSON form if they have so many bytes together."""
_LEAST_BYTES = 1 << 14
"""A smaller footer is read faster than a schema that is told."""
_MOST_TEXT = 4 << 20
"""Bytes of a query's JSON form, above which it holds data frames."""
_FOREIGN = ('"DataFrameScan"', '"Python', '"python', "Anonymous", '"MapFunction"')
"""What a query with objects of this process has in its JSON form; made anew they would be others."""

_SCAN, _NULL = '"Scan":', "null"
_NO_SCHEMA = '"Parquet":{"options":{"schema":' + _NULL
"""How a scan, and one without a schema, begin in a query's JSON form; quotes in texts are escaped there."""
_decoder = json.JSONDecoder()

_lock = threading.Lock()
_Entry: TypeAlias = tuple[tuple[int, ...], dict[str, pl.DataType], str]
"""The version of a file, and its schema, also as it stands in a query's JSON form."""
_schemas: dict[str, _Entry] = {}
_costly = False


def known_schema(path: str) -> dict[str, pl.DataType] | None:
    """Return the schema of a Parquet file whose footer is not small, ``None`` for any other file."""
    entry = _known(path, file_version(path))
    return None if entry is None else dict(entry[1])


def _known(path: str, version: tuple[int, ...]) -> _Entry | None:
    """Return the schema of such a file; Polars reads the footer of a version that is not known yet."""
    if not version or _footer_bytes(path, *version) < _LEAST_BYTES:
        return None
    entry = _schemas.get(path)
    if entry is None or entry[0] != version:
        try:
            schema = dict(pl.scan_parquet(path, glob=False).collect_schema())
        except (pl.exceptions.PolarsError, OSError):
            return None  # the query says what is wrong
        form = json.loads(_text(pl.scan_parquet(path, glob=False, schema=schema)) or "null")
        (scan,) = forms(form, "Scan")
        told = json.dumps(scan["scan_type"]["Parquet"]["options"]["schema"])
        entry = (version, schema, told)
        with _lock:
            _schemas[path] = entry
    return entry


def forget_schemas() -> None:
    """Forget all files."""
    global _costly
    with _lock:
        _schemas.clear()
        _costly = False


@dataclass(frozen=True, slots=True)
class Told:
    """A query whose scans have been told the schemas of their files.

    Attributes
    ----------
    lf
        The query.
    paths
        The files whose schemas it has been told.
    text
        The JSON form of the query as it was; ``None`` if that is long, or not known.
    """

    lf: pl.LazyFrame
    paths: frozenset[str]
    text: str | None

    @property
    def has_objects(self) -> bool:
        """Whether it may have objects of this process: data frames, table formats, functions."""
        return self.text is None or _has_objects(self.text)


def with_known_schemas(lf: pl.LazyFrame) -> Told:
    """Put the schemas of files into the scans of a query if their footers are large."""
    global _costly
    untold = Told(lf, frozenset(), None)
    if _costly:
        return untold
    try:
        text = _text(lf)
    except pl.exceptions.PolarsError:
        return untold
    if text is None:
        _costly = True  # data frames are copied for it
        return untold
    untold = replace(untold, text=text)
    if '"Parquet"' not in text or _has_objects(text):
        return untold
    scans = list(_plain_scans(text))
    if sum(_footer_bytes(scan.path, *scan.version) for scan in scans) < _WORTH_BYTES:
        return untold
    pieces: list[str] = []
    paths, at = set(), 0
    for scan in scans:
        entry = _known(scan.path, scan.version)
        if entry is not None:
            pieces += (text[at : scan.schema], entry[2])
            at = scan.schema + len(_NULL)
            paths.add(scan.path)
    if not paths:
        return untold
    try:
        told = deserialize_text("".join((*pieces, text[at:])))
    except pl.exceptions.PolarsError:
        return untold  # JSON has no infinity and no NaN
    return Told(told, frozenset(paths), text)


def _has_objects(text: str) -> bool:
    return any(word in text for word in _FOREIGN)


@dataclass(frozen=True, slots=True)
class _PlainScan:
    """A scan of one local Parquet file to which a schema may be given.

    Attributes
    ----------
    path, version
        Of the file.
    schema
        The place in the query's JSON form where its schema would be: there is a null.
    """

    path: str
    version: tuple[int, ...]
    schema: int


def _plain_scans(text: str) -> Iterator[_PlainScan]:
    """Yield such scans of a query's JSON form in their order. Nothing but scans is parsed: most of the form is not."""
    at = text.find(_SCAN)
    while at >= 0:
        begin = at + len(_SCAN)
        scan, end = _decoder.raw_decode(text, begin)
        path = _path_of(scan)
        schema = text.find(_NO_SCHEMA, begin, end)
        if path is not None and schema >= 0:
            yield _PlainScan(path, file_version(path), schema + len(_NO_SCHEMA) - len(_NULL))
        at = text.find(_SCAN, end)


def without_known_schemas(node: nodes.Node, paths: frozenset[str]) -> nodes.Node:
    """Return a scan as the user wrote it: without the schema that :func:`with_known_schemas` gave it."""
    if isinstance(node, nodes.Scan) and len(node.paths) == 1 and node.paths[0] in paths:
        options = dict(node.options)
        if dict(options.get("schema") or {}) == known_schema(node.paths[0]):
            del options["schema"]
            return replace(node, options=options)
    return node


def _path_of(scan: Any) -> str | None:
    """Return the path of a scan of one local Parquet file to which a schema may be given."""
    try:
        paths = scan["sources"]["Paths"]
        arguments, reader = scan["unified_scan_args"], scan["scan_type"]["Parquet"]["options"]
        path = paths[0]["inner"]
        plain = (
            len(paths) == 1
            and reader["schema"] is None
            and arguments["schema"] is None
            and not arguments["hive_options"]["enabled"]
            and arguments["row_count"] is None
            and arguments["column_mapping"] is None
        )
    except (KeyError, TypeError, IndexError):
        return None
    return path if plain and isinstance(path, str) else None


@functools.lru_cache(maxsize=10_000)
def _footer_bytes(path: str, *_version: int) -> int:
    try:
        with open(path, "rb") as file:
            file.seek(-8, 2)
            length, magic = struct.unpack("<I4s", file.read(8))
    except (OSError, struct.error):
        return 0
    return int(length) if magic == b"PAR1" else 0


class _Limited(io.RawIOBase):
    """Takes so many bytes and refuses more."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size += len(data)
        if self.size > _MOST_TEXT:
            raise OSError("too long")
        self.taken.append(bytes(data))
        return len(data)


def _text(lf: pl.LazyFrame) -> str | None:
    """Return a query's JSON form, ``None`` if it is long."""
    out = _Limited()
    try:
        write_text(lf, out)
    except (OSError, pl.exceptions.PolarsError):
        if out.size > _MOST_TEXT:
            return None
        raise
    return b"".join(out.taken).decode()
