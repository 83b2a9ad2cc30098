"""How compiled classes are called, as ``help()`` shows it."""

from __future__ import annotations

import inspect
import pydoc

import pytest
from rapidsmpf.config import Options
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.statistics import Statistics
from rapidsmpf.streaming.core.context import Context


@pytest.mark.parametrize("made", [BufferResource, Context, Options, Shuffler, Statistics])
def test_classes_have_the_signatures_of_their_stubs(made):
    assert list(inspect.signature(made).parameters)
    assert f"class {made.__name__}" in pydoc.plain(pydoc.render_doc(made))


def test_parameters_are_as_the_stub_has_them():
    found = inspect.signature(Shuffler).parameters
    assert list(found) == ["comm", "op_id", "total_num_partitions", "br", "partition_assignment", "options"]
    assert found["options"].kind is inspect.Parameter.KEYWORD_ONLY
    assert repr(found["options"].default) == "None"
    assert found["br"].default is inspect.Parameter.empty
    assert "Shuffler(comm: 'Communicator', op_id: 'int'" in pydoc.plain(pydoc.render_doc(Shuffler))


def test_subclasses_say_themselves_how_they_are_called():
    class Same(Options):
        pass

    class Other(Options):
        def __init__(self, text):
            super().__init__({"log": text})

    assert list(inspect.signature(Same).parameters) == ["options_as_strings"]
    assert list(inspect.signature(Other).parameters) == ["text"]
