"""Writes docs/gpu-coverage.md: what of Polars has a form on a GPU, from the tables of the translator.

python scripts/write_gpu_coverage.py
"""

from __future__ import annotations

from pathlib import Path

from cudf_polars.execute.gpu.translate.coverage import AGGREGATIONS, COVERAGE, NODES, Form

PAGE = Path(__file__).resolve().parents[1] / "docs" / "gpu-coverage.md"

HEAD = """# What runs on a GPU

This page is written by `scripts/write_gpu_coverage.py` from the tables of `cudf_polars.execute.gpu.translate`.

A query's plan becomes a *program* that calls primitives of libcudf. Each function of Polars that a plan may hold is
computed in one of three ways: by one *call* of a primitive, by a *composition* of several, or on the *host* by Polars.
What is on the host is so for the reason given. Calls and compositions have limits of their own (a pattern that is no
constant, a clock of another time zone, a cast that may fail); `explain` and `raise_on_fail=True` name them.

"""

FUNCTIONS_HEAD = """
## Functions

| | functions |
| --- | --- |
"""


def _names(form: Form) -> list[str]:
    return [f"`{name}`" for name, (found, _) in sorted(COVERAGE.items()) if found is form]


def page() -> str:
    """Return docs/gpu-coverage.md."""
    out = [HEAD, "## Nodes of a plan\n\n| node | |\n| --- | --- |\n"]
    out += [f"| {name} | {limits} |\n" for name, limits in NODES.items()]
    out.append("\n## Aggregations\n\n")
    out.append(", ".join(f"`{name}`" for name in sorted(AGGREGATIONS)) + ".\n")
    out.append(FUNCTIONS_HEAD)
    total = len(COVERAGE)
    for form in Form:
        names = _names(form)
        out.append(f"| {form.value} | {len(names)} of {total} |\n")
    for form in (Form.CALL, Form.COMPOSITION):
        out.append(f"\n### {form.value.capitalize()}\n\n{', '.join(_names(form))}.\n")
    out.append("\n### Host\n")
    for reason in dict.fromkeys(why for form, why in COVERAGE.values() if form is Form.HOST):
        names = [f"`{name}`" for name, (_, why) in sorted(COVERAGE.items()) if why == reason]
        out.append(f"\n{reason[0].upper()}{reason[1:]}: {', '.join(names)}.\n")
    return "".join(out)


if __name__ == "__main__":
    PAGE.write_text(page())
