"""Private state of PySpark's readers and writers, of batches and of streams. Driver.

Classic sessions keep it in the JVM, Spark Connect keeps it in the messages to the server.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import unknown_internals
from dml.spark.bridge.names import (
    CONNECT_STREAM,
    CONNECT_WRITE,
    JAVA_READER,
    JAVA_WRITER,
    PLAN_CHILD,
    READER_FORMAT,
    READER_OPTIONS,
    READER_SCHEMA,
    ROWS,
    STREAM_PLAN,
    STREAM_READER_FORMAT,
    STREAM_READER_SCHEMA,
    STREAM_WRITER_COLUMNS,
    STREAM_WRITER_FORMAT,
    STREAM_WRITER_MODE,
    STREAM_WRITER_OPTIONS,
    WRITER_TABLE,
)
from dml.spark.bridge.sessions import frame_of_plan, is_connect

__all__ = [
    "PATH",
    "StreamSettings",
    "WriterState",
    "connect_rows",
    "connect_settings",
    "options_of_reader",
    "session_of",
    "settings_of_stream_writer",
    "start_with_function",
    "state_of_reader",
    "state_of_stream_writer",
    "state_of_writer",
    "table_of_writer",
]

PATH: Final = "path"
SESSIONS: Final = ("_spark", "_session", "_sparkSession", "_client")
"""The attributes by which readers, writers and catalogs know their session; Connect's readers call it a client."""


def session_of(value: Any) -> Any:
    """Return the session of a reader, a writer or a `spark.catalog`, classic or Connect.

    Raises:
        UnknownInternalsError: The object has none of the attributes in `SESSIONS`.
    """
    for name in SESSIONS:
        if hasattr(value, name):
            return getattr(value, name)
    raise unknown_internals(type(value).__qualname__, f"it has none of {', '.join(SESSIONS)}")


def options_of_reader(reader: Any) -> Mapping[str, str]:
    """Return the options of a Connect reader."""
    return READER_OPTIONS.of(reader)  # type: ignore[no-any-return]


def table_of_writer(writer: Any) -> str:
    """Return the table of a Connect session's `df.writeTo(name)`."""
    return WRITER_TABLE.of(writer)  # type: ignore[no-any-return]


def connect_settings(writer: Any) -> Any:
    """Return the settings of a Connect writer."""
    return CONNECT_WRITE.of(writer)


def connect_rows(writer: Any) -> DataFrame:
    """Return the rows of a Connect writer."""
    return frame_of_plan(ROWS.of(writer), session_of(writer))


def state_of_reader(reader: Any) -> tuple[Any, str | None, bool]:
    """Return the session of a reader, of batches or of streams, its format, and whether it has a schema."""
    if is_connect(reader):
        return session_of(reader), READER_FORMAT.of(reader), bool(READER_SCHEMA.of(reader))
    java = JAVA_READER.of(reader)
    if type(reader).__name__ == "DataStreamReader":
        return session_of(reader), str(STREAM_READER_FORMAT.of(java)), bool(STREAM_READER_SCHEMA.of(java).isDefined())
    return session_of(reader), str(java.source()), bool(java.userSpecifiedSchema().isDefined())


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterState:
    """The state of a writer; its mode is in lower case."""

    session: Any
    rows: DataFrame
    source: str | None
    mode: str
    options: Mapping[str, str]


def state_of_writer(writer: Any) -> WriterState:
    """Return the state of a writer."""
    if is_connect(writer):
        settings = connect_settings(writer)
        return WriterState(
            session=session_of(writer),
            rows=connect_rows(writer),
            source=settings.source,
            mode=(settings.mode or "error").lower(),
            options={key: value for key, value in settings.options.items() if value is not None},
        )
    java = JAVA_WRITER.of(writer)
    return WriterState(
        session=session_of(writer),
        rows=ROWS.of(writer),
        source=str(java.source()),
        mode=str(java.curmode().name()).lower(),
        options=options_of_java(java.extraOptions()),
    )


def options_of_java(options: JavaObject) -> dict[str, str]:
    """Convert Spark's case-insensitive map of options, without Scala's converters: Spark 3.5 has none."""
    pairs = items_of(options.originalMap().toList())
    return {str(pair.productElement(0)): str(pair.productElement(1)) for pair in pairs}


def items_of(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(place) for place in range(sequence.length())]


def state_of_stream_writer(writer: Any) -> tuple[Any, str | None, str | None]:
    """Return the session of a stream writer, its format (None with `foreach`), and its option `path`."""
    if is_connect(writer):
        given = CONNECT_STREAM.of(writer)
        is_function = given.HasField("foreach_batch") or given.HasField("foreach_writer")
        path = next((value for key, value in given.options.items() if key.lower() == PATH), None)
        return session_of(writer), None if is_function else given.format, path
    java = JAVA_WRITER.of(writer)
    found = STREAM_WRITER_OPTIONS.of(java).get(PATH)
    return session_of(writer), str(STREAM_WRITER_FORMAT.of(java)), str(found.get()) if found.isDefined() else None


def mode_of_stream_writer(writer: Any) -> str:
    """Return the output mode of a classic stream writer, such as `Append`."""
    return str(STREAM_WRITER_MODE.of(JAVA_WRITER.of(writer)).toString())


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSettings:
    """The settings of a stream's writer. Classic Spark itself rejects clustering and continuous mode."""

    rows: DataFrame
    source: str
    output_mode: str
    options: Mapping[str, str]
    partitioning: tuple[str, ...]
    clustering: tuple[str, ...] = ()
    is_continuous: bool = False


def settings_of_stream_writer(writer: Any) -> StreamSettings:
    """Return the settings of a stream's writer."""
    if is_connect(writer):
        given = CONNECT_STREAM.of(writer)
        return StreamSettings(
            rows=frame_of_plan(PLAN_CHILD.of(STREAM_PLAN.of(writer)), session_of(writer)),
            source=given.format,
            output_mode=given.output_mode,
            options=dict(given.options),
            partitioning=tuple(given.partitioning_column_names),
            clustering=tuple(getattr(given, "clustering_column_names", ())),
            is_continuous=given.WhichOneof("trigger") == "continuous_checkpoint_interval",
        )
    java = JAVA_WRITER.of(writer)
    columns = STREAM_WRITER_COLUMNS.of(java)
    return StreamSettings(
        rows=ROWS.of(writer),
        source=str(STREAM_WRITER_FORMAT.of(java)),
        output_mode=mode_of_stream_writer(writer),
        options=options_of_java(STREAM_WRITER_OPTIONS.of(java)),
        partitioning=tuple(map(str, items_of(columns.get()))) if columns.isDefined() else (),
    )


def start_with_function(writer: Any, function: Callable[[DataFrame, int], None]) -> StreamingQuery:
    """Start a stream with `foreachBatch`, without the format and partitioning, which Spark rejects there."""
    if is_connect(writer):
        given = CONNECT_STREAM.of(writer)
        given.format = ""
        del given.partitioning_column_names[:]
    else:
        JAVA_WRITER.of(writer).partitionBy(None)
    return writer.foreachBatch(function).start()  # type: ignore[no-any-return]
