"""Where the time of PDS-H queries on a GPU goes: reading the plan, translating it, each pipeline, the way back.

python -m benchmarks.gpu.profile --data /dev/shm/sf100 --queries 1,6 --output profile.jsonl
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from typing import Any

import polars as pl

from benchmarks.pdsh.queries import QUERIES, Tables


def main() -> int:
    """Run the queries twice each and write a line of JSON for each run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.profile", description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--queries", default="", help="numbers, joined by commas; default: all")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--settings", default="{}", help="keyword arguments of Runtime as JSON")
    parser.add_argument(
        "--waits",
        choices=("auto", "spin", "yield", "block"),
        default="auto",
        help="how threads wait for the GPU: CUDA's flags of the device's primary context",
    )
    parser.add_argument("--output", required=True)
    arguments = parser.parse_args()
    if arguments.waits != "auto":
        driver = ctypes.CDLL("libcuda.so.1")
        flags = {"spin": 1, "yield": 2, "block": 4}[arguments.waits]
        if driver.cuInit(0) or driver.cuDevicePrimaryCtxSetFlags_v2(0, flags):
            parser.error("the flags of the primary context cannot be set")
    import libcudf

    libcudf.load_library()
    from rapidsmpf.communicator.single import new_communicator
    from rapidsmpf.compute import Runtime
    from rapidsmpf.config import Options, get_environment_variables
    from rapidsmpf.streaming.core.context import Context

    from cudf_polars.execute.gpu.native import build_program
    from cudf_polars.execute.gpu.translate import translate
    from cudf_polars.plan.read import read_plan

    options = Options(get_environment_variables())
    context = Context.from_options(new_communicator(options), options)
    runtime = Runtime(context.br(), **json.loads(arguments.settings))
    wanted = [int(n) for n in arguments.queries.split(",")] if arguments.queries else list(QUERIES)
    with open(arguments.output, "a") as out:
        for number in wanted:
            for repeat in range(arguments.repeats):
                times = [time.perf_counter()]
                root = read_plan(QUERIES[number].build(Tables(arguments.data))).root
                times.append(time.perf_counter())
                translated = translate(root, {})
                times.append(time.perf_counter())
                builder = build_program(translated.program)
                times.append(time.perf_counter())
                result = runtime.run(builder, translated.frames)
                times.append(time.perf_counter())
                pipelines = result.pipelines()
                rows = pl.DataFrame(result).height
                times.append(time.perf_counter())
                names = ("read", "translate", "build", "run", "collect")
                line: dict[str, Any] = {"query": number, "repeat": repeat, "rows": rows}
                line |= {n: round(b - a, 4) for n, a, b in zip(names, times, times[1:], strict=False)}
                line["pipelines"] = [
                    {k: round(v, 4) if isinstance(v, float) else v for k, v in one.items()}
                    for one in pipelines
                ]
                out.write(json.dumps(line) + "\n")
                out.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
