"""Jobs that ``rrun --hosts`` starts through a real ``sshd``: on addresses of this machine, as on other hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from support.ranks import find_rrun
from support.sshd import Sshd, run_sshd

# rrun starts what is on localhost and 127.0.0.1 itself; these are others, for it.
FIRST, SECOND = "127.0.0.2", "127.0.0.3"

# Collectives, once or until a rank fails.
SCRIPT = textwrap.dedent(
    """
    import os
    import sys
    from rapidsmpf import bootstrap
    from rapidsmpf.coll.allgather import allgather_bytes
    from rapidsmpf.error import RankFailedError

    def say(line):
        os.write(1, f"{line}\\n".encode())  # at once: ranks share a pipe

    def gather(op_id):
        mine = b"%d " % comm.rank * 100_000
        expected = [b"%d " % rank * 100_000 for rank in range(comm.nranks)]
        assert allgather_bytes(comm, op_id, mine) == expected

    comm = bootstrap.create_ucxx_comm()
    gather(0)
    say(f"gathered {comm.rank} of {comm.nranks} in {os.getcwd()} {os.environ['GREETING']}")
    if "stay" in sys.argv:
        say(f"rank {comm.rank} pid {os.getpid()}")
        try:
            turn = 1
            while True:
                gather(turn % 2)
                turn += 1
        except RankFailedError as error:
            say(f"raised {comm.rank}: {error.rank}")
            raise
    """
)

# Nothing for the shells on the way.
GREETING = """it's "quoted" $HOME"""

# Ranks that do nothing, and what they have started.
STAY = 'sleep 1000 & echo "rank $RRUN_RANK pid $$"; wait'


class Job:
    """An rrun whose hosts are reached through a server."""

    def __init__(self, sshd: Sshd, hosts: str, *arguments: str) -> None:
        command = [find_rrun(), "--hosts", hosts, "--ssh-command", sshd.ssh_command, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.out = ""

    def read_ranks(self, number: int) -> dict[int, psutil.Process]:
        """Read lines until so many ranks have said that they stay, and return their processes."""
        assert self.process.stdout is not None
        ranks: dict[int, psutil.Process] = {}
        while len(ranks) < number:
            line = self.process.stdout.readline()
            self.out += line
            if not line:
                pytest.fail(f"it has ended: {self.end()}")
            if match := re.match(r"rank (\d+) pid (\d+)$", line):
                ranks[int(match[1])] = psutil.Process(int(match[2]))
        return ranks

    def end(self) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            out, err = self.process.communicate(timeout=30)
            pytest.fail(f"still running\n{out}\n{err}")
        return self.process.returncode, self.out + out, err


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Sshd]:
    with run_sshd(tmp_path, [FIRST, SECOND], {"alpha": FIRST, "beta": SECOND}) as server:
        yield server


def python_ranks(*arguments: str) -> list[str]:
    return ["-x", f"GREETING={GREETING}", sys.executable, "-c", SCRIPT, *arguments]


@pytest.mark.parametrize(
    "where",
    [[f"{FIRST}:2,{SECOND}:1"], ["alpha:2,beta:1", "--coordinator", "127.0.0.1"]],
    ids=["addresses", "aliases"],
)
def test_collective(sshd: Sshd, where: list[str]) -> None:
    code, out, err = Job(sshd, *where, *python_ranks()).end()
    assert code == 0, err
    folder = os.getcwd()
    expected = [f"gathered {rank} of 3 in {folder} {GREETING}" for rank in range(3)]
    assert sorted(out.splitlines()) == expected
    assert err == ""


def test_rank_fails(sshd: Sshd) -> None:
    job = Job(sshd, f"localhost:1,{FIRST}:1,{SECOND}:1", "sh", "-c", f"[ $RRUN_RANK != 2 ] || exit 7; {STAY}")
    code, _, err = job.end()
    assert code == 7, err
    assert re.search(r"rank 2 .*exited with code 7", err), err


def test_rank_is_killed(sshd: Sshd) -> None:
    job = Job(sshd, f"{FIRST}:1,{SECOND}:2", *python_ranks("stay"))
    job.read_ranks(3)[1].kill()
    code, out, err = job.end()
    assert code == 128 + signal.SIGKILL, err
    assert re.search(r"rank 1 .*SIGKILL", err), err
    assert "raised 0: 1" in out, err
    assert "raised 2: 1" in out, err


def test_rrun_is_killed(sshd: Sshd) -> None:
    job = Job(sshd, f"localhost:1,{FIRST}:2,{SECOND}:1", "sh", "-c", STAY)
    ranks = job.read_ranks(4)
    here = psutil.Process(job.process.pid).children(recursive=True)
    over_there = sshd.started()
    assert [rank for rank, process in sorted(ranks.items()) if process in over_there] == [1, 2, 3]
    job.process.kill()
    assert psutil.wait_procs(here, timeout=60)[1] == []
    assert job.end()[0] == -signal.SIGKILL


def test_connection_breaks(sshd: Sshd) -> None:
    job = Job(sshd, f"{FIRST}:1,{SECOND}:1", "sh", "-c", STAY)
    ranks = job.read_ranks(2)
    # The server's end of the second one goes, and with it nothing else over there.
    sshd.session_of(ranks[1]).kill()
    code, _, err = job.end()
    assert code == 1, err
    assert f"host {SECOND}" in err, err


def test_rrun_over_there_is_killed(sshd: Sshd) -> None:
    job = Job(sshd, f"{FIRST}:1,{SECOND}:1", "sh", "-c", STAY)
    parent = job.read_ranks(2)[1].parent()
    assert parent is not None
    parent.kill()
    code, _, err = job.end()
    assert code == 1, err
    assert f"host {SECOND}" in err, err


def test_host_that_refuses(sshd: Sshd) -> None:
    sshd.distrust()
    code, _, err = Job(sshd, f"localhost:1,{SECOND}:1", "true").end()
    assert code == 1, err
    assert "Host key verification failed" in err
    assert "rrun did not start there: ssh exited with code 255" in err
