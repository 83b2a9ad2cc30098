"""Random SQL over the tables of a case."""

from __future__ import annotations

import random
from collections.abc import Sequence

from differential.relation import ANY_ORDER, TOTAL, Relation, Schema, State, Step, holds_floats

__all__ = ["sql_query"]


def _q(name: str, table: str = "") -> str:
    return f'{table}."{name}"' if table else f'"{name}"'


def sql_query(rng: random.Random, relations: Sequence[Relation]) -> Step | None:
    """Return a query over one table or two, called ``t`` and ``u``."""
    t = rng.choice(relations)
    u = rng.choice(relations)
    numbers = [n for n in t.exact("int") if '"' not in n]
    keys = [n for n in t.exact("plain") if '"' not in n]
    if not numbers or not keys:
        return None
    x, y = rng.choice(numbers), rng.choice(numbers)
    g, h = rng.choice(keys), rng.choice(keys)
    others = u.exact("int")
    z = rng.choice(others) if others else None
    where = rng.choice(
        [
            "",
            "",
            f" WHERE {_q(x)} > {rng.randrange(-3, 5)}",
            f" WHERE {_q(g)} IS NOT NULL",
            f" WHERE {_q(x)} IS NULL OR {_q(y)} <> 2",
        ]
    )
    order = ANY_ORDER
    forms = [
        f"SELECT {_q(g)}, SUM({_q(x)}) AS s1 FROM t{where} GROUP BY {_q(g)}",
        f"SELECT {_q(g)}, SUM({_q(x)}) AS s1, COUNT(*) AS s2, MIN({_q(y)}) AS s3 FROM t{where} GROUP BY {_q(g)}",
        f"SELECT {_q(g)}, SUM({_q(x)}) AS s1 FROM t{where} GROUP BY {_q(g)} HAVING COUNT(*) > 1",
        f"SELECT {_q(g)}, COUNT(DISTINCT {_q(y)}) AS s1, MAX({_q(x)}) AS s2 FROM t{where} GROUP BY {_q(g)}",
        f"SELECT DISTINCT {_q(g)}, {_q(h)} FROM t{where}"
        if g != h
        else f"SELECT DISTINCT {_q(g)} FROM t{where}",
        f"SELECT {_q(x)}, COUNT(*) OVER (PARTITION BY {_q(g)}) AS s1, COUNT(*) OVER () AS s2 FROM t{where}",
        f"SELECT {_q(x)}, SUM({_q(y)}) OVER (PARTITION BY {_q(g)}) AS s1 FROM t{where}",
        f"SELECT {_q(x)}, (SELECT MAX({_q(y)}) FROM t) AS m FROM t{where}",
        f"SELECT {_q(x)} FROM t WHERE {_q(x)} IN (SELECT {_q(y)} FROM t)",
        f"SELECT {_q(x)} + 1 AS s1 FROM t{where} UNION ALL SELECT {_q(y)} AS s1 FROM t",
        f"SELECT {_q(x)} AS s1 FROM t{where} UNION SELECT {_q(x)} AS s1 FROM t",
        f"SELECT CASE WHEN {_q(x)} > 2 THEN 'a' ELSE 'b' END AS s1, {_q(g)} FROM t{where}",
        f"WITH w AS (SELECT {_q(g)}, SUM({_q(x)}) AS s1 FROM t GROUP BY {_q(g)}) "
        "SELECT MAX(s1) AS m, COUNT(*) AS n FROM w",
    ]
    forms += [
        f"SELECT {_q(g)}, SUM({_q(x)}) AS s1 FROM (SELECT {_q(g)}, {_q(x)} FROM t{where}) AS w GROUP BY {_q(g)}"
        if g != x
        else f"SELECT {_q(g)} FROM t",
        f"SELECT {_q(x)} AS s1 FROM t EXCEPT SELECT {_q(y)} AS s1 FROM t WHERE {_q(y)} > 2",
        f"SELECT {_q(x)} AS s1 FROM t INTERSECT SELECT {_q(y)} AS s1 FROM t WHERE {_q(y)} > 2",
        f"SELECT {_q(g)}, AVG({_q(x)}) AS s1, COUNT({_q(x)}) AS s2 FROM t GROUP BY {_q(g)} HAVING MAX({_q(x)}) > 3",
        f"SELECT COALESCE({_q(x)}, {_q(y)}, 0) AS s1, {_q(g)} FROM t{where}",
        f"SELECT {_q(g)}, COUNT(*) AS n FROM t GROUP BY {_q(g)} ORDER BY {_q(g)}",
        f"SELECT {_q(x)}, RANK() OVER (PARTITION BY {_q(g)} ORDER BY {_q(x)}) AS r FROM t{where}",
        f"SELECT {_q(x)}, RANK() OVER (ORDER BY {_q(x)} DESC) AS r FROM t{where}",
        f"SELECT {_q(g)}, {_q(y)}, SUM({_q(x)}) OVER (ORDER BY {_q(y)}) AS s1 FROM t{where}",
        f"SELECT {_q(y)}, MAX({_q(x)}) OVER (PARTITION BY {_q(g)} ORDER BY {_q(y)} DESC) AS s1 FROM t{where}",
        f"SELECT SUM(s1) AS s2 FROM (SELECT {_q(g)}, MAX({_q(x)}) AS s1 FROM t GROUP BY {_q(g)}) AS w",
        f"SELECT a.{_q(x)} AS s1, b.{_q(y)} AS s2 FROM t AS a JOIN (SELECT {_q(y)}, {_q(g)} FROM t LIMIT 0) AS b "
        f"ON a.{_q(g)} = b.{_q(g)}",
        f"SELECT {_q(x)} FROM t WHERE {_q(x)} = (SELECT MAX({_q(x)}) FROM t)",
        f"SELECT COUNT(*) FILTER (WHERE {_q(x)} > 2) AS n, SUM({_q(x)}) FILTER (WHERE {_q(x)} > 2) AS s1 FROM t",
    ]
    scalars = [
        f"SELECT SUM({_q(x)}) AS s1, SUM({_q(x)}) / COUNT(*) AS s2 FROM t{where}",
        f"SELECT MAX({_q(x)}) AS s1, MAX({_q(x)}) - MIN({_q(y)}) AS s2, COUNT(*) AS n FROM t{where}",
        f"SELECT COUNT(DISTINCT {_q(g)}) AS s1, MAX({_q(x)}) AS s2 FROM t{where}",
        f"SELECT SUM({_q(x)}) AS s1 FROM t WHERE {_q(x)} > 1000000",
    ]
    if z is not None and u.name != t.name:
        forms += [
            f"SELECT {_q(x)}, (SELECT MAX({_q(z)}) FROM u) AS m FROM t{where}",
            f"SELECT {_q(x)} FROM t WHERE {_q(x)} IN (SELECT {_q(z)} FROM u)",
            f"SELECT {_q(x)} FROM t WHERE {_q(x)} + 1 IN (SELECT {_q(z)} FROM u) "
            f"AND {_q(y)} IN (SELECT {_q(z)} FROM u)",
            f"SELECT {_q(x)} FROM t WHERE {_q(x)} NOT IN (SELECT {_q(z)} FROM u WHERE {_q(z)} IS NOT NULL)",
            f"SELECT {_q(x)} FROM t WHERE {_q(x)} > (SELECT MIN({_q(z)}) FROM u)",
            f"SELECT t.{_q(x)}, SUM(u.{_q(z)}) AS s1 FROM t JOIN u ON t.{_q(x)} = u.{_q(z)} GROUP BY t.{_q(x)}",
            f"SELECT t.{_q(x)}, t.{_q(y)}, u.{_q(z)} AS s1 FROM t LEFT JOIN u ON t.{_q(x)} = u.{_q(z)}",
            "SELECT COUNT(*) AS n FROM t CROSS JOIN u",
        ]
        if t.state.most * u.state.most > 30_000:
            forms = forms[:-3]
    height: int | None = None
    numbered = "srt" in t.schema and t.state.is_key({"srt"})
    roll = rng.random()
    if roll < 0.25:
        text, order, height = rng.choice(scalars), TOTAL, 1
    elif roll < 0.4 and numbered:
        limit = rng.choice(["", " LIMIT 5", " LIMIT 3 OFFSET 2"])
        text = f'SELECT "srt", {_q(x)} FROM t{where} ORDER BY {_q(x)} {rng.choice(["ASC", "DESC"])}, "srt"{limit}'
        if x == "srt":
            text = f'SELECT "srt" FROM t{where} ORDER BY "srt" DESC{limit}'
        order = TOTAL
    elif roll < 0.5 and numbered and x != "srt":
        window = f'OVER (PARTITION BY {_q(g)} ORDER BY "srt")'
        text = f'SELECT "srt", ROW_NUMBER() {window} AS n, SUM({_q(x)}) {window} AS s1 FROM t{where}'
    else:
        text = rng.choice(forms)
        if x == y and f"{_q(x)}, {_q(y)}" in text:
            return None
    both = "u." in text or " u" in text
    inputs = (t.name, u.name) if both else (t.name,)
    frames = f"t={t.name}, u={u.name}" if both else f"t={t.name}"

    def rule(states: Sequence[State], schema: Schema) -> State | None:
        most = max(s.most for s in states) * (3 if " JOIN " in text or "UNION" in text else 1)
        floats = frozenset(n for n, dtype in schema.items() if holds_floats(dtype))
        return State(order, frozenset(), floats, height, most)

    return Step(inputs, f"pl.SQLContext({frames}).execute({text!r})", rule)
