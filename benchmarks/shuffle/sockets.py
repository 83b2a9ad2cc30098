"""A shuffle as one would write it with pyarrow: rows sorted by their partition, slices as IPC streams over TCP.

Each pair of processes has a connection over the loopback interface; a thread for each peer reads. Partitions
have as many batches as there were chunks, and are put together at the end.
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import threading
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.shuffle.clock import Memcpy, Series, measure
from benchmarks.shuffle.rows import NAMES, ROW_BYTES, RowSum, make_columns, total


def run(nranks: int, chunk: int, per_rank: int, size: int, warmup: int, repeats: int) -> dict[str, Any]:
    """Run it in processes of its own.

    Parameters
    ----------
    nranks
        Processes.
    chunk
        Bytes that are partitioned at once.
    per_rank
        Partitions of each process.
    size
        Bytes of each process.
    warmup, repeats
        Rounds before what is measured, and measured ones.
    """
    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe() for _ in range(nranks)]
    processes = [
        context.Process(
            target=_rank, args=(rank, nranks, chunk, per_rank, size, warmup, repeats, pipes[rank][1])
        )
        for rank in range(nranks)
    ]
    for process, (_, theirs) in zip(processes, pipes, strict=True):
        process.start()
        theirs.close()
    try:
        record = _serve([ours for ours, _ in pipes])
    finally:
        for process in processes:
            process.join(timeout=30)
            if process.is_alive():
                process.kill()
                process.join()
    return {
        "case": "sockets",
        "ranks": nranks,
        "chunk_bytes": chunk,
        "partitions_per_rank": per_rank,
        "bytes": size * nranks,
        "memcpy_bytes": size * nranks,
        **record,
    }


def _serve(pipes: list[Connection]) -> dict[str, Any]:
    """Hand all processes what each of them says, until rank 0 gives its result."""
    while True:
        said = [pipe.recv() for pipe in pipes]
        if isinstance(said[0], dict):
            return said[0]
        for pipe in pipes:
            pipe.send(said)


def _rank(
    rank: int, nranks: int, chunk: int, per_rank: int, size: int, warmup: int, repeats: int, pipe: Connection
) -> None:
    # As many threads as the ranks have cores, as ours have.
    pa.set_cpu_count(max(1, len(os.sched_getaffinity(0)) // nranks))

    def gather(value: Any) -> list[Any]:
        pipe.send(value)
        found: list[Any] = pipe.recv()
        return found

    columns = make_columns(rank, size // ROW_BYTES)
    sent = RowSum()
    sent.add(columns)
    table = pa.table(columns)
    copy = Memcpy(size)
    whole, memcpy = Series(), Series()
    for i in range(-warmup, repeats):
        measure(memcpy if i >= 0 else None, gather, copy)
        peers = _connect(rank, nranks, gather)
        out: list[pa.Table] = []
        measure(
            whole if i >= 0 else None,
            gather,
            partial(_shuffle, table, chunk, per_rank, rank, nranks, peers, out),
        )
        came = RowSum()
        for part in out:
            came.add({name: part[name].to_numpy() for name in NAMES})
        sums = gather((sent, came))
        total([s for s, _ in sums]).check(total([c for _, c in sums]))
        for peer in peers.values():
            peer.close()
    pipe.send({**whole.fields("end_to_end"), **memcpy.fields("memcpy")})


def _connect(rank: int, nranks: int, gather: Any) -> dict[int, socket.socket]:
    """Connect this process with every other one."""
    with socket.create_server(("127.0.0.1", 0), backlog=nranks) as server:
        ports = gather(server.getsockname()[1])
        peers = {}
        for other in range(rank):
            peers[other] = socket.create_connection(("127.0.0.1", ports[other]))
            peers[other].sendall(rank.to_bytes(4, "little"))
        for _ in range(rank + 1, nranks):
            connection, _ = server.accept()
            peers[int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "little")] = connection
    for peer in peers.values():
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peers


def _shuffle(
    table: pa.Table,
    chunk: int,
    per_rank: int,
    rank: int,
    nranks: int,
    peers: dict[int, socket.socket],
    out: list[pa.Table],
) -> None:
    partitions = per_rank * nranks
    # A batch says in its schema whose it is; streams are one a message, so that schemas may differ.
    received: dict[int, list[pa.Table]] = {p: [] for p in range(rank, partitions, nranks)}
    lock = threading.Lock()

    def read(peer: socket.socket) -> None:
        with peer.makefile("rb", buffering=1 << 20) as source:
            while True:
                partition = int.from_bytes(source.read(4), "little")
                if partition == partitions:
                    return
                with pa.ipc.open_stream(source) as stream:
                    part = stream.read_all()
                with lock:
                    received[partition].append(part)

    readers = [threading.Thread(target=read, args=(peer,)) for peer in peers.values()]
    for reader in readers:
        reader.start()
    files = {other: peer.makefile("wb", buffering=1 << 20) for other, peer in peers.items()}
    rows = max(chunk // ROW_BYTES, 1)
    for first in range(0, table.num_rows, rows):
        batch = table.slice(first, rows)
        ids = (batch["c0"].to_numpy().view(np.uint64) >> np.uint64(32)) * np.uint64(partitions) >> np.uint64(
            32
        )
        order = np.argsort(ids, kind="stable")
        ends = np.searchsorted(ids[order], np.arange(partitions), side="right")
        batch = batch.take(pa.array(order))
        begin = 0
        for partition, end in enumerate(ends.tolist()):
            part = batch.slice(begin, end - begin)
            begin = end
            owner = partition % nranks
            if owner == rank:
                with lock:
                    received[partition].append(part)
                continue
            files[owner].write(partition.to_bytes(4, "little"))
            with pa.ipc.new_stream(files[owner], part.schema) as stream:
                stream.write_table(part)
    for file in files.values():
        file.write(partitions.to_bytes(4, "little"))
        file.close()
    for reader in readers:
        reader.join()
    out.extend(pa.concat_tables(parts).combine_chunks() for parts in received.values() if parts)
