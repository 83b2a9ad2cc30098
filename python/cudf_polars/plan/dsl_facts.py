"""What the plan views leave out of a query, found in its serialised form: Polars' DSL, as the user wrote it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cudf_polars.plan.serialized import deserialize_expr, forms

__all__ = ["DslFacts", "find_dsl_facts"]

_VALIDATIONS = {"OneToOne": "1:1", "OneToMany": "1:m", "ManyToOne": "m:1"}
_MOST_REPEATED = 8


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

    def validation_of(self, left: Sequence[str], right: Sequence[str]) -> str | None:
        """Return ``validate`` of the join of these keys; ``None`` if that cannot be told."""
        names = (*left, *right)
        if names in self.validations:
            return self.validations[names]
        # Of a query without any, also a join that the user did not write has none.
        return "m:m" if set(self.validations.values()) <= {"m:m"} else None


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
        for pairs in _as_optimized(list(zip(left, right, strict=True))):
            key = (*(a for a, _ in pairs), *(b for _, b in pairs))
            if validations.setdefault(key, how) != how:
                validations[key] = None  # the views do not tell these joins apart
    return DslFacts(
        null_on_oob=None if len(out_of_bounds) > 1 else out_of_bounds == {True},
        validations=validations,
    )


def _as_optimized(pairs: list[tuple[str, str]]) -> Iterator[Sequence[tuple[str, str]]]:
    """Give the keys of a join, and what may be left of them.

    Where a column is a key twice, Polars compares its two partners before the join, and drops a pair.
    """
    yield pairs
    lefts, rights = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    repeated = [place for place, (a, b) in enumerate(pairs) if lefts[a] > 1 or rights[b] > 1]
    # The number of subsets doubles with each repeated key. With more keys than this the join counts as not found.
    if len(repeated) <= _MOST_REPEATED:
        for count in range(1, len(repeated)):
            for dropped in itertools.combinations(repeated, count):
                yield [pair for place, pair in enumerate(pairs) if place not in dropped]


def _output_name(form: Any) -> str:
    return str(deserialize_expr(form).meta.output_name(raise_if_undetermined=False))
