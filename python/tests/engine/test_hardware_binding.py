"""How an engine binds its process to what is near to its device."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

PRELUDE = """
import os, threading
import pytest
from rapidsmpf import topology
from rapidsmpf.topology import DeviceBinding
from cudf_polars.engine.hardware_binding import HardwareBindingPolicy as Policy, bind_to_device
from cudf_polars.engine.spmd import SPMDEngine

usable = sorted(os.sched_getaffinity(0))
mine = {usable[-1]}

def pretend(cpus, nodes=(), devices=()):
    # A GPU with these CPUs near it.
    topology.find_device_binding = lambda: DeviceBinding(tuple(cpus), tuple(nodes), tuple(devices))
"""


def run(script: str, **env: str) -> None:
    """Run a script in a process of its own: what is bound stays bound."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script)],
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_a_gpu_nothing_is_bound():
    run(
        """
        assert topology.find_device_binding() is None
        with SPMDEngine(engine_options={"hardware_binding": Policy(raise_on_fail=True)}):
            assert sorted(os.sched_getaffinity(0)) == usable
        """,
        RAPIDSMPF_DEVICE="cpu",
    )


def test_engine_binds_all_threads():
    run(
        """
        pretend(mine)
        begun, stop = threading.Event(), threading.Event()
        thread = threading.Thread(target=lambda: (begun.set(), stop.wait()))
        thread.start()
        begun.wait()
        with SPMDEngine(engine_options={"hardware_binding": Policy(raise_on_fail=True)}):
            assert os.sched_getaffinity(0) == mine
            assert os.sched_getaffinity(thread.native_id) == mine
        stop.set()
        thread.join()
        """
    )


def test_policy_says_what_and_when():
    run(
        """
        pretend(mine, devices=("mlx5_0:1", "mlx5_1:1"))
        os.environ.pop("UCX_NET_DEVICES", None)
        bind_to_device(Policy(enabled=False, network=True))
        bind_to_device(Policy(cpu=False, memory=False))
        assert sorted(os.sched_getaffinity(0)) == usable
        assert "UCX_NET_DEVICES" not in os.environ
        bind_to_device(Policy(network=True))  # once per process: that was the time
        assert "UCX_NET_DEVICES" not in os.environ
        bind_to_device(Policy(network=True, cpu=False, enable_once=False))
        assert os.environ["UCX_NET_DEVICES"] == "mlx5_0:1,mlx5_1:1"
        assert sorted(os.sched_getaffinity(0)) == usable
        """
    )


def test_binding_is_left_to_rrun():
    run(
        """
        pretend(mine)
        bind_to_device(Policy())
        assert sorted(os.sched_getaffinity(0)) == usable
        bind_to_device(Policy(skip_under_rrun=False))
        assert os.sched_getaffinity(0) == mine
        """,
        RRUN_RANK="0",
        RRUN_SOCKET_ADDR="127.0.0.1:1",
    )


def test_what_cannot_be_bound_is_an_error_only_if_asked():
    run(
        """
        pretend([60_000])
        bind_to_device(Policy(enable_once=False))
        assert sorted(os.sched_getaffinity(0)) == usable
        with pytest.raises(RuntimeError, match="cannot bind this process to CPUs 60000"):
            bind_to_device(Policy(enable_once=False, raise_on_fail=True))
        """
    )
