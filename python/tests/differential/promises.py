"""What lines promise of their results, and how their outputs are named."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace

from differential.expressions import Text
from differential.relation import Order, Relation, Rule, Schema, State, holds_floats

__all__ = ["fixed", "listed", "marked", "outputs", "rowwise"]


def marked(state: State, schema: Schema, names: Sequence[str]) -> State:
    """Return ``state`` with those of the columns ``names`` that hold floats inexact."""
    floats = {n for n in (schema if "*" in names else names) if n in schema and holds_floats(schema[n])}
    return replace(state, inexact=(state.inexact | floats) & frozenset(schema))


def rowwise(changed: Sequence[str], inexact: Sequence[str], *, total: bool, drops: bool = False) -> Rule:
    """Of columns that are added or changed, or rows that are dropped."""

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        (state,) = states
        if total and not state.order.total:
            return None
        state = state.only(schema, changed)
        if drops:
            state = replace(state, height=None)
        return marked(state, schema, inexact)

    return rule


def fixed(
    order: Order,
    *,
    total: bool = False,
    keys: Sequence[str] = (),
    inexact: Sequence[str] = (),
    height: int | None = None,
) -> Rule:
    """Of a result with an order of its own; ``total`` says that the input's order must be promised."""

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        if total and not all(state.order.total for state in states):
            return None
        own = frozenset([frozenset(keys)]) if keys else frozenset()
        most = height if height is not None else max((state.most for state in states), default=1.0)
        return marked(State(order, own, frozenset(), height, most), schema, inexact)

    return rule


def listed(texts: Iterable[str]) -> str:
    """Return texts as arguments."""
    return ", ".join(texts)


def _alias(rng: random.Random, relation: Relation, number: int, text: Text) -> tuple[str, str]:
    roll = rng.random()
    name = f"z{number}"
    if roll < 0.12:
        name = rng.choice(list(relation.schema) or ["z"])
    return name, f"({text.text}).alias({name!r})"


def outputs(
    rng: random.Random, relation: Relation, texts: Iterable[Text | None]
) -> tuple[list[str], list[str], list[str]]:
    """Return names, texts and the names of what is inexact."""
    names: list[str] = []
    written: list[str] = []
    inexact: list[str] = []
    for text in texts:
        if text is None:
            continue
        name, aliased = _alias(rng, relation, len(relation.schema) + len(names), text)
        if name in names:
            continue
        names.append(name)
        written.append(aliased)
        if text.inexact:
            inexact.append(name)
    return names, written, inexact
