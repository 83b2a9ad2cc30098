"""Dask clusters for tests: small ones on this machine, and ones whose parts are started from the command line."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import distributed

__all__ = ["command_line_cluster", "local_client", "start_dask_cluster"]


@contextlib.contextmanager
def start_dask_cluster(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """Give the client of a cluster of worker processes with one thread each."""
    with (
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            dashboard_address=":0",
            **options,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextlib.contextmanager
def local_client(address: str) -> Iterator[Any]:
    """Give another client of a cluster."""
    with distributed.Client(address) as client:
        yield client


@contextlib.contextmanager
def command_line_cluster(folder: Path, *worker_arguments: str, n_workers: int = 2) -> Iterator[Any]:
    """Give the client of a cluster of ``dask scheduler`` and ``dask worker`` on the loopback interface.

    Parameters
    ----------
    folder
        An empty folder.
    worker_arguments
        More arguments of ``dask worker``.
    n_workers
        Number of workers.
    """
    scheduler_file = folder / "scheduler.json"
    env = {**os.environ, "DASK_DISTRIBUTED__ADMIN__LOG_FORMAT": "%(message)s"}
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"],
        ["worker", "--host", "127.0.0.1", "--nworkers", str(n_workers), "--nthreads", "1", "--no-dashboard",
         "--memory-limit", "0", "--local-directory", str(folder), *worker_arguments],
    ]  # fmt: skip
    with contextlib.ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((folder / f"{command[0]}.log").open("w"))
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *command, "--scheduler-file", str(scheduler_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=env,
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
        # Waits until the scheduler has written the file.
        client = stack.enter_context(distributed.Client(scheduler_file=str(scheduler_file), timeout=60))
        client.wait_for_workers(n_workers, timeout=60)
        yield client
