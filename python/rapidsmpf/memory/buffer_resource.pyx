"""The arbiter of memory: who may allocate how much in which tier."""

from libcpp.utility cimport move

from rapidsmpf.config cimport Options
from rapidsmpf.memory.memory_reservation cimport MemoryReservation

from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.spill_manager import SpillManager
from rapidsmpf.utils.string import is_disabled, parse_duration


cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_Settings "rapidsmpf::BufferResource::Settings":
        cpp_Settings() except +translate_exception
        shared_ptr[cpp_Statistics] statistics

    shared_ptr[cpp_BufferResource] make_resource "rapidsmpf::BufferResource::make"(
        cpp_Settings
    ) except +translate_exception
    shared_ptr[cpp_BufferResource] make_from_options "rapidsmpf::BufferResource::from_options"(
        cpp_Options, shared_ptr[cpp_Statistics]
    ) except +translate_exception
    pair[unique_ptr[cpp_MemoryReservation], size_t] cpp_reserve "rapidsmpf::python::reserve"(
        cpp_BufferResource&, cpp_MemoryType, size_t, cpp_bool
    ) except +translate_exception
    unique_ptr[cpp_MemoryReservation] reserve_and_spill(
        cpp_BufferResource&, size_t, cpp_bool
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python":
    void set_available(cpp_Settings&, cpp_MemoryType, object) except +translate_exception

__all__ = ["BufferResource", "periodic_spill_check_from_options"]


def _refuse(name, value):
    if value is not None:
        raise NotImplementedError(f"{name} is not in this version: it must be None")


cdef class BufferResource:
    """Reserves, allocates and moves memory.

    Parameters
    ----------
    device_mr
        Where device memory comes from. Only None in this version: the compute device's own.
    pinned_mr
        Where page-locked memory comes from. Only None in this version: there is none.
    memory_available
        For each tier that is limited, a callable that returns how many bytes of it are available (reservations not
        taken off). It is called in any thread. The other tiers are unlimited.
    periodic_spill_check
        Seconds between checks of memory pressure, or None for none. In this version a reservation that does not fit
        is what starts spilling, so it has no effect.
    stream_pool
        Streams of the device. Only None in this version: the compute device's own.
    statistics
        Where to record what happens; None: nowhere.

    Raises
    ------
    NotImplementedError
        If an argument is given that only has None in this version.
    TypeError
        If ``memory_available`` holds something that is not callable.
    """

    def __init__(
        self,
        device_mr=None,
        *,
        pinned_mr=None,
        memory_available=None,
        periodic_spill_check=1e-3,
        stream_pool=None,
        Statistics statistics=None,
    ):
        _refuse("device_mr", device_mr)
        _refuse("pinned_mr", pinned_mr)
        _refuse("stream_pool", stream_pool)
        if periodic_spill_check is not None and not periodic_spill_check > 0:
            raise ValueError(f"periodic_spill_check must be positive or None, got {periodic_spill_check}")
        cdef cpp_Settings settings
        for tier, function in (memory_available or {}).items():
            if not callable(function):
                raise TypeError(
                    f"memory_available[{MemoryType(tier).name}] must be callable, got {type(function).__name__}"
                )
            set_available(settings, <cpp_MemoryType> <int> MemoryType(tier), function)
        if statistics is None:
            statistics = Statistics(False)
        settings.statistics = statistics._handle
        with nogil:
            self._handle = make_resource(move(settings))
        self._statistics = statistics

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @classmethod
    def from_options(cls, mr, Options options not None, *, Statistics statistics=None):
        """Return a resource as the options say.

        Parameters
        ----------
        mr
            As ``device_mr`` of the constructor.
        options
            ``spill_device_limit``: bytes of device memory to use, or a share of what this process may use (default
            "80%"); ``statistics``: whether to collect them.
        statistics
            Where to record what happens; None: as the option ``statistics`` says.
        """
        _refuse("mr", mr)
        if statistics is None:
            statistics = Statistics.from_options(None, options)
        cdef BufferResource self = BufferResource.__new__(BufferResource)
        cdef cpp_Options opts = options._handle
        cdef shared_ptr[cpp_Statistics] stats = statistics._handle
        with nogil:
            self._handle = make_from_options(opts, stats)
        self._statistics = statistics
        return self

    @property
    def device_mr(self):
        """Where device memory comes from; None: the compute device's own."""
        return None

    @property
    def pinned_mr(self):
        """Where page-locked memory comes from; None: there is none."""
        return None

    @property
    def statistics(self):
        """Where what happens is recorded."""
        return self._statistics

    @property
    def spill_manager(self):
        """Whom this resource asks when memory is short."""
        return SpillManager(self)

    def memory_available(self, mem_type):
        """Return how many bytes of a tier are available; negative when it is overbooked.

        Parameters
        ----------
        mem_type
            The tier.
        """
        cdef cpp_MemoryType tier = <cpp_MemoryType> <int> MemoryType(mem_type)
        cdef int64_t result
        with nogil:
            result = self._handle.get().memory_available(tier)
        return result

    def memory_reserved(self, mem_type):
        """Return how many bytes of a tier are reserved and not allocated yet.

        Parameters
        ----------
        mem_type
            The tier.
        """
        cdef cpp_MemoryType tier = <cpp_MemoryType> <int> MemoryType(mem_type)
        cdef int64_t result
        with nogil:
            result = self._handle.get().memory_reserved(tier)
        return result

    def reserve(self, mem_type, size_t size, *, bint allow_overbooking):
        """Reserve memory.

        Parameters
        ----------
        mem_type
            The tier.
        size
            Bytes.
        allow_overbooking
            Whether to reserve more than is available. Then the caller sees to it that as much is freed before the
            reservation is used.

        Returns
        -------
        The reservation, of size zero when it does not fit, and by how many bytes the tier is overbooked.
        """
        cdef cpp_MemoryType tier = <cpp_MemoryType> <int> MemoryType(mem_type)
        cdef cpp_bool allow = allow_overbooking
        cdef pair[unique_ptr[cpp_MemoryReservation], size_t] result
        with nogil:
            result = cpp_reserve(self._handle.get()[0], tier, size, allow)
        return MemoryReservation.from_handle(move(result.first), self), result.second

    def reserve_device_memory_and_spill(self, size_t size, *, bint allow_overbooking):
        """Reserve device memory; when there is not enough, spill first.

        Parameters
        ----------
        size
            Bytes.
        allow_overbooking
            Whether to reserve even if spilling did not free enough.

        Returns
        -------
        The reservation.

        Raises
        ------
        ReservationError
            If there is not enough and overbooking is not allowed.
        """
        cdef cpp_bool allow = allow_overbooking
        cdef unique_ptr[cpp_MemoryReservation] result
        with nogil:
            result = reserve_and_spill(self._handle.get()[0], size, allow)
        return MemoryReservation.from_handle(move(result), self)

    def release(self, MemoryReservation reservation not None, size_t size):
        """Consume a part of a reservation.

        Parameters
        ----------
        reservation
            The reservation, of this resource.
        size
            Bytes.

        Returns
        -------
        The bytes that it still holds.

        Raises
        ------
        ReservationError
            If it holds less than ``size``.
        """
        cdef size_t left
        with nogil:
            left = self._handle.get().release(reservation._handle.get()[0], size)
        return left


def periodic_spill_check_from_options(Options options not None):
    """Return the option ``periodic_spill_check`` (default "1ms") in seconds, None when it is switched off.

    Raises
    ------
    ValueError
        If it is neither a duration nor one of the words that switch it off.
    """
    def parse(text):
        return None if is_disabled(text) else parse_duration(text or "1ms")

    return options.get("periodic_spill_check", return_type=object, factory=parse)
