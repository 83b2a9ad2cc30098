"""The Polars plugin of the package: expressions whose functions are compiled code of ours.

It is ``lib64/libcudf_polars_plugin.so``, from ``cpp/src/polars_plugin``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import polars._plr as plr

import cudf_polars

__all__ = ["LIBRARY_VARIABLE", "PluginUnavailable", "find_library", "plugin_expr"]

LIBRARY_VARIABLE = "CUDF_POLARS_PLUGIN"
_IN_PACKAGE = Path(cudf_polars.__file__).parent / "lib64" / "libcudf_polars_plugin.so"


class PluginUnavailable(RuntimeError):
    """The plugin is not installed."""


def find_library() -> Path:
    """Return the path of the plugin.

    Raises
    ------
    PluginUnavailable
        When neither the package nor ``CUDF_POLARS_PLUGIN`` has it.
    """
    named = os.environ.get(LIBRARY_VARIABLE)
    path = Path(named) if named else _IN_PACKAGE
    if not path.is_file():
        raise PluginUnavailable(
            f"the plugin {path} is missing: install the package with pip, or set {LIBRARY_VARIABLE} to the "
            "plugin that its build made"
        )
    return path.resolve()


def plugin_expr(
    library: Path,
    function: str,
    inputs: Sequence[pl.Expr],
    arguments: bytes,
    *,
    elementwise: bool,
    scalar: bool = False,
    length_preserving: bool = True,
) -> pl.Expr:
    """Return the call of a function of the plugin.

    Parameters
    ----------
    library
        From :func:`find_library`.
    arguments
        What the function gets beside its inputs.
    elementwise, scalar, length_preserving
        What Polars may take for granted of the function, and moves filters and projections by.
    """
    return pl.Expr._from_pyexpr(
        plr.register_plugin_function(
            str(library),
            function,
            [e._pyexpr for e in inputs],
            arguments,
            elementwise,
            False,
            scalar,
            False,
            False,
            not length_preserving,
            True,
        )
    )
