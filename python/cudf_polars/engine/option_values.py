"""Values of engine options: what an option can have, how a text is read, and how a value is checked.

:mod:`cudf_polars.engine.options` has the table of the options. Every function here takes ``where``, which says in
errors where a value comes from.
"""

from __future__ import annotations

import dataclasses
import json
import numbers
import os
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Literal, Protocol, get_args, get_origin

from rapidsmpf import config
from rapidsmpf.given_options import checked_text, unknown_option
from rapidsmpf.utils.string import parse_boolean

from cudf_polars.engine.hardware_binding import HardwareBindingPolicy

__all__ = ["UNSPECIFIED", "CheckDict", "LibraryValues", "OwnValues", "Unspecified", "Values"]


class Unspecified:
    """The type of :data:`UNSPECIFIED`."""

    _instance: ClassVar[Unspecified | None] = None

    def __new__(cls) -> Unspecified:
        """Return the one instance."""
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNSPECIFIED"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "UNSPECIFIED"


UNSPECIFIED: Final = Unspecified()
"""Marks an option that was not given: the environment variable or the built-in default applies."""


CheckDict = Callable[[str, Mapping[str, Any], str], dict[str, Any]]


class Values(Protocol):
    """The values that one option can have."""

    @property
    def words(self) -> str:
        """Return what a value is, in words."""

    def parse(self, text: str, where: str) -> Any:
        """Return the value that a text of the environment or the command line means.

        Raises
        ------
        ValueError
            If the text means no value of the option.
        """

    def check(self, value: Any, where: str) -> Any:
        """Return a value if the option can have it; a number or a policy in its plain form.

        Raises
        ------
        TypeError
            If the value has the wrong type.
        ValueError
            If the value cannot be used.
        """


@dataclasses.dataclass(frozen=True)
class OwnValues:
    """Values of an option that Python reads: those of the type of its field.

    Attributes
    ----------
    name
        Of the option.
    alternatives
        The members of the field's type, without :class:`Unspecified`.
    least
        The smallest integer, if any is too small.
    check_dict
        Returns a dict if the option can have it, by name, dict and where it comes from; None: any.
    """

    name: str
    alternatives: tuple[Any, ...]
    least: int | None
    check_dict: CheckDict | None = None

    @classmethod
    def of_field(
        cls, name: str, hint: Any, least: int | None, check_dict: CheckDict | None = None
    ) -> OwnValues:
        """Return the values of a field with a type hint."""
        members = get_args(hint) if get_origin(hint) in (typing.Union, types.UnionType) else (hint,)
        kinds = tuple(member for member in members if member is not Unspecified)
        return cls(name, kinds, least, check_dict)

    @property
    def words(self) -> str:
        """Return what a value is, in words."""
        return " or ".join(
            "one of " + ", ".join(get_args(kind))
            if get_origin(kind) is Literal
            else "None"
            if kind is type(None)
            else getattr(kind, "__name__", str(kind))
            for kind in self.alternatives
        )

    def parse(self, text: str, where: str) -> Any:
        """Return the value that a text means."""
        if type(None) in self.alternatives and text.strip().lower() in ("none", ""):
            return None
        for kind in self.alternatives:
            if get_origin(kind) is Literal:
                return text  # its words are checked as in a value
            if kind is int:
                try:
                    return int(text)
                except ValueError:
                    if len(self.alternatives) == 1:
                        raise ValueError(
                            f"option {self.name}: cannot read {text!r} as an integer ({where})"
                        ) from None
            if get_origin(kind) is dict and text.lstrip().startswith("{"):
                try:
                    return json.loads(text)
                except ValueError as error:
                    raise ValueError(f"option {self.name}: not valid JSON: {error} ({where})") from error
            if kind is bool:
                try:
                    return parse_boolean(text)
                except ValueError as error:
                    raise ValueError(f"option {self.name}: {error} ({where})") from None
        if str in self.alternatives:
            return text
        raise ValueError(f"option {self.name}: cannot read {text!r} ({where})")

    def check(self, value: Any, where: str) -> Any:
        """Return a value if the option can have it."""
        for kind in self.alternatives:
            if kind is HardwareBindingPolicy and isinstance(value, Mapping):
                return _policy(self.name, value, where)
            if kind is Any or kind is object:
                return value
            origin = get_origin(kind)
            if origin is Literal:
                if value in get_args(kind):
                    return value
                if isinstance(value, str):
                    raise ValueError(
                        f"option {self.name}: {value!r} is not one of {', '.join(get_args(kind))} ({where})"
                    )
            elif kind is int:
                if isinstance(value, numbers.Integral) and not isinstance(value, bool):
                    if self.least is not None and value < self.least:
                        raise ValueError(f"option {self.name}: {value} is less than {self.least} ({where})")
                    return int(value)
            elif isinstance(value, origin or kind):
                if self.check_dict is not None and isinstance(value, Mapping):
                    return self.check_dict(self.name, value, where)
                return value
        raise TypeError(f"option {self.name} must be {self.words}, not {type(value).__name__} ({where})")


_TYPES: Final[dict[str, tuple[tuple[type, ...], str]]] = {
    "boolean": ((), "bool"),
    "count": ((numbers.Integral,), "int"),
    "bytes": ((numbers.Real, str), "int or str"),
    "share": ((numbers.Real, str), "int or str"),
    "fraction": ((numbers.Real, str), "float or str"),
    "duration": ((numbers.Real, str), "float or str"),
    "text": ((str, os.PathLike), "str"),
}
"""By the kind of an option of the library, of what type a value is, bool aside; and how to call that."""


@dataclasses.dataclass(frozen=True)
class LibraryValues:
    """Values of an option of the C++ library, as its own table has them."""

    info: config.OptionInfo

    @property
    def words(self) -> str:
        """Return what a value is, in words."""
        kinds = ", ".join(self.info.words) or self.info.type
        return f"{kinds}, or off" if self.info.can_be_off else kinds

    def of_text(self, text: str) -> Any:
        """Return a text of the library as the value of a field: a number, true or false where it is one."""
        if self.info.kind == "boolean":
            return parse_boolean(text)
        if self.info.kind == "count":
            return int(text)
        return int(text) if self.info.kind in ("bytes", "share") and text.strip().isdecimal() else text

    def parse(self, text: str, where: str) -> Any:
        """Return the value that a text means."""
        return self.of_text(checked_text(self.info.key, text, where))

    def check(self, value: Any, where: str) -> Any:
        """Return a value if the option can have it."""
        info = self.info
        allowed, words = _TYPES[info.kind]
        if isinstance(value, bool):
            fits = info.kind == "boolean" or (info.can_be_off and not value)
        else:
            fits = isinstance(value, allowed)
        if not fits:
            raise TypeError(f"option {info.key} must be {words}, not {type(value).__name__} ({where})")
        checked_text(info.key, value, where)
        if isinstance(value, numbers.Integral) and not isinstance(value, bool):
            return int(value)
        return os.fspath(value) if isinstance(value, os.PathLike) else value


def _policy(name: str, values: Mapping[str, Any], where: str) -> HardwareBindingPolicy:
    known = [field.name for field in dataclasses.fields(HardwareBindingPolicy)]
    for key, value in values.items():
        if key not in known:
            raise unknown_option(key, f"in {name}, {where}", known)
        if not isinstance(value, bool):
            raise TypeError(f"option {name}: {key} must be bool, not {type(value).__name__} ({where})")
    return HardwareBindingPolicy(**values)
