"""`spark.readStream` and `df.writeStream` on tables of ours. Driver; classic Spark and Spark Connect.

Input: `readStream.table(name)` and `readStream.format("iceberg").load(name)`. Output: on classic Spark the stream of
the table, which Spark finds in its catalog; elsewhere one line that says what to do instead, since Spark there knows
nothing of our catalogs.

Input: `writeStream.format("iceberg").start(name)`, and with the name as the option `path`. Output: as `toTable(name)`.

Input: `writeStream.toTable(name)` on a classic Spark that has no catalog of ours. Output: what its writer was told, for
what takes the session's calls (`dml.spark.table_calls`), as `connect_calls` has it on Spark Connect.

Where the name is none with a catalog of ours in front, PySpark's own methods go on.
"""

from typing import Any, Final, NoReturn

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dml.errors import NotFoundError, NotSupportedError
from dml.spark.format_calls import is_name, loading, names_ours
from dml.spark.handlers import FoundCalls, find_calls, is_classic
from dml.spark.jvm import field_of
from dml.spark.replaced_methods import Method, Replacement, replace_methods
from dml.spark.table_calls import StreamCall
from dml.spark.versions import Feature, has, require
from dml.sqlparse.names import name_parts

__all__ = ["stream_replacements", "take_stream_calls"]

PATH: Final = "path"


def take_stream_calls(spark: SparkSession) -> None:
    """Replace the methods of stream readers and writers that may name one of our tables."""
    replace_methods(stream_replacements(is_classic=is_classic(spark), has_catalogs=has(Feature.DATA_SOURCE_V2)))


def stream_replacements(*, is_classic: bool, has_catalogs: bool) -> tuple[Replacement, ...]:
    """Return the replacements for methods of stream readers and writers.

    Args:
        is_classic: Whether to replace methods of classic Spark, or of Spark Connect.
        has_catalogs: Whether this version of classic Spark finds our tables in its catalogs.
    """
    readwriter = f"pyspark.sql{'' if is_classic else '.connect'}.streaming.readwriter"
    table_loaded, load = loading(state_of_reader)
    refusal = Replacement(f"{readwriter}.DataStreamReader", "table", table_read, refuse_read)
    writing = Replacement(f"{readwriter}.DataStreamWriter", "toTable", table_written, to_table)
    return (
        Replacement(f"{readwriter}.DataStreamReader", "load", table_loaded, load),
        *(() if is_classic and has_catalogs else (refusal,)),
        Replacement(f"{readwriter}.DataStreamWriter", "start", table_started, start),
        *((writing,) if is_classic and not has_catalogs else ()),
    )


def table_read(self: Any, tableName: str) -> str | None:  # noqa: N803  PySpark's name
    """Return the name if `spark.readStream.table(name)` names one of our tables, and Spark lacks our catalogs."""
    if not is_name(tableName):
        return None
    session, _, _ = state_of_reader(self)
    return None if find_calls(session, name_parts(tableName)) is None else tableName


def refuse_read(_: Method, table: str, /, *__: Any, **___: Any) -> NoReturn:
    """Refuse `spark.readStream.table(name)`."""
    refuse(table)


def table_started(
    self: Any,
    path: str | None = None,
    format: str | None = None,  # noqa: A002  PySpark's name
    *_: Any,
    **options: Any,
) -> tuple[Any, str] | None:
    """Return the session and the table's name if `df.writeStream.start(path)` names one of our tables."""
    session, source, told_path = state_of_writer(self)
    name = next((given for key, given in options.items() if key.lower() == PATH), told_path) if path is None else path
    return (session, name) if name and is_name(name) and names_ours(session, name, format or source) else None


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


def table_written(self: Any, tableName: str, *_: Any, **__: Any) -> FoundCalls | None:  # noqa: N803
    """Find the calls for `df.writeStream.toTable(name)` on classic Spark that lacks our catalogs."""
    return find_calls(self._spark, name_parts(tableName) if is_name(tableName) else ())


def to_table(
    _: Method,
    found: FoundCalls,
    /,
    self: Any,
    tableName: str,  # noqa: ARG001, N803  PySpark's name
    format: str | None = None,  # noqa: A002  PySpark's name
    outputMode: str | None = None,  # noqa: N803
    partitionBy: Any = None,  # noqa: N803
    queryName: str | None = None,  # noqa: N803
    **options: Any,
) -> StreamingQuery:
    """Run `df.writeStream.toTable(name)`."""
    calls, parts = found
    self.options(**options)
    if outputMode is not None:
        self.outputMode(outputMode)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    if queryName is not None:
        self.queryName(queryName)
    java = self._jwrite
    options_given = field_of(java, "extraOptions").originalMap().toList()
    columns = field_of(java, "partitioningColumns")
    java.partitionBy(None)  # Spark refuses partitions beside a function
    return calls.stream(
        StreamCall(
            rows=self._df,
            table=parts,
            start=lambda function: self.foreachBatch(function).start(),
            output_mode=str(field_of(java, "outputMode").toString()),
            options={pair.productElement(0): pair.productElement(1) for pair in items_of(options_given)},
            provider=format,
            partitioning=tuple(map(name_parts, items_of(columns.get()))) if columns.isDefined() else (),
        )
    )


def items_of(sequence: Any) -> list[Any]:
    """The items of a sequence of Scala's, without its conversions, which the Scala of Spark 3.5 has elsewhere."""
    return [sequence.apply(place) for place in range(sequence.length())]


def state_of_reader(reader: Any) -> tuple[Any, str | None, bool]:
    """The session of a reader, its format, and whether it was given a schema."""
    if hasattr(reader, "_jreader"):
        java = reader._jreader  # noqa: SLF001  no public name
        given = field_of(java, "userSpecifiedSchema")
        return reader._spark, str(field_of(java, "source")), bool(given.isDefined())  # noqa: SLF001
    return reader._client, reader._format, bool(reader._schema)  # noqa: SLF001


def state_of_writer(writer: Any) -> tuple[Any, str | None, str | None]:
    """The session of a writer, its format, and its option `path`; no format where a function takes the rows."""
    if hasattr(writer, "_jwrite"):
        java = writer._jwrite  # noqa: SLF001  no public name
        path = field_of(java, "extraOptions").get(PATH)
        return writer._spark, str(field_of(java, "source")), str(path.get()) if path.isDefined() else None  # noqa: SLF001
    given = writer._write_proto  # noqa: SLF001
    is_function = given.HasField("foreach_batch") or given.HasField("foreach_writer")
    path = next((value for key, value in given.options.items() if key.lower() == PATH), None)
    return writer._session, None if is_function else given.format, path  # noqa: SLF001
