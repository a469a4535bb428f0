"""PySpark's readers, writers and streams on names of RowDelta tables. Driver; classic Spark and Spark Connect.

Input: `spark.read.format("iceberg").load(name)` and `df.write.format("iceberg").save(name)`, as in programs for
Iceberg's JAR. Output: the equivalent calls with a table name: `table`, `writeTo`, `saveAsTable`.

Input: `readStream.table(name)` and `readStream.format("iceberg").load(name)`. Output: on classic Spark the stream of
the table, which Spark finds in its catalog; elsewhere a one-line error with the alternatives, because Spark does not
know RowDelta's catalogs there.

Input: `writeStream.format("iceberg").start(name)`, or the name as the option `path`. Output: as `toTable(name)`.

If the name does not begin with a RowDelta catalog, PySpark's own methods run.
"""

from collections.abc import Callable
from typing import Any, Final, NoReturn

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.streaming.query import StreamingQuery

from dml.engine.ownership import engine_of, find_table
from dml.errors import NotFoundError, NotSupportedError
from dml.spark.bridge.writers import (
    PATH,
    mode_of_stream_writer,
    session_of,
    state_of_reader,
    state_of_stream_writer,
    state_of_writer,
)
from dml.spark.replaced_methods import Method
from dml.spark.versions import Feature, require
from dml.sqlparse.names import name_parts
from dml.streaming.sink import check_output_mode

__all__ = [
    "find_load",
    "find_save",
    "find_start",
    "find_stream_read",
    "find_update",
    "load",
    "pass_through",
    "refuse_read",
    "refuse_update",
    "register_format",
    "save",
    "start",
]

ICEBERG: Final = "iceberg"


def register_format(register: Callable[[SparkSession], None], self: Any, source: str, /) -> None:
    """Register the format before PySpark's `df.write.format(source)` looks it up."""
    if str(source).lower() == ICEBERG and engine_of(session_of(self)) is not None:
        register(session_of(self))


def pass_through(original: Method, _: Any, /, *given: Any, **named: Any) -> Any:
    """Leave a call to PySpark."""
    return original(*given, **named)


def find_load(
    self: Any,
    path: Any = None,
    format: str | None = None,  # noqa: A002  PySpark's name
    *_: Any,
    **__: Any,
) -> bool | None:
    """Return whether a reader has a schema, if `load(path)` of it names a RowDelta table; None if it does not."""
    if not is_name(path):
        return None
    session, source, has_schema = state_of_reader(self)
    return has_schema if names_rowdelta_table(session, path, format or source) else None


def load(
    _: Method,
    has_schema: bool,
    /,
    self: Any,
    path: Any = None,
    format: str | None = None,  # noqa: A002, ARG001  PySpark's name
    schema: Any = None,
    **options: Any,
) -> DataFrame:
    """Run `spark.read.load(name)` or `spark.readStream.load(name)`."""
    if schema is not None or has_schema:
        raise NotSupportedError(
            f"A reader of the table '{path}' cannot set a schema", hint="Remove the schema, and select the columns"
        )
    return self.options(**options).table(path)  # type: ignore[no-any-return]


def find_save(
    self: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002  PySpark's name
    *_: Any,
    **__: Any,
) -> str | None:
    """Return the name of the table if `df.write.save(path)` names a RowDelta table."""
    if path is None or not is_name(path):
        return None
    state = state_of_writer(self)
    return path if names_rowdelta_table(state.session, path, format or state.source) else None


def save(
    _: Method,
    table: str,
    /,
    self: Any,
    path: str | None = None,  # noqa: ARG001
    format: str | None = None,  # noqa: A002, ARG001  PySpark's name
    mode: str | None = None,
    partitionBy: Any = None,  # noqa: N803  PySpark's name
    **options: Any,
) -> None:
    """Run `df.write.save(name)`."""
    self.mode(mode).options(**options)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    state = state_of_writer(self)
    writer = state.rows.writeTo(table).options(**state.options)
    if state.mode == "append":
        writer.append()
    elif state.mode == "overwrite":
        writer.overwrite(lit(True))
    else:
        self.saveAsTable(table)


def is_name(path: object) -> bool:
    """Return True if a path can be a qualified table name; paths of files are not."""
    return isinstance(path, str) and len(name_parts(path)) > 1


def names_rowdelta_table(spark: Any, path: str, source: str | None) -> bool:
    """Return True if the format is `iceberg` and the name is that of a RowDelta table."""
    return (source or "").lower() == ICEBERG and find_table(spark, path) is not None


def find_stream_read(self: Any, tableName: str) -> str | None:  # noqa: N803  PySpark's name
    """Return the name if `spark.readStream.table(name)` names a RowDelta table that Spark cannot find."""
    return None if find_table(session_of(self), tableName) is None else tableName


def refuse_read(_: Method, table: str, /, *__: Any, **___: Any) -> NoReturn:
    """Refuse `spark.readStream.table(name)`."""
    refuse(table)


def find_start(
    self: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002  PySpark's name
    *_: Any,
    **options: Any,
) -> tuple[Any, str] | None:
    """Return the session and the table's name if `df.writeStream.start(path)` names a RowDelta table."""
    session, source, option_path = state_of_stream_writer(self)
    name = next((given for key, given in options.items() if key.lower() == PATH), option_path) if path is None else path
    return (session, name) if name and is_name(name) and names_rowdelta_table(session, name, format or source) else None


def start(
    _: Method,
    found: tuple[Any, str],
    /,
    self: Any,
    path: str | None = None,  # noqa: ARG001
    format: str | None = None,  # noqa: A002  PySpark's name
    outputMode: str | None = None,  # noqa: N803  PySpark's names
    partitionBy: Any = None,  # noqa: N803
    queryName: str | None = None,  # noqa: N803
    **options: Any,
) -> StreamingQuery:
    """Run `df.writeStream.start(name)`."""
    session, name = found
    if not session.catalog.tableExists(name):  # as with the JAR: a path would create a table at that path
        raise NotFoundError(
            f"There is no table '{name}' to write the stream to",
            hint=f"Create it, or use toTable('{name}'), which creates it with the columns of the stream",
        )
    return self.toTable(name, format, outputMode, partitionBy, queryName, **options)  # type: ignore[no-any-return]


def find_update(
    self: Any,
    tableName: str,  # noqa: N803  PySpark's names
    format: str | None = None,  # noqa: A002, ARG001
    outputMode: str | None = None,  # noqa: N803
    *_: Any,
    **__: Any,
) -> str | None:
    """Return the table's name if `df.writeStream.toTable(name)` is in update mode. Spark rejects that in a job."""
    found = find_table(session_of(self), tableName)
    mode = outputMode or mode_of_stream_writer(self)
    return tableName if found is not None and mode.lower() == "update" else None


def refuse_update(_: Method, table: str, /, *__: Any, **___: Any) -> None:
    """Refuse update mode before the query starts.

    Raises:
        NotSupportedError: Always.
    """
    check_output_mode(name_parts(table), "update")


def refuse(name: str) -> NoReturn:
    """Refuse a stream of a table.

    Raises:
        NotSupportedError: always; it names the required version, or the alternatives on Connect.
    """
    require(Feature.DATA_SOURCE_V2)
    raise NotSupportedError(
        f"The table '{name}' cannot be read as a stream through Spark Connect: its server does not know the catalog",
        hint="Read the stream on classic Spark, or connect to a server that `dml serve` has started, without RowDelta",
    )
