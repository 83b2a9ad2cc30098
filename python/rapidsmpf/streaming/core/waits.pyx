"""What coroutines await besides channels: collectives, memory, messages that were spilled.

What is here is used by its documented names: ``coll.*``, ``core.memory_reserve_or_wait`` and ``core.spillable_messages``.
"""

from asyncio import CancelledError, get_running_loop

from libc.stddef cimport size_t
from libc.stdint cimport uint32_t, uint64_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.coll.allgather cimport AllGather, cpp_AllGather
from rapidsmpf.coll.allreduce cimport AllReduce, cpp_AllReduce
from rapidsmpf.error cimport translate_exception
from rapidsmpf.memory.memory_reservation cimport MemoryReservation, cpp_MemoryReservation
from rapidsmpf.memory.packed_data cimport PackedData, cpp_PackedData
from rapidsmpf.shuffler cimport Shuffler, cpp_Shuffler
from rapidsmpf.streaming.core.channel cimport cpp_Activity
from rapidsmpf.streaming.core.context cimport Context, cpp_Context
from rapidsmpf.streaming.core.message cimport Message, cpp_Message
from rapidsmpf.streaming.core.network cimport ActorEnd, cpp_Source

from rapidsmpf.memory.buffer import MemoryType
from rapidsmpf.streaming.core.channel import current_actor
from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/waits.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_GivesUp "rapidsmpf::streaming::CancellationToken::Registration":
        pass

    cdef cppclass cpp_Spillable "rapidsmpf::streaming::SpillableMessages":
        size_t size()
        size_t spill(size_t) except +translate_exception

    cdef cppclass FoundPartition:
        pass
    cdef cppclass FoundChunks:
        pass
    cdef cppclass FoundReservation:
        pass
    cdef cppclass FoundMessage:
        pass
    cdef cppclass FoundBytes:
        pass

    unique_ptr[cpp_GivesUp] shuffle_gives_up(const cpp_Source&, shared_ptr[cpp_Shuffler]) except +translate_exception
    unique_ptr[cpp_GivesUp] allgather_gives_up(
        const cpp_Source&, shared_ptr[cpp_AllGather]
    ) except +translate_exception
    shared_ptr[cpp_Source] make_cancellation() except +translate_exception
    shared_ptr[cpp_Spillable] make_spillable(const cpp_Context&) except +translate_exception
    uint64_t insert_spillable(cpp_Spillable&, cpp_Message&) except +translate_exception
    size_t spillable_bytes(const cpp_Spillable&, uint64_t, int) except +translate_exception
    vector[unique_ptr[cpp_PackedData]] take_chunks(const FoundChunks&) except +translate_exception
    unique_ptr[cpp_MemoryReservation] take_reservation(const FoundReservation&) except +translate_exception
    string take_bytes(const FoundBytes&) except +translate_exception

cdef extern from "<rapidsmpf_python/waits.hpp>" namespace "rapidsmpf::python":
    FoundPartition start_wait_any(
        const cpp_Context&, shared_ptr[cpp_Shuffler], const shared_ptr[cpp_Source]&, shared_ptr[cpp_Activity], object
    ) except +translate_exception
    void start_wait_on(
        const cpp_Context&, shared_ptr[cpp_Shuffler], uint32_t, const shared_ptr[cpp_Source]&, shared_ptr[cpp_Activity], object
    ) except +translate_exception
    FoundChunks start_gather(
        const cpp_Context&, shared_ptr[cpp_AllGather], cpp_bool, const shared_ptr[cpp_Source]&, shared_ptr[cpp_Activity], object
    ) except +translate_exception
    FoundBytes start_reduce(
        const cpp_Context&, shared_ptr[cpp_AllReduce], const shared_ptr[cpp_Source]&, shared_ptr[cpp_Activity], object
    ) except +translate_exception
    FoundReservation start_reserve(
        const cpp_Context&, size_t, int, int, const shared_ptr[cpp_Source]&, shared_ptr[cpp_Activity], object
    ) except +translate_exception
    FoundMessage start_extract(
        const shared_ptr[cpp_Spillable]&, uint64_t, const shared_ptr[cpp_Source]&, object
    ) except +translate_exception

cdef extern from * nogil:
    """
    static unsigned taken_partition(rapidsmpf::python::FoundPartition const& found) { return **found; }
    static void taken_message(
        rapidsmpf::python::FoundMessage const& found, rapidsmpf::streaming::Message& message) {
        message = std::move(**found);
    }
    """
    uint32_t taken_partition(const FoundPartition&)
    void taken_message(const FoundMessage&, cpp_Message&)

__all__ = ["GivesUp", "SpillableMessages", "gathered", "reduced", "reserved", "wait_any", "wait_on"]


cdef class Wait:
    """A wait that a coroutine is in: told of its end in another thread, and cancelled with the coroutine."""

    cdef shared_ptr[cpp_Source] _source
    cdef shared_ptr[cpp_Activity] _activity  # of the actor, if it is one's
    cdef object _loop
    cdef object _future

    def __init__(self):
        self._source = make_cancellation()
        actor = current_actor.get()
        if actor is not None:
            self._activity = (<ActorEnd> actor)._activity
        self._loop = get_running_loop()
        self._future = self._loop.create_future()

    def done(self, error):
        """Tell the loop; in any thread.

        Parameters
        ----------
        error
            What was raised, or None.
        """
        self._loop.call_soon_threadsafe(self._settle, error)

    def _settle(self, error):
        if self._future.done():
            return
        if error is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    async def end(self):
        """Wait for the end."""
        try:
            await self._future
        except CancelledError:
            with nogil:
                self._source.get().cancel()
            raise


cdef class GivesUp:
    """As long as it lives: if the network of this actor fails before this rank has inserted all, other ranks learn why.

    Nothing happens outside an actor.

    Parameters
    ----------
    collective
        A Shuffler or an AllGather.
    """

    cdef unique_ptr[cpp_GivesUp] _handle

    def __init__(self, collective):
        cdef ActorEnd actor = current_actor.get()
        if actor is None or actor._source is None:
            return
        if isinstance(collective, Shuffler):
            self._handle = shuffle_gives_up(actor._source._handle, (<Shuffler> collective).open())
        else:
            self._handle = allgather_gives_up(actor._source._handle, (<AllGather?> collective)._handle)

    def __dealloc__(self):
        # Waits for a call that is under way.
        with nogil:
            self._handle.reset()


async def wait_any(Context ctx not None, Shuffler shuffler not None):
    """Wait for a partition of this rank to be complete, and return it; IndexError when all were waited for.

    Parameters
    ----------
    ctx
        The context.
    shuffler
        The shuffle.
    """
    cdef Wait wait = Wait()
    cdef FoundPartition found = start_wait_any(ctx._handle.get()[0], shuffler.open(), wait._source, wait._activity, wait.done)
    await wait.end()
    return taken_partition(found)


async def wait_on(Context ctx not None, Shuffler shuffler not None, uint32_t pid):
    """Wait for a partition of this rank to be complete.

    Parameters
    ----------
    ctx
        The context.
    shuffler
        The shuffle.
    pid
        The partition.
    """
    cdef Wait wait = Wait()
    start_wait_on(ctx._handle.get()[0], shuffler.open(), pid, wait._source, wait._activity, wait.done)
    await wait.end()


async def gathered(Context ctx not None, AllGather allgather not None, cpp_bool ordered):
    """Wait for all ranks to have finished, and return their chunks.

    Parameters
    ----------
    ctx
        The context.
    allgather
        The collective.
    ordered
        Whether by rank and sequence number.
    """
    cdef Wait wait = Wait()
    cdef FoundChunks found = start_gather(
        ctx._handle.get()[0], allgather._handle, ordered, wait._source, wait._activity, wait.done
    )
    await wait.end()
    cdef vector[unique_ptr[cpp_PackedData]] chunks = take_chunks(found)
    return [PackedData.from_handle(move(chunks[i])) for i in range(chunks.size())]


async def reduced(Context ctx not None, AllReduce allreduce not None):
    """Wait for the value of all ranks, and return it.

    Parameters
    ----------
    ctx
        The context.
    allreduce
        The collective.
    """
    cdef Wait wait = Wait()
    cdef FoundBytes found = start_reduce(ctx._handle.get()[0], allreduce._handle, wait._source, wait._activity, wait.done)
    await wait.end()
    cdef string content = take_bytes(found)
    return allreduce._form.decode(bytearray((<char*> content.data())[:content.size()]))


async def reserved(Context ctx not None, size_t size, mem_type, allow_overbooking):
    """Wait for memory; see :func:`rapidsmpf.streaming.core.memory_reserve_or_wait.reserve_memory`.

    Parameters
    ----------
    ctx
        The context.
    size
        Bytes.
    mem_type
        The tier.
    allow_overbooking
        What happens when there is none; None: as the options say.
    """
    cdef Wait wait = Wait()
    cdef int allow = -1 if allow_overbooking is None else int(bool(allow_overbooking))
    cdef FoundReservation found = start_reserve(
        ctx._handle.get()[0], size, int(mem_type), allow, wait._source, wait._activity, wait.done
    )
    await wait.end()
    return MemoryReservation.from_handle(take_reservation(found), ctx.br())


cdef class SpillableMessages:
    """Messages that are kept for later, under the arbiter of memory: it may move what they hold to lower tiers.

    Parameters
    ----------
    ctx
        Memory and threads.
    """

    __signature__ = STUB_SIGNATURE

    cdef shared_ptr[cpp_Spillable] _handle
    cdef Context _context

    def __init__(self, Context ctx not None):
        self._handle = make_spillable(ctx._handle.get()[0])
        self._context = ctx

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    def insert(self, Message message not None):
        """Keep a message, and return its id.

        Parameters
        ----------
        message
            It is left empty.

        Raises
        ------
        ValueError
            If it is empty.
        """
        return insert_spillable(self._handle.get()[0], message._handle)

    async def extract(self, uint64_t mid):
        """Return a message, its bytes in memory; to be awaited.

        Parameters
        ----------
        mid
            The id that :meth:`insert` returned.

        Raises
        ------
        IndexError
            If there is none of that id.
        SpillError
            If its bytes cannot be read back.
        """
        cdef Wait wait = Wait()
        cdef FoundMessage found = start_extract(self._handle, mid, wait._source, wait.done)
        cdef cpp_Message message
        await wait.end()
        taken_message(found, message)
        return Message.from_handle(message)

    def nbytes(self, uint64_t mid, mem_type=None):
        """Return the bytes that a message holds now; IndexError when there is none of that id.

        Parameters
        ----------
        mid
            Its id.
        mem_type
            In this tier; None: in all.
        """
        if mem_type is not None:
            return spillable_bytes(self._handle.get()[0], mid, int(mem_type))
        return sum(spillable_bytes(self._handle.get()[0], mid, int(each)) for each in MemoryType)

    def spill(self, size_t amount):
        """Move messages to lower tiers that the arbiter does not move by itself, and return how many bytes were freed.

        Parameters
        ----------
        amount
            Bytes to free.
        """
        cdef size_t freed
        with nogil:
            freed = self._handle.get().spill(amount)
        return freed

    def __len__(self):
        return self._handle.get().size()
