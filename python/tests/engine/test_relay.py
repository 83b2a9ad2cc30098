"""What a rank tells its client of an error."""

from __future__ import annotations

import pickle

from cudf_polars.engine.relay import remote_error, run_captured


def fail() -> None:
    raise KeyError("of this rank")


def test_the_traceback_of_the_rank_is_told() -> None:
    reply = pickle.loads(run_captured(fail))
    assert isinstance(reply.error, KeyError)
    assert ", in fail\n" in reply.traceback
    error = remote_error("rank 1", reply)
    assert ", in fail\n" in str(error.__cause__)
    assert error.__notes__ == ["Raised on rank 1."]
