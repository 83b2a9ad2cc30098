"""scripts/lint_locks.py finds where a rule of rapidsmpf/core/mutex.hpp is broken, and nothing where they are kept."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "scripts" / "lint_locks.py"

SOURCE = """\
#include <rapidsmpf/core/mutex.hpp>

namespace {
class Counter {
  public:
    void add() {
        rapidsmpf::MutexLock const lock{mutex_};
        add_locked();
    }
    int wait() {
        rapidsmpf::UniqueLock lock{mutex_};
        changed_.wait(lock, [&]() RAPIDSMPF_REQUIRES(mutex_) { return count_ > 0; });
        lock.unlock();
        lock.lock();
        return count_;
    }
    void pause() {
        rapidsmpf::MutexLock const lock{mutex_};
        {
            rapidsmpf::MutexUnlock const unlocked{mutex_};
        }
        ++count_;
    }
    void more();

  private:
    void add_locked() RAPIDSMPF_REQUIRES(mutex_) {
        ++count_;
        changed_.notify_all();
    }
    rapidsmpf::Mutex later_ RAPIDSMPF_ACQUIRED_AFTER(mutex_);
    rapidsmpf::Mutex mutex_;
    rapidsmpf::ConditionVariable changed_;
    int count_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

void Counter::more() {
    @body@
}
}  // namespace

int use() {
    Counter counter;
    counter.add();
    counter.pause();
    counter.more();
    return counter.wait();
}
"""


@pytest.fixture(scope="module", autouse=True)
def clang() -> None:
    if shutil.which("clang++-19") is None:
        pytest.skip("clang++-19 is not installed")


BROKEN = [
    ("++count_;", "writing variable 'count_' requires holding mutex 'mutex_' exclusively"),
    ("add_locked();", "calling function 'add_locked' requires holding mutex 'mutex_' exclusively"),
    ("mutex_.lock();", "mutex 'mutex_' is still held at the end of function"),
    (
        "rapidsmpf::UniqueLock lock{mutex_}; lock.unlock(); ++count_;",
        "writing variable 'count_' requires holding mutex 'mutex_' exclusively",
    ),
    (
        "rapidsmpf::MutexLock const lock{mutex_}; rapidsmpf::MutexUnlock const unlocked{mutex_}; ++count_;",
        "writing variable 'count_' requires holding mutex 'mutex_' exclusively",
    ),
    (
        "rapidsmpf::UniqueLock lock{mutex_}; changed_.wait(lock, [&] { return count_ > 0; });",
        "reading variable 'count_' requires holding mutex 'mutex_'",
    ),
    (
        "rapidsmpf::MutexLock const one{later_}; rapidsmpf::MutexLock const two{mutex_};",
        "mutex 'mutex_' must be acquired before 'later_'",
    ),
]
"""What a function does, and what is found in it."""


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a configured build for all tests: that of `make lint` where there is one, brought up to date."""
    folder = tmp_path_factory.mktemp("build")
    build = ROOT / "build" / "lint"
    if not (build / "build.ninja").exists():
        build = folder / "build"
    source = folder / "kept.cpp"
    source.write_text(SOURCE.replace("@body@", "add();"))
    status, text = lint(build, source, configured=False)
    assert (status, text) == (0, "")
    return build


def lint(build: Path, *sources: Path, configured: bool = True) -> tuple[int, str]:
    more = ["--configured"] if configured else []
    command = [sys.executable, str(SCRIPT), "--build", str(build), *more, *map(str, sources)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def findings(build: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Break all rules in one source, for its headers take most of the time; give what is found, by the body."""
    source = tmp_path_factory.mktemp("broken") / "broken.cpp"
    head, _, end = SOURCE.partition("void Counter::more() {\n    @body@\n}\n")
    bodies = [body for body, _ in BROKEN]
    functions = [
        f"void Counter::broken_{number}() {{\n    {body}\n}}\n" for number, body in enumerate(bodies)
    ]
    declared = "".join(f"    void broken_{number}();\n" for number in range(len(bodies)))
    head = head.replace("    void more();\n", declared)
    end = end.replace("    counter.more();\n", "")
    source.write_text("".join([head, *functions, end]))
    status, text = lint(build, source)
    assert status == 1
    lines = source.read_text().splitlines()
    found: dict[str, list[str]] = {body: [] for body in bodies}
    for number, said in re.findall(rf"^{re.escape(str(source))}:(\d+):\d+: (.*)$", text, re.MULTILINE):
        line = lines[int(number) - 1].strip()
        # clang reports a lock that is still held at the brace that ends the function, one line below the body.
        body = line if line in found else lines[int(number) - 2].strip()
        found[body].append(said)
    return found


@pytest.mark.parametrize(("body", "finding"), BROKEN)
def test_broken_rules_are_found(findings: dict[str, list[str]], body: str, finding: str) -> None:
    assert finding in "\n".join(findings[body])


def test_mutexes_of_the_standard_library_are_found(build: Path, tmp_path: Path) -> None:
    source = tmp_path / "plain.cpp"
    source.write_text(SOURCE.replace("@body@", "static std::mutex plain; // std::lock_guard"))
    status, text = lint(build, source)
    assert status == 1
    assert text == f"{source}:38: std::mutex: use what rapidsmpf/core/mutex.hpp has\n"


def test_all_rooms_are_read(build: Path) -> None:
    entries = json.loads((build / "compile_commands.json").read_text())
    read = set(re.findall(r"/CMakeFiles/room_(\w+)\.dir/", " ".join(entry["output"] for entry in entries)))
    rooms = {folder.name for folder in (ROOT / "cpp/src").iterdir() if folder.is_dir()}
    rooms -= {"polars_plugin"}  # has no locks, and is no part of the library
    cache = (build / "CMakeCache.txt").read_text()
    if "mpi" not in read:
        assert "MPI_CXX_COMPILER" not in cache
        rooms -= {"mpi"}
    if re.search(r"^cudf_DIR:PATH=.*NOTFOUND$", cache, re.MULTILINE):
        rooms -= {"compute"}
    assert read == rooms


def test_what_is_no_source_is_found(build: Path, tmp_path: Path) -> None:
    source = tmp_path / "no_source.cpp"
    source.write_text("this is no C++\n")
    status, text = lint(build, source)
    assert status == 1
    assert "error:" in text
