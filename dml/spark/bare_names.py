"""Add notes to Spark's errors about names without a catalog. Driver; classic Spark.

Input: an exception that PySpark converted from a JVM exception. Output: the same, with a note if the name may belong to
one of our catalogs. In statements a name without a catalog finds our tables too; in `spark.table`, `df.write` and
`spark.catalog` Spark looks it up in its current catalog only.
"""

import re
from contextlib import suppress
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.spark.handlers import catalog_of_bare_names
from dml.spark.versions import sql_failure

__all__ = ["with_note"]

CONDITIONS: Final = {"TABLE_OR_VIEW_NOT_FOUND": "table", "SCHEMA_NOT_FOUND": "namespace"}
NAME: Final = re.compile(r"(?:`spark_catalog`\.)?((?:`(?:[^`]|``)+`)(?:\.`(?:[^`]|``)+`)*)")


def with_note(error: BaseException) -> BaseException:
    """Add the note without a request to a catalog, because callers may expect such errors."""
    catalog = catalog_of_bare_names()
    if catalog is None or not isinstance(error, PySparkException):
        return error
    with suppress(Exception):  # the error may have nothing to do with us, and must reach its caller
        note = note_of(error, catalog)
        if note is not None:
            error.add_note(note)
    return error


def note_of(error: PySparkException, catalog: str) -> str | None:
    """Return what to write instead; None if no name is missing, or it was looked up in our catalog."""
    failure = sql_failure(error)
    what = CONDITIONS.get(failure.condition or "")
    found = NAME.search(failure.message)
    if what is None or found is None or f"`{catalog}`" in failure.message:
        return None
    session = SparkSession.getActiveSession()
    if session is not None and session.catalog.currentCatalog() == catalog:  # which PySpark 4.0 leaves out of messages
        return None
    name = ".".join((catalog, found[1].replace("`", "")))
    return f"If the {what} is in RowDelta's catalog '{catalog}', write '{name}', or run 'USE {catalog}' first"
