"""Statements of ours, taken at Python's `spark.sql`. Driver; classic Spark and Spark Connect.

Input: a session and its handler. Output: a `sql` method that asks the handler first. This is the way in on Connect and
on sessions that were there before us; on sessions with our parser it saves the way through the JVM, and exceptions
arrive as they were raised.

The method is replaced in the class. Sessions without a handler are not affected, and the last `disable` puts the
original back.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

from pyspark.sql import DataFrame, SparkSession

from dml.errors import NotSupportedError
from dml.result import Result
from dml.spark.handlers import (
    Arguments,
    StatementHandler,
    find_handler,
    has_handlers,
    passing_on,
    register_handler,
    run_statement,
    session_key,
    unregister_handler,
)
from dml.spark.jvm import original_error, restore_python_side
from dml.spark.replaced_methods import Method, Replacement, replace_methods, restore_methods

__all__ = ["disable", "enable", "sql_replacement"]


def enable(spark: SparkSession, handler: StatementHandler) -> None:
    """Let a handler take the statements of a session, from Python and, with our parser, from the JVM.

    Args:
        spark: The session, of either kind.
        handler: What takes them, in place of the session's handler before.
    """
    register_handler(spark, handler)
    replace_methods([sql_replacement(class_with_sql(spark))])


def disable(spark: SparkSession) -> None:
    """Leave a session's statements, and its calls on our tables, to Spark again; nothing happens if they are already.

    With the last session, the changes to PySpark and py4j that all sessions share are undone too.
    """
    handler = unregister_handler(spark)
    restore_methods()
    if handler is not None and handler.release is not None:
        handler.release()
    if not has_handlers():
        restore_python_side()


def class_with_sql(spark: SparkSession) -> Any:
    """The class that defines the `sql` of a session: classic and Connect have one each."""
    return next(kind for kind in type(spark).__mro__ if "sql" in vars(kind))


def sql_replacement(owner: Any) -> Replacement:
    """Return the replacement of `SparkSession.sql`, which asks the handler first, for a class of sessions."""
    return Replacement(owner, "sql", read_statement, run_or_pass_on)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenStatement:
    """A statement that was passed to `spark.sql`.

    Attributes:
        key: The key of the session.
        text: The statement, with its `{name}` placeholders filled in.
        arguments: The values of its parameters.
        handler: The handler that runs it; None if Spark does.
        has_key: Whether an idempotency key was passed, rather than a value for a placeholder of that name.
        views: Drops the views of the DataFrames that were filled in.
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
        text = views.enter_context(formatted(self, sqlQuery, values))
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
    with passing_on(statement.key, statement.text):
        try:
            return original(*given, **named)  # type: ignore[no-any-return]
        except Exception as error:
            carried = original_error(error)
            if carried is error:
                raise
            raise carried from None


def refuse_key() -> NoReturn:
    """Refuse an idempotency key: to PySpark it is a value for the text, and one that the text does not name is ignored.

    Raises:
        NotSupportedError: always. Otherwise the statement would run without the safety that the key promises.
    """
    raise NotSupportedError("spark.sql takes no idempotency key", hint="Pass it to `sql` of a session from dml.connect")


@contextmanager
def formatted(spark: SparkSession, text: str, values: Mapping[str, Any]) -> Iterator[str]:
    """A statement with its `{name}` filled in as PySpark does it; views of DataFrames live until the end.

    On Connect a view is looked up when a query runs, later than here, so there views stay with the session.
    """
    if not values:
        yield text
        return
    package = class_with_sql(spark).__module__.rpartition(".")[0]
    formatter = importlib.import_module(f"{package}.sql_formatter").SQLStringFormatter(spark)
    try:
        filled = formatter.format(text, **values)
        for frame, name in formatter._temp_views:  # noqa: SLF001  on Connect nobody else makes these views
            frame.createOrReplaceTempView(name)
        yield filled
    finally:
        formatter.clear()
