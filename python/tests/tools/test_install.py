"""scripts/install.py tells uv what pip is configured for, and leaves to pip what uv cannot do."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "install.py"


@pytest.fixture
def install() -> Any:
    spec = importlib.util.spec_from_file_location("install", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("configuration", "told"),
    [
        ("", {}),
        ("global.timeout='60'\nlist.format='columns'", {}),
        ("global.index-url='https://a/simple'", {"UV_DEFAULT_INDEX": "https://a/simple"}),
        # The strongest come last, whatever the order of the lines.
        (":env:.index-url='https://b'\nglobal.index-url='https://a'", {"UV_DEFAULT_INDEX": "https://b"}),
        ("install.index-url='https://b'\nglobal.index-url='https://a'", {"UV_DEFAULT_INDEX": "https://b"}),
        (
            "global.extra-index-url='\\nhttps://a\\nhttps://b'",
            {"UV_INDEX": "https://a https://b", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        (":env:.find-links='/a /b'", {"UV_FIND_LINKS": "/a,/b"}),
        (":env:.cert='/etc/a.crt'", {"SSL_CERT_FILE": "/etc/a.crt"}),
        ("global.require-hashes='true'", None),
        (":env:.proxy='http://a'", None),
    ],
)
def test_uv_is_told_what_pip_is_configured_for(
    install: Any, configuration: str, told: dict[str, str] | None
) -> None:
    assert install.environment_of_uv(configuration) == told


@pytest.mark.parametrize(
    ("configuration", "failing", "called"),
    [
        ("", (), ["config", "uv", "uv -r"]),
        ("global.require-hashes='1'", (), ["config", "pip -r"]),
        ("", ("uv",), ["config", "uv", "pip -r"]),
        ("", ("uv -r",), ["config", "uv", "uv -r", "pip -r"]),
        ("", ("config",), ["config", "pip -r"]),
    ],
)
@pytest.mark.parametrize("status", [0, 3])
def test_pip_installs_what_uv_cannot(
    install: Any,
    monkeypatch: pytest.MonkeyPatch,
    configuration: str,
    failing: tuple[str, ...],
    called: list[str],
    status: int,
) -> None:
    calls = []

    def run(command: list[str], **how: Any) -> subprocess.CompletedProcess[str]:
        if command[-2:] == ["config", "list"]:
            call = "config"
        elif command[-1] == "uv":
            call = "uv"
        else:
            assert command[-2:] == ["-r", "needs.txt"]
            call = f"{command[2]} -r"
        calls.append(call)
        end = status if call == "pip -r" else int(call in failing)
        return subprocess.CompletedProcess(command, end, configuration, "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr("sys.argv", ["install.py", "needs.txt"])
    assert install.main() == (status if called[-1] == "pip -r" else 0)
    assert calls == called
