"""Polars' plan views of version 16 (Polars 2.1) as nodes and expressions of :mod:`cudf_polars.plan`.

Polars' ``NodeTraverser`` shows the optimised plan as views that point to each other by number. A view that
does not exist, or does not say enough, raises :class:`~cudf_polars.plan.errors.Unreadable`;
:mod:`cudf_polars.plan.read` then reads the query by another way. The adapter of another version is a package
beside this one, with an :class:`Adapter` of its own.

``nodes`` and ``expressions`` read the views by a method for each class of them; ``function_names`` says what a
function is called; ``scans`` and ``sinks`` translate the options of files; ``values`` what all of them share.
"""

from cudf_polars.plan.polars16.nodes import Adapter

__all__ = ["Adapter"]
