"""PDS-H on one GPU: seconds of each query, by our engine, the peer's or Polars, and whether the answers agree.

    python -m benchmarks.gpu.pdsh run --engine riverrun --data D --repeats 3 --output ours.jsonl --answers ours
    python -m benchmarks.gpu.pdsh run --engine polars --data D --repeats 1 --output polars.jsonl --answers polars
    python -m benchmarks.gpu.pdsh check --answers ours --reference polars --output check.json

A line is written after each query, so that what was measured is there if the rest does not end. The peer runs in an
environment of its own, with its own version of Polars.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import itertools
import json
import os
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.pdsh.queries import QUERIES, Tables


@contextlib.contextmanager
def _engine(name: str, options: dict[str, Any]) -> Iterator[Callable[[pl.LazyFrame], pl.DataFrame]]:
    """Open an engine and yield what collects a query by it."""
    if name == "polars":
        yield lambda query: query.collect(engine="streaming")
        return
    if name == "peer":
        from cudf_polars.engine.spmd import SPMDEngine as Peer

        with Peer(executor_options=options) as engine:
            yield lambda query: query.collect(engine=engine)
        return
    if name == "riverrun":
        from cudf_polars import SPMDEngine

        with SPMDEngine(executor_options={"compute_device": "gpu", **options}) as engine:
            yield lambda query: query.collect(engine=engine)
        return
    raise SystemExit(f"there is no engine {name!r}")


def _digest(frame: pl.DataFrame) -> str:
    """Return a digest of a frame's values, floats to nine digits."""
    rounded = frame.with_columns(pl.col(pl.Float64, pl.Float32).round_sig_figs(9))
    return hashlib.sha256(repr(rounded.rows()).encode()).hexdigest()[:16]


def run(arguments: argparse.Namespace) -> int:
    """Run the queries and write a line for each; the number of those that failed."""
    options = json.loads(arguments.options)
    wanted = [int(n) for n in arguments.queries.split(",")] if arguments.queries else list(QUERIES)
    answers = Path(arguments.answers) if arguments.answers else None
    if answers is not None:
        answers.mkdir(parents=True, exist_ok=True)
    failed, total = 0, 0.0
    begin = time.perf_counter()
    with open(arguments.output, "a") as out, _engine(arguments.engine, options) as collect:
        ready = time.perf_counter() - begin
        for cycle, number in itertools.product(range(arguments.cycles), wanted):
            line: dict[str, Any] = {
                "engine": arguments.engine,
                "query": number,
                "ready_seconds": round(ready, 3),
            }
            if arguments.cycles > 1:
                line["cycle"] = cycle
            seconds = []
            try:
                for _ in range(arguments.repeats):
                    if arguments.deadline and time.perf_counter() - begin > arguments.deadline:
                        break
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        start = time.perf_counter()
                        frame = collect(
                            QUERIES[number].build(Tables(arguments.data, floats=arguments.floats))
                        )
                        seconds.append(round(time.perf_counter() - start, 4))
                    line["warnings"] = [str(w.message)[:300] for w in caught]
                if not seconds:
                    break
                line |= {"seconds": seconds, "rows": frame.height, "digest": _digest(frame)}
                total += min(seconds)
                if answers is not None:
                    frame.write_parquet(answers / f"q{number}.parquet")
            except (Exception, pl.exceptions.PanicException) as error:
                failed += 1
                line["error"] = f"{type(error).__name__}: {error}"[:1500]
                if arguments.traceback:
                    line["traceback"] = traceback.format_exc()[-3000:]
            out.write(json.dumps(line) + "\n")
            out.flush()
            os.fsync(out.fileno())
            print(json.dumps(line)[:700], flush=True)
    print(
        json.dumps({"engine": arguments.engine, "sum_of_best_seconds": round(total, 3), "failed": failed}),
        flush=True,
    )
    return failed


def check(arguments: argparse.Namespace) -> int:
    """Compare the answers of two runs; the number of those that differ."""
    from benchmarks.pdsh.compare import difference

    found: dict[int, str] = {}
    for number, query in QUERIES.items():
        paths = [Path(folder) / f"q{number}.parquet" for folder in (arguments.answers, arguments.reference)]
        if not all(path.exists() for path in paths):
            found[number] = "not there: " + ", ".join(str(path) for path in paths if not path.exists())
            continue
        ours, theirs = (pl.read_parquet(path) for path in paths)
        try:
            text = difference(ours, theirs, query.order)
        except (Exception, pl.exceptions.PanicException) as error:
            text = f"{type(error).__name__}: {error}"
        if text is not None:
            found[number] = text[:500]
    result = {"equal": len(QUERIES) - len(found), "of": len(QUERIES), "differences": found}
    print(json.dumps(result, indent=1))
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(result) + "\n")
    return len(found)


def main() -> int:
    """Run or check; the exit status is 1 if a query failed or an answer differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.pdsh", description=__doc__)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("run")
    command.add_argument("--engine", choices=("riverrun", "peer", "polars"), required=True)
    command.add_argument("--data", required=True, help="folder of the tables")
    command.add_argument("--floats", action="store_true", help="read decimals as Float64")
    command.add_argument("--queries", default="", help="numbers, joined by commas; default: all")
    command.add_argument("--repeats", type=int, default=3, help="runs of a query one after the other")
    command.add_argument("--cycles", type=int, default=1, help="how often to go through all queries")
    command.add_argument(
        "--deadline", type=float, default=0, help="seconds after which no query is begun; 0: none"
    )
    command.add_argument("--options", default="{}", help="executor options as JSON")
    command.add_argument(
        "--output", required=True, help="file to which a line of JSON is added for each query"
    )
    command.add_argument("--answers", help="folder for the answers")
    command.add_argument("--traceback", action="store_true")
    command.set_defaults(call=run)
    command = commands.add_parser("check")
    command.add_argument("--answers", required=True)
    command.add_argument("--reference", required=True)
    command.add_argument("--output")
    command.set_defaults(call=check)
    arguments = parser.parse_args()
    return 1 if arguments.call(arguments) else 0


if __name__ == "__main__":
    raise SystemExit(main())
