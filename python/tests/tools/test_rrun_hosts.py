"""Jobs of several rruns: on loopback, and between two network namespaces as between two hosts."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.ranks import find_rrun

SCRIPT = textwrap.dedent(
    """
    import signal
    import sys
    from rapidsmpf import bootstrap
    from rapidsmpf.communicator import ucxx
    from rapidsmpf.progress_thread import ProgressThread

    comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread())
    assert comm.rank == bootstrap.get_rank() and comm.nranks == bootstrap.get_nranks()
    ucxx.barrier(comm)
    # In one piece, so that the ranks' lines do not mix.
    sys.stdout.write(f"ready {comm.rank} {comm.nranks}\\n")
    sys.stdout.flush()
    if "stay" in sys.argv:
        signal.pause()
    """
)


@dataclass(frozen=True)
class Ends:
    """Two places to run a node of a job in: what comes before their commands, and where node 0 listens."""

    prefixes: tuple[tuple[str, ...], tuple[str, ...]]
    address: str


def start(ends: Ends, node: int, where: list[str], *args: str) -> subprocess.Popen[str]:
    command = [
        *ends.prefixes[node],
        find_rrun(),
        "-n",
        "2",
        "--nnodes",
        "2",
        "--node-rank",
        str(node),
        *where,
    ]
    # Between hosts there is no shared memory.
    command += ["-x", "UCX_TLS=tcp,self", sys.executable, "-c", SCRIPT, *args]
    return subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def end(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate(timeout=30)
        pytest.fail(f"still running\n{out}\n{err}")
    return process.returncode, out, err


def ip(*args: str) -> None:
    subprocess.run(["ip", *args], check=True, capture_output=True, text=True, timeout=60)


def wait_until_up(name: str) -> None:
    """Wait for the kernel to call the interface running, which it may do a second after it is set up.

    UCX takes no notice of one that is not.
    """
    deadline = time.monotonic() + 60
    while True:
        shown = subprocess.run(
            ["ip", "-n", name, "-o", "link", "show", name],
            check=True,
            capture_output=True,
            text=True,
            timeout=60,
        )
        if " state UP " in shown.stdout:
            return
        if time.monotonic() > deadline:
            pytest.skip(f"the interface does not come up: {shown.stdout}")


@pytest.fixture
def namespaces() -> Iterator[tuple[Ends, tuple[str, str]]]:
    """Make two network namespaces joined by a cable."""
    if shutil.which("ip") is None:
        pytest.skip("needs iproute2")
    tag = f"rr{os.getpid():x}"
    names = (f"{tag}a", f"{tag}b")
    try:
        ip("netns", "add", names[0])
    except (subprocess.CalledProcessError, OSError):
        pytest.skip("network namespaces are not permitted here")
    try:
        ip("netns", "add", names[1])
        # Addresses for tests, TEST-NET-2: nobody has them.
        addresses = ("198.51.100.1", "198.51.100.2")
        try:
            ip(
                "link",
                "add",
                names[0],
                "netns",
                names[0],
                "type",
                "veth",
                "peer",
                "name",
                names[1],
                "netns",
                names[1],
            )
        except subprocess.CalledProcessError:
            pytest.skip("veth devices are not permitted here")
        for name, address in zip(names, addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", name)
            ip("-n", name, "link", "set", name, "up")
            ip("-n", name, "link", "set", "lo", "up")
        for name in names:
            wait_until_up(name)
        prefixes = tuple(("ip", "netns", "exec", name) for name in names)
        yield Ends((prefixes[0], prefixes[1]), f"{addresses[0]}:7077"), names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True, timeout=60)


def check_job(ends: Ends, where: list[str]) -> None:
    nodes = [start(ends, node, where) for node in (0, 1)]
    outcomes = [end(process) for process in nodes]
    for node, (code, out, err) in enumerate(outcomes):
        assert code == 0, err
        assert sorted(out.splitlines()) == [f"ready {2 * node} 4", f"ready {2 * node + 1} 4"]


def test_on_loopback(tmp_path: Path) -> None:
    check_job(Ends(((), ()), ""), ["-d", str(tmp_path / "job")])
    assert not (tmp_path / "job").exists()


def test_between_namespaces(
    namespaces: tuple[Ends, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, _ = namespaces
    monkeypatch.setenv("RRUN_TOKEN", secrets.token_hex(32))
    check_job(ends, ["--coordinator", ends.address])


def test_cut_cable_ends_both(
    namespaces: tuple[Ends, tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, names = namespaces
    monkeypatch.setenv("RRUN_TOKEN", secrets.token_hex(32))
    nodes = [start(ends, node, ["--coordinator", ends.address], "stay") for node in (0, 1)]
    for process in nodes:
        assert process.stdout is not None
        for _ in range(2):
            assert process.stdout.readline().startswith("ready")
    ip("-n", names[1], "link", "set", names[1], "down")
    outcomes = [end(process) for process in nodes]
    assert [code for code, _, _ in outcomes] == [1, 1]
    head, other = (err for _, _, err in outcomes)
    assert "lost the connection to it" in head
    assert "lost the connection to the head of the job" in other
