"""Writes the pages of docs/ that are tables of the sources: options.md and statistics.md.

python scripts/write_pages.py
"""

from __future__ import annotations

from pathlib import Path

from rapidsmpf.config import OptionInfo, registered_options
from rapidsmpf.statistics import StatisticInfo, registered_statistics

from cudf_polars.engine.options import StreamingOptions

DOCS = Path(__file__).resolve().parents[1] / "docs"

OPTIONS_HEAD = """# Options

This page is written by `scripts/write_pages.py` from the tables of the sources.

An option that does not exist raises `TypeError`, and so does a value of the wrong type; a value that cannot be used
raises `ValueError`. The message names the option and where it was set: an argument, or an environment variable.

## Of the engines

The fields of `cudf_polars.StreamingOptions`, for `SPMDEngine.from_options(StreamingOptions(...))` and the other engines
likewise. An engine's constructor takes the same by group: `SPMDEngine(rapidsmpf_options={...}, executor_options={...},
engine_options={...})`; there `rapidsmpf_options` may hold all options [of the library](#of-the-library). What is given
explicitly goes before the environment variable, that before the default. On the workers of Dask and Ray, options of the
group rapidsmpf that neither the script nor its environment sets come from the worker's own environment.

Sizes are numbers of bytes or text such as `"64 KiB"`, durations are seconds or text such as `"100ms"`. Where *off* is a
value, `False` means the same. Defaults are those of the library, except for `num_streaming_threads`.

"""

WITHOUT_EFFECT_HEAD = """
### Without effect

These are accepted so that scripts run unchanged. They change nothing in this version, and setting one to another value
than its default warns once (`cudf_polars.OptionWithoutEffectWarning`).

"""

LIBRARY_HEAD = """
## Of the library

The keys of `rapidsmpf.config.Options`, which the engines pass on (`rapidsmpf_options=`). A program of your own reads
their environment variables with `Options(get_environment_variables())`. Sizes are written as `512`, `64 KiB` or
`1.5 GB`, durations as `100ms`, `2 s` or `1.5` (seconds). Where *off* is a value, so are `false`, `no`, `disable` and
`disabled`. The engines check that a file can be made in `spill_directory` when they start.

"""

LIBRARY_TABLE = """| key | value | default | environment variable | meaning |
| --- | --- | --- | --- | --- |
"""

STATISTICS_HEAD = """# Statistics

What the library records in `rapidsmpf.statistics.Statistics`, when they are enabled (option `statistics`). This page is
written by `scripts/write_pages.py` from the table `cpp/include/rapidsmpf/core/statistic_names.hpp`.

Each statistic has a count of what was added, its value and the largest that was added. The value is the sum; of a
*peak* it is the largest. Merged over ranks, counts and sums are added, and the largest peak stays. `report()` prints
bytes whose time is recorded too with their bandwidth. On a machine without a GPU, *device* memory is this process's RAM
budget.
"""


def _library_row(info: OptionInfo) -> str:
    value = ", ".join(f"`{word}`" for word in info.words) or info.type
    if info.can_be_off:
        value += ", or off"
    default = f"`{info.default}`" if info.default else ""
    return f"| `{info.key}` | {value} | {default} | `RAPIDSMPF_{info.key.upper()}` | {info.meaning} |\n"


def options_page() -> str:
    """Return docs/options.md."""
    library = registered_options()
    effective = "".join(_library_row(info) for info in library if info.effective)
    others = "".join(_library_row(info) for info in library if not info.effective)
    return (
        OPTIONS_HEAD
        + StreamingOptions.to_markdown(effective=True)
        + WITHOUT_EFFECT_HEAD
        + StreamingOptions.to_markdown(effective=False)
        + LIBRARY_HEAD
        + LIBRARY_TABLE
        + effective
        + "\n### Keys without effect\n\nAs above: accepted, and without effect in this version.\n\n"
        + LIBRARY_TABLE
        + others
    )


def statistics_page() -> str:
    """Return docs/statistics.md."""
    by_place: dict[str, list[StatisticInfo]] = {}
    for info in registered_statistics():
        by_place.setdefault(info.recorded, []).append(info)
    text = STATISTICS_HEAD
    for recorded, group in by_place.items():
        text += (
            f"\n## {recorded[0].upper()}{recorded[1:]}\n\n| name | unit | meaning |\n| --- | --- | --- |\n"
        )
        for info in group:
            unit = f"{info.unit}, peak" if info.kind == "peak" else info.unit or "count"
            text += f"| `{info.name}` | {unit} | {info.meaning} |\n"
    return text


PAGES = {DOCS / "options.md": options_page, DOCS / "statistics.md": statistics_page}

if __name__ == "__main__":
    for path, text in PAGES.items():
        path.write_text(text())
