"""Operation ids are (epoch, node)."""

import pytest

from cudf_polars.streaming.actor_graph.collectives.common import NODE_BITS, OpIds, next_op_ids, reserve_op_id


def test_epochs_never_repeat_and_are_never_zero():
    epochs = [next_op_ids().epoch for _ in range(5)]
    assert epochs == sorted(set(epochs))
    assert min(epochs) > 0


def test_ids_of_two_queries_are_disjoint():
    first, second = next_op_ids(), next_op_ids()
    assert first.id((1 << NODE_BITS) - 1) < second.id(0)


def test_too_many_exchanges_is_an_error():
    with pytest.raises(ValueError, match="exchanges"):
        OpIds(1).id(1 << NODE_BITS)


def test_reserving_twice_gives_two_ids():
    with reserve_op_id() as first, reserve_op_id() as second:
        assert first != second
