"""The documented interface of memory, options, statistics and the resource adaptor, name by name.

The classes below transcribe the published reference: scripts are written for it. What the package has beyond it must
not be in the way: further parameters have defaults, further enum members come after.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from enum import Enum
from pathlib import Path
from types import GetSetDescriptorType, MemberDescriptorType, ModuleType

import pytest
import rapidsmpf
from rapidsmpf.memory.scoped_memory_record import AllocType

# What a member is: methods are plain functions, the others say so.
ATTRIBUTE = property(lambda self: None)
# A default that the reference does not give, or gives as an object of its own.
SOME = object()


class MemoryType(Enum):
    DEVICE = 0
    PINNED_HOST = 1
    HOST = 2


class MemoryReservation:
    br = mem_type = size = ATTRIBUTE

    def clear(self): ...


def opaque_memory_usage(reservation): ...


class AvailableMemoryMap:
    @classmethod
    def from_options(cls, mr, options): ...


class BufferResource:
    device_mr = pinned_mr = spill_manager = statistics = ATTRIBUTE

    def __init__(
        self,
        device_mr=SOME,
        *,
        pinned_mr=None,
        memory_available=None,
        periodic_spill_check=1e-3,
        stream_pool=None,
        statistics=None,
    ): ...
    @classmethod
    def from_options(cls, mr, options): ...
    def memory_available(self, mem_type): ...
    def memory_reserved(self, mem_type): ...
    def release(self, reservation, size): ...
    def reserve(self, mem_type, size, *, allow_overbooking): ...
    def reserve_device_memory_and_spill(self, size, *, allow_overbooking): ...
    def stream_pool_size(self): ...


class LimitAvailableMemory:
    def __init__(self, mr, limit): ...
    def __call__(self, *args, **kwargs): ...


def periodic_spill_check_from_options(options): ...
def stream_pool_from_options(options): ...


class PackedData:
    @classmethod
    def from_cudf_packed_columns(cls, packed_columns, stream, br): ...
    @classmethod
    def from_host_bytes(cls, data, br): ...
    def to_host_bytes(self): ...


class AllocTypeMembers(Enum):
    PRIMARY = 0
    FALLBACK = 1
    ALL = 2


class ScopedMemoryRecord:
    def current(self, alloc_type=AllocType.ALL): ...
    def num_current_allocs(self, alloc_type=AllocType.ALL): ...
    def num_total_allocs(self, alloc_type=AllocType.ALL): ...
    def peak(self, alloc_type=AllocType.ALL): ...
    def record_allocation(self, alloc_type, nbytes): ...
    def record_deallocation(self, alloc_type, nbytes): ...
    def total(self, alloc_type=AllocType.ALL): ...


class Optional:
    def __init__(self, value): ...


class OptionalBytes:
    def __init__(self, value): ...


class Options:
    def __init__(self, options_as_strings=SOME): ...
    @staticmethod
    def deserialize(serialized_buffer): ...
    def get(self, key, *, return_type, factory): ...
    def get_or_default(self, key, *, default_value): ...
    def get_strings(self): ...
    def insert_if_absent(self, options_as_strings): ...
    def serialize(self): ...


def get_environment_variables(key_regex="RAPIDSMPF_(.*)"): ...


class MemoryRecord:
    def __init__(self, scoped, global_peak, num_calls): ...


class MemoryRecorder:
    def __init__(self, stats, mr, name): ...


class Statistics:
    enabled = memory_profiling_enabled = ATTRIBUTE

    def __init__(self, enable, *, mr=None): ...
    def add_stat(self, name, value): ...
    def clear(self): ...
    @classmethod
    def from_options(cls, mr, options): ...
    def get_memory_records(self): ...
    def get_stat(self, name): ...
    def list_stat_names(self): ...
    def memory_profiling(self, name): ...
    def report(self): ...
    def write_json(self, filepath): ...
    def write_json_string(self): ...


class RmmResourceAdaptor:
    current_allocated = fallback_mr = upstream_mr = ATTRIBUTE

    def __init__(self, upstream_mr, *, fallback_mr=None): ...
    def allocate(self, nbytes, stream=SOME): ...
    def deallocate(self, ptr, nbytes, stream=SOME): ...
    def get_main_record(self): ...
    def get_upstream(self): ...


INTERFACE = {
    "rapidsmpf.memory.buffer": {"MemoryType": MemoryType},
    "rapidsmpf.memory.memory_reservation": {
        "MemoryReservation": MemoryReservation,
        "opaque_memory_usage": opaque_memory_usage,
    },
    "rapidsmpf.memory.buffer_resource": {
        "AvailableMemoryMap": AvailableMemoryMap,
        "BufferResource": BufferResource,
        "LimitAvailableMemory": LimitAvailableMemory,
        "periodic_spill_check_from_options": periodic_spill_check_from_options,
        "stream_pool_from_options": stream_pool_from_options,
    },
    "rapidsmpf.memory.packed_data": {"PackedData": PackedData},
    "rapidsmpf.memory.scoped_memory_record": {
        "AllocType": AllocTypeMembers,
        "ScopedMemoryRecord": ScopedMemoryRecord,
    },
    "rapidsmpf.config": {
        "Optional": Optional,
        "OptionalBytes": OptionalBytes,
        "Options": Options,
        "get_environment_variables": get_environment_variables,
    },
    "rapidsmpf.statistics": {
        "MemoryRecord": MemoryRecord,
        "MemoryRecorder": MemoryRecorder,
        "Statistics": Statistics,
    },
    "rapidsmpf.rmm_resource_adaptor": {"RmmResourceAdaptor": RmmResourceAdaptor},
}

NAMES = [(module, name) for module, names in INTERFACE.items() for name in names]
MEMBERS = [
    (module, name, member)
    for module, name in NAMES
    if inspect.isclass(INTERFACE[module][name]) and not issubclass(INTERFACE[module][name], Enum)
    for member in vars(INTERFACE[module][name])
    if not member.startswith("_") or member == "__call__"
]
CONSTRUCTORS = [
    (module, name)
    for module, name in NAMES
    if inspect.isclass(INTERFACE[module][name]) and "__init__" in vars(INTERFACE[module][name])
]


def installed(module, name):
    return getattr(importlib.import_module(module), name)


def parameters_of(function, *, bound):
    """Give the parameters without the object or class that comes first."""
    parameters = list(inspect.signature(function).parameters.values())
    return parameters if bound else parameters[1:]


def differences(want, have):
    """Say where parameters differ from those of the reference, as a caller would notice."""
    found = []
    rest = list(have)
    for parameter in want:
        match = next((other for other in rest if other.name == parameter.name), None)
        if match is None:
            found.append(f"there is no parameter {parameter.name}")
            continue
        by_place = parameter.kind is not parameter.KEYWORD_ONLY
        if by_place and (rest[0] is not match or match.kind is match.KEYWORD_ONLY):
            found.append(f"{parameter.name} is at another place")
        rest.remove(match)
        if match.kind is match.POSITIONAL_ONLY:
            found.append(f"{parameter.name} cannot be given by name")
        if (parameter.default is parameter.empty) != (match.default is match.empty):
            found.append(f"{parameter.name} has a default where the other has none")
        elif parameter.default is not SOME and parameter.default != match.default:
            found.append(f"the default of {parameter.name} is {match.default!r}")
    found += [f"{other.name} has no default" for other in rest if other.default is other.empty]
    return found


def kind_of(member):
    """Say how a class's member is used."""
    for kind, types in (
        ("classmethod", classmethod),
        ("staticmethod", staticmethod),
        ("attribute", (property, GetSetDescriptorType, MemberDescriptorType)),
    ):
        if isinstance(member, types):
            return kind
    return "method" if callable(member) else "attribute"


def stub_class(module, name, monkeypatch):
    """Execute the module's stub, which is Python with the bodies left out, for a class of it."""
    path = Path(rapidsmpf.__file__).parent.parent.joinpath(*module.split(".")).with_suffix(".pyi")
    monkeypatch.setitem(sys.modules, "stub", ModuleType("stub"))
    scope = vars(sys.modules["stub"])
    exec(compile("from __future__ import annotations\n" + path.read_text(), path, "exec"), scope)
    return scope[name]


@pytest.mark.parametrize(("module", "name"), NAMES)
def test_name_is_there(module, name):
    want, have = INTERFACE[module][name], installed(module, name)
    assert inspect.isclass(want) == inspect.isclass(have)
    assert name in importlib.import_module(module).__all__


@pytest.mark.parametrize(
    ("module", "name"),
    [(module, name) for module, name in NAMES if inspect.isfunction(INTERFACE[module][name])],
)
def test_function_is_called_as_documented(module, name):
    want = parameters_of(INTERFACE[module][name], bound=True)
    assert differences(want, parameters_of(installed(module, name), bound=True)) == []


@pytest.mark.parametrize(("module", "name", "member"), MEMBERS)
def test_member_is_used_as_documented(module, name, member):
    cls = installed(module, name)
    want = inspect.getattr_static(INTERFACE[module][name], member)
    have = inspect.getattr_static(cls, member)
    assert kind_of(have) == kind_of(want)
    if kind_of(want) == "attribute":
        return
    bound = kind_of(want) != "method"
    assert (
        differences(
            parameters_of(getattr(INTERFACE[module][name], member), bound=bound),
            parameters_of(getattr(cls, member), bound=bound),
        )
        == []
    )


@pytest.mark.parametrize(("module", "name"), CONSTRUCTORS)
def test_constructor_is_declared_as_documented(module, name, monkeypatch):
    want = parameters_of(INTERFACE[module][name].__init__, bound=False)
    have = stub_class(module, name, monkeypatch)
    if have.__init__ is object.__init__:
        # A dataclass: the class itself knows.
        assert differences(want, parameters_of(installed(module, name), bound=True)) == []
    else:
        declared = parameters_of(have.__init__, bound=False)
        # A stub may write a default as `...`.
        assert differences(want, [p.replace(default=SOME) if p.default is ... else p for p in declared]) == []


def refuses_name(cls, name):
    """Whether a constructor knows no parameter of a name."""
    try:
        cls(**{name: object()})
    except TypeError as error:
        return "unexpected keyword argument" in str(error)
    except Exception:
        return False
    return False


@pytest.mark.parametrize(("module", "name"), CONSTRUCTORS)
def test_constructor_takes_its_parameters_by_name(module, name):
    cls = installed(module, name)
    for parameter in parameters_of(INTERFACE[module][name].__init__, bound=False):
        assert not refuses_name(cls, parameter.name), parameter.name


def test_a_parameter_that_is_not_there_is_noticed():
    assert refuses_name(installed("rapidsmpf.memory.buffer_resource", "BufferResource"), "no_such_parameter")


@pytest.mark.parametrize(
    ("module", "name"),
    [("rapidsmpf.memory.buffer", "MemoryType"), ("rapidsmpf.memory.scoped_memory_record", "AllocType")],
)
def test_enum_has_its_members_in_order(module, name):
    want = [member.name for member in INTERFACE[module][name]]
    have = [member.name for member in installed(module, name)]
    assert have[: len(want)] == want


@pytest.mark.parametrize(
    ("source", "finding"),
    [
        ("lambda a, *, b=1: 0", None),
        ("lambda a, *, b=1, c=2: 0", None),
        ("lambda a, b=1: 0", None),
        ("lambda x, *, b=1: 0", "no parameter a"),
        ("lambda a, *, b: 0", "b has a default"),
        ("lambda a, *, b=2: 0", "default of b is 2"),
        ("lambda *, a, b=1: 0", "a is at another place"),
        ("lambda a, /, *, b=1: 0", "cannot be given by name"),
        ("lambda a, c, *, b=1: 0", "c has no default"),
    ],
)
def test_differences_are_found(source, finding):
    want = parameters_of(lambda a, *, b=1: 0, bound=True)
    found = differences(want, parameters_of(eval(source), bound=True))
    assert found == [] if finding is None else any(finding in text for text in found)
