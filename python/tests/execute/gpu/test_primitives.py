"""The primitives that writers of programs know are those that the operators have."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cudf_polars.execute.gpu.primitives import PRIMITIVES

_SOURCES = Path(__file__).parents[4] / "cpp" / "src" / "compute"
_TABLES = tuple(sorted(_SOURCES.glob("functions_*.cpp")))
# A line of a table, as functions.hpp says: {"name", number of arguments, "names of options", ...
_LINE = re.compile(r'^ +\{"([a-z0-9_.]+)", (\d+|any_number), "([^"]*)"', re.MULTILINE)


@pytest.fixture
def operators() -> dict[str, tuple[int | None, tuple[str, ...]]]:
    """Return arity and options of the operators' primitives; options in brackets may be left out."""
    lines = [line for table in _TABLES for line in _LINE.findall(table.read_text())]
    found = {
        name: (None if arity == "any_number" else int(arity), tuple(options.split()))
        for name, arity, options in lines
    }
    assert len(found) == len(lines), "a primitive is in the tables twice"
    return found


def test_operators_have_all_primitives_and_no_others(
    operators: dict[str, tuple[int | None, tuple[str, ...]]],
) -> None:
    assert len(_TABLES) == 5
    assert sorted(operators) == sorted(PRIMITIVES)


def test_operators_take_the_same_arguments_and_options(
    operators: dict[str, tuple[int | None, tuple[str, ...]]],
) -> None:
    for name, (arity, options) in operators.items():
        needed = tuple(option for option in options if not option.startswith("["))
        assert (name, arity, needed) == (name, PRIMITIVES[name].arity, PRIMITIVES[name].options)
