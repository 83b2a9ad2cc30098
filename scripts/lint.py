"""Runs every linter, says what each found, and writes the outcome as JUnit XML.

python scripts/lint.py --junit build/results/lint.xml
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SKIPPED = 77  # the exit status of a check that lacks what it needs, and says so
WORDS = {0: "ok", SKIPPED: "skipped"}
TYPED = ("python/rapidsmpf", "python/cudf_polars", "benchmarks", "examples", "scripts")


def cpp_sources() -> list[str]:
    """List the C++ sources that are held to our format."""
    folders = (ROOT / "cpp", ROOT / "examples" / "cpp", ROOT / "python" / "rapidsmpf")
    patterns = ("*.cpp", "*.hpp", "*.cu", "*.cuh")
    found = {path for folder in folders for pattern in patterns for path in folder.rglob(pattern)}
    return sorted(str(path.relative_to(ROOT)) for path in found)


# Where scripts/lint_words.py looks: code, and pages.
WORDS_IN = [
    "cpp",
    "examples/cpp",
    "python/rapidsmpf",
    "python/cudf_polars",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
]


def checks() -> dict[str, list[str]]:
    """Give the command of each check."""
    tools = Path(sys.executable).parent
    ruff = str(tools / "ruff")
    typed = [folder for folder in TYPED if any((ROOT / folder).rglob("*.py"))]
    return {
        "locks": [sys.executable, "scripts/lint_locks.py"],  # takes longest
        "mypy": [str(tools / "mypy"), *typed],
        "clang-format": [str(tools / "clang-format"), "--dry-run", "-Werror", *cpp_sources()],
        "coroutines": [sys.executable, "scripts/lint_coroutines.py", "cpp", "examples", "python"],
        "layers": [sys.executable, "scripts/lint_layers.py"],
        "words": [sys.executable, "scripts/lint_words.py", *WORDS_IN],
        "ruff-check": [ruff, "check", "--no-fix", "."],
        "ruff-format": [ruff, "format", "--check", "."],
    }


def run(command: list[str]) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run a check; how it ended, and after how many seconds."""
    start = time.monotonic()
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done, time.monotonic() - start


def main() -> int:
    """Run the checks; the exit status is 1 if one fails."""
    parser = argparse.ArgumentParser(prog="python scripts/lint.py", description=__doc__)
    parser.add_argument("--junit", type=Path, help="write the outcome to this file")
    arguments = parser.parse_args()
    suite = ElementTree.Element("testsuite", name="lint")
    failed = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {name: pool.submit(run, command) for name, command in checks().items()}
    for name, outcome in running.items():
        done, seconds = outcome.result()
        case = ElementTree.SubElement(suite, "testcase", classname="lint", name=name, time=f"{seconds:.1f}")
        if done.returncode == SKIPPED:
            ElementTree.SubElement(case, "skipped")
            print(done.stdout.rstrip())
        elif done.returncode != 0:
            failed.append(name)
            ElementTree.SubElement(case, "failure", message=f"{name} ended with {done.returncode}")
            print(done.stdout.rstrip())
        print(f"lint: {name}: {WORDS.get(done.returncode, 'FAILED')}", flush=True)
    if arguments.junit is not None:
        arguments.junit.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(suite).write(arguments.junit)
    if failed:
        print(f"lint: {', '.join(failed)} failed; 'make format' mends formatting")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
