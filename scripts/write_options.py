"""Writes docs/options.md from the table of options.

python scripts/write_options.py
"""

from __future__ import annotations

from pathlib import Path

from cudf_polars.engine.options import StreamingOptions

PAGE = Path(__file__).resolve().parents[1] / "docs" / "options.md"

HEAD = """# Options

The fields of `cudf_polars.engine.options.StreamingOptions`. What is given explicitly goes before the
environment variable, that before the default. This page is written by `scripts/write_options.py`.

"""


def text() -> str:
    """Return the page."""
    return HEAD + StreamingOptions.to_markdown()


if __name__ == "__main__":
    PAGE.write_text(text())
