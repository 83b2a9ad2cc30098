"""The exceptions of the C++ library."""

from __future__ import annotations

import pickle

import pytest
from rapidsmpf.error import (
    BadAlloc,
    FormatError,
    OptionTypeError,
    OutOfMemory,
    RankFailedError,
    ReservationError,
    SpillError,
)


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (BadAlloc, MemoryError),
        (OutOfMemory, BadAlloc),
        (ReservationError, BadAlloc),
        (FormatError, ValueError),
        (OptionTypeError, TypeError),
        (OptionTypeError, ValueError),
        (RankFailedError, RuntimeError),
        (SpillError, RuntimeError),
    ],
)
def test_hierarchy(error, base):
    assert issubclass(error, base)


def test_rank_failed_error_says_who_where_and_why():
    error = RankFailedError(2, "node7", 1234, "killed")
    assert str(error) == "rank 2 (pid 1234 on node7) failed: killed"
    assert (error.rank, error.host, error.pid, error.reason) == (2, "node7", 1234, "killed")


def test_rank_failed_error_without_a_place():
    assert str(RankFailedError(0, "", 0, "gone")) == "rank 0 failed: gone"


def test_rank_failed_error_travels():
    error = pickle.loads(pickle.dumps(RankFailedError(2, "node7", 1234, "killed")))
    assert (error.rank, error.host, error.pid, error.reason) == (2, "node7", 1234, "killed")
