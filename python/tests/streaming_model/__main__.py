"""Run many random networks: ``python -m streaming_model --first 0 --networks 20000``; the first that fails ends it."""

from __future__ import annotations

import argparse
import faulthandler
import sys
import time
from collections import Counter

from streaming_model.networks import run_network

MOST_SECONDS = 60
"""For one network; a longer one hangs: the stacks of all threads are printed, and the process ends."""


def main() -> int:
    """Run what the command line says."""
    parser = argparse.ArgumentParser(prog="python -m streaming_model", description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--networks", type=int, default=1000)
    given = parser.parse_args()
    ends: Counter[str] = Counter()
    messages = spilled = 0
    start = time.monotonic()
    for seed in range(given.first, given.first + given.networks):
        faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
        try:
            outcome = run_network(seed)
        except BaseException:
            print(f"network {seed} failed", file=sys.stderr)
            raise
        ends[outcome.ended_by] += 1
        messages += outcome.messages
        spilled += outcome.spilled > 0
    faulthandler.cancel_dump_traceback_later()
    seconds = time.monotonic() - start
    print(
        f"{given.networks} networks in {seconds:.1f} s: {dict(ends)}, {messages} messages, {spilled} networks spilled"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
