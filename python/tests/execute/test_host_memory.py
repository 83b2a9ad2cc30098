"""Free memory as cgroups of version 1 and 2, and the machine, report it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cudf_polars.execute import host_memory
from cudf_polars.execute.host_memory import HostMemory

MIB = 1 << 20


def fields(**numbers: int) -> str:
    """Return a file of numbers by name."""
    return "".join(f"{name} {number}\n" for name, number in numbers.items())


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which the files of the kernel are: 8 GiB of memory, of which 6 are free, and no groups."""
    monkeypatch.setattr(host_memory, "_GROUPS", tmp_path)
    monkeypatch.setattr(host_memory, "_MEMBERSHIP", tmp_path / "self")
    monkeypatch.setattr(host_memory, "_MACHINE", tmp_path / "meminfo")
    kib = {
        "MemTotal": 8 << 20,
        "MemFree": 5 << 20,
        "MemAvailable": 7 << 20,
        "Cached": 2 << 20,
        "Shmem": 1 << 20,
    }
    (tmp_path / "meminfo").write_text("".join(f"{name}:  {number} kB\n" for name, number in kib.items()))
    return tmp_path


def group(folder: Path, version: int, limit: object, used: int, **statistics: int) -> None:
    """Make a cgroup."""
    folder.mkdir(parents=True, exist_ok=True)
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes")
        if version == 1
        else ("memory.max", "memory.current")
    )
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(fields(**statistics))


def test_a_machine_without_groups_has_what_is_free_and_the_files_that_can_go(kernel: Path) -> None:
    memory = HostMemory()
    assert (memory.total, memory.free()) == (8 << 30, 6 << 30)
    (kernel / "meminfo").unlink()
    assert memory.free() == memory.total


def test_version_2(kernel: Path) -> None:
    (kernel / "self").write_text("0::/outer/inner\n")
    group(kernel, 2, "max", 0)
    group(
        kernel / "outer", 2, 1000 * MIB, 900 * MIB, file=300 * MIB, shmem=100 * MIB, slab_reclaimable=20 * MIB
    )
    group(kernel / "outer" / "inner", 2, "max", 800 * MIB, file=0)
    memory = HostMemory()
    assert (memory.total, memory.free()) == (1000 * MIB, 320 * MIB)
    group(kernel / "outer" / "inner", 2, 500 * MIB, 450 * MIB, file=10 * MIB)
    memory = HostMemory()
    assert (memory.total, memory.free()) == (500 * MIB, 60 * MIB)


def test_version_1_has_statistics_with_and_without_the_groups_below(kernel: Path) -> None:
    (kernel / "self").write_text("3:cpu:/other\n7:memory,hugetlb:/job\n0::/\n")
    group(kernel / "memory", 1, (1 << 63) - 4096, 0)
    statistics = {"cache": MIB, "total_cache": 90 * MIB, "shmem": 0, "total_shmem": 50 * MIB}
    # Pages that were given back and taken again are on the lists of files.
    lists = {"inactive_file": 300 * MIB, "total_inactive_file": 300 * MIB}
    group(kernel / "memory" / "job", 1, 600 * MIB, 580 * MIB, **statistics, **lists)
    memory = HostMemory()
    assert (memory.total, memory.free()) == (600 * MIB, 60 * MIB)


def test_a_group_that_is_gone_limits_nothing(kernel: Path) -> None:
    (kernel / "self").write_text("0::/job\n")
    group(kernel / "job", 2, 100 * MIB, 0)
    memory = HostMemory()
    for name in ("memory.current", "memory.stat"):
        (kernel / "job" / name).unlink()
    assert memory.free() == 6 << 30


def test_this_machine() -> None:
    memory = HostMemory()
    assert 0 < memory.free() <= memory.total
    assert 0 <= memory.released() < memory.total
