"""Finds identifiers for which docs/glossary.md has another word, and private phrases in what users read.

One word, one meaning: these identifiers had another name in the field, or two meanings. The phrases are images where
the field has a verb, or speak of code as of a person. Prints ``file:line: ...`` for each identifier in the code (not in
comments and texts) of C++, Cython and Python sources, and for each phrase in pages (``.md``), in docstrings and in the
comments of C++ sources, and exits with 1 if there is one. A comment names code that has such a word in backticks, as a
page does.

    python scripts/lint_words.py cpp examples/cpp python/rapidsmpf python/cudf_polars docs README.md CONTRIBUTING.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The identifier, and what to call it instead.
WORDS = {
    "_amend": "_fix_view",
    "convict": "report_protocol_violation",
    "Departures": "ClosedPeers",
    "Facts": "DslFacts",
    "farewell": "goodbye",
    "Gathering": "Coalescing (Nagle's algorithm), or a word with Gather for the collective",
    "Guardian": "Reaper",
    "has_to_be_said": "must_flush",
    "Held": "Materialize",
    "hold_until_": "flush_deadline_",
    "hollow": "decommitted",
    "Hub": "OperationDispatcher",
    "hub": "dispatcher",
    "hub_": "dispatcher_",
    "is_held": "is_corked",
    "Landing": "ReceiveTransfer",
    "landing": "receive_transfer, or staging",
    "Lane": "PeerRoute",
    "let_others_in": "yield_to_waiters",
    "Links": "TransportSelector",
    "lock_in_turn": "lock_fairly",
    "MeetingPlace": "RendezvousFile",
    "Orders": "LaunchSpec",
    "Place": "RemoteAddress, or a word for what is in the place",
    "Placements": "PartitionOrderHint",
    "put_together": "concatenate, coalesce",
    "Refusal": "RejectedOperation, or UntranslatablePlan",
    "Sending": "SendTransfer",
    "SharedWord": "SharedFlag",
    "speaker_": "current_peer_",
    "SplitDesk": "SplitState",
    "Spread": "Partitioning, or RankTotals",
    "Trouble": "FailureDetector",
    "Turns": "FairMutex, or QueryQueue",
    "Verdict": "JobStatus",
    "VictimOrder": "EvictionQueue",
    "Wish": "SplitRequest",
    "WritingWord": "WriterLivenessFlag",
}
# The phrase, a regular expression, and what to say instead.
PHRASES = {
    r"\bputs? (?:[\w']+ ){0,3}together\b|\bputting (?:[\w']+ ){0,3}together\b": "concatenate, join or merge",
    r"\bcut(?:s|ting)?\b": "partition, split or divide",
    r"\bg(?:ives?|iving|iven|ave) (?:[\w']+ ){0,3}back\b": "release or return",
    r"\bleaves? word\b|\bwithout a word\b": "register or report",
    r"\bwho(?:m|so)?ever\b": "name the caller, the rank or the thread",
    r"\b(?:no|some|any|every)body(?:'s)?\b": "name the caller, the rank or the thread",
    r"\bknows? nothing of\b": "is independent of",
    r"\b(?:has|have|had) been said\b|\bhas to be said\b": "was called or sent",
    r"\bwants no more\b": "needs no more",
}
PYTHON = {".py", ".pyx", ".pxd"}
SUFFIXES = {".hpp", ".cpp", ".cu", ".cuh"} | PYTHON
_PHRASES = [(re.compile(phrase, re.IGNORECASE), instead) for phrase, instead in PHRASES.items()]
# Code and names in a page, and names in a comment.
_NOT_PROSE = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_WORD = re.compile(r"\b(?:" + "|".join(WORDS) + r")\b")
# Comments, and texts in which there may be what looks like one: raw ones, texts in one line, single characters.
_NOT_CODE = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|R"(?P<mark>[^(\s"]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
    r"|'(?:\\.|[^'\\\n])'",
    re.DOTALL,
)
_NOT_CYTHON = re.compile(r'"""(?:.|\n)*?"""|#[^\n]*|"(?:\\.|[^"\\\n])*"')


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def offences(text: str, *, cython: bool = False) -> Iterator[tuple[int, str]]:
    """Give the line and the word of each offence."""
    skipped = _NOT_CYTHON if cython else _NOT_CODE
    code = skipped.sub(lambda match: _blank(match[0]), text)
    for match in _WORD.finditer(code):
        yield code.count("\n", 0, match.start()) + 1, match[0]


def phrases(text: str) -> Iterator[tuple[int, str, str]]:
    """Give the line and the words of each private phrase, and what to say instead."""
    prose = _NOT_PROSE.sub(lambda match: _blank(match[0]), text)
    for line, words in enumerate(prose.splitlines(), 1):
        for phrase, instead in _PHRASES:
            for match in phrase.finditer(words):
                yield line, match[0], instead


def comments(text: str) -> str:
    """Return a C++ source without its code and its texts; lines stay where they are."""
    kept = _blank(text)
    for match in _NOT_CODE.finditer(text):
        if match["comment"] is not None:
            kept = kept[: match.start()] + match[0] + kept[match.end() :]
    return kept


def docstrings(text: str) -> str:
    """Return what a Python or Cython source says in texts with three quotes; lines stay where they are."""
    kept = _blank(text)
    for match in re.finditer(r'"""(?:.|\n)*?"""', text):
        kept = kept[: match.start()] + match[0] + kept[match.end() :]
    return kept


def prose(path: Path, text: str) -> str:
    """Return what of a file is prose: all of a page, the docstrings of Python, the comments of C++."""
    if path.suffix == ".md":
        return text
    if path.suffix in PYTHON:
        return docstrings(text)
    return comments(text)


def main() -> int:
    """Check the files that the arguments name, and those below folders."""
    found = 0
    for name in sys.argv[1:]:
        root = Path(name)
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.suffix not in SUFFIXES | {".md"}:
                continue
            text = path.read_text()
            if path.suffix in SUFFIXES:
                for line, word in offences(text, cython=path.suffix in PYTHON):
                    found += 1
                    print(f"{path}:{line}: {word}: say {WORDS[word]} (docs/glossary.md)")
            for line, words, instead in phrases(prose(path, text)):
                # Polars has a function of this name, and text files have cuts (lower/text_cuts.py).
                if path.suffix in PYTHON and words.lower().startswith("cut"):
                    continue
                found += 1
                print(f"{path}:{line}: {words!r}: say {instead}")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
