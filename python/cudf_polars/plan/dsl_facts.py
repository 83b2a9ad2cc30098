"""What the plan views leave out of a query, found in its serialised form: Polars' DSL, as the user wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cudf_polars.plan.serialized import deserialize_expr, forms

__all__ = ["DslFacts", "find_dsl_facts"]

_VALIDATIONS = {"OneToOne": "1:1", "OneToMany": "1:m", "ManyToOne": "m:1"}


@dataclass(frozen=True, slots=True)
class DslFacts:
    """What the views leave out of a query.

    Attributes
    ----------
    null_on_oob
        Value of ``null_on_oob`` of every gather; ``None`` when they differ or could not be found out.
    validations
        Value of ``validate`` of joins by the names of their keys, left ones first; ``None`` where it differs among
        joins of the same keys.
    notes
        What could not be found out, in words.
    """

    null_on_oob: bool | None
    validations: Mapping[tuple[str, ...], str | None]
    notes: tuple[str, ...] = ()


def find_dsl_facts(form: Any) -> DslFacts:
    """Return the facts of a query's JSON form."""
    out_of_bounds = {bool(g.get("null_on_oob")) for g in forms(form, "Gather") if "idx" in g}
    validations: dict[tuple[str, ...], str | None] = {}
    for join in forms(form, "Join"):
        if "Equi" not in join["condition"]:
            continue
        equi = join["condition"]["Equi"]
        left, right = ([_output_name(e) for e in equi[side]] for side in ("left_on", "right_on"))
        how = _VALIDATIONS.get(join["options"]["args"]["validation"], "m:m")
        key = (*left, *right)
        if validations.setdefault(key, how) != how:
            validations[key] = None  # the views do not tell these joins apart
    return DslFacts(
        null_on_oob=None if len(out_of_bounds) > 1 else out_of_bounds == {True},
        validations=validations,
    )


def _output_name(form: Any) -> str:
    return str(deserialize_expr(form).meta.output_name(raise_if_undetermined=False))
