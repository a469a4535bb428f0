"""Missing and existing objects as Spark's exceptions. Driver, Spark Connect.

Input: a RowDelta error, and the name in the PySpark call. Output: the exception that Spark raises for a table of its
own catalogs: programs catch it by class and condition. Other errors are not changed.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from pyspark.errors import PySparkException

from dml.catalog.tables import namespace_exists
from dml.catalog.translation import is_unreachable, translate
from dml.engine.engine import Engine
from dml.errors import AlreadyExistsError, DmlError, NotFoundError
from dml.spark.errors import generated_sql_error
from dml.sqlparse.quoting import quoted

__all__ = ["ErrorCondition", "message_of", "spark_error", "translate_errors"]


class ErrorCondition(Enum):
    """Spark's error conditions, each with its SQLSTATE and its message parameter."""

    TABLE_OR_VIEW_NOT_FOUND = ("42P01", "relationName")
    TABLE_OR_VIEW_ALREADY_EXISTS = ("42P07", "relationName")
    SCHEMA_NOT_FOUND = ("42704", "schemaName")
    SCHEMA_ALREADY_EXISTS = ("42P06", "schemaName")
    SCHEMA_NOT_EMPTY = ("2BP01", "schemaName")


def spark_error(condition: ErrorCondition, parts: Sequence[str], message: str) -> Exception:
    """Build the exception of a condition, of the class that Spark Connect's client raises.

    Args:
        condition: The condition.
        parts: The name of the table or namespace, catalog first.
        message: What happened, and what to do.
    """
    state, parameter = condition.value
    exceptions = importlib.import_module("pyspark.errors.exceptions.connect")
    raised: Exception = exceptions.AnalysisException(
        message=f"[{condition.name}] {message.rstrip('.')}. SQLSTATE: {state}",
        errorClass=condition.name,
        messageParameters={parameter: ".".join(map(quoted, parts))},
        sql_state=state,
    )
    return raised


@contextmanager
def translate_errors(engine: Engine, parts: Sequence[str], *, creates: bool = False) -> Iterator[None]:
    """Translate errors of the calls on a table in this context to Spark's exceptions.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, catalog first.
        creates: True if the call creates the table: then its namespace may be what is missing.
    """
    try:
        yield
    except AlreadyExistsError as error:
        raise spark_error(ErrorCondition.TABLE_OR_VIEW_ALREADY_EXISTS, parts, message_of(error)) from error
    except NotFoundError as error:
        if engine.registry.resolve(tuple(parts)) is not None:  # a branch, a snapshot
            raise
        if creates and not namespace_exists(engine.registry.catalog(parts[0]), tuple(parts[1:-1])):
            raise spark_error(ErrorCondition.SCHEMA_NOT_FOUND, parts[:-1], message_of(error)) from error
        raise spark_error(ErrorCondition.TABLE_OR_VIEW_NOT_FOUND, parts, message_of(error)) from error
    except DmlError:
        raise
    except PySparkException as error:
        error_of_worker = generated_sql_error(error)
        if error_of_worker is None:
            raise
        raise error_of_worker from error
    except Exception as error:
        if not is_unreachable(error):
            raise
        properties = {name: catalog.properties for name, catalog in engine.registry.catalogs.items()}
        raise translate(error, "The call", properties) from None  # the cause may hold credentials


def message_of(error: DmlError) -> str:
    """Return the message of an error with its hint."""
    return error.message if error.hint is None else f"{error.message}. {error.hint}"
