"""Python objects that can be spilled.

Objects of other libraries (data frames that wait in a task graph, say) hold device memory too. A spill collection
knows those that say how to spill them, without keeping them alive, and spills the ones that were put in longest ago.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from rapidsmpf.memory.buffer import MemoryType

if TYPE_CHECKING:
    from rmm.mr import DeviceMemoryResource
    from rmm.pylibrmm.stream import Stream

__all__ = ["SpillCollection", "Spillable"]


@runtime_checkable
class Spillable(Protocol):
    """An object that can give up its device memory. It must be possible to refer to it weakly.

    All methods may be called from any thread.
    """

    def mem_type(self) -> MemoryType:
        """Return the tier that the object's data is in."""

    def approx_spillable_amount(self) -> int:
        """Return about how many bytes of device memory spilling the object would free."""

    def spill(
        self,
        amount: int,
        *,
        stream: Stream | None = None,
        device_mr: DeviceMemoryResource | None = None,
        staging_device_buffer: Any | None = None,
    ) -> int:
        """Spill the object, if that still makes sense.

        Parameters
        ----------
        amount
            Bytes that are wanted. More may be freed.
        stream
            The stream to copy on; None: the object's own choice.
        device_mr
            Where to take device memory from that is needed on the way; None: the object's own choice.
        staging_device_buffer
            Device memory that may be used on the way and is free again when the call returns; None: there is none.

        Returns
        -------
        How many bytes of device memory were freed.
        """


class SpillCollection:
    """Spillable objects, by how long ago each was put in.

    The collection refers to its objects weakly. It is safe to use from any thread; only one thread spills at a time,
    and objects may be added meanwhile, by what a ``spill`` method calls too.

    Examples
    --------
    >>> collection = SpillCollection()
    >>> function_id = br.spill_manager.add_spill_function(collection.spill, priority=-10)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _objects
        self._objects: dict[
            int, tuple[int, weakref.ref[Spillable]]
        ] = {}  # by id(); in the order of their numbers
        self._next_number = 0
        # Objects may die wherever Python frees something, this class's own methods included: what is called then
        # must not lock, so it leaves a note.
        self._dead: deque[tuple[int, int]] = deque()
        self._spilling = threading.RLock()
        self._depth = 0  # guarded by _spilling

    def add_spillable(self, obj: Spillable) -> None:
        """Put an object in as the one to spill last; one that is in already moves there.

        Parameters
        ----------
        obj
            The object.

        Raises
        ------
        TypeError
            If it lacks the methods of :class:`Spillable`, or cannot be referred to weakly.
        """
        if not isinstance(obj, Spillable):
            raise TypeError(
                f"{type(obj).__name__} is not spillable: it needs mem_type(), approx_spillable_amount() and spill()"
            )
        key = id(obj)
        with self._lock:
            self._forget_dead()
            number = self._next_number
            self._next_number += 1
            dead = self._dead
            reference = weakref.ref(obj, lambda _: dead.append((key, number)))
            self._objects.pop(key, None)
            self._objects[key] = (number, reference)

    def spill(
        self,
        amount: int,
        *,
        stream: Stream | None = None,
        device_mr: DeviceMemoryResource | None = None,
        staging_device_buffer: Any | None = None,
    ) -> int:
        """Spill objects that are in device memory, those that were put in longest ago first, until enough is freed.

        When the spilling of an object asks for more memory and so comes back here, nothing is spilled.

        Parameters
        ----------
        amount
            Bytes of device memory to free.
        stream, device_mr, staging_device_buffer
            Passed on to :meth:`Spillable.spill`.

        Returns
        -------
        How many bytes were freed; less than ``amount`` when there is no more to spill.
        """
        with self._spilling:
            if self._depth > 0 or amount <= 0:
                return 0
            self._depth += 1
            try:
                freed = 0
                for obj in self._living():
                    if obj.mem_type() == MemoryType.DEVICE and obj.approx_spillable_amount() > 0:
                        freed += obj.spill(
                            amount - freed,
                            stream=stream,
                            device_mr=device_mr,
                            staging_device_buffer=staging_device_buffer,
                        )
                        if freed >= amount:
                            break
                return freed
            finally:
                self._depth -= 1

    def __len__(self) -> int:
        """Return how many objects there are that are still alive."""
        with self._lock:
            self._forget_dead()
            return len(self._objects)

    def _living(self) -> Any:
        """Yield the objects that are alive, one at a time, so that no more than one is kept so."""
        with self._lock:
            self._forget_dead()
            references = [reference for _, reference in self._objects.values()]
        for reference in references:
            obj = reference()
            if obj is not None:
                yield obj
            del obj

    def _forget_dead(self) -> None:
        """Drop the objects that have died; the lock is held."""
        while self._dead:
            key, number = self._dead.popleft()
            entry = self._objects.get(key)
            if entry is not None and entry[0] == number:  # else another object has its address now
                del self._objects[key]
