"""PDS-H on our engine and on Polars' own, side by side.

    python -m benchmarks.pdsh --scale 1 --ranks 1,2
    python -m benchmarks.pdsh --scale 1 --ranks 2 --engine spmd,dask,ray

Polars' streaming engine, alone in its process and with all cores, and each number of ranks take turns: one iteration
of a query by the one, then by the next. All processes are there at once, so memory must have room for what they keep,
but only one of these works at a time while the others wait without using the CPU. The engines of Dask and Ray take no
part in turns, because their services always have something to do: each runs all queries alone, after the others.

Times are medians of the timed iterations of ``collect``, from files in the page cache: each runs a query once before it
is timed. With several ranks the time is the slowest rank's. With the engines of Dask and Ray it is the client's, and
has all of the answer come to it; what they cost more than SPMD is shown. Every answer is compared with Polars' own.
The exit status is 1 if an answer differs, a query fails, or more queries than ``--max-fallbacks`` gather their rows on
one rank. A process that ends or takes too long costs the query that it ran; a new one runs the others.
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from benchmarks.environment import hardware, versions, write_report
from benchmarks.pdsh.compare import difference
from benchmarks.pdsh.data import ensure
from benchmarks.pdsh.queries import QUERIES, Tables
from benchmarks.pdsh.ranks import ENGINES, POLARS, WARM_UP_RUNS, Run, run_in_turns


def parse_numbers(text: str) -> list[int]:
    """Read ``1,3,5-8`` or ``all``.

    Raises
    ------
    argparse.ArgumentTypeError
        If the text is something else, or a number is not positive.
    """
    if text == "all":
        return list(QUERIES)
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first), int(last if dash else first)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{part!r} is not a number or a range") from None
        if low < 1 or high < low:
            raise argparse.ArgumentTypeError(f"{part!r} is not a range of positive numbers")
        numbers.extend(range(low, high + 1))
    return list(dict.fromkeys(numbers))


def parse_engines(text: str) -> list[str]:
    """Read the names of engines; raises ``argparse.ArgumentTypeError`` for one that is not there."""
    engines = list(dict.fromkeys(text.split(",")))
    if unknown := set(engines) - set(ENGINES):
        raise argparse.ArgumentTypeError(
            f"there is no engine {min(unknown)!r}; there are {', '.join(ENGINES)}"
        )
    return engines


def extra_milliseconds(results: Sequence[dict[str, Any]], runs: Sequence[Run]) -> dict[str, dict[str, float]]:
    """Give what each query costs more on a cluster than under SPMD with as many ranks, in ms, by run and query.

    The fastest iterations are compared: what a cluster costs is the same in all of them, what else runs on the
    machine is not.
    """
    extra: dict[str, dict[str, float]] = {}
    for run in runs:
        for r in results:
            ours = r["ours"].get(run.label, {}), r["ours"].get(str(run.nranks), {})
            if run.engine != "spmd" and all("seconds" in each for each in ours):
                cost = 1e3 * (min(ours[0]["seconds"]) - min(ours[1]["seconds"]))
                extra.setdefault(run.label, {})[f"q{r['query']}"] = cost
    return extra


def parse_queries(text: str) -> list[int]:
    """Read the numbers of queries; raises ``argparse.ArgumentTypeError`` for one that is not there."""
    numbers = parse_numbers(text)
    for number in numbers:
        if number not in QUERIES:
            raise argparse.ArgumentTypeError(f"there is no query {number}; there are 1 to 22")
    return numbers


def examine(query: int, runs: Sequence[Run], polars: Run) -> dict[str, Any]:
    """Bring together what the runs say of one query: times, and whether the answers are Polars' own."""
    expected = polars.answer(query) if query in polars.records else None
    ours: dict[str, Any] = {}
    rows = None if expected is None else expected.height
    for run in runs:
        if query not in run.records:
            ours[run.label] = {"problem": run.errors[query]}
            continue
        record = run.records[query]
        found = None
        if expected is None:
            rows = record["rows"]
        else:
            found = difference(run.answer(query), expected, QUERIES[query].order)
        ours[run.label] = {
            "seconds": record["seconds"],
            "median_seconds": statistics.median(record["seconds"]),
            "fallbacks": record["fallbacks"],
            "problem": None if found is None else f"the answer differs: {found}",
        }
    result: dict[str, Any] = {"query": query, "rows": rows, "ours": ours}
    if query in polars.records:
        result["polars_seconds"] = polars.records[query]["seconds"]
        result["polars_median_seconds"] = statistics.median(result["polars_seconds"])
    else:
        result["polars_problem"] = polars.errors[query]
    return result


def totals(results: Sequence[dict[str, Any]], ranks: Sequence[int | str]) -> dict[str, Any]:
    """Add up the medians over the queries that every run finished, and Polars; and divide the sums by Polars'."""
    complete = [
        r
        for r in results
        if "polars_median_seconds" in r and all("seconds" in ours for ours in r["ours"].values())
    ]
    ours = {str(n): sum(r["ours"][str(n)]["median_seconds"] for r in complete) for n in ranks}
    summed: dict[str, Any] = {"queries": len(complete), "ours": ours}
    if complete:
        summed["polars"] = sum(r["polars_median_seconds"] for r in complete)
        summed["ratio_to_polars"] = {label: seconds / summed["polars"] for label, seconds in ours.items()}
    return summed


def render(results: Sequence[dict[str, Any]], ranks: Sequence[int | str]) -> str:
    """Write the results as a table, one line a query, the totals, and their ratios to Polars' total.

    The column of ratios is for one rank; without it, for the first of ``ranks``.
    """
    heads = [f"ours {n} rank{'' if str(n).endswith('1') else 's'} s" for n in ranks]
    rows = [["query", *heads, "Polars streaming s", "ratio", "rows", "fell back", "answer"]]
    labels = [str(n) for n in ranks]
    of = "1" if "1" in labels else labels[0]
    for r in results:
        ours = [r["ours"][label] for label in labels]
        fell = [label for label, run in zip(labels, ours, strict=True) if run.get("fallbacks")]
        rows.append(
            [
                f"q{r['query']}",
                *(_digits(run.get("median_seconds")) for run in ours),
                _digits(r.get("polars_median_seconds")),
                _ratio(r["ours"][of].get("median_seconds"), r.get("polars_median_seconds")),
                "" if r["rows"] is None else str(r["rows"]),
                f"on {','.join(fell)}" if fell else "no",
                "WRONG" if _problems(r) else "equal",
            ]
        )
    summed = totals(results, ranks)
    ratios = summed.get("ratio_to_polars", {})
    rows.append(
        [
            "total",
            *(_digits(summed["ours"][label]) for label in labels),
            _digits(summed.get("polars")),
            _digits(ratios.get(of)),
            "",
            f"{len(fell_back(results))} of {len(results)}",
            f"{sum(not _problems(r) for r in results)} of {len(results)}",
        ]
    )
    rows.append(
        [
            "total ratio",
            *(_digits(ratios.get(label)) for label in labels),
            "1.000" if ratios else "",
            *4 * [""],
        ]
    )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [" | ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    rule = "-+-".join("-" * width for width in widths)
    return "\n".join([lines[0], rule, *lines[1:-2], rule, *lines[-2:]])


def fell_back(results: Sequence[dict[str, Any]]) -> list[int]:
    """List the queries that gathered rows on one rank, in any run."""
    return [r["query"] for r in results if any(run.get("fallbacks") for run in r["ours"].values())]


def _problems(result: dict[str, Any]) -> list[str]:
    problems = [
        f"q{result['query']} on {nranks} rank(s): {run['problem']}"
        for nranks, run in result["ours"].items()
        if run["problem"]
    ]
    if "polars_problem" in result:
        why = f"q{result['query']} by Polars streaming: {result['polars_problem']}"
        problems.append(f"{why}\nthe answers to q{result['query']} are not compared")
    return problems


def _digits(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _ratio(ours: float | None, polars: float | None) -> str:
    return f"{ours / polars:.2f}" if ours is not None and polars else ""


def _is_told_to_end(number: int, frame: object) -> NoReturn:
    """Let a signal end the program as an exception does: processes are ended, temporary files removed."""
    signal.signal(number, signal.SIG_IGN)
    print(f"ended by {signal.Signals(number).name}", file=sys.stderr)
    raise SystemExit(128 + number)


def measure(arguments: argparse.Namespace, tables: Tables, folder: Path) -> list[Run]:
    """Let all take their turns once; returns the run of Polars, and those of the engines as the arguments have them.

    Parameters
    ----------
    arguments
        Those of the command line.
    tables
        The tables.
    folder
        An empty directory for the workers' files.
    """
    kinds = [(POLARS, 1), *((engine, nranks) for engine in arguments.engine for nranks in arguments.ranks)]
    runs = [Run(nranks, folder / f"{engine}-{nranks}", engine=engine) for engine, nranks in kinds]
    in_turns = [run for run in runs if run.rests]
    for group in (in_turns, *([run] for run in runs if not run.rests)):
        for run in group:
            run.out.mkdir(parents=True)
        names = [
            run.label if run.engine == POLARS else f"on {run.nranks} rank(s) by {run.engine}" for run in group
        ]
        print(
            f"{len(arguments.queries)} queries {'in turns: ' if len(group) > 1 else ''}{', '.join(names)} ...",
            flush=True,
        )
        run_in_turns(
            group,
            arguments.queries,
            tables,
            iterations=arguments.iterations,
            query_seconds=arguments.query_seconds,
        )
    return runs


def main() -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.pdsh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--scale", type=float, default=1.0, help="scale factor (default 1)")
    parser.add_argument("--data", type=Path, help="directory of the tables, made if missing")
    parser.add_argument(
        "--floats",
        action="store_true",
        help="read decimal columns as Float64 (default: as the files have them)",
    )
    parser.add_argument("--queries", type=parse_queries, default="all", help="1,3,5-8 or all")
    parser.add_argument("--ranks", type=parse_numbers, default="1,2", help="default 1,2")
    parser.add_argument(
        "--engine",
        type=parse_engines,
        default="spmd",
        help="some of spmd,dask,ray (default spmd); dask and ray take no part in turns",
    )
    parser.add_argument("--iterations", type=int, default=3, help="timed iterations (default 3)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=1,
        help="how often all of this is done, each time by new processes (default 1)",
    )
    parser.add_argument(
        "--query-seconds",
        type=float,
        default=60.0,
        help="time limit of one iteration of a query (default 60)",
    )
    parser.add_argument("--max-fallbacks", type=int, default=4, help="queries that may fall back")
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    arguments = parser.parse_args()
    if arguments.iterations < 1 or arguments.rounds < 1:
        parser.error("--iterations and --rounds must be at least 1")

    for told in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(told) is signal.SIG_DFL:  # under nohup, SIGHUP stays ignored
            signal.signal(told, _is_told_to_end)
    tables = ensure(arguments.scale, arguments.data, floats=arguments.floats)
    with tempfile.TemporaryDirectory(prefix="pdsh-") as scratch:
        polars, *runs = measure(arguments, tables, Path(scratch) / "0")
        for number in range(1, arguments.rounds):
            again = measure(arguments, tables, Path(scratch) / str(number))
            for run, later in zip([polars, *runs], again, strict=True):
                run.extend(later)
        labels = [run.label for run in runs]
        results = [examine(number, runs, polars) for number in arguments.queries]

    machine, packages = hardware(), versions()
    print(f"\nPDS-H, scale factor {tables.scale_factor:g}: {machine['processor']}, {machine['cores']} cores")
    print(", ".join(f"{name} {version}" for name, version in packages.items()))
    print(render(results, labels))
    if alone := [run.label for run in runs if not run.rests]:
        print(f"Not measured in turns with Polars: {', '.join(alone)}")
    extra = extra_milliseconds(results, runs)
    for label, costs in extra.items():
        each = sorted(costs.values())
        print(
            f"{label} ranks cost more than SPMD, ms a query: median {statistics.median(each):.0f}, largest"
            f" {each[-1]:.0f}"
            f" (q{max(costs, key=costs.__getitem__)[1:]}); {sum(cost < 50 for cost in each)} of {len(each)} below 50"
        )
    for result in results:
        for nranks, run in result["ours"].items():
            for text in run.get("fallbacks", []):
                print(f"q{result['query']} on {nranks} rank(s) fell back: {text}")
    problems = [problem for result in results for problem in _problems(result)]
    for problem in problems:
        print(problem, file=sys.stderr)
    fallen = fell_back(results)
    if len(fallen) > arguments.max_fallbacks:
        problems.append("fallbacks")
        print(
            f"{len(fallen)} queries fell back, at most {arguments.max_fallbacks} may: "
            + ", ".join(f"q{number}" for number in fallen),
            file=sys.stderr,
        )
    if arguments.output is not None:
        write_report(
            arguments.output,
            scale_factor=tables.scale_factor,
            decimals_as="Float64" if tables.floats else "Decimal",
            iterations=arguments.iterations,
            warm_up_runs=WARM_UP_RUNS,
            in_turns=[run.label for run in (polars, *runs) if run.rests],
            polars_threads=polars.threads,
            queries=results,
            totals=totals(results, labels),
            extra_milliseconds=extra,
        )
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
