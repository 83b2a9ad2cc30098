"""How compiled classes are called, for ``help()`` and ``inspect.signature``: what their stubs say.

A class that Cython makes has no signature of its own. One line in its body, ``__signature__ = STUB_SIGNATURE``, gives
it that of ``__init__`` in the stub that is installed beside its module, which is read on demand.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from pathlib import Path
from types import FunctionType

__all__ = ["STUB_SIGNATURE"]


class _Source:
    """A default value, shown as the stub has it.

    Parameters
    ----------
    text
        Its source.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


@functools.cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes of a module's stub, by name; none where there is no stub.

    Parameters
    ----------
    module
        The module's name; it is imported.
    """
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return {}
    stub = Path(file).parent / (module.rpartition(".")[2] + ".pyi")
    if not stub.is_file():
        return {}
    return {each.name: each for each in ast.parse(stub.read_text()).body if isinstance(each, ast.ClassDef)}


def _parameter(
    argument: ast.arg, kind: inspect._ParameterKind, default: ast.expr | None
) -> inspect.Parameter:
    """Return a parameter as the stub has it.

    Parameters
    ----------
    argument
        Its name and annotation.
    kind
        How it is passed.
    default
        Its default, if any.
    """
    annotation = argument.annotation
    return inspect.Parameter(
        argument.arg,
        kind,
        default=inspect.Parameter.empty if default is None else _Source(ast.unparse(default)),
        annotation=inspect.Parameter.empty if annotation is None else ast.unparse(annotation),
    )


@functools.cache
def _signature(module: str, name: str) -> inspect.Signature | None:
    """Return how the stub says a class is called; None if it does not.

    Parameters
    ----------
    module, name
        The class.
    """
    made = _classes(module).get(name)
    if made is None:
        return None
    for each in made.body:
        if isinstance(each, ast.FunctionDef) and each.name == "__init__" and not each.decorator_list:
            break
    else:
        return None
    arguments = each.args
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    parameters = [
        _parameter(
            argument,
            inspect.Parameter.POSITIONAL_ONLY
            if number < len(arguments.posonlyargs)
            else inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default,
        )
        for number, (argument, default) in enumerate(zip(positional, defaults, strict=True))
    ]
    if arguments.vararg is not None:
        parameters.append(_parameter(arguments.vararg, inspect.Parameter.VAR_POSITIONAL, None))
    parameters += [
        _parameter(argument, inspect.Parameter.KEYWORD_ONLY, default)
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg is not None:
        parameters.append(_parameter(arguments.kwarg, inspect.Parameter.VAR_KEYWORD, None))
    return inspect.Signature(parameters[1:])  # without self


class _StubSignature:
    """The value of ``__signature__`` of the class that is asked, or of the compiled one that it derives from."""

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        for each in owner.__mro__:
            if isinstance(vars(each).get("__init__"), FunctionType):
                break  # a class of Python, which says itself how it is called
            if (found := _signature(each.__module__, each.__name__)) is not None:
                return found
        raise AttributeError("__signature__")


STUB_SIGNATURE = _StubSignature()
