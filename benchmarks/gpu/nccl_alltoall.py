"""NCCL's all-to-all between the GPUs of a host, through PyTorch: what a shuffle on them is measured by.

    python benchmarks/gpu/nccl_alltoall.py --ranks 2 --bytes 3200000000 --output nccl.json

Each rank sends an equal share of ``bytes`` to every rank, itself included, in one piece. Prints GB/s per rank (bytes of
a rank by seconds of the slowest), median and best of the repeats; a copy inside the GPU beside it. Needs torch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any


def _rank(rank: int, ranks: int, size: int, repeats: int, output: str) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", rank=rank, world_size=ranks, init_method=f"tcp://127.0.0.1:{os.environ['MASTER_PORT']}"
    )
    words = size // 8 // ranks * ranks
    source = torch.arange(words, device="cuda", dtype=torch.int64)
    target = torch.empty_like(source)

    def timed(body: Any) -> list[float]:
        taken = []
        for turn in range(repeats + 3):
            dist.barrier()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            body()
            torch.cuda.synchronize()
            seconds = torch.tensor([time.perf_counter() - begin], device="cuda")
            dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
            if turn >= 3:
                taken.append(float(seconds.item()))
        return taken

    exchange = timed(lambda: dist.all_to_all_single(target, source))
    copy = timed(lambda: target.copy_(source))
    if rank == 0:
        moved = words * 8
        record = {
            "case": "nccl_alltoall",
            "ranks": ranks,
            "bytes_per_rank": moved,
            "gigabytes_per_second_median": moved / statistics.median(exchange) / 1e9,
            "gigabytes_per_second_best": moved / min(exchange) / 1e9,
            "device_copy_gigabytes_per_second": 2 * moved / statistics.median(copy) / 1e9,
            "torch": torch.__version__,
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "device": torch.cuda.get_device_name(0),
        }
        print(json.dumps(record))
        if output:
            Path(output).write_text(json.dumps(record, indent=2) + "\n")
    dist.destroy_process_group()


def main() -> None:
    """Start one process for each GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--bytes", type=int, default=3_200_000_000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--output", default="")
    arguments = parser.parse_args()
    import torch.multiprocessing as processes

    os.environ.setdefault("MASTER_PORT", "29517")
    processes.spawn(
        _rank,
        args=(arguments.ranks, arguments.bytes, arguments.repeats, arguments.output),
        nprocs=arguments.ranks,
    )


if __name__ == "__main__":
    main()
