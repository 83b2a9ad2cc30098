"""A Dask DataFrame shuffled on a local cluster: through rapidsmpf, and by Dask's own p2p and tasks, side by side.

    python -m benchmarks.dask_shuffle --bytes 2GiB --workers 2 --output build/results/dask_shuffle.json

Each method has a cluster of its own, of worker processes with one thread. The frame is made and kept by the workers
before the clock starts, which stops when all partitions of the result are there. Rows have 32 bytes; all that comes
out is checked. The peak is the largest resident memory of a worker during the shuffle, with the frame itself. Methods
take turns, so that what else runs on the machine meets all of them. The exit status is 1 if an answer is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.environment import write_report
from benchmarks.shuffle.__main__ import parse_size
from benchmarks.shuffle.rows import ROW_BYTES, RowSum, make_frame, sum_frame, total

METHODS = ("rapidsmpf", "p2p", "p2p in memory", "tasks")
_ROOT = Path(__file__).resolve().parents[2]


def _begin_peak() -> float:
    """Forget the peak of this process's memory, and return the processor time that it has used."""
    Path("/proc/self/clear_refs").write_text("5")
    return time.process_time()


def _end_peak() -> tuple[float, int]:
    """Return the processor time that this process has used, and the peak of its memory in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return time.process_time(), 1024 * int(line.split()[1])
    return time.process_time(), 0


def measure(method: str, nbytes: int, chunk: int, workers: int) -> dict[str, Any]:
    """Shuffle once, on a cluster of its own."""
    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster, wait

    dask.config.set(
        {
            "dataframe.shuffle.method": method.split()[0],
            "distributed.p2p.storage.disk": method == "p2p",
            "distributed.admin.log-format": "%(message)s",
        }
    )
    parts = max(nbytes // chunk, 1)
    rows = chunk // ROW_BYTES
    with (
        LocalCluster(
            n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=":0"
        ) as cluster,
        Client(cluster) as client,
    ):
        # Each gets its share of the frame: one that comes late, or has still much to import, would get less.
        client.wait_for_workers(workers)
        client.run(make_frame, 0, 1)
        frame = dd.from_map(make_frame, range(parts), rows=rows).persist()
        wait(frame)
        sent = total(
            [RowSum(*s) for s in dask.compute(*[dask.delayed(sum_frame)(p) for p in frame.to_delayed()])]
        )
        if method == "rapidsmpf":
            from rapidsmpf.integrations.dask import bootstrap_dask_cluster
            from rapidsmpf.integrations.dask_dataframe import shuffle

            bootstrap_dask_cluster(client)
        before = client.run(_begin_peak)
        start = time.perf_counter()
        if method == "rapidsmpf":
            out = shuffle(frame, "c0").persist()
        else:
            out = frame.shuffle(on="c0", npartitions=parts).persist()
        wait(out)
        seconds = time.perf_counter() - start
        after = client.run(_end_peak)
        came = dask.compute(*[dask.delayed(sum_frame)(part) for part in out.to_delayed()])
        sent.check(total([RowSum(*each) for each in came]))
    return {
        "method": method,
        "seconds": seconds,
        "cpu_seconds": sum(cpu for cpu, _ in after.values()) - sum(before.values()),
        "peak_bytes": max(peak for _, peak in after.values()),
    }


def _measure_apart(method: str, arguments: argparse.Namespace) -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "benchmarks.dask_shuffle", "--measure", method),
        *("--bytes", str(arguments.bytes), "--chunk", str(arguments.chunk)),
        *("--workers", str(arguments.workers)),
    ]
    path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"{method} failed:\n{done.stderr[-4000:]}")
    record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return record


def render(records: Sequence[dict[str, Any]]) -> str:
    """Write a line for each method: medians, and how many times as long as ours it takes."""
    ours = statistics.median(r["seconds"] for r in records if r["method"] == METHODS[0])
    lines = [f"{'method':<16}{'seconds':>9}{'cpu s':>9}{'peak GB':>9}{'of ours':>9}"]
    for method in dict.fromkeys(r["method"] for r in records):
        mine = [r for r in records if r["method"] == method]
        seconds, cpu, peak = (
            statistics.median(r[key] for r in mine) for key in ("seconds", "cpu_seconds", "peak_bytes")
        )
        lines.append(f"{method:<16}{seconds:>9.2f}{cpu:>9.2f}{peak / 1e9:>9.2f}{seconds / ours:>9.2f}")
    return "\n".join(lines)


def main() -> int:
    """Run the benchmark; see the module."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.dask_shuffle",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--bytes", type=parse_size, default="2GiB", help="of the frame (default 2GiB)")
    parser.add_argument("--chunk", type=parse_size, default="64MiB", help="of a partition (default 64MiB)")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--methods", default=",".join(METHODS), help="some of " + ", ".join(METHODS))
    parser.add_argument("--output", type=Path, help="write everything as JSON to this file")
    parser.add_argument("--measure", choices=METHODS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.bytes, arguments.chunk, arguments.workers)))
        return 0
    load = [os.getloadavg()]
    records = []
    for method in arguments.methods.split(",") * arguments.repeats:
        records.append(_measure_apart(method, arguments))
        print(f"{method}: {records[-1]['seconds']:.2f} s", flush=True)
    load.append(os.getloadavg())
    print(
        f"{arguments.bytes / 1e9:.2f} GB in partitions of {arguments.chunk >> 20} MiB on {arguments.workers} workers"
    )
    print(render(records))
    if arguments.output is not None:
        write_report(
            arguments.output,
            load_average_before_and_after=load,
            records=records,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
