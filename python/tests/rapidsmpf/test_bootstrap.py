"""Bootstrap outside of a job."""

from __future__ import annotations

import sys

import pytest
from rapidsmpf import bootstrap
from rapidsmpf.communicator import single, ucxx
from rapidsmpf.config import Options


@pytest.fixture(autouse=True)
def _no_job(monkeypatch):
    for name in ("RRUN_RANK", "RRUN_NRANKS", "RRUN_SOCKET_ADDR", "RRUN_SOCKET_TOKEN"):
        monkeypatch.delenv(name, raising=False)


def test_no_job():
    assert not bootstrap.is_running_with_rrun()


@pytest.mark.parametrize("call", [bootstrap.get_rank, bootstrap.get_nranks, bootstrap.create_ucxx_comm])
def test_needs_a_job(call):
    with pytest.raises(RuntimeError, match="rrun"):
        call()


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
