"""What holds of all tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import settings

# No test depends on speed: what takes too long is ended by pytest's own time limit.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def _no_query_is_left_running() -> Iterator[None]:
    """A query whose rows nobody reads any more has to end by itself, not when Python collects its cycles."""
    yield
    deadline = time.monotonic() + 20
    while left := [each for each in threading.enumerate() if each.name == "riverrun-fragment"]:
        assert time.monotonic() < deadline, f"{len(left)} queries still run"
        time.sleep(0.005)


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name parameters of bytes by their argument.

    Processes that share the tests have to give them the same names, and bytes may say when they were made, as those of
    gzip do.
    """
    return argname if isinstance(val, bytes | bytearray) else None
