"""Tracebacks that end at the user's call: RowDelta's own frames are not shown below it. Pure; driver.

Input: public functions, classes and their errors. Output: the same errors without the frames of libraries, and without
Spark's exception where the message already has all that it says. ROWDELTA_DEBUG=1 keeps both.
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
"""Top-level modules whose frames are left out."""

TRANSLATED: Final = frozenset({"dml", "py4j", "pyspark"})
"""Top-level modules whose exceptions are translated completely where the user's statement or data is wrong."""

EVIDENCE: Final = (CommitStateUnknownError, RowConservationError)
"""Errors that are reported or investigated and rarely happen twice: they keep all frames."""


def is_debugging() -> bool:
    """Return True if the environment variable ROWDELTA_DEBUG asks for complete tracebacks."""
    return bool(os.environ.get("ROWDELTA_DEBUG"))


def short_traceback(function: Callable[Params, Value]) -> Callable[Params, Value]:
    """Decorate a public function: tracebacks of its errors end at its caller."""

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
    """Remove the frames of libraries from an error and its causes; frames of a user's own functions stay.

    Spark's exception is hidden if the statement or the data is wrong; `DmlError.cause` has it.
    """
    if is_debugging() or isinstance(error, EVIDENCE):
        return
    for one in shown_chain(error):
        if isinstance(one, DmlError):
            hide_cause(one)
        one.__traceback__ = without_libraries(one.__traceback__)


def hide_cause(error: DmlError) -> None:
    """Let `DmlError.cause` keep the cause, which `raise ... from None` drops, and hide it if it adds nothing."""
    error.cause = error.cause
    if isinstance(error, SqlError | DataError) and is_translated(error.__cause__):
        error.__cause__ = None  # and Python shows no context either


def is_translated(cause: BaseException | None) -> bool:
    return cause is None or top_module(type(cause).__module__) in TRANSLATED


def shown_chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and the causes and contexts that Python shows with it; each is determined after the one before."""
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
