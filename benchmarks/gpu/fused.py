"""What cutting a table straight into a peer's memory takes, beside cutting it here and copying the parts there.

    python -m benchmarks.gpu.fused --output fused.json

Two processes, each with a GPU of its own, cut a table of pylibcudf by ``partition_and_pack`` at the same time: into
their own memory; into the other GPU's, which the kernels then write to over the link (the memory resource of the call
gives out the peer's memory); and into their own with a copy of all parts to the other GPU behind it, by its copy
engine. All of the table goes to the peer, which is more than in a shuffle, where a rank keeps its share. Milliseconds,
medians, of the slower process. Needs two GPUs that can reach each other's memory, pylibcudf, cupy and rmm.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing as mp
import os
import statistics
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.gpu.tables import device_table

OWN, PEER = 0, 1  # as each process sees them
TABLE = "rows_of_32_bytes"
PARTITIONS = [2, 32, 1024]
WARM_UP = 2
REPEATS = 7


class PeerMemory:
    """Memory for an rmm resource, on the other GPU but for what a call takes first, its scratch.

    Taken once, as by a pool, and kept by size.
    """

    def __init__(self, runtime: Any) -> None:
        self.runtime = runtime
        self.next = OWN
        self.given_at_peer = 0
        self.where: dict[int, int] = {}
        self.free: dict[tuple[int, int], list[int]] = {}

    def begin_call(self) -> None:
        self.next = OWN
        self.given_at_peer = 0

    def allocate(self, size: int, *_: Any) -> int:
        place, self.next = self.next, PEER
        self.given_at_peer += size if place == PEER else 0
        kept = self.free.setdefault((place, size), [])
        if kept:
            return kept.pop()
        self.runtime.setDevice(place)
        try:
            pointer = int(self.runtime.malloc(max(size, 256)))
        finally:
            self.runtime.setDevice(OWN)
        self.where[pointer] = place
        return pointer

    def deallocate(self, pointer: int, size: int, *_: Any) -> None:
        self.free.setdefault((self.where[pointer], size), []).append(pointer)


def work(number: int, size: int, barrier: Any, output: str) -> None:
    """Be the process of one GPU; writes what it has measured to a file."""
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:2]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus if number == 0 else reversed(gpus))
    import rmm
    from rapidsmpf.integrations.cudf.partition import partition_and_pack
    from rapidsmpf.memory.buffer_resource import BufferResource
    from rmm.pylibrmm.stream import Stream

    runtime: Any = import_module("cupy").cuda.runtime
    runtime.setDevice(OWN)
    runtime.deviceEnablePeerAccess(PEER)
    rmm.mr.set_current_device_resource(
        rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), size * 4 // 256 * 256)
    )
    there = PeerMemory(runtime)
    own = BufferResource(rmm.mr.get_current_device_resource())
    other = BufferResource(rmm.mr.CallbackMemoryResource(there.allocate, there.deallocate))
    stream = Stream()
    import_module("pylibcudf")
    runtime.setDevice(PEER)
    landing = int(runtime.malloc(size))
    runtime.setDevice(OWN)
    source = int(runtime.malloc(size))
    table, table_bytes = device_table(TABLE, size, stream, number)
    stream.synchronize()

    def cut(br: Any, partitions: int) -> None:
        there.begin_call()
        parts = partition_and_pack(table, [0], partitions, stream, br)
        if br is other and there.given_at_peer < table_bytes:
            raise RuntimeError(
                f"only {there.given_at_peer} bytes of {table_bytes} were cut into the peer's memory"
            )
        stream.synchronize()
        del parts

    def copy() -> None:
        runtime.memcpyPeer(landing, PEER, source, OWN, table_bytes)
        runtime.deviceSynchronize()

    found = []
    for partitions in PARTITIONS:
        record: dict[str, Any] = {"table": TABLE, "bytes": table_bytes, "partitions": partitions}
        for way, into, is_copied in [
            ("here", own, False),
            ("straight_to_the_peer", other, False),
            ("copy_to_the_peer", None, True),
            ("here_and_copied", own, True),
        ]:
            times = []
            for turn in range(WARM_UP + REPEATS):
                barrier.wait(60)
                begin = time.perf_counter()
                if into is not None:
                    cut(into, partitions)
                if is_copied:
                    copy()
                if turn >= WARM_UP:
                    times.append((time.perf_counter() - begin) * 1e3)
            record[way] = times
        found.append(record)
    Path(f"{output}.{number}").write_text(json.dumps(found))


def main() -> int:
    """Start both processes; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu.fused",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bytes", type=int, default=3_200_000_000, help="of a table (default: %(default)s)")
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    arguments = parser.parse_args()
    context = mp.get_context("spawn")
    barrier = context.Barrier(2)
    with tempfile.TemporaryDirectory(prefix="fused-") as scratch:
        output = str(Path(scratch) / "gpu")
        processes = [
            context.Process(target=work, args=(number, arguments.bytes, barrier, output), daemon=True)
            for number in range(2)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode != 0 for process in processes):
            print("a process has failed")
            return 1
        both = [json.loads(Path(f"{output}.{number}").read_text()) for number in range(2)]
    results = []
    for first, second in zip(*both, strict=True):
        record = {key: first[key] for key in ("table", "bytes", "partitions")}
        for way in ("here", "straight_to_the_peer", "copy_to_the_peer", "here_and_copied"):
            record[f"{way}_ms"] = round(max(statistics.median(one[way]) for one in (first, second)), 3)
        results.append(record)
        print(json.dumps(record), flush=True)
    if arguments.output is not None:
        from benchmarks.environment import write_report

        write_report(arguments.output, results=results)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
