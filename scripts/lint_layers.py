"""Checks that includes and imports go down only, as the map of rooms in CONTRIBUTING.md says.

A room of the C++ library includes headers of itself and of the rooms that it rests on. Headers have three grades:

- ``cpp/include/rapidsmpf/<room>/x.hpp`` is installed. It includes installed headers only.
- ``cpp/include/rapidsmpf/<room>/detail/x.hpp`` is for other rooms, programs and bindings of this repository.
- ``cpp/src/<room>/**/x.hpp``, included as ``"<room>/x.hpp"``, is for its own room, that room's tests and the fuzzers.

A Python package imports itself and the packages that it rests on. Prints ``file:line: ...`` for each offence and exits
with 1 if there is one.

    python scripts/lint_layers.py            # check
    python scripts/lint_layers.py --count    # installed headers, and arrows between the units of memory and table
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

# More than these is an offence, too. Of the headers ten are the blocks that networks of actors are built of: fan-outs,
# throttles, waits for memory and the like, each an entry point of its own for those who write actors.
MOST_INSTALLED_HEADERS = 70
MOST_ARROWS = {"memory": 25, "table": 30}

CPP_SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh"}
_INCLUDE = re.compile(r'^\s*#\s*include\s*(?:<rapidsmpf/(?P<public>[^>]+)>|"(?P<quoted>[^"]+)")')
_CYTHON_INCLUDE = re.compile(r'extern from "<rapidsmpf/(?P<public>[^>]+)>"')
_CYTHON_IMPORT = re.compile(r"^\s*(?:from\s+(?P<from>[\w.]+)\s+c?import|c?import\s+(?P<import>[\w.]+))")
# Libraries that a package may do without, and who may import them.
_OPTIONAL = {
    "dask": ("rapidsmpf.integrations", "cudf_polars.engine"),
    "distributed": ("rapidsmpf.integrations", "cudf_polars.engine"),
    "ray": ("rapidsmpf.integrations", "cudf_polars.engine"),
}


@dataclass(frozen=True)
class Include:
    """One include of a C++ file: the room and the file it names, and the grade of that header."""

    line: int
    room: str
    file: str
    grade: str  # "installed", "detail" or "private"


@dataclass
class Tree:
    """The sources below ``root``, and the map of rooms and packages in its CONTRIBUTING.md."""

    root: Path
    offences: list[str] = field(default_factory=list)

    @cached_property
    def rooms(self) -> dict[str, set[str]]:
        """Give for each room of the C++ library all those below it."""
        return self._below("room")

    @cached_property
    def packages(self) -> dict[str, set[str]]:
        """Give for each Python package all those below it."""
        return self._below("package")

    def _below(self, head: str) -> dict[str, set[str]]:
        """Read the table of CONTRIBUTING.md that begins with this head; close it over what the parts rest on."""
        text = (self.root / "CONTRIBUTING.md").read_text()
        table = re.search(rf"^\| {head} \|.*\n\|[ -|]*\n((?:\|.*\n)+)", text, re.MULTILINE)
        if table is None:
            raise SystemExit(f"lint_layers: CONTRIBUTING.md has no table that begins with '| {head} |'")
        direct: dict[str, list[str]] = {}
        for row in table[1].splitlines():
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            direct[cells[0].strip("`")] = re.findall(r"`([\w.]+)`", cells[-1])
        below: dict[str, set[str]] = {}

        def close(name: str, above: tuple[str, ...]) -> set[str]:
            if name in above:
                raise SystemExit(
                    f"lint_layers: in the map, {name} rests on itself: {' -> '.join((*above, name))}"
                )
            if name not in direct:
                raise SystemExit(f"lint_layers: in the map, {above[-1]} rests on {name}, which has no row")
            if name not in below:
                below[name] = set().union(*({dep} | close(dep, (*above, name)) for dep in direct[name]))
            return below[name]

        for name in direct:
            close(name, ())
        return below

    def complain(self, path: Path, line: int, text: str) -> None:
        self.offences.append(f"{path.relative_to(self.root)}:{line}: {text}")

    # ---- C++

    def cpp_files(self, *folders: str) -> Iterator[Path]:
        for folder in folders:
            for path in sorted((self.root / folder).rglob("*")):
                if path.suffix in CPP_SUFFIXES:
                    yield path

    def installed_headers(self) -> list[Path]:
        """Give the headers that an installed library comes with."""
        return [path for path in self.cpp_files("cpp/include") if "detail" not in path.parts]

    def includes(self, path: Path) -> Iterator[Include]:
        """Give the includes of a file that name a header of the library; complain of those that are not there."""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = _INCLUDE.match(line) or (
                _CYTHON_INCLUDE.search(line) if path.suffix in {".pxd", ".pyx"} else None
            )
            if match is None:
                continue
            public = match["public"]
            if public is not None:
                room, file = public.split("/", 1)
                header = self.root / "cpp/include/rapidsmpf" / public
                grade = "detail" if file.startswith("detail/") else "installed"
            else:
                quoted = match["quoted"]
                room, _, file = quoted.partition("/")
                header, grade = self.root / "cpp/src" / quoted, "private"
                if (path.parent / quoted).exists() and not path.is_relative_to(self.root / "cpp/src"):
                    continue  # a neighbour of a test, a tool or a benchmark
                if room not in self.rooms and not path.is_relative_to(self.root / "cpp/src"):
                    continue  # what the tests, the tools or the bindings share
                if not header.exists() and (self.root / "cpp/tests" / quoted).exists():
                    continue
            if header.exists():
                yield Include(number, room, file, grade)
            elif path.is_relative_to(self.root / "cpp/src") and grade == "private":
                self.complain(
                    path, number, f'"{match["quoted"]}" is not a path from cpp/src, "<room>/<file>"'
                )
            else:
                self.complain(path, number, f"there is no header {header.relative_to(self.root)}")

    def check_rooms(self) -> None:
        """Check the library itself."""
        for path in self.cpp_files("cpp/include", "cpp/src"):
            parts = path.relative_to(self.root).parts
            installed = parts[1] == "include" and "detail" not in parts
            room = parts[3] if parts[1] == "include" else parts[2]
            if room not in self.rooms:
                self.complain(path, 1, f"the room {room} is not on the map in CONTRIBUTING.md")
                continue
            for include in self.includes(path):
                if include.room != room and include.room not in self.rooms[room]:
                    self.complain(path, include.line, f"{room} does not rest on {include.room}")
                elif include.room != room and include.grade == "private":
                    self.complain(path, include.line, f"{include.file} is private to the room {include.room}")
                if installed and include.grade != "installed":
                    self.complain(
                        path,
                        include.line,
                        f"an installed header includes {include.file}, which is not installed",
                    )

    def check_users(self) -> None:
        """Check who else in the repository includes headers: tests, fuzzers, tools, benchmarks, bindings, examples."""
        for path in self.cpp_files(
            "cpp/tests", "cpp/tools", "cpp/benchmarks", "examples/cpp", "python/rapidsmpf"
        ):
            parts = path.relative_to(self.root).parts
            of_room = parts[2] if parts[:2] == ("cpp", "tests") else None
            self._check_user(path, of_room, example=parts[0] == "examples")
        for suffix in ("*.pxd", "*.pyx"):
            for path in sorted((self.root / "python").rglob(suffix)):
                self._check_user(path, None, example=False)

    def _check_user(self, path: Path, of_room: str | None, *, example: bool) -> None:
        for include in self.includes(path):
            if include.grade == "private" and include.room != of_room:
                self.complain(path, include.line, f"{include.file} is private to the room {include.room}")
            if example and include.grade != "installed":
                self.complain(path, include.line, f"{include.file} is not installed")

    def check_build(self) -> None:
        """Check that CMake builds the rooms with what the map says they rest on."""
        text = (self.root / "cpp/CMakeLists.txt").read_text()
        for room, arguments in re.findall(r"^\s*rapidsmpf_room\((\w+)([^)]*)\)", text, re.MULTILINE):
            match = re.search(r"DEPENDS((?:\s+[a-z_]+)+)", arguments)
            said = set(match[1].split()) if match else set()
            closed = said.union(*(self.rooms.get(name, set()) for name in said))
            if closed != self.rooms.get(room):
                self.offences.append(
                    f"cpp/CMakeLists.txt:1: {room} is built on {sorted(said)}, which is not what the map says"
                )

    def units(self, room: str) -> dict[Path, str]:
        """Give the unit of each file of a room: its sub-room, or else a header with its source."""
        files = [
            path
            for path in self.cpp_files("cpp/include", "cpp/src")
            if room in path.relative_to(self.root).parts[2:4] and path.name != path.parts[-2]
        ]
        source_folder = self.root / "cpp/src" / room
        sub_rooms = {
            path.stem: path.relative_to(source_folder).parts[0]
            for path in files
            if path.is_relative_to(source_folder) and path.parent != source_folder
        }
        return {
            path: path.relative_to(source_folder).parts[0]
            if path.is_relative_to(source_folder) and path.parent != source_folder
            else sub_rooms.get(path.stem, path.stem)
            for path in files
        }

    def arrows(self, room: str) -> set[tuple[str, str]]:
        """Give the ordered pairs of units of a room where one includes the other."""
        units = self.units(room)
        found = set()
        for path, unit in units.items():
            for include in self.includes(path):
                if include.room == room:
                    folder = "cpp/src" if include.grade == "private" else "cpp/include/rapidsmpf"
                    other = units[self.root / folder / room / include.file]
                    if other != unit:
                        found.add((unit, other))
        return found

    def check_counts(self) -> None:
        """Check that the interface stays small and the large rooms stay in order."""
        headers = len(self.installed_headers())
        if headers > MOST_INSTALLED_HEADERS:
            self.offences.append(
                f"cpp/include/rapidsmpf:1: {headers} headers are installed, at most {MOST_INSTALLED_HEADERS} may be: "
                "move those that only this repository includes to detail/ or to cpp/src"
            )
        for room, most in MOST_ARROWS.items():
            arrows = len(self.arrows(room))
            if arrows > most:
                self.offences.append(
                    f"cpp/src/{room}:1: {arrows} arrows between its units, at most {most} may be (--count)"
                )

    def check_page(self) -> None:
        """Check that docs/cpp-api.md lists what is installed."""
        page = self.root / "docs/cpp-api.md"
        listed = set(re.findall(r"^\| `rapidsmpf/(\S+)` \|", page.read_text(), re.MULTILINE))
        include = self.root / "cpp/include/rapidsmpf"
        installed = {str(path.relative_to(include)) for path in self.installed_headers()}
        for header in sorted(installed - listed):
            self.complain(page, 1, f"rapidsmpf/{header} is installed and not listed")
        for header in sorted(listed - installed):
            self.complain(page, 1, f"rapidsmpf/{header} is listed and not installed")

    # ---- Python

    def check_packages(self) -> None:
        """Check the imports of the Python packages."""
        for path in sorted((self.root / "python").rglob("*.py*")):
            parts = path.relative_to(self.root / "python").parts
            if parts[0] not in {"rapidsmpf", "cudf_polars"} or path.suffix not in {".py", ".pyx", ".pxd"}:
                continue
            package = self._package(".".join(parts[:-1]))
            for line, module in imports(path):
                self._check_import(path, line, package, module, ".".join(parts[:-1]))

    def _package(self, module: str) -> str | None:
        """Give the package of the map that a module is in; nothing for the doors above all packages."""
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            if ".".join(parts[:length]) in self.packages:
                return ".".join(parts[:length])
        return None

    def _check_import(self, path: Path, line: int, package: str | None, module: str, folder: str) -> None:
        top = module.split(".")[0]
        allowed = _OPTIONAL.get(top)
        if allowed is not None and not folder.startswith(allowed):
            self.complain(path, line, f"{top} may be imported by {' and '.join(allowed)} only")
        if top not in {"rapidsmpf", "cudf_polars"} or package is None:
            return
        other = self._package(module)
        if other is None or other == package or other in self.packages[package]:
            return
        if package.startswith(f"{other}.") and module == other:
            return  # what the package itself says, its version
        self.complain(path, line, f"{package} does not rest on {other}")

    def check(self) -> list[str]:
        """Run every check; give the offences."""
        self.check_rooms()
        self.check_users()
        self.check_build()
        self.check_counts()
        self.check_page()
        self.check_packages()
        return list(dict.fromkeys(self.offences))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Give line and name of each module that a Python or Cython file imports, inside functions as well."""
    text = path.read_text()
    if path.suffix != ".py":
        for number, line in enumerate(text.splitlines(), 1):
            if match := _CYTHON_IMPORT.match(line):
                yield number, match["from"] or match["import"]
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            for alias in node.names:  # a module or a name in one
                yield node.lineno, f"{node.module}.{alias.name}"


def main() -> int:
    """Run the command line; the exit status is 1 if there is an offence."""
    parser = argparse.ArgumentParser(
        prog="python scripts/lint_layers.py", description="Checks includes and imports."
    )
    parser.add_argument(
        "--root", type=Path, default=Path(__file__).resolve().parents[1], help="the tree to check"
    )
    parser.add_argument(
        "--count", action="store_true", help="print headers and arrows instead; --verbose: each"
    )
    parser.add_argument("--verbose", action="store_true")
    arguments = parser.parse_args()
    tree = Tree(arguments.root.resolve())
    if arguments.count:
        headers = tree.installed_headers()
        print(f"installed headers: {len(headers)} (at most {MOST_INSTALLED_HEADERS})")
        for room, most in MOST_ARROWS.items():
            arrows = tree.arrows(room)
            print(
                f"arrows in {room}: {len(arrows)} between {len(set(tree.units(room).values()))} units (at most {most})"
            )
            if arguments.verbose:
                for one, other in sorted(arrows):
                    print(f"  {one} -> {other}")
        return 0
    offences = tree.check()
    for offence in offences:
        print(offence)
    return 1 if offences else 0


if __name__ == "__main__":
    sys.exit(main())
