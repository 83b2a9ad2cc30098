"""What the nodes of a query need to run."""

from rapidsmpf.statistics cimport Statistics

from rapidsmpf.signatures import STUB_SIGNATURE


cdef extern from * nogil:
    """
    #include <rapidsmpf/streaming/context.hpp>
    static std::shared_ptr<rapidsmpf::streaming::Context> make_context(
        rapidsmpf::config::Options options, std::shared_ptr<rapidsmpf::Communicator> communicator,
        std::shared_ptr<rapidsmpf::BufferResource> resource) {
        return std::make_shared<rapidsmpf::streaming::Context>(
            std::move(options), std::move(communicator), std::move(resource));
    }
    """
    shared_ptr[cpp_Context] make_context(
        cpp_Options, shared_ptr[cpp_Communicator], shared_ptr[cpp_BufferResource]
    ) except +translate_exception

__all__ = ["Context"]


cdef class Context:
    """The ranks, memory, threads, options and statistics of queries. A context manager that shuts itself down.

    Parameters
    ----------
    comm
        The ranks; None when no node talks to others.
    br
        The memory.
    options
        ``num_streaming_threads`` (default 1) is how many threads run nodes; None: the defaults.

    Raises
    ------
    ValueError
        If an option cannot be read.
    """

    __signature__ = STUB_SIGNATURE

    def __init__(self, Communicator comm, BufferResource br not None, Options options=None):
        if options is None:
            options = Options()
        cdef cpp_Options opts = options._handle
        cdef shared_ptr[cpp_Communicator] ranks
        if comm is not None:
            ranks = comm._handle
        with nogil:
            self._handle = make_context(opts, ranks, br._handle)
        self._comm = comm
        self._br = br
        self._options = options

    def __dealloc__(self):
        # Ends threads that may need the GIL to do so.
        with nogil:
            self._handle.reset()

    @classmethod
    def from_options(cls, Communicator comm, *arguments, options=None, mr=None, Statistics statistics=None):
        """Return a context whose memory is as the options say (see :meth:`BufferResource.from_options`).

        Called as ``from_options(comm, options)`` or ``from_options(comm, mr, options)``.

        Parameters
        ----------
        comm
            The ranks.
        *arguments
            The options, or the memory resource and the options.
        options
            The options, by name.
        mr
            The memory resource of the device, by name; None: the current one.
        statistics
            Where to record what happens; None: as the option ``statistics`` says.

        Raises
        ------
        TypeError
            If there are no options.
        """
        given = list(arguments)
        if options is None and given:
            options = given.pop()
        if mr is None and given:
            mr = given.pop(0)
        if given:
            raise TypeError("from_options takes a communicator, a memory resource and options")
        if not isinstance(options, Options):
            raise TypeError(f"options must be Options, got {type(options).__name__}")
        return cls(comm, BufferResource.from_options(mr, options, statistics=statistics), options)

    def create_channel(self, *, size_t messages=4, max_bytes=None):
        """Return a channel of this context's threads and memory.

        Parameters
        ----------
        messages
            How many it holds before senders wait, at least one.
        max_bytes
            How many bytes it holds; a larger message is let in alone. None: no limit.

        Raises
        ------
        ValueError
            If it is to hold no messages.
        """
        from rapidsmpf.streaming.core.channel import create_channel

        return create_channel(self, messages, max_bytes)

    def describe(self, format="text"):
        """Return what the networks that run in this context do; empty text when there is none. In any thread, at any time.

        Of each actor: whether it runs or what it waits for, the messages, rows and bytes that it took and gave, how long it
        ran and how long it waited for input, room, memory, other ranks and all else. Of each channel: who is at its ends, what waits
        in it and what went through it.

        Parameters
        ----------
        format
            "text", or "dot" for Graphviz.

        Raises
        ------
        ValueError
            If it is another format.
        """
        from rapidsmpf.streaming.core.network import describe_networks

        if format not in ("text", "dot"):
            raise ValueError(f"networks are described as 'text' or 'dot', not as {format!r}")
        return describe_networks(self, format == "dot")

    def comm(self):
        """Return the ranks, or None."""
        return self._comm

    def br(self):
        """Return the memory."""
        return self._br

    def options(self):
        """Return the options."""
        return self._options

    def statistics(self):
        """Return the statistics: those of the memory."""
        return self._br.statistics

    def logger(self):
        """Return the logger of this rank; RuntimeError when there is no communicator."""
        if self._comm is None:
            raise RuntimeError("this context has no communicator, and so no logger")
        return self._comm.logger

    @property
    def num_streaming_threads(self):
        """How many threads run nodes."""
        return self._handle.get().executor().get().num_threads()

    def shutdown(self):
        """End the threads; nothing happens the second time. No query may be running."""
        with nogil:
            self._handle.get().shutdown()

    def __enter__(self):
        return self

    def __exit__(self, exc_type, exc_value, traceback):
        self.shutdown()
        return False
