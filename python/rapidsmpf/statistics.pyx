"""Named counters of what operations did."""

import os
from dataclasses import dataclass

from libcpp.memory cimport make_shared
from libcpp.utility cimport move

from rapidsmpf.config cimport Options

__all__ = ["MemoryRecord", "MemoryRecorder", "Statistics"]


@dataclass
class MemoryRecord:
    """What a named scope of memory profiling saw.

    Attributes
    ----------
    scoped
        The allocations that were made while the scope was active.
    global_peak
        The most bytes in use at any time during the scope, other threads and nested scopes included.
    num_calls
        How often the scope was entered.
    """

    scoped: object
    global_peak: int
    num_calls: int


class MemoryRecorder:
    """The context manager that :meth:`Statistics.memory_profiling` returns.

    Parameters
    ----------
    stats
        The statistics that gather the records.
    mr
        The memory resource whose allocations are recorded; None: nothing is recorded.
    name
        The scope's name.
    """

    def __init__(self, stats, mr, name):
        self._stats = stats
        self._mr = mr
        self._name = name

    def __enter__(self):
        return None

    def __exit__(self, exc_type, exc_value, traceback):
        return False


cdef class Statistics:
    """Counters with a name: how many values were added, their sum and the largest.

    Parameters
    ----------
    enable
        Whether to collect; operations on disabled statistics do nothing.
    mr
        A memory resource to profile. Only None (no memory profiling) in this version.

    Raises
    ------
    NotImplementedError
        If ``mr`` is given.
    """

    def __init__(self, bint enable, *, mr=None):
        if mr is not None:
            raise NotImplementedError("memory profiling is not in this version: mr must be None")
        self._mr = mr
        cdef cpp_Enabled enabled = cpp_Enabled.yes if enable else cpp_Enabled.no
        with nogil:
            self._handle = make_shared[cpp_Statistics](enabled)

    @staticmethod
    cdef Statistics from_handle(shared_ptr[cpp_Statistics] handle):
        cdef Statistics self = Statistics.__new__(Statistics)
        self._handle = move(handle)
        return self

    @classmethod
    def from_options(cls, mr, Options options not None):
        """Return statistics that the option ``statistics`` (default false) switches on.

        Parameters
        ----------
        mr
            As for the constructor.
        options
            The options.
        """
        return cls(options.get_or_default("statistics", default_value=False), mr=mr)

    @property
    def enabled(self):
        """Whether values are collected."""
        return self._handle.get().enabled()

    @property
    def memory_profiling_enabled(self):
        """Whether memory profiling is enabled."""
        return self._mr is not None

    def add_stat(self, str name not None, double value):
        """Add a value to a statistic.

        Parameters
        ----------
        name
            The statistic's name.
        value
            What to add.
        """
        cdef string key = name.encode()
        with nogil:
            self._handle.get().add(key, value)

    def get_stat(self, str name not None):
        """Return a statistic.

        Returns
        -------
        A dictionary of ``count`` (how many values were added), ``value`` (their sum) and ``max``.

        Raises
        ------
        KeyError
            If nothing was added to a statistic of that name.
        """
        cdef string key = name.encode()
        cdef cpp_Stat stat
        try:
            with nogil:
                stat = self._handle.get().get(key)
        except IndexError:
            raise KeyError(f"statistic {name!r} does not exist") from None
        return {"count": stat.count, "value": stat.value, "max": stat.max}

    def list_stat_names(self):
        """Return the names of the statistics that hold a value, sorted."""
        cdef vector[string] names
        with nogil:
            names = self._handle.get().names()
        return [(<bytes> name).decode() for name in names]

    def clear(self):
        """Drop all values; memory records stay."""
        with nogil:
            self._handle.get().clear()

    def get_memory_records(self):
        """Return the records of memory profiling by the names of their scopes."""
        return {}

    def memory_profiling(self, str name not None):
        """Return a context manager that profiles the memory of a block.

        It does nothing when memory profiling is not enabled.

        Parameters
        ----------
        name
            The scope's name: the key in :meth:`get_memory_records`.
        """
        return MemoryRecorder(self, self._mr, name)

    def report(self):
        """Return a table of the statistics for people."""
        cdef string text
        with nogil:
            text = self._handle.get().report()
        return text.decode()

    def write_json_string(self):
        """Return the statistics as JSON: ``{"statistics": {name: {"count", "value", "max"}}}``.

        Raises
        ------
        ValueError
            If a name holds a double quote, a backslash or a control character.
        """
        cdef string text
        with nogil:
            text = self._handle.get().to_json()
        return text.decode()

    def write_json(self, filepath):
        """Write :meth:`write_json_string` to a file, which is created or overwritten.

        Parameters
        ----------
        filepath
            The file.

        Raises
        ------
        OSError
            If the file cannot be written.
        ValueError
            As :meth:`write_json_string`; the file is not touched then.
        """
        text = self.write_json_string()
        with open(os.fspath(filepath), "w", encoding="utf-8") as file:
            file.write(text)
