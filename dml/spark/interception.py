"""Intercept RowDelta statements in Python's `spark.sql`. Driver; classic Spark and Spark Connect.

Input: a session and its handler. Output: a `sql` method that calls the handler first. Connect and sessions that
RowDelta did not start depend on it. On sessions with RowDelta's parser it avoids a round trip through the JVM, and
exceptions keep their Python type.

The method is replaced in the class. Sessions without a handler are not affected, and the last `disable` puts the
original back.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from pyspark.sql import DataFrame, SparkSession

from dml.errors import NotSupportedError
from dml.result import Result
from dml.spark.bridge.gateway import original_error
from dml.spark.bridge.sessions import frames_of_formatter, is_connect
from dml.spark.callbacks import restore_python_side
from dml.spark.handlers import (
    Arguments,
    StatementHandler,
    find_handler,
    has_handlers,
    pass_to_spark,
    register_handler,
    run_statement,
    session_key,
    unregister_handler,
)
from dml.spark.replaced_methods import Method, Replacement, replace_methods, restore_methods
from dml.spark.runtime import Runtime, SessionKind

__all__ = ["SQL_REPLACEMENTS", "disable", "enable"]


def enable(spark: SparkSession, handler: StatementHandler) -> None:
    """Register the handler of a session's statements, replacing the previous one.

    It runs statements from Python and, if the session has RowDelta's parser, from the JVM.
    """
    register_handler(spark, handler)
    kind = Runtime.of(spark).kind
    replace_methods([replacement for replacement in SQL_REPLACEMENTS if kind in replacement.on])


def disable(spark: SparkSession) -> None:
    """Remove a session's handler, if it has one: its statements and calls on RowDelta tables go to Spark again.

    With the last session, the changes to PySpark and py4j that all sessions share are undone too.
    """
    handler = unregister_handler(spark)
    restore_methods()
    if handler is not None and handler.release is not None:
        handler.release()
    if not has_handlers():
        restore_python_side()


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStatement:
    """A statement that was passed to `spark.sql`.

    Attributes:
        key: The key of the session.
        text: The statement, with values for its `{name}` placeholders.
        arguments: The values of its parameters.
        handler: The handler that runs it; None if Spark does.
        has_key: Whether an idempotency key was passed, rather than a value for a placeholder of that name.
        views: Drops the views of DataFrames in placeholders.
    """

    key: str
    text: str
    arguments: Arguments
    handler: StatementHandler | None
    has_key: bool
    views: ExitStack


def read_statement(
    self: SparkSession,
    sqlQuery: Any,  # noqa: N803  PySpark's name
    args: Arguments = None,
    **values: Any,
) -> GivenStatement | None:
    """Read the arguments of `spark.sql`, and find the statement's handler."""
    if not isinstance(sqlQuery, str):
        return None
    key = session_key(self)
    with ExitStack() as views:
        text = views.enter_context(fill_placeholders(self, sqlQuery, values))
        return GivenStatement(
            key=key,
            text=text,
            arguments=args,
            handler=find_handler(key, text, lambda: self),
            has_key="idempotency_key" in values and "{idempotency_key" not in sqlQuery,
            views=views.pop_all(),
        )


def run_or_pass_on(original: Method, statement: GivenStatement, /, *given: Any, **named: Any) -> DataFrame | Result:
    """Run a statement by its handler, or pass it on to PySpark."""
    with statement.views:
        if statement.handler is not None:
            if statement.has_key:
                refuse_key()
            return run_statement(statement.handler, statement.text, statement.arguments)
    with pass_to_spark(statement.key, statement.text):
        try:
            return original(*given, **named)  # type: ignore[no-any-return]
        except Exception as error:
            carried = original_error(error)
            if carried is error:
                raise
            raise carried from None


SQL_REPLACEMENTS: Final = (
    Replacement(
        "pyspark.sql.session.SparkSession",
        "sql",
        read_statement,
        run_or_pass_on,
        SessionKind.CLASSIC | SessionKind.CLASSIC_WITHOUT_CATALOGS,
    ),
    Replacement("pyspark.sql.connect.session.SparkSession", "sql", read_statement, run_or_pass_on, SessionKind.CONNECT),
)


def refuse_key() -> NoReturn:
    """Refuse an idempotency key: to PySpark it is a value for the text, and one that the text does not name is ignored.

    Raises:
        NotSupportedError: always. Otherwise the statement would run without the safety that the key promises.
    """
    raise NotSupportedError("spark.sql takes no idempotency key", hint="Pass it to `sql` of a session from dml.connect")


@contextmanager
def fill_placeholders(spark: SparkSession, text: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Fill in the `{name}` placeholders of a statement as PySpark does; drop the views of DataFrames afterwards.

    Connect looks up a view when a query runs, after the block, so its views stay with the session.
    """
    if not values:
        yield text
        return
    package = "pyspark.sql.connect" if is_connect(spark) else "pyspark.sql"
    formatter = importlib.import_module(f"{package}.sql_formatter").SQLStringFormatter(spark)
    try:
        filled = formatter.format(text, **values)
        for frame, name in frames_of_formatter(formatter):  # on Connect nothing else creates these views
            frame.createOrReplaceTempView(name)
        yield filled
    finally:
        formatter.clear()
