"""One file of each format, larger than a piece, read by several ranks: the bytes that each of them reads.

    python -m benchmarks.large_files --gigabytes 2 --ranks 2

Texts are counted by what a rank asks the system for; an IPC file, which Polars maps, by the bytes of it that are in the
rank's memory at most. CSV has quotes, newlines in them and CRLF: each part is read twice, first to count the quotes.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import polars as pl

from benchmarks.environment import write_report
from benchmarks.large_files.worker import FORMATS, totals
from benchmarks.pdsh.data import tool

_ROW_BYTES = 54
"""Of the CSV file."""


def make_files(folder: Path, nbytes: float) -> None:
    """Write the same rows in every format."""
    number = pl.int_range(int(nbytes / _ROW_BYTES), eager=True)
    text = pl.format('{}, "quoted"\r\nwith lines', number % 1000)
    table = pl.select(
        i=number,
        t=pl.when(number % 5 == 0).then(pl.lit("plain")).otherwise(text),
        f=(number * 31337 % 1000033) / 7,
        k=number % 97,
    )
    table.write_csv(folder / "rows.csv", line_terminator="\r\n")
    table.write_ndjson(folder / "rows.ndjson")
    table.write_ipc(folder / "rows.ipc", compression="uncompressed")


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.large_files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--gigabytes", type=float, default=2.0, help="of the CSV file; others have the same rows"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="where the files go")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="riverrun-large-files-", dir=given.folder) as name:
        folder = Path(name)
        make_files(folder, given.gigabytes * 1e9)
        expected = {kind: totals(folder, kind).collect(engine="streaming").row(0) for kind in FORMATS}
        command = [
            tool("rrun"),
            "-n",
            str(given.ranks),
            sys.executable,
            "-m",
            "benchmarks.large_files.worker",
            name,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        sizes = {kind: (folder / f"rows.{kind}").stat().st_size for kind in FORMATS}
    if done.returncode:
        raise SystemExit((done.stdout + done.stderr)[-2000:])
    # Ranks may write to one line.
    said = [json.JSONDecoder().raw_decode(text)[0] for text in done.stdout.split("RESULT ")[1:]]
    runs: list[dict[str, Any]] = []
    for kind in FORMATS:
        ranks = sorted((each for each in said if each["format"] == kind), key=lambda each: each["rank"])
        answer = next(each["answer"] for each in ranks if each["answer"])
        parts = [round(each["bytes_read"] / sizes[kind], 3) for each in ranks]
        is_equal = tuple(answer) == expected[kind]
        print(f"{kind:8} {sizes[kind] / 1e9:5.2f} GB   parts read by the ranks {parts}   equal {is_equal}")
        runs.append(
            {"format": kind, "bytes": sizes[kind], "parts_read": parts, "equal": is_equal, "ranks": ranks}
        )
    if given.output:
        write_report(given.output, gigabytes=given.gigabytes, ranks=given.ranks, runs=runs)
    return 0 if all(run["equal"] for run in runs) else 1


if __name__ == "__main__":
    sys.exit(main())
