"""Cutting tables on a GPU and putting their parts together, beside pylibcudf, as a share of a device copy.

    python -m benchmarks.gpu.partition --output partition.json

Tables of 32-byte rows (four int64) and of the columns of lineitem are cut into 2, 32 and 1,024 partitions by
``partition_and_pack`` and by pylibcudf (``hash_partition``, then each partition packed), and put together again by
``unpack_and_concat``. Bytes a second count what is read plus what is written: twice the table. The copy that they are
compared with is the driver's own, in the same run. What was cut is put together and compared with the table outside of
the timing: the sums of its columns, and of the lengths of texts, must be the same. Needs a GPU, pylibcudf and numpy.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from rapidsmpf.integrations.cudf.partition import partition_and_pack, unpack_and_concat
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.utils.system_info import get_device_name

from benchmarks.environment import hardware, write_report
from benchmarks.gpu.tables import TABLES, checksum, device_table

PARTITIONS = (2, 32, 1024)


class Bench:
    """What is shared by the measurements: pylibcudf, memory, a stream."""

    def __init__(self, rounds: int) -> None:
        import rmm
        from rmm.pylibrmm.stream import Stream

        self.plc: Any = import_module("pylibcudf")
        self.rmm: Any = rmm
        rmm.mr.set_current_device_resource(rmm.mr.CudaAsyncMemoryResource())
        self.stream: Any = Stream()
        self.br = BufferResource(rmm.mr.get_current_device_resource())
        self.rounds = rounds

    def seconds(self, run: Callable[..., Any], prepare: Callable[[], Any] | None = None) -> float:
        """Give the median time of a call, done when the stream is; one round warms up."""
        times = []
        for _ in range(self.rounds + 1):
            made = prepare() if prepare is not None else None
            self.stream.synchronize()
            start = time.perf_counter()
            result = run(made) if prepare is not None else run()
            self.stream.synchronize()
            times.append(time.perf_counter() - start)
            del result, made
        return statistics.median(times[1:])

    def copy_bytes_per_second(self, size: int) -> float:
        """Measure a copy of the device, read plus written."""
        source = self.rmm.DeviceBuffer(size=size, stream=self.stream)

        def copy() -> Any:
            # Allocates as well, as everything here does.
            return self.rmm.DeviceBuffer(ptr=source.ptr, size=size, stream=self.stream)

        return 2 * size / self.seconds(copy)

    def measure(self, name: str, size: int, partitions: int) -> dict[str, Any]:
        """Cut one table into partitions and put it together, ours and theirs."""
        table, table_bytes = device_table(name, size, self.stream)
        moved = 2 * table_bytes
        copy = self.copy_bytes_per_second(table_bytes)

        def ours() -> Any:
            return partition_and_pack(table, [0], partitions, self.stream, self.br)

        def theirs() -> Any:
            plc = self.plc
            cut, offsets = plc.partitioning.hash_partition(table, [0], partitions, stream=self.stream)
            pieces = plc.copying.split(cut, offsets[1:partitions], self.stream)
            return [plc.contiguous_split.pack(piece, self.stream) for piece in pieces]

        def put_together(parts: Any) -> Any:
            return unpack_and_concat(parts.values(), self.stream, self.br)

        def put_together_theirs(parts: Any) -> Any:
            plc = self.plc
            views = [plc.contiguous_split.unpack(part, self.stream) for part in parts]
            return plc.concatenate.concatenate(views, self.stream)

        verified = checksum(put_together(ours()), self.stream) == checksum(table, self.stream)
        found = {
            "table": name,
            "bytes": table_bytes,
            "partitions": partitions,
            "verified": verified,
            "device_copy_bytes_per_second": copy,
        }
        pairs = {
            "partition_and_pack": (self.seconds(ours), self.seconds(theirs)),
            "unpack_and_concat": (
                self.seconds(put_together, ours),
                self.seconds(put_together_theirs, theirs),
            ),
        }
        for step, (our_seconds, their_seconds) in pairs.items():
            found[step] = {
                "bytes_per_second": moved / our_seconds,
                "share_of_copy": moved / our_seconds / copy,
                "pylibcudf_bytes_per_second": moved / their_seconds,
                "times_pylibcudf": their_seconds / our_seconds,
            }
        return found


def render(entry: dict[str, Any]) -> str:
    """Write one measurement as a line for each step."""
    return "\n".join(
        f"{entry['table']:>16} {entry['partitions']:>5} {step:>18} | "
        f"{entry[step]['bytes_per_second'] / 1e9:7.0f} GB/s | "
        f"{entry[step]['share_of_copy']:5.0%} of a copy | {entry[step]['times_pylibcudf']:5.1f} x pylibcudf"
        for step in ("partition_and_pack", "unpack_and_concat")
    )


def main() -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu.partition", description=__doc__)
    parser.add_argument("--mib", type=int, default=3072, help="bytes of a table (default: %(default)s MiB)")
    parser.add_argument("--partitions", type=int, nargs="+", default=list(PARTITIONS))
    parser.add_argument("--tables", nargs="+", choices=sorted(TABLES), default=list(TABLES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    arguments = parser.parse_args()
    if get_device_name() == "cpu":
        print("this benchmark needs a GPU: the compute device is the CPU", file=sys.stderr)
        return 2
    bench = Bench(arguments.rounds)
    results = []
    for name in arguments.tables:
        for partitions in arguments.partitions:
            results.append(bench.measure(name, arguments.mib << 20, partitions))
            print(render(results[-1]), flush=True)
    if arguments.output is not None:
        write_report(arguments.output, hardware={**hardware(), "gpu": get_device_name()}, results=results)
    return 0 if all(entry["verified"] for entry in results) else 1


if __name__ == "__main__":
    sys.exit(main())
