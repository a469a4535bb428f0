"""Replace methods of PySpark's classes with ones that first check if a call is about a RowDelta table. Driver.

Input: `Replacement`s, each a method, a question and an action. Output: classes with the replaced methods, until no
session has a handler. Classes are changed, not objects: PySpark creates several Python objects for one session,
and new readers and writers with each call.

The question reads private state of PySpark, so it may fail on calls unrelated to RowDelta. After such a failure
PySpark's own method runs with the caller's arguments, and one warning reports the failure. An error of RowDelta itself,
such as a catalog that does not respond, is raised: Spark may have a table of the same name, which must not be read or
changed instead.
"""

import functools
import importlib
import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final

import pyspark

from dml.errors import DmlError
from dml.spark.bridge.internals import UnknownInternalsError
from dml.spark.handlers import has_handlers
from dml.spark.runtime import SessionKind
from dml.tracebacks import shorten_traceback

__all__ = [
    "Action",
    "Method",
    "Question",
    "Replacement",
    "is_about_tables",
    "replace_methods",
    "restore_methods",
    "warn_unanswered",
]

LOG: Final = logging.getLogger(__name__)

Method = Callable[..., Any]
Question = Callable[..., Any]
"""Takes the arguments of a call, `self` first. Returns the input of the action; None if the call is PySpark's."""
Action = Callable[..., Any]
"""Takes PySpark's method, the result of the question, and the arguments of the call; returns the call's result."""

ORIGINALS: Final[dict[tuple[Any, str], Method]] = {}
LOCK: Final = threading.Lock()
WARNED: Final[set[tuple[str, type[BaseException]]]] = set()


@dataclass(frozen=True, slots=True)
class Replacement:
    """A method of PySpark and its replacement.

    Attributes:
        owner: The class that defines the method, or its full name: `pyspark.sql.readwriter.DataFrameReader`.
        name: The method's name.
        question: Checks if a call is about a RowDelta table.
        action: Runs such a call.
        on: The kinds of sessions for which the method is replaced.
    """

    owner: Any
    name: str
    question: Question
    action: Action
    on: SessionKind

    @property
    def owner_class(self) -> Any:
        """The class; None if this PySpark has no such class, or its module cannot be imported."""
        if not isinstance(self.owner, str):
            return self.owner
        module, _, name = self.owner.rpartition(".")
        try:
            return getattr(importlib.import_module(module), name, None)
        except ImportError:
            return None


def replace_methods(replacements: Iterable[Replacement]) -> None:
    """Replace methods of PySpark, each once; methods that this PySpark lacks are skipped."""
    for replacement in replacements:
        owner, name = replacement.owner_class, replacement.name
        with LOCK:
            if owner is not None and (owner, name) not in ORIGINALS and name in vars(owner):
                original = ORIGINALS[owner, name] = getattr(owner, name)
                setattr(owner, name, guard(original, replacement.question, replacement.action))


def restore_methods() -> None:
    """Restore PySpark's methods, if no session has a handler any more."""
    with LOCK:
        if not has_handlers():
            for (owner, name), original in ORIGINALS.items():
                setattr(owner, name, original)
            ORIGINALS.clear()


def guard(original: Method, question: Question, action: Action) -> Method:
    """Return the replacement of a method; if its question fails, PySpark's method runs."""

    @functools.wraps(original)
    def call(*given: Any, **named: Any) -> Any:
        if not has_handlers():
            return original(*given, **named)
        try:
            try:
                answer = question(*given, **named)
            except Exception as error:
                if is_about_tables(error):
                    raise
                unanswered = error
            else:
                return original(*given, **named) if answer is None else action(original, answer, *given, **named)
            return call_unanswered(original, unanswered, *given, **named)
        except DmlError as error:
            shorten_traceback(error)
            raise

    return call


def call_unanswered(original: Method, error: Exception, /, *given: Any, **named: Any) -> Any:
    """Call PySpark's method after a question has failed."""
    try:
        signature(original).bind(*given, **named)
    except TypeError:
        return original(*given, **named)  # the caller's mistake, which PySpark reports
    warn_unanswered(original.__qualname__, error)
    try:
        return original(*given, **named)
    except Exception as failure:
        failure.add_note(f"RowDelta could not tell whether this is about one of its tables: {reason(error)}")
        raise


def is_about_tables(error: Exception) -> bool:
    """Return True if a question's error is about a table: a RowDelta error, but not about Spark's internals."""
    return isinstance(error, DmlError) and not isinstance(error, UnknownInternalsError)


def warn_unanswered(what: str, error: Exception) -> None:
    """Log that a question failed, once for each kind of failure.

    Args:
        what: The method that was called, as users know it.
        error: The failure.
    """
    key = what, type(error)
    if key not in WARNED:
        WARNED.add(key)
        LOG.warning(
            "RowDelta could not tell whether a call of %s is about one of its tables and leaves it to PySpark %s: %s",
            what,
            pyspark.__version__,
            reason(error),
        )


def reason(error: Exception) -> str:
    """Format an error on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())
