"""Engine options: one declarative table.

The fields of :class:`StreamingOptions` are the table: each carries its group, built-in default, environment
variable and description. Parsing, validation, the command-line flags and ``docs/options.md`` come from it.
A field that is an option of the C++ library only names it: type, default, allowed words and description are those
of the library's own table (:func:`rapidsmpf.config.registered_options`).
Explicit values go before environment variables, those before built-in defaults. Environment variables are
read when the object is made. What values an option can have is in :mod:`cudf_polars.engine.option_values`.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import typing
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, get_args

from rapidsmpf.given_options import (
    checked_text,
    known_options,
    unknown_option,
    variable_of,
    warn_without_effect,
)

from cudf_polars.engine.gpu_options import check_io_tasks, check_parquet_options
from cudf_polars.engine.hardware_binding import HardwareBindingPolicy
from cudf_polars.engine.memory_resource import check_resource_config
from cudf_polars.engine.option_values import (
    UNSPECIFIED,
    CheckDict,
    LibraryValues,
    OwnValues,
    Unspecified,
    Values,
)
from cudf_polars.lower.user_code import user_stacklevel

if TYPE_CHECKING:
    import argparse

__all__ = ["UNSPECIFIED", "OptionInfo", "StreamingOptions", "Unspecified"]

Group = Literal["rapidsmpf", "executor", "engine"]

T = TypeVar("T")

_GIVEN = "given to StreamingOptions"


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
    type
        What its value is, in words.
    """

    group: Group
    default: Any
    env: str | None
    doc: str
    effective: bool
    type: str


@dataclasses.dataclass(frozen=True)
class _Own:
    """An option that Python reads."""

    group: Group
    default: Any
    doc: str
    env: bool
    effective: bool
    least: int | None
    check_dict: CheckDict | None


@dataclasses.dataclass(frozen=True)
class _Library:
    """An option of the library; the field has its name. ``default`` goes before the library's, unless None."""

    default: Any


def _option(
    group: Group,
    default: object,
    doc: str,
    *,
    env: bool = True,
    effective: bool = True,
    least: int | None = None,
    check_dict: CheckDict | None = None,
) -> Any:
    row = _Own(group, default, doc, env, effective, least, check_dict)
    return dataclasses.field(default=UNSPECIFIED, metadata={"option": row})


def _library_option(*, engine_default: object = None) -> Any:
    return dataclasses.field(default=UNSPECIFIED, metadata={"option": _Library(engine_default)})


_ENV_PREFIX: Final[dict[str, str]] = {
    "executor": "CUDF_POLARS__EXECUTOR__",
    "engine": "CUDF_POLARS__",
}


def _naming_unknown_options(options: type[T]) -> type[T]:
    """Let a class of options say which option could be meant by one that does not exist."""
    init = options.__init__

    @functools.wraps(init)
    def checked(self: T, *args: Any, **given: Any) -> None:
        known = [field.name for field in dataclasses.fields(options)]  # type: ignore[arg-type]
        for name in given:
            if name not in known:
                raise unknown_option(name, _GIVEN, known)
        init(self, *args, **given)

    options.__init__ = checked  # type: ignore[assignment]
    return options


@_naming_unknown_options
@dataclasses.dataclass(repr=False)
class StreamingOptions:
    """Options of the streaming engines. Every field defaults to :data:`UNSPECIFIED`.

    What is given explicitly goes before the option's environment variable, and that before its default. Sizes are
    numbers of bytes, or text such as ``"64 KiB"`` and ``"1.5 GB"``; shares are percentages such as ``"80%"``; durations
    are seconds, or text such as ``"100ms"``. Where *off* is a value, False means the same.

    Raises
    ------
    TypeError
        If there is no such option, or a value has the wrong type.
    ValueError
        If a value cannot be used.

    Warns
    -----
    OptionWithoutEffectWarning
        Once for each option that is set and has no effect in this version.

    Examples
    --------
    >>> StreamingOptions(fallback_mode="silent").to_executor_options()
    {'fallback_mode': 'silent'}
    """

    num_streaming_threads: int | Unspecified = _library_option(engine_default=4)
    num_streams: int | Unspecified = _library_option()
    log: str | Unspecified = _library_option()
    statistics: bool | Unspecified = _library_option()
    memory_reserve_timeout: float | str | Unspecified = _library_option()
    allow_overbooking_by_default: bool | Unspecified = _library_option()
    pinned_memory: bool | Unspecified = _library_option()
    pinned_initial_pool_size: int | str | Unspecified = _library_option()
    pinned_max_pool_size: int | str | Unspecified = _library_option()
    spill_device_limit: int | str | Unspecified = _library_option()
    periodic_spill_check: float | str | Unspecified = _library_option()
    unbounded_file_read_cache: Literal["disabled", "host", "pinned", "device"] | Unspecified = (
        _library_option()
    )
    ucxx_progress_mode: Literal["thread-blocking", "thread-polling"] | Unspecified = _library_option()

    num_py_executors: int | Unspecified = _option(
        "executor", 8, "Threads for Python actors.", effective=False, least=1
    )
    kvikio_nthreads: int | None | Unspecified = _option(
        "executor", None, "Threads of the GPU file reader.", effective=False, least=1
    )
    kvikio_statistics: bool | Unspecified = _option(
        "executor", False, "Statistics of the GPU file reader.", effective=False
    )
    kvikio_remote_io_backend: str | Unspecified = _option(
        "executor", "MULTI_POLL", "Remote back end of the GPU file reader.", effective=False
    )
    kvikio_task_size: int | Unspecified = _option(
        "executor", 16 << 20, "Bytes of one read of the GPU file reader.", effective=False, least=1
    )
    kvikio_bounce_buffer_bytes: int | Unspecified = _option(
        "executor", 16 << 20, "Bytes of its bounce buffers.", effective=False, least=1
    )
    kvikio_reactor_count: int | Unspecified = _option(
        "executor", 24, "Its remote reactors.", effective=False, least=1
    )
    kvikio_reactor_dispatch: str | Unspecified = _option(
        "executor", "PER_CHUNK", "How it spreads reads over reactors.", effective=False
    )
    kvikio_reactor_request_ceiling: int | Unspecified = _option(
        "executor", 256, "Its requests in flight per reactor.", effective=False, least=1
    )
    max_concurrent_io_tasks: int | dict[str, int] | None | Unspecified = _option(
        "executor",
        None,
        "Reads in flight per scan of files on a GPU: a number, or a dict of local and remote, of which remote changes"
        " nothing; None: automatic.",
        least=1,
        check_dict=check_io_tasks,
    )
    fallback_mode: Literal["warn", "raise", "silent"] | Unspecified = _option(
        "executor", "warn", "What to do when a part of a query runs on one rank: warn, raise or silent."
    )
    max_rows_per_partition: int | Unspecified = _option(
        "executor",
        0,
        "Rows of an in-memory frame that a partition of a rank should have at most; 0: as memory asks for.",
        least=0,
    )
    broadcast_limit: int | Unspecified = _option(
        "executor",
        0,
        "Largest join side, in bytes over all ranks, that is sent to every rank; 0: automatic.",
        least=0,
    )
    target_partition_size: int | Unspecified = _option(
        "executor", 0, "Bytes that a partition should have; 0: automatic.", least=0
    )
    dynamic_planning: dict[str, Any] | bool | None | Unspecified = _option(
        "executor",
        True,
        "Choose how to join, aggregate and sort by what is counted while the query runs, not by estimates; a dict"
        " counts as True.",
    )
    join_filter_pushdown: dict[str, Any] | bool | None | Unspecified = _option(
        "executor",
        True,
        "Leave out rows of a join's larger side by the keys of the other one before they move, where that pays; a dict"
        " counts as True.",
    )
    sink_to_directory: bool | Unspecified = _option(
        "executor",
        True,
        "Sinks to a path write one file per rank into a directory; False: the file itself, which one rank alone can.",
    )
    compute_device: Literal["auto", "gpu", "cpu"] | Unspecified = _option(
        "executor",
        "auto",
        "Where ranks run their parts of a query: gpu, cpu, or auto (on a GPU where there is one, and libcudf).",
    )
    quent_context: object | None | Unspecified = _option(
        "executor", None, "Telemetry.", env=False, effective=False
    )

    raise_on_fail: bool | Unspecified = _option(
        "engine",
        False,
        "Raise where a part of a query has no form on a GPU, instead of running it on the CPU.",
        env=False,
    )
    parquet_options: dict[str, Any] | None | Unspecified = _option(
        "engine",
        None,
        "Options of the GPU's Parquet reader: the smaller of chunk_read_limit and pass_read_limit (bytes; 0: none) is"
        " the most that a thread decodes at a time; chunked, n_output_chunks, max_footer_samples,"
        " max_row_group_samples, prefetch_file_metadata, use_hybrid_scan and use_jit_filter change nothing.",
        env=False,
        check_dict=check_parquet_options,
    )
    keep_decoded_columns: bool | Unspecified = _option(
        "engine",
        False,
        "Keep decoded columns of files in device memory that nothing else needs, for later scans. No effect on the"
        " CPU.",
    )
    memory_resource_config: dict[str, Any] | None | Unspecified = _option(
        "engine",
        None,
        "The RMM resource that queries on a GPU draw on: a dict of qualname, the dotted name of a class such as"
        " rmm.mr.CudaAsyncMemoryResource, and options, its arguments, in which such a dict is a resource, too. Needs"
        " the package rmm. No effect on the CPU.",
        env=False,
        check_dict=check_resource_config,
    )
    hardware_binding: HardwareBindingPolicy | dict[str, bool] | Unspecified = _option(
        "engine",
        HardwareBindingPolicy(),
        "Binding of a rank to cores, memory and network: a HardwareBindingPolicy, or a dict of its fields.",
    )
    allow_gpu_sharing: bool | Unspecified = _option(
        "engine", False, "Whether two ranks of RayEngine may use one GPU."
    )

    memory_limit: int | str | Unspecified = _library_option()
    spill_directory: str | os.PathLike[str] | Unspecified = _library_option()
    spill_disk_limit: int | str | Unspecified = _library_option()
    peer_memory: Literal["auto", "off"] | Unspecified = _library_option()
    bootstrap_timeout: float | str | Unspecified = _library_option()

    def __post_init__(self) -> None:
        """Fill what is unspecified from the environment and check the values."""
        self._complete({})

    def _complete(self, given_in: Mapping[str, str]) -> None:
        """Fill and check the fields; ``given_in`` says, by name, where they come from."""
        self._sources: dict[str, str] = {}
        table = self.describe()
        _refuse_misspelt_variables()
        for name, info in table.items():
            value = getattr(self, name)
            where = given_in.get(name, _GIVEN)
            if value is UNSPECIFIED:
                text = os.environ.get(info.env, "") if info.env is not None else ""
                if not text.strip():
                    continue
                where = f"environment variable {info.env}"
                value = _values()[name].parse(text, where)
            value = _values()[name].check(value, where)
            setattr(self, name, value)
            self._sources[name] = where
            if not info.effective and value != info.default:
                warn_without_effect(name, where, stacklevel=user_stacklevel())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.to_dict().items())})"

    @classmethod
    def _made(cls, values: Mapping[str, Any], given_in: Mapping[str, str]) -> Self:
        """Make options from values by name, of which ``given_in`` says where they come from."""
        options = cls.__new__(cls)
        for name in cls.describe():
            setattr(options, name, values.get(name, UNSPECIFIED))
        options._complete(given_in)
        return options

    @classmethod
    def describe(cls) -> dict[str, OptionInfo]:
        """Return what the table says about each option, by name."""
        return dict(_table())

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make options from a mapping; ``None`` means unspecified.

        Raises
        ------
        TypeError
            If a key is not an option, or a value has the wrong type.
        ValueError
            If a value cannot be used.
        """
        where = "given to StreamingOptions.from_dict"
        for name in values:
            if name not in _table():
                raise unknown_option(name, where, _table())
        given = {name: value for name, value in values.items() if value is not None}
        return cls._made(given, dict.fromkeys(given, where))

    @classmethod
    def from_groups(cls, library: Mapping[str, str], groups: Mapping[str, Mapping[str, Any]]) -> Self:
        """Make options from what the constructor of an engine takes; ``None`` means unspecified.

        Parameters
        ----------
        library
            Options of the C++ library as texts; those that are none of the engine are left out.
        groups
            Mappings of options, by the names that errors give them. Those that come later go first.

        Raises
        ------
        TypeError
            If an option is unknown or has the wrong type.
        ValueError
            If a value cannot be used.
        """
        table = _table()
        where = {name: "given in rapidsmpf_options" for name in library if name in table}
        values = {name: _values()[name].parse(library[name], where[name]) for name in where}
        for group, given in groups.items():
            for name, value in given.items():
                if name not in table:
                    raise unknown_option(name, f"given in {group}", table)
                if value is not None:
                    values[name], where[name] = value, f"given in {group}"
        return cls._made(values, where)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that are set."""
        return {name: value for name in _table() if (value := getattr(self, name)) is not UNSPECIFIED}

    def get(self, name: str) -> Any:
        """Return an option's value, or its built-in default when it is not set."""
        value = getattr(self, name)
        return _table()[name].default if value is UNSPECIFIED else value

    def sources(self) -> dict[str, str]:
        """Return where each option that is set comes from, in words, by name."""
        return dict(self._sources)

    def _group(self, group: Group) -> dict[str, Any]:
        return {name: value for name, value in self.to_dict().items() if _table()[name].group == group}

    def to_rapidsmpf_options(self) -> dict[str, str]:
        """Return the set options of the C++ library, as strings."""
        return {
            name: checked_text(name, value, self._sources.get(name, _GIVEN))
            for name, value in self._group("rapidsmpf").items()
        }

    @classmethod
    def library_defaults(cls) -> dict[str, str]:
        """Return the options of the C++ library for which the engines have a default of their own, as strings.

        They are sent to the library where neither a script nor the environment sets the option.
        """
        rows = ((field.name, field.metadata["option"]) for field in dataclasses.fields(cls))
        return {
            name: checked_text(name, row.default, "default of the engines")
            for name, row in rows
            if isinstance(row, _Library) and row.default is not None
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
        for name, info in _table().items():
            if info.env is None:
                continue
            note = "" if info.effective else " No effect in this version."
            group.add_argument(
                _flag(name),
                dest=name,
                default=None,
                metavar="VALUE",
                help=f"{info.doc} Default: {info.default}.{note}".replace("%", "%%"),
            )

    @classmethod
    def _from_argparse(cls, namespace: argparse.Namespace) -> Self:
        texts = {name: text for name in _table() if (text := getattr(namespace, name, None)) is not None}
        where = {name: f"{_flag(name)} on the command line" for name in texts}
        return cls._made(
            {name: _values()[name].parse(text, where[name]) for name, text in texts.items()}, where
        )

    @classmethod
    def to_markdown(cls, *, effective: bool | None = None) -> str:
        """Return the options as a table of Markdown for the documentation.

        Parameters
        ----------
        effective
            Only those with an effect, or only those without; None: all.
        """
        lines = [
            "| option | group | value | default | environment variable | meaning |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        groups = get_args(Group)
        for name, info in sorted(_table().items(), key=lambda row: groups.index(row[1].group)):
            if effective is None or info.effective == effective:
                default = "default policy" if name == "hardware_binding" else f"`{info.default}`"
                lines.append(
                    f"| `{name}` | {info.group} | {info.type} | {default if info.default != '' else ''} "
                    f"| {f'`{info.env}`' if info.env else ''} | {info.doc} |"
                )
        return "\n".join(lines) + "\n"


@functools.cache
def _table() -> Mapping[str, OptionInfo]:
    """Return what is known of each option, by name."""
    table = {}
    for field in dataclasses.fields(StreamingOptions):
        row = field.metadata["option"]
        values = _values()[field.name]
        if isinstance(values, LibraryValues):
            info = values.info
            default = values.of_text(info.default) if row.default is None else row.default
            table[field.name] = OptionInfo(
                "rapidsmpf",
                default,
                variable_of(field.name),
                info.meaning,
                info.effective,
                values.words,
            )
        else:
            env = _ENV_PREFIX[row.group] + field.name.upper() if row.env else None
            table[field.name] = OptionInfo(row.group, row.default, env, row.doc, row.effective, values.words)
    return table


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _refuse_misspelt_variables() -> None:
    """Raise TypeError for a variable that is almost one of ours; others may be for others."""
    known = {info.env for info in _table().values() if info.env is not None}
    ours = tuple(_ENV_PREFIX.values())
    for variable in os.environ:
        if not variable.startswith(ours) or variable in known:
            continue
        import difflib  # which no process needs whose variables are all known

        # Without what they have in common, which would make all of them alike.
        prefix = next(prefix for prefix in ours if variable.startswith(prefix))
        names = [name.removeprefix(prefix) for name in known if name.startswith(prefix)]
        if difflib.get_close_matches(variable.removeprefix(prefix), names, n=1, cutoff=0.9):
            raise unknown_option(variable, "environment variable", known)


@functools.cache
def _values() -> Mapping[str, Values]:
    """Return what values each option can have, by name."""
    hints = typing.get_type_hints(StreamingOptions)
    return {
        field.name: OwnValues.of_field(field.name, hints[field.name], row.least, row.check_dict)
        if isinstance(row := field.metadata["option"], _Own)
        else LibraryValues(known_options()[field.name])
        for field in dataclasses.fields(StreamingOptions)
    }


def _docstring() -> str:
    """Return the docstring of the options, with a section on each."""
    text, examples = str(StreamingOptions.__doc__).split("    Raises\n", 1)
    rows = ["    Attributes\n", "    ----------\n"]
    for name, info in _table().items():
        note = "" if info.effective else " No effect in this version."
        variable = "" if info.env is None else f"; environment variable {info.env}"
        default = "the default policy" if name == "hardware_binding" else repr(info.default)
        rows += [f"    {name} : {info.type}; default {default}{variable}\n", f"        {info.doc}{note}\n"]
    return text + "".join(rows) + "\n    Raises\n" + examples


StreamingOptions.__doc__ = _docstring()
