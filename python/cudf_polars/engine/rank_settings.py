"""The options of a rank, as they travel to it: what a script, the environment and the engines' defaults give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from rapidsmpf.config import Options, get_environment_variables, registered_options
from rapidsmpf.given_options import (
    environment_texts,
    given_texts,
    variable_of,
    warn_of_those_without_effect,
)
from rapidsmpf.statistics import Statistics
from rapidsmpf.utils.string import parse_duration

from cudf_polars.engine.core import check_reserved
from cudf_polars.engine.options import StreamingOptions
from cudf_polars.execute.options import ExecutionOptions
from cudf_polars.lower.user_code import user_stacklevel

__all__ = ["RankSettings", "bootstrap_timeout", "resolve_options"]


@dataclass(frozen=True)
class RankSettings:
    """The options of a rank, as they travel to it.

    Attributes
    ----------
    options
        Those of the engine.
    more
        Of the C++ library, which knows more options than the engine: these go before those of the engine.
    execution
        How queries are planned and run, where the options do not say all of it: tests send small data the way of
        large data. None: as the options say.
    more_sources
        Where ``more`` comes from, in words, by name.
    """

    options: StreamingOptions
    more: Mapping[str, str] = field(default_factory=dict)
    execution: ExecutionOptions | None = None
    more_sources: Mapping[str, str] = field(default_factory=dict)

    def library_options(self) -> Options:
        """Return the options of the C++ library.

        What the script gives goes before this process's environment, and that before the engines' own defaults.

        Raises
        ------
        TypeError
            If a variable of the environment is an option misspelt.
        ValueError
            If one cannot be read.
        """
        environment = environment_texts()
        warn_of_those_without_effect(
            environment, lambda key: f"environment variable {variable_of(key)}", stacklevel=user_stacklevel()
        )
        options = Options({**self.options.to_rapidsmpf_options(), **self.more})
        options.insert_if_absent(
            {key: text for key, text in get_environment_variables().items() if text.strip()}
        )
        options.insert_if_absent(StreamingOptions.library_defaults())
        return options

    def statistics(self) -> Statistics:
        """Return where a rank records what happens, if the options say that it does."""
        return Statistics.from_options(None, self.library_options())

    @contextmanager
    def naming_sources(self) -> Iterator[None]:
        """Add where an option was set to an error about its value that is raised in this block."""
        try:
            yield
        except ValueError as error:
            environment = {name.lower() for name in get_environment_variables()}
            sources = {
                **{key: f"environment variable {variable_of(key)}" for key in environment},
                **self.options.sources(),
                **self.more_sources,
            }
            words = set(re.findall(r"\w+", str(error)))
            given = [f"{key}: {source}" for key, source in sources.items() if key in words]
            if not given:
                raise
            raise ValueError(f"{error} ({'; '.join(given)})") from error

    def execution_options(self) -> ExecutionOptions:
        """Return how queries are planned and run."""
        if self.execution is not None:
            return self.execution
        get = self.options.get
        return ExecutionOptions(
            fallback_mode=get("fallback_mode"),
            broadcast_limit=get("broadcast_limit"),
            target_partition_size=get("target_partition_size"),
            max_rows_per_partition=get("max_rows_per_partition"),
            dynamic_planning=get("dynamic_planning") not in (None, False),
            **({"filter_keys": 0} if get("join_filter_pushdown") in (None, False) else {}),
        )


def resolve_options(
    rapidsmpf_options: Mapping[str, Any] | Options | None,
    executor_options: Mapping[str, Any] | None,
    engine_options: Mapping[str, Any] | None,
) -> RankSettings:
    """Bring the three groups of options that an engine's constructor takes together.

    Raises
    ------
    TypeError
        If an option is unknown, reserved or has the wrong type.
    ValueError
        If a value cannot be used.
    """
    check_reserved(executor_options, engine_options)
    where = "given in rapidsmpf_options"
    texts = given_texts(rapidsmpf_options or {}, where)
    options = StreamingOptions.from_groups(
        texts, {"executor_options": executor_options or {}, "engine_options": engine_options or {}}
    )
    # The C++ library knows more options than the engine.
    more = {key: text for key, text in texts.items() if key not in StreamingOptions.describe()}
    warn_of_those_without_effect(more, lambda _: where, stacklevel=user_stacklevel())
    return RankSettings(options, more, more_sources=dict.fromkeys(more, where))


def bootstrap_timeout(options: Options) -> float:
    """Return how many seconds a rank waits for the others to start."""
    default = next(o.default for o in registered_options() if o.key == "bootstrap_timeout")
    return options.get(
        "bootstrap_timeout", return_type=float, factory=lambda text: parse_duration(text or default)
    )
