"""Networks: actors of C++, those that stand for Python's, and how they run.

What is here is used by its documented names: ``core.actor``, ``core.fanout``, ``core.lineariser``, ``core.leaf_actor``,
``core.describe`` and ``core.cancellation``.
"""

import threading

from cpython.object cimport PyObject
from libc.stddef cimport size_t
from libcpp cimport bool as cpp_bool
from libcpp.memory cimport shared_ptr, unique_ptr
from libcpp.string cimport string
from libcpp.utility cimport move
from libcpp.vector cimport vector

from rapidsmpf.error cimport translate_exception
from rapidsmpf.streaming.core.channel cimport (
    ActorAccount,
    Channel,
    LoopBox,
    box_of,
    cpp_Activity,
    cpp_Channel,
    cpp_Mailbox,
    cpp_Trace,
)
from rapidsmpf.streaming.core.context cimport Context, cpp_Context
from rapidsmpf.streaming.core.message cimport Message, cpp_Message

from rapidsmpf.signatures import STUB_SIGNATURE




cdef extern from "<rapidsmpf_python/networks.hpp>" namespace "rapidsmpf::python" nogil:
    cdef cppclass cpp_Actor "rapidsmpf::streaming::Actor":
        const string& name()
        vector[shared_ptr[cpp_Channel]] inputs()
        vector[shared_ptr[cpp_Channel]] outputs()

    cdef cppclass cpp_Lineariser "rapidsmpf::streaming::Lineariser":
        vector[shared_ptr[cpp_Channel]] producers()

    shared_ptr[cpp_Trace] make_trace(size_t) except +translate_exception
    string cpp_describe "rapidsmpf::python::describe_networks"(
        const cpp_Context&, cpp_bool
    ) except +translate_exception
    void cpp_look_for_standstill "rapidsmpf::python::look_for_standstill"(
        const cpp_Context&
    ) except +translate_exception
    shared_ptr[cpp_End] make_end(const cpp_Context&) except +translate_exception
    void run_network(
        const cpp_Context&, vector[unique_ptr[cpp_Actor]], const cpp_Source&, shared_ptr[cpp_Trace]
    ) except +translate_exception
    void run_network_interruptibly(
        const cpp_Context&, vector[unique_ptr[cpp_Actor]], cpp_Source, const vector[shared_ptr[cpp_End]]&,
        shared_ptr[cpp_Trace]
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
    static std::shared_ptr<std::vector<rapidsmpf::streaming::Message>> make_messages() {
        return std::make_shared<std::vector<rapidsmpf::streaming::Message>>();
    }
    static void append_message(
        std::vector<rapidsmpf::streaming::Message>& messages, rapidsmpf::streaming::Message& message) {
        messages.push_back(std::move(message));
    }
    """
    shared_ptr[vector[cpp_Message]] make_messages() except +translate_exception
    void append_message(vector[cpp_Message]&, cpp_Message&) except +translate_exception

__all__ = [
    "ActorEnd",
    "CancellationSource",
    "CppActor",
    "DeferredMessages",
    "Lineariser",
    "NetworkTrace",
    "describe_networks",
    "fanout_to",
    "look_for_standstill",
    "pull_from",
    "push_into",
    "run_actors",
]

cdef object _main_thread = threading.main_thread
cdef object _this_thread = threading.current_thread


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


cdef class ActorEnd(ActorAccount):
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
            self.set_loop(loop)
            box = self._box._handle
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

    def listen_to(self, Channel channel not None):
        """Be told of a channel's operations before its network begins, which sees to that itself.

        Parameters
        ----------
        channel
            The channel.
        """
        channel._handle.get().set_trace(self._handle)

    def __len__(self):
        return self._handle.get().num_events()

    @property
    def num_dropped(self):
        """Events that there was no room for."""
        return self._handle.get().num_dropped()


def look_for_standstill(Context context not None):
    """Have the networks of a context fail whose actors all wait for each other, if nothing else runs in it.

    Parameters
    ----------
    context
        The context.
    """
    with nogil:
        cpp_look_for_standstill(context._handle.get()[0])


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
