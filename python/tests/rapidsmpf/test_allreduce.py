"""The all-reduce: kinds of values, reductions by name and by function, errors."""

from __future__ import annotations

import array
import itertools
import math

import numpy as np
import pytest
from rapidsmpf.coll import AllReduce, barrier
from rapidsmpf.coll.allreduce import allreduce
from rapidsmpf.communicator import single
from rapidsmpf.config import Options

from support.cluster import on_ranks

WAIT = 60.0


@pytest.mark.parametrize("nranks", [1, 2, 3, 5])
def test_numbers(nranks):
    def work(comm):
        return [
            allreduce(comm, 1, comm.rank + 1, timeout=WAIT),
            allreduce(comm, 1, comm.rank + 2, "prod", timeout=WAIT),
            allreduce(comm, 1, -comm.rank, "min", timeout=WAIT),
            allreduce(comm, 1, comm.rank / 2, "max", timeout=WAIT),
        ]

    total = nranks * (nranks + 1) // 2
    expected = [total, math.factorial(nranks + 1), 1 - nranks, (nranks - 1) / 2]
    for values in on_ranks(nranks, work, seed=1, delay_probability=0.3):
        assert values == expected
        assert [type(value) for value in values] == [int, int, int, float]


INTEGERS = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *itertools.product(["sum", "prod", "min", "max"], [*INTEGERS, "f4", "f8"]),
        *itertools.product(["or"], INTEGERS),
    ],
)
def test_arrays(name, dtype):
    functions = {
        "sum": np.add,
        "prod": np.multiply,
        "min": np.minimum,
        "max": np.maximum,
        "or": np.bitwise_or,
    }
    values = [((np.arange(12) + 7 * rank) * 5 % 100).astype(dtype).reshape(3, 4) for rank in range(3)]
    with np.errstate(over="ignore"):
        expected = functions[name](functions[name](values[0], values[1]), values[2])
    for result in on_ranks(3, lambda comm: allreduce(comm, 1, values[comm.rank], name, timeout=WAIT)):
        assert result.dtype == expected.dtype
        assert result.flags.writeable
        np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("size", [0, 1, 70_001])
def test_sizes_of_arrays(size):
    # The last is cut, and reduced by all ranks.
    values = [np.random.default_rng(rank).random(size) for rank in range(3)]
    expected = (values[0] + values[1]) + values[2]
    for result in on_ranks(3, lambda comm: allreduce(comm, 1, values[comm.rank], timeout=WAIT)):
        assert result.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", ["min", "max"])
@pytest.mark.parametrize("where", [0, 1])
def test_nan_is_minimum_and_maximum(name, where):
    results = on_ranks(
        2, lambda comm: allreduce(comm, 1, math.nan if comm.rank == where else 1.0, name, timeout=WAIT)
    )
    assert all(math.isnan(result) for result in results)


def test_other_buffers():
    def work(comm):
        result = allreduce(comm, 1, array.array("i", [comm.rank, 10]), timeout=WAIT)
        scalar = allreduce(comm, 1, np.int16(comm.rank + 1), timeout=WAIT)
        return result.format, result.tolist(), type(scalar), int(scalar)

    assert on_ranks(2, work) == [("i", [1, 20], np.int16, 3)] * 2


def test_function_of_numbers_in_the_order_of_the_ranks():
    # 10 a + b is not commutative.
    def work(comm):
        return allreduce(comm, 1, comm.rank + 1, lambda a, b: 10 * a + b, timeout=WAIT)

    assert on_ranks(4, work, seed=4, delay_probability=0.3) == [1234] * 4


def test_function_of_arrays():
    # Matrix products, returned and in place.
    matrices = [np.array([[rank + 1.0, 1.0], [1.0, 0.0]]) for rank in range(3)]

    def in_place(a, b):
        a[...] = a @ b

    expected = matrices[0] @ matrices[1] @ matrices[2]
    for function in (np.matmul, in_place):
        results = on_ranks(
            3, lambda comm, f=function: allreduce(comm, 1, matrices[comm.rank], f, timeout=WAIT)
        )
        for result in results:
            np.testing.assert_array_equal(result, expected)


def test_function_that_raises():
    class Refused(Exception):
        pass

    def refuse(a, b):
        raise Refused("that is too much")

    def work(comm):
        # Rank 0 reduces.
        if comm.rank == 0:
            with pytest.raises(Refused, match="that is too much"):
                allreduce(comm, 1, comm.rank, refuse, timeout=WAIT)
        else:
            text = r"abandoned allreduce 1: a Python function raised Refused: that is too much"
            with pytest.raises(RuntimeError, match=text):
                allreduce(comm, 1, comm.rank, refuse, timeout=WAIT)
        return allreduce(comm, 1, 1, timeout=WAIT)

    assert on_ranks(3, work) == [3, 3, 3]


def test_function_that_returns_another_shape():
    def work(comm):
        with pytest.raises((ValueError, RuntimeError), match="shape"):
            allreduce(comm, 1, np.zeros(3), lambda a, b: np.zeros(4), timeout=WAIT)

    on_ranks(2, work)


def test_id_is_free_once_the_result_was_taken():
    def work(comm):
        reduces = []
        for turn in range(5):
            reduces.append(AllReduce(comm, 1, turn))
            assert reduces[-1].wait_and_extract(timeout=WAIT) == 2 * turn
            with pytest.raises(RuntimeError, match="has been taken"):
                reduces[-1].wait_and_extract(timeout=WAIT)

    on_ranks(2, work)


def test_timeout_names_the_ranks_that_are_missing():
    def work(comm):
        if comm.rank == 1:
            barrier(comm, 2, timeout=WAIT)
        reduce = AllReduce(comm, 1, 5)
        if comm.rank == 0:
            with pytest.raises(TimeoutError, match="rank 1"):
                reduce.wait_and_extract(timeout=0.01)
            barrier(comm, 2, timeout=WAIT)
        result = reduce.wait_and_extract(timeout=WAIT)
        return result

    assert on_ranks(2, work) == [10, 10]


def test_sizes_that_differ():
    def work(comm):
        with pytest.raises((ValueError, RuntimeError), match="rank 1 16 bytes"):
            allreduce(comm, 1, np.zeros(comm.rank + 1), timeout=WAIT)

    on_ranks(2, work)


def test_misuse():
    comm = single.new_communicator(Options())
    for value in ("text", None, True, np.array([object()])):
        with pytest.raises(TypeError):
            AllReduce(comm, 1, value)
    with pytest.raises(OverflowError):
        AllReduce(comm, 1, 2**63)
    with pytest.raises(ValueError, match='no reduction of these elements is called "or"'):
        allreduce(comm, 1, 1.5, "or")
    with pytest.raises(ValueError, match="median"):
        AllReduce(comm, 1, 1, "median")
    with pytest.raises(ValueError, match="Zd"):
        AllReduce(comm, 1, np.zeros(1, "c16"))
    with pytest.raises(TypeError, match="a name or a function"):
        AllReduce(comm, 1, 1, 5)
    with pytest.raises(ValueError, match="operation id -1"):
        AllReduce(comm, -1, 1)
    first = AllReduce(comm, 1, 1)
    with pytest.raises(ValueError, match="in use"):
        AllReduce(comm, 1, 1)
    assert first.comm is comm
    assert first.wait_and_extract(timeout=WAIT) == 1
