"""PySpark's calls on tables of ours, taken where they are made. Driver, Spark Connect.

Input: `spark.table`, `spark.read`, `df.writeTo`, `df.write`, `spark.catalog`. Output: where the name of the table or
namespace begins with a catalog of ours, a value for what takes the session's calls (`dml.spark.table_calls`); all other
calls are PySpark's, untouched. A server that is not ours does not know our catalogs, so the client's methods are the
place where their names can be seen.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.functions import col

from dml.errors import NotSupportedError
from dml.spark.connect_columns import partition_term
from dml.spark.connect_plans import CONNECT, frame_of_plan
from dml.spark.handlers import calls_of, find_calls, is_classic
from dml.spark.replaced_methods import Method, replace_method
from dml.spark.table_calls import PartitionTerm, StreamCall, WriteAction, WriteCall
from dml.sqlparse.names import name_parts

__all__ = ["take_connect_calls"]

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
"""Methods of `spark.catalog` that are taken, and the parameter that names the table or namespace."""

CURRENT_METHODS: Final = (
    "currentCatalog",
    "currentDatabase",
    "listCatalogs",
    "listDatabases",
    "setCurrentCatalog",
    "setCurrentDatabase",
)
"""Those that are about the current catalog and namespace, or about all of them."""


def take_connect_calls(spark: SparkSession) -> None:
    """Let PySpark's readers, writers and catalog of Spark Connect ask first whether a table is ours.

    Args:
        spark: The session; on classic Spark nothing happens.
    """
    if is_classic(spark):
        return
    readwriter = importlib.import_module(f"{CONNECT}.readwriter")
    replace_method(readwriter.DataFrameReader, "table", reading)
    for name in WRITER_ACTIONS:
        replace_method(readwriter.DataFrameWriterV2, name, writing)
    replace_method(readwriter.DataFrameWriter, "insertInto", inserting)
    replace_method(readwriter.DataFrameWriter, "saveAsTable", saving)
    replace_method(importlib.import_module(f"{CONNECT}.streaming.readwriter").DataStreamWriter, "toTable", streaming)
    catalog = importlib.import_module(f"{CONNECT}.catalog").Catalog
    for name in CATALOG_METHODS:
        replace_method(catalog, name, answering)
    for name in CURRENT_METHODS:
        replace_method(catalog, name, answering_current)


def parts_of(name: object) -> tuple[str, ...]:
    """The parts of a name; none of what is no name, which PySpark refuses itself."""
    return name_parts(name) if isinstance(name, str) else ()


def reading(original: Method) -> Method:
    """`spark.read.table(name)`, which `spark.table` calls too."""

    @functools.wraps(original)
    def table(self: Any, tableName: str) -> Any:  # noqa: N803  PySpark's name
        found = find_calls(self._client, parts_of(tableName))
        if found is None:
            return original(self, tableName)
        calls, parts = found
        return calls.read(parts, self._options)

    return table


def writing(original: Method) -> Method:
    """A method of `df.writeTo(name)` that writes."""
    action = WRITER_ACTIONS[original.__name__]

    @functools.wraps(original)
    def write(self: Any, *condition: Any, **named: Any) -> None:
        found = find_calls(self._spark, parts_of(self._table_name))
        if found is None:
            original(self, *condition, **named)
            return
        calls, parts = found
        arguments = signature(original).bind(self, *condition, **named).arguments
        wanted, given = arguments.get("condition"), self._write
        refuse_clustering(given.clustering_columns)
        refuse_evolution(given)
        calls.write(
            WriteCall(
                rows=frame_of_plan(self._df, self._spark),
                table=parts,
                action=action,
                condition=col(wanted) if isinstance(wanted, str) else wanted,
                options=said(given.options),
                properties=said(given.table_properties),
                provider=given.provider,
                partitioning=tuple(map(partition_term, given.partitioning_columns)),
            )
        )

    return write


def inserting(original: Method) -> Method:
    """`df.write.insertInto(name)`: rows go to columns by their places."""

    @functools.wraps(original)
    def insert_into(self: Any, tableName: str, overwrite: bool | None = None) -> None:  # noqa: N803  PySpark's name
        found = find_calls(self._spark, parts_of(tableName))
        if found is None:
            original(self, tableName, overwrite)
            return
        calls, parts = found
        if overwrite is not None:
            self.mode("overwrite" if overwrite else "append")
        if self._write.partitioning_cols:
            raise NotSupportedError(
                "insertInto and partitionBy contradict each other: the table has its partitioning",
                hint="Leave partitionBy out",
            )
        refuse_evolution(self._write)
        calls.write(
            WriteCall(
                rows=frame_of_plan(self._df, self._spark),
                table=parts,
                action=WriteAction.OVERWRITE if mode_of(self._write) == "overwrite" else WriteAction.APPEND,
                by_name=False,
                options=said(self._write.options),
            )
        )

    return insert_into


def saving(original: Method) -> Method:
    """`df.write.saveAsTable(name)`: rows go to columns by their names, or make the table."""

    @functools.wraps(original)
    def save_as_table(
        self: Any,
        name: str,
        format: str | None = None,  # noqa: A002  PySpark's name
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: N803  PySpark's name
        **options: Any,
    ) -> None:
        found = find_calls(self._spark, parts_of(name))
        action = SAVE_ACTIONS.get((mode or mode_of(self._write)).lower())
        if found is None or action is None:  # PySpark has words for a mode that there is not
            original(self, name, format, mode, partitionBy, **options)
            return
        calls, parts = found
        self.options(**options)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if format is not None:
            self.format(format)
        given = self._write
        refuse_evolution(given)
        calls.write(
            WriteCall(
                rows=frame_of_plan(self._df, self._spark),
                table=parts,
                action=action,
                options=said(given.options),
                provider=given.source,
                partitioning=partitioning_of(given),
            )
        )

    return save_as_table


def streaming(original: Method) -> Method:
    """`df.writeStream.toTable(name)`."""

    @functools.wraps(original)
    def to_table(
        self: Any,
        tableName: str,  # noqa: N803  PySpark's name
        format: str | None = None,  # noqa: A002  PySpark's name
        outputMode: str | None = None,  # noqa: N803
        partitionBy: Any = None,  # noqa: N803
        queryName: str | None = None,  # noqa: N803
        **options: Any,
    ) -> Any:
        found = find_calls(self._session, parts_of(tableName))
        if found is None:
            return original(self, tableName, format, outputMode, partitionBy, queryName, **options)
        calls, parts = found
        self.options(**options)
        given = self._write_proto
        if outputMode is not None:
            self.outputMode(outputMode)
        if partitionBy is not None:
            self.partitionBy(partitionBy)
        if queryName is not None:
            self.queryName(queryName)
        refuse_clustering(list(getattr(given, "clustering_column_names", ())))
        if given.WhichOneof("trigger") == "continuous_checkpoint_interval":
            raise NotSupportedError(
                "Tables take the rows of a stream in micro-batches, not in continuous mode",
                hint="Use trigger(processingTime=...) or trigger(availableNow=True)",
            )
        partitioning = tuple(parts_of(name) for name in given.partitioning_column_names)
        provider, given.format = format or given.format, ""
        del given.partitioning_column_names[:]  # Spark refuses both beside a function
        return calls.stream(
            StreamCall(
                rows=frame_of_plan(self._write_stream._child, self._session),  # noqa: SLF001  no public name
                table=parts,
                start=lambda function: self.foreachBatch(function).start(),
                output_mode=given.output_mode,
                options=dict(given.options),
                provider=provider or None,
                partitioning=partitioning,
            )
        )

    return to_table


def mode_of(given: Any) -> str:
    """The mode of `df.write`; without one a table that is there is an error."""
    return (given.mode or "error").lower()


def partitioning_of(given: Any) -> tuple[PartitionTerm, ...]:
    """What `partitionBy` and `bucketBy` say.

    Raises:
        NotSupportedError: Iceberg has no such partitioning.
    """
    refuse_clustering(given.clustering_cols)
    if given.sort_cols or len(given.bucket_cols) > 1:
        raise NotSupportedError(
            "A table has no buckets of several columns, or sorted ones",
            hint="Bucket by one column, and give the table an order with ALTER TABLE ... WRITE ORDERED BY",
        )
    columns = (PartitionTerm(transform="identity", column=parts_of(name)) for name in given.partitioning_cols)
    buckets = (
        PartitionTerm(transform="bucket", column=parts_of(name), argument=given.num_buckets)
        for name in given.bucket_cols
    )
    return (*columns, *buckets)


def refuse_clustering(columns: Any) -> None:
    """Refuse `clusterBy`, which Iceberg does not have.

    Raises:
        NotSupportedError: it was called.
    """
    if columns:
        raise NotSupportedError(
            "Tables of this catalog cannot be clustered",
            hint="Use partitionedBy, or ALTER TABLE ... WRITE ORDERED BY",
        )


def refuse_evolution(given: Any) -> None:
    """Refuse a writer's schema evolution.

    Raises:
        NotSupportedError: it was asked for.
    """
    if getattr(given, "with_schema_evolution", False):
        raise NotSupportedError(
            "withSchemaEvolution is there for mergeInto alone",
            hint="Use the option 'merge-schema' and the table's property 'write.spark.accept-any-schema'",
        )


def said(options: Mapping[str, str | None]) -> dict[str, str]:
    """Options, without those that were taken back."""
    return {key: value for key, value in options.items() if value is not None}


def answering(original: Method) -> Method:
    """A method of `spark.catalog`."""
    method, parameters = original.__name__, signature(original)
    named = CATALOG_METHODS[method]

    @functools.wraps(original)
    def answer(self: Any, *given: Any, **by_name: Any) -> Any:
        arguments = dict(parameters.bind(self, *given, **by_name).arguments)
        parts = parts_of(arguments.get(named))
        calls = calls_of(self._sparkSession)
        if named == OF_TABLES:  # before Spark 3.4 a table was named by two arguments
            parts = (*parts_of(arguments.get(OF_NAMESPACES)), *parts)
            parts = calls.table_name(parts) if calls is not None and parts else ()
        else:
            parts = () if calls is None else calls.namespace_name(parts)
        if calls is None or not parts:
            return original(self, *given, **by_name)
        rest = {key: value for key, value in arguments.items() if key not in {"self", OF_TABLES, OF_NAMESPACES}}
        rest |= rest.pop("options", {})
        answers: Callable[..., Any] = calls.catalog[method]
        return answers(parts, **rest)

    return answer


def answering_current(original: Method) -> Method:
    """A method of `spark.catalog` about current catalogs and namespaces, or about all."""

    @functools.wraps(original)
    def answer(self: Any, *given: Any, **by_name: Any) -> Any:
        calls = calls_of(self._sparkSession)
        if calls is None:
            return original(self, *given, **by_name)
        return calls.current[original.__name__](functools.partial(original, self), *given, **by_name)

    return answer
