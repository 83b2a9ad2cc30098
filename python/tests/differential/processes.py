"""The same cases on ranks that are processes, each with an engine: what processes do not share shows here only.

    rrun -n 2 python -m differential.processes --first 0 --seeds 100

Rank 0 prints what differs. Every rank makes the case of a seed for itself, and all read the files that rank 0 wrote.
"""

from __future__ import annotations

import argparse
import faulthandler
import pickle
import sys
import tempfile
import warnings
from pathlib import Path

from rapidsmpf import bootstrap

from cudf_polars.engine.shipping import pack_frame, unpack_frame
from cudf_polars.engine.spmd import SPMDEngine
from cudf_polars.execute.exchange import RapidsmpfTransport
from cudf_polars.streaming.actor_graph.collectives.common import reserve_op_id
from differential.cases import Case, build, describe, random_case
from differential.compare import Finding, Reference, judge
from differential.known import known_fault
from differential.ranks import RankEnd

__all__ = ["main"]

LIMIT_S = 60
End = tuple[bytes | None, BaseException | None]


def _everyone(engine: SPMDEngine, value: bytes) -> list[bytes]:
    with reserve_op_id() as op_id:
        return RapidsmpfTransport(engine.context).allgather_bytes(value, op=op_id, timeout=LIMIT_S)


def _portable(error: BaseException) -> BaseException:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # whatever a type of errors makes of its arguments
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _run(engine: SPMDEngine, case: Case, folder: Path) -> list[RankEnd]:
    end: End
    try:
        query = build(case, folder, engine.rank)
        frame = query.collect(engine=engine, optimizations=case.optimizations())
        end = pack_frame(frame), None
    except BaseException as error:  # Polars' panics are no Exception
        end = None, _portable(error)
    ends: list[End] = [pickle.loads(value) for value in _everyone(engine, pickle.dumps(end))]
    return [RankEnd(None if packed is None else unpack_frame(packed), error) for packed, error in ends]


def _check(engine: SPMDEngine, seed: int, shared: Path) -> tuple[Case, Finding | None]:
    with tempfile.TemporaryDirectory() as name:
        own = shared / str(seed) if engine.rank == 0 else Path(name)
        own.mkdir(exist_ok=True)
        case = random_case(seed, own, engine.nranks)
        _everyone(engine, b"written")
        # The planner's limits are no options of engines.
        engine._rank._execution_options = case.options  # type: ignore[union-attr]
        ends = _run(engine, case, shared / str(seed))
        if engine.rank != 0:
            return case, None
        return case, judge(case, Reference(case, own), ends)


def main() -> int:
    """Run what the command line says; the exit status of rank 0 is 1 if something differs."""
    parser = argparse.ArgumentParser(prog="rrun -n 2 python -m differential.processes", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=100, help="how many cases")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    different = 0
    with SPMDEngine() as engine, tempfile.TemporaryDirectory() as name:
        shared = Path(_everyone(engine, name.encode())[0].decode())
        for seed in range(given.first, given.first + given.seeds):
            faulthandler.dump_traceback_later(2 * LIMIT_S, exit=True)
            case, finding = _check(engine, seed, shared)
            faulthandler.cancel_dump_traceback_later()
            if finding is not None and known_fault(describe(case), finding.kind, finding.detail) is None:
                different += 1
                print(f"== {finding.kind}: {finding.detail}\n{describe(case)}\n", flush=True)
        _everyone(engine, b"done")
        if engine.rank == 0:
            print(f"{given.seeds} cases on {engine.nranks} processes, {different} differences", flush=True)
    return min(different, 1)


if __name__ == "__main__":
    if not bootstrap.is_running_with_rrun():
        print("one process: start it with rrun", file=sys.stderr)
    sys.exit(main())
