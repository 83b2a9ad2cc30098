"""What holds of all tests."""

from __future__ import annotations

import pytest
from hypothesis import settings

# No test depends on speed: what takes too long is ended by pytest's own time limit.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Name parameters of bytes by their argument.

    Processes that share the tests have to give them the same names, and bytes may say when they were made, as those of
    gzip do.
    """
    return argname if isinstance(val, bytes | bytearray) else None
