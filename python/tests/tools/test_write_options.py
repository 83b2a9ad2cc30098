"""docs/options.md is what the table of options says."""

from __future__ import annotations

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_the_page_is_up_to_date() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "write_options.py"))
    assert script["PAGE"].read_text() == script["text"](), "run: python scripts/write_options.py"
