"""Private classes of Spark: whether they are as we know them, and what happens otherwise. Driver, classic only.

RowDelta is built on classes and constructors that are no interface of Spark's. A later release or a vendor's build may
have changed them. A use with a fallback is tried once in each JVM (`works`): where the trial fails, a warning says what
is missing and what is done instead. A use without a fallback runs inside `internals`, whose error names the class and
the version of PySpark.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from dml.errors import SetupError
from dml.spark.jvm import gateway, jvm_view

__all__ = [
    "FAILURES",
    "UnknownInternalsError",
    "further_arguments",
    "internals",
    "unknown_internals",
    "warn_degraded",
    "works",
]

LOG: Final = logging.getLogger(__name__)

FAILURES: Final = (Py4JError, PySparkException, SetupError, AttributeError, LookupError, TypeError, ValueError)
"""What using a class that Spark does not have, or has otherwise, raises: `JavaPackage` is not callable, and so on."""

TRIED: Final[dict[tuple[object, str], bool]] = {}
WARNED: Final[set[str]] = set()


class UnknownInternalsError(SetupError):
    """A private class of Spark is not as RowDelta knows it."""


def works(what: str, trial: Callable[[], object], fallback: str) -> bool:
    """Whether a use of Spark's private classes works; tried once in each JVM.

    Args:
        what: What is tried, for the warning.
        trial: Uses them.
        fallback: What is done instead, for the warning: "Python workers read all files".
    """
    key = gateway(), what
    if key not in TRIED:
        try:
            trial()
            TRIED[key] = True
        except FAILURES as error:
            warn_degraded(what, error, fallback)
            TRIED[key] = False
    return TRIED[key]


def warn_degraded(what: str, error: Exception, fallback: str) -> None:
    """Log that Spark is not as known, once for each use.

    Args:
        what: What was tried.
        error: Why it failed.
        fallback: What is done instead.
    """
    if what not in WARNED:
        WARNED.add(what)
        reason = str(error).strip().partition("\n")[0]
        LOG.warning(
            "PySpark %s does not have %s as RowDelta knows it (%s): %s", pyspark.__version__, what, reason, fallback
        )


@contextmanager
def internals(name: str) -> Iterator[None]:
    """Name the class whose use fails inside, where Spark has no such class, method or constructor.

    What Spark raises when it has run the method passes unchanged.

    Args:
        name: The class.

    Raises:
        UnknownInternalsError: Spark does not have it as we know it.
    """
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, AttributeError, TypeError) as error:
        raise unknown_internals(name, str(error).strip().partition("\n")[0]) from error


def unknown_internals(name: str, reason: str) -> UnknownInternalsError:
    """The error for a class that is not as we know it."""
    return UnknownInternalsError(
        f"Spark's class {name} is not as RowDelta knows it in PySpark {pyspark.__version__}: {reason}",
        hint="Use a PySpark release that this release of RowDelta was tested with, or a newer RowDelta",
    )


def further_arguments(name: str, known: Sequence[str], fillers: Mapping[str, Callable[[], Any]]) -> list[Any]:
    """The arguments that a class's constructor takes after those that we know: releases add some.

    Args:
        name: The class; it has one public constructor.
        known: The simple names of the types of the first parameters.
        fillers: Make the arguments after these, by the simple names of their types.

    Raises:
        UnknownInternalsError: there is no such class, or its constructor takes something else.
    """
    kinds = constructor_types(gateway(), name)
    further = kinds[len(known) :]
    if kinds[: len(known)] != tuple(known) or any(kind not in fillers for kind in further):
        raise unknown_internals(name, f"its constructor takes ({', '.join(kinds)})")
    return [fillers[kind]() for kind in further]


@cache
def constructor_types(_: object, name: str) -> tuple[str, ...]:
    """The simple names of the types that the one public constructor of a class takes, in a gateway's JVM."""
    try:
        constructors = jvm_view().java.lang.Class.forName(name).getConstructors()
    except Py4JJavaError as error:
        raise unknown_internals(name, "there is no such class") from error
    if len(constructors) != 1:
        raise unknown_internals(name, f"it has {len(constructors)} public constructors")
    return tuple(str(kind.getSimpleName()) for kind in constructors[0].getParameterTypes())
