"""Slices of frames come to the GPU as they are, wherever in a byte or a word their bits begin."""

from __future__ import annotations

import random

import polars as pl
import pytest
from differential.devices import open_device
from polars.testing import assert_frame_equal

from support.devices import needs_gpu

pytestmark = needs_gpu

LENGTHS = (1, 7, 25, 26, 32, 57, 64, 505, 506, 511, 512, 1024)


def _frame(rows: int) -> pl.DataFrame:
    rng = random.Random(rows)

    def some(make: object) -> list[object]:
        assert callable(make)
        return [None if rng.random() < 0.2 else make() for _ in range(rows)]

    flags = [rng.random() < 0.5 for _ in range(rows)]
    return pl.DataFrame(
        {
            "flag": flags,
            "maybe": some(lambda: rng.random() < 0.5),
            "number": some(lambda: rng.randrange(1000)),
            "text": some(lambda: "x" * rng.randrange(5)),
            "flags": some(lambda: [rng.choice([True, False, None]) for _ in range(rng.randrange(4))]),
        },
        schema={
            "flag": pl.Boolean,
            "maybe": pl.Boolean,
            "number": pl.Int64,
            "text": pl.String,
            "flags": pl.List(pl.Boolean),
        },
    )


@pytest.mark.parametrize("length", LENGTHS)
def test_slices_of_frames(length: int) -> None:
    device = open_device("gpu")
    assert device is not None
    for offset in (0, 1, 3, 7, 8, 28, 31, 33):
        part = _frame(offset + length + 5)[offset : offset + length]
        query = part.lazy().filter(pl.col("flag") | pl.col("flag").not_())
        device.take_host_steps()
        assert_frame_equal(device.collect(query, pl.QueryOptFlags()), part)
