"""Whatever the views of the installed Polars have is read, or is listed here as what cannot be."""

from __future__ import annotations

import polars._plr as plr
import pytest

from cudf_polars.plan import polars16
from cudf_polars.plan.errors import Unreadable
from cudf_polars.plan.functions import FUNCTIONS
from cudf_polars.plan.polars16 import function_names
from cudf_polars.plan.polars16.expressions import ExpressionReader, operator

# Views that Polars makes and does not export.
HIDDEN_NODES = {"Gather"}
HIDDEN_EXPRESSIONS = {"StructEval"}
# Classes of values inside of other views.
PARTS = {"GroupbyOptions", "Operator", "PyExprIR", "RollingGroupOptions", "WindowMapping"}

# Functions that no view has: Polars' planner writes the first and the last otherwise, or shows nothing of them, and
# its API no longer makes the second.
UNREADABLE = {"arr.slice", "dt.with_time_unit", "struct.with_fields"}
# Functions that ``fix_view`` names by their options.
BY_OPTIONS = {"list.set_operation"}


def _classes(module: object) -> set[str]:
    return {name for name, value in vars(module).items() if isinstance(value, type)}


def _methods(reader: type, prefix: str) -> set[str]:
    return {name.removeprefix(prefix) for name in vars(reader) if name.startswith(prefix)}


def _families() -> list[str]:
    """Return the enums of functions: classes that have values of their own."""
    return sorted(
        name
        for name in _classes(plr._expr_nodes) - PARTS
        if any(type(value).__name__ == name for value in vars(getattr(plr._expr_nodes, name)).values())
    )


def _variants(name: str) -> list[object]:
    return [value for value in vars(getattr(plr._expr_nodes, name)).values() if type(value).__name__ == name]


def test_every_plan_node_is_read() -> None:
    assert _methods(polars16.Adapter, "_read_") == _classes(plr._ir_nodes) | HIDDEN_NODES


def test_every_expression_is_read() -> None:
    wanted = _classes(plr._expr_nodes) - PARTS - set(_families())
    assert _methods(ExpressionReader, "_expr_") == wanted | HIDDEN_EXPRESSIONS


def test_every_function_is_known_or_listed() -> None:
    variants = [variant for family in _families() for variant in _variants(family)]
    names = {function_names.function_name(variant) for variant in variants}
    assert len(names) > 150
    assert names - set(FUNCTIONS) == UNREADABLE | BY_OPTIONS


def test_every_operator_is_known() -> None:
    found = {operator(view) for view in _variants("Operator")}
    assert len(found) > 15


def test_unknown_enums_are_unreadable() -> None:
    with pytest.raises(Unreadable, match="Operator"):
        function_names.function_name(plr._expr_nodes.Operator.Plus)
