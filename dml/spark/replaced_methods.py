"""Methods of PySpark's classes with a question in front: is this about a table of ours? Driver.

Input: a class, a method's name, and what is put around the method. Output: the class with it, until no session has a
handler any more. Classes are changed, not objects: PySpark makes several Python objects for one session, and new
readers and writers with each call.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from dml.spark.handlers import has_handlers

__all__ = ["Method", "replace_method", "restore_methods"]

Method = Callable[..., Any]

ORIGINALS: Final[dict[tuple[Any, str], Method]] = {}
LOCK: Final = threading.Lock()


def replace_method(owner: Any, name: str, wrap: Callable[[Method], Method]) -> None:
    """Put another method in the place of one of PySpark's, once; nothing happens where the class has none of that name.

    Args:
        owner: The class that defines it.
        name: Its name.
        wrap: Makes the other one of it.
    """
    with LOCK:
        if (owner, name) not in ORIGINALS and name in vars(owner):
            ORIGINALS[owner, name] = getattr(owner, name)
            setattr(owner, name, wrap(ORIGINALS[owner, name]))


def restore_methods() -> None:
    """Put PySpark's methods back, if no session has a handler any more."""
    with LOCK:
        if not has_handlers():
            for (owner, name), original in ORIGINALS.items():
                setattr(owner, name, original)
            ORIGINALS.clear()
