"""Commits of one process to one table take turns: threads that race each other would only use up their retries. Driver.

Input: a table's UUID. Output: whether somebody else had the turn, so that what was read of the table is old.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, RLock
from weakref import WeakValueDictionary

__all__ = ["turn"]

_GUARD = Lock()


class _Turn:
    """A lock that can be held weakly: it goes when nobody waits for it. A catalog may commit again while it commits."""

    __slots__ = ("__weakref__", "lock")

    def __init__(self) -> None:
        self.lock = RLock()


_TURNS: WeakValueDictionary[object, _Turn] = WeakValueDictionary()


@contextmanager
def turn(table: object) -> Iterator[bool]:
    """Wait until no other thread of this process commits to a table.

    Args:
        table: What tells the table, its UUID.

    Yields:
        Whether it had to wait.
    """
    with _GUARD:
        held = _TURNS.get(table)
        if held is None:
            held = _TURNS[table] = _Turn()
    waited = not held.lock.acquire(blocking=False)
    if waited:
        held.lock.acquire()
    try:
        yield waited
    finally:
        held.lock.release()
