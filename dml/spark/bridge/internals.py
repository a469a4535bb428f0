"""Detect private classes of Spark that have changed. Fall back, or report them. Driver.

RowDelta uses classes and constructors that are not part of Spark's public API. A later release or a vendor's build may
have changed them. Each is a `SparkClass` or a `PrivateField` of `names.py`, which states its fallback. A use with a
fallback is tried once in each JVM (`works`): if the trial fails, a warning names what is missing and the fallback. A
use without a fallback raises an error that names the class and the version of PySpark.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import pyspark
from pyspark.errors import PySparkException

from dml.errors import SetupError
from dml.spark.bridge.gateway import CallbackError, JavaObject, Py4JError, Py4JJavaError, field_of, gateway, keep_alive
from dml.spark.bridge.values import array, companion, java_class, static_method
from dml.spark.versions import INSTALLED_FEATURES, Feature

__all__ = [
    "FAILURES",
    "Internal",
    "JavaField",
    "PrivateField",
    "SparkClass",
    "UnknownInternalsError",
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
        what: The part of Spark to try, for the warning: "the registry of catalogs".
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


def warn_degraded(what: str, error: BaseException, fallback: str) -> None:
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
        UnknownInternalsError: Spark lacks the class, or the class differs.
    """
    try:
        yield
    except Py4JJavaError:
        raise
    except (Py4JError, AttributeError, TypeError) as error:
        raise unknown_internals(name, str(error).strip().partition("\n")[0]) from error


def unknown_internals(name: str, reason: str) -> UnknownInternalsError:
    """Return the error for a class or attribute that is missing or changed."""
    return UnknownInternalsError(
        f"{name} differs in PySpark {pyspark.__version__} from what RowDelta expects: {reason}",
        hint="Use a PySpark release that this release of RowDelta was tested with, or a newer RowDelta",
    )


@dataclass(frozen=True, slots=True)
class Internal:
    """Something that is not part of the public API of Spark or PySpark.

    Attributes:
        name: The full name of a class, or the name of an attribute.
        fallback: The consequence if it has changed, for the warning; empty if the statement is rejected.
        since: Only PySpark versions with this feature have it; None for all.
        until: PySpark versions with this feature no longer need it; None for all.
    """

    name: str
    fallback: str = field(default="", kw_only=True)
    since: Feature | None = field(default=None, kw_only=True)
    until: Feature | None = field(default=None, kw_only=True)

    @property
    def is_used(self) -> bool:
        """True if RowDelta uses it on this PySpark."""
        return (self.since is None or self.since in INSTALLED_FEATURES) and (
            self.until is None or self.until not in INSTALLED_FEATURES
        )


@dataclass(frozen=True, slots=True)
class SparkClass(Internal):
    """A private class of Spark.

    Attributes:
        members: The members that RowDelta uses, each with its number of arguments: `ofRows/2`. `new` is a constructor;
            `new/11+` may take more arguments, see `further_arguments`. Words, separated by spaces.
    """

    members: str = ""

    def resolve(self) -> Any:
        """Return py4j's object of the class. If the class is missing, the object fails when it is used."""
        return java_class(self.name)

    def find(self) -> JavaObject:
        """Return Java's `Class` object.

        Raises:
            UnknownInternalsError: Spark lacks the class.
        """
        return find_class(self.name)

    def new(self, *arguments: Any) -> Any:
        """Call the constructor.

        Raises:
            UnknownInternalsError: Spark lacks the class, or its constructor differs.
        """
        with internals(self.name):
            return self.resolve()(*arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """Call a static method.

        Raises:
            UnknownInternalsError: Spark lacks the class or the method.
        """
        with internals(self.name):
            return self.static(method)(*arguments)

    def static(self, method: str) -> Any:
        """Return a static method for repeated calls: py4j looks it up in the JVM on each access."""
        return static_method(self.name, method)

    def companion(self) -> Any:
        """Return the companion object of the class."""
        with internals(self.name):
            return companion(self.name)

    def call_object(self, method: str, *arguments: Any) -> Any:
        """Call a method of the companion object: Scala adds no static method if the class has the same method.

        Raises:
            UnknownInternalsError: Spark lacks the object or the method.
        """
        with internals(self.name):
            return getattr(self.companion(), method)(*arguments)

    def array(self, items: Iterable[Any]) -> JavaObject:
        """Create a Java array of the class.

        Raises:
            UnknownInternalsError: Spark lacks the class. py4j would lose its connection.
        """
        self.find()
        return array(self.name, items)

    def error(self, *arguments: Any) -> CallbackError:
        """Return an exception of the class to raise from a callback."""
        return CallbackError("", keep_alive(self.new(*arguments)))

    def constructor_types(self) -> tuple[str, ...]:
        """Return the simple names of the parameter types of the one public constructor.

        Raises:
            UnknownInternalsError: There is no such class, or it has several constructors.
        """
        return constructor_types(gateway(), self.name)

    def further_arguments(self, known: Sequence[str], fillers: Mapping[str, Callable[[], Any]]) -> list[Any]:
        """Return the arguments of the constructor after the known ones, because later releases add some.

        Args:
            known: The simple names of the types of the first parameters.
            fillers: Makers of the arguments after these, by the simple names of their types.

        Raises:
            UnknownInternalsError: There is no such class, or its constructor differs.
        """
        kinds = self.constructor_types()
        further = kinds[len(known) :]
        if kinds[: len(known)] != tuple(known) or any(kind not in fillers for kind in further):
            raise unknown_internals(self.name, f"its constructor takes ({', '.join(kinds)})")
        return [fillers[kind]() for kind in further]


@dataclass(frozen=True, slots=True)
class PrivateField(Internal):
    """A private attribute of a PySpark object.

    Attributes:
        owner: The class that has it.
    """

    owner: str

    def of(self, value: Any) -> Any:
        """Return the attribute of an object.

        Raises:
            UnknownInternalsError: The object has no such attribute.
        """
        try:
            return self.read(value)
        except AttributeError as error:
            raise unknown_internals(f"{self.owner}.{self.name}", str(error)) from error

    def read(self, value: Any) -> Any:
        """Return the attribute. All reads of private attributes go through this method."""
        return getattr(value, self.name)


@cache
def constructor_types(_: object, name: str) -> tuple[str, ...]:
    """Return the simple names of the parameter types of a class's one public constructor, in a gateway's JVM."""
    constructors = find_class(name).getConstructors()
    if len(constructors) != 1:
        raise unknown_internals(name, f"it has {len(constructors)} public constructors")
    return tuple(str(kind.getSimpleName()) for kind in constructors[0].getParameterTypes())


@dataclass(frozen=True, slots=True)
class JavaField(Internal):
    """A private field of a class of Spark.

    Attributes:
        owner: The class that has it.
    """

    owner: str

    def of(self, value: JavaObject) -> Any:
        """Return the field of an object.

        Raises:
            UnknownInternalsError: The object has no such field.
        """
        try:
            return self.read(value)
        except AttributeError as error:
            raise unknown_internals(f"{self.owner}.{self.name}", "there is no such field") from error

    def read(self, value: JavaObject) -> Any:
        """Return the field of an object. All reads of private fields go through this method."""
        return field_of(value, self.name)


def find_class(name: str) -> JavaObject:
    """Return Java's `Class` of a name.

    Raises:
        UnknownInternalsError: There is no such class.
    """
    try:
        return found_class(gateway(), name)
    except Py4JJavaError as error:
        raise unknown_internals(name, "the class does not exist") from error


@cache
def found_class(_: object, name: str) -> JavaObject:
    return java_class("java.lang.Class").forName(name)
