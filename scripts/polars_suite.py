"""Runs the Python tests of Polars with an engine of ours in every lazy collect, and says which tests are lost by that.

    python scripts/polars_suite.py --tests polars-tests.tar.xz --tiny

A test is lost when it passes with Polars' own streaming engine and does not with 2 ranks of ours. The tests are a copy
of ``py-polars/tests`` of Polars' repository, as an archive or a folder, which ``--tests`` or ``POLARS_TESTS`` names.
How the tests end with Polars' streaming engine is kept in ``build/polars-tests``.

Those that may be lost are in ``scripts/polars_suite_expected.toml``, each with the reason. The exit status is 1 if
another is lost, or if one of them no longer is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "polars-tests"
EXPECTED = ROOT / "scripts" / "polars_suite_expected.toml"
FOLDERS = ("operations", "lazyframe", "expr", "functions", "sql", "datatypes")
CLASSES = ("harness", "order not promised", "a wrong hint on purpose", "a type that cannot travel")

TEST_SECONDS = 60
"""How long a test may take; Python code ends it."""
SILENT_SECONDS = 150
"""How long no test may end: then nothing in the process can end it, and the process is killed."""

_LEFT_OUT = ("slow", "write_disk", "release", "docs", "hypothesis", "benchmark", "ci_only")
OPTIONS = (
    "-q",
    "-p",
    "no:cacheprovider",
    "--continue-on-collection-errors",
    "--timeout",
    str(TEST_SECONDS),
    "--timeout-method",
    "signal",
    # Instead of what Polars' pyproject.toml says: without an option of a plugin that is not needed, and without making
    # errors of deprecations, which the tests of another version meet.
    "-o",
    "addopts=--tb=short --import-mode=importlib",
    "-o",
    "filterwarnings=error\nignore::DeprecationWarning\nignore::pytest.PytestRemovedIn10Warning",
    "-m",
    " and ".join(f"not {mark}" for mark in _LEFT_OUT),
)
"""How pytest is called."""


@dataclass(frozen=True)
class Result:
    """How a test ended.

    Attributes
    ----------
    outcome
        ``passed``, ``failed``, ``skipped``, ``xfailed``, or ``died`` when the process of the test ended or was killed.
    why
        The error's text.
    queries
        For each query that it ran, the steps that ran on one rank.
    """

    outcome: str
    why: str = ""
    queries: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class Expected:
    """A test that may be lost.

    Attributes
    ----------
    runs
        In which runs: ``default``, ``tiny``, ``default eager``, ``tiny eager``.
    always
        Whether it is lost each time.
    """

    kind: str
    reason: str
    runs: frozenset[str]
    always: bool


def unpack(tests: Path, build: Path) -> Path:
    """Return the folder ``py-polars`` of the tests, unpacked if they are an archive."""
    if tests.is_dir():
        found = next((p for p in (tests, tests / "py-polars") if (p / "tests" / "unit").is_dir()), None)
        if found is None:
            raise SystemExit(f"{tests}: there is no folder tests/unit in it, nor py-polars/tests/unit")
        return found.resolve()
    if not tests.is_file():
        raise SystemExit(
            f"{tests}: no such file. Name an archive or a folder of Polars' tests (py-polars/tests of its"
            " repository): --tests or POLARS_TESTS"
        )
    digest = hashlib.sha256(tests.read_bytes()).hexdigest()[:16]
    folder = build / digest
    if not (folder / "py-polars" / "tests" / "unit").is_dir():
        with tarfile.open(tests) as archive:
            if hasattr(tarfile, "data_filter"):
                archive.extractall(folder, filter="data")
            else:  # Debian 12's Python
                archive.extractall(folder)
    return unpack(folder, build)


def run(folder: Path, paths: Sequence[str], options: Mapping[str, Any], results: Path) -> dict[str, Result]:
    """Run tests, again and again after what ends the process, until each has a result; by id.

    Parameters
    ----------
    folder
        The folder ``py-polars``.
    paths
        What pytest is to run, relative to the folder.
    options
        Those of the plugin, without its files.
    results
        Where what happens is written.
    """
    final, results = results, results.with_name(f"{results.stem}-{os.getpid()}.jsonl")
    done = results.with_suffix(".done")
    ended: dict[str, Result] = {}
    while True:
        done.write_text("".join(f"{test}\n" for test in ended))
        status, unfinished = _pytest(folder, paths, {**options, "results": str(results), "done": str(done)})
        ended |= dict(_read(results))
        # 2: some modules cannot be imported, which the log says.
        if unfinished is None and (status not in (0, 1, 2, 5) or not ended):
            raise SystemExit(f"pytest ended with {status}: see {results.with_suffix('.log')}")
        if unfinished is None:
            done.unlink()
            results.replace(final)
            results.with_suffix(".log").replace(final.with_suffix(".log"))
            return ended
        how = (
            f"its process ended with {status}"
            if status >= 0
            else f"its process was ended by signal {-status}"
        )
        ended[unfinished] = Result("died", how)
        with results.open("a") as file:
            file.write(json.dumps({"test": unfinished, "outcome": "died", "why": how, "queries": []}) + "\n")
        print(f"  {unfinished}: {how}", flush=True)


def _pytest(folder: Path, paths: Sequence[str], options: Mapping[str, Any]) -> tuple[int, str | None]:
    """Run pytest; returns its exit status, and the test at which it ended if not at the end."""
    results = Path(options["results"])
    # Ranks load the user's functions from the modules of the tests.
    path = [str(ROOT / "scripts"), str(ROOT / "python" / "tests"), str(folder)]
    path += [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "POLARS_SUITE": json.dumps(options)}
    command = [sys.executable, "-m", "pytest", "-p", "polars_suite_plugin", *OPTIONS, *paths]
    with results.with_suffix(".log").open("a") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            status = _wait(process, results)
        finally:
            process.kill()
    last: dict[str, Any] = {}
    if results.exists():
        for line in results.read_text().splitlines():
            last = json.loads(line)
    return status, last.get("begin")


def _wait(process: subprocess.Popen[bytes], results: Path) -> int:
    """Return how a process ends; kill it when no test begins or ends for long."""
    size, since = -1, time.monotonic()
    while True:
        try:
            return process.wait(1)
        except subprocess.TimeoutExpired:
            now = results.stat().st_size if results.exists() else 0
            if now != size:
                size, since = now, time.monotonic()
            elif time.monotonic() - since > SILENT_SECONDS:
                process.kill()


def _read(results: Path) -> Iterator[tuple[str, Result]]:
    for line in results.read_text().splitlines() if results.exists() else ():
        record = json.loads(line)
        if "test" in record:
            yield record["test"], Result(record["outcome"], record["why"], record["queries"])


def baseline(folder: Path, paths: Sequence[str], build: Path, *, eager: bool) -> dict[str, Result]:
    """Return how the tests end with Polars' streaming engine; run them if ``build`` does not say so."""
    key = hashlib.sha256(json.dumps([str(folder), list(paths), eager, OPTIONS, polars.__version__]).encode())
    kept = build / f"streaming-{key.hexdigest()[:16]}.json"
    if kept.exists():
        return {test: Result(outcome) for test, outcome in json.loads(kept.read_text()).items()}
    options = {"mode": "streaming", "eager": eager, "ranks": 1}
    print("Running the tests with Polars' streaming engine", flush=True)
    found = run(folder, paths, options, kept.with_suffix(".jsonl"))
    kept.write_text(json.dumps({test: result.outcome for test, result in found.items()}, indent=0))
    return found


def read_expected(file: Path, run_name: str) -> dict[str, Expected]:
    """Return the tests that may be lost in a run, by id."""
    out = {}
    for entry in tomllib.loads(file.read_text())["lost"]:
        if entry["class"] not in CLASSES:
            raise SystemExit(f"{file}: {entry['class']!r} is not one of {', '.join(CLASSES)}")
        runs = frozenset(entry.get("runs", ("default", "tiny", "default eager", "tiny eager")))
        if run_name in runs:
            out[entry["test"]] = Expected(entry["class"], entry["reason"], runs, entry.get("always", True))
    return out


def compare(
    base: Mapping[str, Result], found: Mapping[str, Result], expected: Mapping[str, Expected]
) -> bool:
    """Say which tests are lost; returns whether these are the expected ones."""
    for name, results in (("Polars' streaming engine", base), ("this engine", found)):
        counts = Counter(result.outcome for result in results.values())
        print(f"{name}: {', '.join(f'{n} {outcome}' for outcome, n in counts.most_common())}")
    lost = {
        t: found.get(t, Result("died", "it did not run")) for t, r in base.items() if r.outcome == "passed"
    }
    lost = {test: result for test, result in lost.items() if result.outcome != "passed"}
    print(f"{len(lost)} tests are lost, {len(lost.keys() & expected.keys())} of them expected")
    for kind in CLASSES:
        tests = [test for test in lost if test in expected and expected[test].kind == kind]
        if tests:
            print(f"\n{kind}: {len(tests)}")
            for test in tests:
                print(f"  {test}: {expected[test].reason}")
    surprising = {test: result for test, result in lost.items() if test not in expected}
    if surprising:
        print(f"\nNOT EXPECTED: {len(surprising)}")
        for test, result in surprising.items():
            first = " ".join(result.why.split())[:160]
            print(f"  {test} ({result.outcome})\n      {first}")
    passing = {test for test, result in base.items() if result.outcome == "passed"}
    regained = [test for test, entry in expected.items() if entry.always and test in passing - lost.keys()]
    if regained:
        print(f"\nEXPECTED BUT NOT LOST, take them from the list: {len(regained)}")
        for test in regained:
            print(f"  {test}")
    return not surprising and not regained


def print_fallbacks(found: Mapping[str, Result]) -> None:
    """Print how many queries ran on one rank, by step; a query counts once for each of its steps."""
    queries = [steps for result in found.values() for steps in result.queries]
    counts = Counter(step for steps in queries for step in steps)
    print(f"\n{sum(map(bool, queries))} of {len(queries)} queries ran on one rank in part:\n")
    print("| n | step |\n| ---: | --- |")
    for step, n in counts.most_common():
        print(f"| {n:,} | {step} |")


def main() -> int:
    """Run the tests as the arguments say."""
    parser = argparse.ArgumentParser(
        prog="python scripts/polars_suite.py",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        help="folders, files or ids of tests, relative to py-polars (default: six of tests/unit)",
    )
    known = os.environ.get("POLARS_TESTS")
    parser.add_argument("--tests", type=Path, default=known, help="archive or folder of Polars' tests")
    parser.add_argument(
        "--tiny", action="store_true", help="every limit 0: small data goes the way of large data"
    )
    parser.add_argument("--eager", action="store_true", help="also what eager methods run inside")
    parser.add_argument("--ranks", type=int, default=2, help="number of ranks (default: 2)")
    parser.add_argument("--fallbacks", action="store_true", help="print which steps ran on one rank")
    parser.add_argument("--expected", type=Path, default=EXPECTED, help="the list of tests that may be lost")
    parser.add_argument("--build", type=Path, default=BUILD, help="folder for what is unpacked and written")
    given = parser.parse_args()
    if given.tests is None:
        parser.error("name Polars' tests: --tests ARCHIVE_OR_FOLDER, or POLARS_TESTS")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that pytest ends, too
    build = given.build.resolve()
    build.mkdir(parents=True, exist_ok=True)
    folder = unpack(given.tests, build)
    paths = given.paths or [f"tests/unit/{name}" for name in FOLDERS]
    start = time.monotonic()
    base = baseline(folder, paths, build, eager=given.eager)
    mode = "tiny" if given.tiny else "default"
    name = f"{mode} eager" if given.eager else mode
    print(f"Running the tests on {given.ranks} ranks, {name}", flush=True)
    stem = f"{name.replace(' ', '-')}-{given.ranks}" + ("-part" if given.paths else "")
    results = build / f"{stem}.jsonl"
    found = run(folder, paths, {"mode": mode, "eager": given.eager, "ranks": given.ranks}, results)
    right = compare(base, found, read_expected(given.expected, name))
    if given.fallbacks:
        print_fallbacks(found)
    print(f"\n{time.monotonic() - start:.0f} s; every test's outcome is in {results}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
