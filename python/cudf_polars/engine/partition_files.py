"""Sinks to ``pl.PartitionBy`` on a file system, by all ranks.

Ranks write to a hidden folder, and rank 0 brings the files to their places: a new folder at once. Files of other names
in a folder that is there stay, as with Polars: a folder with both takes its place, or each file where that cannot be.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import secrets
import shutil
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from cudf_polars.engine.folder_exchange import exchange, files_below, is_used_here, link_tree
from cudf_polars.engine.partition_sinks import Partitioning, PartitionSink, Told, copy_into, kept_files
from cudf_polars.execute.transport import Transport

__all__ = ["PartitionFiles", "hidden_beside", "make_folders", "move", "tried"]


class PartitionFiles(PartitionSink):
    """A sink to ``pl.PartitionBy`` on a file system.

    Parameters
    ----------
    where
        The base path.

    Raises
    ------
    FileExistsError
        If it is a file.
    """

    def __init__(
        self, where: Path, parts: Partitioning, extension: str, transport: Transport, first_op: int
    ) -> None:
        super().__init__(parts, extension, transport, first_op)
        self._where = where.expanduser().absolute()
        self._is_new = False  # rank 0 knows
        self._is_used = False  # whether a rank works in the folder
        self._hidden: Path | None = None
        if transport.rank == 0:
            self._where = self._where.resolve()
            self._is_new = not self._where.exists()
            if not self._is_new and not self._where.is_dir():
                raise FileExistsError(f"{where} is a file; a sink to pl.PartitionBy writes a folder")

    def _begin(self) -> None:
        mine = b""
        try:
            if self._transport.rank == 0:
                hidden = hidden_beside(self._where)
                hidden.mkdir()
                self._hidden = hidden
                self._own().mkdir()
                mine = os.fsencode(hidden)
            said = self._transport.allgather_bytes(mine, op=self._first_op)[0]
            self._hidden = Path(os.fsdecode(said))
            used = self._parts.is_used or is_used_here(self._where.resolve())
            seen = (b"used" if used else b"seen") if self._hidden.is_dir() else b""
            if seen and self._transport.rank != 0:
                self._own().mkdir()
        except OSError as error:
            if error.filename is not None:
                error.filename = str(self._where)
            raise
        see = self._transport.allgather_bytes(seen, op=self._first_op + 4)
        if not all(see):
            raise FileNotFoundError(
                f"rank {see.index(b'')} does not see the folder {self._hidden.parent} of rank 0: the ranks of a sink to"
                " pl.PartitionBy write to one file system"
            )
        self._is_used = b"used" in see

    def _own(self) -> Path:
        """Return the folder where this rank writes."""
        assert self._hidden is not None
        return self._hidden / f"{self._transport.rank:05d}"

    def _base(self) -> str:
        return str(self._own())

    def _new_name(self, folder: str, index: int) -> str:
        return f"{len(self._files):08d}"

    def _open(self, name: str) -> object:
        if self._callback is not None:
            return name  # Polars tells only of files that it opens itself
        # Of a query that failed, Polars' threads may only now begin to write, and would make a folder again that was
        # removed: so they get open files.
        file = _open_new(self._own() / name)
        if self._ended:
            self._remove()  # again: this file may have come in between
            raise RuntimeError("the sink has ended")
        return file

    def _finish(self, told: Sequence[Told]) -> Mapping[str, str]:
        def place() -> list[tuple[int, str, str]]:
            assert self._hidden is not None
            placed = self._place_all(told, self._hidden)
            shutil.rmtree(self._hidden, ignore_errors=True)
            return placed

        placed = self._tell(place, self._first_op + 2)
        mine = [(written, path) for rank, written, path in placed if rank == self._transport.rank]
        return {str(self._own() / written): path for written, path in mine}

    def _place_all(self, told: Sequence[Told], hidden: Path) -> list[tuple[int, str, str]]:
        """Move all files to their places. Returns rank, written name and path of each that a callback hears of."""
        sources = [(rank, told[rank].files[number].written) for rank, number in kept_files(told)]
        names = self._names(told)
        moves, copies = [], []
        for (rank, written), name in zip(sources, names, strict=True):
            source = hidden / f"{rank:05d}" / written
            if isinstance(name, str):
                moves.append((source, name))
            else:
                copies.append((source, name))
        # What the user gave stays as it is after a failure; so it comes first, while no file has its place.
        for source, target in copies:
            with source.open("rb") as file:
                copy_into(file, target)
        self._move_all(moves, hidden)
        return [
            (rank, written, str(self._where / name))
            for (rank, written), name in zip(sources, names, strict=True)
            if told[rank].has_callback and isinstance(name, str)
        ]

    def _bases(self) -> Sequence[str]:
        return [str(self._where), self._parts.base]

    def _move_all(self, moves: Sequence[tuple[Path, str]], hidden: Path) -> None:
        if self._is_new and moves:
            whole = hidden / "whole"
            make_folders(whole / name for _, name in moves)
            for source, name in moves:
                source.rename(whole / name)
            self._where.parent.mkdir(parents=True, exist_ok=True)
            try:
                whole.rename(self._where)
            except OSError:
                if not self._where.is_dir():
                    raise
                # Another process has made it meanwhile.
                moves = [(whole / name, name) for _, name in moves]
            else:
                return
        if moves and self._exchanged(moves, hidden):
            return
        old = hidden / "old"
        old.mkdir()
        with contextlib.ExitStack() as undo:
            for number, (source, name) in enumerate(moves):
                final = self._where / name
                make_folders([final], undo)
                try:
                    os.link(final, old / str(number))
                except FileNotFoundError:
                    undo.callback(tried, final.unlink)
                except OSError:
                    pass  # a file system without links, which cannot go back
                else:
                    undo.callback(tried, functools.partial((old / str(number)).replace, final))
                move(source, final)
            undo.pop_all()

    def _exchanged(self, moves: Sequence[tuple[Path, str]], hidden: Path) -> bool:
        """Put a folder with the old files and the new ones in the place of the old one; False if that cannot be."""
        whole = hidden / "exchanged"
        is_inside = hidden.is_relative_to(self._where)
        if self._is_used or is_inside or not link_tree(self._where, whole):
            shutil.rmtree(whole, ignore_errors=True)
            return False
        linked = {file: (whole / file).lstat().st_ino for file in files_below(whole)}
        moved = []
        try:
            make_folders(whole / name for _, name in moves)
            for source, name in moves:
                source.replace(whole / name)
                moved.append((source, name))
            may_exchange = True
        except OSError:
            may_exchange = False  # whoever writes into the folder itself says why
        if not may_exchange or not exchange(whole, self._where):
            for source, name in moved:
                (whole / name).replace(source)
            shutil.rmtree(whole, ignore_errors=True)
            return False
        # What another process has put into the old folder meanwhile, also in place of another file, is not ours to
        # delete.
        ours = {Path(name) for _, name in moves}
        late = [
            file
            for file in files_below(whole)
            if file not in ours
            and linked.get(file) != (whole / file).lstat().st_ino
            and (file in linked or not (self._where / file).exists())
        ]
        make_folders(self._where / file for file in late)
        for file in late:
            (whole / file).replace(self._where / file)
        return True

    def _remove(self) -> None:
        if self._hidden is None:
            return
        shutil.rmtree(self._own(), ignore_errors=True)
        # Of rank 0, where moving the files has failed; another rank's files may still be there.
        for folder in ("whole", "exchanged", "old"):
            if self._transport.rank == 0:
                shutil.rmtree(self._hidden / folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._hidden.rmdir()


def hidden_beside(where: Path, token: str | None = None) -> Path:
    """Return a hidden name on the file system of a folder, which need not be there; without a token, a new one."""
    token = token or secrets.token_hex(6)
    if where.exists():
        # Who reads the folder reads what is hidden in it, too: so it is the last choice.
        beside = where.parent.stat().st_dev == where.stat().st_dev and os.access(where.parent, os.W_OK)
        return (where.parent / f".{where.name}.{token}.tmp") if beside else where / f".{token}.tmp"
    while not where.parent.exists():
        where = where.parent
    return where.parent / f".{where.name}.{token}.tmp"


def _open_new(path: Path) -> io.FileIO:
    """Open a new file for Polars, which takes a descriptor of its own and then leaves this one to be collected."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    # Of what was not closed Python would warn.
    file = io.FileIO(descriptor, "wb", closefd=False)
    weakref.finalize(file, os.close, descriptor)
    return file


def make_folders(files: Iterable[Path], undo: contextlib.ExitStack | None = None) -> None:
    """Make the folders of files."""
    known: set[Path] = set()
    for folder in (file.parent for file in files):
        if folder in known:
            continue
        known.add(folder)
        missing = []
        while not folder.exists():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            if undo is not None:
                undo.callback(tried, path.rmdir)


def tried(work: Callable[[], object]) -> None:
    with contextlib.suppress(OSError):
        work()


def move(source: Path, final: Path) -> None:
    """Move a file, also to another file system."""
    try:
        source.replace(final)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # The partition's folder is a link to another file system.
        hidden = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            shutil.copyfile(source, hidden)
            hidden.replace(final)
        finally:
            hidden.unlink(missing_ok=True)
