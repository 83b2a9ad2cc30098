"""Named counters of what operations did.

``docs/statistics.md`` lists what the library records.
"""

import os
from dataclasses import dataclass

from libcpp.memory cimport make_shared
from libcpp.utility cimport move

from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.memory.memory_resource cimport adaptor_of, cpp_RmmResourceAdaptor
from rapidsmpf.memory.scoped_memory_record cimport ScopedMemoryRecord

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from * nogil:
    """
    #include <span>
    #include <rapidsmpf/core/detail/option_table.hpp>
    #include <rapidsmpf/core/statistic_names.hpp>
    static bool statistics_wanted(rapidsmpf::config::Options const& options) {
        return rapidsmpf::config::get_bool(options, "statistics");
    }
    static rapidsmpf::StatisticsSnapshot read_snapshot(unsigned char const* data, std::size_t size) {
        return rapidsmpf::StatisticsSnapshot::deserialize({data, size});
    }
    // A row of the registry, as text.
    struct StatisticRow {
        std::string name, unit, kind, recorded, meaning;
    };
    static std::vector<StatisticRow> statistic_rows() {
        constexpr char const* units[] = {"", "bytes", "seconds"};
        constexpr char const* kinds[] = {"sum", "peak"};
        std::vector<StatisticRow> rows;
        for (auto const& info : rapidsmpf::statistic::table) {
            rows.push_back(
                {std::string{info.name.view()}, units[static_cast<int>(info.unit)],
                 kinds[static_cast<int>(info.kind)], std::string{info.recorded}, std::string{info.meaning}});
        }
        return rows;
    }
    """
    cdef cppclass StatisticRow:
        string name
        string unit
        string kind
        string recorded
        string meaning

    cpp_Snapshot read_snapshot(const uint8_t*, size_t) except +translate_exception
    vector[StatisticRow] statistic_rows() except +translate_exception
    cpp_bool statistics_wanted(const cpp_Options&) except +translate_exception

__all__ = ["MemoryRecord", "MemoryRecorder", "StatisticInfo", "Statistics", "registered_statistics"]


@dataclass(frozen=True)
class StatisticInfo:
    """A statistic that the library records.

    Attributes
    ----------
    name
        Its name.
    unit
        ``"bytes"``, ``"seconds"`` or empty.
    kind
        ``"sum"``: the value is the sum of what was added; ``"peak"``: the largest of it.
    recorded
        Where it is recorded.
    meaning
        What it says.
    """

    name: str
    unit: str
    kind: str
    recorded: str
    meaning: str


def registered_statistics():
    """Return what the library records: the table that ``docs/statistics.md`` shows."""
    return [
        StatisticInfo(
            (<bytes> row.name).decode(),
            (<bytes> row.unit).decode(),
            (<bytes> row.kind).decode(),
            (<bytes> row.recorded).decode(),
            (<bytes> row.meaning).decode(),
        )
        for row in statistic_rows()
    ]


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

    It is entered and left on one thread. It may be entered again, also while it is active.

    Parameters
    ----------
    stats
        The statistics that gather the records.
    mr
        The memory resource whose allocations are recorded; None: nothing is recorded.
    name
        The scope's name.
    """

    def __init__(self, Statistics stats not None, mr, str name not None):
        if mr is not None:
            adaptor_of(mr)  # checks its type
        self._stats = stats
        self._mr = mr if stats.memory_profiling_enabled else None
        self._name = name

    def __enter__(self):
        cdef shared_ptr[cpp_RmmResourceAdaptor] adaptor
        if self._mr is not None:
            adaptor = adaptor_of(self._mr)
            with nogil:
                adaptor.get().begin_scoped_memory_record()

    def __exit__(self, exc_type, exc_value, traceback):
        cdef shared_ptr[cpp_RmmResourceAdaptor] adaptor
        cdef cpp_ScopeMeasurement measured
        cdef string name
        cdef Statistics stats
        if self._mr is not None:
            stats = self._stats
            name = self._name.encode()
            adaptor = adaptor_of(self._mr)
            with nogil:
                measured = adaptor.get().end_scope()
                stats._profile.get().add(name, measured)
        return False


cdef class Statistics:
    """Counters with a name: how many values were added, their sum and the largest.

    Parameters
    ----------
    enable
        Whether to collect; operations on disabled statistics do nothing.
    mr
        An :class:`~rapidsmpf.rmm_resource_adaptor.RmmResourceAdaptor` whose allocations
        :meth:`memory_profiling` records; None: no memory profiling.

    Raises
    ------
    TypeError
        If ``mr`` is another memory resource.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, bint enable, *, mr=None):
        cdef cpp_Enabled enabled = cpp_Enabled.yes if enable else cpp_Enabled.no
        if mr is not None:
            adaptor_of(mr)  # checks its type
            if enable:
                self._profile = make_shared[cpp_MemoryProfile]()
        self._mr = mr
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

        Raises
        ------
        ValueError
            If the option is neither true nor false.
        """
        return cls(statistics_wanted(options._handle), mr=mr)

    @property
    def enabled(self):
        """Whether values are collected."""
        return self._handle.get().enabled()

    @property
    def memory_profiling_enabled(self):
        """Whether memory profiling is enabled."""
        return self._profile.get() != NULL

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

    def serialize(self):
        """Return the values in binary form, for another process; see :meth:`deserialize`.

        Memory records stay here: they are of this process.

        Raises
        ------
        ValueError
            If a name is longer than 1024 bytes.
        """
        cdef vector[uint8_t] data
        with nogil:
            data = self._handle.get().snapshot().serialize()
        return (<char*> data.data())[:data.size()]

    @staticmethod
    def deserialize(bytes serialized_buffer not None):
        """Return enabled statistics with the values that :meth:`serialize` wrote.

        Parameters
        ----------
        serialized_buffer
            What :meth:`serialize` returned.

        Raises
        ------
        ValueError
            If the bytes are malformed.
        """
        cdef const uint8_t* data = <const uint8_t*> <const char*> serialized_buffer
        cdef size_t size = len(serialized_buffer)
        cdef cpp_Snapshot values
        cdef Statistics result = Statistics(True)
        with nogil:
            values = read_snapshot(data, size)
            result._handle.get().merge(values)
        return result

    @staticmethod
    def merge(stats):
        """Return the statistics of several objects as one, such as those of all ranks.

        Counts and sums are added; of maxima and peaks the largest stays. Memory records are not merged.

        Parameters
        ----------
        stats
            The statistics, disabled ones included: they hold what they held when they were disabled.

        Returns
        -------
        New statistics, enabled.
        """
        cdef Statistics result = Statistics(True)
        cdef Statistics one
        for item in stats:
            one = item
            if one is None:
                raise TypeError("only Statistics can be merged, got None")
            with nogil:
                result._handle.get().merge(one._handle.get().snapshot())
        return result

    def __reduce__(self):
        return _restore, (self.enabled, self.serialize())

    def get_memory_records(self):
        """Return the :class:`MemoryRecord` of each scope of memory profiling, by its name."""
        cdef cpp_map[string, cpp_MemoryProfileRecord] records
        if self._profile.get() == NULL:
            return {}
        with nogil:
            records = self._profile.get().records()
        return {
            (<bytes> item.first).decode(): MemoryRecord(
                ScopedMemoryRecord.from_record(item.second.scoped),
                item.second.global_peak,
                item.second.num_calls,
            )
            for item in records
        }

    def memory_profiling(self, str name not None):
        """Return a context manager that profiles the memory of a block.

        What the block's thread allocates through the memory resource is added to the record of that name. Blocks
        nest: an outer one holds what the inner ones allocate. It does nothing when memory profiling is not enabled.

        Parameters
        ----------
        name
            The scope's name: the key in :meth:`get_memory_records`.

        Returns
        -------
        The :class:`MemoryRecorder`.

        Examples
        --------
        >>> mr = RmmResourceAdaptor(HostMemoryResource())  # doctest: +SKIP
        >>> stats = Statistics(True, mr=mr)  # doctest: +SKIP
        >>> with stats.memory_profiling("load"):  # doctest: +SKIP
        ...     load()
        >>> stats.get_memory_records()["load"].scoped.peak()  # doctest: +SKIP
        1024
        """
        return MemoryRecorder(self, self._mr, name)

    def report(self):
        """Return a table of the statistics for people, and of memory profiling when that is enabled."""
        cdef string text
        cdef string profile
        with nogil:
            text = self._handle.get().report()
            if self._profile.get() != NULL:
                profile = self._profile.get().report()
        return text.decode() + profile.decode()

    def write_json_string(self):
        """Return the statistics as JSON.

        Returns
        -------
        ``{"statistics": {name: {"count", "value", "max"}}}``, and, when there are memory records,
        ``"memory_records": {name: {"num_calls", "peak_bytes", "total_bytes", "global_peak_bytes"}}``.

        Raises
        ------
        ValueError
            If a name holds a double quote, a backslash or a control character.
        """
        cdef string more
        cdef string text
        with nogil:
            if self._profile.get() != NULL:
                more = self._profile.get().json_member()
            text = self._handle.get().snapshot().to_json(more)
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


def _restore(enabled, serialized):
    return Statistics.deserialize(serialized) if enabled else Statistics(False)
