"""Actors and the networks that they form.

    @define_actor()
    async def double(ctx, ch_in, ch_out):
        async for message in ch_in:
            value = ArbitraryChunk.from_message(message).release()
            await ch_out.send(ctx, Message(message.sequence_number, ArbitraryChunk(2 * value)))

    run_actor_network(ctx, actors=[source, double(ctx, numbers, doubled), sink])

Actors of C++ (:class:`CppActor`), ``async def`` functions and plain functions may be mixed. Coroutines run in event
loops, as many threads as the option ``num_py_executors`` says (default 1); each plain function has a thread of its own,
where it may block. When the last producer of a channel has ended, the channel is finished; when the last consumer has
ended, it is shut, so that producers stop. When an actor raises, the network is cancelled: operations on its channels
raise that error, coroutines are cancelled, and :func:`run_actor_network` raises it when all actors have ended.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import inspect
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, Protocol, overload

from rapidsmpf.config import check_option
from rapidsmpf.given_options import known_options
from rapidsmpf.streaming.core.channel import Channel, current_actor, forget_loop
from rapidsmpf.streaming.core.context import Context
from rapidsmpf.streaming.core.describe import running_in
from rapidsmpf.streaming.core.network import (
    ActorEnd,
    CancellationSource,
    CppActor,
    NetworkTrace,
    look_for_standstill,
    run_actors,
)
from rapidsmpf.streaming.core.network_loop import new_network_loop
from rapidsmpf.streaming.core.waiting_tasks import waiting_operations

__all__ = ["CppActor", "PyActor", "define_actor", "run_actor_network"]

P = ParamSpec("P")

_LOOK_PAUSE = 0.25
"""Seconds between two looks of an event loop whether all its actors wait."""


def _channels_in(values: Iterable[object]) -> Generator[Channel[Any]]:
    """Yield the channels among some arguments, those in lists, tuples, sets and mappings too.

    Parameters
    ----------
    values
        The arguments.
    """
    for value in values:
        if isinstance(value, Channel):
            yield value
        elif isinstance(value, Mapping):
            yield from _channels_in(value.values())
        elif isinstance(value, list | tuple | set | frozenset):
            yield from _channels_in(value)


class PyActor:
    """An actor in Python, to be run once. Comes from calling what :func:`define_actor` returns.

    In an ``async def`` actor it may also be awaited, if it is a coroutine: then it runs as a part of that one.

    Parameters
    ----------
    name
        What it is called in errors.
    call
        Runs it: returns a coroutine, or runs to its end.
    context
        The context.
    channels
        The channels that it uses.
    """

    def __init__(
        self, name: str, call: Callable[[], Any], context: Context | None, channels: Iterable[Channel[Any]]
    ) -> None:
        self.name = name
        self.context = context
        self.channels = tuple(dict.fromkeys(channels))
        self._call: Callable[[], Any] | None = call
        self.is_coroutine = False

    def take(self) -> Callable[[], Any]:
        """Return what runs it; ValueError the second time."""
        if self._call is None:
            raise ValueError(f"actor '{self.name}' has been run already: make another")
        call, self._call = self._call, None
        return call

    def __await__(self) -> Generator[Any, Any, None]:
        if not self.is_coroutine:
            raise TypeError(f"actor '{self.name}' is a plain function: only coroutines can be awaited")
        yield from self.take()().__await__()

    def __repr__(self) -> str:
        return f"PyActor({self.name!r})"


class _Define(Protocol):
    """What ``define_actor()`` returns."""

    def __call__(self, function: Callable[P, Any], /) -> Callable[P, PyActor]: ...


@overload
def define_actor(function: Callable[P, Any], /) -> Callable[P, PyActor]: ...
@overload
def define_actor(*, extra_channels: Iterable[Channel[Any]] = ()) -> _Define: ...
def define_actor(
    function: Callable[..., Any] | None = None, /, *, extra_channels: Iterable[Channel[Any]] = ()
) -> Any:
    """Make a function, ``async def`` or plain, one that returns an actor.

    Its first argument is the context. The channels among its arguments are those that it uses.

    Parameters
    ----------
    function
        The function, when this is used without parentheses.
    extra_channels
        Channels that it uses besides.
    """
    extra = tuple(extra_channels)

    def define(function: Callable[..., Any]) -> Callable[..., PyActor]:
        name = getattr(function, "__name__", type(function).__name__)
        is_coroutine = inspect.iscoroutinefunction(function)

        @functools.wraps(function)
        def make(*args: Any, **kwargs: Any) -> PyActor:
            inspect.signature(function).bind(
                *args, **kwargs
            )  # what is wrong is said here, and not in the network
            everything = (*args, *kwargs.values())
            context = next((each for each in everything if isinstance(each, Context)), None)
            actor = PyActor(
                name,
                functools.partial(function, *args, **kwargs),
                context,
                (*_channels_in(everything), *extra),
            )
            actor.is_coroutine = is_coroutine
            return actor

        return make

    return define if function is None else define(function)


class _Loop:
    """A thread with an event loop in which coroutines run until all have ended.

    Parameters
    ----------
    context
        The context of the network.
    executor
        What runs it; None: a thread of its own.
    """

    def __init__(self, context: Context, executor: Executor | None) -> None:
        self._context = context
        self.loop = new_network_loop()
        self._executor = executor
        self._started: list[tuple[PyActor, ActorEnd]] = []
        self._tasks: dict[ActorEnd, asyncio.Task[None]] = {}
        self._cancelled: set[ActorEnd] = set()
        self._thread: threading.Thread | None = None
        self._future: Future[None] | None = None

    def add(self, actor: PyActor, end: ActorEnd) -> list[CppActor]:
        """Take an actor, and return those that stand for it in the network.

        Parameters
        ----------
        actor
            The actor.
        end
            Its end.
        """
        self._started.append((actor, end))
        return end.actors(actor.name, self.loop, functools.partial(self._cancel, end))

    def _cancel(self, end: ActorEnd) -> None:
        task = self._tasks.get(end)
        if task is None:
            self._cancelled.add(end)
        else:
            task.cancel()

    async def _run(self, actor: PyActor, end: ActorEnd) -> None:
        current_actor.set(end)
        try:
            await actor.take()()
        except BaseException as error:  # it is raised by run_actor_network
            end.fail(error)
        else:
            end.succeed()

    def _ended(self, end: ActorEnd, task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step: it could not say so itself
            end.fail(asyncio.CancelledError())

    async def _main(self) -> None:
        for actor, end in self._started:
            self._tasks[end] = task = self.loop.create_task(self._run(actor, end), name=actor.name)
            task.add_done_callback(functools.partial(self._ended, end))
            if end in self._cancelled:
                self._tasks[end].cancel()
        self._look_later()
        await asyncio.wait(self._tasks.values())
        self._next_look.cancel()

    def _look_later(self) -> None:
        self._next_look = self.loop.call_later(_LOOK_PAUSE, self._look)

    def _look(self) -> None:
        """See whether all actors wait, and nothing else is to happen in this loop: then the network may stand still."""
        counts = waiting_operations(self.loop)
        alive = [end for end, task in self._tasks.items() if not task.done()]
        for end in alive:
            end.found_waiting(0 if counts is None else counts.get(end, 0))
        if counts is not None and all(end in counts for end in alive):
            look_for_standstill(self._context)
        self._look_later()

    async def _end_tasks(self) -> None:
        """End what actors have started and not waited for: nothing else ever will."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_until_complete(self._main())
            self.loop.run_until_complete(self._end_tasks())
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            forget_loop(self.loop)
            self.loop.close()

    def start(self) -> None:
        """Start the thread, or close the loop if there is nothing to run."""
        if not self._started:
            forget_loop(self.loop)
            self.loop.close()
        elif self._executor is not None:
            self._future = self._executor.submit(self._work)
        else:
            self._thread = threading.Thread(target=self._work, name="rapidsmpf-actors", daemon=True)
            self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait for the end.

        Parameters
        ----------
        timeout
            Seconds; None: no limit.
        """
        if self._thread is not None:
            self._thread.join(timeout)
        if self._future is not None:
            self._future.exception(timeout)


class _FunctionThread:
    """The thread of a plain function.

    Parameters
    ----------
    actor
        The actor.
    end
        Its end.
    """

    def __init__(self, actor: PyActor, end: ActorEnd) -> None:
        self._actor = actor
        self._end = end
        self._thread = threading.Thread(target=self._work, name=f"actor {actor.name}", daemon=True)

    def _work(self) -> None:
        current_actor.set(self._end)
        try:
            self._actor.take()()
        except BaseException as error:  # it is raised by run_actor_network
            self._end.fail(error)
        else:
            self._end.succeed()

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float | None) -> None:
        """Wait for the end; who has been left behind is told to end at its next bytecode.

        Parameters
        ----------
        timeout
            Seconds; None: no limit.
        """
        self._thread.join(timeout)
        if timeout is not None and self._thread.is_alive():
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(self._thread.ident or 0), ctypes.py_object(SystemExit)
            )


def _check_ends(
    cpp_actors: list[CppActor],
    py_actors: list[PyActor],
    consumed_outside: list[Channel[Any]],
    produced_outside: list[Channel[Any]],
) -> None:
    """Refuse channels that no actor sends to, or none receives from: their actors would wait for ever.

    Parameters
    ----------
    cpp_actors, py_actors
        The actors.
    consumed_outside, produced_outside
        Channels whose other end is outside.
    """
    either: dict[Channel[Any], list[str]] = {}
    producers: dict[Channel[Any], list[str]] = {}
    consumers: dict[Channel[Any], list[str]] = {}
    for actor in cpp_actors:
        for channel in actor.inputs:
            consumers.setdefault(channel, []).append(actor.name)
        for channel in actor.outputs:
            producers.setdefault(channel, []).append(actor.name)
    for each in py_actors:
        for channel in each.channels:
            either.setdefault(channel, []).append(each.name)
    for channel in consumed_outside:
        consumers.setdefault(channel, []).append("outside")
    for channel in produced_outside:
        producers.setdefault(channel, []).append("outside")
    for channel in {**either, **producers, **consumers}:
        users, sending, receiving = (by.get(channel, []) for by in (either, producers, consumers))
        names = ", ".join(f"'{name}'" for name in (*users, *sending, *receiving))
        if len(users) + len(sending) + len(receiving) == 1:
            raise ValueError(
                f"only actor {names} uses one of its channels: give the other end of the channel to another actor, or "
                "name it in `consumed_outside` or `produced_outside`"
            )
        if not users and not (sending and receiving):
            what = "sends to" if receiving else "receives from"
            raise ValueError(f"nobody {what} a channel of the actors {names}")


def _num_loops(context: Context) -> int:
    """Return how many event loops coroutines are spread over.

    Parameters
    ----------
    context
        Has the option ``num_py_executors``.
    """
    text = context.options().get_strings().get("num_py_executors", "").strip()
    check_option("num_py_executors", text)
    return int(text) if text else int(known_options()["num_py_executors"].default)


def run_actor_network(
    ctx: Context | None = None,
    actors: Iterable[CppActor | PyActor | Awaitable[None]] = (),
    *,
    py_executor: Executor | None = None,
    cancellation: CancellationSource | None = None,
    consumed_outside: Iterable[Channel[Any]] = (),
    produced_outside: Iterable[Channel[Any]] = (),
    trace: NetworkTrace | str | os.PathLike[str] | None = None,
) -> None:
    """Run actors until all have ended.

    Parameters
    ----------
    ctx
        The context; None: that of the actors.
    actors
        The actors; coroutines are taken for actors without channels.
    py_executor
        What runs the event loops; None: threads made for the purpose. Its threads must be free.
    cancellation
        Ends the network from outside.
    consumed_outside, produced_outside
        Channels that are received from, or sent to, outside the network, by other threads; its actors are at the other
        end.
    trace
        What is told what the actors do when; or a file that is written in the end, also after an error, to be opened
        with Perfetto.

    Raises
    ------
    ValueError
        If an actor was run before, or a channel has no actor at one end.
    RuntimeError
        If it was cancelled from outside.
    BaseException
        The first error of an actor, as it raised it.
    """
    cpp_actors: list[CppActor] = []
    py_actors: list[PyActor] = []
    for each in actors:
        if isinstance(each, CppActor):
            cpp_actors.append(each)
        elif isinstance(each, PyActor):
            py_actors.append(each)
        elif inspect.isawaitable(each):
            actor = PyActor(
                getattr(each, "__name__", "coroutine"), functools.partial(_itself, each), None, ()
            )
            actor.is_coroutine = True
            py_actors.append(actor)
        else:
            raise TypeError(
                f"an actor must be a CppActor, a PyActor or an awaitable, got {type(each).__name__}"
            )
    context = ctx or next((each.context for each in py_actors if each.context is not None), None)
    if context is None:
        raise ValueError("run_actor_network needs the context")
    consumed, produced = list(consumed_outside), list(produced_outside)
    _check_ends(cpp_actors, py_actors, consumed, produced)
    for channel in consumed:
        channel.set_outside_consumer()
    for channel in produced:
        channel.set_outside_producer()

    loops = [
        _Loop(context, py_executor)
        for _ in range(min(_num_loops(context), sum(each.is_coroutine for each in py_actors)))
    ]
    runners: list[_Loop | _FunctionThread] = list(loops)
    ends: list[ActorEnd] = []
    network = cpp_actors
    source = cancellation or CancellationSource()
    told = trace if trace is None or isinstance(trace, NetworkTrace) else NetworkTrace()
    next_loop = 0
    for each in py_actors:
        end = ActorEnd(context, each.channels, consumed, produced)
        end.set_source(source)
        ends.append(end)
        if each.is_coroutine:
            network = network + loops[next_loop].add(each, end)
            next_loop = (next_loop + 1) % len(loops)
        else:
            network = network + end.actors(each.name)
            runners.append(_FunctionThread(each, end))
    if told is not None:
        for channel in dict.fromkeys(channel for each in py_actors for channel in each.channels):
            told.listen_to(channel)  # its actors may begin before the network does
    left_behind = False
    with running_in(context):
        for runner in runners:
            runner.start()
        failure: BaseException | None = None
        try:
            run_actors(context, network, ends, source, told)
        except BaseException as error:
            failure = error
            left_behind = isinstance(error, KeyboardInterrupt)
            raise
        finally:
            for runner in runners:
                runner.join(0.1 if left_behind else None)
            if told is not None and not isinstance(trace, NetworkTrace | None):
                _write_trace(told, trace, failure)


def _write_trace(trace: NetworkTrace, path: str | os.PathLike[str], failure: BaseException | None) -> None:
    """Write the trace of a network that has ended; the network's own error, if any, is not replaced.

    Parameters
    ----------
    trace, path
        What goes where.
    failure
        The network's error.
    """
    try:
        trace.write(path)
    except OSError as error:
        if failure is None:
            raise
        failure.add_note(f"The trace of the network was not written: {error}")


def _itself(awaitable: Awaitable[None]) -> Awaitable[None]:
    """Return the argument.

    Parameters
    ----------
    awaitable
        The argument.
    """
    return awaitable
