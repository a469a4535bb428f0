"""Notes on Spark's errors about names without a catalog. Driver; classic Spark.

Input: an exception that PySpark made of one of the JVM's. Output: the same, with a note if its name may be one of a
catalog of ours. In statements a name without a catalog finds our tables too; in `spark.table`, `df.write` and
`spark.catalog` Spark looks it up, in its current catalog alone.
"""

import re
from contextlib import suppress
from typing import Final

from pyspark.errors import PySparkException

from dml.spark.handlers import catalog_of_bare_names
from dml.spark.versions import sql_failure

__all__ = ["with_note"]

CONDITIONS: Final = {"TABLE_OR_VIEW_NOT_FOUND": "table", "SCHEMA_NOT_FOUND": "namespace"}
NAME: Final = re.compile(r"(?:`spark_catalog`\.)?((?:`(?:[^`]|``)+`)(?:\.`(?:[^`]|``)+`)*)")


def with_note(error: BaseException) -> BaseException:
    """Add the note, from what is known without asking a catalog: such an error may be one that its caller expects."""
    catalog = catalog_of_bare_names()
    if catalog is None or not isinstance(error, PySparkException):
        return error
    with suppress(Exception):  # the error may be of a call that has nothing to do with us, and must arrive
        note = note_of(error, catalog)
        if note is not None:
            error.add_note(note)
    return error


def note_of(error: PySparkException, catalog: str) -> str | None:
    """What to write instead; None where the name is not missing, or was looked up in our catalog."""
    failure = sql_failure(error)
    what = CONDITIONS.get(failure.condition or "")
    found = NAME.search(failure.message)
    if what is None or found is None or f"`{catalog}`" in failure.message:
        return None
    name = ".".join((catalog, found[1].replace("`", "")))
    return f"If the {what} is in RowDelta's catalog '{catalog}', write '{name}', or run 'USE {catalog}' first"
