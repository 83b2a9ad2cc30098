"""``sink_iceberg`` by all ranks: each writes data files of its rows, and one commits them all.

Polars writes an Iceberg table in two phases: its Parquet writer makes data files in the table's folder, then Python
code commits them with pyiceberg. Here each rank runs the first phase, with files in a folder of its own,
``<data>/<token>/<rank>/``, and keeps the list of files that Polars would commit. Rank 0 has the lists of all ranks
committed as one, by Polars. What Polars refuses is refused before any rank writes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import pickle
import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import polars as pl

from cudf_polars.engine.delta_store import StoreFolder
from cudf_polars.engine.late_files import remove, remove_late
from cudf_polars.engine.one_writer import Written, failed_reply
from cudf_polars.engine.relay import RankReply, remote_error
from cudf_polars.engine.sink_destinations import destination
from cudf_polars.engine.table_sinks import Agreed, Refused, TablePlan, TableSink, TableWrite
from cudf_polars.execute.errors import QueryMismatchError, failure_of_rank
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.byte_files import FileUnreadableError

__all__ = ["IcebergPlan", "IcebergSink", "IcebergWrite", "agree_on_iceberg"]

_NOT_POLARS_OPTIONS = frozenset({"self", "target", "engine"})
_COMPARED = (
    "schema_mode",
    "overwrite_filter",
    "dynamic_partition_overwrite",
    "create_if_not_exists",
    "create_namespace_if_not_exists",
    "snapshot_properties",
    "compression",
    "compression_level",
    "row_group_size",
    "maintain_order",
)
"""What of Polars' state has to be the same on all ranks, besides the table and the mode."""
_USED = frozenset(_COMPARED) | {
    "catalog_name",
    "catalog_properties",
    "commit_result_df",
    "iceberg_storage_properties",
    "mode",
    "sink_uuid_str",
    "table_",
    "table_name",
}
"""What is used here of Polars' state, which is not documented."""


# --- Polars' own writer ----------------------------------------------------------------------------------------


class _FilesOfRank:
    """Takes the place of the answer of a commit in Polars' state: then the files are kept, and nothing is committed."""

    def __init__(self) -> None:
        self.files: list[Any] = []

    def get(self) -> None:
        """Nothing was committed."""

    def set(self, _: Any) -> None:
        """Nothing was committed."""


_MARK = "_keeps_files_of_ranks"
_patching = threading.Lock()


def _state_class() -> Any:
    """Return Polars' class of a sink's state, which looks for :class:`_FilesOfRank` before it commits.

    None if this version of Polars has another one than is known here. Polars makes its own copy of a state
    when it runs a query, so that methods of a derived class are not called.
    """
    try:
        from polars.io.iceberg._sink import IcebergSinkState
    except ImportError:
        return None
    known = {entry.name for entry in dataclasses.fields(IcebergSinkState)}
    if not known >= _USED or not hasattr(IcebergSinkState, "_attach_resolved_sink"):
        return None
    with _patching:
        own = IcebergSinkState.commit
        if not hasattr(own, _MARK):

            @functools.wraps(own)
            def commit(self: Any, sinked_files: list[Any]) -> pl.DataFrame:
                kept = self.commit_result_df
                if not isinstance(kept, _FilesOfRank):
                    return own(self, sinked_files)
                kept.files = list(sinked_files)
                return pl.DataFrame({"metadata_path": [""]})

            setattr(commit, _MARK, True)
            IcebergSinkState.commit = commit  # type: ignore[method-assign]
    return IcebergSinkState


def _option(value: Any) -> Any:
    from polars.io.cloud._utils import NoPickleOption

    return NoPickleOption(value)


# --- the call ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IcebergWrite(TableWrite):
    """A call of ``sink_iceberg`` that ranks may be able to share.

    Attributes
    ----------
    rows
        The query, of which the types matter.
    target
        The table, or its name.
    state
        What Polars makes of the arguments, which may hold secrets; None if it refuses them.
    error
        Why.
    """

    rows: pl.LazyFrame = field(repr=False)
    target: Any = field(repr=False)
    state: Any = field(repr=False)
    error: Exception | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> IcebergWrite | str:
        """Read the arguments of ``sink_iceberg``; why one process has to write, if it does."""
        state_class = _state_class()
        if state_class is None:
            return "with this version of Polars"
        rows, target = arguments["self"], arguments["target"]
        options = {name: value for name, value in arguments.items() if name not in _NOT_POLARS_OPTIONS}
        try:
            return cls(rows, target, state_class.new(target, **options))
        except Exception as error:  # of many kinds: all ranks have to hear of it
            return cls(rows, target, None, error)

    def describe(self) -> str:
        """Return the call as text for an error."""
        if self.state is None:
            return f"with arguments that raise {type(self.error).__name__}"
        return f"to {self.state.table_name!r}, mode={self.state.mode!r}"

    def digests(self) -> dict[str, str]:
        """Return hashes of what has to be the same on all ranks where they have it, by name."""
        if self.state is None:
            return {}
        state = self.state
        where = [state.catalog_properties.get(name) for name in ("uri", "warehouse")]
        kind = [state.py_catalog_class_module, state.py_catalog_class_qualname, state.catalog_name]
        found = {name: _digest(str(getattr(state, name))) for name in _COMPARED}
        # Sets in pyiceberg's expressions have another order in each process.
        found["overwrite_filter"] = _digest(str(sorted(re.findall(r"[\w.]+", str(state.overwrite_filter)))))
        found["catalog"] = _digest(str([*kind, *where]))
        if not isinstance(self.target, str):
            found["table"] = _digest(str(self.target.metadata.table_uuid))
        return found

    def plan(self) -> IcebergPlan | str:
        """Look at the table, which Polars creates if it is to, and make the folder where ranks write.

        Raises
        ------
        Exception
            What Polars raises before it writes.
        """
        plan = self._plan()
        if isinstance(plan, IcebergPlan):
            try:
                cloudpickle.dumps(plan)
            except Exception:  # of many kinds: what the user made may be in there
                plan.end()
                return "with a catalog or options that cannot be sent to other processes"
        return plan

    def _plan(self) -> IcebergPlan | str:
        if self.error is not None:
            raise self.error
        from pyiceberg.table import TableProperties
        from pyiceberg.utils.properties import property_as_bool

        state = self.state
        # Polars has these checks where it runs a query; they find what the state does not know yet, too.
        no_rows = pl.LazyFrame(schema=self.rows.collect_schema())
        state.attach_sink(no_rows)
        state._attach_resolved_sink(no_rows._ldf)
        table = state.table()
        if property_as_bool(
            table.metadata.properties,
            TableProperties.OBJECT_STORE_ENABLED,
            TableProperties.OBJECT_STORE_ENABLED_DEFAULT,
        ):
            # Polars spreads such files over many folders: those of a query that fails would not be found again.
            return f"to a table with {TableProperties.OBJECT_STORE_ENABLED}"
        url = state.sink_base_path(object_storage_enabled=False).rstrip("/")
        plan = IcebergPlan(state, table.metadata, table.metadata_location, url)
        try:
            folder = plan.folder()
        except FileUnreadableError:
            return "to a store that the package obstore does not reach"
        except NotImplementedError:
            return "to another store"
        if not isinstance(folder, Path):
            return plan
        made = [above for above in folder.parents if not above.exists()]
        try:
            folder.mkdir(parents=True)
        except OSError:
            for above in made:
                _rmdir(above)
            return "to a folder where no other can be made"
        return replace(plan, made=tuple(made))

    def answer(self, result: Any) -> pl.DataFrame:
        """Return what Polars' ``sink_iceberg`` does, and let the user's table know its new version."""
        location, metadata = result
        table = self.target
        if not isinstance(table, str) and table.metadata_location != location:
            table.metadata, table.metadata_location = metadata, location
        return pl.DataFrame({"metadata_path": [location]}, schema={"metadata_path": pl.String})


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _rmdir(folder: Path) -> None:
    """Remove a folder if it is empty."""
    with contextlib.suppress(OSError):
        folder.rmdir()


@dataclass(frozen=True)
class IcebergPlan(TablePlan):
    """How ranks write, as one process has decided it.

    Attributes
    ----------
    state
        Polars' state of the sink, which may hold secrets. Where it was made, it has the table.
    metadata
        The table's, as it is before the commit.
    metadata_location
        The URL of these.
    url
        Of the folder in which each rank has a folder for its files. On a file system it is there.
    made
        Folders above that one which were made for it, the innermost first.
    """

    step: ClassVar[str] = "sink_iceberg"

    state: Any = field(repr=False)
    metadata: Any = field(repr=False)
    metadata_location: str
    url: str
    made: tuple[Path, ...] = ()

    def folder(self, rank: int | None = None) -> Path | StoreFolder:
        """Return the folder of a rank, or that of all.

        Raises
        ------
        FileUnreadableError
            If it is in a store that the package obstore does not reach.
        NotImplementedError
            If Polars writes there, and nothing else here does.
        """
        where = destination(self.url if rank is None else f"{self.url}/{rank:05d}")
        if isinstance(where, str):
            return StoreFolder(where, self.state._get_converted_storage_options())
        if not isinstance(where, Path) or not where.is_absolute():
            raise NotImplementedError(f"{self.url} depends on the process's folder")
        return where

    def remove(self, rank: int | None = None) -> None:
        """Remove the files of a rank, or those of all, if that is possible."""
        with contextlib.suppress(Exception):
            remove(self.folder(rank))

    def remove_late(self, rank: int) -> None:
        """Remove the files of a rank whose query has failed, and return when no more have come for a while."""
        with contextlib.suppress(Exception):
            remove_late(self.folder(rank))

    def end(self) -> None:
        """Remove folders without files."""
        where = destination(self.url)
        if isinstance(where, Path):
            for empty in (where, *self.made):
                _rmdir(empty)

    def open_sink(self, transport: Transport, first_op: int) -> IcebergSink:
        """Return this rank's part."""
        return IcebergSink(self, transport, first_op)

    def without_access(self) -> IcebergPlan:
        """Return this plan without the ways to the catalog and the store."""
        return self.reached_as({}, {})

    def reached_as(self, catalog: Mapping[str, Any], storage: Mapping[str, Any]) -> IcebergPlan:
        """Return this plan with these ways to the catalog and the store."""
        state = replace(
            self.state, catalog_properties=dict(catalog), iceberg_storage_properties=dict(storage)
        )
        return replace(self, state=state)


# --- agreement --------------------------------------------------------------------------------------------------


def agree_on_iceberg(write: IcebergWrite | str, transport: Transport, *, op: int) -> Agreed:
    """Plan on rank 0; all ranks return the same.

    Parameters
    ----------
    write
        As :meth:`IcebergWrite.of` returned it.
    transport
        Joins the ranks; uses its operations ``op`` and ``op + 1``.

    Returns
    -------
    The plan, why one process has to write, or what all ranks raise: that they do not write to the same table in the
    same way, or what Polars raises before it writes.
    """
    if isinstance(write, str):
        text, digests = write, {}
    else:
        text, digests = write.describe(), write.digests()
    mine = json.dumps([text, digests]).encode()
    told = [json.loads(value) for value in transport.allgather_bytes(mine, op=op)]
    if (difference := _difference(told)) is not None:
        return Refused(difference)
    if isinstance(write, str):
        return write
    reply, plan, raised = RankReply(), None, None
    if transport.rank == 0:
        try:
            plan = write._plan()
            reply.value = plan.without_access() if isinstance(plan, IcebergPlan) else plan
            said = cloudpickle.dumps(reply)
        except Exception as error:
            if isinstance(plan, IcebergPlan):
                plan.end()
            raised = error
            said = cloudpickle.dumps(failed_reply(error))
    try:
        answer = transport.allgather_bytes(said if transport.rank == 0 else b"", op=op + 1)[0]
    except BaseException:
        if isinstance(plan, IcebergPlan):
            plan.end()
        raise
    if transport.rank == 0:
        return plan if raised is None else Refused(raised)
    reply = pickle.loads(answer)
    if reply.error is not None:
        return Refused(remote_error("rank 0", reply))
    agreed: IcebergPlan | str = reply.value
    if isinstance(agreed, str) or write.state is None:
        return agreed
    # Each rank has its own way to the store.
    return agreed.reached_as(write.state.catalog_properties, write.state.iceberg_storage_properties)


def _difference(told: Sequence[tuple[str, Mapping[str, str]]]) -> QueryMismatchError | None:
    """Return the first difference between the calls of ranks."""
    text, digests = told[0]
    for rank, (theirs, others) in enumerate(told):
        differing = sorted(name for name in digests.keys() & others.keys() if digests[name] != others[name])
        if theirs != text or differing:
            by = f" with another {', '.join(differing)}" if theirs == text else ""
            return QueryMismatchError(
                f"The ranks call different sinks: rank 0 sink_iceberg {text}, rank {rank} sink_iceberg {theirs}{by}."
                " Every rank must call the same sink with the same arguments: avoid conditions on the rank."
            )
    return None


# --- one rank's part --------------------------------------------------------------------------------------------


class IcebergSink(TableSink):
    """This rank's part of a ``sink_iceberg``.

    Parameters
    ----------
    plan
        The same on all ranks.
    transport
        Joins them.
    first_op
        Uses the transport's operations from here on.
    """

    def __init__(self, plan: IcebergPlan, transport: Transport, first_op: int) -> None:
        self._plan, self._transport, self._first_op = plan, transport, first_op
        self._table: Any = plan.state.table_.get()  # rank 0 commits to it
        self._files: list[Any] = []
        self._error: Exception | None = None
        self._is_told = False
        self._is_committed = False
        self._written: Written[Any] | None = None

    def why_not(self) -> str | None:
        """Return why these ranks cannot write; None if they can."""
        told = self._transport.allgather_bytes(self._obstacle().encode(), op=self._first_op)
        return next((text.decode() for text in told if text), None)

    def _obstacle(self) -> str:
        rank = self._transport.rank
        try:
            folder = self._plan.folder()
            if isinstance(folder, StoreFolder):
                folder.names()
            elif not folder.is_dir():
                return "to a folder that not all ranks have"
        except Exception as error:  # of many kinds; their texts may hold secrets
            return f"to a store that rank {rank} does not reach ({type(error).__name__})"
        if rank == 0 and self._table is None:
            try:
                self._table = self._open_table()
            except Exception as error:
                return f"to a catalog that rank 0 does not reach ({type(error).__name__})"
        return ""

    def _open_table(self) -> Any:
        """Return the table as it was when this sink was planned."""
        from pyiceberg.exceptions import NoSuchTableError
        from pyiceberg.table import Table

        plan = self._plan
        found = replace(plan.state, table_=_option(None), create_if_not_exists=False).table()
        if found.metadata.table_uuid != plan.metadata.table_uuid:
            raise NoSuchTableError("another table has its name")
        return Table(
            found.name(), plan.metadata, plan.metadata_location, found.io, found.catalog, found.config
        )

    def write(self, rows: pl.LazyFrame, optimizations: pl.QueryOptFlags | None = None) -> None:
        """Run the query of this rank's rows, with these optimisations if any, and write its data files.

        What fails here is told to all ranks before the commit: none waits for the rows of another one any more.
        """
        try:
            self._files = self._write(rows, optimizations)
        except BaseException as error:
            self._plan.remove_late(self._transport.rank)
            if not isinstance(error, Exception) or failure_of_rank(error) is not None:
                raise
            self._error = error

    def _write(self, rows: pl.LazyFrame, optimizations: pl.QueryOptFlags | None) -> list[Any]:
        from pyiceberg.catalog.noop import NoopCatalog
        from pyiceberg.io import load_file_io
        from pyiceberg.table import Table

        plan, rank = self._plan, self._transport.rank
        _state_class()
        location = plan.metadata_location
        io = load_file_io(location=location)
        table = Table((plan.state.table_name,), plan.metadata, location, io, NoopCatalog("ranks"))
        written = _FilesOfRank()
        state = replace(
            plan.state,
            sink_uuid_str=f"{plan.state.sink_uuid_str}/{rank:05d}",  # the folder
            table_=_option(table),
            commit_result_df=written,
        )
        flags = {} if optimizations is None else {"optimizations": optimizations}
        state.attach_sink(rows).collect(engine="streaming", **flags)
        if any(count for _, count, *_ in written.files):
            return written.files
        if written.files:  # Polars writes a file without rows
            plan.remove(rank)
        return []

    def commit(self, facts: bytes) -> list[bytes]:
        """Commit what all ranks wrote, or remove it; returns what each rank tells besides, by rank."""
        failed = None if self._error is None else failed_reply(self._error)
        mine = cloudpickle.dumps((facts, self._files, failed))
        self._is_told = True
        told = [pickle.loads(value) for value in self._transport.allgather_bytes(mine, op=self._first_op + 1)]
        failure = next(((rank, reply) for rank, (*_, reply) in enumerate(told) if reply is not None), None)
        reply, raised = RankReply(), None
        if self._transport.rank == 0:
            if failure is None:
                try:
                    reply.value = self._commit_all([file for _, files, _ in told for file in files])
                except Exception as error:
                    raised, reply = error, failed_reply(error)
            if not self._is_committed:
                self._plan.remove()
            self._plan.end()
        said = cloudpickle.dumps(reply) if self._transport.rank == 0 else b""
        answer = self._transport.allgather_bytes(said, op=self._first_op + 2)[0]
        if failure is not None:
            rank, theirs = failure
            error_of = self._error if rank == self._transport.rank else remote_error(f"rank {rank}", theirs)
            self._written = Written(None, error_of)
        elif self._transport.rank == 0:
            self._written = Written(reply.value, raised)
        else:
            reply = pickle.loads(answer)
            of_rank_0 = None if reply.error is None else remote_error("rank 0", reply)
            self._written = Written(reply.value, of_rank_0)
        return [facts for facts, *_ in told]

    def _commit_all(self, files: list[Any]) -> tuple[str, Any]:
        """Commit files as one; returns where the table's new metadata are, and these."""
        table = self._table
        state = replace(self._plan.state, table_=_option(table), commit_result_df=_option(None))
        self._is_committed = True  # or perhaps
        try:
            state.commit(files)
        except BaseException:
            self._is_committed = self._may_be_committed()
            raise
        return table.metadata_location, table.metadata

    def _may_be_committed(self) -> bool:
        """Say whether the table has this sink's snapshot though the commit has failed, in what comes after it."""
        from polars.io.iceberg._sink import _already_committed
        from pyiceberg.exceptions import NoSuchTableError

        try:
            found = self._table.catalog.load_table(self._table.name())
        except NoSuchTableError:
            return False
        except Exception:  # it is unknown, then
            return True
        return _already_committed(found.metadata, self._plan.state.sink_uuid_str)

    def discard(self) -> None:
        """Remove what this rank wrote: if rank 0 knows of it, that one decides what becomes of it."""
        if self._transport.rank == 0:
            if not self._is_committed:
                self._plan.remove()
            self._plan.end()
        elif not self._is_told:
            self._plan.remove(self._transport.rank)

    def result(self) -> Any:
        """Return where the table's new metadata are, and these; or raise the error of whichever rank failed."""
        assert self._written is not None
        return self._written.result()
