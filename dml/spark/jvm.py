"""Access to the driver's JVM, and its callbacks to Python. Driver, classic Spark only.

Input: exceptions and results of Python callbacks. Output: objects that py4j can pass to the JVM, and the original
Python exception of one that comes back. It is the only module that touches `_jvm`.

Two session features are here too. An error that PySpark converted from a JVM exception gets a note if its name without
a catalog may belong to a RowDelta catalog: statements look up such a name in RowDelta's catalog too, but `spark.table`,
`df.write` and `spark.catalog` look it up in Spark's current catalog only. `replaces_any` detects built-in SQL functions
that the user has replaced: before Spark 4.3, `spark.udf.register("upper", f)` and CREATE OR REPLACE TEMPORARY FUNCTION
replace the function in the session's registry. Spark 4.3 searches functions along a path, on which built-in functions
come first by default. Source: Spark's `FunctionRegistry` and `FunctionResolution`.
"""
# ruff: noqa: SLF001  the JVM is behind underscored names of PySpark, here and nowhere else

import functools
import importlib
import logging
import re
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
from pyspark.errors import PySparkException
from pyspark.errors.exceptions import captured
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, SparkSession, udf
from pyspark.sql.types import StructType

from dml import limits
from dml.spark.handlers import catalog_of_bare_names, is_classic
from dml.spark.versions import Feature, server_has, sql_failure

__all__ = [
    "PARSER_STAYS",
    "CallbackError",
    "activate",
    "analyzed_plan",
    "cache_manager",
    "classic_session",
    "empty_frame",
    "field_of",
    "gateway",
    "internal_rows",
    "java_class",
    "java_collection",
    "jvm_view",
    "keep_alive",
    "named_frames",
    "original_error",
    "python_function",
    "replaces_any",
    "restore_python_side",
    "scala_list",
    "scala_tuple",
    "session_state",
    "settings_below",
    "settings_of",
    "take_callbacks",
    "to_callback_error",
    "weak_session",
]

CONDITIONS: Final = {"TABLE_OR_VIEW_NOT_FOUND": "table", "SCHEMA_NOT_FOUND": "namespace"}
NAME: Final = re.compile(r"(?:`spark_catalog`\.)?((?:`(?:[^`]|``)+`)(?:\.`(?:[^`]|``)+`)*)")


def with_note(error: BaseException) -> BaseException:
    """Add a note to an error about a missing name, without a request to a catalog: callers may expect such errors."""
    catalog = catalog_of_bare_names()
    if catalog is None or not isinstance(error, PySparkException):
        return error
    with suppress(Exception):  # the error may be unrelated to RowDelta, and must reach its caller
        note = note_of(error, catalog)
        if note is not None:
            error.add_note(note)
    return error


def note_of(error: PySparkException, catalog: str) -> str | None:
    """Return what to write instead; None if no name is missing, or it was looked up in RowDelta's catalog."""
    failure = sql_failure(error)
    what = CONDITIONS.get(failure.condition or "")
    found = NAME.search(failure.message)
    if what is None or found is None or f"`{catalog}`" in failure.message:
        return None
    session = SparkSession.getActiveSession()
    if session is not None and session.catalog.currentCatalog() == catalog:  # PySpark 4.0 omits it from messages
        return None
    name = ".".join((catalog, found[1].replace("`", "")))
    return f"If the {what} is in RowDelta's catalog '{catalog}', write '{name}', or run 'USE {catalog}' first"


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

    py4j keeps the connection of each, and a Python thread at its other end, for ever, even after the JVM's thread has
    ended. A Spark Connect server starts a thread per query, so their number would grow. The connections of ended
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

PARSER_STAYS: Final = threading.Event()
"""Set once a session has RowDelta's parser, which Spark calls with every statement until the session ends."""


def take_callbacks() -> None:
    """Start py4j's callback server. Java exceptions keep their type, unlogged: their caller sees them."""
    ensure_callback_server_started(gateway())  # type: ignore[no-untyped-call]
    if not hasattr(captured.convert_exception, "__wrapped__"):
        setattr(captured, "convert_exception", wrap_conversion(captured.convert_exception))  # noqa: B010  a name of PySpark's
    for name in ("python_parameters", "callback_server_parameters"):
        if (parameters := vars(gateway()).get(name)) is not None:
            parameters.propagate_java_exceptions = True
    for logger in LOGGERS:
        logging.getLogger(logger).addFilter(is_worth_logging)
    keep_lookups(jvm_view())


def restore_python_side() -> None:
    """Undo what `take_callbacks` changed in PySpark and py4j, unless a session has RowDelta's parser."""
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


def wrap_conversion(original: Callable[[JavaObject], BaseException]) -> Callable[[JavaObject], BaseException]:
    """Wrap PySpark's conversion of Java exceptions, so that a callback's own exception comes back unchanged."""

    @functools.wraps(original)
    def convert(exception: JavaObject) -> BaseException:
        try:
            known = find_carried(exception)
        except Exception:  # noqa: BLE001  PySpark converts exceptions that cannot be looked up
            known = None
        return known or with_note(original(exception))

    return convert


def python_function(function: Callable[..., Any]) -> JavaObject:
    """Convert a function to the form that Spark runs in Python workers."""
    context = SparkContext._active_spark_context
    assert context is not None
    return cast("Any", udf)._wrap_function(context, function)


def weak_session(spark: SparkSession) -> Callable[[], SparkSession]:
    """Return a getter of a classic session that holds it weakly: JVM objects of the session could keep it alive."""
    context = spark.sparkContext
    reference = java_class("java.lang.ref.WeakReference")(cast("Any", spark)._jsparkSession)
    return lambda: SparkSession(context, reference.get())


def cache_manager(spark: SparkSession) -> JavaObject:
    """Return the `CacheManager` of an application, which its sessions share."""
    return cast("Any", spark)._jsparkSession.sharedState().cacheManager()


def classic_session(spark: SparkSession) -> JavaObject:
    """Return the JVM's session of a classic one."""
    return cast("Any", spark)._jsparkSession


def analyzed_plan(frame: DataFrame) -> JavaObject:
    """Return the analyzed plan of a DataFrame."""
    return cast("Any", frame)._jdf.queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> JavaObject:
    return cast("Any", frame)._jdf.queryExecution().optimizedPlan()


def scala_list(items: Iterable[Any]) -> JavaObject:
    """Convert items to an immutable Scala list."""
    listed = java_class("java.util.ArrayList")()
    for item in items:
        listed.add(item)
    return java_class("scala.jdk.javaapi.CollectionConverters").asScala(listed).toList()


def java_collection(collection: JavaObject) -> Any:
    """Convert a Scala sequence or map to a Java one, which Python can iterate over."""
    return java_class("scala.jdk.javaapi.CollectionConverters").asJava(collection)


def scala_tuple(first: Any, second: Any) -> JavaObject:
    """Create a Scala pair."""
    return java_class("scala.Tuple2")(first, second)


def activate(spark: SparkSession) -> None:
    """Make a classic session the thread's active one if it has none: Spark would use default settings."""
    session = classic_session(spark)
    if not session.getActiveSession().isDefined():
        session.setActiveSession(session)


def internal_rows(frame: DataFrame) -> JavaObject:
    """Run a DataFrame and return its rows as `InternalRow`s."""
    return cast("Any", frame)._jdf.queryExecution().executedPlan().executeCollect()


class SettingsReader:
    """Reads the settings of a session, each only once until one of them changes.

    A statement needs some twenty settings, and each is a command to the JVM. Comparing all settings takes one command.

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
        """Return a getter of current settings: `get(key, default)`."""
        if self._settings is None:
            return self._get
        copy, known = self._read
        if copy is None or not self._settings.equals(copy):
            copy, known = self._read = java_class("java.util.HashMap")(self._settings), {}

        def get(key: str, default: str | None) -> str | None:
            if key not in known:
                known[key] = copy.get(key)
            return default if known[key] is None else known[key]

        return get

    def below(self, prefix: str) -> dict[str, str]:
        """Return the current settings whose names begin with a prefix, by the rest of their names."""
        if self._settings is None:
            request = importlib.import_module("pyspark.sql.connect.proto").ConfigRequest
            answer = cast("Any", self._client).config(request.Operation(get_all=request.GetAll(prefix=prefix)))
            return {name: value for name, value in answer.pairs if value is not None}
        get = self.now()
        of, names = self._names
        if of is not (copy := self._read[0]):  # one command for all names, which are many and rarely change
            assert copy is not None
            names = str(java_class("java.lang.String").join("\n", copy.keySet())).split("\n")
            self._names = copy, names
        found = ((name, get(name, None)) for name in names if name.startswith(prefix))
        return {name[len(prefix) :]: value for name, value in found if value is not None}


READERS: Final[WeakKeyDictionary[SparkSession, SettingsReader]] = WeakKeyDictionary()


def settings_of(spark: SparkSession) -> Callable[[str, str | None], str | None]:
    """Return a getter of a session's current settings: `get(key, default)`, as `spark.conf.get`."""
    return settings_reader(spark).now()


def settings_below(spark: SparkSession, prefix: str) -> dict[str, str]:
    """Return the current settings of a session whose names begin with a prefix, by the rest of their names."""
    return settings_reader(spark).below(prefix)


def settings_reader(spark: SparkSession) -> SettingsReader:
    reader = READERS.get(spark)
    if reader is None:
        reader = READERS[spark] = SettingsReader(spark)
    return reader


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Create a DataFrame without rows that Spark can optimize: one from PySpark's `createDataFrame` runs a job.

    Args:
        spark: A session, classic or Connect.
        schema: The columns.
    """
    if not is_classic(spark):
        return spark.createDataFrame([], schema)
    session = classic_session(spark)
    if not schema.fields:
        return DataFrame(session.emptyDataFrame(), spark)
    rows, columns = java_class("java.util.ArrayList")(), session.parseDataType(schema.json())
    return DataFrame(session.createDataFrame(rows, columns), spark)


@contextmanager
def named_frames(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Create temporary views for the block, and drop them without uncaching their rows.

    `spark.catalog.dropTempView` of a classic session, and so a DataFrame among the arguments of its `sql`, uncaches
    them: the source of a MERGE would be evaluated again, and return other rows if it is not deterministic.

    Args:
        spark: The session, classic or Connect.
        frames: The DataFrames by view name, in lower case.
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
    """Return the `SessionState` of a classic session: its parser, its catalogs."""
    return classic_session(spark).sessionState()


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for py4j's log record of an exception that a callback raised on purpose."""
    return not (record.exc_info and isinstance(record.exc_info[1], CallbackError))


def to_callback_error(error: Exception, stand_in: JavaObject | None = None) -> CallbackError:
    """Convert an exception for the JVM: a Java one stays, a Python one becomes its text and is kept for Python.

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

    For `jvm_view().java.util.HashMap` the JVM searches all JARs for classes `java` and `java.util` first, which takes a
    millisecond and more. Results are cached per gateway.
    """
    return cached_class(gateway(), name)


@functools.cache
def cached_class(_: object, name: str) -> Any:
    return getattr(jvm_view(), name)


ORDER: Final = "spark.sql.functionResolution.sessionOrder"
BUILT_INS_FIRST: Final = frozenset({"second", "last"})
PATH: Final = "spark.sql.path.enabled"
BUILT_IN_CLASSES: Final = "org.apache.spark.sql.catalyst."


def replaces_any(spark: SparkSession, names: Iterable[str]) -> bool:
    """Return True if a user-defined function may replace one of these built-in functions.

    Args:
        spark: The session, classic or Connect. It is queried only if there is a name.
        names: Names of built-in functions.
    """
    names = list(names)
    if not names:
        return False
    get = settings_of(spark)
    if (get(ORDER, None) or "last").lower() not in BUILT_INS_FIRST or (get(PATH, None) or "false").lower() != "false":
        return True
    if server_has(spark, Feature.FUNCTION_PATH):
        return False
    return not all(is_built_in(spark, name) for name in names)


def is_built_in(spark: SparkSession, name: str) -> bool:
    try:
        found = spark.catalog.getFunction(name)
    except PySparkException:
        return False
    return (found.className or "").startswith(BUILT_IN_CLASSES)
