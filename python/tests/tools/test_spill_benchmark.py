"""The spill benchmark: how it reads, compares and judges what was measured."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks.spill.__main__ import (
    Measured,
    Round,
    missed,
    read_report,
    render,
    run_dd,
    run_ours,
    summarise,
)


def made_up(dd: float, ours: float, cpu: float) -> Round:
    return Round(
        {"write": Measured(dd, 0.1), "read": Measured(dd, 0.1)},
        {"write": Measured(ours, cpu), "read": Measured(2 * ours, cpu)},
    )


def test_the_ratio_is_that_of_the_medians() -> None:
    summary = summarise([made_up(1e9, 5e8, 0.1), made_up(2e9, 1e9, 0.2), made_up(9e9, 2e9, 0.3)])
    assert summary["write"]["ratio"] == 0.5
    assert summary["read"]["ratio"] == 1.0
    assert summary["write"]["our_cpu_share"] == 0.2
    assert "0.50" in render(summary)


def test_what_is_missed_is_said() -> None:
    summary = summarise([made_up(1e9, 6e8, 0.25)])
    assert missed(summary, 0.5, 0.3) == []
    assert missed(summary, 0.8, 0.3) == ["write: 0.60 of dd, less than 0.8"]
    assert missed(summary, 0.5, 0.2) == [
        "write: 25% of a core, more than 20%",
        "read: 25% of a core, more than 20%",
    ]


def test_a_report_has_one_transfer() -> None:
    entry = {"bytes_per_second": 2e9, "cpu_time": 1e8, "real_time": 1e9}
    assert read_report({"benchmarks": [entry]}) == Measured(2e9, 0.1)
    with pytest.raises(ValueError, match="unpack"):
        read_report({"benchmarks": []})


def test_our_program_gets_folder_and_size(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text(
        "#!/bin/sh\n"
        '[ "$1" = "--benchmark_filter=^disk_to_device/1024/" ] || exit 1\n'
        '[ "$RAPIDSMPF_SPILL_DIRECTORY" = /spill/here ] || exit 2\n'
        'echo \'{"benchmarks": [{"bytes_per_second": 5, "cpu_time": 1, "real_time": 4}]}\'\n'
    )
    program.chmod(0o700)
    assert run_ours(program, "read", Path("/spill/here"), 1024) == Measured(5, 0.25)
    with pytest.raises(subprocess.CalledProcessError):
        run_ours(program, "write", Path("/spill/here"), 1024)


def test_a_failed_dd_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        run_dd("read", tmp_path / "missing", 4)
