"""Options of what runs on a GPU: how their dicts are checked, and what they are for the operators over libcudf."""

from __future__ import annotations

import numbers
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Final

from rapidsmpf.given_options import known_options

if TYPE_CHECKING:
    from cudf_polars.engine.options import StreamingOptions

__all__ = ["check_io_tasks", "check_parquet_options", "runtime_settings"]

_IO_TASKS: Final = ("local", "remote")

_READ_LIMITS: Final = ("chunk_read_limit", "pass_read_limit")

_PARQUET: Final[dict[str, int | None]] = {
    "chunked": None,
    "n_output_chunks": 1,
    "chunk_read_limit": 0,
    "pass_read_limit": 0,
    "max_footer_samples": 0,
    "max_row_group_samples": 0,
    "prefetch_file_metadata": None,
    "use_hybrid_scan": None,
    "use_jit_filter": None,
}
"""The smallest integer that each may be; None: true or false."""

_MAY_BE_NONE: Final = ("max_footer_samples",)

_FILE_CACHES: Final[dict[str, dict[str, bool]]] = {
    "disabled": {},
    "host": {},
    "pinned": {"map_files": True},
    "device": {"keep_compressed": True},
}
"""What each word of ``unbounded_file_read_cache`` is; the system's page cache has files in any case."""


def check_io_tasks(name: str, value: Mapping[str, Any], where: str) -> dict[str, int]:
    """Return the reads in flight for local and for remote files if they can be used.

    Parameters
    ----------
    name
        Of the option.
    value
        Numbers by ``local`` and ``remote``.
    where
        Where it was given, for errors.

    Raises
    ------
    TypeError
        If a key is unknown, or a value is no integer.
    ValueError
        If a number is less than 1.
    """
    _refuse_unknown(name, value, where, _IO_TASKS)
    return {key: _integer(f"option {name}: {key}", number, 1, where) for key, number in value.items()}


def check_parquet_options(name: str, value: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return options of the GPU's Parquet reader if they can be used.

    Parameters
    ----------
    name
        Of the option.
    value
        The options by their names.
    where
        Where it was given, for errors.

    Raises
    ------
    TypeError
        If a name is unknown, or a value has the wrong type.
    ValueError
        If a number is too small.
    """
    _refuse_unknown(name, value, where, _PARQUET)
    checked: dict[str, Any] = {}
    for key, given in value.items():
        least, called = _PARQUET[key], f"option {name}: {key}"
        if given is None and key in _MAY_BE_NONE:
            checked[key] = None
        elif least is not None:
            checked[key] = _integer(called, given, least, where)
        elif isinstance(given, bool):
            checked[key] = given
        else:
            raise TypeError(f"{called} must be bool, not {type(given).__name__} ({where})")
    return checked


def runtime_settings(options: StreamingOptions, library: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments of ``rapidsmpf.compute.Runtime`` that a rank's options ask for.

    Parameters
    ----------
    options
        Those of the engine.
    library
        Options of the C++ library that are set, as texts.

    Returns
    -------
    Keyword arguments. What no option asks for is not there: the runtime has defaults of its own.
    """
    cache = library.get("unbounded_file_read_cache", "").strip()
    cache = cache or known_options()["unbounded_file_read_cache"].default
    settings: dict[str, Any] = dict(_FILE_CACHES[cache.lower()])
    if options.get("keep_decoded_columns"):
        settings["keep_decoded"] = True
    tasks = options.get("max_concurrent_io_tasks")
    if isinstance(tasks, Mapping):
        tasks = tasks.get("local")
    if tasks is not None:
        settings["passes_in_flight"] = tasks
    parquet = options.get("parquet_options") or {}
    if limits := [parquet[name] for name in _READ_LIMITS if parquet.get(name)]:
        settings["pass_bytes"] = min(limits)
    return settings


def _refuse_unknown(name: str, value: Mapping[str, Any], where: str, known: Collection[str]) -> None:
    """Raise TypeError for a key that is none of ``known``; it lists them."""
    for key in value:
        if key not in known:
            raise TypeError(f"unknown option {key!r} (in {name}, {where}): there are {', '.join(known)}")


def _integer(called: str, value: object, least: int, where: str) -> int:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{called} must be int, not {type(value).__name__} ({where})")
    if value < least:
        raise ValueError(f"{called}: {value} is less than {least} ({where})")
    return int(value)
