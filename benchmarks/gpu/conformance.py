"""Runs programs on a GPU and by the tests' emulator of libcudf, and compares: what makes the emulator worth believing.

    PYTHONPATH=python/tests python -m benchmarks.gpu.conformance --output conformance.jsonl

The cases are those of ``support.gpu_conformance``: every primitive, aggregate, join and sink over generated columns.
"""

from __future__ import annotations

import argparse
import json
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal


def runner() -> Callable[[Any, Sequence[pl.DataFrame]], pl.DataFrame]:
    """Return what runs a program over frames on this process's GPU."""
    import libcudf

    libcudf.load_library()
    from rapidsmpf.communicator.single import new_communicator
    from rapidsmpf.compute import Runtime
    from rapidsmpf.config import Options, get_environment_variables
    from rapidsmpf.streaming.core.context import Context

    from cudf_polars.execute.gpu.run import run_program

    options = Options(get_environment_variables())
    runtime = Runtime(Context.from_options(new_communicator(options), options).br())
    return lambda program, inputs: run_program(runtime, program, inputs)


def main() -> int:
    """Compare all cases; the exit status is 1 if one differs."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.conformance", description=__doc__)
    parser.add_argument(
        "--output", required=True, help="file to which a line of JSON is written for each difference"
    )
    parser.add_argument("--only", default="", help="cases whose name contains this")
    arguments = parser.parse_args()
    from support.cudf_emulator import run as emulate  # type: ignore[import-not-found]
    from support.gpu_conformance import cases  # type: ignore[import-not-found]

    run = runner()
    equal, different = 0, 0
    with open(arguments.output, "w") as out:
        for case in cases():
            if arguments.only not in case.name:
                continue
            try:
                expected: Any = emulate(case.program, case.inputs)
            except Exception as error:
                expected = error
            try:
                found: Any = run(case.program, case.inputs)
            except Exception as error:
                found = error
            text = _difference(found, expected, ordered=case.ordered)
            if text is None:
                equal += 1
                continue
            different += 1
            line = {"case": case.name, "difference": text}
            out.write(json.dumps(line) + "\n")
            out.flush()
            print(json.dumps(line)[:600], flush=True)
        summary = {"equal": equal, "different": different}
        out.write(json.dumps(summary) + "\n")
    print(json.dumps(summary), flush=True)
    return 1 if different else 0


def _difference(found: Any, expected: Any, *, ordered: bool) -> str | None:
    if isinstance(found, Exception) or isinstance(expected, Exception):
        if isinstance(found, Exception) and isinstance(expected, Exception):
            return None
        frames = "".join(traceback.format_exception(found)[-3:]) if isinstance(found, Exception) else ""
        return f"found {_short(found)}, expected {_short(expected)} {frames}"[:2000]
    try:
        # The last digits of 32-bit functions are those of a library, on a GPU as on a CPU.
        narrow = any(dtype == pl.Float32 for dtype in expected.dtypes)
        assert_frame_equal(
            found,
            expected,
            check_row_order=ordered,
            rel_tol=1e-5 if narrow else 1e-9,
            abs_tol=1e-7 if narrow else 1e-12,
        )
    except AssertionError as error:
        return f"{error}\nfound {found.rows()[:20]}\nexpected {expected.rows()[:20]}"[:2000]
    return None


def _short(value: Any) -> str:
    return f"{type(value).__name__}: {value}"[:600]


if __name__ == "__main__":
    raise SystemExit(main())
