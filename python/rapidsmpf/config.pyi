from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")

@dataclass(frozen=True)
class OptionInfo:
    key: str
    type: str
    default: str
    can_be_off: bool
    effective: bool
    words: tuple[str, ...]
    meaning: str

def registered_options() -> list[OptionInfo]: ...

class Optional:
    value: Any
    def __init__(self, value: Any) -> None: ...

class OptionalBytes(Optional):
    value: int | None
    def __init__(self, value: str | int) -> None: ...

class Options:
    def __init__(self, options_as_strings: Mapping[str, str] | None = None) -> None: ...
    def insert_if_absent(self, options_as_strings: dict[str, str]) -> int: ...
    def get(self, key: str, *, return_type: type[_T], factory: Callable[[str], _T]) -> _T: ...
    def get_or_default(self, key: str, *, default_value: _T) -> _T: ...
    def get_strings(self) -> dict[str, str]: ...
    def serialize(self) -> bytes: ...
    @staticmethod
    def deserialize(serialized_buffer: bytes) -> Options: ...

def get_environment_variables(key_regex: str = "RAPIDSMPF_(.*)") -> dict[str, str]: ...
