"""Dask clusters for tests: small ones on this machine, and ones whose parts are started from the command line.

They are a user's clusters, as far as engines are concerned, but closed to other accounts of the machine: on the
loopback interface, with TLS and a key of their own, and with nothing behind the HTTP ports that Dask opens in any case.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import distributed
from distributed.security import Security

__all__ = ["command_line_cluster", "key_of", "local_client", "start_dask_cluster"]

_NO_PAGES: dict[str, Any] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
_HTTP = "127.0.0.1:0"


@contextlib.contextmanager
def start_dask_cluster(n_workers: int = 2, **options: Any) -> Iterator[Any]:
    """Give the client of a cluster of worker processes with one thread each."""
    with (
        dask.config.set(_NO_PAGES),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=0,
            protocol="tls://",
            security=Security.temporary(),
            dashboard_address=_HTTP,
            worker_dashboard_address=_HTTP,
            scheduler_kwargs={"dashboard": False},
            **options,
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@contextlib.contextmanager
def local_client(client: Any) -> Iterator[Any]:
    """Give another client of a client's cluster."""
    with distributed.Client(client.scheduler.address, security=client.security) as other:
        yield other


def key_of(security: Security) -> dict[str, str]:
    """Return the environment by which other processes have the key of a cluster."""
    tls = "DASK_DISTRIBUTED__COMM__TLS"
    found = {f"{tls}__CA_FILE": security.tls_ca_file}
    for role in ("client", "scheduler", "worker"):
        for part in ("key", "cert"):
            found[f"{tls}__{role.upper()}__{part.upper()}"] = getattr(security, f"tls_{role}_{part}")
    return found


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
    security = Security.temporary()
    env = {
        **os.environ,
        **key_of(security),
        "DASK_DISTRIBUTED__ADMIN__LOG_FORMAT": "%(message)s",
        "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
        "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
    }
    common = ["--host", "127.0.0.1", "--protocol", "tls", "--no-dashboard", "--dashboard-address", _HTTP]
    commands = [
        ["scheduler", "--port", "0", *common],
        ["worker", *common, "--nworkers", str(n_workers), "--nthreads", "1",
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
        client = stack.enter_context(
            distributed.Client(scheduler_file=str(scheduler_file), timeout=60, security=security)
        )
        client.wait_for_workers(n_workers, timeout=60)
        yield client
