"""Finds identifiers for which docs/glossary.md has another word.

One word, one meaning: these had another name in the field, or two meanings. Prints ``file:line: ...`` for each use
in the code (not in comments and texts) of C++ and Cython sources, and exits with 1 if there is one.

    python scripts/lint_words.py cpp examples/cpp python/rapidsmpf
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The identifier, and what to call it instead.
WORDS = {
    "Departures": "ClosedPeers",
    "Gathering": "Coalescing (Nagle's algorithm), or a word with Gather for the collective",
    "Guardian": "Reaper",
    "Hub": "OperationDispatcher",
    "Landing": "ReceiveTransfer",
    "Links": "TransportSelector",
    "MeetingPlace": "RendezvousFile",
    "Orders": "LaunchSpec",
    "Placements": "PartitionOrderHint",
    "Refusal": "RejectedOperation",
    "Sending": "SendTransfer",
    "SharedWord": "SharedFlag",
    "SplitDesk": "SplitState",
    "Trouble": "FailureDetector",
    "Turns": "FairMutex",
    "Verdict": "JobStatus",
    "VictimOrder": "EvictionQueue",
    "Wish": "SplitRequest",
    "WritingWord": "WriterLivenessFlag",
    "convict": "report_protocol_violation",
    "farewell": "goodbye",
    "has_to_be_said": "must_flush",
    "hold_until_": "flush_deadline_",
    "hollow": "decommitted",
    "hub": "dispatcher",
    "hub_": "dispatcher_",
    "landing": "receive_transfer, or staging",
    "let_others_in": "yield_to_waiters",
    "lock_in_turn": "lock_fairly",
    "speaker_": "current_peer_",
}
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh", ".pyx", ".pxd"}
_WORD = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b")
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_NOT_CYTHON = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"')


def offences(text: str, *, cython: bool = False) -> Iterator[tuple[int, str]]:
    """Give the line and the word of each offence."""
    skipped = _NOT_CYTHON if cython else _NOT_CODE
    code = skipped.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in _WORD.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, match[0]


def main() -> int:
    """Check the sources below the folders that the arguments name."""
    found = 0
    for folder in sys.argv[1:]:
        for path in sorted(Path(folder).rglob("*")):
            if path.suffix in SUFFIXES:
                for line, word in offences(path.read_text(), cython=path.suffix in {".pyx", ".pxd"}):
                    found += 1
                    print(f"{path}:{line}: {word}: say {WORDS[word]} (docs/glossary.md)")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
