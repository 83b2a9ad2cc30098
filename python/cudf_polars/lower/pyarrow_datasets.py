"""Which part of a pyarrow dataset each rank reads: files of it, or row groups where it has few files."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cudf_polars.lower.shares import split_files
from cudf_polars.plan.nodes import PythonScan

__all__ = ["divide_dataset", "is_dataset_scan"]

_FUNCTION = "_scan_pyarrow_dataset_impl"
_FEW = 4
"""Files of each rank, of which one more or less makes the shares unequal."""


def is_dataset_scan(node: PythonScan) -> bool:
    """Whether a scan is that of ``pl.scan_pyarrow_dataset``."""
    return isinstance(node.function, functools.partial) and node.function.func.__name__ == _FUNCTION


def divide_dataset(node: PythonScan, nranks: int) -> list[PythonScan | None] | str:
    """Return the scan of each rank, None for one without a part; or why one rank reads the dataset.

    Parameters
    ----------
    node
        A scan for which :func:`is_dataset_scan` holds.
    nranks
        Number of ranks.
    """
    assert isinstance(node.function, functools.partial)
    from pyarrow.dataset import FileSystemDataset

    dataset, *others = node.function.args
    if not isinstance(dataset, FileSystemDataset):
        return f"a {type(dataset).__name__} is not divided"
    try:
        pieces, sizes = _pieces(dataset, nranks)
    except ValueError:
        return "a dataset with a filter of its own is not divided: filter the query instead"
    except Exception as error:  # whatever a file system raises; reading the rows says more
        return f"its files cannot be looked at: {type(error).__name__}"
    if len(pieces) < 2:
        return "it is one piece"

    def part(mine: Sequence[Any]) -> PythonScan | None:
        if not mine:
            return None
        some = FileSystemDataset(list(mine), dataset.schema, dataset.format, dataset.filesystem)
        keywords = node.function.keywords  # type: ignore[attr-defined]
        return replace(node, function=functools.partial(node.function.func, some, *others, **keywords))  # type: ignore[attr-defined]

    shares = [share.files for share in split_files(sizes, nranks)]
    return [part(pieces[files.start : files.stop]) for files in shares]


def _pieces(dataset: Any, nranks: int) -> tuple[list[Any], list[int]]:
    """Return what can be read apart, in order, and about how much that is of each."""
    from pyarrow.dataset import ParquetFileFragment

    files = list(dataset.get_fragments())
    if len(files) < _FEW * nranks and all(isinstance(file, ParquetFileFragment) for file in files):
        groups = [group for file in files for group in file.split_by_row_group()]
        return groups, [group.row_groups[0].total_byte_size for group in groups]
    found = dataset.filesystem.get_file_info([file.path for file in files])
    return files, [info.size or 0 for info in found]
