"""Jobs of several rruns: on loopback, and between two network namespaces as between two hosts."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.hosts import Host, two_hosts
from support.ranks import find_rrun

# Shuffles of some MB, once or until a rank fails.
SCRIPT = textwrap.dedent(
    """
    import itertools
    import os
    import sys
    from rapidsmpf import bootstrap
    from rapidsmpf.error import RankFailedError
    from rapidsmpf.memory.buffer_resource import BufferResource
    from rapidsmpf.memory.packed_data import PackedData
    from rapidsmpf.progress_thread import ProgressThread
    from rapidsmpf.shuffler import Shuffler

    def say(line):
        os.write(1, f"{line}\\n".encode())  # at once: ranks share a pipe

    def bytes_of(source, partition):
        return bytes([source, partition]) * 250_000

    def shuffle(op_id):
        shuffler = Shuffler(comm, op_id, 2 * comm.nranks, br)
        shuffler.insert_chunks(
            {p: PackedData.from_host_bytes(bytes_of(comm.rank, p), br) for p in range(2 * comm.nranks)}
        )
        shuffler.insert_finished()
        for _ in shuffler.local_partitions():
            partition = shuffler.wait_any(timeout=60)
            chunks = [chunk.to_host_bytes() for chunk in shuffler.extract(partition)]
            assert chunks == [bytes_of(source, partition) for source in range(comm.nranks)]
        shuffler.shutdown(timeout=60)

    comm = bootstrap.create_ucxx_comm(progress_thread=ProgressThread())
    assert comm.rank == bootstrap.get_rank() and comm.nranks == bootstrap.get_nranks()
    br = BufferResource()
    shuffle(0)
    say(f"shuffled {comm.rank} {comm.nranks}")
    if "stay" in sys.argv:
        try:
            for turn in itertools.count():
                shuffle(turn % 2)
        except RankFailedError as error:
            say(f"raised {comm.rank}: {error.rank} {error.host}")
            raise
    """
)


class Node:
    """An rrun with two ranks, of two."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out = ""

    def read_shuffled(self, ranks: int) -> None:
        """Wait until so many ranks have shuffled."""
        assert self.process.stdout is not None
        for _ in range(ranks):
            line = self.process.stdout.readline()
            assert line.startswith("shuffled"), (line, self.end())
            self.out += line

    def end(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            out, err = self.process.communicate(timeout=30)
            pytest.fail(f"still running\n{out}\n{err}")
        return self.process.returncode, self.out + out, err


def rrun(number: int, where: list[str], *args: str) -> list[str]:
    numbers = ["-n", "2", "--nnodes", "2", "--node-rank", str(number)]
    return [find_rrun(), *numbers, *where, sys.executable, "-c", SCRIPT, *args]


@pytest.fixture
def hosts() -> Iterator[tuple[Host, Host]]:
    with two_hosts() as both:
        yield both
        for host in both:
            host.wait_until_empty()


@pytest.fixture
def start(hosts: tuple[Host, Host], monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Node]]:
    """Return a function that starts a node on each of the hosts."""
    monkeypatch.setenv("RRUN_TOKEN", secrets.token_hex(32))
    where = ["--coordinator", f"{hosts[0].address}:7077"]
    return lambda *args: [Node(host.command(*rrun(i, where, *args))) for i, host in enumerate(hosts)]


def check(nodes: list[Node]) -> None:
    for number, node in enumerate(nodes):
        code, out, err = node.end()
        assert code == 0, err
        assert sorted(out.splitlines()) == [f"shuffled {2 * number} 4", f"shuffled {2 * number + 1} 4"]


def test_on_loopback(tmp_path: Path) -> None:
    check([Node(rrun(number, ["-d", str(tmp_path / "job")])) for number in (0, 1)])
    assert not (tmp_path / "job").exists()


def test_shuffle_between_hosts(start: Callable[..., list[Node]]) -> None:
    check(start())


def test_cut_cable_ends_both(hosts: tuple[Host, Host], start: Callable[..., list[Node]]) -> None:
    nodes = start("stay")
    for node in nodes:
        node.read_shuffled(2)
    hosts[1].unplug()
    (code, out, err), (other_code, _, other_err) = (node.end() for node in nodes)
    assert (code, other_code) == (1, 1)
    # Of the two ranks over there.
    for rank in (0, 1):
        assert any(f"raised {rank}: {lost} {hosts[1].name}" in out for lost in (2, 3)), out + err
    assert "lost the connection to it" in err
    assert "lost the connection to the head of the job" in other_err


@pytest.mark.parametrize("victim", [0, 1])
def test_death_of_a_host(hosts: tuple[Host, Host], start: Callable[..., list[Node]], victim: int) -> None:
    nodes = start("stay")
    for node in nodes:
        node.read_shuffled(2)
    nodes[victim].process.kill()  # and with it all that runs there
    code, out, err = nodes[1 - victim].end()
    assert code == 1, err
    assert nodes[victim].end()[0] == -signal.SIGKILL
    if victim == 1:
        for rank in (0, 1):
            assert any(f"raised {rank}: {lost} {hosts[1].name}" in out for lost in (2, 3)), out + err


def test_head_starts_ranks_on_the_other_host(hosts: tuple[Host, Host], tmp_path: Path) -> None:
    # What behaves like ssh, from the first host to either.
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nhost=$1; shift\nexec ip netns exec "$host" sh -c "$*"\n')
    ssh.chmod(0o700)
    first, second = hosts
    where = [
        "--hosts",
        f"localhost:2,{second.name}:2",
        "--ssh-command",
        str(ssh),
        "--coordinator",
        first.address,
    ]
    command = ["ip", "netns", "exec", first.name, find_rrun(), *where, sys.executable, "-c", SCRIPT]
    code, out, err = Node(command).end()
    assert code == 0, err
    assert sorted(out.splitlines()) == [f"shuffled {rank} 4" for rank in range(4)]
