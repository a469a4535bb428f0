"""Intercept PySpark's calls on RowDelta tables where Spark does not know RowDelta's catalogs. Driver, Spark Connect.

Input: `spark.table`, `spark.read`, `df.writeTo`, `df.write`, `df.writeStream`, `spark.catalog`. Output: if the name of
the table or namespace begins with a RowDelta catalog, RowDelta runs the call. All other calls go to PySpark unchanged.
A server without RowDelta does not know its catalogs, so names must be resolved in the client. The same holds for
`df.writeStream` on classic Spark before 4.0.
"""

import functools
from collections.abc import Callable, Mapping
from inspect import Signature, signature
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.streaming.query import StreamingQuery

from dml.engine.engine import Engine
from dml.engine.ownership import engine_of, find_table, qualify_namespace_name, qualify_table_name
from dml.errors import NotSupportedError
from dml.spark.bridge.writers import (
    connect_rows,
    connect_settings,
    options_of_reader,
    session_of,
    settings_of_stream_writer,
    start_with_function,
    table_of_writer,
)
from dml.spark.replaced_methods import Method
from dml.spark_connect.catalog import (
    CURRENT_METHODS,
    NAMESPACE_METHODS,
    TABLE_METHODS,
    CurrentCatalog,
    Namespaces,
    Tables,
)
from dml.spark_connect.columns import make_partition_term, partition_term
from dml.spark_connect.reads import read_table
from dml.spark_connect.writes import WriteAction, WriteCall, run_write_call, start_stream
from dml.sqlparse.names import name_parts
from dml.sqlparse.statements import TransformTerm
from dml.streaming.sink import continuous_mode_error

__all__ = [
    "WRITER_ACTIONS",
    "find_catalog_call",
    "find_current_call",
    "find_named_table",
    "find_save",
    "find_write",
    "insert_into",
    "read",
    "run_call",
    "run_current_call",
    "save_as_table",
    "to_table",
    "write",
]

FoundTable = tuple[Engine, tuple[str, ...]]
"""The engine of a session, and the name of a table, catalog first."""

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


def find_named_table(self: Any, tableName: str, *_: Any, **__: Any) -> FoundTable | None:  # noqa: N803
    """Find the table of a method that takes its name: `table`, `insertInto`, `toTable`."""
    return find_table(session_of(self), tableName)


def read(_: Method, found: FoundTable, /, self: Any, tableName: str) -> DataFrame:  # noqa: ARG001, N803
    """Run `spark.read.table(name)`, which `spark.table` uses too."""
    return read_table(*found, options_of_reader(self))


def find_write(self: Any, *_: Any, **__: Any) -> FoundTable | None:
    """Find the table of `df.writeTo(name)`."""
    return find_table(session_of(self), table_of_writer(self))


def write(
    action: WriteAction, original: Method, found: FoundTable, /, self: Any, *condition: Any, **named: Any
) -> None:
    """Run a method of `df.writeTo(name)` that writes."""
    engine, parts = found
    arguments = signature(original).bind(self, *condition, **named).arguments
    wanted, given = arguments.get("condition"), connect_settings(self)
    refuse_clustering(given.clustering_columns)
    refuse_evolution(given)
    run_write_call(
        engine,
        WriteCall(
            rows=connect_rows(self),
            table=parts,
            action=action,
            condition=col(wanted) if isinstance(wanted, str) else wanted,
            options=drop_unset(given.options),
            properties=drop_unset(given.table_properties),
            provider=given.provider,
            partitioning=tuple(map(partition_term, given.partitioning_columns)),
        ),
    )


def insert_into(
    _: Method,
    found: FoundTable,
    /,
    self: Any,
    tableName: str,  # noqa: ARG001, N803  PySpark's name
    overwrite: bool | None = None,
) -> None:
    """Run `df.write.insertInto(name)`, which assigns columns by position."""
    engine, parts = found
    if overwrite is not None:
        self.mode("overwrite" if overwrite else "append")
    given = connect_settings(self)
    if given.partitioning_cols:
        raise NotSupportedError(
            "insertInto cannot be combined with partitionBy: the table defines its partitioning",
            hint="Leave partitionBy out",
        )
    refuse_evolution(given)
    run_write_call(
        engine,
        WriteCall(
            rows=connect_rows(self),
            table=parts,
            action=WriteAction.OVERWRITE if mode_of(given) == "overwrite" else WriteAction.APPEND,
            by_name=False,
            options=drop_unset(given.options),
        ),
    )


def find_save(
    self: Any,
    name: str,
    format: str | None = None,  # noqa: A002, ARG001  PySpark's name
    mode: str | None = None,
    *_: Any,
    **__: Any,
) -> tuple[FoundTable, WriteAction] | None:
    """Find the table of `df.write.saveAsTable(name)`, and the action; PySpark itself refuses unknown modes."""
    found = find_table(session_of(self), name)
    action = None if found is None else SAVE_ACTIONS.get((mode or mode_of(connect_settings(self))).lower())
    return None if found is None or action is None else (found, action)


def save_as_table(
    _: Method,
    answer: tuple[FoundTable, WriteAction],
    /,
    self: Any,
    name: str,  # noqa: ARG001
    format: str | None = None,  # noqa: A002  PySpark's name
    mode: str | None = None,  # noqa: ARG001
    partitionBy: Any = None,  # noqa: N803  PySpark's name
    **options: Any,
) -> None:
    """Run `df.write.saveAsTable(name)`, which assigns columns by name, or creates the table."""
    (engine, parts), action = answer
    self.options(**options)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    if format is not None:
        self.format(format)
    given = connect_settings(self)
    refuse_evolution(given)
    run_write_call(
        engine,
        WriteCall(
            rows=connect_rows(self),
            table=parts,
            action=action,
            options=drop_unset(given.options),
            provider=given.source,
            partitioning=partitioning_of(given),
        ),
    )


def to_table(
    _: Method,
    found: FoundTable,
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
    engine, parts = found
    self.options(**options)
    if outputMode is not None:
        self.outputMode(outputMode)
    if partitionBy is not None:
        self.partitionBy(partitionBy)
    if queryName is not None:
        self.queryName(queryName)
    given = settings_of_stream_writer(self)
    refuse_clustering(given.clustering)
    if given.is_continuous:
        raise continuous_mode_error()
    call = WriteCall(
        rows=given.rows,
        table=parts,
        action=WriteAction.APPEND_OR_CREATE,
        options=given.options,
        provider=format or given.source,
        partitioning=tuple(make_partition_term("identity", name_parts(name)) for name in given.partitioning),
    )
    return start_stream(engine, call, given.output_mode, functools.partial(start_with_function, self))


def mode_of(given: Any) -> str:
    """Return the mode of `df.write`, by default `error`: an existing table is an error."""
    return (given.mode or "error").lower()


def partitioning_of(given: Any) -> tuple[TransformTerm, ...]:
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
    columns = (make_partition_term("identity", name_parts(name)) for name in given.partitioning_cols)
    buckets = (make_partition_term("bucket", name_parts(name), given.num_buckets) for name in given.bucket_cols)
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


def find_catalog_call(method: str, self: Any, /, *given: Any, **named: Any) -> Answer | None:
    """Return the call that runs a method of `spark.catalog` with the name of a table or namespace."""
    engine = engine_of(session_of(self))
    if engine is None:
        return None
    arguments = dict(signature_of(type(self), method).bind(self, *given, **named).arguments)
    table, namespace = parts_of(arguments.pop("tableName", None)), parts_of(arguments.pop("dbName", None))
    if method in TABLE_METHODS:  # before Spark 3.4 a table was named by two arguments
        parts = qualify_table_name(engine, (*namespace, *table))
        run = functools.partial(TABLE_METHODS[method], Tables(engine))
    else:
        parts = qualify_namespace_name(engine, namespace)
        run = functools.partial(NAMESPACE_METHODS[method], Namespaces(engine))
    rest = {key: value for key, value in arguments.items() if key != "self"}
    rest |= rest.pop("options", {})
    return functools.partial(run, parts, **rest) if parts else None


def parts_of(name: object) -> tuple[str, ...]:
    """Split a name into its parts; return none for other objects, which PySpark itself refuses."""
    return name_parts(name) if isinstance(name, str) else ()


def signature_of(owner: Any, method: str) -> Signature:
    """Return the signature of a method of PySpark, including `self`; its replacement has the same one."""
    return signature(getattr(owner, method))


def run_call(_: Method, answer: Answer, /, *__: Any, **___: Any) -> Any:
    """Run a method of `spark.catalog` with the name of a table or namespace."""
    return answer()


def find_current_call(method: str, self: Any, /, *given: Any, **named: Any) -> Callable[[Answer], Any] | None:
    """Return the call that runs a method of `spark.catalog` about current, or about all, catalogs and namespaces."""
    engine = engine_of(session_of(self))
    return None if engine is None else CURRENT_METHODS[method](CurrentCatalog(engine), *given, **named)


def run_current_call(original: Method, answer: Callable[[Answer], Any], /, *given: Any, **named: Any) -> Any:
    """Run a method of `spark.catalog` about current catalogs, which may call PySpark's own."""
    return answer(functools.partial(original, *given, **named))
