"""A shuffle of pylibcudf tables between GPUs by the documented Python interface, with ours and with a peer's wheels.

    python -m benchmarks.gpu.shuffle_tables --ranks 2 --side ours= --side peer=FOLDER --output shuffle_tables.json

A side is a name and the folder of packages that goes before the others (none: what is installed). The same script runs
on each side, in turns: tables of 32-byte rows (four int64), or of lineitem's columns with ``--table lineitem``, are cut
by ``partition_and_pack``, go through ``Shuffler`` and are put together by ``unpack_and_concat``, from device table to
device table, own share included. GB/s per rank are the bytes of a rank by the seconds of the slowest. The sums of all
columns before and after must be the same. Needs a GPU a rank, pylibcudf and numpy, and on each side its ``rrun``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.tables import TABLES, checksum, device_table

ROOT = Path(__file__).resolve().parents[2]
CUTS = "1x1,10x16,40x16"
WARM_UP = 2
OP_ID = 1
LIMIT_SECONDS = 120


def read_cuts(text: str) -> list[tuple[int, int]]:
    """Read ``chunks x partitions`` of a rank, as in ``1x1,10x16``."""
    return [
        (int(chunks), int(partitions)) for chunks, partitions in (cut.split("x") for cut in text.split(","))
    ]


def _integration() -> Any:
    """Find ``partition_and_pack``: where it is documented, or where the peer has moved it."""
    try:
        return import_module("rapidsmpf.integrations.cudf.partition")
    except ModuleNotFoundError:
        return import_module("cudf_streaming.partition_utils")


class Shuffles:
    """What the shuffles of a rank share."""

    def __init__(self, size: int) -> None:
        import rmm
        from rapidsmpf import bootstrap
        from rapidsmpf.config import Options, get_environment_variables
        from rapidsmpf.memory.buffer_resource import BufferResource
        from rapidsmpf.progress_thread import ProgressThread
        from rapidsmpf.shuffler import Shuffler
        from rmm.pylibrmm.stream import Stream

        # Before anything that would make a context on the first GPU of all: rrun has chosen ours.
        pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), size * 5 // 256 * 256)
        rmm.mr.set_current_device_resource(pool)
        self.plc: Any = import_module("pylibcudf")
        self.comm = bootstrap.create_ucxx_comm(
            progress_thread=ProgressThread(), options=Options(get_environment_variables())
        )
        # Not by `from`: the peer's package has the package ucxx under this name.
        self.barrier: Callable[[Any], None] = import_module("rapidsmpf.communicator.ucxx").barrier
        self.shuffler: Any = Shuffler
        self.integration = _integration()
        self.br = BufferResource(pool)
        self.streams: list[Any] = [Stream() for _ in range(8)]

    def cut_up(self, table: Any, chunks: int) -> list[Any]:
        """Cut the rows into chunks."""
        rows = table.num_rows()
        bounds = [rows * i // chunks for i in range(chunks + 1)]
        flat = [bound for pair in itertools.pairwise(bounds) for bound in pair]
        return list(self.plc.copying.slice(table, flat))

    def run(self, batches: list[Any], partitions: int) -> list[Any]:
        """Shuffle once; returns the tables of this rank's partitions, which are there when it returns."""
        shuffler = self.shuffler(self.comm, OP_ID, partitions, self.br)
        for number, batch in enumerate(batches):
            stream = self.streams[number % len(self.streams)]
            shuffler.insert_chunks(
                self.integration.partition_and_pack(batch, [0], partitions, stream, self.br)
            )
        if hasattr(shuffler, "wait_any"):
            shuffler.insert_finished(list(range(partitions)))
        else:  # the peer's newest wheels know all partitions at once only
            shuffler.insert_finished()
            shuffler.wait()
        out = []
        for number, partition in enumerate(shuffler.local_partitions()):
            if hasattr(shuffler, "wait_any"):
                partition = shuffler.wait_any()
            stream = self.streams[number % len(self.streams)]
            out.append(self.integration.unpack_and_concat(shuffler.extract(partition), stream, self.br))
        for stream in self.streams:
            stream.synchronize()
        shuffler.shutdown()
        return out


def add_up(tables: list[list[int]]) -> list[int]:
    """Add the sums of several tables, or of several ranks."""
    return [sum(sums) % 2**64 for sums in zip(*tables, strict=True)]


def work(name: str, cuts: list[tuple[int, int]], size: int, repeats: int, output: str) -> None:
    """Be one rank: writes its seconds of each round, and its sums, to ``output`` with the rank's number behind it."""
    shuffles = Shuffles(size)
    comm = shuffles.comm
    shuffles.barrier(comm)
    stream = shuffles.streams[0]
    table, table_bytes = device_table(name, size, stream, comm.rank)
    stream.synchronize()
    found = []
    for chunks, per_rank in cuts:
        batches = shuffles.cut_up(table, chunks)
        partitions = per_rank * comm.nranks
        seconds = []
        after: list[int] = []
        for turn in range(WARM_UP + repeats):
            shuffles.barrier(comm)
            begin = time.perf_counter()
            out = shuffles.run(batches, partitions)
            seconds.append(time.perf_counter() - begin)
            if turn == 0:
                after = add_up([checksum(part, stream) for part in out])
            del out
            shuffles.barrier(comm)
        found.append({"cut": [chunks, per_rank], "seconds": seconds[WARM_UP:], "after": after})
    before = checksum(table, stream)
    report = {"rank": comm.rank, "bytes": table_bytes, "before": before, "cuts": found}
    del batches, table  # their memory goes back on streams of `shuffles`
    Path(f"{output}.{comm.rank}").write_text(json.dumps(report))


def _rrun_of(folder: str) -> str:
    """Find a side's launcher: in its own folder, or the one that is installed."""
    for place in ("librapidsmpf/bin/rrun", "bin/rrun"):
        if folder and (Path(folder) / place).exists():
            return str(Path(folder) / place)
    from benchmarks.pdsh.data import tool  # not on the ranks: see main()

    return tool("rrun")


def launch(folder: str, ranks: int, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run all cuts on one side; returns a record for each cut.

    Raises
    ------
    RuntimeError
        If the ranks fail, take very long, or rows were lost.
    """
    environment = dict(os.environ)
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [folder, environment.get("PYTHONPATH", ""), str(ROOT)])
    )
    with tempfile.TemporaryDirectory(prefix="shuffle-tables-") as scratch:
        output = str(Path(scratch) / "rank")
        command = [
            _rrun_of(folder),
            "-n",
            str(ranks),
            sys.executable,
            __file__,
            "--work",
            output,
        ]
        command += [
            "--table",
            arguments.table,
            "--cuts",
            arguments.cuts,
            "--bytes",
            str(arguments.bytes),
            "--repeats",
            str(arguments.repeats),
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=LIMIT_SECONDS, check=False
        )
        if done.returncode != 0:
            said = done.stdout + done.stderr
            raise RuntimeError(
                f"{command[0]} ended with {done.returncode}: {said[:1500]} [...] {said[-2500:]}"
            )
        of_ranks = [json.loads(Path(f"{output}.{rank}").read_text()) for rank in range(ranks)]
    before = add_up([rank["before"] for rank in of_ranks])
    size = max(rank["bytes"] for rank in of_ranks)
    records = []
    for number, (chunks, partitions) in enumerate(read_cuts(arguments.cuts)):
        mine = [rank["cuts"][number] for rank in of_ranks]
        after = add_up([cut["after"] for cut in mine])
        if after != before:
            raise RuntimeError(f"the sums of {chunks}x{partitions} differ: {before} before, {after} after")
        seconds = [max(turn) for turn in zip(*(cut["seconds"] for cut in mine), strict=True)]
        records.append(
            {
                "chunks_per_rank": chunks,
                "partitions_per_rank": partitions,
                "milliseconds": [round(second * 1e3, 3) for second in seconds],
                "bytes_per_rank": size,
                "gb_per_second_per_rank": round(size / statistics.median(seconds) / 1e9, 1),
            }
        )
    return records


def main() -> int:
    """Run both sides in turns, or be a rank of one; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.shuffle_tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--side", action="append", default=[], metavar="NAME=FOLDER", help="default: ours=")
    parser.add_argument(
        "--turns", type=int, default=2, help="how often each side is started (default: %(default)s)"
    )
    parser.add_argument("--table", choices=sorted(TABLES), default="rows_of_32_bytes")
    parser.add_argument("--cuts", default=CUTS, help="chunks x partitions of a rank (default: %(default)s)")
    parser.add_argument("--bytes", type=int, default=3_200_000_000, help="of a rank (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work is not None:
        work(arguments.table, read_cuts(arguments.cuts), arguments.bytes, arguments.repeats, arguments.work)
        return 0
    from benchmarks.environment import write_report  # not on the ranks: a side need not have what it needs

    results: list[dict[str, Any]] = []
    failed = False
    for turn in range(arguments.turns):
        for side in arguments.side or ["ours="]:
            name, _, folder = side.partition("=")
            try:
                records = launch(folder, arguments.ranks, arguments)
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
                failed = True
                results.append({"side": name, "turn": turn, "error": str(error)})
                print(f"{name}: {error}", flush=True)
                continue
            results.append({"side": name, "turn": turn, "cuts": records})
            rates = ", ".join(
                f"{r['chunks_per_rank']}x{r['partitions_per_rank']} {r['gb_per_second_per_rank']:.0f}"
                for r in records
            )
            print(f"{name}: {rates} GB/s per rank", flush=True)
    if arguments.output is not None:
        write_report(arguments.output, ranks=arguments.ranks, table=arguments.table, results=results)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
