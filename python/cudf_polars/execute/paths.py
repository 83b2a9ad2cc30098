"""The ways that the rows of a query can take on a rank, counted: tests see to it that each is taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["PATHS", "Paths"]

PARTITION = "a partition by itself"
OUTGROWN = "a partition of more rows than were planned"
DIVIDED = "a partition divided by another hash"
DIVIDED_TWICE = "a part of a partition divided by another hash"
RANGES = "a range divided into smaller ones"
BLOCKS = "a join block by block"
WHOLE = "a partition that is too large as a whole"
CHUNKS = "rows in chunks of any rows"
CARRIED = "chunks of rows beside summaries of the others"
KEPT = "rows kept for one reader"
KEPT_PARTITIONS = "partitions kept for several readers"
KEPT_WHOLE = "rows kept for several readers, not in partitions"
KEPT_EVERYWHERE = "rows of all ranks kept on each"
KEYS = "rows left out by the keys of a join's other side"
BLOOM_FILTER = "rows left out by a Bloom filter of such keys"
SPREAD = "rows with a heavy key of a join on all partitions"
TO_RANGES = "rows sent to the ranges of a file"
SORTED_RANGES = "sorted rows sent to ranges of their key"
READ_BEFORE = "keys of files read before their rows"
LOOKUP = "a join by lookup"
DIRECT = "groups by direct addressing"
TWO_SENDS = "rows sent in two operations, those that were measured first"

PATHS: Mapping[str, str] = {
    PARTITION: "a step runs over one partition after the other",
    OUTGROWN: "rows that were to be one partition are counted, and divided if they are too many",
    DIVIDED: "a partition with more bytes than the limit is divided by the hash of its keys, with another seed",
    DIVIDED_TWICE: "so is a part of it that is still too large",
    RANGES: "a range of a sort with more bytes than the limit is cut by keys sampled from it",
    BLOCKS: "a join whose keys cannot be told apart takes blocks of both sides",
    WHOLE: "a step that needs all rows of a key runs over a partition that is too large",
    CHUNKS: "a step that may be done over any rows takes some at a time",
    CARRIED: "a step that needs neighbouring rows takes chunks, each beside summaries of the rows around it",
    KEPT: "rows wait in the store: their number, or all of their keys, decide what comes next",
    KEPT_PARTITIONS: "rows that several steps read stay in the store, partition by partition",
    KEPT_WHOLE: "rows that several steps read stay in the store, in one piece",
    KEPT_EVERYWHERE: "the copy of a small side waits in the store",
    KEYS: "the larger side of a join is filtered before it moves, by the keys that the other one turned out to have",
    BLOOM_FILTER: "so it is where these are too many to be sent to every rank",
    SPREAD: "rows of a join that are many with one key are spread, and those that they match are copied",
    TO_RANGES: "a side of a join moves to the ranges that the other one, a file sorted by the key, is read in",
    SORTED_RANGES: "both sides of an as-of join move to the same ranges of their sorted keys",
    READ_BEFORE: "a sort reads the keys of files for the boundaries first, and sends their rows as they are read",
    LOOKUP: "rows of a side that was copied are found by the value of their key, which is a number",
    DIRECT: "of a chunk of rows, counts and sums by a key that is a number are computed by arrays",
    TWO_SENDS: "what was read of a side to measure it is sent before the rest",
}
"""The ways of the rows where a rank has several partitions, and when they are taken."""


@dataclass
class Paths:
    """How often each way was taken.

    Attributes
    ----------
    counts
        By a key of :data:`PATHS`.
    frames_held
        The most data frames that waited in Polars' memory between two steps.
    """

    counts: Counter[str] = field(default_factory=Counter)
    frames_held: int = 0

    def took(self, path: str) -> None:
        """Count a way."""
        assert path in PATHS
        self.counts[path] += 1
