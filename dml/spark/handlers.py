"""Dispatch statements to RowDelta's handlers, session by session. Driver.

Input: the text of a statement and its session. Output: the handler that runs it, or None. The parser inside Spark
(`extension`) and the replacement of Python's `spark.sql` (`interception`) both look up handlers here, so a statement
that passes through both is checked once and run once.

A session that was created from another one inherits its catalogs: the clone that Spark creates for the batches of a
stream, and the session that `newSession()` returns, also when one of Spark's own servers calls it for a client. It need
not be enabled. Its handler is bound with its first RowDelta statement, and this module holds no reference to it.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession

from dml.errors import SetupError
from dml.result import Result
from dml.spark.bridge.names import CONTEXT
from dml.spark.bridge.sessions import classic_session, is_connect, session_state
from dml.spark.bridge.values import elements
from dml.spark.runtime import Runtime
from dml.sqlparse.quoting import quoted
from dml.sqlparse.tokens import read_source

__all__ = [
    "Arguments",
    "Binding",
    "StatementHandler",
    "active_clone",
    "catalog_of_bare_names",
    "check_not_stopped",
    "find_engine",
    "find_handler",
    "forget_session",
    "has_handlers",
    "inherit",
    "is_handler",
    "is_temporary_view",
    "names_view_of_clone",
    "names_without_namespace",
    "pass_to_spark",
    "register_handler",
    "run_as_handler",
    "run_statement",
    "session_key",
    "unregister_handler",
]

Arguments = Mapping[str, Any] | Sequence[Any] | None
Binding = Callable[[SparkSession], "StatementHandler"]
"""Returns the handler of a session."""

ORIGIN: Final = "spark.rowdelta.session"
"""Setting with the key of the enabled session: clones of a session copy its settings, new sessions do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementHandler:
    """Runs the statements of one session that Spark alone cannot. Handlers of the same functions are equal.

    Attributes:
        handles: Returns True for RowDelta statements: a cheap check of the first keyword and the names.
        run: Runs a statement that `handles` accepted: commands at once, queries as a DataFrame.
        is_query: Returns True if a statement that `handles` accepted is a query, which is safe to run again.
        bequeath: Returns the binding for a session that was created from this one, called once: the same catalogs,
            and its own copy of the current namespace.
        engine: Returns the engine (`dml.engine`) that runs PySpark's calls on RowDelta tables; None if Spark runs them.
        catalog: Returns the name of the catalog in which statements look up names without a catalog.
        release: Undoes everything else that was done to the session for the handler, when the handler is removed.
    """

    handles: Callable[[str], bool]
    run: Callable[[str, Arguments], DataFrame | Result]
    is_query: Callable[[str], bool]
    bequeath: Callable[[], Binding]
    engine: Callable[[], object] | None = None
    catalog: Callable[[], str] | None = None
    release: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enabled:
    """The registration of an enabled session.

    Attributes:
        handler: The handler of its statements.
        application: The Spark application, whose other sessions may inherit the handler.
    """

    handler: StatementHandler
    application: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a session inherits from the session that it was created from.

    Attributes:
        parent: The handler of that session.
        binding: The binding that `parent` returned.
    """

    parent: StatementHandler
    binding: Binding


class ThreadState(threading.local):
    """Whether a handler runs in this thread: its statements go to Spark."""

    running: bool = False


ENABLED: Final[dict[str, Enabled]] = {}  # by session, the newest last
INHERITED: Final[dict[str, Inheritance]] = {}  # by session that was created from another
LEFT_TO_SPARK: Final[set[str]] = set()  # disabled sessions, which inherit nothing
PASSING: Final[Counter[tuple[str, str]]] = Counter()
PASSING_LOCK: Final = threading.Lock()
KEYS: Final[WeakKeyDictionary[SparkSession, str]] = WeakKeyDictionary()  # read from the JVM once per session
STATE: Final = ThreadState()


def session_key(spark: SparkSession) -> str:
    """Return the identity of a session: the same for every Python object of one session."""
    identity = getattr(spark, "session_id", None)
    if identity is not None:
        return str(identity)
    key = KEYS.get(spark)
    if key is None:
        key = KEYS[spark] = str(classic_session(spark).sessionUUID())
    return key


def register_handler(spark: SparkSession, handler: StatementHandler) -> None:
    """Register the handler of a session and its clones, replacing the previous one."""
    key = session_key(spark)
    LEFT_TO_SPARK.discard(key)
    ENABLED.pop(key, None)  # the newest is the last
    ENABLED[key] = Enabled(handler=handler, application=application_of(spark))
    spark.conf.set(ORIGIN, key)


def unregister_handler(spark: SparkSession) -> StatementHandler | None:
    """Remove a session's handler, if it has one: its statements go to Spark.

    Returns:
        The handler that the session had, its own or an inherited one; None if it had none.
    """
    key = session_key(spark)
    own, inherited = ENABLED.pop(key, None), INHERITED.pop(key, None)
    LEFT_TO_SPARK.add(key)
    if own is not None:
        with suppress(Exception):  # the session may have ended
            spark.conf.unset(ORIGIN)
        return own.handler
    return None if inherited is None else inherited.binding(spark)


def forget_session(key: str) -> None:
    """Drop the state of an ended session that was never enabled."""
    INHERITED.pop(key, None)
    LEFT_TO_SPARK.discard(key)


def is_handler(key: str, handler: StatementHandler) -> bool:
    """Return True if a session is enabled with this handler."""
    enabled = ENABLED.get(key)
    return enabled is not None and enabled.handler == handler


def has_handlers() -> bool:
    """Return True if any session is enabled."""
    return bool(ENABLED)


def find_handler(key: str, text: str, session: Callable[[], SparkSession]) -> StatementHandler | None:
    """Return the handler of a statement; None if Spark runs it.

    Args:
        key: The session's identity.
        text: The statement.
        session: Returns the session; called only if it is not enabled itself.
    """
    if not ENABLED or STATE.running or PASSING[key, text]:
        return None
    handler = handler_of(key, session)
    return handler if handler is not None and handler.handles(text) else None


def find_engine(spark: SparkSession) -> object | None:
    """Return the engine that runs a session's calls on RowDelta tables; None if Spark runs them."""
    if not ENABLED or STATE.running:
        return None
    handler = handler_of(session_key(spark), lambda: spark)
    return None if handler is None or handler.engine is None else handler.engine()


def catalog_of_bare_names() -> str | None:
    """Return the catalog in which statements, but not Spark's own calls, look up names without a catalog.

    It is that of the last enabled session: a JVM exception does not name its session. None while a statement runs or is
    passed on to Spark.
    """
    if not ENABLED or STATE.running or PASSING:
        return None
    catalog = next(reversed(tuple(ENABLED.values()))).handler.catalog
    return None if catalog is None else catalog()


def inherit(key: str, session: Callable[[], SparkSession]) -> None:
    """Bind the inherited handler of a session that is not enabled itself, before Spark looks for a table in it."""
    if ENABLED and not STATE.running:
        handler_of(key, session)


def handler_of(key: str, session: Callable[[], SparkSession]) -> StatementHandler | None:
    """Return the handler of a session: its own or the inherited one."""
    own = ENABLED.get(key)
    if own is not None:
        return own.handler
    if key in LEFT_TO_SPARK:
        return None
    spark = session()
    inherited = INHERITED.get(key)
    if inherited is None or all(inherited.parent != enabled.handler for enabled in tuple(ENABLED.values())):
        parent = parent_of(spark)
        if parent is None:
            return None
        inherited = Inheritance(parent=parent, binding=parent.bequeath())
        INHERITED[key] = inherited
    return inherited.binding(spark)


def parent_of(spark: SparkSession) -> StatementHandler | None:
    """Return the handler of the session that `spark` is a clone of; for other sessions the last one enabled."""
    application = application_of(spark)
    found = {key: enabled.handler for key, enabled in tuple(ENABLED.items()) if enabled.application == application}
    origin = spark.conf.get(ORIGIN, None) if found else None
    return found.get(origin) if origin else next(reversed(found.values()), None)


def application_of(spark: SparkSession) -> str:
    """Return the identity of the Spark application, or the host of the Connect server."""
    return str(cast("Any", spark).client.host if is_connect(spark) else spark.sparkContext.applicationId)


def check_not_stopped(spark: SparkSession) -> None:
    """Raise if a session has been stopped.

    Raises:
        SetupError: the session has been stopped.
    """
    session: Any = spark
    stopped = session.is_stopped if is_connect(spark) else CONTEXT.of(session.sparkContext) is None
    if stopped:
        raise SetupError("The Spark session has been stopped", hint="Open a new session with dml.connect(...)")


@contextmanager
def active_clone(spark: SparkSession) -> Iterator[SparkSession | None]:
    """Yield the clone of a session that is active in this thread, as in `foreachBatch`, or None.

    PySpark activates a session whenever it creates a DataFrame in it, so the clone is activated again at the end. On
    Spark Connect `foreachBatch` runs in a separate process, whose only session is the batch's.
    """
    if Runtime.of(spark).is_connect:
        yield None
        return
    own = classic_session(spark)  # PySpark's own "active session" is the application's
    active = own.getActiveSession()
    if active.contains(own) or not active.isDefined():
        yield None
        return
    clone = SparkSession(spark.sparkContext, active.get())
    if clone.conf.get(ORIGIN, None) != session_key(spark):
        yield None
        return
    try:
        yield clone
    finally:
        own.setActiveSession(active.get())


def names_view_of_clone(spark: SparkSession, text: str, *, but_not_of: SparkSession) -> bool:
    """Return True if a statement names a temporary view of one classic session that another one lacks."""
    views = temporary_views(spark) - temporary_views(but_not_of)
    source = read_source(text)
    return any(source.is_name(index) and source.name(index).lower() in views for index in range(source.end))


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Return True if an unqualified name is a temporary view of a session."""
    if not Runtime.of(spark).is_connect:
        return name.lower() in temporary_views(spark)
    with run_as_handler():
        catalog = spark.catalog
        return catalog.tableExists(quoted(name)) and catalog.getTable(quoted(name)).isTemporary


def temporary_views(spark: SparkSession) -> frozenset[str]:
    """Return the names of a classic session's temporary views, in lower case."""
    return frozenset(str(name).lower() for name in elements(session_state(spark).catalog().getTempViewNames()))


def names_without_namespace(spark: SparkSession) -> list[str]:
    """Return the unqualified names that Spark resolves: temporary views and tables of its current database."""
    if Runtime.of(spark).is_connect:
        return [table.name for table in spark.catalog.listTables()]
    catalog = session_state(spark).catalog()  # without a job, unlike listTables
    return [str(found.table()) for found in elements(catalog.listTables(catalog.getCurrentDatabase()))]


def run_statement(handler: StatementHandler, text: str, args: Arguments) -> DataFrame | Result:
    """Run a statement; SQL that the handler runs meanwhile goes to Spark."""
    with run_as_handler():
        return handler.run(text, args)


@contextmanager
def run_as_handler() -> Iterator[None]:
    """Mark this thread as running a handler: SQL in the block goes to Spark."""
    before = STATE.running
    STATE.running = True
    try:
        yield
    finally:
        STATE.running = before


@contextmanager
def pass_to_spark(key: str, text: str) -> Iterator[None]:
    """Pass a statement on to Spark in the block: RowDelta's parser, called in another thread, ignores it."""
    with PASSING_LOCK:
        PASSING[key, text] += 1
    try:
        yield
    finally:
        with PASSING_LOCK:
            PASSING[key, text] -= 1
            if not PASSING[key, text]:
                del PASSING[key, text]
