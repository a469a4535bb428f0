"""A RowDelta table in one state, or one of its metadata tables, as a Spark table. Driver, classic Spark only.

Input: a table and the snapshot to read. Output: its columns, partitioning and properties, and scan builders
(`dml.spark_scan.scan`). The rows of a metadata table, such as `spark.table("lake.db.t.files")`, come from the DataFrame
that queries use for it. They are collected on the driver when Spark plans the query.

Two instances are equal if they represent the same table in the same state.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import ClassVar

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import BucketTransform, TruncateTransform, VoidTransform
from pyiceberg.types import NestedField
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from dml.catalog.registry import ResolvedTable
from dml.connector.state import TableState, column_path, load_once, travel_options
from dml.connector.stream import StreamableScan
from dml.connector.table_changes import reference_of
from dml.connector.write import SparkWriteBuilder, WrittenTable
from dml.engine.engine import Engine, StatementSettings
from dml.engine.query import check_time_travel, has_time_travel
from dml.engine.schema_evolution import accepts_any_schema
from dml.errors import AnalysisError, NotFoundError
from dml.metadata_tables import frames
from dml.metadata_tables.frames import METADATA_ROWS, MetadataRead, metadata_frame
from dml.metadata_tables.tables import MetadataTable, table_schema
from dml.model.columns import METADATA_COLUMNS
from dml.options import DEFAULT_FILE_FORMAT, FORMAT_VERSION
from dml.scan.table_scan import TableScan, spark_schema
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.proxies import Proxy, default_method
from dml.spark.bridge.sessions import internal_rows
from dml.spark.bridge.values import (
    CATALOG,
    CONNECTOR,
    array,
    capabilities,
    constant,
    data_type,
    java_class,
    java_map,
    options_of,
    struct_type,
)
from dml.spark.callbacks import take_callbacks
from dml.spark.store_assignment import default_sql
from dml.spark.types import spark_field
from dml.spark.versions import INSTALLED_FEATURES, Feature
from dml.spark_scan.frames import frame_of, named_plan, relation_of, unplanned_reason
from dml.spark_scan.running_query import record_scan
from dml.spark_scan.scan_builder import SparkScanBuilder, scan_builder
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name
from dml.views import StatementTables

__all__ = ["SparkMetadataTable", "SparkTable"]


class SparkMetadataTable(Proxy):
    """A metadata table of a table in one state.

    Args:
        engine: Returns the session and its catalogs.
        resolved: The table, and the name of the metadata table.
        version: The requested snapshot, branch or tag.
        micros: The requested time, in microseconds since 1970.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def __init__(
        self, engine: Callable[[], Engine], resolved: ResolvedTable, version: str | None, micros: int | None
    ) -> None:
        self._provide = engine
        reference = reference_of((resolved.catalog_name, *resolved.identifier))
        self._travels = version is not None or micros is not None or has_time_travel(resolved, reference)
        self.resolved = resolved
        self.kind = MetadataTable(str(resolved.metadata_table))
        self.snapshot = shown_snapshot(engine(), resolved, self.kind, version, micros)
        self.fields = table_schema(self.kind, resolved.table.metadata).fields

    @property
    def engine(self) -> Engine:
        """The session and its catalogs."""
        return self._provide()

    @property
    def identity(self) -> tuple[object, ...]:
        """The metadata table and the state of the table that it shows."""
        snapshot_id = None if self.snapshot is None else self.snapshot.snapshot_id
        return self.name(), snapshot_id, self.resolved.table.metadata_location

    def name(self) -> str:
        """Return the full name."""
        return f"{self.resolved.name}.{self.kind}"

    def schema(self) -> JavaObject:
        """Return the columns as a Spark schema."""
        return struct_type(frames.spark_schema(self.fields))

    def columns(self) -> JavaObject:
        """Return the columns, which Spark derives from the schema."""
        return self._java_columns

    def capabilities(self) -> JavaObject:
        """Allow batch reads only."""
        return capabilities("BATCH_READ")

    def newScanBuilder(self, options: JavaObject) -> "MetadataScan":
        """Return the scan, which is its own builder; of another snapshot if the options select one."""
        version, micros = travel_options(options_of(options), is_pinned=self._travels)
        is_pinned = version is not None or micros is not None
        table = SparkMetadataTable(self._provide, self.resolved, version, micros) if is_pinned else self
        return MetadataScan(table, tuple(field.name for field in self.fields))

    @cached_property
    def _java_columns(self) -> JavaObject:
        return default_method(self, "columns")


def shown_snapshot(
    engine: Engine, resolved: ResolvedTable, kind: MetadataTable, version: str | None, micros: int | None
) -> Snapshot | None:
    """Return the snapshot that a metadata table shows: by default the current one, ignoring `spark.wap.branch`."""
    reference = replace(
        reference_of((resolved.catalog_name, *resolved.identifier)),
        version=version,
        timestamp=None if micros is None else str(micros),
    )
    if not has_time_travel(resolved, reference):
        return resolved.table.current_snapshot()
    check_time_travel(kind, reference, "")
    found = TableState.of(engine, resolved, version, micros).snapshot_id
    return None if found is None else resolved.table.snapshot_by_id(found)


class MetadataScan(Proxy):
    """Some columns of a metadata table, as scan and as its own builder.

    Args:
        table: The metadata table.
        wanted: Names of columns.
    """

    interfaces: ClassVar[tuple[str, ...]] = (
        "read.ScanBuilder",
        "read.SupportsPushDownRequiredColumns",
        "read.LocalScan",
    )

    def __init__(self, table: SparkMetadataTable, wanted: Sequence[str]) -> None:
        self.table = table
        self.wanted = tuple(wanted)

    @property
    def identity(self) -> tuple[object, ...]:
        """The table and the columns."""
        return (*self.table.identity, self.wanted)

    def pruneColumns(self, wanted: JavaObject) -> None:
        """Drop the columns that Spark does not need. If it needs none, keep one so that rows are still counted."""
        names = set(map(str, wanted.fieldNames()))
        fields = self.table.fields
        self.wanted = tuple(field.name for field in fields if field.name in names) or (fields[0].name,)

    def build(self) -> "MetadataScan":
        """Return this object: it is the scan."""
        return record_scan(self)

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""
        return f"RowDelta {self.table.name()}, {METADATA_ROWS}"

    def readSchema(self) -> JavaObject:
        """Return the schema of the pruned columns."""
        return struct_type(frames.spark_schema([field for field in self.table.fields if field.name in self.wanted]))

    def rows(self) -> JavaObject:
        """Read the rows."""
        table, settings = self.table, StatementSettings.of(self.table.engine)
        read = MetadataRead(
            columns=self.wanted,
            row_filter=AlwaysTrue(),
            case_sensitive=settings.case_sensitive,
            parallelism=settings.parallelism,
        )
        frame = metadata_frame(table.engine.spark, table.kind, table.resolved.table, table.snapshot, read)
        return internal_rows(frame.select(*(f"`{name}`" for name in self.wanted)))

    def supportedCustomMetrics(self) -> JavaObject:
        """Return no metrics."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """Return no metrics."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """Report that the scan returns rows, not columnar batches."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")


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
        engine: Returns the session and its catalogs. A temporary view keeps its tables and is kept by its session, so a
            strong reference would leak the session.
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
        """Return the full name."""
        return self.state.resolved.name

    @property
    def identity(self) -> tuple[object, ...]:
        """The table in its state: if two states were equal, Spark would keep the older one instead of the reloaded one.

        Where Spark keeps a table and RowDelta reloads it, all states are equal: otherwise no row cache would be found.
        """
        return (*self.state.identity, self.id()) if self._reloads else self.state.version

    def id(self) -> str:
        """Return the table's UUID, which survives a rename but not a drop."""
        return str(self.state.table.metadata.table_uuid)

    def version(self) -> str | None:
        """Return the snapshot id, or None if the table has no snapshot."""
        return None if self.state.snapshot_id is None else str(self.state.snapshot_id)

    def schema(self) -> JavaObject:
        """Return the columns as a Spark schema."""
        return self._java_schema

    def columns(self) -> JavaObject:
        """Return the columns, which Spark derives from the schema."""
        return self._java_columns

    def partitioning(self) -> JavaObject:
        """Return the transforms of the partition spec that new files use."""
        return array(CONNECTOR + "expressions.Transform", self._transforms())

    def properties(self) -> JavaObject:
        """Return the properties that Iceberg shows: the table's own, its location, format and snapshot."""
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
        """Return what Spark may do with the table."""
        accepts = (ACCEPT_ANY_SCHEMA,) if self._accepts_any_schema else ()
        return capabilities(*CAPABILITIES, *accepts)

    @property
    def _accepts_any_schema(self) -> bool:
        """True if Spark must not cast the columns of a write to those of the table."""
        return accepts_any_schema(self.state.table)

    def metadataColumns(self) -> JavaObject:
        """Return the metadata columns that queries may name."""
        return self._metadata_columns

    def newScanBuilder(self, options: JavaObject) -> SparkScanBuilder:
        """Return a scan builder, of another snapshot if the options select one."""
        engine, read_options = self.engine, options_of(options)
        state = (self._current_state() if self._reloads else self.state).with_options(read_options)
        make_scan = partial(StreamableScan, engine, state, read_options)
        return scan_builder(engine.spark, state.read(StatementSettings.of(engine)), make_scan)

    @property
    def _reloads(self) -> bool:
        """True if scans reload the table: before Spark 4.1 a DataFrame keeps the table that it resolved."""
        return Feature.TABLE_RELOAD not in INSTALLED_FEATURES and not self.state.is_pinned

    def _current_state(self) -> TableState:
        """Return the current state; a running statement loads it once."""
        engine, resolved = self.engine, self.state.resolved
        parts = (resolved.catalog_name, *resolved.identifier)

        def load() -> SparkTable:
            found = engine.registry.resolve(parts)
            if found is None:
                raise NotFoundError(f"There is no table {quote_name(parts)} any more", table=resolved.name)
            return SparkTable(self._provide, TableState.of(engine, found, None, None))

        now = load_once(engine.spark, (*parts, None, None), load).state
        found = {field.name: field.field_type for field in now.schema.fields}
        kept = all(found.get(field.name) == field.field_type for field in self.state.schema.fields)
        if now.table.metadata.table_uuid != self.state.table.metadata.table_uuid or not kept:
            raise AnalysisError(
                f"The table {quote_name(parts)} was recreated or its columns changed after this DataFrame was created",
                hint="Create the DataFrame again",
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
        """Return a builder of one write."""
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
        """The name and type."""
        return self.field.name, self.field.dataType.simpleString()

    def name(self) -> str:
        """Return the name."""
        return str(self.field.name)

    def dataType(self) -> JavaObject:
        """Return the type."""
        return data_type(self.field.dataType)

    def isNullable(self) -> bool:
        """Return True: the column may be NULL."""
        return True

    def comment(self) -> None:
        """Return no comment."""

    def metadataInJSON(self) -> None:
        """Return nothing: no write keeps the column."""


PLURAL = {"year": "years", "month": "months", "day": "days", "hour": "hours"}


def column_field(field: NestedField) -> StructField:
    """Convert an Iceberg field to a Spark field with the defaults that Spark inserts and reads."""
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
        The table's rows; None if a statement must resolve the name: on Spark Connect, or if it is not a data table.

    Raises:
        NotFoundError: The table has no such branch, tag or snapshot.
    """
    parts = name_parts(name)
    if not parts or unplanned_reason(engine.spark) is not None:
        return None
    tables = StatementTables(statement=name, lazy_session=engine.lazy_session, registry=engine.registry)
    resolved = tables.resolve(reference_of(parts))
    if resolved is None or resolved.metadata_table is not None:
        return None
    take_callbacks()
    state = TableState.of(engine, resolved, None, None).pin()
    relation = relation_of(SparkTable(lambda: engine, state))
    # The alias lets columns be qualified with the table's name, or the end of it.
    qualifier = resolved.catalog_name, *resolved.identifier[:-1]
    return frame_of(engine.spark, named_plan(resolved.identifier[-1], qualifier, relation))
