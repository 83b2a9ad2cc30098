"""The ranks of a query decide together where text files are cut."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from cudf_polars.lower.byte_files import FileUnreadableError
from cudf_polars.lower.scans import is_short
from cudf_polars.lower.text_cuts import (
    TextCuts,
    TextCutsOf,
    TextKey,
    TextLook,
    decide_cuts,
    find_cut,
    is_cuttable,
    look_at_text,
    nominal_cuts,
    text_key,
)
from cudf_polars.plan.dag import Plan
from cudf_polars.plan.nodes import Scan

__all__ = ["agree_on_text_cuts"]


def agree_on_text_cuts(
    plan: Plan, allgather: Callable[[bytes], list[bytes]], rank: int, nranks: int
) -> TextCutsOf:
    """Return where the text files of a plan are cut; all ranks call this for the same plan."""
    keys = list(
        dict.fromkeys(
            text_key(node)
            for node in plan.nodes
            if isinstance(node, Scan) and is_cuttable(node) and not is_short(node)
        )
    )
    known: dict[TextKey, TextCuts] = {}
    if keys and nranks > 1:
        mine = json.dumps([asdict(look_at_text(key, rank, nranks)) for key in keys]).encode()
        answers = [json.loads(value) for value in allgather(mine)]
        looks = [[TextLook(**each[number]) for each in answers] for number in range(len(keys))]
        reasons = [decide_cuts(look, key[3]) for key, look in zip(keys, looks, strict=True)]
        cuts = json.dumps(
            [
                None if reason else _cut(key, look, rank)
                for key, look, reason in zip(keys, looks, reasons, strict=True)
            ]
        ).encode()
        starts = [json.loads(value) for value in allgather(cuts)]
        for number, (key, look, reason) in enumerate(zip(keys, looks, reasons, strict=True)):
            bounds = [each[number] for each in starts]
            if not reason and None in bounds:
                reason = "it was there a moment ago, and cannot be read"
            known[key] = TextCuts(reason=reason) if reason else TextCuts((*bounds, look[0].size))

    def cuts_of(scan: Scan) -> TextCuts:
        return known.get(text_key(scan)) or nominal_cuts(scan, 1)

    return cuts_of


def _cut(key: TextKey, looks: list[TextLook], rank: int) -> int | None:
    try:
        return find_cut(key, looks, rank)
    except FileUnreadableError:
        return None
