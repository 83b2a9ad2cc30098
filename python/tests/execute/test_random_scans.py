"""Files of random contents and dialects, scanned with random options by 1 to 3 ranks: what Polars reads of them.

Another one: ``RANDOM_SCANS=<first>:<last> pytest python/tests/execute/test_random_scans.py``.
"""

from __future__ import annotations

import os
import random
import warnings
from pathlib import Path

import polars as pl
import pytest
from execute.compare import ORDINARY, PARTITIONED, TINY, compare_answers, run
from execute.random_scans import queries, random_scan

BATCH = 50
ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError)
FIRST, LAST = (int(number) for number in os.environ.get("RANDOM_SCANS", "0:400").split(":"))


@pytest.mark.timeout(120)
@pytest.mark.parametrize("first", range(FIRST, LAST, BATCH))
@pytest.mark.filterwarnings("ignore")
def test_random_scans(first: int, tmp_path: Path) -> None:
    compared = sum(check(seed, tmp_path / str(seed)) for seed in range(first, min(first + BATCH, LAST)))
    assert compared > 2 * min(BATCH, LAST - first)


def check(seed: int, folder: Path) -> int:
    """Compare queries of one scan; returns how many."""
    rng = random.Random(seed)
    case = random_scan(rng, folder)
    try:
        lf = case.scan()
        lf.collect(engine="streaming")
        chosen = list(queries(rng, lf))
    except (*ERRORS, ValueError, TypeError):
        return 0  # Polars does not read these files so; what it then answers to some queries does not matter
    compared = 0
    for name, query, ordered in chosen:
        nranks, options = rng.choice([1, 2, 2, 2, 3, 3]), rng.choice([ORDINARY, ORDINARY, TINY, PARTITIONED])
        try:
            expected = query.collect(engine="streaming")
        except ERRORS:
            continue
        try:
            actual, _ = run(query, nranks, options)
            compare_answers(actual, expected, ordered=ordered)
        except BaseException:
            print(f"seed {seed}: {name} on {nranks} ranks, {options}\n{case}")
            raise
        compared += 1
    return compared


def test_a_seed_stands_for_one_case(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = [random_scan(random.Random(3), tmp_path / name) for name in ("one", "two")]
    assert cases[0].kind == cases[1].kind
    assert cases[0].options.keys() == cases[1].options.keys()
    one, two = (sorted(str(path) for path in (tmp_path / name).rglob("*.*")) for name in ("one", "two"))
    assert [path.replace("/one/", "/two/") for path in one] == two
