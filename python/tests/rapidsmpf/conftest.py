"""Fixtures of the tests of rapidsmpf."""

from __future__ import annotations

import pytest
from rapidsmpf.memory.buffer_resource import BufferResource


@pytest.fixture
def br() -> BufferResource:
    """Memory without a limit."""
    return BufferResource()
