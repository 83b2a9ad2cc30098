"""Steps over whole tables, by all ranks and by one rank that gathers the rows, in turns.

    python -m benchmarks.spread --rows 8000000 --ranks 2

What is compared is the longest time that a rank took, the median of the turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import write_report
from benchmarks.pdsh.data import tool
from benchmarks.spread.queries import QUERIES, make_table


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spread",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=8_000_000, help="of 20 bytes each")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--queries", default=";".join(QUERIES))
    parser.add_argument("--folder", type=Path, help="where the table goes")
    parser.add_argument("--output", type=Path, help="write a record as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="riverrun-spread-", dir=given.folder) as name:
        make_table(Path(name), given.rows)
        worker = [
            sys.executable,
            "-m",
            "benchmarks.spread.worker",
            f"--data={name}",
            f"--turns={given.turns}",
        ]
        command = [tool("rrun"), "-n", str(given.ranks), *worker, f"--queries={given.queries}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    # Ranks may write to one line.
    said = [json.JSONDecoder().raw_decode(text)[0] for text in done.stdout.split("RESULT ")[1:]]
    if done.returncode:
        raise SystemExit((done.stdout + done.stderr)[-2000:])
    runs: list[dict[str, Any]] = []
    for query in given.queries.split(";"):
        ranks = [each["seconds"] for each in said if each["query"] == query]
        took = {
            who: statistics.median(max(turn) for turn in zip(*(rank[who] for rank in ranks), strict=True))
            for who in ("all", "one")
        }
        print(
            f"{query:16} all ranks {took['all']:6.2f} s   one gathers {took['one']:6.2f} s"
            f"   {took['all'] / took['one']:5.2f} x"
        )
        runs.append({"query": query, **took, "each_rank": ranks})
    if given.output:
        write_report(given.output, rows=given.rows, ranks=given.ranks, turns=given.turns, runs=runs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
