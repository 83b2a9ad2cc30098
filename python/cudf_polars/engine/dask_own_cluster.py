"""The Dask cluster that ``DaskEngine()`` starts for itself, and that no other program can use.

The scheduler lives in this process; every worker is a process of its own. All of them listen on the loopback interface
only, where every account of the machine could connect. So they speak TLS, in both directions: who has not the key
of this one cluster is turned away before a message is read. The key is made here, is never in a file that lasts, and
reaches a worker through an unnamed socket pair. No part of it serves HTTP.

A worker does not import the script's main module, as multiprocessing's "spawn" would: a script without an
``if __name__ == "__main__"`` guard would start clusters in its own workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import pickle
import shutil
import socket
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

try:
    import dask
    import distributed
    from distributed.deploy.spec import ProcessInterface
    from distributed.security import Security
except ImportError as error:
    raise ImportError("DaskEngine needs Dask: pip install dask distributed") from error

__all__ = ["start_own_cluster", "work"]

_HOST = "127.0.0.1"
_START_SECONDS = 60.0
"""How long a worker may take until it is known to the scheduler."""
_END_SECONDS = 5.0
"""How long a worker may take to close; then its process ends all the same."""
_READY = b"r"
_QUIET = {
    # What Dask looks after in each process, up to a hundred times a second, on the cores that queries run on.
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500ms",
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.system-monitor.gil.enabled": False,
}
"""Settings of the engine's own clusters."""


class _WithoutHttp:
    """For Dask's servers, which else serve metrics, and whatever a configuration adds, to all accounts."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Serve nothing."""


class _Scheduler(_WithoutHttp, distributed.Scheduler):  # type: ignore[misc]
    """The scheduler."""


class _Worker(_WithoutHttp, distributed.Worker):  # type: ignore[misc]
    """A worker, in its process."""


def _addresses(security: Security) -> dict[str, Any]:
    """Return the arguments of a scheduler or worker that say where it listens."""
    return {
        "host": _HOST,
        "port": 0,
        "protocol": "tls://",
        "security": security,
        "dashboard": False,
        # No HTTP server is started; if a version of Dask did it by another way, this is where.
        "dashboard_address": f"{_HOST}:0",
    }


# -- in a worker's process ------------------------------------------------------------------------------------

_ENTRY = """
import pickle, socket, sys
channel = socket.socket(fileno=int(sys.argv[1]))
stream = channel.makefile("rb")
sys.path[:] = pickle.load(stream)
del sys.argv[1:]
from cudf_polars.engine.dask_own_cluster import work
work(channel, stream)
"""


def work(channel: socket.socket, stream: BinaryIO) -> None:
    """Be a worker until the other end of ``channel`` closes; ends the process.

    Parameters
    ----------
    channel
        The socket pair to the process that has started this one.
    stream
        Its bytes: what to do, pickled.
    """
    job = pickle.load(stream)
    dask.config.update(dask.config.config, job["config"])
    code = 1
    try:
        asyncio.run(_serve(job, channel))
        code = 0
    finally:
        # Threads that still run a user's function would keep the process, and with it the client.
        shutil.rmtree(job["folder"], ignore_errors=True)
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


async def _serve(job: Mapping[str, Any], channel: socket.socket) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def watch() -> None:
        # Nothing is sent any more: this returns when the client has closed its end, or is dead.
        with contextlib.suppress(OSError):
            channel.recv(1)
        timer = threading.Timer(_END_SECONDS, os._exit, (1,))
        timer.daemon = True
        timer.start()
        loop.call_soon_threadsafe(over.set)

    async with _Worker(
        job["scheduler"],
        name=job["name"],
        nthreads=1,
        # The engine spills by itself; Dask would end a worker that uses what it may.
        memory_limit=0,
        local_directory=job["folder"],
        silence_logs=logging.WARNING,
        **_addresses(job["security"]),
    ) as worker:
        channel.sendall(_READY)
        threading.Thread(target=watch, name="riverrun-client", daemon=True).start()
        gone = asyncio.ensure_future(worker.finished())
        await asyncio.wait({gone, asyncio.ensure_future(over.wait())}, return_when=asyncio.FIRST_COMPLETED)


# -- in the client's process ----------------------------------------------------------------------------------


class _WorkerProcess(ProcessInterface):  # type: ignore[misc]
    """A worker's process, as Dask's cluster starts and ends it.

    Parameters
    ----------
    scheduler
        Address of the scheduler.
    name
        Name of the worker.
    env
        Variables of its environment, besides those of this process.
    security
        The key of the cluster.
    """

    def __init__(self, scheduler: str, *, name: object, env: Mapping[str, str], security: Security) -> None:
        super().__init__(scheduler=scheduler, name=name)
        self._env = {**os.environ, **env}
        # Only for this account. The worker removes it, too: the client may die.
        self._folder = tempfile.mkdtemp(prefix="riverrun-dask-")
        self._job = {
            "scheduler": scheduler,
            "name": name,
            "security": security,
            "folder": self._folder,
            "config": dict(dask.config.config),
        }
        self._process: asyncio.subprocess.Process | None = None
        self._channel: socket.socket | None = None

    async def start(self) -> None:
        """Start the process; returns when the scheduler knows the worker."""
        loop = asyncio.get_running_loop()
        self._channel, theirs = socket.socketpair()
        with theirs:
            # A session of its own: Ctrl-C at the terminal is for the client, which says what is to end.
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _ENTRY, str(theirs.fileno())),
                stdin=asyncio.subprocess.DEVNULL,
                env=self._env,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._channel.setblocking(False)
        try:
            await loop.sock_sendall(self._channel, pickle.dumps(sys.path) + pickle.dumps(self._job))
            answer = await asyncio.wait_for(loop.sock_recv(self._channel, 1), _START_SECONDS)
        except TimeoutError:
            raise RuntimeError(
                f"Dask worker {self._job['name']} (process {self._process.pid}) did not start within"
                f" {_START_SECONDS:.0f} s"
            ) from None
        except OSError:
            answer = b""
        if answer != _READY:
            raise RuntimeError(
                f"Dask worker {self._job['name']} (process {self._process.pid}) ended while it started; what it wrote"
                " to standard error says why"
            )
        await super().start()

    async def close(self) -> None:
        """End the worker; returns when its process has ended."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        process, self._process = self._process, None
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), _END_SECONDS + 1)
            except TimeoutError:
                process.kill()
                await process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        await super().close()


def start_own_cluster(
    stack: contextlib.ExitStack, environments: Sequence[Mapping[str, str]]
) -> distributed.Client:
    """Start a scheduler, and a worker for each environment; returns a client of theirs.

    Parameters
    ----------
    stack
        Ends client and cluster.
    environments
        Variables of each worker's environment.

    Raises
    ------
    ImportError
        If the package ``cryptography``, which makes the key, is not installed.
    RuntimeError
        If a worker does not start.
    """
    try:
        security = Security.temporary()
    except ImportError as error:
        raise ImportError(
            "DaskEngine encrypts its own cluster, which needs cryptography: pip install cryptography"
        ) from error
    with dask.config.set(_QUIET):
        cluster = distributed.SpecCluster(
            workers={
                i: {"cls": _WorkerProcess, "options": {"env": env, "security": security}}
                for i, env in enumerate(environments)
            },
            scheduler={"cls": _Scheduler, "options": _addresses(security)},
            security=security,
            name=f"riverrun-{os.getpid()}-{uuid.uuid4().hex[:8]}",
            silence_logs="WARNING",
        )
        stack.callback(cluster.close)
        # Not entered as a context: that could be left on the thread alone on which it was entered.
        client = distributed.Client(cluster)
        stack.callback(client.close)
        client.wait_for_workers(len(environments), timeout=_START_SECONDS)
    return client
