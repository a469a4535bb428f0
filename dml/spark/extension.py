"""A Spark SQL extension in Python: our parser in front of Spark's, with no JAR. Driver, classic Spark only.

Input: a `SparkSession.Builder`. Output: a builder whose session asks our handler first, also for statements that come
from the JVM side (Scala code or a Thrift server in the same driver).

`SparkSessionExtensions.injectParser` wants Scala functions and a `ParserInterface`; py4j makes them of Python objects.
A parser returns plans and has no other way to answer: a query of ours returns its plan, a command is run while it is
parsed, as Spark's own commands run when `sql()` is called, and returns a plan of its result rows. Only the parser call
of `SparkSession.sql` runs anything; whoever else parses a text (to check or to explain it) gets Spark's own plan.

Source: `SparkSessionExtensions`, `ParserInterface` and `SparkSession.sql` of Spark 4; py4j, "Callbacks".
"""
# ruff: noqa: SLF001  the session in the JVM is behind underscored names of PySpark

import os
import weakref
from collections.abc import Callable
from typing import Any, Final, cast

from py4j.java_gateway import JavaObject
from pyspark import SparkConf, SparkContext
from pyspark.sql import Column, DataFrame, SparkSession

from dml.result import Result
from dml.spark.handlers import Arguments, find_handler, forget_session, inherit, run_statement
from dml.spark.jvm import carried, jvm_view, kept, take_callbacks
from dml.spark.versions import CLASSIC_PACKAGE, Feature, default_mode, is_client_only, require
from dml.sqlparse import has_parameters

__all__ = ["ExtendedBuilder", "extend", "is_remote"]

EXTENDED: Final = "spark.rowdelta.extended"
SESSION_CLASS: Final = f"{CLASSIC_PACKAGE}.SparkSession"


class InjectedParser:
    """`ParserInterface` in Python: statements of ours to the handler, everything else to Spark's parser.

    Args:
        session: The JVM's session.
        delegate: Spark's parser, or that of the extension before.
    """

    class Java:
        """What py4j needs to know."""

        implements: Final = ["org.apache.spark.sql.catalyst.parser.ParserInterface"]

    def __init__(self, session: JavaObject, delegate: JavaObject) -> None:
        self.key = str(session.sessionUUID())
        self.delegate = delegate
        # The session holds its parser: a parser that held the session would keep both for ever, across two heaps.
        self.session_reference = jvm_view().java.lang.ref.WeakReference(session)
        weakref.finalize(self, forget_session, self.key)

    def session(self) -> SparkSession:
        """The session, as Python knows sessions."""
        return SparkSession(cast("Any", SparkContext)._active_spark_context, self.session_reference.get())

    def parsePlan(self, text: str) -> JavaObject:  # noqa: N802  Java's name
        """The plan of a statement."""
        return self.plan(text, None, lambda: self.delegate.parsePlan(text))

    def parsePlanWithParameters(self, text: str, context: JavaObject) -> JavaObject:  # noqa: N802  Java's name
        """The plan of a statement with `:name` or `?` in it."""
        return self.plan(text, context, lambda: self.delegate.parsePlanWithParameters(text, context))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # py4j probes its own names to tell Java objects from Python ones
            raise AttributeError(name)
        method = getattr(self.delegate, name)

        def call(*arguments: Any) -> JavaObject:
            try:
                if name.startswith("parse"):  # `spark.table` and writers parse a name, and then ask its catalog
                    inherit(self.key, self.session)
                return kept(method(*arguments))
            except Exception as error:
                raise carried(error) from error

        return call

    def plan(self, text: str, context: JavaObject | None, delegate: Callable[[], JavaObject]) -> JavaObject:
        """The plan of a statement, from the handler or from Spark's parser."""
        try:
            handler = find_handler(self.key, text, self.session)
            if handler is None or not called_to_execute():
                return kept(delegate())
            if context is None and has_parameters(text):
                require(Feature.JVM_PARAMETERS)
            return kept(plan_of(run_statement(handler, text, arguments(context)), self.delegate))
        except Exception as error:
            raise carried(error) from error


class InjectParser:
    """`(SparkSession, ParserInterface) => ParserInterface`."""

    class Java:
        """What py4j needs to know."""

        implements: Final = ["scala.Function2"]

    def apply(self, session: JavaObject, delegate: JavaObject) -> InjectedParser:
        """A parser for one session: a session made by `newSession` gets its own."""
        return InjectedParser(session, delegate)


class ApplyExtension:
    """`SparkSessionExtensions => Unit`."""

    class Java:
        """What py4j needs to know."""

        implements: Final = ["scala.Function1"]

    def apply(self, extensions: JavaObject) -> None:
        """Inject the parser."""
        extensions.injectParser(InjectParser())


class ExtendedBuilder(SparkSession.Builder):
    """A builder whose new classic sessions have our parser; everything else is as in PySpark's."""

    def getOrCreate(self) -> SparkSession:  # noqa: N802  PySpark's name
        """The active session as it is, or a new one with our parser."""
        options = {str(key): str(value) for key, value in self._options.items()}
        if not is_remote(options):
            with self._lock:
                existing = SparkSession._instantiatedSession
                if existing is None or existing._sc._jsc is None:
                    create_session(options)
        return super().getOrCreate()


def extend(builder: SparkSession.Builder) -> ExtendedBuilder:
    """A builder with the settings of another, whose session has our parser.

    Args:
        builder: `SparkSession.builder`, configured or not.

    Returns:
        A builder: `extend(SparkSession.builder.appName("etl")).getOrCreate()`.
    """
    extended = ExtendedBuilder()
    extended._options = dict(builder._options)
    return extended


def is_remote(options: dict[str, str]) -> bool:
    """Whether PySpark would make a Connect session of these settings: its own rule."""
    mode = options.get("spark.api.mode", os.environ.get("SPARK_API_MODE", "")).lower()
    return (
        is_client_only()
        or "spark.remote" in options
        or "SPARK_REMOTE" in os.environ
        or "SPARK_CONNECT_MODE_ENABLED" in os.environ
        or (mode if mode in {"classic", "connect"} else default_mode()) == "connect"
    )


def create_session(options: dict[str, str]) -> None:
    """Make the JVM's default session, with our parser; PySpark's builder then takes that one."""
    conf = SparkConf()
    for key, value in options.items():
        conf.set(key, value)
    context = SparkContext.getOrCreate(conf)
    take_callbacks()
    session_class = getattr(jvm_view(), SESSION_CLASS)
    builder = session_class.builder().sparkContext(cast("Any", context)._jsc.sc())
    for key, value in options.items():
        builder.config(key, value)
    session = builder.config(EXTENDED, "true").withExtensions(ApplyExtension()).getOrCreate()
    session.sessionState().sqlParser()  # a parser that cannot be made must fail here, not in the first statement


def called_to_execute() -> bool:
    """Whether the parser is asked by `SparkSession.sql`, which executes, or only to see a plan.

    The callback runs in the JVM thread that called it, so its stack shows who asks. Where callbacks have a thread of
    their own (`PYSPARK_PIN_THREAD=false`) nothing is known of the caller, and it is taken for `sql()`.
    """
    jvm = jvm_view()
    stack = str(jvm.org.apache.spark.util.Utils.exceptionString(jvm.java.lang.Throwable()))
    _, found, callers = stack.partition(".parsePlan")
    return not found or any(SESSION_CLASS + "." in frame for frame in callers.splitlines()[1:4])


def arguments(context: JavaObject | None) -> Arguments:
    """The parameters of a statement, as columns of their literals."""
    if context is None:
        return None
    jvm = jvm_view()
    column = getattr(jvm, f"{CLASSIC_PACKAGE}.ExpressionUtils").column
    parameters = jvm.scala.jdk.javaapi.CollectionConverters.asJava(context.params())
    if context.productPrefix() == "NamedParameterContext":
        named = {str(name): Column(column(parameters[name])) for name in parameters}
        return named or None
    return [Column(column(expression)) for expression in parameters] or None


def plan_of(outcome: DataFrame | Result, delegate: JavaObject) -> JavaObject:
    """The plan of what a handler returned: of a query its own, of a command's result its row."""
    if isinstance(outcome, DataFrame):
        return cast("Any", outcome)._jdf.queryExecution().analyzed()
    row = outcome.row.asDict()
    values = ", ".join("CAST(NULL AS BIGINT)" if value is None else f"{value}L" for value in row.values())
    return delegate.parsePlan(f"SELECT * FROM VALUES ({values}) AS result ({', '.join(row)})")
