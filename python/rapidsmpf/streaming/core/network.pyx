"""Channels, and the actors at their ends: how Python's event loops and threads wait for channels, and how networks run.

What is here is used by its documented names: ``core.channel``, ``core.actor``, ``core.fanout``, ``core.lineariser``,
``core.leaf_actor`` and ``core.cancellation``.
"""

import threading
from asyncio import _get_running_loop
from contextvars import ContextVar
from weakref import WeakKeyDictionary

from cpython.object cimport PyObject
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stddef cimport size_t
from libc.stdint cimport uintptr_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.streaming.core.context cimport Context, cpp_Context
from rapidsmpf.streaming.core.message cimport Message, cpp_Message


cdef extern from "Python.h":
    unsigned long PyThread_get_thread_ident() nogil

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from "<rapidsmpf_python/networks.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_Trace "rapidsmpf::streaming::NetworkTrace":
        string json() except +translate_exception
        size_t num_events()
        size_t num_dropped()

    cdef cppclass cpp_Channel "rapidsmpf::streaming::Channel":
        cpp_Channel& metadata() except +translate_exception
        void finish() except +translate_exception
        void shutdown() except +translate_exception
        size_t size()
        size_t bytes()
        cpp_bool is_finished()
        cpp_bool is_closed()
        void set_outside_producer() except +translate_exception
        void set_outside_consumer() except +translate_exception
        void set_trace(shared_ptr[cpp_Trace])

    cdef cppclass cpp_Operation "rapidsmpf::python::ChannelOperation":
        void set_activity(shared_ptr[cpp_Activity])
        cpp_bool start_on_loop(shared_ptr[cpp_Mailbox], PyObject*) except +translate_exception
        cpp_bool withdraw() except +translate_exception
        void run_blocking(cpp_bool) except +translate_exception
        cpp_bool succeeded() except +translate_exception
        cpp_bool take(cpp_Message&) except +translate_exception
        void put_back() except +translate_exception

    cdef cppclass cpp_Actor "rapidsmpf::streaming::Actor":
        const string& name()
        vector[shared_ptr[cpp_Channel]] inputs()
        vector[shared_ptr[cpp_Channel]] outputs()

    cdef cppclass cpp_Lineariser "rapidsmpf::streaming::Lineariser":
        vector[shared_ptr[cpp_Channel]] producers()

    shared_ptr[cpp_Activity] make_activity "rapidsmpf::streaming::make_activity"() except +translate_exception
    shared_ptr[cpp_Trace] make_trace(size_t) except +translate_exception
    string cpp_describe "rapidsmpf::python::describe_networks"(
        const cpp_Context&, cpp_bool
    ) except +translate_exception
    shared_ptr[cpp_End] make_end(const cpp_Context&) except +translate_exception
    void run_network(
        const cpp_Context&, vector[unique_ptr[cpp_Actor]], const cpp_Source&, shared_ptr[cpp_Trace]
    ) except +translate_exception
    void run_network_interruptibly(
        const cpp_Context&, vector[unique_ptr[cpp_Actor]], cpp_Source, const vector[shared_ptr[cpp_End]]&,
        shared_ptr[cpp_Trace]
    ) except +translate_exception
    shared_ptr[cpp_Channel] cpp_create_channel "rapidsmpf::python::create_channel"(
        const cpp_Context&, size_t, size_t
    ) except +translate_exception
    unique_ptr[cpp_Actor] fanout_actor(
        const cpp_Context&, shared_ptr[cpp_Channel], vector[shared_ptr[cpp_Channel]], cpp_bool
    ) except +translate_exception
    unique_ptr[cpp_Lineariser] make_lineariser(
        const cpp_Context&, shared_ptr[cpp_Channel], size_t, size_t
    ) except +translate_exception
    unique_ptr[cpp_Actor] lineariser_actor(cpp_Lineariser&) except +translate_exception
    unique_ptr[cpp_Actor] push_actor(
        shared_ptr[cpp_Channel], shared_ptr[vector[cpp_Message]]
    ) except +translate_exception
    unique_ptr[cpp_Actor] pull_actor(
        shared_ptr[cpp_Channel], shared_ptr[vector[cpp_Message]]
    ) except +translate_exception

cdef extern from "<rapidsmpf_python/networks.hpp>" namespace "rapidsmpf::python":
    void fail_end(cpp_End&, object) except +translate_exception
    unique_ptr[cpp_Actor] outside_actor(
        string, shared_ptr[cpp_End], vector[shared_ptr[cpp_Channel]], vector[shared_ptr[cpp_Channel]],
        shared_ptr[cpp_Mailbox], PyObject*, shared_ptr[cpp_Activity]
    ) except +translate_exception

cdef extern from * nogil:
    """
    static std::unique_ptr<rapidsmpf::python::ChannelOperation> make_operation(
        std::shared_ptr<rapidsmpf::streaming::Channel> channel, bool on_metadata, int kind,
        rapidsmpf::streaming::Message& message) {
        return std::make_unique<rapidsmpf::python::ChannelOperation>(
            std::move(channel), on_metadata, kind, std::move(message));
    }
    static std::shared_ptr<rapidsmpf::python::Mailbox> make_mailbox() {
        return std::make_shared<rapidsmpf::python::Mailbox>();
    }
    static std::shared_ptr<std::vector<rapidsmpf::streaming::Message>> make_messages() {
        return std::make_shared<std::vector<rapidsmpf::streaming::Message>>();
    }
    static void append_message(
        std::vector<rapidsmpf::streaming::Message>& messages, rapidsmpf::streaming::Message& message) {
        messages.push_back(std::move(message));
    }
    """
    unique_ptr[cpp_Operation] make_operation(
        shared_ptr[cpp_Channel], cpp_bool, int, cpp_Message&
    ) except +translate_exception
    shared_ptr[cpp_Mailbox] make_mailbox() except +translate_exception
    shared_ptr[vector[cpp_Message]] make_messages() except +translate_exception
    void append_message(vector[cpp_Message]&, cpp_Message&) except +translate_exception

__all__ = [
    "ActorEnd",
    "CancellationSource",
    "Channel",
    "CppActor",
    "DeferredMessages",
    "Lineariser",
    "NetworkTrace",
    "create_channel",
    "describe_networks",
    "fanout_to",
    "forget_loop",
    "pull_from",
    "push_into",
    "run_actors",
]

cdef enum Kind:
    SEND
    RECEIVE
    DRAIN

# The ActorEnd of the Python actor that runs in this context.
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


cdef LoopBox _box_of(object loop):
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


def forget_loop(loop):
    """Let go of a loop that was closed.

    Parameters
    ----------
    loop
        The loop.
    """
    global _last_loop, _last_box
    _boxes.pop(loop, None)
    if loop is _last_loop:
        _last_loop = None
        _last_box = None


cdef class Operation:
    """A send, receive or drain, to be awaited once, in an event loop."""

    cdef unique_ptr[cpp_Operation] _handle
    cdef ActorEnd _actor
    cdef Kind _kind
    cdef object _future
    cdef cpp_bool _started
    cdef cpp_bool _done
    cdef cpp_bool _abandoned

    cdef cpp_bool must_wait(self) except? True:
        """Start it; whether it is to be awaited by :attr:`_future`."""
        cdef LoopBox box
        cdef unsigned long thread
        if self._started:
            raise RuntimeError("this operation was awaited twice")
        self._started = True
        # asyncio asks the system for the process's number each time that it is asked for the loop.
        thread = PyThread_get_thread_ident()
        # A function on a thread may have had another loop there before.
        if self._actor is not None and self._actor._thread == thread and self._actor._loop.is_running():
            loop, box = self._actor._loop, self._actor._box
        else:
            loop = _get_running_loop()
            if loop is None:
                raise RuntimeError(
                    "a channel is awaited in an event loop; other threads have the *_blocking methods"
                )
            box = _box_of(loop)
            if self._actor is not None:
                self._actor._loop, self._actor._box, self._actor._thread = loop, box, thread
        box._handle.get().enter()
        try:
            if self._handle.get().start_on_loop(box._handle, <PyObject*> self):
                Py_INCREF(self)  # for the mailbox, which only this thread empties
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
            self._handle.get().put_back()
        elif self._handle.get().withdraw():
            Py_DECREF(self)
        else:
            self._abandoned = True
        return 0

    cdef int completed(self) except -1:
        if self._abandoned:
            self._handle.get().put_back()
            return 0
        self._done = True
        if self._future is not None and not self._future.done():
            self._future.set_result(None)
        return 0

    cdef object _result(self):
        cdef cpp_Message message
        if self._kind == RECEIVE:
            return Message.from_handle(message) if self._handle.get().take(message) else None
        cdef cpp_bool succeeded = self._handle.get().succeeded()
        return succeeded if self._kind == SEND else None

    def __await__(self):
        """Start it, and go on when it has ended."""
        if self.must_wait():
            try:
                yield from self._future
            except BaseException:
                self.abandon()
                raise
            self._future = None
        return self._result()

    cdef object block(self):
        cdef cpp_bool in_main = _this_thread() is _main_thread()
        if _get_running_loop() is not None:
            raise RuntimeError("a blocking channel operation would stall the event loop: await the other variant")
        self._started = True
        with nogil:
            self._handle.get().run_blocking(in_main)
        return self._result()


cdef class Channel:
    """A bounded queue of messages between actors, made by :meth:`Context.create_channel`.

    Any number of producers and consumers; those of one producer arrive in the order in which it sent them. The methods that
    return awaitables are for ``async def`` actors, those with ``blocking`` in their names for plain functions. Every operation
    raises the error of the network once an actor of it has failed.
    """

    cdef shared_ptr[cpp_Channel] _handle
    cdef object _id

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
        actor = _get_actor()
        if actor is not None:
            if kind == RECEIVE:
                (<ActorEnd> actor).receives(self)
            else:
                (<ActorEnd> actor).sends(self)
        operation._kind, operation._actor = kind, actor
        if message is None:
            operation._handle = make_operation(self._handle, on_metadata, kind, none)
        else:
            operation._handle = make_operation(self._handle, on_metadata, kind, message._handle)
        if actor is not None and not on_metadata:
            operation._handle.get().set_activity((<ActorEnd> actor)._activity)
        return operation

    def send(self, Context ctx, Message message not None):
        """Return an awaitable that sends a message once there is room; it gives False when no receiver wants messages any more.

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
        """Return an awaitable that gives the next message, or None at the end.

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
        """Return an awaitable that sends a message about the stream of messages; there is always room.

        Parameters
        ----------
        ctx
            The context.
        message
            It is left empty.
        """
        return self._operation(SEND, True, message)

    def recv_metadata(self, Context ctx):
        """Return an awaitable that gives the next message about the stream, or None at the end.

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
        """Send a message once there is room; False when no receiver wants messages any more.

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

    def set_trace(self, NetworkTrace trace not None):
        """Have a trace be told of operations before the network begins, which does so itself.

        Parameters
        ----------
        trace
            The trace.
        """
        self._handle.get().set_trace(trace._handle)

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
            box = _box_of(loop)
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


cdef class CppActor:
    """An actor that runs on the threads of the context, without Python. To be run once."""

    cdef unique_ptr[cpp_Actor] _handle

    def __init__(self):
        raise TypeError("actors of C++ come from functions such as push_to_channel and fanout")

    def __dealloc__(self):
        with nogil:
            self._handle.reset()

    @staticmethod
    cdef CppActor from_handle(unique_ptr[cpp_Actor] handle):
        cdef CppActor self = CppActor.__new__(CppActor)
        self._handle = move(handle)
        return self

    cdef int check(self) except -1:
        if self._handle.get() == NULL:
            raise ValueError("this actor has been run already")
        return 0

    @property
    def name(self):
        """What it is called in errors."""
        self.check()
        return self._handle.get().name().decode()

    @property
    def inputs(self):
        """The channels that it receives from."""
        self.check()
        cdef vector[shared_ptr[cpp_Channel]] channels = self._handle.get().inputs()
        return [Channel.from_handle(channels[i]) for i in range(channels.size())]

    @property
    def outputs(self):
        """The channels that it sends to."""
        self.check()
        cdef vector[shared_ptr[cpp_Channel]] channels = self._handle.get().outputs()
        return [Channel.from_handle(channels[i]) for i in range(channels.size())]

    def __repr__(self):
        return "CppActor(run)" if self._handle.get() == NULL else f"CppActor({self.name!r})"


cdef class ActorEnd:
    """A Python actor as the network sees it: when it ends, and at which end of its channels it is.

    Which that is shows when it first uses the channel. Until then it counts as a producer and as a consumer, so that neither
    the others' input ends too early nor their output is shut.

    Parameters
    ----------
    context
        The context.
    channels
        The channels that it may use.
    sends_only, receives_only
        Those of them whose other end is outside the network.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, Context context not None, channels, sends_only=(), receives_only=()):
        cdef Channel channel
        self._end = make_end(context._handle.get()[0])
        self._activity = make_activity()
        self._channels = list(channels)
        self._unsent = {
            channel._id: Part(context) for channel in self._channels if channel not in receives_only
        }
        self._unreceived = {
            channel._id: Part(context) for channel in self._channels if channel not in sends_only
        }
        self._parts = [*self._unsent.values(), *self._unreceived.values()]

    def set_source(self, CancellationSource source not None):
        """It runs in the network that this cancels.

        Parameters
        ----------
        source
            What cancels the network.
        """
        self._source = source

    def actors(self, str name, loop=None, cancel=None):
        """Return the actors that stand for it in the network.

        Parameters
        ----------
        name
            Its name.
        loop
            The event loop that it runs in.
        cancel
            Called in that loop when the network fails.
        """
        cdef vector[shared_ptr[cpp_Channel]] none, one
        cdef shared_ptr[cpp_Mailbox] box
        cdef Channel channel
        cdef PyObject* listener = NULL
        if cancel is not None:
            listener = <PyObject*> cancel
        if loop is not None:
            box = _box_of(loop)._handle
        cdef list result = [
            CppActor.from_handle(
                outside_actor(name.encode(), self._end, none, none, box, listener, self._activity)
            )
        ]
        box.reset()
        for channel in self._channels:
            one.clear()
            one.push_back(channel._handle)
            part = self._unsent.get(channel._id)
            if part is not None:
                result.append(
                    CppActor.from_handle(
                        outside_actor(name.encode(), (<Part> part)._end, none, one, box, NULL, self._activity)
                    )
                )
            part = self._unreceived.get(channel._id)
            if part is not None:
                result.append(
                    CppActor.from_handle(
                        outside_actor(name.encode(), (<Part> part)._end, one, none, box, NULL, self._activity)
                    )
                )
        return result

    cdef int sends(self, channel) except -1:
        # Who sends does not receive.
        cdef object number
        if self._unreceived:
            number = (<Channel> channel)._id
            part = self._unreceived.pop(number, None)
            if part is not None and number in self._unsent:
                (<Part> part)._end.get().succeed()
        return 0

    cdef int receives(self, channel) except -1:
        cdef object number
        if self._unsent:
            number = (<Channel> channel)._id
            part = self._unsent.pop(number, None)
            if part is not None and number in self._unreceived:
                (<Part> part)._end.get().succeed()
        return 0

    def succeed(self):
        """It has ended."""
        for part in self._parts:
            (<Part> part)._end.get().succeed()
        self._end.get().succeed()

    def fail(self, exception):
        """It has ended with an error.

        Parameters
        ----------
        exception
            The error.
        """
        # First, so that no part looks like a regular end.
        fail_end(self._end.get()[0], exception)
        for part in self._parts:
            fail_end((<Part> part)._end.get()[0], exception)


cdef class Part:
    """One of the two ends of a channel that a Python actor may be at."""

    cdef shared_ptr[cpp_End] _end

    def __init__(self, Context context not None):
        self._end = make_end(context._handle.get()[0])


cdef class CancellationSource:
    """Ends a network from outside: give it to ``run_actor_network`` and call :meth:`cancel`, in any thread."""

    def cancel(self):
        """End the network, which raises RuntimeError; whether this was the first call."""
        cdef cpp_bool first
        with nogil:
            first = self._handle.cancel()
        return first

    def is_cancelled(self):
        """Whether it was called, or the network failed."""
        return self._handle.is_cancelled()


cdef class NetworkTrace:
    """What the actors of networks did when: give it to ``run_actor_network``, and :meth:`write` it for Perfetto.

    An actor is a track, and so is each of its parts that run beside each other. On it are the messages that it worked on, with
    their channel, sequence number, rows and bytes, and its waits for input, room, memory and other ranks. Without one,
    networks take no time for it.

    Parameters
    ----------
    most_events
        How many are kept, about two for a message and channel, of 80 bytes each; those that come later are counted.
    """

    __signature__ = STUB_SIGNATURE

    cdef shared_ptr[cpp_Trace] _handle

    def __init__(self, *, size_t most_events=1 << 20):
        self._handle = make_trace(most_events)

    def json(self):
        """Return the trace as text, in the JSON format of Chrome's trace events; of a network that runs, what has ended."""
        cdef string text
        with nogil:
            text = self._handle.get().json()
        return text.decode()

    def write(self, path):
        """Write the trace to a file, which https://ui.perfetto.dev and ``chrome://tracing`` open.

        Parameters
        ----------
        path
            The file.
        """
        with open(path, "w", encoding="utf-8") as file:
            file.write(self.json())

    def __len__(self):
        return self._handle.get().num_events()

    @property
    def num_dropped(self):
        """Events that there was no room for."""
        return self._handle.get().num_dropped()


def describe_networks(Context context not None, cpp_bool as_dot):
    """Return what the networks of a context do; see :meth:`Context.describe`.

    Parameters
    ----------
    context
        The context.
    as_dot
        For Graphviz.
    """
    cdef string text
    with nogil:
        text = cpp_describe(context._handle.get()[0], as_dot)
    return text.decode()


def run_actors(Context context not None, actors, ends, CancellationSource source not None, NetworkTrace trace=None):
    """Run a network until all actors have ended.

    Parameters
    ----------
    context
        Its threads.
    actors
        Actors of C++, those of Python actors among them. They are taken.
    ends
        The ActorEnds.
    source
        What cancels the network.
    trace
        What is told what happens.
    """
    cdef vector[unique_ptr[cpp_Actor]] taken
    cdef shared_ptr[cpp_Trace] told
    cdef vector[shared_ptr[cpp_End]] outside
    cdef CppActor actor
    cdef ActorEnd end
    cdef cpp_bool in_main = _this_thread() is _main_thread()
    if trace is not None:
        told = trace._handle
    for actor in actors:
        actor.check()
    for actor in actors:
        taken.push_back(move(actor._handle))
    for end in ends:
        outside.push_back(end._end)
        for part in end._parts:
            outside.push_back((<Part> part)._end)
    with nogil:
        if in_main:
            run_network_interruptibly(context._handle.get()[0], move(taken), source._handle, outside, told)
        else:
            run_network(context._handle.get()[0], move(taken), source._handle, told)


def fanout_to(Context context not None, Channel ch_in not None, chs_out, cpp_bool unbounded):
    """Return the actor that sends what comes to several channels; see :mod:`rapidsmpf.streaming.core.fanout`.

    Parameters
    ----------
    context
        Threads and memory.
    ch_in
        Where messages come from.
    chs_out
        Where they go to.
    unbounded
        Whether what a consumer has not received waits for it.
    """
    cdef vector[shared_ptr[cpp_Channel]] outputs
    cdef Channel channel
    for channel in chs_out:
        outputs.push_back(channel._handle)
    return CppActor.from_handle(
        fanout_actor(context._handle.get()[0], ch_in._handle, move(outputs), unbounded)
    )


cdef class Lineariser:
    """One ordered stream from several producers.

    Messages are sent on by their sequence numbers, which must grow within each producer; between producers they may come in
    any order. No more is held than a message of each producer and what its channel takes.

    Parameters
    ----------
    context
        Threads and memory.
    ch_out
        Where the messages go to, in order.
    num_producers
        How many producers there are, at least one.
    capacity
        How many messages the channel of each holds.

    Raises
    ------
    ValueError
        If there are no producers.
    """

    __signature__ = STUB_SIGNATURE

    cdef unique_ptr[cpp_Lineariser] _handle
    cdef list _producers

    def __init__(self, Context context not None, Channel ch_out not None, size_t num_producers, *, size_t capacity=1):
        self._handle = make_lineariser(context._handle.get()[0], ch_out._handle, num_producers, capacity)
        cdef vector[shared_ptr[cpp_Channel]] channels = self._handle.get().producers()
        self._producers = [Channel.from_handle(channels[i]) for i in range(channels.size())]

    @property
    def producers(self):
        """A channel for each producer."""
        return list(self._producers)

    def actor(self):
        """Return the actor that puts them in order. It raises ValueError when the numbers of a producer do not grow."""
        return CppActor.from_handle(lineariser_actor(self._handle.get()[0]))


cdef class DeferredMessages:
    """The messages that a network has pulled, when it has ended."""

    cdef shared_ptr[vector[cpp_Message]] _handle

    def __init__(self):
        raise TypeError("this comes from pull_from_channel")

    def release(self):
        """Return the messages, in the order in which they came. The second time there are none.

        The network must have ended.
        """
        cdef size_t i
        messages = [Message.from_handle(self._handle.get()[0][i]) for i in range(self._handle.get().size())]
        self._handle.get().clear()
        return messages


def push_into(Channel ch_out not None, messages):
    """Return the actor that sends messages; see :mod:`rapidsmpf.streaming.core.leaf_actor`.

    Parameters
    ----------
    ch_out
        Where to.
    messages
        The messages. They are left empty.
    """
    cdef shared_ptr[vector[cpp_Message]] taken = make_messages()
    cdef Message message
    messages = list(messages)
    for message in messages:
        if message.empty():
            raise ValueError("a message to push is empty: its payload has been taken already")
    for message in messages:
        append_message(taken.get()[0], message._handle)
    return CppActor.from_handle(push_actor(ch_out._handle, taken))


def pull_from(Channel ch_in not None):
    """Return the actor that takes all messages, and what has them afterwards.

    Parameters
    ----------
    ch_in
        Where from.
    """
    cdef DeferredMessages messages = DeferredMessages.__new__(DeferredMessages)
    messages._handle = make_messages()
    return CppActor.from_handle(pull_actor(ch_in._handle, messages._handle)), messages
