"""Dask's p2p shuffle of the same frame, between worker processes of one thread; nothing is spilled to disk.

A program of its own, since Dask wants one: prints a record. In a checkout ``pip install '.[test]'`` installs what it
needs.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks.shuffle.rows import ROW_BYTES, RowSum, make_frame, sum_frame, total


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shuffle.dask_p2p", description=__doc__)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--chunk", type=int, required=True, help="bytes of a partition that goes in")
    parser.add_argument("--partitions", type=int, required=True, help="that come out, for each worker")
    parser.add_argument("--bytes", type=int, required=True, help="of a worker")
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    arguments = parser.parse_args()

    import dask
    import dask.dataframe as dd
    from distributed import Client, LocalCluster, wait

    dask.config.set(
        {
            "dataframe.shuffle.method": "p2p",
            "distributed.p2p.storage.disk": False,
            "distributed.admin.log-format": "%(message)s",
        }
    )
    parts = max(arguments.bytes * arguments.ranks // arguments.chunk, 1)
    rows = arguments.chunk // ROW_BYTES
    sent = total([RowSum(*sum_frame(make_frame(part, rows))) for part in range(parts)])
    seconds: list[float] = []
    cpu: list[float] = []
    with (
        LocalCluster(
            n_workers=arguments.ranks, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        for i in range(-arguments.warmup, arguments.repeats):
            frame = dd.from_map(make_frame, range(parts), rows=rows).persist()
            wait(frame)
            busy = sum(client.run(time.process_time).values())
            start = time.perf_counter()
            out = frame.shuffle(on="c0", npartitions=arguments.partitions * arguments.ranks).persist()
            wait(out)
            taken = time.perf_counter() - start
            busy = sum(client.run(time.process_time).values()) - busy
            came = dask.compute(*[dask.delayed(sum_frame)(part) for part in out.to_delayed()])
            sent.check(total([RowSum(*each) for each in came]))
            if i >= 0:
                seconds.append(taken)
                cpu.append(busy)
            del out, frame
    record = {
        "case": "dask_p2p",
        "dask": dask.__version__,
        "ranks": arguments.ranks,
        "chunk_bytes": arguments.chunk,
        "partitions_per_rank": arguments.partitions,
        "bytes": parts * rows * ROW_BYTES,
        "end_to_end_seconds": seconds,
        "end_to_end_cpu_seconds": cpu,
    }
    print(json.dumps(record))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
