"""scripts/lint_coroutines.py finds what g++ 12 miscompiles, and only that."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "lint_coroutines.py"


def lint(folder: Path, text: str) -> list[str]:
    (folder / "a.cpp").write_text(text)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder)], capture_output=True, text=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert done.returncode == (1 if lines else 0)
    return lines


@pytest.mark.parametrize(
    "text",
    [
        "co_await f({a, b});",
        "co_await channel.send(Message{1, std::move(x)});",
        "auto x = co_await AggregateAwaiter{h};",
        "co_await run([k] { return k; });",
        "co_await [k]() -> Task<int> { co_return k; }();",
        "if (co_await f(\n        g(Point{1}))) {\n}",
    ],
)
def test_offences(tmp_path: Path, text: str) -> None:
    assert len(lint(tmp_path, text)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Message m{1};\nco_await channel.send(std::move(m));",
        "while (auto m = co_await in->receive()) {\n}",
        "if (!co_await out.send(std::move(m))) { co_return; }",
        "co_await tasks[i];",
        "co_await f(values()[0], table(x)[i]);",
        '// co_await f({a});\nauto s = "co_await f({a})";',
        'auto s = R"(co_await f({a}))";',
        "Awaiter operator co_await() & noexcept { return Awaiter{handle_}; }",
        "std::size_t n = 1'000'000; co_await f(1'000);",
    ],
)
def test_code_that_is_fine(tmp_path: Path, text: str) -> None:
    assert lint(tmp_path, text) == []


def test_the_line_is_told(tmp_path: Path) -> None:
    found = lint(tmp_path, "int a;\n\nco_await f(\n    1, {2});\n")
    assert found == [
        f"{tmp_path / 'a.cpp'}:4: a braced initializer inside a co_await expression; name it first (g++ 12)"
    ]
