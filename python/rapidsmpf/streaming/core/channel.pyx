"""Channels between actors, and how Python's event loops and threads wait for them."""

cimport cython

import threading
from asyncio import _get_running_loop
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t, uintptr_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr
from libcpp.optional cimport optional
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.streaming.core.context cimport Context, cpp_Context
from rapidsmpf.streaming.core.message cimport Message, cpp_Message


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

cdef extern from "<rapidsmpf_python/channels.hpp>" namespace "rapidsmpf::python" nogil:
    shared_ptr[cpp_Progress] make_progress() except +translate_exception
    shared_ptr[cpp_Activity] make_outside_activity "rapidsmpf::streaming::detail::make_outside_activity"(
        shared_ptr[cpp_Progress]
    ) except +translate_exception
    shared_ptr[cpp_Channel] cpp_create_channel "rapidsmpf::python::create_channel"(
        const cpp_Context&, size_t, size_t
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/awaiting.hpp>" namespace "rapidsmpf::python":
    cdef cppclass cpp_AwaitHooks "rapidsmpf::python::AwaitHooks":
        object (*start)(object)
        object (*result)(object)
        int (*has_ended)(object) noexcept
        void (*abandon)(object) noexcept

    object await_operation(object, cpp_AwaitHooks*)

cdef extern from * nogil:
    """
    static void make_operation(
        std::optional<rapidsmpf::python::ChannelOperation>& operation,
        rapidsmpf::streaming::Channel& channel, bool on_metadata, int kind, rapidsmpf::streaming::Message& message) {
        operation.emplace(channel, on_metadata, kind, std::move(message));
    }
    static std::shared_ptr<rapidsmpf::python::Mailbox> make_mailbox() {
        return std::make_shared<rapidsmpf::python::Mailbox>();
    }
    """
    void make_operation(
        optional[cpp_Operation]&, cpp_Channel&, cpp_bool, int, cpp_Message&
    ) except +translate_exception
    shared_ptr[cpp_Mailbox] make_mailbox() except +translate_exception

__all__ = ["ActorAccount", "Channel", "LoopBox", "create_channel", "forget_loop", "loop_box", "waiting_in"]

# The account of the Python actor that runs in this context.
current_actor = ContextVar("rapidsmpf.streaming.actor", default=None)
cdef object _get_actor = current_actor.get
cdef object _main_thread = threading.main_thread
cdef object _this_thread = threading.current_thread

# Each event loop has a mailbox; the last one used is at hand.
cdef object _boxes = WeakKeyDictionary()
cdef object _last_loop = None
cdef LoopBox _last_box = None


cdef class LoopBox:
    """What an event loop is to look at: operations that have ended and actors that are to be cancelled."""

    def __init__(self, loop):
        self._handle = make_mailbox()
        loop.add_reader(self._handle.get().descriptor(), self._signalled)

    def _signalled(self):
        self._handle.get().clear_signal()
        self.deliver()

    def look(self):
        """Tell the loop of what has come, without waiting."""
        self.deliver()

    def may_sleep(self):
        """Tell the loop of what has come, or comes soon; whether there was nothing. Then it is to sleep, and to :meth:`wake_up`."""
        cdef cpp_bool found
        with nogil:
            found = self._handle.get().look() or not self._handle.get().fall_asleep()
        if found:
            self.deliver()
        return not found

    def wake_up(self):
        """It sleeps no longer."""
        self._handle.get().wake_up()

    cdef int add(self, Operation operation) except -1:
        # It waits from now on. As long as it does the mailbox refers to it.
        operation._next = self._first
        if self._first is not None:
            self._first._before = operation
        self._first = operation
        return 0

    cdef int remove(self, Operation operation) except -1:
        if operation._next is not None:
            operation._next._before = operation._before
        if operation._before is not None:
            operation._before._next = operation._next
        elif self._first is operation:
            self._first = operation._next
        operation._next = operation._before = None
        return 0

    cdef int deliver(self) except -1:
        cdef vector[PyObject*] objects
        cdef size_t i
        if not self._handle.get().has_any():
            return 0
        objects = self._handle.get().take()
        for i in range(objects.size()):
            each = <object> objects[i]
            Py_DECREF(each)
            if isinstance(each, Operation):
                (<Operation> each).completed()
            else:
                each()
        return 0


def loop_box(loop):
    """Return what a loop, of which is said when it sleeps, is to look at.

    Parameters
    ----------
    loop
        The loop.
    """
    cdef LoopBox box = box_of(loop)
    box.wake_up()
    return box


cdef LoopBox box_of(object loop):
    global _last_loop, _last_box
    if loop is _last_loop:
        return _last_box
    cdef LoopBox box = _boxes.get(loop)
    if box is None:
        box = LoopBox(loop)
        _boxes[loop] = box
    _last_loop = loop
    _last_box = box
    return box


def waiting_in(loop):
    """Return the futures of the operations that wait in a loop, with their actors; on the loop's thread.

    Parameters
    ----------
    loop
        The loop.
    """
    cdef LoopBox box = box_of(loop)
    cdef Operation each = box._first
    result = {}
    while each is not None:
        if each._future is not None:
            result[each._future] = each._actor
        each = each._next
    return result


def forget_loop(loop):
    """Let go of a loop that was closed.

    Parameters
    ----------
    loop
        The loop.
    """
    global _last_loop, _last_box
    cdef LoopBox box = _boxes.pop(loop, None)
    if box is not None:
        box._handle.get().close()
        box.deliver()
    if loop is _last_loop:
        _last_loop = None
        _last_box = None


cdef class ActorAccount:
    """What the operations of a Python actor have to know of it."""

    def __cinit__(self):
        self._progress = make_progress()
        self._activity = make_outside_activity(self._progress)

    def set_loop(self, loop):
        """Its coroutine runs in this loop, which runs as long as it does, in one thread.

        Parameters
        ----------
        loop
            The loop.
        """
        self._loop, self._box = loop, box_of(loop)
        self._progress.get().set_in_loop()

    cdef int sends(self, channel) except -1:
        return 0

    cdef int receives(self, channel) except -1:
        return 0

    def found_waiting(self, uint64_t operations):
        """Say that all that the actor does in its loop waits, for so many of its operations; zero: that it may run.

        Parameters
        ----------
        operations
            How many.
        """
        self._progress.get().found_waiting(operations)


@cython.freelist(16)
cdef class Operation:
    """A send, receive or drain, to be awaited once, in an event loop."""


    cdef cpp_bool must_wait(self) except? True:
        """Start it; whether it is to be awaited by :attr:`_future`."""
        cdef LoopBox box
        cdef unsigned long thread
        if self._started:
            raise RuntimeError("this operation was awaited twice")
        self._started = True
        # asyncio asks the system for the process's number each time that it is asked for the loop.
        thread = PyThread_get_thread_ident()
        if self._actor is not None and self._actor._thread == thread:
            loop, box = self._actor._loop, self._actor._box
        else:
            loop = _get_running_loop()
            if loop is None:
                raise RuntimeError(
                    "a channel is awaited in an event loop; other threads have the *_blocking methods"
                )
            box = box_of(loop)
            if self._actor is not None and loop is self._actor._loop:
                self._actor._thread = thread
        box._handle.get().enter()
        try:
            if self._handle.value().start_on_loop(box._handle.get()[0], <PyObject*> self):
                Py_INCREF(self)  # for the mailbox, which only this thread empties
                box.add(self)
                self._box = box
            else:
                self._done = True
        finally:
            # What has come meanwhile is for this thread to hand on, even if the start failed: nobody else is told of it.
            cpp_Mailbox.leave()
            box.deliver()
        if self._done:
            return False
        self._future = loop.create_future()
        return True

    cdef int abandon(self) except -1:
        """End the wait. What was received meanwhile stays in the channel."""
        self._future = None
        if self._done:
            self._handle.value().put_back()
        elif self._handle.value().withdraw():
            self._box.remove(self)
            Py_DECREF(self)
        else:
            self._abandoned = True
        return 0

    cdef int completed(self) except -1:
        self._box.remove(self)
        if self._abandoned:
            self._handle.value().put_back()
            return 0
        self._done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        return 0

    cdef object _result(self):
        cdef cpp_Message message
        if self._kind == RECEIVE:
            return Message.from_handle(message) if self._handle.value().take(message) else None
        cdef cpp_bool succeeded = self._handle.value().succeeded()
        return succeeded if self._kind == SEND else None

    def __await__(self):
        """Start it, and go on when it has ended."""
        return await_operation(self, &_await_hooks)

    cdef object block(self):
        cdef cpp_bool in_main = _this_thread() is _main_thread()
        if _get_running_loop() is not None:
            raise RuntimeError("a blocking channel operation would stall the event loop: await the other variant")
        self._started = True
        with nogil:
            self._handle.value().run_blocking(in_main)
        return self._result()


cdef object start_operation(object operation):
    return (<Operation> operation)._future if (<Operation> operation).must_wait() else None


cdef object result_of_operation(object operation):
    (<Operation> operation)._future = None
    return (<Operation> operation)._result()


cdef int operation_has_ended(object operation) noexcept:
    return (<Operation> operation)._done


cdef void abandon_operation(object operation) noexcept:
    (<Operation> operation).abandon()


cdef cpp_AwaitHooks _await_hooks
_await_hooks.start = start_operation
_await_hooks.result = result_of_operation
_await_hooks.has_ended = operation_has_ended
_await_hooks.abandon = abandon_operation


cdef class Channel:
    """A bounded queue of messages between actors, made by :meth:`Context.create_channel`.

    Any number of producers and consumers; those of one producer arrive in the order in which it sent them. The methods that
    return awaitables are for ``async def`` actors, those with ``blocking`` in their names for plain functions. Every operation
    raises the error of the network once an actor of it has failed.
    """

    def __init__(self):
        raise TypeError("channels come from Context.create_channel")

    def __class_getitem__(cls, parameters):
        """Return the class: ``Channel[TableChunk]`` is for those who check types."""
        return cls

    @staticmethod
    cdef Channel from_handle(shared_ptr[cpp_Channel] handle):
        cdef Channel self = Channel.__new__(Channel)
        self._id = <uintptr_t> handle.get()
        self._handle = move(handle)
        return self

    cdef Operation _operation(self, Kind kind, cpp_bool on_metadata, Message message=None):
        cdef Operation operation = Operation.__new__(Operation)
        cdef cpp_Message none
        cdef ActorAccount actor = _get_actor()
        if actor is not None:
            # Mostly the channel is the last one again.
            if kind != RECEIVE:
                if actor._last_sent is not self:
                    actor.sends(self)
                    actor._last_sent = self
            elif actor._last_received is not self:
                actor.receives(self)
                actor._last_received = self
        operation._kind, operation._actor, operation._channel = kind, actor, self
        if message is None:
            make_operation(operation._handle, self._handle.get()[0], on_metadata, kind, none)
        else:
            make_operation(operation._handle, self._handle.get()[0], on_metadata, kind, message._handle)
        if actor is not None:
            operation._handle.value().set_actor(actor._activity.get(), actor._progress.get(), on_metadata)
        return operation

    def send(self, Context ctx, Message message not None):
        """Return an awaitable that sends a message once there is room; its result is False if the receivers have shut down.

        Parameters
        ----------
        ctx
            The context.
        message
            It is left empty.

        Raises
        ------
        ValueError
            If the message is empty.
        RuntimeError
            If the channel was drained.
        """
        return self._operation(SEND, False, message)

    def recv(self, Context ctx):
        """Return an awaitable whose result is the next message, or None at the end.

        Parameters
        ----------
        ctx
            The context.
        """
        return self._operation(RECEIVE, False)

    def drain(self, Context ctx):
        """Return an awaitable that says that no more is sent, and waits until all was received.

        Parameters
        ----------
        ctx
            The context.
        """
        return self._operation(DRAIN, False)

    async def shutdown(self, Context ctx):
        """Say that no more is wanted: what is queued is dropped, and producers stop.

        Parameters
        ----------
        ctx
            The context.
        """
        self.shut_down()

    def send_metadata(self, Context ctx, Message message not None):
        """Return an awaitable that sends a metadata message, which is queued without a limit.

        Parameters
        ----------
        ctx
            The context.
        message
            It is left empty.
        """
        return self._operation(SEND, True, message)

    def recv_metadata(self, Context ctx):
        """Return an awaitable whose result is the next metadata message, or None at the end.

        Parameters
        ----------
        ctx
            The context.
        """
        return self._operation(RECEIVE, True)

    def drain_metadata(self, Context ctx):
        """Return an awaitable that says that no more metadata comes, and waits until all was received.

        Parameters
        ----------
        ctx
            The context.
        """
        return self._operation(DRAIN, True)

    async def shutdown_metadata(self, Context ctx):
        """Say that no more metadata is wanted.

        Parameters
        ----------
        ctx
            The context.
        """
        self._end(True, True)

    def send_blocking(self, Message message not None):
        """Send a message once there is room; return False if the receivers have shut down.

        Parameters
        ----------
        message
            It is left empty.

        Raises
        ------
        ValueError
            If the message is empty.
        RuntimeError
            If the channel was drained, or in an event loop.
        """
        return self._operation(SEND, False, message).block()

    def recv_blocking(self):
        """Return the next message, or None at the end; RuntimeError in an event loop."""
        return self._operation(RECEIVE, False).block()

    def drain_blocking(self):
        """Say that no more is sent, and wait until all was received; RuntimeError in an event loop."""
        return self._operation(DRAIN, False).block()

    def set_outside_producer(self):
        """Say that something sends to it that is no actor of the network."""
        self._handle.get().set_outside_producer()

    def set_outside_consumer(self):
        """Say that something receives from it that is no actor of the network."""
        self._handle.get().set_outside_consumer()

    def finish(self):
        """Say that no more is sent, and do not wait."""
        self._end(False, False)

    def shut_down(self):
        """Say that no more is wanted, in a plain function; see :meth:`shutdown`."""
        self._end(True, False)

    cdef int _end(self, cpp_bool shut, cpp_bool on_metadata) except -1:
        cdef LoopBox box = None
        cdef cpp_Channel* channel = self._handle.get()
        loop = _get_running_loop()
        if on_metadata:
            channel = &channel.metadata()
        if loop is not None:
            box = box_of(loop)
            box._handle.get().enter()
        try:
            with nogil:
                if shut:
                    channel.shutdown()
                else:
                    channel.finish()
        finally:
            cpp_Mailbox.leave()
        if box is not None:
            box.deliver()
        return 0

    def __aiter__(self):
        return self

    async def __anext__(self):
        message = await self._operation(RECEIVE, False)
        if message is None:
            raise StopAsyncIteration
        return message

    def __iter__(self):
        return self

    def __next__(self):
        message = self._operation(RECEIVE, False).block()
        if message is None:
            raise StopIteration
        return message

    def __len__(self):
        return self._handle.get().size()

    def __bool__(self):
        return True

    def __eq__(self, other):
        return isinstance(other, Channel) and self._id == (<Channel> other)._id

    def __hash__(self):
        return hash(self._id)

    @property
    def nbytes(self):
        """Bytes that the queued messages are known to take."""
        return self._handle.get().bytes()

    def __repr__(self):
        state = "closed" if self._handle.get().is_closed() else "finished" if self._handle.get().is_finished() else "open"
        return f"Channel({state}, {len(self)} messages)"


def create_channel(Context context not None, size_t messages, max_bytes):
    """Return a channel; see :meth:`Context.create_channel`.

    Parameters
    ----------
    context
        Its threads and memory.
    messages
        How many it holds.
    max_bytes
        How many bytes it holds; None: no limit.
    """
    cdef size_t most = <size_t> -1 if max_bytes is None else max_bytes
    return Channel.from_handle(cpp_create_channel(context._handle.get()[0], messages, most))
