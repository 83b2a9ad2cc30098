"""Runs Python scripts as ranks of a job, under mpirun."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import pytest
from rapidsmpf.communicator import COMMUNICATORS

from support.leftovers import orphaned_segments
from support.ranks import Job

__all__ = ["ENVIRONMENT", "needs_mpi", "run_mpi_ranks"]

needs_mpi = pytest.mark.skipif(
    "mpi" not in COMMUNICATORS, reason="built without MPI, or mpi4py is not installed"
)

# Of Open MPI: more ranks than cores, as root, without binding each to a core, nothing but the loopback interface.
# Others do not know these and need none of them.
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_hwloc_default_binding_policy": "none",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


def run_mpi_ranks(
    nranks: int, script: str, *arguments: str, options: tuple[str, ...] = (), timeout: float = 120
) -> Job:
    """Run a script as ``nranks`` ranks; skip the test when there is no mpirun, fail it when shared memory is left.

    Parameters
    ----------
    nranks
        Number of ranks.
    script
        The Python code.
    arguments
        What ``sys.argv[1:]`` is to be.
    options
        Options of mpirun.
    timeout
        Seconds after which the job is killed and the test fails.
    """
    beside = Path(sys.executable).parent / "mpirun"
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is not installed")
    before = orphaned_segments()
    # Ranks that are killed do not remove their segments: they are in a folder of the job, which goes with it.
    shared_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="riverrun-mpi-", dir=shared_memory) as folder:
        done = subprocess.run(
            [mpirun, *options, "-n", str(nranks), sys.executable, "-c", textwrap.dedent(script), *arguments],
            env=os.environ | ENVIRONMENT | {"OMPI_MCA_btl_sm_backing_directory": folder},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    left = orphaned_segments() - before
    assert not left, f"the job has left {sorted(left)}"
    return Job(done.returncode, done.stdout, done.stderr)
