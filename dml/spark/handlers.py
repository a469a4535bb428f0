"""Which statements are ours, session by session. Driver.

Input: the text of a statement and the session that it was given to. Output: the handler that takes it, or None. The
parser inside Spark (`extension`) and the replacement of Python's `spark.sql` (`interception`) both ask here, so a
statement that comes through both is looked at once and run once.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from dml.result import Result

__all__ = [
    "Arguments",
    "StatementHandler",
    "find_handler",
    "has_handlers",
    "is_handler",
    "passing_on",
    "register_handler",
    "run_statement",
    "running",
    "session_key",
    "unregister_handler",
]

Arguments = Mapping[str, Any] | Sequence[Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementHandler:
    """Takes the statements of one session that Spark alone cannot answer. Two of the same functions are one.

    Attributes:
        handles: Whether a statement is ours: cheap, from its first keyword and the names in it.
        run: Runs a statement that `handles` accepted: commands at once, queries as a DataFrame.
    """

    handles: Callable[[str], bool]
    run: Callable[[str, Arguments], DataFrame | Result]


class ThreadState(threading.local):
    """Whether a handler runs in this thread: what it asks of Spark is not ours."""

    running: bool = False


HANDLERS: Final[dict[str, StatementHandler]] = {}
PASSING: Final[Counter[tuple[str, str]]] = Counter()
PASSING_LOCK: Final = threading.Lock()
STATE: Final = ThreadState()


def session_key(spark: SparkSession) -> str:
    """The identity of a session: the same for every Python object that stands for it."""
    identity = getattr(spark, "session_id", None)
    return str(identity if identity is not None else spark._jsparkSession.sessionUUID())  # noqa: SLF001  no public name


def register_handler(key: str, handler: StatementHandler) -> None:
    """Let a handler take the statements of a session, in place of the one before."""
    HANDLERS[key] = handler


def unregister_handler(key: str) -> None:
    """Leave a session's statements to Spark; nothing happens if they are."""
    HANDLERS.pop(key, None)


def is_handler(key: str, handler: StatementHandler) -> bool:
    """Whether it is this handler that takes a session's statements."""
    return HANDLERS.get(key) == handler


def has_handlers() -> bool:
    """Whether any session has a handler."""
    return bool(HANDLERS)


def find_handler(key: str, text: str) -> StatementHandler | None:
    """The handler that takes a statement of a session; None where it is Spark's."""
    handler = HANDLERS.get(key)
    if handler is None or STATE.running or PASSING[key, text]:
        return None
    return handler if handler.handles(text) else None


def run_statement(handler: StatementHandler, text: str, args: Arguments) -> DataFrame | Result:
    """Run a statement; the SQL that the handler gives to Spark meanwhile goes to Spark."""
    with running():
        return handler.run(text, args)


@contextmanager
def running() -> Iterator[None]:
    """While a handler runs: the SQL that it gives to Spark goes to Spark."""
    before = STATE.running
    STATE.running = True
    try:
        yield
    finally:
        STATE.running = before


@contextmanager
def passing_on(key: str, text: str) -> Iterator[None]:
    """While a statement that is not ours is with Spark: its parser, which calls in another thread, lets it pass."""
    with PASSING_LOCK:
        PASSING[key, text] += 1
    try:
        yield
    finally:
        with PASSING_LOCK:
            PASSING[key, text] -= 1
            if not PASSING[key, text]:
                del PASSING[key, text]
