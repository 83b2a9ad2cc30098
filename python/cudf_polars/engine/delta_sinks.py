"""``sink_delta`` by all ranks: each writes files of its rows, and one commits them all.

Each rank lets Polars and deltalake write its rows to a table of its own, hidden beside the real one, with that one's
schema, partitions and properties: so the files and their statistics are those that deltalake writes, and what it
refuses is refused. Rank 0 moves the files, whose names are unique (in an object store they stay where they are), and
commits what the logs of the hidden tables say of them as one version. What needs more than that is written by one
process.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import unquote

import cloudpickle
import polars as pl

from cudf_polars.engine.delta_store import StoreFolder, storage_of
from cudf_polars.engine.late_files import remove_late
from cudf_polars.engine.partition_files import hidden_beside, make_folders, tried
from cudf_polars.engine.sink_destinations import destination
from cudf_polars.engine.table_sinks import TablePlan, TableSink, TableWrite
from cudf_polars.execute.errors import QueryMismatchError
from cudf_polars.execute.transport import Transport
from cudf_polars.lower.byte_files import FileUnreadableError
from cudf_polars.plan.cloud import shown_path

__all__ = ["DeltaPlan", "DeltaSink", "DeltaWrite", "agree_on_delta", "plan_delta"]

_FILE_OPTIONS = frozenset({"target_file_size", "writer_properties"})
_COMMIT_OPTIONS = frozenset({"commit_properties", "post_commithook_properties"})
_TABLE_OPTIONS = frozenset({"name", "description", "configuration"})
_OPTIONS = _FILE_OPTIONS | _COMMIT_OPTIONS | _TABLE_OPTIONS | {"partition_by"}
_FILE_PROPERTIES = frozenset(
    {"delta.dataSkippingNumIndexedCols", "delta.dataSkippingStatsColumns", "delta.targetFileSize"}
)
"""Properties of a table that say how files are written."""
_OTHER_PROPERTIES = frozenset(
    {
        "delta.checkpointInterval",
        "delta.deletedFileRetentionDuration",
        "delta.enableExpiredLogCleanup",
        "delta.logRetentionDuration",
    }
)
"""Properties that do not matter to who adds files."""
_FEATURES = frozenset({"timestampNtz"})
"""Features of tables that say nothing but how files are written."""


@dataclass(frozen=True)
class DeltaWrite(TableWrite):
    """A call of ``sink_delta`` that ranks may be able to share.

    Attributes
    ----------
    target
        The table's path, independent of the process's folder; or its URL in an object store.
    mode
        ``"error"``, ``"append"``, ``"overwrite"`` or ``"ignore"``.
    options
        ``delta_write_options``.
    storage
        How the store is reached, which may hold secrets.
    """

    target: Path | str
    mode: str
    options: Mapping[str, Any]
    storage: Mapping[str, str] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> DeltaWrite | str:
        """Read the arguments of ``sink_delta``; why one process has to write, if it does."""
        target, mode = arguments["target"], arguments.get("mode", "error")
        options = arguments.get("delta_write_options") or {}
        if mode not in ("error", "append", "overwrite", "ignore"):
            return f"with mode={mode!r}"
        if not isinstance(target, str | os.PathLike):
            return "to a DeltaTable"
        try:
            where = destination(target)
        except NotImplementedError:
            where = None
        given = arguments.get("storage_options") or arguments.get("credential_provider") not in (None, "auto")
        if not isinstance(where, Path | str) or (given and isinstance(where, Path)):
            return "to another store"
        if more := sorted(name for name in options if name not in _OPTIONS and options[name] is not None):
            return f"with {', '.join(more)}"
        if properties := sorted(
            set(options.get("configuration") or ()) - _FILE_PROPERTIES - _OTHER_PROPERTIES
        ):
            return f"with {', '.join(properties)}"
        if isinstance(where, str):
            return cls(where.rstrip("/"), mode, dict(options), storage_of(arguments))
        return cls(where.expanduser().absolute(), mode, dict(options))

    def table(self, path: Path | str | None = None, version: int | None = None) -> Any:
        """Return a table of this store as deltalake has it, by default the target."""
        from deltalake import DeltaTable

        return DeltaTable(
            str(self.target if path is None else path), version, storage_options=self.storage_options
        )

    def create(self, path: Path | str, plan: DeltaPlan) -> None:
        """Create a table with the target's schema and partitions."""
        from deltalake import DeltaTable, Schema

        DeltaTable.create(
            str(path),
            Schema.from_json(plan.schema),
            partition_by=list(plan.partition_by),
            configuration=dict(plan.properties),
            storage_options=self.storage_options,
        )

    @property
    def storage_options(self) -> dict[str, str] | None:
        """How the store is reached, as an argument."""
        return None if self.storage is None else dict(self.storage)

    def plan(self) -> DeltaPlan | str | None:
        """Look at the table, and make the folder where ranks write."""
        return plan_delta(self)

    def answer(self, result: Any) -> None:
        """Return nothing, as Polars does."""

    def describe(self) -> str:
        """Return what has to be the same on all ranks, as text for an error."""
        options = f" with {', '.join(sorted(self.options))}" if self.options else ""
        return f"to {shown_path(str(self.target))!r}, mode={self.mode!r}{options}"


@dataclass(frozen=True)
class DeltaPlan(TablePlan):
    """How ranks write, as one process has decided it.

    Attributes
    ----------
    write
        The call.
    hidden
        A folder that is there, in which each rank has its table; of an object store, its URL.
    version
        The table's version; None if there is no table.
    schema
        The table's, as JSON.
    partition_by
        The table's.
    properties
        Those of the table's properties that say how files are written.
    """

    step: ClassVar[str] = "sink_delta"

    write: DeltaWrite
    hidden: Path | str
    version: int | None = None
    schema: str = ""
    partition_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)

    def end(self) -> None:
        """Remove the hidden folder; that of an object store has the table's files."""
        if isinstance(self.hidden, Path):
            shutil.rmtree(self.hidden, ignore_errors=True)

    def open_sink(self, transport: Transport, first_op: int) -> DeltaSink:
        """Return this rank's part."""
        return DeltaSink(self, transport, first_op)

    def own_folder(self, rank: int) -> Path | str:
        """Return the path or the URL of a rank's table."""
        return self.hidden / f"{rank:05d}" if isinstance(self.hidden, Path) else f"{self.hidden}/{rank:05d}"


def plan_delta(write: DeltaWrite) -> DeltaPlan | str | None:
    """Look at the table, and make the folder where ranks write.

    Returns
    -------
    Why one process has to write; or None if the call writes nothing, because there is a table.
    """
    from deltalake.exceptions import TableNotFoundError

    hidden: Path | str
    if isinstance(write.target, Path):
        hidden = Path(hidden_beside(write.target))
    else:
        hidden = StoreFolder.beside_files(write.target)
        try:
            StoreFolder(hidden, write.storage)
        except FileUnreadableError:
            return "to a store that the package obstore does not reach"
    try:
        table = write.table()
    except TableNotFoundError:
        plan = DeltaPlan(write, hidden)
    else:
        if write.mode in ("error", "ignore"):
            return None
        if reason := _why_not(table, write):
            return reason
        properties = {k: v for k, v in table.metadata().configuration.items() if k in _FILE_PROPERTIES}
        plan = DeltaPlan(
            write,
            hidden,
            table.version(),
            table.schema().to_json(),
            tuple(table.metadata().partition_columns),
            properties,
        )
    try:
        cloudpickle.dumps(plan)
    except Exception:  # of many kinds: options may hold what the user made
        return "with options that cannot be sent to other processes"
    if isinstance(plan.hidden, Path):
        try:
            plan.hidden.mkdir()
        except OSError:
            return "beside whose table no folder can be made"
    return plan


def _why_not(table: Any, write: DeltaWrite) -> str | None:
    """Say what of a table takes more than to add files."""
    protocol, metadata = table.protocol(), table.metadata()
    if given := sorted(name for name in _TABLE_OPTIONS if write.options.get(name) is not None):
        return f"to a table that is there, with {', '.join(given)}"
    if properties := sorted(set(metadata.configuration) - _FILE_PROPERTIES - _OTHER_PROPERTIES):
        return f"to a table with {', '.join(properties)}"
    features = set(protocol.writer_features or ()) | set(protocol.reader_features or ())
    if features - _FEATURES or (protocol.min_writer_version > 2 and not features):
        return f"to a table with {', '.join(sorted(features - _FEATURES)) or 'features'}"
    if re.search(r'"metadata":\s*\{\s*"', table.schema().to_json()):
        return "to a table whose columns have properties"
    return None


def agree_on_delta(write: DeltaWrite | str, transport: Transport, *, op: int) -> DeltaPlan | str | None:
    """Plan on rank 0; all ranks return the same.

    Parameters
    ----------
    write
        As :meth:`DeltaWrite.of` returned it.

    Raises
    ------
    QueryMismatchError
        On all ranks, if they do not write to the same table in the same way.
    """
    what = f"sink_delta {write if isinstance(write, str) else write.describe()}"
    plan: DeltaPlan | str | None = None
    if transport.rank == 0:
        plan = write if isinstance(write, str) else plan_delta(write)
    try:
        # Each rank has its own way to the store.
        mine = cloudpickle.dumps((what, _reached_by(plan, None)))
        told = [pickle.loads(value) for value in transport.allgather_bytes(mine, op=op)]
        for rank, (theirs, _) in enumerate(told):
            if theirs != told[0][0]:
                raise QueryMismatchError(
                    f"The ranks call different sinks: rank 0 {told[0][0]}, rank {rank} {theirs}. Every rank must"
                    " call the same sink with the same arguments: avoid conditions on the rank."
                )
    except BaseException:
        if isinstance(plan, DeltaPlan):
            plan.end()
        raise
    agreed: DeltaPlan | str | None = told[0][1]
    return agreed if isinstance(write, str) else _reached_by(agreed, write.storage)


def _reached_by(plan: DeltaPlan | str | None, storage: Mapping[str, str] | None) -> DeltaPlan | str | None:
    return replace(plan, write=replace(plan.write, storage=storage)) if isinstance(plan, DeltaPlan) else plan


class DeltaSink(TableSink):
    """This rank's part of a ``sink_delta``.

    Parameters
    ----------
    plan
        The same on all ranks.
    transport
        Joins them.
    first_op
        Uses the transport's operations from here on.
    """

    def __init__(self, plan: DeltaPlan, transport: Transport, first_op: int) -> None:
        self._plan, self._transport, self._first_op = plan, transport, first_op
        self._own = plan.own_folder(transport.rank)
        self._is_told = False
        self._is_committed = False

    def why_not(self) -> str | None:
        """Return why these ranks cannot write; None if they can."""
        return None if self.is_seen_by_all() else "to a folder that not all ranks have"

    def is_seen_by_all(self) -> bool:
        """Say whether all ranks have the file system with the hidden folder."""
        hidden = self._plan.hidden
        mine = b"seen" if isinstance(hidden, str) or hidden.is_dir() else b""
        return all(self._transport.allgather_bytes(mine, op=self._first_op))

    def write(self, rows: pl.LazyFrame, optimizations: pl.QueryOptFlags | None = None) -> None:
        """Run the query of this rank's rows, with these optimisations if any, and write them to its table."""
        plan, options = self._plan, self._plan.write.options
        if plan.version is not None:
            plan.write.create(self._own, plan)
        arguments: dict[str, Any] = {
            "mode": plan.write.mode,
            "delta_write_options": {k: v for k, v in options.items() if k not in _COMMIT_OPTIONS},
            "engine": "streaming",
        }
        if plan.write.storage is not None:
            arguments["storage_options"] = plan.write.storage_options
        if optimizations is not None:
            arguments["optimizations"] = optimizations
        rows.sink_delta(str(self._own), **arguments)

    def commit(self, facts: bytes) -> list[bytes]:
        """Commit what all ranks wrote, when they have written; returns what each rank tells besides, by rank."""
        mine = pickle.dumps((facts, self._added()))
        self._is_told = True
        told = [pickle.loads(value) for value in self._transport.allgather_bytes(mine, op=self._first_op + 1)]
        if self._transport.rank == 0:
            self._commit_all([added for _, added in told])
            self._plan.end()
        self._transport.allgather_bytes(b"committed", op=self._first_op + 2)
        return [facts for facts, _ in told]

    def discard(self) -> None:
        """Remove what this rank wrote; if rank 0 knows of it, that one decides what becomes of it."""
        is_first, storage = self._transport.rank == 0, self._plan.write.storage
        if not self._is_told:
            remove_late(self._own if isinstance(self._own, Path) else StoreFolder(self._own, storage))
        if isinstance(self._plan.hidden, str):
            if is_first and not self._is_committed:
                StoreFolder(self._plan.hidden, storage).remove()
            return
        if is_first:
            self._plan.end()
        with contextlib.suppress(OSError):  # other ranks' tables may still be there
            self._plan.hidden.rmdir()

    def _added(self) -> list[dict[str, Any]]:
        """Return what this rank's table says of its files."""
        if isinstance(self._own, str):
            logs = StoreFolder(self._own, self._plan.write.storage).logs()
        else:
            logs = [log.read_text() for log in sorted((self._own / "_delta_log").glob("*.json"))]
        lines = [line for log in logs for line in log.splitlines()]
        return [entry["add"] for entry in map(json.loads, lines) if "add" in entry]

    def _commit_all(self, added: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        target, hidden = self._plan.write.target, self._plan.hidden
        if isinstance(hidden, str):
            self._commit_objects(hidden, added)
            return
        assert isinstance(target, Path)
        actions = []
        with contextlib.ExitStack() as undo:
            for rank, files in enumerate(added):
                for file in files:
                    name = unquote(file["path"])  # a path in a log is quoted, an action's is not
                    final = target / name
                    make_folders([final], undo)
                    undo.callback(tried, final.unlink)
                    (hidden / f"{rank:05d}" / name).rename(final)
                    actions.append(_action(name, file))
            make_folders([target / "_delta_log"], undo)
            try:
                self._commit_actions(actions)
            except BaseException:
                if self._may_be_committed(actions):
                    undo.pop_all()  # what is committed must stay
                raise
            if not self._is_ignored(actions):
                undo.pop_all()

    def _commit_objects(self, hidden: str, added: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Commit files of a store where they are."""
        folder = hidden.rsplit("/", 1)[1]
        actions = [
            _action(f"{folder}/{rank:05d}/{unquote(file['path'])}", file)
            for rank, files in enumerate(added)
            for file in files
        ]
        self._is_committed = True  # or perhaps
        try:
            self._commit_actions(actions)
        except BaseException:
            self._is_committed = self._may_be_committed(actions)
            raise
        folder_of_all = StoreFolder(hidden, self._plan.write.storage)
        if self._is_ignored(actions):
            folder_of_all.remove()
        else:
            folder_of_all.remove_logs()

    def _commit_actions(self, actions: list[Any]) -> None:
        from deltalake.transaction import create_table_with_add_actions

        write = self._plan.write
        properties = {key: value for key, value in write.options.items() if key in _COMMIT_OPTIONS}
        if self._plan.version is not None:
            table = write.table(version=self._plan.version)
            table.create_write_transaction(
                actions, write.mode, table.schema(), list(self._plan.partition_by), **properties
            )
            return
        made = write.table(self._own)
        create_table_with_add_actions(
            str(write.target),
            made.schema(),
            actions,
            mode=write.mode,  # type: ignore[arg-type]
            partition_by=list(made.metadata().partition_columns),
            storage_options=write.storage_options,
            **{key: value for key, value in write.options.items() if key in _TABLE_OPTIONS},
            **properties,
        )

    def _is_ignored(self, actions: Sequence[Any]) -> bool:
        """Say whether nothing was committed, because another writer has made a table meanwhile."""
        return self._plan.write.mode == "ignore" and not self._may_be_committed(actions)

    def _may_be_committed(self, actions: Sequence[Any]) -> bool:
        """Say whether the table has the files though the commit has failed, in what comes after it."""
        from deltalake.exceptions import TableNotFoundError

        try:
            names = {os.path.basename(uri) for uri in self._plan.write.table().file_uris()}
        except TableNotFoundError:
            return False
        except Exception:  # nobody knows
            return True
        return any(os.path.basename(action.path) in names for action in actions)


def _action(path: str, file: Mapping[str, Any]) -> Any:
    """Return what adds a file of a rank's table, as its log has it, under a path of the real table."""
    from deltalake.transaction import AddAction

    return AddAction(
        path=path,
        size=file["size"],
        partition_values=file["partitionValues"],
        modification_time=file["modificationTime"],
        data_change=True,
        stats=file["stats"],
    )
