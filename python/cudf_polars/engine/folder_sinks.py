"""A sink to a folder of a file system: hidden parts of all ranks, which take the place of the former ones as a whole.

Ranks write to a hidden folder next to the target, which takes its place when all have written, in one step where the
file system can: a reader finds the old files or the new ones, whenever the sink is killed. A query that fails on any
rank leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
from collections.abc import Sequence
from pathlib import Path

from cudf_polars.engine.folder_exchange import copy_form, exchange, is_used_here
from cudf_polars.engine.partition_files import hidden_beside, move, tried
from cudf_polars.execute.transport import Transport

__all__ = ["PREFIX", "FolderParts", "holds_parts"]

PREFIX = "part."
"""How the names of parts begin."""


def holds_parts(folder: Path) -> bool:
    """Say whether there is nothing in a folder but the parts of a former sink."""
    return folder.is_dir() and all(map(_is_part, folder.iterdir()))


class FolderParts:
    """This rank's part of a folder, and what former sinks left there.

    Parameters
    ----------
    path
        The folder.
    extension
        How the names of parts end.
    transport
        Joins the ranks.
    first_op
        Uses the transport's operations from here on.
    is_used
        Whether a process that is none of the ranks works in the folder.

    Raises
    ------
    FileExistsError
        If the path is a file, or a folder with other things than a former sink's parts.
    """

    def __init__(
        self, path: Path, extension: str, transport: Transport, first_op: int, *, is_used: bool = False
    ) -> None:
        self._is_used, self._first_op = is_used, first_op
        self._path, self._extension, self._transport = path, extension, transport
        # Found once: a function of the user may change the process's folder.
        self._where = self._path.absolute().resolve()
        self._may_exchange = False
        self._part: Path | None = None
        self._made: list[Path] = []  # folders above the target, and ...
        self._folders: list[Path] = []  # ... hidden ones, that are to go if the sink fails
        if self._where.exists() and not self._where.is_dir():
            raise FileExistsError(f"{path} is a file; a sink writes one file per rank into a directory")
        if self._where.is_dir():
            self._check_former_parts()

    def _check_former_parts(self) -> None:
        if not holds_parts(self._where):
            foreign = min(entry.name for entry in self._where.iterdir() if not _is_part(entry))
            raise FileExistsError(
                f"{self._path} holds other files, for instance {foreign!r}: sink to an empty directory"
            )

    def propose(self) -> bytes:
        """Return what all ranks have to know of this one before they begin."""
        where = self._where
        is_inside = hidden_beside(where, "token").parent == where
        # Before any rank makes them; whichever is the last to fail removes them.
        self._made = [folder for folder in where.parents if not folder.exists()]
        return json.dumps([secrets.token_hex(6), is_inside, self._is_used or is_used_here(where)]).encode()

    def begin(self, proposals: Sequence[bytes]) -> Path:
        """Make the hidden folder, with an empty file in it, which is to become this rank's part. Returns the file.

        Parameters
        ----------
        proposals
            What :meth:`propose` has returned on each rank, by rank.
        """
        where = self._where
        tokens, inside, used = zip(*map(json.loads, proposals), strict=True)
        # Ranks may have file systems of their own, and then each has its own hidden folder. It has the same place on
        # all of them: what is a mount point for one rank may be a folder for another.
        hidden = where.with_name(f".{where.name}.{tokens[0]}.tmp")
        if any(inside) and where.exists():
            hidden = where / f".{PREFIX}{tokens[0]}.tmp"  # a name of ours, if it is left there
        self._folders.append(hidden)
        self._part = hidden / self._name(self._transport.rank)
        try:
            has_form = self._make(hidden, self._part)
            self._may_exchange = has_form and not any(inside) and not any(used)
        except OSError as error:
            error.filename = str(self._path)
            raise
        return self._part

    def _make(self, hidden: Path, part: Path) -> bool:
        """Make the hidden folder, with this rank's part in it. Returns whether it is like the target that is there."""
        for left in reversed(range(4 * self._transport.nranks)):
            try:
                # With those above it: beside the target, so that the hidden folders of different targets differ.
                hidden.mkdir(parents=True, exist_ok=True)
                has_form = self._where.exists() and copy_form(self._where, hidden)
                part.touch()  # with a file in it, no other rank removes the folder
            except (FileNotFoundError, FileExistsError):
                if not left:  # else another rank, which has failed, has removed the folder, or those above it
                    raise
            else:
                return has_form
        raise AssertionError("no ranks")

    def commit(self, facts: bytes) -> list[bytes]:
        """Wait until all ranks have written; then the parts take their places. Returns what each rank tells besides."""
        transport = self._transport
        told = transport.allgather_bytes(facts, op=self._first_op)
        # Rank 0 places all parts, so that there are not some of them when another rank fails now.
        everyone = [self._name(rank) for rank in range(transport.nranks)]
        placed = transport.rank == 0 and self._place(everyone)
        # A rank that reads the folder next finds no former parts.
        if not transport.allgather_bytes(b"placed" if placed else b"", op=self._first_op + 1)[0]:
            self._place_apart()
        return told

    def _name(self, rank: int) -> str:
        return f"{PREFIX}{rank:05d}.{self._extension}"

    def _place_apart(self) -> None:
        """Place the parts where not all ranks have one file system: of those that share one, the first rank does."""
        rank, nranks = self._transport.rank, self._transport.nranks
        seen = [other for other in range(nranks) if (self._folders[0] / self._name(other)).exists()]
        told = self._transport.allgather_bytes(json.dumps(seen).encode(), op=self._first_op + 2)
        is_first = not any(rank in json.loads(before) for before in told[:rank])
        if is_first and not self._place([self._name(other) for other in {rank, *seen}]):
            raise FileNotFoundError(f"a part of the sink to {self._path} is gone")
        self._transport.allgather_bytes(b"placed", op=self._first_op + 3)

    def _place(self, names: Sequence[str]) -> bool:
        """Put a folder of these parts in the place of the target; False if they are not all here."""
        hidden = self._folders[0]
        # Under a name that no other rank knows: one that fails meanwhile removes its part.
        whole = hidden.with_name(f"{hidden.name[: -len('.tmp')]}.all.tmp")
        hidden.rename(whole)
        if not all((whole / name).exists() for name in names):
            whole.rename(hidden)
            return False
        self._folders.append(whole)
        where = self._where
        if not where.exists():
            with contextlib.suppress(OSError):
                whole.rename(where)
                return True
        where.mkdir(exist_ok=True)
        if self._may_exchange and exchange(whole, where):
            # What another process has put into the old folder meanwhile is not ours to delete.
            for entry in whole.iterdir():
                if not _is_part(entry):
                    entry.replace(where / entry.name)
            shutil.rmtree(whole, ignore_errors=True)
            return True
        for name in names:
            move(whole / name, where / name)
        for entry in where.iterdir():
            if _is_part(entry) and entry.name not in names and entry != whole:
                _remove(entry)
        shutil.rmtree(whole, ignore_errors=True)
        return True

    def discard(self) -> None:
        """Remove this rank's part, and the folders that no other rank has a part in."""
        if self._part is not None:
            tried(self._part.unlink)
        for folder in self._folders[1:]:
            shutil.rmtree(folder, ignore_errors=True)
        for folder in self._folders[:1]:
            # Another rank's part may still be there.
            with contextlib.suppress(OSError):
                folder.rmdir()
        for folder in self._made:
            tried(folder.rmdir)


def _remove(entry: Path) -> None:
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry)
    else:
        entry.unlink(missing_ok=True)


def _is_part(entry: Path) -> bool:
    """Whether a file is a part of a sink, or what a killed one has left of it."""
    return entry.name.startswith((PREFIX, f".{PREFIX}"))
