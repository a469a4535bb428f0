"""The JVM of the driver and the calls that come back from it. Driver, classic Spark only.

Input: exceptions and answers of Python callbacks. Output: what py4j can carry into the JVM, and the Python exception
behind one that comes back. It is the only module that touches `_jvm`.
"""
# ruff: noqa: SLF001  the JVM is behind underscored names of PySpark, here and nowhere else

import functools
import importlib
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass, JavaMember, JavaObject, JVMView, is_instance_of
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession, udf
from pyspark.sql.types import StructType

from dml import limits
from dml.spark.bare_names import with_note
from dml.spark.handlers import is_classic

__all__ = [
    "PARSER_STAYS",
    "CallbackError",
    "activate",
    "analyzed_plan",
    "cache_manager",
    "carried",
    "classic_session",
    "empty_frame",
    "field_of",
    "gateway",
    "internal_rows",
    "java_collection",
    "jvm_view",
    "kept",
    "named_frames",
    "original_error",
    "python_function",
    "restore_python_side",
    "scala_list",
    "scala_tuple",
    "session_state",
    "settings_below",
    "settings_of",
    "take_callbacks",
    "weak_session",
]

# What a Java proxy may throw through `parsePlan`; it would wrap other exceptions and hide their text.
THROWN_AS_THEY_ARE: Final = ("org.apache.spark.sql.catalyst.parser.ParseException", "java.lang.RuntimeException")


class CallbackError(Py4JJavaError):  # type: ignore[misc]
    """Carries a Java exception out of a Python callback, so that it is thrown in the JVM as it is."""

    def __str__(self) -> str:
        return "a Java exception on its way back to the JVM"


# Python exceptions that callbacks raised, by the identity of the Java exception that stands for them; the oldest go.
CARRIED: Final[OrderedDict[int, BaseException]] = OrderedDict()


# Classes that PySpark asks the JVM for by name with every expression and function. For a name without a package the JVM
# looks through all JARs for a class of that name in each package that PySpark imports: a tenth of the time that small
# statements spend in it.
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


# py4j answers with the number of a Java object, and a thread of its own lets the JVM forget objects that Python has no
# reference to any more: without this one it might do so before the JVM has looked up the answer, which is then null.
# A thread's next callback comes after the JVM has taken the answer to the one before.
ANSWERS: Final = threading.local()


def kept(answer: JavaObject) -> JavaObject:
    """What a callback answers, kept until the thread's next one."""
    if not hasattr(ANSWERS, "last"):
        CALLERS.add_current()
    ANSWERS.last = answer
    return answer


@dataclass(frozen=True, slots=True, kw_only=True)
class CallingThread:
    """A thread of the JVM that has called Python.

    Attributes:
        thread: The thread.
        connection: Its connection in the JVM; at the other end a Python thread waits for its calls.
    """

    thread: JavaObject
    connection: JavaObject


class Callers:
    """The threads of the JVM that have called Python and may call again.

    py4j keeps the connection of each, and a Python thread at its other end, for ever, also when the JVM's thread has
    ended: a Spark Connect server has a new thread for each query. So those of threads that have ended are closed, when
    about as many new ones have come.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callers: list[CallingThread] = []
        self._limit = limits.MIN_CALLERS_TO_CLOSE

    def add_current(self) -> None:
        """Add the caller of the callback that runs in this thread, if a thread of the JVM's own is it."""
        client = gateway()._gateway_client
        mine = getattr(client, "get_thread_connection", lambda: None)()
        if mine is None or mine.initiated_from_client:
            return  # it is called back while it waits for an answer of the JVM
        with suppress(Py4JError, OSError):  # connections that stay open are no reason to fail
            server = JavaObject("GATEWAY_SERVER", client).getCallbackClient()
            thread = jvm_view().java.lang.Thread.currentThread()
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
    """What is in a field of a Java object that has no name for others.

    Raises:
        AttributeError: it has no such field.
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
    """The Python exception behind one that came back from the JVM; the exception itself if there is no other."""
    return carried_by(java_exception(error)) or error


def carried_by(exception: JavaObject | None) -> BaseException | None:
    """The Python exception that a Java one stands for, or one of its causes; None where there is none."""
    cause = exception if CARRIED else None
    while cause is not None:
        found = CARRIED.pop(identity(cause), None)
        if found is not None:
            return found
        cause = cause.getCause()
    return None


LOGGERS: Final = ("py4j.clientserver", "py4j.java_gateway")

PARSER_STAYS: Final = threading.Event()
"""Set once a session has our parser, which is called with every statement as long as the session lives."""


def take_callbacks() -> None:
    """Let the JVM call Python. Java exceptions pass with their type, and unlogged: their caller sees them."""
    ensure_callback_server_started(gateway())  # type: ignore[no-untyped-call]
    if not hasattr(captured.convert_exception, "__wrapped__"):
        setattr(captured, "convert_exception", converting(captured.convert_exception))  # noqa: B010  a name of PySpark's
    for name in ("python_parameters", "callback_server_parameters"):
        if (parameters := vars(gateway()).get(name)) is not None:
            parameters.propagate_java_exceptions = True
    for logger in LOGGERS:
        logging.getLogger(logger).addFilter(is_worth_logging)
    keep_lookups(jvm_view())


def restore_python_side() -> None:
    """Undo what `take_callbacks` changed in PySpark and py4j, unless a session has our parser."""
    if PARSER_STAYS.is_set() or gateway() is None:
        return
    convert = getattr(captured.convert_exception, "__wrapped__", None)
    if convert is not None:
        setattr(captured, "convert_exception", convert)  # noqa: B010  a name of PySpark's
    for logger in LOGGERS:
        logging.getLogger(logger).removeFilter(is_worth_logging)
    looked_up = vars(jvm_view())
    for name in [name for name, found in looked_up.items() if isinstance(found, KnownClass)]:
        del looked_up[name]


class KnownClass(JavaClass):  # type: ignore[misc]
    """A class of the JVM that keeps its static methods: py4j asks for them by name each time that one is called."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            self.__dict__[name] = found
        return found


def keep_lookups(view: JVMView) -> None:
    """Let PySpark find its own classes, and their static methods, without asking for them again."""
    kept_already = vars(view)
    for name in LOOKED_UP:
        if name not in kept_already:
            found = getattr(view, name)
            if isinstance(found, JavaClass):  # older PySparks lack some, and have nothing to look up by their names
                kept_already[name] = KnownClass(found._fqn, found._gateway_client)


def converting(original: Callable[[JavaObject], BaseException]) -> Callable[[JavaObject], BaseException]:
    """PySpark's way from a Java exception to one of Python, which gives a callback's own exception back as it was."""

    @functools.wraps(original)
    def convert(exception: JavaObject) -> BaseException:
        try:
            carried = carried_by(exception)
        except Exception:  # noqa: BLE001  PySpark converts what cannot be looked up
            carried = None
        return carried or with_note(original(exception))

    return convert


def python_function(function: Callable[..., Any]) -> JavaObject:
    """A function as Spark runs it in Python workers."""
    context = SparkContext._active_spark_context
    assert context is not None
    return cast("Any", udf)._wrap_function(context, function)


def weak_session(spark: SparkSession) -> Callable[[], SparkSession]:
    """A way to a classic session that does not keep it: what the JVM keeps with it would keep it for ever."""
    context = spark.sparkContext
    reference = jvm_view().java.lang.ref.WeakReference(cast("Any", spark)._jsparkSession)
    return lambda: SparkSession(context, reference.get())


def cache_manager(spark: SparkSession) -> JavaObject:
    """What the sessions of an application have cached."""
    return cast("Any", spark)._jsparkSession.sharedState().cacheManager()


def classic_session(spark: SparkSession) -> JavaObject:
    """The JVM's session of a classic one."""
    return cast("Any", spark)._jsparkSession


def analyzed_plan(frame: DataFrame) -> JavaObject:
    """The plan of a DataFrame, analysed and not optimized."""
    return cast("Any", frame)._jdf.queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> JavaObject:
    """The plan of a DataFrame, optimized."""
    return cast("Any", frame)._jdf.queryExecution().optimizedPlan()


def scala_list(items: Iterable[Any]) -> JavaObject:
    """An immutable sequence of Scala's."""
    listed = jvm_view().java.util.ArrayList()
    for item in items:
        listed.add(item)
    return jvm_view().scala.jdk.javaapi.CollectionConverters.asScala(listed).toList()


def java_collection(collection: JavaObject) -> Any:
    """A sequence or a map of Scala's as Java's, which Python can go through."""
    return jvm_view().scala.jdk.javaapi.CollectionConverters.asJava(collection)


def scala_tuple(first: Any, second: Any) -> JavaObject:
    """A pair of Scala's."""
    return jvm_view().scala.Tuple2(first, second)


def activate(spark: SparkSession) -> None:
    """Make a classic session the thread's active one where it has none: Spark takes its default settings then."""
    session = classic_session(spark)
    if not session.getActiveSession().isDefined():
        session.setActiveSession(session)


def internal_rows(frame: DataFrame) -> JavaObject:
    """The rows of a DataFrame as Spark keeps them inside."""
    return cast("Any", frame)._jdf.queryExecution().executedPlan().executeCollect()


class SettingsReader:
    """Reads the settings of a session, and asks for each only once while none of them changes.

    A statement needs some twenty, and each is a command to the JVM; that all of them are as they were is one.

    Args:
        spark: A session, classic or Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._get = spark.conf.get
        self._client = None if is_classic(spark) else cast("Any", spark).client
        self._settings = session_state(spark).conf().settings() if is_classic(spark) else None
        self._read: tuple[JavaObject | None, dict[str, str | None]] = (None, {})
        self._names: tuple[JavaObject | None, list[str]] = (None, [])

    def now(self) -> Callable[[str, str | None], str | None]:
        """What gives the value of a setting, or what it is given for one that is not set, as it is now."""
        if self._settings is None:
            return self._get
        copy, known = self._read
        if copy is None or not self._settings.equals(copy):
            copy, known = self._read = jvm_view().java.util.HashMap(self._settings), {}

        def get(key: str, default: str | None) -> str | None:
            if key not in known:
                known[key] = copy.get(key)
            return default if known[key] is None else known[key]

        return get

    def below(self, prefix: str) -> dict[str, str]:
        """The settings whose names begin with a prefix, by the rest of their names, as they are now."""
        if self._settings is None:
            request = importlib.import_module("pyspark.sql.connect.proto").ConfigRequest
            answer = cast("Any", self._client).config(request.Operation(get_all=request.GetAll(prefix=prefix)))
            return {name: value for name, value in answer.pairs if value is not None}
        get = self.now()
        of, names = self._names
        if of is not (copy := self._read[0]):  # one command for all names: they are many, and hardly ever change
            assert copy is not None
            names = str(jvm_view().java.lang.String.join("\n", copy.keySet())).split("\n")
            self._names = copy, names
        found = ((name, get(name, None)) for name in names if name.startswith(prefix))
        return {name[len(prefix) :]: value for name, value in found if value is not None}


READERS: Final[WeakKeyDictionary[SparkSession, SettingsReader]] = WeakKeyDictionary()


def settings_of(spark: SparkSession) -> Callable[[str, str | None], str | None]:
    """What gives the value of each setting of a session, as they are now; as `spark.conf.get` with a default."""
    return settings_reader(spark).now()


def settings_below(spark: SparkSession, prefix: str) -> dict[str, str]:
    """The settings of a session whose names begin with a prefix, by the rest of their names, as they are now."""
    return settings_reader(spark).below(prefix)


def settings_reader(spark: SparkSession) -> SettingsReader:
    """What reads the settings of a session; there is one for each."""
    reader = READERS.get(spark)
    if reader is None:
        reader = READERS[spark] = SettingsReader(spark)
    return reader


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """No rows, which Spark knows when it plans: what PySpark makes of none are the rows of a job.

    Args:
        spark: A session, classic or Connect.
        schema: Their columns.
    """
    if not is_classic(spark):
        return spark.createDataFrame([], schema)
    session = classic_session(spark)
    if not schema.fields:
        return DataFrame(session.emptyDataFrame(), spark)
    rows, columns = jvm_view().java.util.ArrayList(), session.parseDataType(schema.json())
    return DataFrame(session.createDataFrame(rows, columns), spark)


@contextmanager
def named_frames(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Temporary views while the block runs; what Spark keeps of their rows it goes on keeping.

    `spark.catalog.dropTempView` of a classic session, and so a DataFrame among the arguments of its `sql`, lets Spark
    forget them: the source of a MERGE would be evaluated again, and where it is not deterministic to other rows.

    Args:
        spark: The session, classic or Connect.
        frames: By name, in lower case.
    """
    catalog = session_state(spark).catalog() if is_classic(spark) else spark.catalog
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name in frames:
            catalog.dropTempView(name)


def session_state(spark: SparkSession) -> JavaObject:
    """What a classic session keeps in the JVM: its parser, its catalogs."""
    return classic_session(spark).sessionState()


def is_worth_logging(record: logging.LogRecord) -> bool:
    """False for the log record that py4j writes of an exception that a callback raised on purpose."""
    return not (record.exc_info and isinstance(record.exc_info[1], CallbackError))


def carried(error: Exception, stand_in: JavaObject | None = None) -> CallbackError:
    """An exception in the form that reaches the JVM: Java's own as they are, Python's as text, kept for Python.

    Args:
        error: The exception.
        stand_in: The Java exception that stands for one of Python's; a RuntimeException if it is left out.
    """
    origin = java_exception(error)
    if origin is not None and any(is_instance_of(gateway(), origin, kind) for kind in THROWN_AS_THEY_ARE):
        return CallbackError("", kept(origin))
    if stand_in is None:
        stand_in = jvm_view().java.lang.RuntimeException(f"{type(error).__name__}: {error}", origin)
    CARRIED[identity(stand_in)] = error
    while len(CARRIED) > limits.CARRIED_EXCEPTIONS:
        CARRIED.popitem(last=False)
    return CallbackError("", kept(stand_in))


def java_exception(error: BaseException) -> JavaObject | None:
    """The Java exception behind a Python one."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def identity(java_object: JavaObject) -> int:
    """Java's identity of an object: Python may hold several references to it."""
    return int(jvm_view().java.lang.System.identityHashCode(java_object))


def gateway() -> Any:
    """The way to the JVM of this driver."""
    return cast("Any", SparkContext)._gateway


def jvm_view() -> Any:
    """The JVM of this driver."""
    return cast("Any", SparkContext)._jvm
