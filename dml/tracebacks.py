"""Tracebacks that end at the user's call, without the frames of RowDelta below it. Pure; driver.

Input: public functions, classes and their errors. Output: the same errors without the frames of libraries, and without
Spark's exception if the message already contains its information. ROWDELTA_DEBUG=1 keeps both.
"""

import os
from collections.abc import Callable, Iterator
from functools import wraps
from types import FunctionType, TracebackType
from typing import Final, ParamSpec, TypeVar

from dml.errors import CommitStateUnknownError, DataError, DmlError, RowConservationError, SqlError

__all__ = ["is_debugging", "short_traceback", "short_tracebacks", "shorten_traceback"]

Params = ParamSpec("Params")
Value = TypeVar("Value")
Owner = TypeVar("Owner", bound=type)

LIBRARIES: Final = frozenset(
    {
        "concurrent",
        "contextlib",
        "dml",
        "py4j",
        "pyarrow",
        "pyiceberg",
        "pyspark",
        "sqlalchemy",
        "tenacity",
        "threading",
    }
)
"""Top-level modules whose frames are removed."""

TRANSLATED: Final = frozenset({"dml", "py4j", "pyspark"})
"""Top-level modules whose exceptions add nothing to RowDelta's message if the statement or the data is wrong."""

COMPLETE_TRACEBACKS: Final = (CommitStateUnknownError, RowConservationError)
"""Errors that keep all frames, because they need an investigation and are hard to reproduce."""


def is_debugging() -> bool:
    """Return True if the environment variable ROWDELTA_DEBUG is set, which keeps tracebacks complete."""
    return bool(os.environ.get("ROWDELTA_DEBUG"))


def short_traceback(function: Callable[Params, Value]) -> Callable[Params, Value]:
    """Decorate a public function, so that tracebacks of its errors end at its caller."""

    @wraps(function)
    def call(*args: Params.args, **kwargs: Params.kwargs) -> Value:
        try:
            return function(*args, **kwargs)
        except DmlError as error:
            shorten_traceback(error)
            raise  # without arguments: Python adds no frame

    return call


def short_tracebacks(owner: Owner) -> Owner:
    """Decorate the public methods and properties of a class as `short_traceback` does."""
    for name, member in list(vars(owner).items()):
        if name.startswith("_"):
            continue
        if isinstance(member, FunctionType):
            setattr(owner, name, short_traceback(member))
        elif isinstance(member, property) and member.fget is not None:
            setattr(owner, name, property(short_traceback(member.fget), doc=member.__doc__))
    return owner


def shorten_traceback(error: DmlError) -> None:
    """Remove the frames of libraries from an error and its causes, and keep those of the user's own functions.

    If the statement or the data is wrong, Spark's exception is hidden; `DmlError.cause` returns it.
    """
    if is_debugging() or isinstance(error, COMPLETE_TRACEBACKS):
        return
    for one in shown_chain(error):
        if isinstance(one, DmlError):
            hide_cause(one)
        one.__traceback__ = without_libraries(one.__traceback__)


def hide_cause(error: DmlError) -> None:
    """Hide the cause of an error if it adds nothing; `DmlError.cause` still returns it."""
    error.cause = error.cause  # survives a later `raise ... from None`
    if isinstance(error, SqlError | DataError) and is_translated(error.__cause__):
        error.__cause__ = None  # Python then hides the context too


def is_translated(cause: BaseException | None) -> bool:
    return cause is None or top_module(type(cause).__module__) in TRANSLATED


def shown_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the causes and contexts that Python shows with it.

    The next one is read only after the caller has processed the previous one, because the caller may hide it.
    """
    seen: set[int] = set()
    one: BaseException | None = error
    while one is not None and id(one) not in seen:
        seen.add(id(one))
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def without_libraries(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the frames of libraries."""
    kept: list[TracebackType] = []
    while trace is not None:
        if top_module(trace.tb_frame.f_globals.get("__name__", "")) not in LIBRARIES:
            kept.append(trace)
        trace = trace.tb_next
    short: TracebackType | None = None
    for one in reversed(kept):
        short = TracebackType(short, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return short


def top_module(name: str) -> str:
    return name.partition(".")[0]
