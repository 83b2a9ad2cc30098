"""How a Dask client calls the workers of its cluster: outside of tasks, several at once, errors as values.

``Client.run`` alone gives one answer for all workers; here each worker's answer comes by itself, so that one that
fails or is gone does not hide what the others say.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

try:
    import distributed
    from distributed.comm import CommClosedError
except ImportError as error:
    raise ImportError("this needs Dask: pip install dask distributed") from error

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["LOST", "WorkerCalls", "ipv4_of", "raise_first"]

LOST = (OSError, TimeoutError, CommClosedError)
"""What a call raises whose worker, or scheduler, is gone."""


class WorkerCalls:
    """Calls functions on the workers of a cluster.

    Parameters
    ----------
    client
        A synchronous client. The coroutines run on its event loop.
    """

    def __init__(self, client: Client) -> None:
        self.client = client

    def addresses(self) -> list[str]:
        """Return the addresses of the workers, in order."""
        # Not from scheduler_info(): the client fetches what that returns every two seconds as well, without workers,
        # and may do so just between the question and the answer.
        return sorted(self.client.sync(self.living))

    def each(self, function: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
        """Call a function with arguments by address; returns results, or errors as values, by address."""
        return self.client.sync(self.each_async, function, arguments)  # type: ignore[no-any-return]

    async def each_async(
        self, function: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]
    ) -> dict[str, Any]:
        """Do as :meth:`each`."""
        calls = (self.one(function, address, given) for address, given in arguments.items())
        return dict(zip(arguments, await asyncio.gather(*calls), strict=True))

    async def one(self, function: Callable[..., Any], address: str, arguments: tuple[Any, ...]) -> Any:
        """Call a function on one worker; errors are returned, too."""
        try:
            answers = await self.client.run(function, *arguments, workers=[address], on_error="return")
        except LOST as error:
            return error
        return answers.get(address, CommClosedError(f"no answer from {address}"))

    async def until_failure(
        self, function: Callable[..., Any], arguments: Mapping[str, tuple[Any, ...]]
    ) -> dict[str, Any]:
        """Do as :meth:`each_async`, but return as soon as one has failed, with its error only."""
        calls = {a: asyncio.ensure_future(self.one(function, a, given)) for a, given in arguments.items()}
        try:
            for call in asyncio.as_completed(list(calls.values())):
                answer = await call
                if isinstance(answer, BaseException):
                    return {a: answer for a, c in calls.items() if c.done() and c.result() is answer}
            return {a: c.result() for a, c in calls.items()}
        finally:
            for pending in calls.values():
                pending.cancel()

    async def living(self) -> set[str]:
        """Return the addresses that the scheduler knows now."""
        return set(await self.client.scheduler.ncores(workers=None))


def raise_first(answers: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return answers; raises the first error among them, with a note that names the worker."""
    for address, answer in answers.items():
        if isinstance(answer, BaseException):
            answer.add_note(f"Raised on worker {address}.")
            raise answer
    return answers


def ipv4_of(address: str) -> str | None:
    """Return the IPv4 address in a worker's contact address, if other machines can reach it."""
    host = distributed.comm.get_address_host(address)
    with contextlib.suppress(OSError):
        host = socket.gethostbyname(host)
    with contextlib.suppress(ValueError):
        parsed = ipaddress.ip_address(host)
        if parsed.version == 4 and not parsed.is_loopback:
            return str(parsed)
    return None
