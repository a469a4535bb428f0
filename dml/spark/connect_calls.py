"""Intercept PySpark's calls on RowDelta tables in the client. Driver, Spark Connect.

Input: `spark.table`, `spark.read`, `df.writeTo`, `df.write`, `spark.catalog`. Output: if the name of the table or
namespace begins with a RowDelta catalog, a value for the session's call handlers (`dml.spark.table_calls`). All other
calls go to PySpark unchanged. A server without RowDelta does not know its catalogs, so names must be resolved in the
client.
"""

import functools
from collections.abc import Callable, Mapping
from inspect import Signature, signature
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from dml.errors import NotSupportedError
from dml.spark.bridge.writers import (
    connect_rows,
    connect_settings,
    connect_stream,
    connect_stream_rows,
    options_of_reader,
    session_of,
    table_of_writer,
)
from dml.spark.connect_columns import partition_term
from dml.spark.handlers import FoundCalls, calls_of, find_calls
from dml.spark.replaced_methods import Method
from dml.spark.table_calls import PartitionTerm, StreamCall, WriteAction, WriteCall
from dml.sqlparse.names import name_parts

__all__ = [
    "CATALOG_METHODS",
    "CURRENT_METHODS",
    "WRITER_ACTIONS",
    "find_current_call",
    "find_insert",
    "find_read",
    "find_save",
    "find_stream",
    "find_table_call",
    "find_write",
    "insert_into",
    "read",
    "run_call",
    "run_current_call",
    "save_as_table",
    "to_table",
    "write",
]

WRITER_ACTIONS: Final[Mapping[str, WriteAction]] = {
    "append": WriteAction.APPEND,
    "overwrite": WriteAction.OVERWRITE_WHERE,
    "overwritePartitions": WriteAction.OVERWRITE_PARTITIONS,
    "create": WriteAction.CREATE,
    "replace": WriteAction.REPLACE,
    "createOrReplace": WriteAction.CREATE_OR_REPLACE,
}
"""Methods of `df.writeTo(...)` that write."""

SAVE_ACTIONS: Final[Mapping[str, WriteAction]] = {
    "append": WriteAction.APPEND_OR_CREATE,
    "overwrite": WriteAction.CREATE_OR_REPLACE,
    "error": WriteAction.CREATE,
    "ignore": WriteAction.CREATE_IF_NOT_EXISTS,
}
"""Modes of `df.write` in `saveAsTable`."""

OF_TABLES: Final = "tableName"
OF_NAMESPACES: Final = "dbName"
CATALOG_METHODS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        (
            "cacheTable",
            "createTable",
            "dropTable",
            "getCreateTableString",
            "getTable",
            "getTableProperties",
            "isCached",
            "listColumns",
            "refreshTable",
            "tableExists",
            "truncateTable",
            "uncacheTable",
        ),
        OF_TABLES,
    ),
    **dict.fromkeys(("createDatabase", "databaseExists", "dropDatabase", "getDatabase", "listTables"), OF_NAMESPACES),
}
"""Replaced methods of `spark.catalog`, and the parameter that names the table or namespace."""

CURRENT_METHODS: Final = (
    "currentCatalog",
    "currentDatabase",
    "listCatalogs",
    "listDatabases",
    "setCurrentCatalog",
    "setCurrentDatabase",
)
"""Replaced methods of `spark.catalog` about current, or all, catalogs and namespaces."""


def parts_of(name: object) -> tuple[str, ...]:
    """Split a name into its parts; return none for other objects, which PySpark itself refuses."""
    return name_parts(name) if isinstance(name, str) else ()


def find_read(self: Any, tableName: str) -> FoundCalls | None:  # noqa: N803  PySpark's name
    """Find the handlers of `spark.read.table(name)`, which `spark.table` uses too."""
    return find_calls(session_of(self), parts_of(tableName))


def read(_: Method, found: FoundCalls, /, self: Any, tableName: str) -> DataFrame:  # noqa: ARG001, N803
    """Run `spark.read.table(name)`."""
    calls, parts = found
    return calls.read(parts, options_of_reader(self))


def find_write(self: Any, *_: Any, **__: Any) -> FoundCalls | None:
    """Find the handlers of the methods of `df.writeTo(name)`."""
    return find_calls(session_of(self), parts_of(table_of_writer(self)))


def write(
    action: WriteAction, original: Method, found: FoundCalls, /, self: Any, *condition: Any, **named: Any
) -> None:
    """Run a method of `df.writeTo(name)` that writes."""
    calls, parts = found
    arguments = signature(original).bind(self, *condition, **named).arguments
    wanted, given = arguments.get("condition"), connect_settings(self)
    refuse_clustering(given.clustering_columns)
    refuse_evolution(given)
    calls.write(
        WriteCall(
            rows=connect_rows(self),
            table=parts,
            action=action,
            condition=col(wanted) if isinstance(wanted, str) else wanted,
            options=drop_unset(given.options),
            properties=drop_unset(given.table_properties),
            provider=given.provider,
            partitioning=tuple(map(partition_term, given.partitioning_columns)),
        )
    )


def find_insert(self: Any, tableName: str, *_: Any, **__: Any) -> FoundCalls | None:  # noqa: N803
    """Find the handlers of `df.write.insertInto(name)`."""
    return find_calls(session_of(self), parts_of(tableName))


def insert_into(
    _: Method,
    found: FoundCalls,
    /,
    self: Any,
    tableName: str,  # noqa: ARG001, N803  PySpark's name
    overwrite: bool | None = None,
) -> None:
    """Run `df.write.insertInto(name)`, which assigns columns by position."""
    calls, parts = found
    if overwrite is not None:
        self.mode("overwrite" if overwrite else "append")
    if connect_settings(self).partitioning_cols:
        raise NotSupportedError(
            "insertInto cannot be combined with partitionBy: the table defines its partitioning",
            hint="Leave partitionBy out",
        )
    refuse_evolution(connect_settings(self))
    calls.write(
        WriteCall(
            rows=connect_rows(self),
            table=parts,
            action=WriteAction.OVERWRITE if mode_of(connect_settings(self)) == "overwrite" else WriteAction.APPEND,
            by_name=False,
            options=drop_unset(connect_settings(self).options),
        )
    )


def find_save(
    self: Any,
    name: str,
    format: str | None = None,  # noqa: A002, ARG001  PySpark's name
    mode: str | None = None,
    *_: Any,
    **__: Any,
) -> tuple[FoundCalls, WriteAction] | None:
    """Find the handlers of `df.write.saveAsTable(name)`, and its action; PySpark itself refuses unknown modes."""
    found = find_calls(session_of(self), parts_of(name))
    action = None if found is None else SAVE_ACTIONS.get((mode or mode_of(connect_settings(self))).lower())
    return None if found is None or action is None else (found, action)


def save_as_table(
    _: Method,
    answer: tuple[FoundCalls, WriteAction],
    /,
    self: Any,
    name: str,  # noqa: ARG001
    format: str | None = None,  # noqa: A002  PySpark's name
    mode: str | None = None,  # noqa: ARG001
    partitionBy: Any = None,  # noqa: N803  PySpark's name
    **options: Any,
) -> None:
    """Run `df.write.saveAsTable(name)`, which assigns columns by name, or creates the table."""
    (calls, parts), action = answer
    self.options(**options)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    if format is not None:
        self.format(format)
    given = connect_settings(self)
    refuse_evolution(given)
    calls.write(
        WriteCall(
            rows=connect_rows(self),
            table=parts,
            action=action,
            options=drop_unset(given.options),
            provider=given.source,
            partitioning=partitioning_of(given),
        )
    )


def find_stream(self: Any, tableName: str, *_: Any, **__: Any) -> FoundCalls | None:  # noqa: N803
    """Find the handlers of `df.writeStream.toTable(name)`."""
    return find_calls(session_of(self), parts_of(tableName))


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
    given = connect_stream(self)
    if outputMode is not None:
        self.outputMode(outputMode)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    if queryName is not None:
        self.queryName(queryName)
    refuse_clustering(list(getattr(given, "clustering_column_names", ())))
    if given.WhichOneof("trigger") == "continuous_checkpoint_interval":
        raise NotSupportedError(
            "Streams write to tables in micro-batches, not in continuous mode",
            hint="Use trigger(processingTime=...) or trigger(availableNow=True)",
        )
    partitioning = tuple(parts_of(name) for name in given.partitioning_column_names)
    provider, given.format = format or given.format, ""
    del given.partitioning_column_names[:]  # Spark allows neither with foreachBatch
    return calls.stream(
        StreamCall(
            rows=connect_stream_rows(self),
            table=parts,
            start=lambda function: self.foreachBatch(function).start(),
            output_mode=given.output_mode,
            options=dict(given.options),
            provider=provider or None,
            partitioning=partitioning,
        )
    )


def mode_of(given: Any) -> str:
    """Return the mode of `df.write`, by default `error`: an existing table is an error."""
    return (given.mode or "error").lower()


def partitioning_of(given: Any) -> tuple[PartitionTerm, ...]:
    """Return the partition fields of `partitionBy` and `bucketBy`.

    Raises:
        NotSupportedError: Iceberg has no such partitioning.
    """
    refuse_clustering(given.clustering_cols)
    if given.sort_cols or len(given.bucket_cols) > 1:
        raise NotSupportedError(
            "Buckets of several columns, and sorted buckets, are not supported",
            hint="Bucket by one column, and give the table an order with ALTER TABLE ... WRITE ORDERED BY",
        )
    columns = (PartitionTerm(transform="identity", column=parts_of(name)) for name in given.partitioning_cols)
    buckets = (
        PartitionTerm(transform="bucket", column=parts_of(name), argument=given.num_buckets)
        for name in given.bucket_cols
    )
    return (*columns, *buckets)


def refuse_clustering(columns: Any) -> None:
    """Refuse `clusterBy`, which Iceberg lacks.

    Raises:
        NotSupportedError: there are clustering columns.
    """
    if columns:
        raise NotSupportedError(
            "Tables of this catalog cannot be clustered",
            hint="Use partitionedBy, or ALTER TABLE ... WRITE ORDERED BY",
        )


def refuse_evolution(given: Any) -> None:
    """Refuse a writer's schema evolution.

    Raises:
        NotSupportedError: it is enabled.
    """
    if getattr(given, "with_schema_evolution", False):
        raise NotSupportedError(
            "withSchemaEvolution is supported for mergeInto only",
            hint="Use the option 'merge-schema' and the table's property 'write.spark.accept-any-schema'",
        )


def drop_unset(options: Mapping[str, str | None]) -> dict[str, str]:
    """Drop options that were unset."""
    return {key: value for key, value in options.items() if value is not None}


Answer = Callable[[], Any]


def find_table_call(method: str, self: Any, /, *given: Any, **named: Any) -> Answer | None:
    """Return the call that runs a method of `spark.catalog` with the name of a table or namespace."""
    calls = calls_of(session_of(self))
    if calls is None:
        return None
    named_by = CATALOG_METHODS[method]
    arguments = dict(parameters_of(type(self), method).bind(self, *given, **named).arguments)
    parts = parts_of(arguments.get(named_by))
    if named_by == OF_TABLES:  # before Spark 3.4 a table was named by two arguments
        parts = (*parts_of(arguments.get(OF_NAMESPACES)), *parts)
        parts = calls.table_name(parts) if parts else ()
    else:
        parts = calls.namespace_name(parts)
    if not parts:
        return None
    rest = {key: value for key, value in arguments.items() if key not in {"self", OF_TABLES, OF_NAMESPACES}}
    rest |= rest.pop("options", {})
    return functools.partial(calls.catalog[method], parts, **rest)


def parameters_of(owner: Any, method: str) -> Signature:
    """Return the signature of a method of PySpark, including `self`; its replacement has the same one."""
    return signature(getattr(owner, method))


def run_call(_: Method, answer: Answer, /, *__: Any, **___: Any) -> Any:
    """Run a method of `spark.catalog` with the name of a table or namespace."""
    return answer()


def find_current_call(method: str, self: Any, /, *given: Any, **named: Any) -> Callable[[Answer], Any] | None:
    """Return the call that runs a method of `spark.catalog` about current, or about all, catalogs and namespaces."""
    calls = calls_of(session_of(self))
    return None if calls is None else calls.current[method](*given, **named)


def run_current_call(original: Method, answer: Callable[[Answer], Any], /, *given: Any, **named: Any) -> Any:
    """Run a method of `spark.catalog` about current catalogs, which may call PySpark's own."""
    return answer(functools.partial(original, *given, **named))
