"""What a user can set about how queries are distributed and run."""

from __future__ import annotations

from dataclasses import dataclass

from cudf_polars.lower.builder import Settings
from cudf_polars.lower.fallback import FallbackMode

__all__ = ["ExecutionOptions"]

_BROADCAST_LIMIT = 64 << 20


@dataclass(frozen=True)
class ExecutionOptions:
    """Options of one query's run.

    Attributes
    ----------
    fallback_mode
        What to do when a step cannot be distributed and runs on one rank: ``"warn"``, ``"raise"``
        (``NotImplementedError``) or ``"silent"``.
    broadcast_limit
        Bytes up to which a join's side is copied to every rank; 0 chooses (64 MiB).
    target_partition_size
        Bytes that a partition should have; 0 chooses. Parts of a rank are not split further yet.
    max_rows_per_partition
        Rows that a partition of an in-memory frame may have. Parts of a rank are not split further yet.
    small_limit
        Bytes over all ranks up to which partial results go to rank 0 instead of being distributed.
    read_everywhere_limit
        Bytes up to which every rank reads a table itself rather than be sent it.
    head_limit
        Rows up to which the head of a sort is merged from the ranks' heads.
    """

    fallback_mode: FallbackMode = "warn"
    broadcast_limit: int = 0
    target_partition_size: int = 0
    max_rows_per_partition: int = 1_000_000
    small_limit: int = 256 << 10
    read_everywhere_limit: int = 1 << 20
    head_limit: int = 100_000

    def __post_init__(self) -> None:
        if self.fallback_mode not in ("warn", "raise", "silent"):
            raise ValueError(f"fallback_mode must be 'warn', 'raise' or 'silent', not {self.fallback_mode!r}")
        for name in (
            "broadcast_limit",
            "target_partition_size",
            "small_limit",
            "read_everywhere_limit",
            "head_limit",
        ):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    @classmethod
    def tiny(cls, fallback_mode: FallbackMode = "warn") -> ExecutionOptions:
        """Return options under which the smallest data takes the paths of large data: for tests."""
        return cls(
            fallback_mode=fallback_mode,
            broadcast_limit=1,
            small_limit=0,
            read_everywhere_limit=0,
            head_limit=4,
        )

    def settings(self, nranks: int) -> Settings:
        """Return what the planner decides by."""
        return Settings(
            nranks=nranks,
            broadcast_limit=self.broadcast_limit or _BROADCAST_LIMIT,
            small_limit=self.small_limit,
            read_everywhere_limit=self.read_everywhere_limit,
            head_limit=self.head_limit,
            fallback_mode=self.fallback_mode,
        )
