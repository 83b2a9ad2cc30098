"""Shuffles between processes of this machine, beside memcpy, MPI, sockets and Dask, in one run.

    make bench    # builds build/wheel/cpp/ranks/bench_shuffle, and runs a short version
    python -m benchmarks.shuffle --output build/results/shuffle.json
    python -m benchmarks.shuffle --only packed,table --ranks 2 --chunks 64KiB,8MiB --partitions 10

Rates are GB for each second of processor time, of all threads of all ranks, and in brackets by the clock for each
core: the first hardly depends on what else runs on the machine. Every run copies the same bytes with memcpy in
between, on all ranks at once. Bytes are all that is inserted, a rank's own share included. All that comes out is
checked, outside of what is timed. Cases:

packed     the C++ Shuffler on buffers that are there: the exchange alone
table      tables of 32 bytes a row in C++: partition and pack, shuffle, unpack; and the exchange of the pieces alone
python     the same through the Python API
baselines  MPI_Alltoallv, pyarrow over sockets, Dask's p2p shuffle
latency    a message of 8 bytes, an empty shuffle, UCX's own perftest
idle       what an engine uses that waits
skew       all rows to one rank, more than its memory holds
patterns   ways of being hard on the protocol
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.environment import hardware, write_report
from benchmarks.shuffle import sockets, ucx_latency
from benchmarks.shuffle.launch import Failed, Record, alone, mpirun, of_transport, python, rrun, transports
from benchmarks.shuffle.report import rates, render, small_chunk_efficiency

CASES = ("packed", "table", "python", "baselines", "latency", "idle", "skew", "patterns")
PATTERNS = (
    "slow_receiver",
    "one_sender",
    "tiny_chunks",
    "many_partitions",
    "many_shuffles",
    "all_out_of_memory",
    "one_huge_chunk",
)
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def parse_size(text: str) -> int:
    """Read ``64KiB``, ``8MiB``, ``1GiB`` or a number of bytes."""
    for unit, factor in (("KiB", KIB), ("MiB", MIB), ("GiB", GIB)):
        if text.endswith(unit):
            return int(text.removesuffix(unit)) * factor
    return int(text)


def _list(text: str) -> list[int]:
    return [parse_size(part.strip()) for part in text.split(",")]


class Runner:
    """Runs cases as the arguments say and keeps their records."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._cores = len(os.sched_getaffinity(0))
        self._transports = transports(arguments.program)
        if arguments.transports:
            self._transports = [t for t in self._transports if t in arguments.transports.split(",")]
        self.records: list[Record] = []

    def _note(self, run: Callable[[], list[Record]], **fields: object) -> None:
        """Run something and keep what it says; a failure is a record, too."""
        try:
            records = run()
        except Failed as failure:
            records = [{"error": str(failure)}]
        for record in records:
            record = {**fields, **record}
            found = rates(record, self._cores) if "bytes" in record and "ranks" in record else {}
            if found:
                record["rates"] = found
            self.records.append(record)
            print(render(record), flush=True)

    def _rounds(self) -> list[str]:
        return ["--warmup", str(self._arguments.warmup), "--repeats", str(self._arguments.repeats)]

    def _each(self) -> Iterator[tuple[int, str]]:
        for nranks in self._arguments.ranks:
            for transport in self._transports:
                yield nranks, transport

    def grid(self, case: str) -> None:
        """The C++ program over the grid."""
        for nranks, transport in self._each():
            command = [
                self._arguments.program,
                case,
                *("--chunks", ",".join(map(str, self._arguments.chunks))),
                *("--partitions", ",".join(map(str, self._arguments.partitions))),
                *("--bytes", str(self._arguments.bytes)),
                *self._rounds(),
            ]
            self._note(
                partial(rrun, nranks, command, of_transport(transport)),
                case=case,
                ranks=nranks,
                transport=transport,
            )

    def python(self) -> None:
        """The Python API, at the ends of the grid and in its middle."""
        arguments = self._arguments
        chunks = sorted({min(arguments.chunks), arguments.baseline_chunk, max(arguments.chunks)})
        cells = [
            {"chunk": chunk, "partitions": count, "bytes": arguments.bytes}
            for count in arguments.partitions[:2]
            for chunk in chunks
        ]
        for nranks, transport in self._each():
            command = python("rank_api", "--cells", json.dumps(cells), *self._rounds())
            self._note(
                partial(rrun, nranks, command, of_transport(transport)),
                case="python",
                ranks=nranks,
                transport=transport,
            )

    def baselines(self) -> None:
        """Others, with one size of chunks and number of partitions; ours at that place is in the grid."""
        a = self._arguments
        for nranks in a.ranks:
            command = python("rank_alltoallv", "--bytes", str(a.bytes), *self._rounds())
            self._note(partial(mpirun, nranks, command), case="alltoallv", ranks=nranks)
            self._note(
                partial(self._sockets, nranks),
                case="sockets",
                ranks=nranks,
            )
            command = python(
                "dask_p2p",
                *("--ranks", str(nranks), "--chunk", str(a.baseline_chunk)),
                *("--partitions", str(a.baseline_partitions), "--bytes", str(a.bytes)),
                *self._rounds(),
            )
            self._note(partial(alone, command), case="dask_p2p", ranks=nranks)

    def _sockets(self, nranks: int) -> list[Record]:
        a = self._arguments
        return [sockets.run(nranks, a.baseline_chunk, a.baseline_partitions, a.bytes, a.warmup, a.repeats)]

    def latency(self) -> None:
        """Small things, between two ranks."""
        count = 2_000 if self._arguments.quick else 20_000
        for transport in self._transports:
            command = [self._arguments.program, "latency", "--count", str(count)]
            self._note(
                partial(rrun, 2, command, of_transport(transport)),
                case="latency",
                ranks=2,
                transport=transport,
            )

        def perftest() -> list[Record]:
            found = ucx_latency.run(count)
            return [found] if found is not None else []

        self._note(perftest, case="ucx_perftest")

    def idle(self) -> None:
        """An engine on two ranks that has nothing to do."""
        seconds = "3" if self._arguments.quick else "20"
        self._note(
            lambda: rrun(2, python("rank_idle", "--seconds", seconds), {}), case="idle_engine", ranks=2
        )

    def skew(self) -> None:
        """All rows to rank 0, eight times what its memory holds."""
        size, limit = (512 * MIB, 128 * MIB) if self._arguments.quick else (4 * GIB, 512 * MIB)
        environment = (
            {"RAPIDSMPF_SPILL_DIRECTORY": str(self._arguments.folder)} if self._arguments.folder else {}
        )
        for nranks, transport in self._each():
            command = [self._arguments.program, "skew", "--bytes", str(size), "--limit", str(limit)]
            self._note(
                partial(rrun, nranks, command, {**environment, **of_transport(transport)}),
                case="skew",
                ranks=nranks,
                transport=transport,
            )
            record = self.records[-1]
            if "error" not in record:
                # The kernel's peak counts what a sender has mapped of the receiver's memory for the sender, too.
                record["peak_of_limit"] = [peak / limit for peak in record["peak_measured"]]
                record["kernel_peak_of_limit"] = [peak / limit for peak in record["peak_resident"]]
                print(
                    "  peak of limit: " + ", ".join(f"{p:.2f}" for p in record["peak_of_limit"]), flush=True
                )

    def patterns(self) -> None:
        """Each pattern; the huge chunk only where there is memory for it."""
        nranks = min(self._arguments.ranks)
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
        for transport in self._transports:
            for name in PATTERNS:
                if name == "one_huge_chunk" and (self._arguments.quick or memory < 14 * GIB):
                    continue
                command = [self._arguments.program, "pattern", "--name", name]
                self._note(
                    partial(rrun, nranks, command, of_transport(transport)),
                    case="pattern",
                    name=name,
                    ranks=nranks,
                    transport=transport,
                )


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.shuffle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--program", type=Path, default=Path("build/wheel/cpp/ranks/bench_shuffle"))
    parser.add_argument("--only", help=f"some of {', '.join(CASES)} (default: all)")
    parser.add_argument("--ranks", type=_list, default=[2, 4], help="default 2,4")
    parser.add_argument("--transports", help="messages, peer_memory (default: all that there are)")
    parser.add_argument("--chunks", type=_list, help="default 64KiB,256KiB,1MiB,8MiB,64MiB")
    parser.add_argument("--partitions", type=_list, help="of each rank (default 1,10,100,1000)")
    parser.add_argument("--bytes", type=parse_size, help="of each rank (default 256MiB)")
    parser.add_argument("--baseline-chunk", type=parse_size, default=8 * MIB, help="default 8MiB")
    parser.add_argument("--baseline-partitions", type=int, default=10, help="of each rank (default 10)")
    parser.add_argument("--warmup", type=int, default=1)
    parser.add_argument("--repeats", type=int, help="default 5")
    parser.add_argument("--folder", type=Path, help="where to spill (default: TMPDIR)")
    parser.add_argument("--quick", action="store_true", help="about a minute: a small grid, one repeat")
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    arguments = parser.parse_args(argv)
    quick = arguments.quick
    arguments.chunks = arguments.chunks or _list("64KiB,8MiB" if quick else "64KiB,256KiB,1MiB,8MiB,64MiB")
    arguments.partitions = arguments.partitions or _list("1,10" if quick else "1,10,100,1000")
    arguments.bytes = arguments.bytes or (32 if quick else 256) * MIB
    arguments.repeats = arguments.repeats or (1 if quick else 5)
    arguments.only = arguments.only.split(",") if arguments.only else list(CASES)
    if unknown := set(arguments.only) - set(CASES):
        parser.error(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(CASES)}")
    if not arguments.program.exists():
        parser.error(f"{arguments.program} is not there: run `make bench`, or name it with --program")
    return arguments


def main() -> int:
    """Run the benchmark; see the module. The status is 1 if one of our own cases failed."""
    arguments = parse()
    # As an interrupt: what has been started is ended on the way out.
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    machine = hardware()
    print(f"{machine['processor']}, {machine['cores']} cores", flush=True)
    runner = Runner(arguments)
    load = os.getloadavg()
    start = time.time()
    for case in arguments.only:
        if case in ("packed", "table"):
            runner.grid(case)
        else:
            getattr(runner, case)()
        if arguments.output is not None:  # after each: a long run that is ended leaves what it has
            write_report(
                arguments.output,
                load_average_before_and_after=[load, os.getloadavg()],
                seconds=round(time.time() - start),
                kept_with_the_smallest_chunks=small_chunk_efficiency(runner.records),
                records=runner.records,
            )
    for entry in small_chunk_efficiency(runner.records):
        parts = [
            f"{what} {entry[f'{what}_kept']:.0%}"
            for what in ("end_to_end", "exchange")
            if f"{what}_kept" in entry
        ]
        print(
            f"{entry['case']} on {entry['ranks']} [{entry['transport']}] x {entry['partitions_per_rank']}: "
            f"left with the smallest chunks: {', '.join(parts)}"
        )
    others = {"alltoallv", "sockets", "dask_p2p", "ucx_perftest"}
    return 1 if any("error" in r and r["case"] not in others for r in runner.records) else 0


if __name__ == "__main__":
    raise SystemExit(main())
