"""The tools that tell and check what a machine is made of."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from support.ranks import find_rrun, find_tool


def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=False, env={**os.environ, **(env or {})}
    )


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


@pytest.fixture
def two_sockets(tmp_path: Path) -> Path:
    """Make a tree like the /sys of a machine with two sockets, a GPU on the second one and a network card on each."""
    write(tmp_path / "devices/system/cpu/online", "0-3")
    write(tmp_path / "devices/system/node/online", "0-1")
    for node, cpus in enumerate(("0-1", "2-3")):
        folder = tmp_path / f"devices/system/node/node{node}"
        write(folder / "cpulist", cpus)
        write(folder / "distance", "10 21" if node == 0 else "21 10")
        write(folder / "meminfo", f"Node {node} MemTotal:  2048 kB")
        card = tmp_path / f"devices/pci0000:{node}0/0000:{node}1:00.0"
        write(card / "numa_node", str(node))
        write(card / f"infiniband/mlx5_{node}/ports/1/state", "4: ACTIVE")
        device = card / f"infiniband/mlx5_{node}"
        (device / "device").symlink_to(card)
        (tmp_path / "class/infiniband").mkdir(parents=True, exist_ok=True)
        (tmp_path / f"class/infiniband/mlx5_{node}").symlink_to(device)
    for cpu in range(4):
        topology = tmp_path / f"devices/system/cpu/cpu{cpu}/topology"
        write(topology / "physical_package_id", str(cpu // 2))
        write(topology / "core_id", str(cpu))
    gpu = tmp_path / "devices/pci0000:10/0000:12:00.0"
    write(gpu / "numa_node", "1")
    write(gpu / "local_cpulist", "2-3")
    write(gpu / "vendor", "0x10de")
    write(gpu / "class", "0x030200")
    (tmp_path / "bus/pci/devices").mkdir(parents=True)
    (tmp_path / "bus/pci/devices/0000:12:00.0").symlink_to(gpu)
    return tmp_path


def test_discovery_of_another_machine(two_sockets: Path) -> None:
    done = run(find_tool("topology_discovery"), "--sysfs", str(two_sockets))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["system"]["cpus"] == 4
    assert found["system"]["numa_nodes"] == 2
    assert [node["cpulist"] for node in found["numa_nodes"]] == ["0-1", "2-3"]
    assert found["numa_nodes"][0]["memory_bytes"] == 2048 * 1024
    (gpu,) = found["gpus"]
    assert gpu["numa_node"] == 1
    assert gpu["cpu_affinity"] == {"cpulist": "2-3", "cores": [2, 3]}
    assert gpu["memory_binding"] == [1]
    assert gpu["network_devices"] == ["mlx5_1:1"]
    assert [device["name"] for device in found["network_devices"]] == ["mlx5_0", "mlx5_1"]


def test_discovery_of_this_machine() -> None:
    done = run(find_tool("topology_discovery"))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["system"]["cpus"] >= len(os.sched_getaffinity(0))
    assert found["numa_nodes"]


def test_check_of_this_machine_under_rrun() -> None:
    done = run(find_rrun(), "-n", "2", find_tool("check_resource_binding"))
    assert done.returncode == 0, done.stdout + done.stderr
    lines = sorted(done.stdout.splitlines())
    assert [line.split(":")[0] for line in lines] == [
        f"rank {rank} {what}" for rank in range(2) for what in ("cpu", "memory", "network")
    ]
    assert all(line.endswith("(ok)") for line in lines)


def test_check_names_what_is_bound_elsewhere(two_sockets: Path) -> None:
    # Of the tree's GPU on the second socket this process, which runs on real CPUs, can only be near by chance.
    done = run(
        find_tool("check_resource_binding"),
        "--json",
        "--gpu",
        "0",
        "--sysfs",
        str(two_sockets),
        env={"UCX_NET_DEVICES": "mlx5_0:1"},
    )
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert found["gpu"] == 0
    assert not found["passed"]
    assert found["checks"]["network"] == {"passed": False, "is": "mlx5_0:1", "expected": "mlx5_1:1"}
    cpus = os.sched_getaffinity(0)
    assert found["checks"]["cpu"]["passed"] == (cpus <= {2, 3})


@pytest.mark.parametrize("tool", ["topology_discovery", "check_resource_binding"])
def test_mistakes_and_help(tool: str) -> None:
    assert run(find_tool(tool), "--what").returncode == 2
    assert f"usage: {tool}" in run(find_tool(tool), "--help").stdout
