"""One rank of ``MPI_Alltoallv``; started by ``mpirun``. Rank 0 appends a record to ``--output``.

Every rank sends each rank, itself too, the same share of its bytes, from one buffer into another, both warm: nothing is
partitioned, packed or allocated. It is what the exchange alone is compared with.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from mpi4py import MPI

from benchmarks.shuffle.clock import Memcpy, Series, measure


def main() -> int:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shuffle.rank_alltoallv", description=__doc__)
    parser.add_argument("--bytes", type=int, required=True, help="of a rank")
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    comm = MPI.COMM_WORLD
    share = arguments.bytes // 8 // comm.size
    size = share * comm.size
    sent = np.arange(size, dtype=np.uint64) + np.uint64(comm.rank << 40)
    came = np.zeros(size, np.uint64)
    counts = [share] * comm.size
    offsets = [share * rank for rank in range(comm.size)]
    copy = Memcpy(size * 8)
    alltoall, memcpy = Series(), Series()
    for i in range(-arguments.warmup, arguments.repeats):
        measure(memcpy if i >= 0 else None, comm.allgather, copy)
        came.fill(0)
        measure(
            alltoall if i >= 0 else None,
            comm.allgather,
            lambda: comm.Alltoallv(
                [sent, counts, offsets, MPI.UINT64_T], [came, counts, offsets, MPI.UINT64_T]
            ),
        )
        expected = np.arange(share, dtype=np.uint64) + np.uint64(share * comm.rank)
        for rank in range(comm.size):
            part = came[offsets[rank] : offsets[rank] + share]
            if not np.array_equal(part, expected + np.uint64(rank << 40)):
                raise RuntimeError(f"what came of rank {rank} is not what it sent")
    if comm.rank == 0:
        record = {
            "case": "alltoallv",
            "library": MPI.Get_library_version().split(",")[0],
            "ranks": comm.size,
            "bytes": size * 8 * comm.size,
            "memcpy_bytes": size * 8 * comm.size,
            **alltoall.fields("exchange"),
            **memcpy.fields("memcpy"),
        }
        with arguments.output.open("a") as out:
            out.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
