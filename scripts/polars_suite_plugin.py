"""A plugin of pytest that runs the queries of a test suite on an engine of ours, and writes down how each test ended.

``scripts/polars_suite.py`` gives it to pytest. What it does is in the variable ``POLARS_SUITE``, a JSON object:

- ``mode``: ``streaming`` (Polars' own streaming engine), ``default`` (ours) or ``tiny`` (ours, every limit 0);
- ``eager``: whether the queries that methods of DataFrame and Series run inside are taken, too;
- ``ranks``: how many;
- ``results``: the file to which a line of JSON is written for each test;
- ``done``: a file with the ids of tests that are left out, one per line.

Every lazy collect (``collect``, ``collect_all``, ``execute``, ``collect_async``, ``collect_batches``) goes to the
engine, whichever the test names; sinks, ``explain`` and the profiler stay as they are.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.functions import lazy as lazy_functions
from polars.lazyframe import engine_config
from polars.lazyframe import frame as lazy_frame
from polars.lazyframe.engine import Engine

from cudf_polars.execute.options import ExecutionOptions

_inside = threading.local()


class _Ranks:
    """The engine under test, made anew when its ranks are lost."""

    def __init__(self, nranks: int, mode: str) -> None:
        self._nranks = nranks
        self._mode = mode
        self._engine: Any = None

    def get(self) -> Any:
        if self._engine is not None and not self._engine.usable:
            self.close()
        if self._engine is None:
            options = ExecutionOptions.tiny() if self._mode == "tiny" else ExecutionOptions()
            # It is in a folder that only the path of this process names.
            ranks: Any = importlib.import_module("support.rank_processes")
            self._engine = ranks.RankProcesses(self._nranks, options)
        return self._engine

    def close(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.shutdown()


class _Injected(Engine):
    """Runs what is collected on another engine than the one that was asked for; the rest as it was asked for."""

    def __init__(self, asked: Engine, plugin: Plugin) -> None:
        self._asked = asked
        self._plugin = plugin

    @property
    def name(self) -> str:
        return self._asked.name

    @property
    def plan_engine(self) -> str:
        return self._asked.plan_engine

    def __getattribute__(self, name: str) -> Any:
        # Sinks, which the base class defines as well.
        if name.startswith("sink_"):
            return getattr(object.__getattribute__(self, "_asked"), name)
        return object.__getattribute__(self, name)

    def _run(self, method: str, *arguments: Any, **keywords: Any) -> Any:
        _inside.now = True
        engine = self._plugin.engine()
        try:
            return getattr(engine, method)(*arguments, **keywords)
        finally:
            _inside.now = False
            self._plugin.note(getattr(engine, "fallbacks", []))

    def collect(self, lf: pl.LazyFrame, *, post_opt_callback: Any = None, **keywords: Any) -> Any:
        if post_opt_callback is not None:
            return self._asked.collect(lf, post_opt_callback=post_opt_callback, **keywords)
        return self._run("collect", lf, **keywords)

    def execute(self, lf: pl.LazyFrame, **keywords: Any) -> Any:
        return self._run("execute", lf, **keywords)

    def collect_async(self, lf: pl.LazyFrame, **keywords: Any) -> Any:
        if keywords.get("gevent"):
            return self._asked.collect_async(lf, **keywords)
        return self._run("collect_async", lf, **keywords)

    def collect_batches(self, lf: pl.LazyFrame, **keywords: Any) -> Any:
        return self._run("collect_batches", lf, **keywords)

    def collect_all(self, lfs: Any, **keywords: Any) -> Any:
        return self._run("collect_all", lfs, **keywords)

    def collect_all_async(self, lfs: Any, **keywords: Any) -> Any:
        if keywords.get("gevent"):
            return self._asked.collect_all_async(lfs, **keywords)
        return self._run("collect_all_async", lfs, **keywords)


class Plugin:
    """What pytest calls."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._ranks = None if options["mode"] == "streaming" else _Ranks(options["ranks"], options["mode"])
        self._results = Path(options["results"])
        self._done = set(Path(options["done"]).read_text().splitlines()) if options.get("done") else set()
        self._queries: list[list[str]] = []
        self._outcome: dict[str, Any] = {}
        self._inject(eager=options["eager"])

    def _inject(self, *, eager: bool) -> None:
        def injected(original: Callable[..., Engine]) -> Callable[..., Engine]:
            def select(*arguments: Any) -> Engine:
                engine = original(*arguments)
                ours = getattr(_inside, "now", False) or getattr(engine, "name", "") == "gpu"
                return engine if ours or isinstance(engine, _Injected) else _Injected(engine, self)

            return select

        select = injected(engine_config._select_engine)
        for module in (lazy_frame, lazy_functions):
            setattr(module, "_select_engine", select)  # noqa: B010
        if eager:
            # Methods of DataFrame import it where they use it.
            inner = injected(engine_config._eager_engine)
            for module in (engine_config, lazy_frame, lazy_functions):
                setattr(module, "_eager_engine", inner)  # noqa: B010

    def engine(self) -> Any:
        return engine_config._STREAMING_ENGINE if self._ranks is None else self._ranks.get()

    def note(self, fallbacks: list[str]) -> None:
        self._queries.append(list(fallbacks))

    def _write(self, record: dict[str, Any]) -> None:
        with self._results.open("a") as file:
            file.write(json.dumps(record) + "\n")

    # -- hooks --------------------------------------------------------------------------------------------

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid not in self._done]

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._queries, self._outcome = [], {"outcome": "passed", "why": ""}
        self._write({"begin": item.nodeid})
        start = time.monotonic()
        yield
        record = {"test": item.nodeid, **self._outcome, "seconds": round(time.monotonic() - start, 3)}
        self._write({**record, "queries": self._queries})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome == "passed" and not hasattr(report, "wasxfail"):
            return
        if self._outcome["outcome"] == "failed":
            return
        outcome = "xfailed" if hasattr(report, "wasxfail") else report.outcome
        self._outcome = {"outcome": outcome, "why": _why(report)}

    def pytest_sessionfinish(self) -> None:
        if self._ranks is not None:
            self._ranks.close()


def _why(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        return str(crash.message)[:2000]
    return str(report.longrepr)[-2000:]


def pytest_configure(config: pytest.Config) -> None:
    """Take part in the session."""
    config.pluginmanager.register(Plugin(json.loads(os.environ["POLARS_SUITE"])), "polars-suite")


if __name__ == "__main__":
    sys.exit("this is a plugin of pytest: run scripts/polars_suite.py")
