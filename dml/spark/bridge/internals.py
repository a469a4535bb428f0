"""Detect changed private classes of Spark, and fall back or report them. Driver, classic only.

RowDelta uses classes and constructors that are not part of Spark's public API. A later release or a vendor's build may
have changed them. A use with a fallback is tried once in each JVM (`works`): if the trial fails, a warning names what
is missing and the fallback. A use without a fallback runs inside `internals`, whose error names the class and the
version of PySpark.
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pyspark
from pyspark.errors import PySparkException

from dml.errors import SetupError
from dml.spark.bridge.gateway import Py4JError, Py4JJavaError, gateway, jvm_view

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
"""Errors from using a missing or changed class: `JavaPackage` is not callable, and so on."""

TRIED: Final[dict[tuple[object, str], bool]] = {}
WARNED: Final[set[str]] = set()


class UnknownInternalsError(SetupError):
    """A private class of Spark is missing, or differs from what RowDelta expects."""


def works(what: str, trial: Callable[[], object], fallback: str) -> bool:
    """Return True if a use of Spark's private classes works; it is tried once in each JVM.

    Args:
        what: The part of Spark to try, as the warning names it: "the registry of catalogs".
        trial: Uses it.
        fallback: The consequence, for the warning: "Python workers read all files".
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
    """Log a warning about a part of Spark that RowDelta cannot use, once for each part.

    Args:
        what: The part of Spark.
        error: The failure.
        fallback: The consequence.
    """
    if what not in WARNED:
        WARNED.add(what)
        reason = str(error).strip().partition("\n")[0]
        LOG.warning("RowDelta cannot use %s of PySpark %s (%s): %s", what, pyspark.__version__, reason, fallback)


@contextmanager
def internals(name: str) -> Iterator[None]:
    """Name the class in the error if Spark lacks the class, method or constructor that the block uses.

    Exceptions that a method of Spark raises while it runs pass unchanged.

    Args:
        name: The class.

    Raises:
        UnknownInternalsError: Spark lacks the class, or has it in another form.
    """
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, AttributeError, TypeError) as error:
        raise unknown_internals(name, str(error).strip().partition("\n")[0]) from error


def unknown_internals(name: str, reason: str) -> UnknownInternalsError:
    """Return the error for a class that is missing or changed."""
    return UnknownInternalsError(
        f"Spark's class {name} differs in PySpark {pyspark.__version__} from what RowDelta expects: {reason}",
        hint="Use a PySpark release that this release of RowDelta was tested with, or a newer RowDelta",
    )


def further_arguments(name: str, known: Sequence[str], fillers: Mapping[str, Callable[[], Any]]) -> list[Any]:
    """Return the arguments that a class's constructor takes after the known ones: later releases add some.

    Args:
        name: The class; it has one public constructor.
        known: The simple names of the types of the first parameters.
        fillers: Makers of the arguments after these, by the simple names of their types.

    Raises:
        UnknownInternalsError: there is no such class, or its constructor differs.
    """
    kinds = constructor_types(gateway(), name)
    further = kinds[len(known) :]
    if kinds[: len(known)] != tuple(known) or any(kind not in fillers for kind in further):
        raise unknown_internals(name, f"its constructor takes ({', '.join(kinds)})")
    return [fillers[kind]() for kind in further]


@cache
def constructor_types(_: object, name: str) -> tuple[str, ...]:
    """Return the simple names of the parameter types of a class's one public constructor, in a gateway's JVM."""
    try:
        constructors = jvm_view().java.lang.Class.forName(name).getConstructors()
    except Py4JJavaError as error:
        raise unknown_internals(name, "the class does not exist") from error
    if len(constructors) != 1:
        raise unknown_internals(name, f"it has {len(constructors)} public constructors")
    return tuple(str(kind.getSimpleName()) for kind in constructors[0].getParameterTypes())
