"""Statements of ours, taken at Python's `spark.sql`. Driver; classic Spark and Spark Connect.

Input: a session and its handler. Output: a `sql` method that asks the handler first. This is the way in on Connect and
on sessions that were there before us; on sessions with our parser it saves the way through the JVM, and exceptions
arrive as they were raised.

The method is replaced in the class. Sessions without a handler are not affected, and the last `disable` puts the
original back.
"""

import functools
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from dml.errors import NotSupportedError
from dml.result import Result
from dml.spark.handlers import (
    Arguments,
    StatementHandler,
    find_handler,
    passing_on,
    register_handler,
    run_statement,
    session_key,
    unregister_handler,
)
from dml.spark.jvm import original_error
from dml.spark.replaced_methods import Method, replace_method, restore_methods

__all__ = ["disable", "enable"]


def enable(spark: SparkSession, handler: StatementHandler) -> None:
    """Let a handler take the statements of a session, from Python and, with our parser, from the JVM.

    Args:
        spark: The session, of either kind.
        handler: What takes them, in place of the session's handler before.
    """
    register_handler(spark, handler)
    replace_method(class_with_sql(spark), "sql", intercepted)


def disable(spark: SparkSession) -> None:
    """Leave a session's statements, and its calls on our tables, to Spark again; nothing happens if they are."""
    unregister_handler(session_key(spark))
    restore_methods()


def class_with_sql(spark: SparkSession) -> Any:
    """The class that defines the `sql` of a session: classic and Connect have one each."""
    return next(kind for kind in type(spark).__mro__ if "sql" in vars(kind))


def intercepted(original: Method) -> Method:
    """PySpark's `SparkSession.sql` with the handler in front."""

    @functools.wraps(original)
    def sql(
        self: SparkSession,
        sqlQuery: str,  # noqa: N803  PySpark's name
        args: Arguments = None,
        **kwargs: Any,
    ) -> DataFrame | Result:
        key = session_key(self)
        with formatted(self, sqlQuery, kwargs) as text:
            handler = find_handler(key, text, lambda: self)
            if handler is not None:
                refuse_key(sqlQuery, kwargs)
                return run_statement(handler, text, args)
        with passing_on(key, text):
            try:
                return original(self, sqlQuery, args, **kwargs)  # type: ignore[no-any-return]
            except Exception as error:
                carried = original_error(error)
                if carried is error:
                    raise
                raise carried from None

    return sql


def refuse_key(text: str, values: Mapping[str, Any]) -> None:
    """Refuse an idempotency key: to PySpark it is a value for the text, and one that the text does not name is ignored.

    Raises:
        NotSupportedError: there is one, so that the statement would run without the safety that was asked for.
    """
    if "idempotency_key" in values and "{idempotency_key" not in text:
        raise NotSupportedError(
            "spark.sql takes no idempotency key", hint="Give it to `sql` of a session of dml.connect"
        )


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
