"""Checks the rules of locks that rapidsmpf/core/mutex.hpp states, with clang's analysis of thread safety.

What a mutex guards (RAPIDSMPF_GUARDED_BY), and which functions are called with it held (RAPIDSMPF_REQUIRES), is checked
in all sources of the library and its tools: clang reads them (-fsyntax-only -Wthread-safety -Werror) with the flags of
a build that is configured and not built. So it also shows what g++ takes and clang does not. All sources of a room are
read in one go, for most of the time goes into the headers that they share; where that finds something, they are read
again as the build has them. The operators over libcudf are read where libcudf is found. Kernels are left out.

Mutexes of the standard library, of which clang knows nothing, are findings, too.

    python scripts/lint_locks.py                  # the library
    python scripts/lint_locks.py FILE.cpp ...     # these, with the flags of the library

Ends with 1 if there is a finding, and with 77, which stands for skipped, where there is no clang and none can be
installed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LLVM = 19
CLANG = f"clang++-{LLVM}"
SKIPPED = 77
CHECKS = (
    "-fsyntax-only",
    "-Werror",
    "-Wthread-safety",
    "-Wthread-safety-beta",  # the order of locks
    "-Wno-deprecated-declarations",  # of the standard library itself
    "-ferror-limit=0",
    "-fno-color-diagnostics",
)
# Which part of a build's flags says what a source means.
_FLAGS_WITH_VALUE = ("-isystem", "-include")
_FLAGS = ("-I", "-D", "-std=")
_PLAIN = re.compile(
    r"std::(?:(?:recursive_|shared_|timed_)*mutex|condition_variable|lock_guard|unique_lock|scoped_lock|shared_lock)\b"
)
_OURS = re.compile(r"/CMakeFiles/(room_\w+)\.dir/|/tools/CMakeFiles/(\w+)\.dir/")


@dataclass(frozen=True)
class Source:
    """A source of the build, and the flags that it is read with."""

    path: str
    flags: tuple[str, ...]
    target: str
    parts: tuple[Source, ...] = ()
    """Those that it includes, if it stands for several."""

    @property
    def command(self) -> list[str]:
        return [CLANG, *self.flags, *CHECKS, self.path]


def configure(build: Path) -> None:
    """Configure a build of the library alone."""
    options = (
        "-DRAPIDSMPF_UNITY=ON",
        "-DRAPIDSMPF_BUILD_TESTS=OFF",
        "-DRAPIDSMPF_BUILD_BENCHMARKS=OFF",
        "-DRAPIDSMPF_BUILD_PYTHON=OFF",
        "-DCMAKE_CUDA_ARCHITECTURES=80-virtual",
        f"-DPython_EXECUTABLE={sys.executable}",
    )
    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *options],
        env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nlint_locks: cmake ended with {done.returncode}")


def flags_of(command: str) -> tuple[str, ...]:
    """Give those flags of a compiler's command that clang needs as well. Headers of others are theirs to mend."""
    kept: list[str] = []
    words = iter(shlex.split(command)[1:])
    for word in words:
        if word in _FLAGS_WITH_VALUE:
            kept += [word, next(words)]
        elif word.startswith("-I") and not Path(word[2:]).is_relative_to(ROOT / "cpp"):
            kept += ["-isystem", word[2:]]
        elif word.startswith(_FLAGS):
            kept.append(word)
    return tuple(kept)


def sources(build: Path) -> list[Source]:
    """Give the sources of the library and its tools, as a configured build has them."""
    entries = json.loads((build / "compile_commands.json").read_text())
    found = [
        Source(entry["file"], flags_of(entry["command"]), match[1] or match[2])
        for entry in entries
        if (match := _OURS.search(entry["output"])) and not entry["file"].endswith(".cu")
    ]
    if not found:
        raise SystemExit(f"lint_locks: {build} has no sources of the library")
    return found


def together(found: list[Source], folder: Path) -> list[Source]:
    """Put the unity sources of a target into one; the largest come first.

    What the build compiles alone has names that its neighbours have, too.
    """
    folder.mkdir(exist_ok=True)
    groups: dict[tuple[str, ...], list[Source]] = {}
    for source in found:
        alone = "" if Path(source.path).match("Unity/unity_*") else source.path
        groups.setdefault((source.target, alone, *source.flags), []).append(source)
    joined = []
    for (target, *_), parts in groups.items():
        if len(parts) == 1:
            joined += parts
            continue
        path = folder / f"{target}.cpp"
        path.write_text("".join(f'#include "{part.path}"\n' for part in parts))
        joined.append(Source(str(path), parts[0].flags, target, tuple(parts)))
    return sorted(joined, key=lambda source: -sum(_lines(Path(one.path)) for one in source.parts or [source]))


def _lines(path: Path) -> int:
    """Count the lines of a source and of those that it includes by their full names, as a unity source does."""
    text = path.read_text()
    parts = [Path(name) for name in re.findall(r'^#include "(/[^"]+)"', text, re.MULTILINE)]
    return text.count("\n") + sum(part.read_text().count("\n") for part in parts)


def check(found: list[Source], jobs: int) -> list[str]:
    """Read every source; give what clang says, each finding once although many sources include its header."""
    said: dict[str, None] = {}

    def run(source: Source) -> list[tuple[Source, str]]:
        done = subprocess.run(source.command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        if done.returncode == 0:
            return []
        return [each for part in source.parts for each in run(part)] or [(source, done.stderr)]

    with ThreadPoolExecutor(jobs) as pool:
        # Where a whole room has findings, its parts say which; where none has, one name stands for two things.
        for source, text in itertools.chain.from_iterable(pool.map(run, found)):
            text = text.replace(f"{ROOT}/", "")
            # A finding is a line with a place, and what follows it until the next.
            parts = re.split(
                r"^(?=(?!In file included)\S+:\d+:\d+: (?:error|warning|fatal error): )", text, flags=re.M
            )
            findings = [part.rstrip() for part in parts[1:]] or [f"{source.path}: {text.rstrip()}"]
            said.update(dict.fromkeys(findings))
    return list(said)


def library_files() -> list[Path]:
    """Give the files in which only our own mutexes may be."""
    found = [
        path
        for folder in ("cpp/include", "cpp/src", "cpp/tools", "python/rapidsmpf/include")
        for path in sorted((ROOT / folder).rglob("*.[ch]pp"))
    ]
    return [path for path in found if not path.match("core/mutex.hpp")]


def plain_mutexes(files: list[Path]) -> list[str]:
    """Find mutexes and locks of the standard library."""
    found = []
    for path in files:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if match := _PLAIN.search(line.split("//")[0]):
                place = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
                found.append(f"{place}:{number}: {match[0]}: use what rapidsmpf/core/mutex.hpp has")
    return found


def main() -> int:
    """Run the command line; the exit status is 1 if there is a finding."""
    parser = argparse.ArgumentParser(
        prog="python scripts/lint_locks.py", description="Checks the rules of locks with clang."
    )
    parser.add_argument("files", nargs="*", type=Path, help="check these instead of the library")
    parser.add_argument(
        "--build", type=Path, default=ROOT / "build/lint", help="the folder in which the build is configured"
    )
    parser.add_argument("--configured", action="store_true", help="it is configured already")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    ensure = [str(ROOT / "scripts/ensure_packages.sh"), "--program", CLANG, f"clang-{LLVM}"]
    if subprocess.run(ensure, stdin=subprocess.DEVNULL).returncode != 0:
        print(f"*** THE RULES OF LOCKS WERE NOT CHECKED: {CLANG} is missing (see above) ***")
        return SKIPPED
    start = time.monotonic()
    if not arguments.configured:
        configure(arguments.build)
    found = sources(arguments.build)
    if arguments.files:
        flags = max((source.flags for source in found), key=len)
        found = [Source(str(path.resolve()), flags, "files") for path in arguments.files]
    else:
        found = together(found, arguments.build / "together")
    findings = plain_mutexes([path.resolve() for path in arguments.files] or library_files())
    findings += check(found, arguments.jobs)
    for finding in findings:
        print(finding)
    print(
        f"lint_locks: {len(findings)} findings in {len(found)} sources, {time.monotonic() - start:.0f} s",
        file=sys.stderr,
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
