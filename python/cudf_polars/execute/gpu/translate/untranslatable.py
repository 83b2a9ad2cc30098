"""What has no form on a GPU, and why."""

from __future__ import annotations

from cudf_polars.plan import expressions as ex
from cudf_polars.plan import nodes

__all__ = ["Unsupported", "UntranslatablePlan", "text_of"]

_TEXT_LIMIT = 200


class Unsupported(Exception):
    """Something has no form on a GPU; the caller that knows the expression and the node says where.

    Attributes
    ----------
    reason
        Why, in words.
    expression
        The innermost expression that is concerned, once it is known.
    """

    def __init__(self, reason: str, expression: ex.Expr | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.expression = expression


class UntranslatablePlan(Exception):
    """A node of a plan has no form on a GPU.

    Attributes
    ----------
    node
        The node, one of the plan's.
    reason
        Why, in words.
    expression
        The expression of the node that is concerned, as Polars writes it; ``None`` if it is the node itself.
    """

    def __init__(self, node: nodes.Node, reason: str, expression: str | None = None) -> None:
        self.node = node
        self.reason = reason
        self.expression = expression
        where = type(node).__name__ if expression is None else f"{type(node).__name__}, {expression}"
        super().__init__(f"{where}: {reason}")


def text_of(expr: ex.Expr) -> str:
    """Return an expression as Polars writes it, cut to a readable length."""
    from cudf_polars.plan.rebuild_expressions import to_expr

    try:
        text = " ".join(str(to_expr(expr)).split())
    except Exception:  # an expression that cannot be shown is still refused for its own reason
        text = repr(expr)
    return text if len(text) <= _TEXT_LIMIT else text[: _TEXT_LIMIT - 3] + "..."
