"""One rank of the shuffle through our Python API; started by ``rrun``. Rank 0 appends its records to ``--output``."""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path

import polars as pl
from rapidsmpf import bootstrap
from rapidsmpf.coll.allgather import allgather_bytes
from rapidsmpf.communicator.communicator import Communicator
from rapidsmpf.config import Options, get_environment_variables
from rapidsmpf.memory.buffer_resource import BufferResource
from rapidsmpf.memory.packed_data import PackedData
from rapidsmpf.progress_thread import ProgressThread
from rapidsmpf.shuffler import Shuffler
from rapidsmpf.table import partition_and_pack, unpack_and_concat

from benchmarks.shuffle.clock import Memcpy, Series, measure
from benchmarks.shuffle.rows import NAMES, ROW_BYTES, RowSum, make_columns, total

_OP, _GATHER_OP = 10, 11


class Cell:
    """One size of chunks and number of partitions."""

    def __init__(
        self, comm: Communicator, options: Options, frame: pl.DataFrame, chunk: int, per_rank: int
    ) -> None:
        self._comm = comm
        self._options = options
        self._br = BufferResource()
        self._partitions = per_rank * comm.nranks
        rows = max(chunk // ROW_BYTES, 1)
        self._batches = [frame.slice(first, rows) for first in range(0, frame.height, rows)]

    def end_to_end(self, out: list[pl.DataFrame]) -> None:
        """Partition and pack, shuffle, unpack."""
        shuffler = self._open()
        for batch in self._batches:
            shuffler.insert_chunks(partition_and_pack(batch, ["c0"], self._partitions, self._br))
        shuffler.insert_finished()
        for _ in shuffler.local_partitions():
            parts = shuffler.extract(shuffler.wait_any())
            out.append(pl.DataFrame(unpack_and_concat(parts, self._br)))
        shuffler.shutdown()

    def cut(self) -> list[dict[int, PackedData]]:
        """Partition and pack alone."""
        return [partition_and_pack(batch, ["c0"], self._partitions, self._br) for batch in self._batches]

    def exchange(self, pieces: list[dict[int, PackedData]], out: list[list[PackedData]]) -> None:
        """Shuffle alone."""
        shuffler = self._open()
        for piece in pieces:
            shuffler.insert_chunks(piece)
        shuffler.insert_finished()
        out.extend(shuffler.extract(shuffler.wait_any()) for _ in shuffler.local_partitions())
        shuffler.shutdown()

    def unpack(self, parts: list[list[PackedData]]) -> list[pl.DataFrame]:
        """Unpack alone."""
        return [pl.DataFrame(unpack_and_concat(part, self._br)) for part in parts]

    def _open(self) -> Shuffler:
        return Shuffler(self._comm, _OP, self._partitions, self._br, options=self._options)


def main() -> int:
    """Run the cells that the arguments name."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shuffle.rank_api", description=__doc__)
    parser.add_argument(
        "--cells", required=True, help='JSON: [{"chunk": 1048576, "partitions": 10, "bytes": ...}]'
    )
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--repeats", type=int, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    options = Options(get_environment_variables())
    comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread(), options=options)

    def gather(pair: tuple[float, float]) -> list[tuple[float, float]]:
        return [
            tuple(json.loads(text)) for text in allgather_bytes(comm, _GATHER_OP, json.dumps(pair).encode())
        ]

    def check(sent: RowSum, frames: list[pl.DataFrame]) -> None:
        came = RowSum()
        for frame in frames:
            came.add({name: frame[name].to_numpy() for name in NAMES})
        pairs = json.dumps([sent.rows, sent.total, came.rows, came.total]).encode()
        sums = [json.loads(text) for text in allgather_bytes(comm, _GATHER_OP, pairs)]
        total([RowSum(*s[:2]) for s in sums]).check(total([RowSum(*s[2:]) for s in sums]))

    for item in json.loads(arguments.cells):
        columns = make_columns(comm.rank, item["bytes"] // ROW_BYTES)
        sent = RowSum()
        sent.add(columns)
        frame = pl.DataFrame(columns)
        copy = Memcpy(item["bytes"])
        cell = Cell(comm, options, frame, item["chunk"], item["partitions"])
        whole, alone, memcpy = Series(), Series(), Series()
        for i in range(-arguments.warmup, arguments.repeats):
            timed = i >= 0
            measure(memcpy if timed else None, gather, copy)
            frames: list[pl.DataFrame] = []
            measure(whole if timed else None, gather, partial(cell.end_to_end, frames))
            check(sent, frames)
            frames.clear()
            pieces = cell.cut()
            parts: list[list[PackedData]] = []
            measure(
                alone if timed else None,
                gather,
                partial(cell.exchange, pieces, parts),
            )
            check(sent, cell.unpack(parts))
        if comm.rank == 0:
            record = {
                "case": "python",
                "ranks": comm.nranks,
                "chunk_bytes": item["chunk"],
                "partitions_per_rank": item["partitions"],
                "bytes": item["bytes"] * comm.nranks,
                "memcpy_bytes": item["bytes"] * comm.nranks,
                **whole.fields("end_to_end"),
                **alone.fields("exchange"),
                **memcpy.fields("memcpy"),
            }
            with arguments.output.open("a") as out:
                out.write(json.dumps(record) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
