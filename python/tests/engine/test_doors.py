"""Every socket that an engine opens: none is reached from outside, and another account of the machine gets nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack

import psutil
import pytest
from packaging.version import Version

from support.dask_cluster import start_dask_cluster
from support.doors import doors_of, family_of, try_as_stranger
from support.ranks import find_rrun

SECONDS = 120
"""Guards against hangs only."""

SCRIPT = """
import sys

import polars as pl
{imports}

def total(engine):
    lf = pl.LazyFrame({{"k": [i % 7 for i in range(1000)], "v": range(1000)}})
    return lf.group_by("k").agg(pl.sum("v")).collect(engine=engine)["v"].sum()

with {engine} as engine:
    first = total(engine)
    sys.stdout.write("ready\\n")  # in one piece: print() may write the end of the line by itself
    sys.stdout.flush()
    open(sys.argv[1] + str(getattr(engine, "rank", ""))).read()  # waits for the other end
    assert total(engine) == first
"""
DASK = SCRIPT.format(
    imports="from cudf_polars.engine.dask import DaskEngine", engine="DaskEngine(n_workers=2)"
)
RAY = SCRIPT.format(
    imports="from cudf_polars.engine.ray import RayEngine",
    engine="RayEngine(num_ranks=2, ray_init_options={'include_dashboard': False, 'log_to_driver': False})",
)
SPMD = SCRIPT.format(
    imports="from cudf_polars.engine.spmd import SPMDEngine",
    engine="SPMDEngine()",
)


class Running:
    """A script with an engine that waits between two queries.

    Parameters
    ----------
    stack
        Ends it.
    folder
        An empty folder.
    script
        One of the above.
    ranks
        None: without rrun.
    """

    def __init__(self, stack, folder, script, ranks=None):
        path = folder / "script.py"
        path.write_text(script)
        self._gates = [folder / "gate"] if ranks is None else [folder / f"gate{r}" for r in range(ranks)]
        for gate in self._gates:
            os.mkfifo(gate)
        launcher = [] if ranks is None else [find_rrun(), "-n", str(ranks)]
        self.process = stack.enter_context(
            subprocess.Popen(
                [*launcher, sys.executable, str(path), str(folder / "gate")],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self.process.kill)
        for _ in self._gates:
            line = self.process.stdout.readline()
            if line != "ready\n":
                self.process.kill()
                pytest.fail(f"{line!r} instead of a sign that it is ready\n{self.process.stderr.read()}")
        self.pids = family_of(self.process.pid)
        self.doors = doors_of(self.pids)

    def finish(self):
        """Let the script run its second query and end."""
        for gate in self._gates:
            gate.open("w").close()
        _, err = self.process.communicate(timeout=SECONDS)
        assert self.process.returncode == 0, err


class Doors:
    """What the workers of a Dask client's cluster, and its scheduler in this process, have opened."""

    def __init__(self, client):
        self.pids = list(client.run(os.getpid).values())
        cluster = client.cluster
        ports = {server.port for server in (cluster.scheduler, cluster.scheduler.http_server)}
        ports |= {nanny.port for nanny in cluster.workers.values()}
        # Other tests may have opened more in this process.
        mine = [door for door in doors_of([os.getpid()]) if door.port in ports]
        self.doors = mine + doors_of(self.pids)


def of_kind(doors, kind):
    return [door for door in doors if door.kind == kind]


def check_only_loopback(doors):
    for door in doors:
        if door.kind in ("tcp", "udp"):
            assert door.on_loopback, door
        elif door.kind == "file":
            assert door.closed_to_others, door
        else:
            # UCX wakes ranks of its host by these: what arrives is thrown away, see docs/security.md.
            assert door.datagrams, door


# Whatever the port is: what a client of Dask without the key, a browser and noise get there.
PROBE = """
import pickle, warnings
from concurrent.futures import ThreadPoolExecutor
from distributed.comm import connect
from distributed.core import rpc
from distributed.protocol.pickle import dumps
from distributed.security import Security

def mark(path):
    open(path, "w").close()

async def dask(address, **arguments):
    got = []
    for call in ({"op": "identity"}, {"op": "run", "function": dumps(mark), "args": dumps((ARGUMENTS["mark"],))}):
        try:
            comm = await connect(address, timeout=2, **arguments)
            try:
                await asyncio.wait_for(comm.write(call), 2)
                got.append(repr(await asyncio.wait_for(comm.read(), 2)))
            finally:
                comm.abort()
        except (OSError, asyncio.TimeoutError, ValueError) as error:
            pass
    return got

def speak(port, message, context=None):
    with socket.create_connection(("127.0.0.1", port), 10) as plain:
        try:
            sock = plain if context is None else context.wrap_socket(plain)
            with sock:
                sock.settimeout(10)
                sock.sendall(message)
                return sock.recv(100).decode("latin1")
        except OSError:  # also of TLS
            return ""

def peek(path):
    try:
        return bool(open(path, "rb").read(1))
    except OSError:
        return False

own = Security.temporary()
bare = ssl.create_default_context()
bare.check_hostname = False
bare.verify_mode = ssl.CERT_NONE
become_a_stranger()

def try_port(port):
    page = b"GET / HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n"
    got = [answer for answer in (speak(port, page), speak(port, page, bare)) if answer]
    if not got:  # of an answer in another protocol Dask takes the first bytes for a size
        got += asyncio.run(dask(f"tcp://127.0.0.1:{port}"))
        got += asyncio.run(dask(f"tls://127.0.0.1:{port}", **own.get_connection_args("client")))
        got += filter(None, [speak(port, bytes(1000))])
    return got

# Most of the time goes by without an answer.
with ThreadPoolExecutor(len(ARGUMENTS["ports"]) or 1) as pool:
    found = dict(zip(ARGUMENTS["ports"], pool.map(try_port, ARGUMENTS["ports"])))
for name in ARGUMENTS["abstract"]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        for message in (b"", b"\\0", bytes(range(256)) * 16):
            try:
                sock.sendto(message, socket.MSG_DONTWAIT, "\\0" + name[1:])
            except OSError:
                pass
secrets = []
if os.getuid() != 0:
    for pid in ARGUMENTS["pids"]:
        secrets += [p for p in (f"/proc/{pid}/environ", f"/proc/{pid}/mem", f"/proc/{pid}/maps") if peek(p)]
        try:
            secrets += os.listdir(f"/proc/{pid}/fd")
        except OSError:
            pass
print(json.dumps({"found": found, "secrets": secrets}))
"""


STRANGER_OF_RAY = """
import urllib.error, urllib.request
from ray._raylet import GcsClient
become_a_stranger()
calls = []
for port in ARGUMENTS["calls"]:
    try:
        calls.append(repr(GcsClient(address=f"127.0.0.1:{port}").internal_kv_keys(b"", None)))
    except Exception as error:
        calls.append(type(error).__name__)
pages = []
for port in ARGUMENTS["pages"]:
    url = f"http://127.0.0.1:{port}/get_or_create_runtime_env"
    try:
        pages.append(urllib.request.urlopen(urllib.request.Request(url, data=b"x"), timeout=10).status)
    except urllib.error.HTTPError as error:
        pages.append(error.code)
print(json.dumps([calls, pages]))
"""


def probe(running, folder):
    mark = folder / "mark"
    folder.chmod(0o777)
    answer = try_as_stranger(
        PROBE,
        {
            "ports": [door.port for door in of_kind(running.doors, "tcp")],
            "abstract": [door.place for door in of_kind(running.doors, "abstract")],
            "pids": running.pids,
            "mark": str(mark),
        },
    )
    assert not mark.exists(), "a stranger's function ran"
    assert answer["secrets"] == []
    return answer["found"]


def test_dask_engine(tmp_path):
    with ExitStack() as stack:
        running = Running(stack, tmp_path, DASK)
        check_only_loopback(running.doors)
        # The scheduler, two workers, and where the ranks notice the end of rank 0. UCX has none, nor has HTTP.
        assert len(of_kind(running.doors, "tcp")) == 4
        assert {kind for door in running.doors if (kind := door.kind) != "tcp"} <= {"abstract"}
        for port, answers in probe(running, tmp_path).items():
            assert answers == [], port
        running.finish()


def test_dask_cluster_of_the_tests(tmp_path):
    with start_dask_cluster() as client:
        running = Doors(client)
        check_only_loopback(running.doors)
        for answers in probe(running, tmp_path).values():
            # Dask opens a port for HTTP in any case: behind it is nothing.
            assert all(answer.startswith("HTTP/1.1 404") for answer in answers), answers


def test_ray_engine(tmp_path):
    ray = pytest.importorskip("ray")
    with ExitStack() as stack:
        running = Running(stack, tmp_path, RAY)
        check_only_loopback(running.doors)
        names = {door.port: psutil.Process(door.pid).name() for door in of_kind(running.doors, "tcp")}
        arguments = {
            "calls": [port for port, name in names.items() if name == "gcs_server"],
            "pages": [port for port, name in names.items() if name == "ray::RuntimeEnvAgent"],
        }
        if Version(ray.__version__) >= Version("2.60"):
            calls, pages = try_as_stranger(STRANGER_OF_RAY, arguments)
            assert calls == ["AuthenticationError"]
            assert pages == [401]
        running.finish()


def test_spmd_engine_under_rrun(tmp_path):
    with ExitStack() as stack:
        running = Running(stack, tmp_path, SPMD, ranks=2)
        check_only_loopback(running.doors)
        # rrun's own, where ranks show the job's token.
        (door,) = of_kind(running.doors, "tcp")
        assert door.pid == running.process.pid
        for answers in probe(running, tmp_path).values():
            assert answers == []
        running.finish()
