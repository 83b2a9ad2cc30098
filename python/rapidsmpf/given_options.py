"""Options as users give them: in a mapping, or in the environment. They are checked before anything runs by them.

An error names the option and where it came from. ``docs/options.md`` lists the options.
"""

from __future__ import annotations

import functools
import numbers
import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rapidsmpf import bootstrap
from rapidsmpf.config import OptionInfo, Options, check_option, get_environment_variables, registered_options

__all__ = [
    "OptionWithoutEffectWarning",
    "checked_text",
    "environment_texts",
    "given_texts",
    "known_options",
    "text_of",
    "unknown_option",
    "variable_of",
    "warn_of_those_without_effect",
    "warn_without_effect",
]

_PREFIX = "RAPIDSMPF_"


class OptionWithoutEffectWarning(UserWarning):
    """An option was set that is accepted, so that scripts run unchanged, but changes nothing in this version."""


@functools.cache
def known_options() -> Mapping[str, OptionInfo]:
    """Return the options of the library, by name."""
    return {info.key: info for info in registered_options()}


def variable_of(key: str) -> str:
    """Return the environment variable of an option of the library."""
    return _PREFIX + key.upper()


def unknown_option(key: str, where: str, known: Iterable[str]) -> TypeError:
    """Return the error for an option that does not exist; it suggests one that is written almost alike.

    Parameters
    ----------
    key
        What was given.
    where
        Where, such as "given in rapidsmpf_options".
    known
        The options that could have been meant.
    """
    known = sorted(known)
    meant = _meant(key, known, 0.6)
    advice = (
        f"did you mean {meant}?" if meant else f"known options: {', '.join(known)}; see also docs/options.md"
    )
    return TypeError(f"unknown option {key!r} ({where}): {advice}")


def _meant(key: str, known: Iterable[str], likeness: float) -> str | None:
    import difflib  # which no process needs whose options are all known

    return next(iter(difflib.get_close_matches(key, list(known), n=1, cutoff=likeness)), None)


def text_of(key: str, value: Any, where: str) -> str:
    """Return a value as the text that the library reads.

    Parameters
    ----------
    key
        The option.
    value
        Text, a number, true or false, or a path.
    where
        Where it was given, for errors.

    Raises
    ------
    TypeError
        If it is something else.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        number = float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    raise TypeError(
        f"option {key} must be text, a number, True or False, not {type(value).__name__} ({where})"
    )


def checked_text(key: str, value: Any, where: str) -> str:
    """Return :func:`text_of` a value that the option ``key`` of the library can have.

    Raises
    ------
    TypeError
        If the value is neither text nor a number, a bool or a path.
    ValueError
        If it cannot be used.
    """
    text = text_of(key, value, where)
    try:
        check_option(key, text)
    except ValueError as error:
        raise ValueError(f"{error} ({where})") from None
    return text


def given_texts(values: Mapping[str, Any] | Options, where: str) -> dict[str, str]:
    """Return options of the library as texts, by name; None means that an option is not set.

    Parameters
    ----------
    values
        The options. An ``Options`` object may also hold what is none: it may be made of an environment that others
        share.
    where
        Where they were given, for errors.

    Raises
    ------
    TypeError
        If an option is unknown, or its value is neither text nor a number, a bool or a path.
    ValueError
        If a value cannot be used.
    """
    known = known_options()
    if isinstance(values, Options):
        texts = values.get_strings()
        for key in texts:
            _refuse_misspelt(key, where)
        return {
            key: checked_text(key, text, where) if key in known else text
            for key, text in texts.items()
            if text.strip()
        }
    result = {}
    for given, value in values.items():
        if not isinstance(given, str) or given.strip().lower() not in known:
            raise unknown_option(str(given), where, known)
        key = given.strip().lower()
        if value is not None:
            result[key] = checked_text(key, value, where)
    return result


def environment_texts() -> dict[str, str]:
    """Return what the environment sets of the library's options, by name.

    Variables of no option may be for other programs, and are left alone unless they are an option misspelt.

    Raises
    ------
    TypeError
        If a variable is almost that of an option.
    ValueError
        If a value cannot be used.
    """
    known = known_options()
    result = {}
    for name, text in get_environment_variables().items():
        key, where = name.lower(), f"environment variable {_PREFIX}{name}"
        _refuse_misspelt(key, where)
        if key in known and text.strip():
            result[key] = checked_text(key, text, where)
    return result


def _refuse_misspelt(key: str, where: str) -> None:
    known = known_options()
    if key not in known and _meant(key, known, 0.9) is not None:
        raise unknown_option(key, where, known)


_told: set[str] = set()


def warn_without_effect(key: str, where: str, *, stacklevel: int = 1) -> None:
    """Warn, once in a process and on one rank of a job, that an option which was set has no effect.

    Parameters
    ----------
    key
        The option.
    where
        Where it was set.
    stacklevel
        Whose line the warning names: 1, that of this function's caller.
    """
    if key in _told:
        return
    _told.add(key)
    if bootstrap.is_running_with_rrun() and bootstrap.get_rank() != 0:
        return
    warnings.warn(
        f"option {key} ({where}) has no effect in this version: it is accepted so that scripts run unchanged",
        OptionWithoutEffectWarning,
        stacklevel=stacklevel + 1,
    )


def warn_of_those_without_effect(
    texts: Mapping[str, str], where: Callable[[str], str], *, stacklevel: int = 1
) -> None:
    """Call :func:`warn_without_effect` for the options of the library among ``texts`` that have none.

    Parameters
    ----------
    texts
        Options and their values. The value that an option has in any case needs no warning.
    where
        Says of an option where it was set.
    stacklevel
        As there.
    """
    for key, text in texts.items():
        info = known_options().get(key)
        if info is not None and not info.effective and text.strip().lower() != info.default.lower():
            warn_without_effect(key, where(key), stacklevel=stacklevel + 1)
