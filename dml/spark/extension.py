"""A Spark SQL extension in Python: RowDelta's parser in front of Spark's, without a JAR. Driver, classic Spark only.

Input: a `SparkSession.Builder`. Output: a builder whose session calls RowDelta's handler first, also for statements
issued from the JVM (Scala code or a Thrift server in the same driver).

`SparkSessionExtensions.injectParser` takes Scala functions and a `ParserInterface`, which py4j implements with Python
objects. A parser can only return plans. For a query it returns the plan. A command runs while it is parsed, as Spark's
own commands run when `sql()` is called, and returns a `CommandResult` with its rows. Only the parser calls of
`SparkSession.sql` and of a Spark Connect server run anything; other callers (to check or to explain a text) get Spark's
own plan.

A Connect server parses the text of `spark.sql` when the client sends it, and again for each action on the result,
unless that was a `CommandResult`. So a command runs in the first call, and Spark parses it in all others.

Source: `SparkSessionExtensions`, `ParserInterface` and `SparkSession.sql` of Spark 4; py4j, "Callbacks".
"""

import os
import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

from dml.errors import AlreadyExistsError, AnalysisError, NotFoundError, NotSupportedError, SqlError
from dml.result import Result
from dml.spark.bridge.exceptions import parse_exception
from dml.spark.bridge.gateway import JavaObject, java_class, keep_alive, to_callback_error
from dml.spark.bridge.internals import FAILURES, unknown_internals, warn_degraded, works
from dml.spark.bridge.names import (
    CLASSIC_SESSION,
    COMMAND_RESULT,
    CONNECT_PLANNER,
    CONTEXT,
    PARSE_EXCEPTION,
    PARSER_INTERFACE,
    UTILS,
)
from dml.spark.bridge.sessions import (
    active_context,
    builder_options,
    instantiated_session,
    java_session_state,
    query_execution,
)
from dml.spark.callbacks import PARSER_STAYS, take_callbacks
from dml.spark.errors import condition_of
from dml.spark.handlers import (
    Arguments,
    StatementHandler,
    find_handler,
    forget_session,
    inherit,
    run_as_handler,
    run_statement,
)
from dml.spark.replaced_methods import is_about_tables, warn_unanswered
from dml.spark.versions import Feature, default_mode, is_client_only, require
from dml.sqlparse import has_parameters

__all__ = ["ExtendedBuilder", "extend", "is_remote"]

EXTENDED: Final = "spark.rowdelta.extended"
NEAR_FRAMES: Final = 16  # a few Scala frames are between the parser and the planner's method for commands
RAISED_BY_USER: Final = "USER_RAISED_EXCEPTION"
REFUSALS: Final = (SqlError, AnalysisError, NotFoundError, AlreadyExistsError, NotSupportedError)


class Caller(Enum):
    """The caller that requests the plan of a statement."""

    SQL = "SparkSession.sql"
    CONNECT_COMMAND = "a Connect server, for the client's spark.sql"
    CONNECT_RELATION = "a Connect server, for a client's DataFrame of an SQL text"
    SPARK = "any other caller, which only needs a plan"


class InjectedParser:
    """`ParserInterface` in Python: passes RowDelta statements to the handler, and all others to Spark's parser.

    Args:
        session: The JVM's session.
        delegate: Spark's parser, or the one of the previous extension.
    """

    class Java:
        """The Java interfaces, for py4j."""

        implements: Final = [PARSER_INTERFACE.name]

    def __init__(self, session: JavaObject, delegate: JavaObject) -> None:
        self.key = str(session.sessionUUID())
        self.delegate = delegate
        # The session references its parser: a strong reference back would leak both, across two heaps.
        self.session_reference = java_class("java.lang.ref.WeakReference")(session)
        weakref.finalize(self, forget_session, self.key)

    def session(self) -> SparkSession:
        """Return the Python object of the session."""
        return SparkSession(active_context(), self.session_reference.get())

    def parsePlan(self, text: str) -> JavaObject:  # noqa: N802  Java's name
        """Return the plan of a statement."""
        return self.plan(text, None, lambda: self.delegate.parsePlan(text))

    def parsePlanWithParameters(self, text: str, context: JavaObject) -> JavaObject:  # noqa: N802  Java's name
        """Return the plan of a statement with `:name` or `?` parameters."""
        return self.plan(text, context, lambda: self.delegate.parsePlanWithParameters(text, context))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # py4j probes its own names to tell Java objects from Python ones
            raise AttributeError(name)
        method = getattr(self.delegate, name)

        def call(*arguments: Any) -> JavaObject:
            try:
                if name.startswith("parse"):  # `spark.table` and writers parse a name before they load its catalog
                    self.inherit()
                return keep_alive(method(*arguments))
            except Exception as error:
                raise to_callback_error(error) from error

        return call

    def inherit(self) -> None:
        """Let the session inherit its handler. Failures are only logged: Spark's statements must still be parsed."""
        try:
            inherit(self.key, self.session)
        except Exception as error:  # noqa: BLE001  no failure here concerns the caller
            warn_unanswered(PARSER_INTERFACE.name, error)

    def handler_of(self, text: str) -> StatementHandler | None:
        """Return the handler of a statement; None if Spark runs it, or if Spark's private state has changed."""
        try:
            inherit(self.key, self.session)
            return find_handler(self.key, text, self.session)
        except Exception as error:
            if is_about_tables(error):
                raise
            warn_unanswered(PARSER_INTERFACE.name, error)
            return None

    def plan(self, text: str, context: JavaObject | None, delegate: Callable[[], JavaObject]) -> JavaObject:
        """Return the plan of a statement, from the handler or from Spark's parser."""
        try:
            handler = self.handler_of(text)
            caller = Caller.SPARK if handler is None else caller_of_parser()
            if handler is None or caller is Caller.SPARK:
                return keep_alive(delegate())
            if context is None and has_parameters(text):
                require(Feature.JVM_PARAMETERS)
            is_query = handler.is_query(text)
            if caller is Caller.CONNECT_RELATION and not is_query:
                return keep_alive(delegate())
            if not is_query:
                check_command_results(self.session())
            outcome = run_statement(handler, text, arguments(context))
            if isinstance(outcome, Result):
                with run_as_handler():
                    outcome = self.session().sql(row_sql(outcome))
                is_query = False
            execution = query_execution(outcome)
            return keep_alive(execution.analyzed() if is_query else command_result(execution))
        except Exception as error:
            raise to_callback_error(error, stand_in(error)) from error


class InjectParser:
    """`(SparkSession, ParserInterface) => ParserInterface`."""

    class Java:
        """The Java interfaces, for py4j."""

        implements: Final = ["scala.Function2"]

    def apply(self, session: JavaObject, delegate: JavaObject) -> InjectedParser:
        """Create the parser of one session: a session from `newSession` gets its own."""
        return InjectedParser(session, delegate)


class ApplyExtension:
    """`SparkSessionExtensions => Unit`."""

    class Java:
        """The Java interfaces, for py4j."""

        implements: Final = ["scala.Function1"]

    def apply(self, extensions: JavaObject) -> None:
        """Inject the parser."""
        extensions.injectParser(InjectParser())


class ExtendedBuilder(SparkSession.Builder):
    """PySpark's builder, whose new classic sessions have RowDelta's parser."""

    def getOrCreate(self) -> SparkSession:  # noqa: N802  PySpark's name
        """Return the existing session unchanged, or a new one with RowDelta's parser."""
        options = {str(key): str(value) for key, value in builder_options(self).items()}
        if not is_remote(options):
            with self._lock:
                existing = instantiated_session()
                if existing is None or CONTEXT.of(existing.sparkContext) is None:
                    create_session(options)
        return super().getOrCreate()


def extend(builder: SparkSession.Builder) -> ExtendedBuilder:
    """Copy a builder, so that its session has RowDelta's parser.

    Args:
        builder: `SparkSession.builder`, configured or not.

    Returns:
        A builder: `extend(SparkSession.builder.appName("etl")).getOrCreate()`.
    """
    extended = ExtendedBuilder()
    builder_options(extended).update(builder_options(builder))
    return extended


def is_remote(options: dict[str, str]) -> bool:
    """Return True if PySpark would create a Connect session from these settings, by its own rule."""
    mode = options.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "")).lower()
    return (
        is_client_only()
        or "spark.remote" in options
        or "SPARK_REMOTE" in os.environ
        or "SPARK_CONNECT_MODE_ENABLED" in os.environ
        or (mode if mode in {"classic", "connect"} else default_mode()) == "connect"
    )


def create_session(options: dict[str, str]) -> None:
    """Create the JVM's default session with RowDelta's parser, which PySpark's builder then reuses."""
    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, value)
    context = SparkContext.getOrCreate(conf)
    take_callbacks()
    PARSER_STAYS.set()
    builder = CLASSIC_SESSION.call("builder").sparkContext(CONTEXT.of(context).sc())
    for key, value in options.items():
        builder.config(key, value)
    session = builder.config(EXTENDED, "true").withExtensions(ApplyExtension()).getOrCreate()
    java_session_state(session).sqlParser()  # if the parser cannot be created, fail here, not in the first statement


def caller_of_parser() -> Caller:
    """Find the caller of the parser.

    The callback runs in the calling JVM thread, so its stack shows the caller. If callbacks run in separate threads
    (`PYSPARK_PIN_THREAD=false`), the caller is unknown, and assumed to be `sql()`.
    """
    stack = str(UTILS.call("exceptionString", java_class("java.lang.Throwable")()))
    _, found, callers = stack.partition(".parsePlan")
    frames = callers.splitlines()[1:]
    if not found or any(CLASSIC_SESSION.name + "." in frame for frame in frames[:3]):
        return Caller.SQL
    if not any(CONNECT_PLANNER.name in frame for frame in frames[:NEAR_FRAMES]):
        return Caller.SPARK
    command = any(CONNECT_PLANNER.name + ".handleSqlCommand" in frame for frame in frames[:NEAR_FRAMES])
    return Caller.CONNECT_COMMAND if command else Caller.CONNECT_RELATION


def arguments(context: JavaObject | None) -> Arguments:
    """Convert the parameters of a statement to Columns, by the SQL text of their literals."""
    if context is None:
        return None
    parameters = java_class("scala.jdk.javaapi.CollectionConverters").asJava(context.params())
    if context.productPrefix() == "NamedParameterContext":
        return {str(name): expr(str(parameters[name].sql())) for name in parameters} or None
    return [expr(str(expression.sql())) for expression in parameters] or None


def row_sql(result: Result) -> str:
    """Return a query of the row of a result."""
    row = result.row.asDict()
    values = ", ".join("CAST(NULL AS BIGINT)" if value is None else f"{value}L" for value in row.values())
    return f"SELECT * FROM VALUES ({values}) AS result ({', '.join(row)})"


def command_result(execution: JavaObject) -> JavaObject:
    """Return the plan of a command that has run: it holds the rows, so Spark does not run it again."""
    physical, analyzed = execution.executedPlan(), execution.analyzed()
    rows = physical.executeCollectIterator().productElement(1).toList()
    return COMMAND_RESULT.new(analyzed.output(), analyzed, physical, rows)


def check_command_results(spark: SparkSession) -> None:
    """Check, before a command runs, that Spark can hold its result.

    Raises:
        UnknownInternalsError: it cannot. Without the check the command would run, and its caller would see an error.
    """

    def trial() -> None:
        with run_as_handler():
            command_result(query_execution(spark.sql("SELECT 1")))

    if not works(COMMAND_RESULT.name, trial, COMMAND_RESULT.fallback):
        raise unknown_internals(COMMAND_RESULT.name, "it cannot hold the result of a command")


def stand_in(error: Exception) -> JavaObject | None:
    """Return a ParseException for an error in the statement: callers of a parser catch it. None for other errors.

    A parser may throw it although it is not a RuntimeException, and it is also an AnalysisException. The text is
    RowDelta's; the condition is Spark's for the same error, otherwise `USER_RAISED_EXCEPTION`.
    """
    if not isinstance(error, REFUSALS):
        return None
    text = f"{type(error).__name__}: {error}"
    condition, parameters = condition_of(error) or (RAISED_BY_USER, {"errorMessage": text})
    try:
        return parse_exception(text, condition, parameters)
    except (*FAILURES, StopIteration) as failure:
        warn_degraded(PARSE_EXCEPTION.name, failure, PARSE_EXCEPTION.fallback)
        return None
