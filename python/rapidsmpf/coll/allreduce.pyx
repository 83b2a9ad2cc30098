"""Combines one value of each rank into one that every rank gets."""

from libc.stdint cimport int32_t
from libcpp.string cimport string

from rapidsmpf.coll._values import encode
from rapidsmpf.signatures import STUB_SIGNATURE

from rapidsmpf.communicator.communicator cimport cpp_Communicator
from rapidsmpf.config cimport Options, cpp_Options
from rapidsmpf.memory.buffer_resource cimport BufferResource, cpp_BufferResource
from rapidsmpf.shuffler cimport cpp_ExchangeSettings, exchange_settings


cdef extern from "<rapidsmpf_python/collectives.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_AllReduce] make_named_allreduce(
        shared_ptr[cpp_Communicator], int32_t, string, string, string, const cpp_ExchangeSettings&,
        shared_ptr[cpp_BufferResource]
    ) except +translate_exception
    string reduced(cpp_AllReduce&, double) except +translate_exception

cdef extern from "<rapidsmpf_python/collectives.hpp>" namespace "rapidsmpf::python":
    # Gives the GIL up itself, once it has a share in the function.
    shared_ptr[cpp_AllReduce] make_callable_allreduce(
        shared_ptr[cpp_Communicator], int32_t, string, object, const cpp_ExchangeSettings&,
        shared_ptr[cpp_BufferResource]
    ) except +translate_exception

__all__ = ["AllReduce", "allreduce"]


cdef class AllReduce:
    """Combines one value of each rank into one that every rank gets.

    The values are combined in the order of the ranks, ``f(f(v0, v1), v2)`` and so on, once for all ranks: every rank
    gets the same bits, also for functions that are not commutative and for floating point. Once a rank has failed,
    every call raises RankFailedError.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        The operation's id, the same on all ranks and used by no other operation that is in progress. It may be used
        again when :meth:`wait_and_extract` has returned or this object is gone.
    value
        An int (of 64 bits), a float, a NumPy array or scalar, or another buffer of numbers; of the same type and
        shape on every rank. It is copied.
    reduction
        The same on every rank: ``"sum"``, ``"prod"``, ``"min"`` or ``"max"`` of each element (integers wrap around, a
        NaN is minimum and maximum), ``"or"`` of the bits of integers, or a function of two values like ``value``, that of the ranks so far and that of
        the next. It returns the result, or None after it has changed its first argument, an array. It runs on
        rank 0, in :meth:`wait_and_extract`: the other ranks wait for that call.
    options
        Options of the exchange (``exchange_frame_bytes`` and so on); None: the defaults.
    br
        Where the memory comes from, and whose budget it counts in; None: memory without a limit.

    Raises
    ------
    TypeError
        If the value is nothing that can be reduced.
    ValueError
        If there is no such reduction for these elements, or the id is in use or out of range.
    OverflowError
        If an int does not fit into 64 bits.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(
        self,
        Communicator comm not None,
        int32_t op_id,
        value,
        reduction="sum",
        *,
        Options options=None,
        BufferResource br=None,
    ):
        cdef cpp_ExchangeSettings settings
        cdef shared_ptr[cpp_BufferResource] resource
        cdef cpp_Options opts
        cdef string content
        cdef string name
        cdef string element_format
        if options is not None:
            opts = options._handle
        with nogil:
            settings = exchange_settings(opts)
        if br is not None:
            resource = br._handle
        raw, self._form = encode(value)
        content = raw
        if isinstance(reduction, str):
            name = reduction.encode()
            element_format = self._form.format.encode()
            with nogil:
                self._handle = make_named_allreduce(
                    comm._handle, op_id, content, name, element_format, settings, resource
                )
        elif callable(reduction):
            self._handle = make_callable_allreduce(
                comm._handle, op_id, content, self._form.combiner(reduction), settings, resource
            )
        else:
            raise TypeError(f"a reduction is a name or a function, not {type(reduction).__name__}")
        self._comm = comm

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @property
    def comm(self):
        """The ranks."""
        return self._comm

    def finished(self):
        """Whether the result is there."""
        cdef cpp_bool result
        with nogil:
            result = self._handle.get().finished()
        return result

    def wait_and_extract(self, *, timeout=None):
        """Wait for the result and take it out, once.

        Parameters
        ----------
        timeout
            Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

        Returns
        -------
        An int or float, or a NumPy array or other buffer with the type and shape of the value.

        Raises
        ------
        RuntimeError
            The second time; and when the function raised on another rank: the message quotes what. (On the rank where
            it raised, it is that exception.)
        ValueError
            If the ranks gave values of different sizes.
        TimeoutError
            If the time is up; the message names the ranks that are missing.
        RankFailedError
            If a rank failed.
        """
        cdef double seconds = -1 if timeout is None else max(0.0, timeout)
        cdef string content
        with nogil:
            content = reduced(self._handle.get()[0], seconds)
        return self._form.decode(bytearray((<char*> content.data())[:content.size()]))


def allreduce(Communicator comm not None, int32_t op_id, value, reduction="sum", *, timeout=None):
    """Combine one value of each rank and return the result: an :class:`AllReduce` in one call.

    Parameters
    ----------
    comm
        The ranks.
    op_id
        As for :class:`AllReduce`.
    value
        As for :class:`AllReduce`.
    reduction
        As for :class:`AllReduce`.
    timeout
        Seconds; None: the option ``collective_timeout`` (30 min), ``math.inf``: no limit.

    Returns
    -------
    The result, of the type and shape of the value.

    Raises
    ------
    TimeoutError
        If the time is up; the message names the ranks that are missing.
    RankFailedError
        If a rank failed.
    """
    return AllReduce(comm, op_id, value, reduction).wait_and_extract(timeout=timeout)
