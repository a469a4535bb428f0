"""The driver's JVM through py4j, and its callbacks to Python. Driver, classic Spark only.

Input: exceptions and results of Python callbacks. Output: objects that py4j can pass to the JVM, and the original
Python exception of one that comes back. Other modules import py4j's types from here.
"""
# ruff: noqa: SLF001  the JVM is behind underscored names of PySpark

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, cast

from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JVMView, is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import udf

from dml import limits

__all__ = [
    "CallbackError",
    "JavaObject",
    "Py4JError",
    "Py4JJavaError",
    "Py4JNetworkError",
    "field_of",
    "find_carried",
    "gateway",
    "java_class",
    "jvm_view",
    "keep_alive",
    "original_error",
    "python_function",
    "restore_py4j",
    "start_callbacks",
    "to_callback_error",
]

# Exceptions that a Java proxy may throw from `parsePlan`. It wraps others, which hides their text.
THROWN_UNCHANGED: Final = ("org.apache.spark.sql.catalyst.parser.ParseException", "java.lang.RuntimeException")


class CallbackError(Py4JJavaError):  # type: ignore[misc]
    """Carries a Java exception out of a Python callback, so that the JVM throws it unchanged."""

    def __str__(self) -> str:
        return "a Java exception on its way back to the JVM"


# Python exceptions of callbacks, by the identity of the Java exception that represents them; the oldest are evicted.
CARRIED: Final[OrderedDict[int, BaseException]] = OrderedDict()


# Classes that PySpark looks up in the JVM by name for every expression and function. For a name without a package, the
# JVM searches all JARs for the class in each package that PySpark imports: a tenth of the JVM time of small statements.
LOOKED_UP: Final = (
    "PythonRDD",
    "PythonSQLUtils",
    "PythonUtils",
    "SerDeUtil",
    "SimplePythonFunction",
    "functions",
    "org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.execution.python.UserDefinedPythonFunction",
    "org.apache.spark.sql.functions",
)


# py4j returns the id of a Java object, and one of its threads releases objects in the JVM that Python no longer
# references. Without this reference it could release the result before the JVM has looked it up, and the JVM would get
# null. When a thread makes its next callback, the JVM has received the result of the previous one.
ANSWERS: Final = threading.local()


def keep_alive(answer: JavaObject) -> JavaObject:
    """Keep the result of a callback alive until the thread's next callback, and return it."""
    if not hasattr(ANSWERS, "last"):
        CALLERS.add_current()
    ANSWERS.last = answer
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingThread:
    """A thread of the JVM that has called Python.

    Attributes:
        thread: The thread.
        connection: Its connection in the JVM; a Python thread waits for its calls at the other end.
    """

    thread: JavaObject
    connection: JavaObject


class Callers:
    """The threads of the JVM that have called Python and may call again.

    py4j keeps the connection of each thread, and a Python thread at its other end, forever, even after the JVM's thread
    has ended. A Spark Connect server starts a thread per query, so their number would grow. The connections of ended
    threads are closed whenever the number of callers has doubled.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callers: list[CallingThread] = []
        self._limit = limits.MIN_CALLERS_TO_CLOSE

    def add_current(self) -> None:
        """Add the caller of this thread's callback, if the JVM started that thread."""
        client = gateway()._gateway_client
        mine = getattr(client, "get_thread_connection", lambda: None)()
        if mine is None or mine.initiated_from_client:
            return  # a Python thread that waits for the JVM: its connection is in use
        with suppress(Py4JError, OSError):  # closing connections is best effort
            server = JavaObject("GATEWAY_SERVER", client).getCallbackClient()
            thread = java_class("java.lang.Thread").currentThread()
            caller = CallingThread(thread=thread, connection=server.getPerThreadConnection())
            with self._lock:
                self._callers.append(caller)
                if len(self._callers) >= self._limit:
                    self._close_ended(server)

    def _close_ended(self, server: JavaObject) -> None:
        alive: list[CallingThread] = []
        ended: list[CallingThread] = []
        for caller in self._callers:
            (alive if caller.thread.isAlive() else ended).append(caller)
        self._callers, self._limit = alive, max(limits.MIN_CALLERS_TO_CLOSE, 2 * len(alive))
        connections, lock = field_of(server, "connections"), field_of(server, "lock")
        for caller in ended:
            lock.lock()
            connections.remove(caller.connection)
            lock.unlock()
            caller.connection.shutdown()


CALLERS: Final = Callers()


def field_of(value: JavaObject, name: str) -> JavaObject:
    """Read a private field of a Java object.

    Raises:
        AttributeError: The object has no such field.
    """
    kind = value.getClass()
    while kind is not None:
        for field in kind.getDeclaredFields():
            if field.getName() == name:
                field.setAccessible(True)
                return field.get(value)
        kind = kind.getSuperclass()
    raise AttributeError(name)


def original_error(error: BaseException) -> BaseException:
    """Return the Python exception of a callback that came back from the JVM; otherwise the exception itself."""
    return find_carried(java_exception(error)) or error


def find_carried(exception: JavaObject | None) -> BaseException | None:
    """Return the Python exception that a Java exception or one of its causes represents, or None."""
    cause = exception if CARRIED else None
    while cause is not None:
        found = CARRIED.pop(identity(cause), None)
        if found is not None:
            return found
        cause = cause.getCause()
    return None


LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")


PROPAGATING: Final[list[Any]] = []
"""Parameters of the callback server that `start_callbacks` has changed."""


def start_callbacks() -> None:
    """Start py4j's callback server. Java exceptions keep their type, unlogged: their caller sees them."""
    ensure_callback_server_started(gateway())  # type: ignore[no-untyped-call]
    for name in ("python_parameters", "callback_server_parameters"):
        if (parameters := vars(gateway()).get(name)) is not None and not parameters.propagate_java_exceptions:
            parameters.propagate_java_exceptions = True
            PROPAGATING.append(parameters)
    for logger in LOGGERS:
        logging.getLogger(logger).addFilter(is_worth_logging)
    keep_lookups(jvm_view())


def restore_py4j() -> None:
    """Undo what `start_callbacks` changed in py4j's loggers, parameters and view of the JVM."""
    for logger in LOGGERS:
        logging.getLogger(logger).removeFilter(is_worth_logging)
    while PROPAGATING:
        PROPAGATING.pop().propagate_java_exceptions = False
    looked_up = vars(jvm_view())
    for name in [name for name, found in looked_up.items() if isinstance(found, KnownClass)]:
        del looked_up[name]


class KnownClass(JavaClass):  # type: ignore[misc]
    """A JVM class that caches its static methods: py4j looks them up by name for each call."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def keep_lookups(view: JVMView) -> None:
    """Cache the classes that PySpark looks up, and their static methods."""
    cached = vars(view)
    for name in LOOKED_UP:
        if name not in cached:
            found = getattr(view, name)
            if isinstance(found, JavaClass):  # older PySparks lack some of these classes
                cached[name] = KnownClass(found._fqn, found._gateway_client)


def python_function(function: Callable[..., Any]) -> JavaObject:
    """Convert a function to the form that Spark runs in Python workers."""
    context = SparkContext._active_spark_context
    assert context is not None
    return cast("Any", udf)._wrap_function(context, function)


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for py4j's log record of an exception that a callback raised on purpose."""
    return not (record.exc_info and isinstance(record.exc_info[1], CallbackError))


def to_callback_error(error: Exception, stand_in: JavaObject | None = None) -> CallbackError:
    """Convert an exception for the JVM. A Java one passes unchanged; a Python one becomes its text and is kept.

    Args:
        error: The exception.
        stand_in: The Java exception that represents a Python one; by default a RuntimeException.
    """
    origin = java_exception(error)
    if origin is not None and any(is_instance_of(gateway(), origin, kind) for kind in THROWN_UNCHANGED):
        return CallbackError("", keep_alive(origin))
    if stand_in is None:
        stand_in = java_class("java.lang.RuntimeException")(f"{type(error).__name__}: {error}", origin)
    CARRIED[identity(stand_in)] = error
    while len(CARRIED) > limits.CARRIED_EXCEPTIONS:
        CARRIED.popitem(last=False)
    return CallbackError("", keep_alive(stand_in))


def java_exception(error: BaseException) -> JavaObject | None:
    """Return the Java exception that a Python exception wraps, or None."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def identity(java_object: JavaObject) -> int:
    """Return Java's identity hash of an object: Python may hold several references to it."""
    return int(java_class("java.lang.System").identityHashCode(java_object))


def gateway() -> Any:
    """Return py4j's gateway to the JVM of this driver."""
    return cast("Any", SparkContext)._gateway


def jvm_view() -> Any:
    """Return py4j's view of the JVM of this driver."""
    return cast("Any", SparkContext)._jvm


def java_class(name: str) -> Any:
    """Return a JVM class by its full name, with `$` before the name of a nested class.

    Cached. The lookup uses the full name: part by part, as for `a.b.C`, the JVM would search all JARs for each part.
    """
    return cached_class(gateway(), name)


@cache
def cached_class(_: object, name: str) -> Any:
    return getattr(jvm_view(), name)
