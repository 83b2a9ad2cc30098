"""Event loops of networks: asyncio's, which need no system call to hear of messages as long as there is work."""

from __future__ import annotations

import asyncio
import selectors

from rapidsmpf.streaming.core.channel import LoopBox, loop_box

__all__ = ["OWN_FILES", "new_network_loop"]

OWN_FILES = 2
"""Files that a loop of a network watches for itself: its mailbox, and what wakes it."""


class _Selector(selectors.DefaultSelector):
    """Waits for files as selectors do, and for what is put into the mailbox of the loop.

    A loop asks its selector at every turn. While tasks are ready, files of others alone are worth a system call; and a
    message that comes at once is found sooner by looking than by being woken.
    """

    box: LoopBox | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the files that are ready; see :meth:`selectors.BaseSelector.select`.

        Parameters
        ----------
        timeout
            Seconds; None: no limit. Zero or less: does not wait.
        """
        box = self.box
        if box is None:
            return super().select(timeout)
        if timeout is not None and timeout <= 0:
            box.look()
            return super().select(timeout) if len(self.get_map()) > OWN_FILES else []
        if not box.may_sleep():
            return []
        try:
            return super().select(timeout)
        finally:
            box.wake_up()


def new_network_loop() -> asyncio.AbstractEventLoop:
    """Return a loop for coroutines that wait for channels; before it is closed call ``channel.forget_loop`` with it."""
    selector = _Selector()
    loop = asyncio.SelectorEventLoop(selector)
    selector.box = loop_box(loop)
    return loop
