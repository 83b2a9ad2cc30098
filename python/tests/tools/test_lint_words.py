"""scripts/lint_words.py finds identifiers that the glossary has another word for, and private phrases."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "lint_words.py"


def lint(folder: Path) -> tuple[int, list[str]]:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout.splitlines()


def test_an_identifier_is_found_and_what_to_say_instead(tmp_path: Path) -> None:
    (tmp_path / "a.hpp").write_text("#pragma once\nclass Hub;\n")
    (tmp_path / "b.pyx").write_text("def f(comm):\n    comm.convict(0)\n")
    (tmp_path / "c.py").write_text("class Spread:\n    pass\n")
    status, lines = lint(tmp_path)
    assert status == 1
    assert [line.removeprefix(f"{tmp_path}/") for line in lines] == [
        "a.hpp:2: Hub: say OperationDispatcher (docs/glossary.md)",
        "b.pyx:2: convict: say report_protocol_violation (docs/glossary.md)",
        "c.py:1: Spread: say Partitioning, or RankTotals (docs/glossary.md)",
    ]


def test_comments_texts_and_longer_words_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(
        '// A Hub.\nauto text = "Hub"; int GitHub = 0; /* Turns */ int my_hub2;\n'
    )
    (tmp_path / "b.pyx").write_text('"""A Hub."""\nx = "Hub"  # Hub\n')
    assert lint(tmp_path) == (0, [])


def test_private_phrases_are_found_in_pages_and_comments_of_cpp(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("# A page\nTables are put together.\nIt leaves word.\n")
    header = tmp_path / "include" / "a.hpp"
    header.parent.mkdir()
    header.write_text("#pragma once\nint a;  // Whoever reads it.\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "b.hpp").write_text("// It gives the block back.\n")
    (tmp_path / "src" / "c.cpp").write_text("int a;\n/* Nobody\n   cuts it. */\n")
    (tmp_path / "src" / "d.cu").write_text("char c = '\"';  // Cut off.\n")
    (tmp_path / "src" / "e.cuh").write_text("int a;  // it knows nothing of b\n")
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "f.hpp").write_text("int a;  // for somebody\n")
    status, lines = lint(tmp_path)
    assert status == 1
    assert [line.removeprefix(f"{tmp_path}/") for line in lines] == [
        "include/a.hpp:2: 'Whoever': say name the caller, the rank or the thread",
        "page.md:2: 'put together': say concatenate, join or merge",
        "page.md:3: 'leaves word': say register or report",
        "src/b.hpp:1: 'gives the block back': say release or return",
        "src/c.cpp:2: 'Nobody': say name the caller, the rank or the thread",
        "src/c.cpp:3: 'cuts': say partition, split or divide",
        "src/d.cu:1: 'Cut': say partition, split or divide",
        "src/e.cuh:1: 'knows nothing of': say is independent of",
        "tests/f.hpp:1: 'somebody': say name the caller, the rank or the thread",
    ]


def test_private_phrases_are_found_in_docstrings(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(
        'x = 1  # for whoever reads it\ndef f():\n    """Cut it.\n\n    It gives memory back."""\n'
    )
    (tmp_path / "b.pyx").write_text('"""Nobody uses it."""\n')
    status, lines = lint(tmp_path)
    assert status == 1
    assert [line.removeprefix(f"{tmp_path}/") for line in lines] == [
        "a.py:5: 'gives memory back': say release or return",
        "b.pyx:1: 'Nobody': say name the caller, the rank or the thread",
    ]


def test_names_code_and_texts_may_have_them(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("`cut`\n```python\nx.cut()\n```\nThe shortcut of `pl.cut`.\n")
    (tmp_path / "a.cpp").write_text(
        "return;  // `cut` is Stage::cut_off: `Watch::nobody`\n"
        'auto url = "file://cut", raw = R"(\n"a" // nobody\n)", mark = R"-(// cut)")-";\n'
        "auto slash = '/'; auto many = 1'000 / 1'000;\n"
    )
    (tmp_path / "b.hpp").write_text("int cut;\n")
    assert lint(tmp_path) == (0, [])
