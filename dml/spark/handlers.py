"""Which statements are ours, session by session. Driver.

Input: the text of a statement and the session that it was given to. Output: the handler that takes it, or None. The
parser inside Spark (`extension`) and the replacement of Python's `spark.sql` (`interception`) both ask here, so a
statement that comes through both is looked at once and run once.

A session that was made of another one has that one's catalogs: the clone that Spark makes for the batches of a stream,
and what `newSession()` returns, also where Spark's own servers call it for a client. Nobody enables it; what it needs
is bound to it with its first statement of ours, and nothing here keeps it alive.
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
from dml.spark.table_calls import TableCalls
from dml.sqlparse.quoting import quoted
from dml.sqlparse.tokens import read_source

__all__ = [
    "Arguments",
    "Binding",
    "FoundCalls",
    "StatementHandler",
    "active_clone",
    "calls_of",
    "catalog_of_bare_names",
    "check_not_stopped",
    "find_calls",
    "find_handler",
    "forget_session",
    "has_handlers",
    "inherit",
    "is_classic",
    "is_handler",
    "is_temporary_view",
    "names_a_view_of",
    "names_without_namespace",
    "passing_on",
    "register_handler",
    "run_statement",
    "running",
    "session_key",
    "unregister_handler",
]

Arguments = Mapping[str, Any] | Sequence[Any] | None
Binding = Callable[[SparkSession], "StatementHandler"]
"""Gives a session the handler that is its own."""
FoundCalls = tuple[TableCalls, tuple[str, ...]]
"""The calls of a session, and the name of the table with its catalog first."""

ORIGIN: Final = "spark.rowdelta.session"
"""Setting with the key of the session that was enabled: clones of a session have its settings, new sessions do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementHandler:
    """Takes the statements of one session that Spark alone cannot answer. Two of the same functions are one.

    Attributes:
        handles: Whether a statement is ours: cheap, from its first keyword and the names in it.
        run: Runs a statement that `handles` accepted: commands at once, queries as a DataFrame.
        is_query: Whether a statement that `handles` accepted is a query, which changes nothing and may run again.
        bequeath: What another session that is made of this one gets, once: the same catalogs, and a current namespace
            that is from then on its own.
        calls: What takes PySpark's calls on our tables, where something does.
        catalog: Returns the name of the catalog in which statements look up names without a catalog.
        release: Undoes everything else that was done to the session for the handler, when the handler is removed.
    """

    handles: Callable[[str], bool]
    run: Callable[[str, Arguments], DataFrame | Result]
    is_query: Callable[[str], bool]
    bequeath: Callable[[], Binding]
    calls: Callable[[], TableCalls] | None = None
    catalog: Callable[[], str] | None = None
    release: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Enabled:
    """A session that somebody enabled.

    Attributes:
        handler: What takes its statements.
        application: The Spark application, whose other sessions may have it too.
    """

    handler: StatementHandler
    application: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inheritance:
    """What a session has of the one that it was made of.

    Attributes:
        parent: That one's handler.
        binding: What it gave.
    """

    parent: StatementHandler
    binding: Binding


class ThreadState(threading.local):
    """Whether a handler runs in this thread: what it asks of Spark is not ours."""

    running: bool = False


ENABLED: Final[dict[str, Enabled]] = {}  # by session, the newest last
INHERITED: Final[dict[str, Inheritance]] = {}  # by session, of those that were made of others
LEFT_TO_SPARK: Final[set[str]] = set()  # sessions that somebody disabled: they inherit nothing
PASSING: Final[Counter[tuple[str, str]]] = Counter()
PASSING_LOCK: Final = threading.Lock()
KEYS: Final[WeakKeyDictionary[SparkSession, str]] = WeakKeyDictionary()  # the JVM is asked for each once
STATE: Final = ThreadState()


def session_key(spark: SparkSession) -> str:
    """The identity of a session: the same for every Python object that stands for it."""
    identity = getattr(spark, "session_id", None)
    if identity is not None:
        return str(identity)
    key = KEYS.get(spark)
    if key is None:
        key = KEYS[spark] = str(spark._jsparkSession.sessionUUID())  # noqa: SLF001  no public name
    return key


def register_handler(spark: SparkSession, handler: StatementHandler) -> None:
    """Let a handler take the statements of a session and of its clones, in place of the one before."""
    key = session_key(spark)
    LEFT_TO_SPARK.discard(key)
    ENABLED.pop(key, None)  # the newest is the last
    ENABLED[key] = Enabled(handler=handler, application=application_of(spark))
    spark.conf.set(ORIGIN, key)


def unregister_handler(spark: SparkSession) -> StatementHandler | None:
    """Leave a session's statements to Spark; nothing happens if they are left to Spark already.

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
    """Forget what was kept for a session that is no more and that nobody had enabled."""
    INHERITED.pop(key, None)
    LEFT_TO_SPARK.discard(key)


def is_handler(key: str, handler: StatementHandler) -> bool:
    """Whether it is this handler that takes a session's statements."""
    enabled = ENABLED.get(key)
    return enabled is not None and enabled.handler == handler


def has_handlers() -> bool:
    """Whether any session has a handler."""
    return bool(ENABLED)


def find_handler(key: str, text: str, session: Callable[[], SparkSession]) -> StatementHandler | None:
    """The handler that takes a statement of a session; None where it is Spark's.

    Args:
        key: The session's identity.
        text: The statement.
        session: The session, asked for if nobody has enabled it.
    """
    if not ENABLED or STATE.running or PASSING[key, text]:
        return None
    handler = handler_of(key, session)
    return handler if handler is not None and handler.handles(text) else None


def calls_of(spark: SparkSession) -> TableCalls | None:
    """What takes the calls of a session on our tables, whatever they name; None where nothing does.

    Args:
        spark: The session that a call belongs to.
    """
    if not ENABLED or STATE.running:
        return None
    handler = handler_of(session_key(spark), lambda: spark)
    return None if handler is None or handler.calls is None else handler.calls()


def find_calls(spark: SparkSession, parts: Sequence[str]) -> FoundCalls | None:
    """What takes a call of PySpark on a table; None where it is Spark's.

    Args:
        spark: The session that the call belongs to.
        parts: The table's name, as written.

    Returns:
        It, and the name with its catalog first.
    """
    calls = calls_of(spark) if parts else None
    name = () if calls is None else calls.table_name(tuple(parts))
    return None if calls is None or not name else (calls, name)


def catalog_of_bare_names() -> str | None:
    """Return the catalog in which statements, but not Spark's own calls, look up names without a catalog.

    It is that of the session that was enabled last: an exception of the JVM does not tell its session. None while a
    statement runs or is passed on to Spark.
    """
    if not ENABLED or STATE.running or PASSING:
        return None
    catalog = next(reversed(tuple(ENABLED.values()))).handler.catalog
    return None if catalog is None else catalog()


def inherit(key: str, session: Callable[[], SparkSession]) -> None:
    """Let a session that nobody has enabled get what it inherits, before Spark looks for a table in it.

    Args:
        key: The session's identity.
        session: The session.
    """
    if ENABLED and not STATE.running:
        handler_of(key, session)


def handler_of(key: str, session: Callable[[], SparkSession]) -> StatementHandler | None:
    """The handler of a session: its own, or what it inherits."""
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
    """The handler of the session that another one is a clone of; of one that is no clone, what was enabled last."""
    application = application_of(spark)
    found = {key: enabled.handler for key, enabled in tuple(ENABLED.items()) if enabled.application == application}
    origin = spark.conf.get(ORIGIN, None) if found else None
    return found.get(origin) if origin else next(reversed(found.values()), None)


def application_of(spark: SparkSession) -> str:
    """The identity of a Spark application, or of the Connect server that speaks for one."""
    return str(spark.sparkContext.applicationId if is_classic(spark) else cast("Any", spark).client.host)


def is_classic(spark: SparkSession) -> bool:
    """Whether the driver of a session is this process."""
    return hasattr(spark, "_jsparkSession")


def check_not_stopped(spark: SparkSession) -> None:
    """Refuse a stopped session.

    Raises:
        SetupError: the session has been stopped.
    """
    session: Any = spark
    stopped = session.sparkContext._jsc is None if is_classic(spark) else session.is_stopped  # noqa: SLF001  no public name
    if stopped:
        raise SetupError("The Spark session has been stopped", hint="Open a new session with dml.connect(...)")


@contextmanager
def active_clone(spark: SparkSession) -> Iterator[SparkSession | None]:
    """The clone of a session in whose name this thread works, as it does in `foreachBatch`; None where there is none.

    PySpark makes a session the thread's active one when that makes a DataFrame: afterwards the clone is it again. On
    Spark Connect `foreachBatch` runs in a process of its own, which has no session but the batch's.
    """
    if not is_classic(spark):
        yield None
        return
    own = cast("Any", spark)._jsparkSession  # noqa: SLF001  PySpark's own "active session" is the application's
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


def names_a_view_of(spark: SparkSession, text: str, *, but_not_of: SparkSession) -> bool:
    """Whether a statement names a temporary view that one session has and another has not.

    Args:
        spark: The one.
        text: The statement.
        but_not_of: The other.
    """
    views = temporary_views(spark) - temporary_views(but_not_of)
    source = read_source(text)
    return any(source.is_name(index) and source.name(index).lower() in views for index in range(source.end))


def is_temporary_view(spark: SparkSession, name: str) -> bool:
    """Whether a name of one part is that of a temporary view of a session."""
    if is_classic(spark):
        return name.lower() in temporary_views(spark)
    with running():
        catalog = spark.catalog
        return catalog.tableExists(quoted(name)) and catalog.getTable(quoted(name)).isTemporary


def temporary_views(spark: SparkSession) -> frozenset[str]:
    """The names of the temporary views of a classic session, in lower case."""
    names = cast("Any", spark)._jsparkSession.sessionState().catalog().getTempViewNames()  # noqa: SLF001  no public name
    return frozenset(str(names.apply(index)).lower() for index in range(names.size()))


def names_without_namespace(spark: SparkSession) -> list[str]:
    """What a name of one part may mean to Spark: temporary views, and tables of its current database."""
    if not is_classic(spark):
        return [table.name for table in spark.catalog.listTables()]
    catalog = cast("Any", spark)._jsparkSession.sessionState().catalog()  # noqa: SLF001  without a job, unlike listTables
    found = catalog.listTables(catalog.getCurrentDatabase())
    return [str(found.apply(index).table()) for index in range(found.size())]


def run_statement(handler: StatementHandler, text: str, args: Arguments) -> DataFrame | Result:
    """Run a statement; the SQL that the handler gives to Spark meanwhile goes to Spark."""
    with running():
        return handler.run(text, args)


@contextmanager
def running() -> Iterator[None]:
    """While a handler runs: the SQL that it gives to Spark goes to Spark."""
    before = STATE.running
    STATE.running = True
    try:
        yield
    finally:
        STATE.running = before


@contextmanager
def passing_on(key: str, text: str) -> Iterator[None]:
    """While a statement that is not ours is with Spark: its parser, which calls in another thread, lets it pass."""
    with PASSING_LOCK:
        PASSING[key, text] += 1
    try:
        yield
    finally:
        with PASSING_LOCK:
            PASSING[key, text] -= 1
            if not PASSING[key, text]:
                del PASSING[key, text]
