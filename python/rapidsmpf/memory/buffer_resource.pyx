"""The arbiter of memory: who may allocate how much in which tier."""

from libc.stdint cimport uint64_t, uintptr_t
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.config cimport Options
from rapidsmpf.memory.memory_reservation cimport MemoryReservation
from rapidsmpf.memory.memory_resource cimport adaptor_of, resource_of
from rapidsmpf.memory.pinned_memory_resource cimport PinnedMemoryResource

from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.memory.pinned_memory_resource import PinnedMemoryResource as _PinnedMemoryResource
from rapidsmpf.memory.spill_manager import SpillManager
from rapidsmpf.memory.stream_pool import StreamPool
from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_BufferResource] make_resource "rapidsmpf::BufferResource::make"(
        cpp_Settings
    ) except +translate_exception
    cpp_Settings settings_from_options "rapidsmpf::BufferResource::settings_from_options"(
        cpp_Options, shared_ptr[cpp_Statistics]
    ) except +translate_exception
    double cpp_periodic_spill_check "rapidsmpf::python::periodic_spill_check_from_options"(
        cpp_Options
    ) except +translate_exception
    size_t num_streams_from_options(cpp_Options) except +translate_exception
    void set_periodic_spill_check(cpp_Settings&, double) except +translate_exception
    void set_limit(cpp_Settings&, cpp_MemoryType, const cpp_LimitAvailableMemory&) except +translate_exception
    void set_available_map(cpp_Settings&, const cpp_AvailableMemoryMap&) except +translate_exception
    cpp_bool device_is_cuda() except +translate_exception
    pair[unique_ptr[cpp_MemoryReservation], size_t] cpp_reserve "rapidsmpf::python::reserve"(
        cpp_BufferResource&, cpp_MemoryType, size_t, cpp_bool
    ) except +translate_exception
    unique_ptr[cpp_MemoryReservation] reserve_and_spill(
        cpp_BufferResource&, size_t, cpp_bool
    ) except +translate_exception

cdef extern from "<rapidsmpf/memory/detail/bytes_spilled.hpp>" namespace "rapidsmpf::detail" nogil:
    uint64_t bytes_spilled(const cpp_BufferResource&)

cdef extern from "<rapidsmpf_python/memory.hpp>" namespace "rapidsmpf::python":
    void set_available(cpp_Settings&, cpp_MemoryType, object) except +translate_exception
    void set_streams(cpp_Settings&, vector[uintptr_t], object) except +translate_exception

__all__ = [
    "AvailableMemoryMap",
    "BufferResource",
    "LimitAvailableMemory",
    "periodic_spill_check_from_options",
    "stream_pool_from_options",
]


cdef class LimitAvailableMemory:
    """How many bytes are left of a limit on what goes through a resource adaptor.

    As an availability function of a :class:`BufferResource` it is called without running Python.

    Parameters
    ----------
    mr
        The adaptor, which is kept alive.
    limit
        Bytes that may be in use.

    Examples
    --------
    >>> mr = RmmResourceAdaptor(...)
    >>> br = BufferResource(mr, memory_available={MemoryType.DEVICE: LimitAvailableMemory(mr, limit=1_000_000)})
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, mr not None, int64_t limit):
        self._handle.reset(new cpp_LimitAvailableMemory(adaptor_of(mr), limit))
        self._mr = mr

    def __call__(self):
        """Return the limit less what is in use; negative when that is more."""
        return self._handle.get().call()

    def __repr__(self):
        return f"LimitAvailableMemory({self._mr!r}, limit={self._handle.get().limit()})"


cdef class AvailableMemoryMap:
    """Availability functions of C++ by tier, for the argument ``memory_available`` of a :class:`BufferResource`."""

    def __init__(self):
        raise TypeError("use AvailableMemoryMap.from_options")

    @classmethod
    def from_options(cls, mr not None, Options options not None):
        """Return the functions that the options ask for.

        Parameters
        ----------
        mr
            The :class:`rapidsmpf.rmm_resource_adaptor.RmmResourceAdaptor` that device memory comes through.
        options
            ``spill_device_limit``: how much device memory may be in use, in bytes or as a share of what this process
            may use (default "80%"). On a CPU the process's resident memory counts too.

        Returns
        -------
        The functions. Tiers that the options do not limit have none.
        """
        cdef AvailableMemoryMap self = AvailableMemoryMap.__new__(AvailableMemoryMap)
        self._map = available_memory_from_options(adaptor_of(mr), (<Options> options)._handle)
        self._mr = mr
        return self


cdef int _set_available(cpp_Settings& settings, object tier, object function) except -1:
    cdef cpp_MemoryType type = <cpp_MemoryType> <int> tier
    if isinstance(function, LimitAvailableMemory):
        set_limit(settings, type, (<LimitAvailableMemory> function)._handle.get()[0])
    elif callable(function):
        set_available(settings, type, function)
    else:
        raise TypeError(f"memory_available[{tier.name}] must be callable, got {function.__class__.__name__}")
    return 0


cdef class BufferResource:
    """Reserves, allocates and moves memory.

    Parameters
    ----------
    device_mr
        Where device memory comes from: a resource of ``rmm.mr``, an RmmResourceAdaptor, or (on a CPU) a
        HostMemoryResource. None: the compute device's own.
    pinned_mr
        Where page-locked memory comes from. None: there is none, and allocating in ``PINNED_HOST`` fails whatever
        ``memory_available`` says.
    memory_available
        What says how many bytes of a tier are available, reservations not taken off: an :class:`AvailableMemoryMap`,
        or a dictionary from tier to a :class:`LimitAvailableMemory` or any other callable. A callable of Python is
        called in any thread. The other tiers are unlimited.
    periodic_spill_check
        Seconds between checks of memory pressure, or None for none.
    stream_pool
        A pool of streams, such as :class:`rmm.pylibrmm.cuda_stream_pool.CudaStreamPool`. None: 16 streams of the
        compute device.
    statistics
        Where to record what happens; None: nowhere.

    Raises
    ------
    TypeError
        If an argument is none of what it may be.
    ValueError
        If ``periodic_spill_check`` is not positive.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(
        self,
        device_mr=None,
        *,
        PinnedMemoryResource pinned_mr=None,
        memory_available=None,
        periodic_spill_check=1e-3,
        stream_pool=None,
        Statistics statistics=None,
    ):
        cdef cpp_Settings settings
        self._set_up(
            settings, device_mr, pinned_mr, memory_available, periodic_spill_check, stream_pool, statistics
        )

    cdef int _set_up(
        self,
        cpp_Settings settings,
        device_mr,
        PinnedMemoryResource pinned_mr,
        memory_available,
        periodic_spill_check,
        stream_pool,
        Statistics statistics,
    ) except -1:
        if periodic_spill_check is not None and not periodic_spill_check > 0:
            raise ValueError(f"periodic_spill_check must be positive or None, got {periodic_spill_check}")
        set_periodic_spill_check(settings, 0 if periodic_spill_check is None else periodic_spill_check)
        if device_mr is not None:
            settings.device_mr = resource_of(device_mr)
        if pinned_mr is not None:
            settings.pinned_mr = pinned_mr._handle
        if isinstance(memory_available, AvailableMemoryMap):
            set_available_map(settings, (<AvailableMemoryMap> memory_available)._map)
        elif memory_available is not None:
            for tier, function in memory_available.items():
                _set_available(settings, MemoryType(tier), function)
        if stream_pool is not None and not callable(getattr(stream_pool, "get_pool_size", None)):
            raise TypeError(
                "stream_pool must be a rmm.pylibrmm.cuda_stream_pool.CudaStreamPool or what stream_pool_from_options "
                f"returns, got {type(stream_pool).__name__}"
            )
        cdef vector[uintptr_t] streams
        if stream_pool is not None:
            for i in range(stream_pool.get_pool_size()):
                streams.push_back(stream_pool.get_stream(i).__cuda_stream__()[1])
            set_streams(settings, streams, stream_pool)
        if statistics is None:
            statistics = Statistics(False)
        settings.statistics = statistics._handle
        with nogil:
            self._handle = make_resource(move(settings))
        self._device_mr = device_mr
        self._pinned_mr = pinned_mr
        self._stream_pool = stream_pool
        self._statistics = statistics
        return 0

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @classmethod
    def from_options(cls, mr, Options options not None, *, Statistics statistics=None):
        """Return a resource as the options say.

        Parameters
        ----------
        mr
            The :class:`rapidsmpf.rmm_resource_adaptor.RmmResourceAdaptor` that device memory comes through; None: the
            compute device's own memory.
        options
            ``spill_device_limit``: bytes of device memory to use, or a share of what this process may use (default
            "80%"); ``pinned_memory`` and its kind (see :class:`PinnedMemoryResource`); ``periodic_spill_check``;
            ``num_streams``; ``statistics``: whether to collect them.
        statistics
            Where to record what happens; None: as the option ``statistics`` says.
        """
        if statistics is None:
            statistics = Statistics.from_options(None, options)
        cdef cpp_Settings settings = settings_from_options(options._handle, statistics._handle)
        cdef BufferResource self = BufferResource.__new__(BufferResource)
        self._set_up(
            settings,
            mr,
            _PinnedMemoryResource.from_options(options),
            None if mr is None else AvailableMemoryMap.from_options(mr, options),
            periodic_spill_check_from_options(options),
            stream_pool_from_options(options),
            statistics,
        )
        return self

    @property
    def device_mr(self):
        """Where device memory comes from; None: the compute device's own."""
        return self._device_mr

    @property
    def pinned_mr(self):
        """Where page-locked memory comes from; None: there is none."""
        return self._pinned_mr

    def stream_pool_size(self):
        """Return how many streams there are to work on."""
        return self._handle.get().num_streams()

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

    @property
    def bytes_spilled(self):
        """How many bytes were moved to a lower tier so far, as often as they were."""
        return bytes_spilled(self._handle.get()[0])

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
    return cpp_periodic_spill_check(options._handle) or None


def stream_pool_from_options(Options options not None):
    """Return a pool of as many streams as the option ``num_streams`` says (default 16).

    Returns
    -------
    On a GPU a :class:`rmm.pylibrmm.cuda_stream_pool.CudaStreamPool`, otherwise a
    :class:`rapidsmpf.memory.stream_pool.StreamPool`.

    Raises
    ------
    ValueError
        If the option is no number greater than 0.
    """
    count = num_streams_from_options(options._handle)
    if device_is_cuda():
        from rmm.pylibrmm.cuda_stream_pool import CudaStreamPool

        return CudaStreamPool(count)
    return StreamPool(count)
