"""Runs cases by their seeds and reports what differs from Polars.

    python -m differential.run --seed 7                 one case: its text, what Polars gives and what the ranks give
    python -m differential.run --seeds 50000            many, on two processes, with a summary by cause

A worker process runs one case after the other; one that hangs or dies is replaced, and its seed reported.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import functools
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cudf_polars.execute.fragments import ComputeDevice
from differential.cases import Case, build, case_in_tiny_blocks, describe, random_case
from differential.compare import ENGINES, Finding, Kind, Reference, judge
from differential.devices import DEVICES, open_device
from differential.known import known_fault
from differential.ranks import COUNTERS, Coverage, Hang, run_case
from differential.shrink import Check, shrink

__all__ = ["Report", "check_seed", "main", "run_seeds"]

SWITCHES = (
    "comm_subexpr_elim",
    "slice_pushdown",
    "projection_pushdown",
    "predicate_pushdown",
    "comm_subplan_elim",
)
SILENT_S = 120.0
"""Seconds without a sign of life after which a worker is replaced."""


def compare_case(
    case: Case, folder: Path, coverage: Coverage | None = None, device: ComputeDevice | None = None
) -> Finding | None:
    """Run a case on ``device`` and compare; raises Hang."""
    coverage = Coverage() if coverage is None else coverage
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ends = run_case(case, folder, coverage, device)
        return judge(case, Reference(case, folder), ends)


def make_case(seed: int, folder: Path, *, tiny_blocks: bool) -> Case:
    """Return the case of a seed, or the one that runs where memory has no room for it."""
    return case_in_tiny_blocks(seed, folder) if tiny_blocks else random_case(seed, folder)


def check_seed(seed: int, coverage: Coverage, *, tiny_blocks: bool = False) -> tuple[Case, Finding | None]:
    """Make and run the case of a seed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = make_case(seed, folder, tiny_blocks=tiny_blocks)
        return case, compare_case(case, folder, coverage)


# --- a worker ----------------------------------------


def _early_signature(finding: Finding) -> str:
    return f"{finding.kind}: {_plain(finding.detail)[:40]}"


def _plain(text: str) -> str:
    return re.sub(r"\d+", "0", text)


def _stacks() -> str:
    """Return where the threads are."""
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read()


def _right_without(case: Case, folder: Path, check: Check) -> list[str]:
    """Return the optimisations of Polars without any one of which the ranks are right: they show where the fault is."""
    found = []
    for name in SWITCHES:
        if check(replace(case, flags=(*case.flags, name)), folder) is None:
            found.append(name)
    return found


def _work(
    first: int, step: int, stop: int, shrink_s: float, device: str, end_time: float, *, tiny_blocks: bool
) -> None:
    """Run seeds until a time, as ``time.time()`` gives it, and write a line of JSON for each event."""
    warnings.simplefilter("ignore")
    check = functools.partial(compare_case, device=open_device(device))
    out = os.fdopen(os.dup(1), "w", buffering=1)

    def say(**event: Any) -> None:
        out.write(json.dumps(event) + "\n")

    coverage = Coverage()
    seen: collections.Counter[str] = collections.Counter()
    for seed in range(first, stop, step):
        if time.time() > end_time:
            break
        say(event="begin", seed=seed)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
            folder = Path(name)
            try:
                case = make_case(seed, folder, tiny_blocks=tiny_blocks)
            except Exception:
                say(event="broken", seed=seed, text=traceback.format_exc())
                continue
            try:
                finding = check(case, folder, coverage)
            except Hang:
                where = _stacks()
                text = describe(case)
                known = known_fault(text, Kind.HANG, where)
                say(event="finding", seed=seed, kind=Kind.HANG, detail=where, text=text, known=known)
                os._exit(3)
            except Exception:
                say(event="broken", seed=seed, text=traceback.format_exc() + describe(case))
                continue
            if finding is None:
                continue
            smallest = case
            known = known_fault(describe(case), finding.kind, finding.detail)
            right_without: list[str] = []
            if shrink_s and known is None:
                say(event="shrinking", seed=seed)
                with contextlib.suppress(Hang):
                    right_without = _right_without(case, folder, check)
                    signature = f"{_early_signature(finding)} {right_without}"
                    seen[signature] += 1
                    if seen[signature] <= 4:
                        smallest, finding = shrink(case, finding, folder, check, shrink_s)
            text = describe(smallest)
            known = known or known_fault(text, finding.kind, finding.detail)
            say(
                event="finding",
                seed=seed,
                kind=finding.kind,
                detail=finding.detail,
                text=text,
                known=known,
                right_without=right_without,
            )
    counters = {name: dict(getattr(coverage, name)) for name in COUNTERS}
    say(event="end", coverage=counters)


# --- the runner ----------------------------------------


class Report:
    """What the workers found."""

    def __init__(self) -> None:
        self.findings: list[dict[str, Any]] = []
        self.broken: list[dict[str, Any]] = []
        self.coverage = Coverage()
        self.cases = 0

    def add(self, event: Mapping[str, Any]) -> None:
        """Take an event of a worker."""
        kind = event["event"]
        if kind == "begin":
            self.cases += 1
        elif kind == "finding":
            self.findings.append(dict(event))
        elif kind == "broken":
            self.broken.append(dict(event))
        elif kind == "end":
            for name, counts in event["coverage"].items():
                getattr(self.coverage, name).update(counts)

    @property
    def unknown(self) -> list[dict[str, Any]]:
        """The findings that are not on the list of what is known."""
        return [finding for finding in self.findings if not finding.get("known")]

    def text(self, examples: int = 1) -> str:
        """Return a summary: the findings by what they have in common, the shortest of each written out."""
        explained = len(self.findings) - len(self.unknown)
        lines = [
            f"{self.cases} cases, {len(self.unknown)} differences, {explained} of known causes, "
            f"{len(self.broken)} broken"
        ]
        kinds = collections.Counter(f["kind"] for f in self.unknown)
        lines.append(", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))
        causes = collections.Counter(f["known"] for f in self.findings if f.get("known"))
        lines.extend(f"known: {name} {count}" for name, count in causes.most_common())
        groups: dict[str, list[dict[str, Any]]] = collections.defaultdict(list)
        for finding in self.unknown:
            groups[_group(finding)].append(finding)
        for name, members in sorted(groups.items(), key=lambda item: -len(item[1])):
            members.sort(key=lambda f: len(f["text"]))
            seeds = [f["seed"] for f in members[:8]]
            lines.append(f"\n== {len(members)} x {name}; seeds {seeds}")
            for member in members[:examples]:
                lines.append(f"   {member['detail'][:400]}")
                if member.get("right_without"):
                    lines.append(f"   right without {', '.join(member['right_without'])}")
                lines.extend("   " + line[:600] for line in member["text"].splitlines())
        for broken in self.broken[:5]:
            lines.append(f"\n== broken: seed {broken['seed']}\n{broken['text'][-1500:]}")
        c = self.coverage
        lines.append(
            f"\nstreams: {dict(c.streams)}\ncollectives: {dict(c.collectives)}\nnodes: {dict(c.nodes)}"
        )
        lines.append(f"{len(c.functions)} functions")
        if c.host_steps:
            total = sum(c.host_steps.values())
            lines.append(f"nothing ran on the host in {c.host_steps['']} cases; host steps, of {total}: ")
            lines.extend(f"   {n} x {reason[:160]}" for reason, n in c.host_steps.most_common(40) if reason)
        if c.paths:
            lines.append("ways of rows: " + ", ".join(f"{name} {n}" for name, n in c.paths.most_common()))
        return "\n".join(lines)


_STEPS = re.compile(r"\.(\w+)\(|(SELECT|SUM|OVER|IN \(SELECT|\(SELECT)")
_PLAIN_STEPS = {"alias", "lazy", "scan_parquet", "col", "DataFrame", "sort", "filter"}


def _group(finding: Mapping[str, Any]) -> str:
    if finding["kind"] in (Kind.WE_RAISE, Kind.WE_ANSWER, Kind.ERROR_TYPE, Kind.UNEVEN):
        return f"{finding['kind']}: {_plain(finding['detail'])[:70]}"
    code = "\n".join(line for line in finding["text"].splitlines() if line.startswith("q"))
    steps = sorted({a or b for a, b in _STEPS.findall(code)} - _PLAIN_STEPS)
    return f"{finding['kind']}: {' '.join(steps)[:110]}"


def _events(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        with contextlib.suppress(json.JSONDecodeError):
            yield json.loads(line)


def run_seeds(
    first: int,
    count: int,
    workers: int = 2,
    shrink_s: float = 8.0,
    log: Path | None = None,
    *,
    device: str = "cpu",
    tiny_blocks: bool = False,
    seconds: float = math.inf,
) -> Report:
    """Run ``count`` seeds from ``first`` on so many processes, none of them begun after ``seconds``.

    ``tiny_blocks``: where memory has no room for them.
    """
    report = Report()
    end_time = time.time() + seconds
    lock = threading.Lock()

    def note(event: Mapping[str, Any]) -> None:
        with lock:
            report.add(event)
            if log is not None and event["event"] != "begin":
                with log.open("a") as file:
                    file.write(json.dumps(event) + "\n")

    def drive(number: int) -> None:
        seed = first + number
        while seed < first + count:
            command = [
                sys.executable,
                "-m",
                "differential.run",
                "--worker",
                str(seed),
                str(workers),
                str(first + count),
                str(shrink_s),
                device,
                str(end_time),
                *(["--tiny-blocks"] if tiny_blocks else []),
            ]
            environment = {
                **os.environ,
                "RUST_BACKTRACE": "0",
                "POLARS_MAX_THREADS": os.environ.get("POLARS_MAX_THREADS", "2"),
            }
            # The tests' folder, under pytest too.
            paths = [str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
            environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            )
            last = seed
            timer = threading.Timer(SILENT_S, process.kill)
            timer.start()
            ended = found_here = False
            for event in _events(process):
                timer.cancel()
                timer = threading.Timer(SILENT_S, process.kill)
                timer.start()
                last = event.get("seed", last)
                ended = ended or event["event"] == "end"
                found_here = event["event"] == "finding"
                note(event)
            timer.cancel()
            status = process.wait()
            if ended:
                return
            if not found_here:
                kind = Kind.HANG if status == -signal.SIGKILL else Kind.CRASH
                detail = f"the process ended with {status}"
                with tempfile.TemporaryDirectory() as name:
                    text = describe(make_case(last, Path(name), tiny_blocks=tiny_blocks))
                note(
                    {
                        "event": "finding",
                        "seed": last,
                        "kind": kind,
                        "detail": detail,
                        "text": text,
                        "known": known_fault(text, kind, detail),
                    }
                )
            seed = last + workers

    threads = [threading.Thread(target=drive, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report


def _show(seed: int, device: str, *, small: bool, tiny_blocks: bool) -> int:
    check = functools.partial(compare_case, device=open_device(device))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        case = make_case(seed, folder, tiny_blocks=tiny_blocks)
        coverage = Coverage()
        print(describe(case), flush=True)
        faulthandler.dump_traceback_later(60)
        finding = check(case, folder, coverage)
        if finding is not None and small:
            case, finding = shrink(case, finding, folder, check, 60.0)
            print("\n# smallest\n" + describe(case))
        for engine in ENGINES:
            answer = Reference(case, folder).answer(engine)
            print(f"\nPolars, {engine}:", answer.frame if answer.frame is not None else repr(answer.error))
        for rank, end in enumerate(run_case(case, folder, coverage, open_device(device))):
            print(f"\nrank {rank}:", end.frame if end.frame is not None else repr(end.error))
            if end.error is not None and not end.is_echo:
                traceback.print_exception(end.error)
        faulthandler.cancel_dump_traceback_later()
        with contextlib.suppress(Exception):
            print(build(case, folder, None).explain())
        print("\n" + ("no difference" if finding is None else f"{finding.kind}: {finding.detail}"))
    return 0 if finding is None else 1


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line says; the exit status is 1 if something differs."""
    parser = argparse.ArgumentParser(
        prog="python -m differential.run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=int, help="run one case and show it")
    parser.add_argument("--shrink", action="store_true", help="make it as small as possible first")
    parser.add_argument("--seeds", type=int, default=1000, help="how many cases")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument(
        "--shrink-seconds", type=float, default=6.0, help="time to make a failing case smaller"
    )
    parser.add_argument("--log", type=Path, help="write every finding as a line of JSON")
    parser.add_argument(
        "--tiny-blocks", action="store_true", help="on ranks whose memory has no room for the rows"
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what runs the fragments of queries")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no case after so long")
    parser.add_argument("--worker", nargs=6, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.worker:
        first, step, stop = map(int, given.worker[:3])
        shrink_s, device, end_time = given.worker[3:]
        _work(first, step, stop, float(shrink_s), device, float(end_time), tiny_blocks=given.tiny_blocks)
        return 0
    if given.seed is not None:
        return _show(given.seed, given.device, small=given.shrink, tiny_blocks=given.tiny_blocks)
    start = time.monotonic()
    if given.log is not None:
        given.log.unlink(missing_ok=True)
    report = run_seeds(
        given.first,
        given.seeds,
        given.workers,
        given.shrink_seconds,
        given.log,
        device=given.device,
        tiny_blocks=given.tiny_blocks,
        seconds=given.seconds,
    )
    print(report.text())
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if report.unknown or report.broken else 0


if __name__ == "__main__":
    faulthandler.enable()
    sys.exit(main())
