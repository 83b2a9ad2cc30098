"""Engine options: one declarative table.

The fields of :class:`StreamingOptions` are the table: each carries its group, built-in default, environment
variable and description. Parsing, validation, the command-line flags and ``docs/options.md`` come from it.
Explicit values go before environment variables, those before built-in defaults. Environment variables are
read when the object is made.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from typing import Any, ClassVar, Final, Literal, Self, get_args, get_origin

from cudf_polars.engine.hardware_binding import HardwareBindingPolicy

__all__ = ["UNSPECIFIED", "StreamingOptions", "Unspecified"]

Group = Literal["rapidsmpf", "executor", "engine"]


class Unspecified:
    """The type of :data:`UNSPECIFIED`."""

    _instance: ClassVar[Unspecified | None] = None

    def __new__(cls) -> Unspecified:
        """Return the one instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNSPECIFIED"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSPECIFIED"


UNSPECIFIED: Final = Unspecified()
"""Marks an option that was not given: the environment variable or the built-in default applies."""


@dataclasses.dataclass(frozen=True)
class OptionInfo:
    """What the table says about one option.

    Attributes
    ----------
    group
        Who reads it: ``rapidsmpf`` (the C++ library), ``executor`` or ``engine``.
    default
        The built-in default.
    env
        The environment variable, if any.
    doc
        One sentence for the documentation and the command line.
    effective
        Whether it changes anything in this version; else it is accepted so that scripts run unchanged.
    """

    group: Group
    default: Any
    env: str | None
    doc: str
    effective: bool


def _option(
    group: Group, default: object, doc: str, *, env: bool | str = True, effective: bool = True
) -> Any:
    return dataclasses.field(default=UNSPECIFIED, metadata={"args": (group, default, doc, env, effective)})


_ENV_PREFIX: Final[dict[str, str]] = {
    "rapidsmpf": "RAPIDSMPF_",
    "executor": "CUDF_POLARS__EXECUTOR__",
    "engine": "CUDF_POLARS__",
}


@dataclasses.dataclass
class StreamingOptions:
    """Options of the streaming engines. Every field defaults to :data:`UNSPECIFIED`.

    Examples
    --------
    >>> StreamingOptions(fallback_mode="silent").to_executor_options()
    {'fallback_mode': 'silent'}
    """

    num_streaming_threads: int | Unspecified = _option(
        "rapidsmpf", 4, "Threads that run the coroutines of the streaming runtime."
    )
    num_streams: int | Unspecified = _option("rapidsmpf", 16, "Size of the CUDA stream pool.")
    log: str | Unspecified = _option(
        "rapidsmpf", "WARN", "Log level: NONE, PRINT, WARN, INFO, DEBUG or TRACE."
    )
    statistics: bool | Unspecified = _option("rapidsmpf", False, "Collect statistics.")
    memory_reserve_timeout: str | Unspecified = _option(
        "rapidsmpf", "100ms", "How long a reservation waits for memory."
    )
    allow_overbooking_by_default: bool | Unspecified = _option(
        "rapidsmpf", True, "Whether a reservation may exceed the limit after that wait.", effective=False
    )
    pinned_memory: bool | Unspecified = _option(
        "rapidsmpf", False, "Use page-locked host memory as a spill tier."
    )
    pinned_initial_pool_size: int | Unspecified = _option(
        "rapidsmpf", 0, "Bytes of page-locked memory to start with."
    )
    pinned_max_pool_size: str | Unspecified = _option("rapidsmpf", "80%", "Limit of the page-locked pool.")
    spill_device_limit: str | Unspecified = _option(
        "rapidsmpf", "80%", "Memory of the compute device to use: bytes, or a share such as 80%."
    )
    periodic_spill_check: str | Unspecified = _option(
        "rapidsmpf", "1ms", "Pause between checks of memory pressure."
    )
    unbounded_file_read_cache: str | Unspecified = _option(
        "rapidsmpf", "disabled", "Keep what was read from files in memory (for benchmarks).", effective=False
    )
    ucxx_progress_mode: Literal["polling", "thread-blocking", "thread-polling"] | Unspecified = _option(
        "rapidsmpf", "thread-blocking", "How the communication thread waits."
    )

    num_py_executors: int | Unspecified = _option(
        "executor", 8, "Threads for Python actors.", effective=False
    )
    kvikio_nthreads: int | None | Unspecified = _option(
        "executor", None, "Threads of the GPU file reader.", effective=False
    )
    kvikio_statistics: bool | Unspecified = _option(
        "executor", False, "Statistics of the GPU file reader.", effective=False
    )
    kvikio_remote_io_backend: str | Unspecified = _option(
        "executor", "MULTI_POLL", "Remote back end of the GPU file reader.", effective=False
    )
    kvikio_task_size: int | Unspecified = _option(
        "executor", 16 << 20, "Bytes of one read of the GPU file reader.", effective=False
    )
    kvikio_bounce_buffer_bytes: int | Unspecified = _option(
        "executor", 16 << 20, "Bytes of its bounce buffers.", effective=False
    )
    kvikio_reactor_count: int | Unspecified = _option("executor", 24, "Its remote reactors.", effective=False)
    kvikio_reactor_dispatch: str | Unspecified = _option(
        "executor", "PER_CHUNK", "How it spreads reads over reactors.", effective=False
    )
    kvikio_reactor_request_ceiling: int | Unspecified = _option(
        "executor", 256, "Its requests in flight per reactor.", effective=False
    )
    max_concurrent_io_tasks: int | dict[str, int] | None | Unspecified = _option(
        "executor", None, "Reads in flight per scan.", effective=False
    )
    fallback_mode: Literal["warn", "raise", "silent"] | Unspecified = _option(
        "executor", "warn", "What to do when a part of a query runs on one rank: warn, raise or silent."
    )
    max_rows_per_partition: int | Unspecified = _option(
        "executor", 1_000_000, "Rows of a partition of an in-memory frame."
    )
    broadcast_limit: int | Unspecified = _option(
        "executor", 0, "Largest join side, in bytes over all ranks, that is sent to every rank; 0: automatic."
    )
    target_partition_size: int | Unspecified = _option(
        "executor", 0, "Bytes that a partition should have; 0: automatic."
    )
    dynamic_planning: dict[str, Any] | bool | None | Unspecified = _option(
        "executor", True, "Choose join and aggregation strategies at run time.", effective=False
    )
    join_filter_pushdown: dict[str, Any] | bool | None | Unspecified = _option(
        "executor", False, "Filter the probe side of a join early.", effective=False
    )
    sink_to_directory: bool | Unspecified = _option(
        "executor", True, "Sinks write one file per rank into a directory (always so on these engines)."
    )
    quent_context: object | None | Unspecified = _option(
        "executor", None, "Telemetry of the peer.", env=False, effective=False
    )

    raise_on_fail: bool | Unspecified = _option(
        "engine", False, "Never used: no query is refused.", env=False, effective=False
    )
    parquet_options: dict[str, Any] | None | Unspecified = _option(
        "engine", None, "Options of the GPU Parquet reader.", env=False, effective=False
    )
    memory_resource_config: dict[str, Any] | None | Unspecified = _option(
        "engine", None, "The RMM resource of a GPU.", env=False, effective=False
    )
    hardware_binding: HardwareBindingPolicy | Unspecified = _option(
        "engine", HardwareBindingPolicy(), "Binding of a rank to cores, memory and network."
    )
    allow_gpu_sharing: bool | Unspecified = _option(
        "engine", False, "Whether two ranks may use one GPU.", effective=False
    )

    def __post_init__(self) -> None:
        """Fill what is unspecified from the environment and check the types."""
        for field, info in self._table():
            value = getattr(self, field.name)
            if value is UNSPECIFIED and info.env is not None and info.env in os.environ:
                value = _parse(os.environ[info.env], _hint(field.name), f"environment variable {info.env}")
                setattr(self, field.name, value)
            if value is not UNSPECIFIED:
                _check(value, _hint(field.name), field.name)

    @classmethod
    def _table(cls) -> list[tuple[dataclasses.Field[Any], OptionInfo]]:
        table = []
        for field in dataclasses.fields(cls):
            group, default, doc, env, effective = field.metadata["args"]
            name = _ENV_PREFIX[group] + field.name.upper() if env is True else env or None
            table.append((field, OptionInfo(group, default, name, doc, effective)))
        return table

    @classmethod
    def describe(cls) -> dict[str, OptionInfo]:
        """Return what the table says about each option, by name."""
        return {field.name: info for field, info in cls._table()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make options from a mapping; ``None`` means unspecified.

        Raises
        ------
        TypeError
            If a key is not an option, or a value has the wrong type.
        """
        known = cls.describe()
        if unknown := sorted(set(values) - set(known)):
            raise TypeError(f"Unsupported options: {unknown}. Known options: {sorted(known)}")
        return cls(**{key: value for key, value in values.items() if value is not None})

    def to_dict(self) -> dict[str, Any]:
        """Return the options that are set."""
        return {
            field.name: value
            for field, _ in self._table()
            if (value := getattr(self, field.name)) is not UNSPECIFIED
        }

    def get(self, name: str) -> Any:
        """Return an option's value, or its built-in default when it is not set."""
        value = getattr(self, name)
        return self.describe()[name].default if value is UNSPECIFIED else value

    def _group(self, group: Group) -> dict[str, Any]:
        table = self.describe()
        return {name: value for name, value in self.to_dict().items() if table[name].group == group}

    def to_rapidsmpf_options(self) -> dict[str, str]:
        """Return the set options of the C++ library, as strings."""
        return {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in self._group("rapidsmpf").items()
        }

    def to_executor_options(self) -> dict[str, Any]:
        """Return the set options of the executor."""
        return self._group("executor")

    def to_engine_options(self) -> dict[str, Any]:
        """Return the set options of the engine."""
        return self._group("engine")

    @classmethod
    def _add_cli_args(cls, parser: argparse.ArgumentParser) -> None:
        group = parser.add_argument_group("streaming options")
        for field, info in cls._table():
            if info.env is None:
                continue
            group.add_argument(
                "--" + field.name.replace("_", "-"),
                dest=field.name,
                default=None,
                metavar="VALUE",
                help=f"{info.doc} Default: {info.default}.".replace("%", "%%"),
            )

    @classmethod
    def _from_argparse(cls, namespace: argparse.Namespace) -> Self:
        values = {}
        for field, _ in cls._table():
            text = getattr(namespace, field.name, None)
            if text is not None:
                flag = "--" + field.name.replace("_", "-")
                values[field.name] = _parse(text, _hint(field.name), flag)
        return cls(**values)

    @classmethod
    def to_markdown(cls) -> str:
        """Return the table as Markdown, for the documentation."""
        lines = [
            "| option | group | default | environment variable | meaning |",
            "| --- | --- | --- | --- | --- |",
        ]
        for field, info in cls._table():
            note = "" if info.effective else " *(accepted; no effect in this version)*"
            default = "default policy" if field.name == "hardware_binding" else f"`{info.default}`"
            lines.append(
                f"| `{field.name}` | {info.group} | {default} | {f'`{info.env}`' if info.env else ''} "
                f"| {info.doc}{note} |"
            )
        return "\n".join(lines) + "\n"


_hints: dict[str, Any] = {}


def _hint(name: str) -> Any:
    if not _hints:
        _hints.update(typing.get_type_hints(StreamingOptions))
    return _hints[name]


def _alternatives(hint: Any) -> tuple[Any, ...]:
    alternatives = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
    return tuple(a for a in alternatives if a is not Unspecified)


def parse_bool(text: str, where: str) -> bool:
    """Read true/yes/y/on/1 or false/no/n/off/0, in any case; ``where`` names the source in errors."""
    word = text.strip().lower()
    if word in ("true", "yes", "y", "on", "1"):
        return True
    if word in ("false", "no", "n", "off", "0"):
        return False
    raise ValueError(f"{where}: cannot read {text!r} as true or false")


def _parse(text: str, hint: Any, where: str) -> Any:
    alternatives = _alternatives(hint)
    if type(None) in alternatives and text.strip().lower() in ("none", ""):
        return None
    if HardwareBindingPolicy in alternatives:
        try:
            return HardwareBindingPolicy(**json.loads(text))
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"{where}: expected a JSON object of HardwareBindingPolicy fields: {error}"
            ) from error
    for kind in alternatives:
        if get_origin(kind) is Literal:
            if text in get_args(kind):
                return text
            raise ValueError(f"{where}: {text!r} is not one of {', '.join(get_args(kind))}")
        if kind is int:
            try:
                return int(text)
            except ValueError:
                if len(alternatives) == 1:
                    raise ValueError(f"{where}: cannot read {text!r} as an integer") from None
        if get_origin(kind) is dict and text.lstrip().startswith("{"):
            try:
                return json.loads(text)
            except ValueError as error:
                raise ValueError(f"{where}: not valid JSON: {error}") from error
        if kind is bool:
            return parse_bool(text, where)
    if str in alternatives:
        return text
    raise ValueError(f"{where}: cannot read {text!r}")


def _check(value: Any, hint: Any, name: str) -> None:
    for kind in _alternatives(hint):
        if kind is Any or kind is object:
            return
        origin = get_origin(kind)
        if origin is Literal:
            if value in get_args(kind):
                return
            if isinstance(value, str):
                raise ValueError(f"{name}: {value!r} is not one of {', '.join(get_args(kind))}")
        elif origin is dict:
            if isinstance(value, dict):
                return
        elif kind is int:
            if isinstance(value, int) and not isinstance(value, bool):
                return
        elif isinstance(value, kind):
            return
    names = " or ".join(
        "one of " + ", ".join(get_args(k)) if get_origin(k) is Literal else getattr(k, "__name__", str(k))
        for k in _alternatives(hint)
    )
    raise TypeError(f"{name} must be {names}, not {type(value).__name__}")
