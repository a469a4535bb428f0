"""Let the JVM call Python, with exceptions that come back unchanged. Driver, classic Spark only.

An error that PySpark converted from a JVM exception gets a note if its name without a catalog may belong to a RowDelta
catalog: statements look up such a name in RowDelta's catalog too, but `spark.table`, `df.write` and `spark.catalog`
look it up in Spark's current catalog only.
"""

import functools
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyspark.errors import PySparkException
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession

from dml.errors import DmlError
from dml.spark.bridge.gateway import JavaObject, find_carried, gateway, restore_py4j, start_callbacks
from dml.spark.handlers import catalog_of_bare_names
from dml.spark.versions import sql_failure
from dml.tracebacks import shorten_traceback

__all__ = ["PARSER_STAYS", "restore_python_side", "take_callbacks"]

CONDITIONS: Final = {"TABLE_OR_VIEW_NOT_FOUND": "table", "SCHEMA_NOT_FOUND": "namespace"}


NAME: Final = re.compile(r"(?:`spark_catalog`\.)?((?:`(?:[^`]|``)+`)(?:\.`(?:[^`]|``)+`)*)")


PARSER_STAYS: Final = threading.Event()
"""Set once a session has RowDelta's parser, which Spark calls with every statement until the session ends."""


def take_callbacks() -> None:
    """Start py4j's callback server, and let PySpark's conversion of exceptions return those of callbacks."""
    start_callbacks()
    if not hasattr(captured.convert_exception, "__wrapped__"):
        setattr(captured, "convert_exception", wrap_conversion(captured.convert_exception))  # noqa: B010  a name of PySpark's


def restore_python_side() -> None:
    """Undo what `take_callbacks` changed in PySpark and py4j, unless a session has RowDelta's parser."""
    if PARSER_STAYS.is_set() or gateway() is None:
        return
    convert = getattr(captured.convert_exception, "__wrapped__", None)
    if convert is not None:
        setattr(captured, "convert_exception", convert)  # noqa: B010  a name of PySpark's
    restore_py4j()


def wrap_conversion(original: Callable[[JavaObject], BaseException]) -> Callable[[JavaObject], BaseException]:
    """Wrap PySpark's conversion of Java exceptions, so that a callback's own exception comes back unchanged."""

    @functools.wraps(original)
    def convert(exception: JavaObject) -> BaseException:
        try:
            known = find_carried(exception)
        except Exception:  # noqa: BLE001  PySpark converts exceptions that cannot be looked up
            known = None
        if isinstance(known, DmlError):
            shorten_traceback(known)
        return known or with_note(original(exception))

    return convert


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
