"""What expressions and plan nodes have in common: sub-trees in some of their fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Generic, Self, TypeVar

__all__ = ["Tree"]

T = TypeVar("T", bound="Tree[Any]")


class Tree(Generic[T]):
    """Base of frozen dataclasses with sub-trees of type ``T``.

    The fields in ``_child_fields`` hold one, several in a tuple, or ``None``. In a tuple a sub-tree may stand in
    something that has it as ``expr`` and takes another by ``with_expr``: an expression with a name.
    """

    __slots__ = ()
    _child_fields: ClassVar[tuple[str, ...]] = ()

    @property
    def children(self) -> tuple[T, ...]:
        """Direct sub-trees, in a fixed order."""
        out: list[Any] = []
        for name in self._child_fields:
            value = getattr(self, name)
            if isinstance(value, Tree):
                out.append(value)
            elif value is not None:
                out.extend(v if isinstance(v, Tree) else v.expr for v in value)
        return tuple(out)

    def with_children(self, children: Sequence[T]) -> Self:
        """Return this over other sub-trees; a node's must have the columns that it needs.

        Parameters
        ----------
        children
            As many as :attr:`children` has, in the same order.

        Raises
        ------
        ValueError
            When the number differs.
        """
        old = self.children
        if len(old) != len(children):
            raise ValueError(f"{type(self).__name__} has {len(old)} children, got {len(children)}")
        if all(a is b for a, b in zip(old, children, strict=True)):
            return self
        new = iter(children)
        changes: dict[str, Any] = {}
        for name in self._child_fields:
            value = getattr(self, name)
            if isinstance(value, Tree):
                changes[name] = next(new)
            elif value is not None:
                changes[name] = tuple(
                    next(new) if isinstance(v, Tree) else v.with_expr(next(new)) for v in value
                )
        self_: Any = self
        changed: Self = replace(self_, **changes)
        return changed
