"""`spark.readStream` on tables of ours. Driver; classic Spark and Spark Connect.

Input: `readStream.table(name)` and `readStream.format("iceberg").load(name)`. Output: on classic Spark the stream of
the table, which Spark finds in its catalog; elsewhere one line that says what to do instead, since Spark there knows
nothing of our catalogs. Where the name is none with a catalog of ours in front, PySpark's own methods go on.
"""

import functools
import importlib
from typing import Any, NoReturn

from pyspark.sql import SparkSession

from dml.errors import NotSupportedError
from dml.spark.format_calls import is_name, loading
from dml.spark.handlers import find_calls, is_classic
from dml.spark.jvm import field_of
from dml.spark.replaced_methods import Method, replace_method
from dml.spark.versions import Feature, has, require
from dml.sqlparse.names import name_parts

__all__ = ["take_stream_calls"]


def take_stream_calls(spark: SparkSession) -> None:
    """Let the readers of streams look whether a table of ours is meant."""
    package = "pyspark.sql" if is_classic(spark) else "pyspark.sql.connect"
    readwriter = importlib.import_module(f"{package}.streaming.readwriter")
    replace_method(readwriter.DataStreamReader, "load", functools.partial(loading, state=state_of_reader))
    if not (is_classic(spark) and has(Feature.DATA_SOURCE_V2)):
        replace_method(readwriter.DataStreamReader, "table", refusing)


def refusing(original: Method) -> Method:
    """`spark.readStream.table(name)` where Spark has no catalog of ours."""

    @functools.wraps(original)
    def table(self: Any, tableName: str) -> Any:  # noqa: N803  PySpark's name
        session, _, _ = state_of_reader(self)
        if is_name(tableName) and find_calls(session, name_parts(tableName)) is not None:
            refuse(tableName)
        return original(self, tableName)

    return table


def refuse(name: str) -> NoReturn:
    """Say what a stream of a table needs.

    Raises:
        NotSupportedError: always.
    """
    require(Feature.DATA_SOURCE_V2)
    raise NotSupportedError(
        f"The table '{name}' cannot be read as a stream through Spark Connect: its server does not know the catalog",
        hint="Read the stream on classic Spark, or connect to a server that `dml serve` has started, without RowDelta",
    )


def state_of_reader(reader: Any) -> tuple[Any, str | None, bool]:
    """The session of a reader, its format, and whether it was given a schema."""
    if hasattr(reader, "_jreader"):
        java = reader._jreader  # noqa: SLF001  no public name
        given = field_of(java, "userSpecifiedSchema")
        return reader._spark, str(field_of(java, "source")), bool(given.isDefined())  # noqa: SLF001
    return reader._client, reader._format, bool(reader._schema)  # noqa: SLF001
