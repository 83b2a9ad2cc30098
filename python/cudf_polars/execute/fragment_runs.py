"""Runs fragments by a compute device; one that fails on a rank that has no rows for it has no result there."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass

import polars as pl

from cudf_polars.execute.errors import failure_of_rank
from cudf_polars.execute.fragments import ComputeDevice, Reading
from cudf_polars.execute.pieces import Fragment
from cudf_polars.execute.streams import conform
from cudf_polars.lower.partitioning import Distribution
from cudf_polars.lower.physical import Stream, walk

__all__ = ["BegunFragment", "FragmentRuns"]


@dataclass(frozen=True)
class BegunFragment:
    """A fragment, its rows, and the run that makes them."""

    fragment: Fragment
    rows: Generator[pl.DataFrame]
    run: Iterator[pl.DataFrame]

    def close(self) -> None:
        """End the run, also one of which no row was read: a generator that did not begin leaves it as it is."""
        self.rows.close()
        if close := getattr(self.run, "close", None):
            close()


class FragmentRuns:
    """Runs one query's fragments on this rank, and keeps the errors of those that failed without rows.

    Parameters
    ----------
    device
        What runs the fragments.
    optimizations
        The user's optimisation flags, used for every fragment.
    """

    def __init__(self, device: ComputeDevice, optimizations: pl.QueryOptFlags) -> None:
        self._device, self._optimizations = device, optimizations
        self._failed: dict[Stream, BaseException] = {}
        self._ended: set[Stream] = set()

    def collect(self, stream: Stream, fragment: Fragment) -> pl.DataFrame:
        """Run a fragment that ends in ``stream`` and return its rows, with the types that Polars gave them."""
        try:
            frame = self._device.collect(fragment.frame, self._optimizations)
            self._ended.add(stream)
        except BaseException as error:
            if not self._failed_without_rows(stream, fragment, error):
                raise
            frame = pl.DataFrame(schema=dict(stream.schema))
        return frame

    def batches(
        self, stream: Stream, fragment: Fragment, *, planned: bool = True, ahead: int = 0
    ) -> Iterator[pl.DataFrame]:
        """Run a fragment that ends in ``stream`` and yield its rows, with the types of the plan or those of Polars.

        Parameters
        ----------
        ahead
            Bytes of rows that may wait until they are asked for.
        """
        return self.begin(stream, fragment, planned=planned, ahead=ahead).rows

    def batches_of_all(
        self, stream: Stream, fragments: Iterator[Fragment], *, planned: bool, early_limit: int
    ) -> Iterator[pl.DataFrame]:
        """Run the fragments that end in ``stream``, one after the other, and yield their rows.

        While the rows of one are read the next one begins, so that no processor waits for the end of the one and the
        beginning of the other.

        Parameters
        ----------
        early_limit
            A fragment may begin before its turn if the rows that it reads take up to so many bytes in the store.
        """
        current: BegunFragment | None = None
        following: BegunFragment | None = None
        try:
            while True:
                if current is None:
                    fragment = next(fragments, None)
                    if fragment is None:
                        return
                    current = self.begin(stream, fragment, planned=planned)
                is_first = True
                for batch in current.rows:
                    if is_first and (fragment := next(fragments, None)) is not None:
                        at_once = fragment.nbytes <= early_limit
                        following = self.begin(stream, fragment, planned=planned, at_once=at_once)
                    is_first = False
                    yield batch
                    del batch  # or it would stay until the next one has been made
                current, following = following, None
        finally:
            for begun in (current, following):
                if begun is not None:
                    begun.close()

    def begin(
        self,
        stream: Stream,
        fragment: Fragment,
        *,
        planned: bool = True,
        at_once: bool = False,
        ahead: int = 0,
    ) -> BegunFragment:
        """Begin a fragment that ends in ``stream``: now if ``at_once``, else when its first rows are asked for."""
        reading = Reading(ordered=stream.ordered or not planned, at_once=at_once, ahead=ahead)
        batches = self._device.batches(fragment.frame, self._optimizations, reading)
        return BegunFragment(fragment, self._read(stream, fragment, batches, planned), batches)

    def _read(
        self, stream: Stream, fragment: Fragment, batches: Iterator[pl.DataFrame], planned: bool
    ) -> Generator[pl.DataFrame]:
        try:
            for batch in batches:
                yield conform(batch, stream.schema) if planned else batch
                del batch  # or it would stay until the next one has been made
            self._ended.add(stream)
        except GeneratorExit:
            raise
        except BaseException as error:
            if not self._failed_without_rows(stream, fragment, error):
                raise

    def _failed_without_rows(self, stream: Stream, fragment: Fragment, error: BaseException) -> bool:
        """Whether a fragment failed because this rank has no rows for it, so that it has no result either.

        A user's function, and Polars now and then, fails on an empty part of a table that is not empty. Where the parts
        of all ranks are empty, the error stands: see :meth:`failures`.
        """
        excused = (
            isinstance(error, Exception | pl.exceptions.PanicException)
            and failure_of_rank(error) is None
            and stream.partitioning.distribution not in (Distribution.SINGLE, Distribution.REPLICATED)
            and fragment.had_no_rows()
        )
        if excused:
            self._failed.setdefault(stream, error)
        return excused

    def failures(self, root: Stream) -> dict[int, BaseException]:
        """Return, by place in the plan, the errors of fragments of which no piece has ended, for want of rows here."""
        return {
            place: self._failed[stream]
            for place, stream in enumerate(walk(root))
            if stream in self._failed and stream not in self._ended
        }
