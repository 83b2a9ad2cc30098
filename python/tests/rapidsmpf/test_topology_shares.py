"""The shares of this machine's cores."""

from __future__ import annotations

import os

import pytest
from rapidsmpf.topology import plan_shares


@pytest.mark.parametrize("count", [1, 2, 3])
def test_shares_are_of_the_usable_cpus(count):
    usable = os.sched_getaffinity(0)
    shares = [set(share.cpus) for share in plan_shares(count)]
    assert len(shares) == count
    assert all(share and share <= usable for share in shares)
    if count == 1:
        assert shares[0] == usable
    if count <= len(usable) and all(len(share) > 1 for share in shares):
        assert len(set.union(*shares)) == sum(map(len, shares))


def test_there_is_at_least_one():
    with pytest.raises(ValueError, match="at least 1"):
        plan_shares(0)
