"""Groups, and values of groups or of all rows beside each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from cudf_polars.execute.gpu.program import Build, Group, Probe
from cudf_polars.execute.gpu.translate.aggregates import Aggregation, is_aggregate
from cudf_polars.execute.gpu.translate.estimates import AGGREGATED
from cudf_polars.execute.gpu.translate.expressions import translate_expression
from cudf_polars.execute.gpu.translate.streams import Pipelines, Stream
from cudf_polars.execute.gpu.translate.typed import Constants, Scope, Typed, call, column
from cudf_polars.execute.gpu.translate.types import is_float
from cudf_polars.execute.gpu.translate.untranslatable import Unsupported
from cudf_polars.plan import expressions as ex
from cudf_polars.plan.properties import is_scalar, substitute, walk

__all__ = ["Groups", "cross_with_row", "has_aggregates"]


def has_aggregates(expr: ex.Expr) -> bool:
    """Whether an expression needs values of all rows, or of groups, beside those of its row."""
    return any(isinstance(e, ex.Window) or is_aggregate(e) for e in walk(expr))


class Groups:
    """Writes pipelines that aggregate.

    Parameters
    ----------
    pipelines, constants
        Those of the program.
    """

    def __init__(self, pipelines: Pipelines, constants: Constants) -> None:
        self._pipelines = pipelines
        self._constants = constants

    def group(
        self,
        stream: Stream,
        keys: Sequence[ex.NamedExpr],
        aggs: Sequence[ex.NamedExpr],
        *,
        in_order: bool = False,
    ) -> Stream:
        """Return a row for each group: its keys, and one value for each of ``aggs``.

        Raises
        ------
        Unsupported
            If an expression has no form.
        """
        scope = Scope(stream.columns, self._constants)
        typed_keys = [self._key(e.expr, scope) for e in keys]
        aggregation = Aggregation(scope, len(keys), ordered=True)
        split = []
        for e in aggs:
            if not is_scalar(e.expr) or not has_aggregates(e.expr):
                raise Unsupported("what is not one value a group has no form on a GPU", e.expr)
            split.append(e.with_expr(aggregation.split(e.expr)))
        out = self._close(stream, typed_keys, aggregation, in_order=in_order)
        columns = {
            e.name: column(place, key) for place, (e, key) in enumerate(zip(keys, typed_keys, strict=True))
        }
        after = Scope(aggregation.results, self._constants)
        out.select({**columns, **{e.name: translate_expression(e.expr, after) for e in split}})
        return out

    def reduce(self, stream: Stream, exprs: Sequence[ex.NamedExpr]) -> Stream:
        """Return one row of all.

        Raises
        ------
        Unsupported
            If an expression has no form.
        """
        aggregation = Aggregation(Scope(stream.columns, self._constants), 0, ordered=True)
        split = [e.with_expr(aggregation.split(e.expr)) for e in exprs]
        out = self._close(stream, [], aggregation)
        scope = Scope(aggregation.results, self._constants)
        out.select({e.name: translate_expression(e.expr, scope) for e in split})
        return out

    def beside(
        self, stream: Stream, exprs: Sequence[ex.Expr], kept: set[str]
    ) -> tuple[Stream, list[ex.Expr]]:
        """Put values of all rows, and of groups, beside each row; the rows stay in their order.

        Parameters
        ----------
        kept
            The columns that are still used.

        Returns
        -------
        tuple
            The rows, and ``exprs`` with columns in the place of those values.

        Raises
        ------
        Unsupported
            If a value has no form.
        """
        changed = list(exprs)
        windows = list(dict.fromkeys(w for e in exprs for w in walk(e) if isinstance(w, ex.Window)))
        for number, partition in enumerate(dict.fromkeys(w.partition_by for w in windows)):
            of_keys = [w for w in windows if w.partition_by == partition]
            names = {w: f"window {number}.{place}" for place, w in enumerate(of_keys)}
            stream = self._window(stream, partition, names, kept)
            changed = [
                substitute(e, {w: ex.Column(name, dtype=w.dtype) for w, name in names.items()})
                for e in changed
            ]
            kept = kept | set(names.values())
        if any(is_aggregate(e) for expr in changed for e in walk(expr)):
            stream, changed = self._of_all_rows(stream, changed, kept)
        return stream, changed

    def _of_all_rows(
        self, stream: Stream, exprs: Sequence[ex.Expr], kept: set[str]
    ) -> tuple[Stream, list[ex.Expr]]:
        rows, whole = self._twice(stream)
        aggregation = Aggregation(Scope(whole.columns, self._constants), 0, ordered=True)
        split = [aggregation.split(e) for e in exprs]
        row = self._close(whole, [], aggregation)
        row.columns = dict(aggregation.results)
        columns = {name: typed for name, typed in rows.columns.items() if name in kept}
        out = cross_with_row(rows, columns, row, aggregation.results, self._pipelines, self._constants)
        return out, split

    def _window(
        self, stream: Stream, partition: Sequence[ex.Expr], names: Mapping[ex.Window, str], kept: set[str]
    ) -> Stream:
        for window in names:
            if window.mapping != "group_to_rows" or window.order_by is not None:
                raise Unsupported("windows that sort or change the number of rows", window)
        rows, whole = self._twice(stream)
        keys = [ex.NamedExpr(f"key {place}", e) for place, e in enumerate(partition)]
        aggs = [ex.NamedExpr(name, window.child) for window, name in names.items()]
        groups = self.group(whole, keys, aggs)
        payload = {name: groups.columns[name] for name in names.values()}
        built_keys = [groups.columns[e.name] for e in keys]
        places = groups.project([*built_keys, *payload.values()])
        build = self._pipelines.close(groups, Build(tuple(places[: len(keys)]), nulls_equal=True))
        scope = Scope(rows.columns, self._constants)
        row_keys = [self._key(e.expr, scope) for e in keys]
        columns = {name: typed for name, typed in rows.columns.items() if name in kept}
        _probe_once(rows, columns, build, row_keys, places[len(keys) :], payload)
        return rows

    def _twice(self, stream: Stream) -> tuple[Stream, Stream]:
        held = self._pipelines.hold(stream)
        return self._pipelines.reopen(held, stream), self._pipelines.reopen(held, stream)

    def _key(self, expr: ex.Expr, scope: Scope) -> Typed:
        key = translate_expression(expr, scope)
        if key.dtype.is_nested():
            raise Unsupported(f"groups by {key.dtype}", expr)
        if is_float(key.dtype) and key.literal is None:
            key = call("normalize_nans_and_zeros", (key,), key.dtype, range=key.range)
        return key

    def _close(
        self, stream: Stream, keys: Sequence[Typed], aggregation: Aggregation, *, in_order: bool = False
    ) -> Stream:
        """Close a stream by a group-by; the result has no names yet."""
        if not keys and not aggregation.aggregates:
            aggregation.split(ex.Len())
        values = [*keys, *aggregation.inputs] or [stream.any_column()]
        places = stream.project(values)
        inputs = places[len(keys) :] or [0]
        aggregates = tuple(replace(a, column=inputs[a.column]) for a in aggregation.aggregates)
        sink = Group(tuple(places[: len(keys)]), aggregates, in_order)
        types = (*(key.type for key in keys), *aggregation.types)
        number = self._pipelines.close(stream, sink, types)
        out = self._pipelines.reopen(number, stream)
        out.columns, out.one_row = {}, not keys
        out.rows = max(1.0, stream.rows * AGGREGATED) if keys else 1.0
        out.table_rows = max(1.0, stream.table_rows * AGGREGATED) if keys else 1.0
        return out


def cross_with_row(
    stream: Stream,
    kept: Mapping[str, Typed],
    row: Stream,
    payload: Mapping[str, Typed],
    pipelines: Pipelines,
    constants: Constants,
) -> Stream:
    """Put the values of a stream of one row beside each row of another: a join on a constant."""
    zero = constants.value(0, pl.Int8())
    places = row.project([zero, *payload.values()])
    build = pipelines.close(row, Build((places[0],)))
    one_row = stream.one_row
    _probe_once(stream, kept, build, [zero], places[1:], payload)
    stream.one_row = one_row
    return stream


def _probe_once(
    stream: Stream,
    kept: Mapping[str, Typed],
    build: int,
    keys: Sequence[Typed],
    places: Sequence[int],
    payload: Mapping[str, Typed],
) -> None:
    """Join rows with a table that has the key of each row once: a left join, which leaves the rows in their places."""
    at = stream.place(kept, keys)
    stream.probe(Probe(build, "left", tuple(at), tuple(places)), payload)
    for name, typed in payload.items():
        stream.columns[name] = replace(stream.columns[name], nullable=typed.nullable)
