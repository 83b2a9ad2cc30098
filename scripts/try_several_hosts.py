#!/usr/bin/env python3
"""Try the engines of Dask and Ray over several hosts, which are namespaces of this machine; needs root on Linux.

    python scripts/try_several_hosts.py dask ray

Each host has a network, name, temporary files, shared memory and processes of its own, and is one port of a switch:
Dask's scheduler, two workers, and the client; or two of Ray's nodes, and its head, where the client is. A query, a
shuffle with its answer compared, then the loss of a host: once its processes are killed, once its cable is pulled, so
that nothing comes from it any more. Says what it has seen, one line each; the exit status is 1 if something failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

HOSTS = ("head", "one", "two", "client")
CLIENT_SECONDS = 150.0

CLIENT = """
    import os
    import sys
    import time

    import polars as pl
    from rapidsmpf.error import RankFailedError

    kind, address, folder = sys.argv[1:]
    frame = pl.DataFrame({"k": [i % 1000 for i in range(200_000)], "v": list(range(200_000))})


    def start():
        if kind == "dask":
            from distributed import Client

            from cudf_polars.engine.dask import DaskEngine

            client = Client(address, timeout=60)
            client.wait_for_workers(2, timeout=60)
            return DaskEngine(dask_client=client)
        import ray

        from cudf_polars.engine.ray import RayEngine

        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        end = time.monotonic() + 60
        while sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes()) < 2:
            assert time.monotonic() < end, ray.nodes()
            time.sleep(0.1)
        return RayEngine(num_ranks=2)


    def check(engine):
        sums = frame.lazy().group_by("k").agg(pl.sum("v"), pl.len())
        pairs = frame.lazy().join(sums, on="k").select(pl.len(), pl.sum("v_right"))
        for query in (sums.sort("k"), pairs):
            assert query.collect(engine=engine).equals(query.collect()), "the answer is wrong"


    if __name__ == "__main__":
        engine = start()
        hosts = [info.hostname for info in engine.gather_cluster_info()]
        assert len(set(hosts)) == 2, hosts
        print("ranks on", *hosts, flush=True)
        begin = time.perf_counter()
        check(engine)
        print(f"answers are right, {time.perf_counter() - begin:.2f} s", flush=True)
        print("ready", flush=True)
        sys.stdin.readline()  # then a host is lost
        begin = time.time()
        try:
            while True:
                check(engine)
        except RankFailedError as error:
            print(f"{time.time() - float(open(folder + '/lost').read()):.1f} s after the loss:", error, flush=True)
        os._exit(0)  # a lost host would be waited for
"""


def run(*command: str) -> None:
    """Run a command of iproute2."""
    subprocess.run(command, check=True, capture_output=True, text=True)


class Hosts:
    """Hosts on one switch.

    Parameters
    ----------
    folder
        A folder that all hosts see, but for ``own`` in it, which each has for itself.
    """

    def __init__(self, folder: Path) -> None:
        self._prefix = f"rr{os.getpid()}"
        self.folder = folder
        self.own = folder / "own"
        self.own.mkdir()
        self._stack = contextlib.ExitStack()
        self.processes: dict[str, list[subprocess.Popen[str]]] = {host: [] for host in HOSTS}
        self.switch = self._make_space("switch")
        run("ip", "-n", self.switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", self.switch, "link", "set", "bridge", "up")
        for number, host in enumerate(HOSTS, start=1):
            space = self._make_space(host)
            run(
                "ip",
                "-n",
                space,
                "link",
                "add",
                "eth0",
                "type",
                "veth",
                "peer",
                "name",
                host,
                "netns",
                self.switch,
            )
            run("ip", "-n", self.switch, "link", "set", host, "master", "bridge", "up")
            run("ip", "-n", space, "address", "add", f"10.77.0.{number}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                run("ip", "-n", space, "link", "set", link, "up")
            # It leads nowhere; Ray asks which address of its own it would use.
            run("ip", "-n", space, "route", "add", "default", "dev", "eth0")

    def _make_space(self, name: str) -> str:
        space = f"{self._prefix}-{name}"
        run("ip", "netns", "add", space)
        self._stack.callback(run, "ip", "netns", "delete", space)
        return space

    @staticmethod
    def address(host: str) -> str:
        """Return a host's address."""
        return f"10.77.0.{1 + HOSTS.index(host)}"

    def start(self, host: str, *command: str) -> subprocess.Popen[str]:
        """Start a command on a host. Killing the process that this returns ends all that it has started."""
        own = f'hostname {host}; for each in /dev/shm {self.own}; do mount -t tmpfs tmpfs $each; done; exec "$@"'
        space = f"{self._prefix}-{host}"
        inside = ["unshare", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        log = (self.folder / f"{host}.log").open("a")
        process = subprocess.Popen(
            ["ip", "netns", "exec", space, *inside, "bash", "-c", own, "bash", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if host == "client" else log,
            stderr=log,
            text=True,
            env={
                **os.environ,
                "TMPDIR": str(self.own),
                "RAY_AUTH_MODE": "disabled",
                "RAY_worker_niceness": "0",
            },
        )
        log.close()
        self.processes[host].append(process)
        return process

    def kill(self, host: str) -> None:
        """Kill everything on a host."""
        for process in self.processes[host]:
            process.send_signal(signal.SIGKILL)
        for process in self.processes[host]:
            process.wait()
        self.processes[host] = []

    def pull_cable(self, host: str) -> None:
        """Let nothing come from or go to a host any more."""
        run("ip", "-n", self.switch, "link", "set", host, "down")

    def close(self) -> None:
        """End everything."""
        for host in HOSTS:
            self.kill(host)
        self._stack.close()


@contextlib.contextmanager
def dask_cluster(hosts: Hosts) -> Iterator[tuple[str, list[str]]]:
    """Start a scheduler on the head, and a worker on each of two other hosts."""
    dask = [sys.executable, "-m", "dask"]
    address = f"tcp://{hosts.address('head')}:8786"
    hosts.start("head", *dask, "scheduler", "--port", "8786", "--no-dashboard")
    for host in ("one", "two"):
        hosts.start(
            host,
            *(*dask, "worker", address, "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"),
            *("--local-directory", str(hosts.folder / host), "--preload-nanny", "cudf_polars.engine.dask"),
        )
    yield address, []


@contextlib.contextmanager
def ray_cluster(hosts: Hosts) -> Iterator[tuple[str, list[str]]]:
    """Start two nodes of Ray's; the head, without processors, is started by what is to come before the client."""
    # Drivers need a node of Ray's on their host, and see the same processes as that: so the client is the head.
    ray = [sys.executable, "-m", "ray.scripts.scripts", "start", "--disable-usage-stats"]
    head = hosts.address("client")
    for host in ("one", "two"):
        join = [*ray, "--block", "--address", f"{head}:6379", "--node-ip-address", hosts.address(host)]
        hosts.start(host, "bash", "-c", f"{_wait_for(head, 6379)}; {shlex.join([*join, '--num-cpus', '1'])}")
    start = [*ray, "--head", "--port", "6379", "--node-ip-address", head, "--num-cpus", "0"]
    start += ["--include-dashboard", "false", "--temp-dir", str(hosts.own / "ray")]
    yield f"{head}:6379", ["bash", "-c", f'{shlex.join(start)} >&2 && exec "$@"', "bash"]


def _wait_for(address: str, port: int) -> str:
    """Return the words of bash that wait until somebody listens."""
    return f"until (: > /dev/tcp/{address}/{port}) 2> /dev/null; do sleep 0.2; done"


CLUSTERS = {"dask": dask_cluster, "ray": ray_cluster}


def attempt(kind: str, loss: str) -> bool:
    """Start a cluster, run queries, and lose a host; says whether all was well."""
    with tempfile.TemporaryDirectory(prefix="hosts-") as scratch:
        folder = Path(scratch)
        script = folder / "client.py"
        script.write_text(textwrap.dedent(CLIENT))
        hosts = Hosts(folder)
        try:
            with CLUSTERS[kind](hosts) as (address, before):
                client = hosts.start("client", *before, sys.executable, str(script), kind, address, scratch)
                guard = threading.Timer(CLIENT_SECONDS, client.kill)
                guard.start()
                seen = _follow(client, hosts, loss, folder)
                guard.cancel()
            for line in seen:
                print(f"{kind}, {loss}: {line}", flush=True)
            good = any("after the loss" in line for line in seen)
            if not good:
                for log in sorted(folder.glob("*.log")):
                    print(f"-- {log.name}\n{log.read_text(errors='replace')[-3000:]}", file=sys.stderr)
            return good
        finally:
            hosts.close()


def _follow(client: subprocess.Popen[str], hosts: Hosts, loss: str, folder: Path) -> list[str]:
    """Read what the client says to its end; the host is lost while its queries run."""
    assert client.stdout is not None
    assert client.stdin is not None
    seen = []
    for line in client.stdout:
        if line.strip() != "ready":
            seen.append(line.strip())
            continue
        client.stdin.write("\n")
        client.stdin.flush()
        time.sleep(1)
        (folder / "lost").write_text(str(time.time()))
        if loss == "killed":
            hosts.kill("two")
        else:
            hosts.pull_cable("two")
    return seen


def main() -> int:
    """Try each; see the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", nargs="+", choices=tuple(CLUSTERS))
    parser.add_argument("--loss", default="killed,cut off", help="some of killed,cut off")
    arguments = parser.parse_args()
    if os.geteuid() != 0 or shutil.which("ip") is None:
        print("this needs root and iproute2", file=sys.stderr)
        return 1
    tries = [(kind, loss) for kind in arguments.kind for loss in arguments.loss.split(",")]
    failed = [each for each in tries if not attempt(*each)]
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
