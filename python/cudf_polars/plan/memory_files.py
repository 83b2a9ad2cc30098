"""Files that a query holds as bytes, such as ``pl.scan_parquet(io.BytesIO(...))``, as files that have paths.

Polars' views do not show a scan of bytes. Each process therefore keeps such bytes as a file in memory that no folder
names, and from then on they are a file like any other: the ranks read parts of it.
"""

from __future__ import annotations

import hashlib
import os
import threading
import weakref
from typing import Any

__all__ = ["MemoryFile", "with_memory_files"]

_MOST_FILES = 64
"""Of one scan: each takes a file descriptor for as long as its query lasts."""


class MemoryFile(str):
    """The path in this process of a file in memory, which exists as long as this object; pickled by its contents.

    Attributes
    ----------
    name
        For messages and plans: equal in all processes for equal contents.
    content
        The file's bytes.
    """

    name: str
    content: bytes

    @classmethod
    def of(cls, content: bytes) -> MemoryFile:
        """Return the file with this content; there is one of it in a process.

        Raises
        ------
        OSError
            If the process has too many open files, or there is not enough memory.
        """
        name = f"{len(content)} bytes ({hashlib.blake2b(content, digest_size=16).hexdigest()})"
        with _lock:
            found = _files.get(name)
            if found is not None:
                return found
            descriptor = os.memfd_create("riverrun", os.MFD_CLOEXEC)
            try:
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(content)
            except BaseException:
                os.close(descriptor)
                raise
            made = cls(f"/proc/self/fd/{descriptor}")
            made.name, made.content = name, content
            # Not in __del__, while which another thread may still find this object by its name. What Polars has mapped
            # of the file stays.
            weakref.finalize(made, os.close, descriptor).atexit = False
            _files[name] = made
            return made

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the contents: the path is this process's."""
        return _of, (self.content,)


def _of(content: bytes) -> MemoryFile:
    # A function of the module: cloudpickle would pickle a class method by value, with the module's lock.
    return MemoryFile.of(content)


_lock = threading.RLock()  # the garbage collector may close a file while one is made
_files: weakref.WeakValueDictionary[str, MemoryFile] = weakref.WeakValueDictionary()


def with_memory_files(form: Any) -> tuple[Any, tuple[MemoryFile, ...]]:
    """Return a scan of bytes as a scan of files.

    Parameters
    ----------
    form
        A node of a query in its JSON form.

    Returns
    -------
    tuple
        The form, and the files, which have to be kept as long as it is used; none if the node is another one, asks for
        the paths of its files, or has too many of them.
    """
    scan: Any = form.get("Scan") if isinstance(form, dict) else None
    buffers = scan["sources"].get("Buffers") if isinstance(scan, dict) else None
    if (
        not buffers
        or len(buffers) > _MOST_FILES
        or scan["unified_scan_args"]["include_file_paths"] is not None
    ):
        return form, ()
    try:
        files = tuple(MemoryFile.of(bytes(buffer)) for buffer in buffers)
    except OSError:
        return form, ()
    arguments = {**scan["unified_scan_args"], "glob": False}
    sources = {"Paths": [{"inner": str(file)} for file in files]}
    return {"Scan": {**scan, "sources": sources, "unified_scan_args": arguments}}, files
