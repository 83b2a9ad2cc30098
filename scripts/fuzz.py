"""Runs the fuzzers of a build, and counts the lines of the parsers that they reach.

    python scripts/fuzz.py build/fuzz --seconds 20 --at-once 2 --junit build/results/fuzz.xml

The build (``make build-fuzz``) names its fuzzers in ``fuzzers.txt``. Each starts from messages that the library's own
encoders write, keeps what it learns in ``corpus/<parser>``, and leaves the input of a finding in
``findings/<parser>``; ``build/fuzz/fuzzers/<parser>_fuzzer <input>`` shows it again. ``planted_overflow`` has a memory
error on purpose and passes if it is found. The exit status is 1 on a finding, or where fewer lines of a parser's
sources are reached than asked for.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLANTED = "planted_overflow"
# A length that was not held against what arrived shows as an allocation that such messages cannot need.
LARGEST_MESSAGE = 8192
LIMITS = ["-timeout=10", "-rss_limit_mb=2048", "-malloc_limit_mb=8"]
# How long a fuzzer may take to load what it knows and to stop, beside the time that it is given.
SLACK_SECONDS = 180


@dataclass(frozen=True)
class Fuzzer:
    """One fuzzer: the parser's name and the sources whose lines count."""

    build: Path
    name: str
    sources: tuple[str, ...]

    @property
    def program(self) -> Path:
        """The executable."""
        return self.build / "fuzzers" / f"{self.name}_fuzzer"

    def folder(self, kind: str) -> Path:
        """Return a folder of its own, which is there."""
        folder = self.build / kind / self.name
        folder.mkdir(parents=True, exist_ok=True)
        return folder


@dataclass(frozen=True)
class Outcome:
    """What a check found: nothing, if ``problem`` is empty."""

    name: str
    summary: str
    problem: str
    seconds: float


def fuzzers_of(build: Path) -> list[Fuzzer]:
    """Read what a build says of its fuzzers."""
    lines = (build / "fuzzers.txt").read_text().splitlines()
    return [Fuzzer(build, words[0], tuple(words[1:])) for words in map(str.split, lines)]


def write_seeds(fuzzer: Fuzzer) -> None:
    """Have the library's own encoders write messages."""
    folder = fuzzer.folder("seeds")
    shutil.rmtree(folder)
    folder.mkdir()
    script = ROOT / "scripts" / f"{fuzzer.name}_seeds.py"
    command = [sys.executable, str(script), str(folder)] if script.exists() else [str(fuzzer.program)]
    told = {"RAPIDSMPF_FUZZ_SEEDS": str(folder), "LLVM_PROFILE_FILE": os.devnull}
    subprocess.run(command, check=True, timeout=300, env=os.environ | told)
    if not any(folder.iterdir()):
        raise RuntimeError(f"there are no seeds for {fuzzer.name}")


def environment(fuzzer: Fuzzer) -> dict[str, str]:
    """Return the environment of a run: errors end it, and the lines that it reaches are written down."""
    return os.environ | {
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:allocator_may_return_null=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "LLVM_PROFILE_FILE": str(fuzzer.folder("lines") / "run.profraw"),
    }


def run(fuzzer: Fuzzer, seconds: int) -> Outcome:
    """Run a fuzzer for some seconds, or until it finds something."""
    start = time.monotonic()
    write_seeds(fuzzer)
    command = [
        str(fuzzer.program),
        f"-max_total_time={seconds}",
        f"-max_len={LARGEST_MESSAGE}",
        f"-artifact_prefix={fuzzer.folder('findings')}/",
        f"-dict={ROOT / 'cpp' / 'fuzz' / 'limits.dict'}",
        "-print_final_stats=1",
        *LIMITS,
        str(fuzzer.folder("corpus")),
        str(fuzzer.folder("seeds")),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment(fuzzer),
            timeout=seconds + SLACK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Outcome(fuzzer.name, "", "it did not stop when its time was over", time.monotonic() - start)
    took = time.monotonic() - start
    (fuzzer.build / f"{fuzzer.name}.log").write_text(done.stdout)
    if fuzzer.name == PLANTED:
        found = done.returncode != 0 and "heap-buffer-overflow" in done.stdout
        problem = "" if found else "the overflow that is there on purpose was not found"
        return Outcome(fuzzer.name, f"found after {took:.0f} s", problem, took)
    runs = re.search(r"stat::number_of_executed_units:\s*(\d+)", done.stdout)
    if done.returncode != 0 or runs is None:
        said = finding_in(done.stdout) or "it said nothing"
        return Outcome(fuzzer.name, "", f"{said}\nended with exit status {done.returncode}", took)
    return Outcome(fuzzer.name, f"{int(runs.group(1)):,} inputs in {took:.0f} s", "", took)


def finding_in(log: str) -> str:
    """Return the part of a log that says what was found."""
    lines = log.splitlines()
    marks = ("ERROR:", "runtime error:", "a promise of the parser", "terminate called", "Test unit written")
    first = next((i for i, line in enumerate(lines) if any(mark in line for mark in marks)), len(lines) - 40)
    shown = lines[max(first, 0) : first + 40] + [line for line in lines if "Test unit written" in line]
    return "\n".join(shown)


def lines_reached(fuzzer: Fuzzer, version: str, at_least: float) -> Outcome:
    """Count the lines of a parser's sources that its last run has reached."""
    start = time.monotonic()
    folder = fuzzer.folder("lines")
    merged = folder / "run.profdata"
    subprocess.run(
        [f"llvm-profdata-{version}", "merge", "-sparse", "-o", str(merged), str(folder / "run.profraw")],
        check=True,
        timeout=300,
    )
    sources = [str(ROOT / "cpp" / source) for source in fuzzer.sources]
    command = [
        f"llvm-cov-{version}",
        "export",
        "-summary-only",
        f"-instr-profile={merged}",
        str(fuzzer.program),
    ]
    exported = subprocess.run([*command, *sources], check=True, timeout=300, stdout=subprocess.PIPE)
    files = json.loads(exported.stdout)["data"][0]["files"]
    percent = {Path(file["filename"]).name: file["summary"]["lines"]["percent"] for file in files}
    missing = [source for source in fuzzer.sources if percent.get(Path(source).name, 0.0) < at_least]
    summary = ", ".join(f"{name} {share:.0f} %" for name, share in sorted(percent.items()))
    problem = f"fewer than {at_least:.0f} % of the lines of {', '.join(missing)}" if missing else ""
    return Outcome(f"{fuzzer.name} lines", summary, problem, time.monotonic() - start)


def write_junit(outcomes: list[Outcome], path: Path) -> None:
    """Write the outcomes as a file that scripts/count_tests.py reads."""
    suite = ElementTree.Element("testsuite", name="fuzz")
    for outcome in outcomes:
        case = ElementTree.SubElement(
            suite, "testcase", classname="fuzz", name=outcome.name, time=f"{outcome.seconds:.1f}"
        )
        if outcome.problem:
            # XML has no place for control characters, which inputs are full of.
            text = "".join(c if c.isprintable() or c == "\n" else "?" for c in outcome.problem)
            ElementTree.SubElement(case, "failure", message=text.splitlines()[0]).text = text
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path)


def main() -> int:
    """Run the fuzzers; the exit status is 1 if something was found or a parser's lines were not reached."""
    parser = argparse.ArgumentParser(prog="python scripts/fuzz.py", description=__doc__)
    parser.add_argument("build", type=Path, help="the folder of the build")
    parser.add_argument("--seconds", type=int, default=20, help="how long each runs")
    parser.add_argument("--at-once", type=int, default=2, help="how many run at a time")
    parser.add_argument("--lines", type=float, default=80, help="per cent of a source's lines to reach")
    parser.add_argument("--llvm", default="19", help="version of llvm-cov and llvm-profdata")
    parser.add_argument("--only", nargs="*", help="names of parsers")
    parser.add_argument("--junit", type=Path, help="write the outcome to this file")
    arguments = parser.parse_args()
    fuzzers = [
        f for f in fuzzers_of(arguments.build.resolve()) if not arguments.only or f.name in arguments.only
    ]
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(arguments.at_once) as pool:
        for outcome in pool.map(lambda fuzzer: run(fuzzer, arguments.seconds), fuzzers):
            outcomes.append(outcome)
            print(f"{outcome.name}: {outcome.problem or outcome.summary}", flush=True)
    for fuzzer, ended in zip(fuzzers, list(outcomes), strict=True):
        if fuzzer.sources and not ended.problem:
            reached = lines_reached(fuzzer, arguments.llvm, arguments.lines)
            outcomes.append(reached)
            print(f"{reached.name}: {reached.summary}{'; ' if reached.problem else ''}{reached.problem}")
    if arguments.junit is not None:
        write_junit(outcomes, arguments.junit)
    return 1 if any(outcome.problem for outcome in outcomes) else 0


if __name__ == "__main__":
    raise SystemExit(main())
