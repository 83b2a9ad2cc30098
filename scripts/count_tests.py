"""Sums up JUnit XML files, of ctest, pytest and the linters, in one line: ``N passed, N failed``.

    python scripts/count_tests.py build/results/lint.xml build/results/pytest.xml

A test of ctest that is a program with cases of its own (GoogleTest) has those in ``<file without .xml>/<test>.xml``:
then they count, and the test itself only if it failed otherwise (it crashed, or a sanitizer complained at its end).

A file that is missing or cannot be read counts as one failure: its step did not come to its end. The
exit status is 1 if anything failed or nothing passed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Count:
    """Numbers of test cases."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped)

    def __str__(self) -> str:
        text = f"{self.passed} passed, {self.failed} failed"
        return f"{text}, {self.skipped} skipped" if self.skipped else text


def count(path: Path) -> Count:
    """Count the cases of one file; a file that cannot be read is one failure."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as error:
        print(f"{path}: no results ({error})", file=sys.stderr)
        return Count(failed=1)
    total = Count()
    for case in root.iter("testcase"):
        # ctest says it in an attribute, the others in a child.
        status = case.get("status", "")
        cases = path.with_suffix("") / f"{case.get('name')}.xml"
        if cases.exists():
            inside = count(cases)
            total += inside
            if status != "fail" or inside.failed:
                continue
        if case.find("failure") is not None or case.find("error") is not None or status == "fail":
            total += Count(failed=1)
            print(f"failed: {case.get('classname')} {case.get('name')}", file=sys.stderr)
        elif case.find("skipped") is not None or status in {"notrun", "disabled"}:
            total += Count(skipped=1)
            print(f"skipped: {case.get('classname')} {case.get('name')}", file=sys.stderr)
        else:
            total += Count(passed=1)
    return total


def main() -> int:
    """Print the sum of the files that the arguments name."""
    total = sum((count(Path(name)) for name in sys.argv[1:]), Count())
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    raise SystemExit(main())
