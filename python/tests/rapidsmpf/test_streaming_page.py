"""The examples of docs/streaming.md, one after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "streaming.md"
TEXT = PAGE.read_text()
SECTIONS = {
    section.splitlines()[0]: "\n".join(re.findall(r"```python\n(.*?)```", section, re.DOTALL))
    for section in TEXT.split("\n## ")
}
BEGINNING = SECTIONS.pop("# Networks of actors")


def test_every_block_has_an_example():
    assert [name for name, code in SECTIONS.items() if not code] == ["The model"]


@pytest.mark.parametrize("section", [name for name, code in SECTIONS.items() if code])
def test_example(section):
    names: dict[str, object] = {}
    exec(compile(BEGINNING, str(PAGE), "exec"), names)
    exec(compile(SECTIONS[section], f"{PAGE}: {section}", "exec"), names)
    names["ctx"].shutdown()
