"""Read a query: Polars' optimised plan as a typed plan.

Three ways, each for what the one before cannot do:

1. Look at the optimised plan through Polars' views (:mod:`~cudf_polars.plan.polars16`).
2. Replace what the views do not show by placeholders first (:mod:`~cudf_polars.plan.substitute`).
3. Take the whole query as one opaque node (:mod:`~cudf_polars.plan.last_resort`).

A plan that is returned can be rebuilt: every node was, over empty inputs, and gave the schema that Polars shows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import polars as pl

from cudf_polars.plan import nodes, polars16
from cudf_polars.plan.dag import Plan, map_nodes, walk_nodes
from cudf_polars.plan.datasets import has_datasets
from cudf_polars.plan.dsl_facts import DslFacts, find_dsl_facts
from cudf_polars.plan.errors import CannotRebuild, CannotSubstitute, Unreadable
from cudf_polars.plan.generated_names import renumber
from cudf_polars.plan.known_schemas import (
    known_schema,
    with_known_schemas,
    without_known_schemas,
)
from cudf_polars.plan.last_resort import frame_scans, opaque_query
from cudf_polars.plan.memory_files import MemoryFile
from cudf_polars.plan.nameless import nameless_column
from cudf_polars.plan.optimized import look
from cudf_polars.plan.placeholder import ROWS, source_number
from cudf_polars.plan.plugin import PluginUnavailable
from cudf_polars.plan.properties import columns
from cudf_polars.plan.pruning import prune_opaque_nodes
from cudf_polars.plan.rebuild import rebuild_scan, rebuilt_schema
from cudf_polars.plan.serialized import deserialize_plan, forms, serialize_plan
from cudf_polars.plan.slices import push_slices
from cudf_polars.plan.substitute import Substitution
from cudf_polars.plan.tables import resolve_tables

__all__ = ["UnreadablePlanError", "UnsupportedPolarsError", "read_plan", "read_traverser"]

_ADAPTERS = {16: polars16.Adapter}
"""What reads the views, by their major version."""
_SUPPORTED = "polars>=2.1,<2.2"

_SERIALIZE_LIMIT = 256 << 20
"""Bytes of data frames above which a query is not serialised just to look at it."""
_SUBSTITUTE_LIMIT = 16 << 20
"""Bytes of a serialised query above which it is not taken apart: its text form is five times as large."""

_LOOK_AT_FRAMES = ("join_order", "row_estimate", "slice_pushdown", "sort_collapse")
"""Optimisations that use the contents of data frames: their sizes, that one is sorted or empty, or take a slice of one.

Under SPMD a data frame is one rank's part of a table, so what holds of it does not hold of the table.
"""


class UnsupportedPolarsError(ImportError):
    """The installed Polars has plan views that this version of the package does not know."""


def read_plan(
    lf: pl.LazyFrame, optimizations: pl.QueryOptFlags | None = None, *, to_be_rebuilt: bool = True
) -> Plan:
    """Read the plan that Polars makes of a query.

    Parameters
    ----------
    lf
        The query; it is not run.
    optimizations
        Which optimisations Polars may make; all when ``None``.
    to_be_rebuilt
        Whether each node is checked to have the schema that Polars gave it when it is rebuilt, which is a third of the
        time that reading takes, and whether the options that Polars does not show (``validate`` of joins) are looked
        up, for which the query is serialised with its data frames.

    Returns
    -------
    Plan
        It can be rebuilt with :func:`~cudf_polars.plan.rebuild.to_lazyframe` if it was to be.

    Raises
    ------
    UnsupportedPolarsError
        When the installed Polars is not a supported version.
    polars.exceptions.PolarsError
        When the query is wrong: what ``lf.collect_schema()`` or ``lf.collect()`` raises.
    """
    flags = (pl.QueryOptFlags() if optimizations is None else optimizations)._pyoptflags
    # A lazy frame has a lock, which Polars takes with Python's lock held, or the other way round: of one that two
    # threads look at, each needs its own.
    return _Reader(lf.clone(), flags, to_be_rebuilt).read()


class UnreadablePlanError(ValueError):
    """Polars' views do not show a part of a plan, and there is no other way to it."""


def read_traverser(traverser: Any) -> nodes.Node:
    """Read the plan that Polars shows to what runs a query in its place (``engine="gpu"``).

    Parameters
    ----------
    traverser
        What Polars passes: a ``NodeTraverser`` over the optimised plan.

    Raises
    ------
    UnreadablePlanError
        If the views do not show a part of it.
    UnsupportedPolarsError
        When the installed Polars is not a supported version.

    Notes
    -----
    There is only the traverser: ``validate`` of joins is not known, and times finer than a microsecond in literals that
    Polars' optimiser makes are cut.
    """
    try:
        return _read_view(traverser, lambda: DslFacts(False, {}), lambda: True, None)
    except (Unreadable, CannotRebuild, RecursionError) as e:
        raise UnreadablePlanError(str(e)) from e


_NOT_LOOKED_UP = DslFacts(False, {})
"""Stands for what the views leave out where only sizes are asked for."""


class _Reader:
    """One query being read."""

    def __init__(self, lf: pl.LazyFrame, flags: Any, to_be_rebuilt: bool) -> None:
        self._to_be_rebuilt = to_be_rebuilt
        told = with_known_schemas(lf)
        self._lf, self._told, self._text = told.lf, told.paths, told.text
        # the streaming engine has joins of its own, which the views do not show; fragments are planned again
        flags = flags.copy()
        flags.streaming = False
        # Polars computes a repeated expression once, as a column that need not have the table's height, and turns
        # select() of constants into a data frame, which would count once for each rank; fragments are planned again
        flags.comm_subexpr_elim = False
        flags.fast_projection = False
        has_objects = told.has_objects
        frames = [frame for _, frame in look(self._lf, flags, frame_scans)] if has_objects else []
        self._has_frames = bool(frames)
        if self._has_frames:
            for name in _LOOK_AT_FRAMES:
                setattr(flags, name, False)
        self._flags = flags
        self._plain = flags.copy()
        # min_by and max_by that Polars makes of sort_by().first() are not shown; unsimplified they are
        self._plain.simplify_expression = False

        self._tables_left, self._unresolved = False, ""
        if has_objects and has_datasets(self._lf):
            self._resolve_tables(sum(int(frame.estimated_size()) for frame in frames))

    def _resolve_tables(self, frame_bytes: int) -> None:
        """Put native scans in the place of table formats, of which the views do not show enough."""
        if frame_bytes > _SUBSTITUTE_LIMIT:
            self._unresolved = f"it reads a table format beside {frame_bytes >> 20} MiB of data frames"
            return
        try:
            form = serialize_plan(self._lf)
        except Exception as e:  # whatever the pickling of the user's functions raises
            self._unresolved = f"it reads a table format and cannot be serialised: {type(e).__name__}: {e}"
            return
        tables = resolve_tables(form)
        self._lf, self._tables_left = tables.lf, not tables.complete

    def read(self) -> Plan:
        if self._unresolved:
            return self._whole(self._unresolved)
        reasons: list[str] = []
        for flags in () if self._tables_left else (self._flags, self._plain):
            try:
                root = _view(self._lf, flags, self._dsl_facts_if_needed, to_be_rebuilt=self._to_be_rebuilt)
                return self._plan(root)
            except (Unreadable, CannotRebuild, RecursionError) as e:
                reasons.append(str(e))
        try:
            return self._substituted()
        except (Unreadable, CannotRebuild, CannotSubstitute, PluginUnavailable, RecursionError) as e:
            reasons.append(str(e).splitlines()[0] if str(e) else type(e).__name__)
        except _DESERIALIZE_ERRORS as e:
            reasons.append(f"{type(e).__name__}: {str(e).splitlines()[0][:200]}")
        return self._whole("; ".join(dict.fromkeys(reasons)))

    def _whole(self, reason: str) -> Plan:
        return Plan(opaque_query(self._lf, self._flags, reason), notes=(reason,))

    def _plan(self, root: nodes.Node, substitution: Substitution | None = None) -> Plan:
        wanted = self._lf.collect_schema()
        if not isinstance(root, nodes.Sink) and list(root.schema.items()) != list(wanted.items()):
            raise Unreadable(
                f"the plan has other columns than the query: {dict(root.schema)}, {dict(wanted)}"
            )
        if self._told:
            root = map_nodes(walk_nodes(root), lambda _, anew: without_known_schemas(anew, self._told))
        root = renumber(root)
        if self._has_frames:
            root = push_slices(root)
        if substitution is not None and substitution.files:  # last: what copies texts would let the files go
            root = map_nodes(walk_nodes(root), lambda _, anew: _with_files(anew, substitution.files))
        notes = self.__dict__["_dsl_facts"].notes if "_dsl_facts" in self.__dict__ else ()
        return Plan(root, {} if substitution is None else dict(substitution.expressions), notes)

    # --- what the views leave out ----------------------------------------------------------------------

    def _dsl_facts_if_needed(self) -> DslFacts:
        # To find them, the query is serialised, with its data frames.
        return self._dsl_facts if self._to_be_rebuilt else _NOT_LOOKED_UP

    @cached_property
    def _dsl_facts(self) -> DslFacts:
        if self._text is not None:
            found = re.search(r'"(?:OneToOne|OneToMany|ManyToOne)"|"null_on_oob":true', self._text)
            return DslFacts(False, {}) if found is None else find_dsl_facts(serialize_plan(self._lf))
        size = look(self._lf, self._flags, _frame_bytes)
        if size > _SERIALIZE_LIMIT:
            note = "large data frames: 'validate' of joins and 'null_on_oob' of gathers are not looked up"
            return DslFacts(None, {}, (note,))
        try:
            binary = self._lf.serialize()
        except Exception as e:  # whatever the pickling of the user's functions raises
            note = f"not serialisable ({type(e).__name__}): 'validate' and 'null_on_oob' are not known"
            return DslFacts(None, {}, (note,))
        if re.search(rb"OneToOne|OneToMany|ManyToOne|null_on_oob\xc3", binary) is None:
            return DslFacts(False, {})
        if len(binary) > _SUBSTITUTE_LIMIT:
            raise Unreadable("options of joins or gathers in a query with large data frames")
        return find_dsl_facts(serialize_plan(self._lf))

    # --- placeholders ----------------------------------------------------------------------

    def _substituted(self) -> Plan:
        try:
            size = len(self._lf.serialize())
        except Exception as e:  # whatever the pickling of the user's functions raises
            raise CannotSubstitute(f"the query cannot be serialised: {type(e).__name__}: {e}") from e
        if size > _SUBSTITUTE_LIMIT:
            raise CannotSubstitute(f"the query holds {size >> 20} MiB of data frames")
        form = serialize_plan(self._lf)
        if _repeats_join_keys(form):
            for flags in (self._flags, self._plain):
                flags.predicate_pushdown = False
        substitution = Substitution(self._is_readable, self._read)
        rewritten = substitution.rewrite(form)
        root = self._read(deserialize_plan(rewritten), substitution)
        pruned = prune_opaque_nodes(
            root, substitution.parts, lambda lf: self._read(lf, substitution), self._flags
        )
        return self._plan(pruned, substitution)

    def _read(self, lf: pl.LazyFrame, substitution: Substitution) -> nodes.Node:
        try:
            return _view(lf, self._flags, self._dsl_facts_if_needed, substitution)
        except (Unreadable, CannotRebuild):
            return _view(lf, self._plain, self._dsl_facts_if_needed, substitution)

    def _is_readable(self, lf: pl.LazyFrame, substitution: Substitution) -> bool:
        try:
            self._read(lf, substitution)
        except (Unreadable, CannotRebuild):
            return False
        return True


_DESERIALIZE_ERRORS = (
    pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
)


def _view(
    lf: pl.LazyFrame,
    flags: Any,
    dsl_facts: Callable[[], DslFacts],
    substitution: Substitution | None = None,
    *,
    to_be_rebuilt: bool = True,
) -> nodes.Node:
    """Read a query through Polars' views of its plan; check that it can be rebuilt if it is going to be."""

    def exact_times() -> bool:
        return _times_are_exact(lf._ldf.with_optimizations(flags).describe_optimized_plan())

    def read(flags: Any) -> nodes.Node:
        facts = dsl_facts, exact_times, substitution
        return look(lf, flags, lambda traverser: _read_view(traverser, *facts, to_be_rebuilt=to_be_rebuilt))

    root = read(flags)
    if flags.check_order_observe and _takes_rows_in_any_order(root):
        # Polars drops the order that a join keeps where only a slice needs it that has been pushed into the join.
        in_order = flags.copy()
        in_order.check_order_observe = False
        other = read(in_order)
        if not _takes_rows_in_any_order(other):
            return other
    return root


def _with_files(node: nodes.Node, files: Mapping[str, MemoryFile]) -> nodes.Node:
    """Put what keeps a file in memory alive in the place of its path."""
    if not isinstance(node, nodes.Scan):
        return node
    return replace(node, paths=tuple(files.get(path, path) for path in node.paths))


def _repeats_join_keys(form: Any) -> bool:
    """Whether a join has a key twice on one side.

    Polars turns that into a filter, which it pushes into the other side's scan; if another filter gets there, too, a
    scan that is not one of its own, as what stands for a hidden one, is left with the last of them only.
    """
    for join in forms(form, "Join"):
        condition = join["condition"]
        equal = condition.get("Equi", {}) if isinstance(condition, dict) else {}
        for keys in (equal.get("left_on", []), equal.get("right_on", [])):
            texts = [json.dumps(key) for key in keys]
            if len(set(texts)) < len(texts):
                return True
    return False


def _takes_rows_in_any_order(root: nodes.Node) -> bool:
    """Whether a join without an order gives some of its rows only."""
    return any(
        isinstance(node, nodes.Join) and node.slice is not None and node.maintain_order == "none"
        for node in walk_nodes(root)
    )


def _read_view(
    traverser: Any,
    dsl_facts: Callable[[], DslFacts],
    exact_times: Callable[[], bool],
    substitution: Substitution | None,
    *,
    to_be_rebuilt: bool = True,
) -> nodes.Node:
    version = traverser.version()
    adapter = _ADAPTERS.get(version[0])
    if adapter is None:
        raise UnsupportedPolarsError(
            f"Polars {pl.__version__} shows its plans in version {version[0]}.{version[1]}; this package "
            f"reads version {', '.join(str(v) for v in _ADAPTERS)}. Install {_SUPPORTED}."
        )
    reader = adapter(
        traverser,
        dsl_facts=dsl_facts,
        exact_times=exact_times,
        opaque_expressions={} if substitution is None else substitution.expressions,
        opaque_nodes={} if substitution is None else substitution.nodes,
        placeholder_of=source_number,
        of_one_column=_of_one_column,
    )
    try:
        root = reader.read()
        _verify(root, to_be_rebuilt)
    except pl.exceptions.PanicException as e:
        # Polars has types inside that Python has no name for: it panics when their schema is asked for
        raise Unreadable(f"Polars panics when it shows the plan ({e})") from e
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as e:
        if isinstance(e, CannotRebuild):
            raise
        # a form that the adapter does not expect: the query still runs, by another way, and says why
        raise Unreadable(f"an unexpected form of plan ({type(e).__name__}: {e})") from e
    return root


def _verify(root: nodes.Node, to_be_rebuilt: bool) -> None:
    """Check that types have names, and that each node has the schema that Polars gave it when it is rebuilt."""
    for node in walk_nodes(root):
        if isinstance(node, nodes.OpaqueNode):
            continue  # it is the original
        nameless = nameless_column(node.schema)
        if nameless is not None:
            raise Unreadable(f"a type that has no name, in column {nameless!r}")
        if not to_be_rebuilt:
            continue
        try:
            built = rebuilt_schema(_told(node) if isinstance(node, nodes.Scan) else node)
        except pl.exceptions.PolarsError as e:
            raise CannotRebuild(f"{type(node).__name__}: {str(e).splitlines()[0]}") from e
        if list(built.items()) != list(node.schema.items()):
            raise CannotRebuild(
                f"{type(node).__name__} has another schema when rebuilt: {built}, {node.schema}"
            )


def _told(scan: nodes.Scan) -> nodes.Scan:
    """Return the scan with the schema of its file if that is known: Polars need not read the footer to check it."""
    if scan.kind != "parquet" or len(scan.paths) != 1 or scan.hive_columns or "schema" in scan.options:
        return scan
    schema = known_schema(scan.paths[0])
    return scan if schema is None else replace(scan, options={**scan.options, "schema": schema})


def _frame_bytes(traverser: Any) -> int:
    return sum(int(frame.estimated_size()) for _, frame in frame_scans(traverser))


_COLUMN_BYTES = {
    pl.Boolean: 0,
    pl.Int8: 1,
    pl.UInt8: 1,
    pl.Int16: 2,
    pl.UInt16: 2,
    pl.Int32: 4,
    pl.UInt32: 4,
    pl.Date: 4,
}


def _of_one_column(scan: nodes.Scan) -> nodes.Node:
    """Give a scan of which only the number of rows is asked the column that is cheapest to read.

    It is one that is read anyway, if there is a predicate. Else it is the path of the file, unless that was checked
    when the query was planned: a column of another type would raise an error that Polars, which reads none, does not.
    """
    checked = len(scan.paths) == 1 and scan.kind in ("parquet", "lines")
    if scan.include_file_paths is None and scan.predicate is None and not checked:
        scan = replace(scan, include_file_paths=ROWS)
    found = rebuild_scan(scan, project=False).collect_schema()

    def cost(name: str) -> int:
        if name == scan.include_file_paths:
            return -1
        return _COLUMN_BYTES.get(found[name].base_type(), 8 if found[name].is_numeric() else 16)

    read = [] if scan.predicate is None else [name for name in columns(scan.predicate) if name in found]
    names = sorted(read or found, key=cost)
    if not names:
        raise Unreadable("a file without columns")
    return replace(scan, schema={names[0]: found[names[0]]})


def _times_are_exact(text: str) -> bool:
    """Whether all times and datetimes in the text of an optimised plan are whole microseconds.

    Polars' optimiser makes literals that the query does not hold: ``t <= 09:00`` becomes ``t <= 09:00:00.000000999``
    when ``t`` has nanoseconds.
    """
    return re.search(r":\d\d\.\d{6}(?!000)\d{3}", text) is None
