"""What holds of all tests."""

from __future__ import annotations

from hypothesis import settings

# No test depends on speed: what takes too long is ended by pytest's own time limit.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
