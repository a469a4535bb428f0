"""A table of ours, in one state, as Spark's. Driver, classic Spark only.

Input: a table and the snapshot that is read of it. Output: its columns, partitioning and properties, and builders of
scans (`dml.spark_scan.scan`).

Two are equal that stand for the same table in the same state.
"""

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import ClassVar

from py4j.java_gateway import JavaObject
from pyiceberg.transforms import BucketTransform, TruncateTransform, VoidTransform
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from dml.catalog.registry import ResolvedTable
from dml.connector.state import TableState, column_path, loaded_once
from dml.connector.stream import StreamableScan
from dml.connector.table_changes import reference_of
from dml.connector.write import SparkWriteBuilder, WrittenTable
from dml.engine.engine import Engine, StatementSettings
from dml.engine.schema_evolution import accepts_any_schema
from dml.errors import AnalysisError, NotFoundError
from dml.model.columns import METADATA_COLUMNS
from dml.options import DEFAULT_FILE_FORMAT, FORMAT_VERSION
from dml.scan.table_scan import TableScan, spark_schema
from dml.spark.java import (
    CATALOG,
    CONNECTOR,
    array,
    capabilities,
    data_type,
    java_class,
    java_map,
    options_of,
    struct_type,
)
from dml.spark.jvm import take_callbacks
from dml.spark.proxies import Proxy, default_method
from dml.spark.store_assignment import default_sql
from dml.spark.types import spark_field
from dml.spark.versions import Feature, has
from dml.spark_scan.frames import ALIAS, SUBQUERY_ALIAS, frame_of, plans_our_scans, relation_of, scala_sequence
from dml.spark_scan.scan_builder import SparkScanBuilder, scan_builder
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name
from dml.views import StatementTables

__all__ = ["SparkTable"]

CAPABILITIES = (
    "BATCH_READ",
    "MICRO_BATCH_READ",
    "BATCH_WRITE",
    "V1_BATCH_WRITE",
    "TRUNCATE",
    "OVERWRITE_BY_FILTER",
    "OVERWRITE_DYNAMIC",
    "STREAMING_WRITE",
)

ACCEPT_ANY_SCHEMA = "ACCEPT_ANY_SCHEMA"


class SparkTable(Proxy):
    """A table in one state.

    Args:
        engine: Gives the session and its catalogs: a temporary view keeps its tables, and is kept by its session, which
            nobody could let go if they held it.
        state: The table.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "catalog.SupportsRead",
        "catalog.SupportsWrite",
        "catalog.SupportsMetadataColumns",
    )

    def __init__(self, engine: Callable[[], Engine], state: TableState) -> None:
        self._provide = engine
        self.state = state

    @property
    def engine(self) -> Engine:
        """The session and its catalogs."""
        return self._provide()

    def name(self) -> str:
        """Its full name."""
        return self.state.resolved.name

    @property
    def identity(self) -> tuple[object, ...]:
        """The table in its state: Spark would keep an older state that is equal to the one that it loads anew.

        Where Spark keeps a table and we load it anew, all states are one: else no cache of rows would be found again.
        """
        return (*self.state.identity, self.id()) if self._follows else self.state.version

    def id(self) -> str:
        """What stays when it is renamed, and goes when it is dropped."""
        return str(self.state.table.metadata.table_uuid)

    def version(self) -> str | None:
        """The state it is in."""
        return None if self.state.snapshot_id is None else str(self.state.snapshot_id)

    def schema(self) -> JavaObject:
        """Its columns."""
        return self._java_schema

    def columns(self) -> JavaObject:
        """Its columns, as Spark makes them of the schema."""
        return self._java_columns

    def partitioning(self) -> JavaObject:
        """The partition fields that new files have."""
        return array(CONNECTOR + "expressions.Transform", self._transforms())

    def properties(self) -> JavaObject:
        """What Iceberg shows of a table: its own properties, and where and in what state it is."""
        table = self.state.table
        snapshot = self.state.snapshot_id
        return java_map(
            {
                "provider": "iceberg",
                "format": f"iceberg/{table.properties.get(DEFAULT_FILE_FORMAT, 'parquet')}",
                FORMAT_VERSION: str(table.format_version),
                "location": table.location(),
                "current-snapshot-id": "none" if snapshot is None else str(snapshot),
                **{str(key): str(value) for key, value in table.properties.items()},
            }
        )

    def capabilities(self) -> JavaObject:
        """What can be done with it."""
        accepts = (ACCEPT_ANY_SCHEMA,) if self._accepts_any_schema else ()
        return capabilities(*CAPABILITIES, *accepts)

    @property
    def _accepts_any_schema(self) -> bool:
        """Whether Spark leaves the columns of a write as they are."""
        return accepts_any_schema(self.state.table)

    def metadataColumns(self) -> JavaObject:
        """What may be named beside its own columns."""
        return self._metadata_columns

    def newScanBuilder(self, options: JavaObject) -> SparkScanBuilder:
        """A builder of scans, of another snapshot where options say so."""
        engine, asked = self.engine, options_of(options)
        state = (self._state_now() if self._follows else self.state).with_options(asked)
        make_scan = partial(StreamableScan, engine, state, asked)
        return scan_builder(engine.spark, state.read(StatementSettings.of(engine)), make_scan)

    @property
    def _follows(self) -> bool:
        """Whether scans have to look for a newer state: before Spark 4.1 a DataFrame keeps the table that it found."""
        return not has(Feature.TABLES_ANEW) and not self.state.is_pinned

    def _state_now(self) -> TableState:
        """The table as it is now, which a statement that runs loads once."""
        engine, resolved = self.engine, self.state.resolved
        parts = (resolved.catalog_name, *resolved.identifier)

        def load() -> SparkTable:
            found = engine.registry.resolve(parts)
            if found is None:
                raise NotFoundError(f"There is no table {quote_name(parts)} any more", table=resolved.name)
            return SparkTable(self._provide, TableState.of(engine, found, None, None))

        now = loaded_once(engine.spark, (*parts, None, None), load).state
        found = {field.name: field.field_type for field in now.schema.fields}
        kept = all(found.get(field.name) == field.field_type for field in self.state.schema.fields)
        if now.table.metadata.table_uuid != self.state.table.metadata.table_uuid or not kept:
            raise AnalysisError(
                f"The table {quote_name(parts)} was made anew, or has other columns, since this DataFrame was made",
                hint="Make the DataFrame again",
                table=resolved.name,
            )
        return now

    @cached_property
    def _metadata_columns(self) -> JavaObject:
        state = self.state
        own = {field.name.lower() for field in state.schema.fields}
        names = METADATA_COLUMNS if state.table.format_version >= 3 else METADATA_COLUMNS[:4]
        scan = TableScan(
            table=state.table,
            snapshot_id=state.snapshot_id,
            schema=state.schema,
            columns=(),
            metadata_columns=names,
        )
        fields = [field for field in spark_schema(scan.context(())).fields if field.name not in own]
        return array(CATALOG + "MetadataColumn", map(SparkMetadataColumn, fields))

    def newWriteBuilder(self, info: JavaObject) -> SparkWriteBuilder:
        """A builder of one write."""
        return SparkWriteBuilder(WrittenTable(engine=self.engine, resolved=self.state.resolved), info)

    @property
    def _spark_schema(self) -> StructType:
        return StructType([column_field(field) for field in self.state.schema.fields])

    @cached_property
    def _java_schema(self) -> JavaObject:
        return struct_type(self._spark_schema)

    @cached_property
    def _java_columns(self) -> JavaObject:
        return default_method(self, "columns")

    def _transforms(self) -> Iterator[JavaObject]:
        schema, expressions = self.state.schema, java_class(CONNECTOR + "expressions.Expressions")
        for field in self.state.table.spec().fields:
            path = column_path(schema, field.source_id)
            if path is None or isinstance(field.transform, VoidTransform):
                continue
            column = expressions.column(quote_name(path))
            match field.transform:
                case BucketTransform(num_buckets=count):
                    arguments, kind = [expressions.literal(count), column], "bucket"
                case TruncateTransform(width=width):
                    arguments, kind = [expressions.literal(width), column], "truncate"
                case transform:
                    kind = PLURAL.get(str(transform), str(transform))
                    arguments = [column]
            yield expressions.apply(kind, array(CONNECTOR + "expressions.Expression", arguments))


class SparkMetadataColumn(Proxy):
    """A metadata column.

    Args:
        field: Its name and type.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.MetadataColumn",)

    def __init__(self, field: StructField) -> None:
        self.field = field

    @property
    def identity(self) -> tuple[object, ...]:
        """Its name and type."""
        return self.field.name, self.field.dataType.simpleString()

    def name(self) -> str:
        """Its name."""
        return str(self.field.name)

    def dataType(self) -> JavaObject:
        """Its type."""
        return data_type(self.field.dataType)

    def isNullable(self) -> bool:
        """It may be NULL."""
        return True

    def comment(self) -> None:
        """None."""

    def metadataInJSON(self) -> None:
        """Nothing: no write keeps it."""


PLURAL = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def column_field(field: NestedField) -> StructField:
    """A column, with the default that Spark gives it where a writer leaves it out."""
    shown = spark_field(field)
    if field.write_default is not None:
        before = field.model_copy(update={"write_default": field.initial_default})
        shown.metadata = {"CURRENT_DEFAULT": default_sql(field), "EXISTS_DEFAULT": default_sql(before)}
    return shown


def table_frame(engine: Engine, name: str) -> DataFrame | None:
    """Return a table pinned to its current state, or to the branch, tag or snapshot in its name.

    Args:
        engine: The session and its catalogs.
        name: The table's name, as in a statement.

    Returns:
        Its rows; None if a statement must resolve the name: on Spark Connect, or if it is not a data table.

    Raises:
        NotFoundError: The table has no such branch, tag or snapshot.
    """
    parts = name_parts(name)
    if not parts or not plans_our_scans(engine.spark):
        return None
    tables = StatementTables(statement=name, spark=engine.spark, registry=engine.registry)
    resolved = tables.resolve(reference_of(parts))
    if resolved is None or resolved.metadata_table is not None:
        return None
    take_callbacks()
    state = TableState.of(engine, resolved, None, None).fixed()
    relation = relation_of(SparkTable(lambda: engine, state))
    plan = java_class(SUBQUERY_ALIAS)(name_of(resolved), relation)
    return frame_of(engine.spark, plan)


def name_of(resolved: ResolvedTable) -> JavaObject:
    """The name that columns may be qualified with, or its end."""
    qualifier = scala_sequence((resolved.catalog_name, *resolved.identifier[:-1]))
    return java_class(ALIAS)(resolved.identifier[-1], qualifier)
