"""Metadata tables as Spark's tables: `spark.table("lake.db.t.files")`. Driver, classic Spark only.

Input: a table, and which of its metadata tables. Output: its rows, made by the DataFrame that queries have of it, when
Spark plans the query; all of them are on the driver then.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

from py4j.java_gateway import JavaObject
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table.snapshots import Snapshot

from dml.catalog.registry import ResolvedTable
from dml.connector.state import TableState, travel_options
from dml.connector.table_changes import reference_of
from dml.engine.engine import Engine, StatementSettings
from dml.engine.query import check_time_travel, travels
from dml.metadata_tables.frames import MetadataRead, metadata_frame, spark_schema
from dml.metadata_tables.tables import MetadataTable, table_schema
from dml.spark.java import CONNECTOR, array, capabilities, constant, options_of, struct_type
from dml.spark.jvm import internal_rows
from dml.spark.proxies import Proxy, default_method

__all__ = ["SparkMetadataTable"]


class SparkMetadataTable(Proxy):
    """A metadata table of a table in one state.

    Args:
        engine: Gives the session and its catalogs.
        resolved: The table, and the name of the metadata table.
        version: The snapshot, branch or tag that is asked for.
        micros: The time that is asked for.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def __init__(
        self, engine: Callable[[], Engine], resolved: ResolvedTable, version: str | None, micros: int | None
    ) -> None:
        self._provide = engine
        reference = reference_of((resolved.catalog_name, *resolved.identifier))
        self._travels = version is not None or micros is not None or travels(resolved, reference)
        self.resolved = resolved
        self.kind = MetadataTable(str(resolved.metadata_table))
        self.snapshot = snapshot_shown(engine(), resolved, self.kind, version, micros)
        self.fields = table_schema(self.kind, resolved.table.metadata).fields

    @property
    def engine(self) -> Engine:
        """The session and its catalogs."""
        return self._provide()

    @property
    def identity(self) -> tuple[object, ...]:
        """Which, and of which state of the table."""
        snapshot_id = None if self.snapshot is None else self.snapshot.snapshot_id
        return self.name(), snapshot_id, self.resolved.table.metadata_location

    def name(self) -> str:
        """Its full name."""
        return f"{self.resolved.name}.{self.kind}"

    def schema(self) -> JavaObject:
        """Its columns."""
        return struct_type(spark_schema(self.fields))

    def columns(self) -> JavaObject:
        """Its columns, as Spark makes them of the schema."""
        return self._java_columns

    def capabilities(self) -> JavaObject:
        """It is read, and nothing else."""
        return capabilities("BATCH_READ")

    def newScanBuilder(self, options: JavaObject) -> "MetadataScan":
        """A builder of scans, which is its scan; of another snapshot where options say so."""
        version, micros = travel_options(options_of(options), elsewhere=self._travels)
        asked = version is not None or micros is not None
        table = SparkMetadataTable(self._provide, self.resolved, version, micros) if asked else self
        return MetadataScan(table, tuple(field.name for field in self.fields))

    @cached_property
    def _java_columns(self) -> JavaObject:
        return default_method(self, "columns")


def snapshot_shown(
    engine: Engine, resolved: ResolvedTable, kind: MetadataTable, version: str | None, micros: int | None
) -> Snapshot | None:
    """The snapshot that a metadata table shows; of the current one, whatever `spark.wap.branch` says."""
    reference = replace(
        reference_of((resolved.catalog_name, *resolved.identifier)),
        version=version,
        timestamp=None if micros is None else str(micros),
    )
    if not travels(resolved, reference):
        return resolved.table.current_snapshot()
    check_time_travel(kind, reference, "")
    found = TableState.of(engine, resolved, version, micros).snapshot_id
    return None if found is None else resolved.table.snapshot_by_id(found)


class MetadataScan(Proxy):
    """Some columns of a metadata table; built by itself.

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
        """Leave out the columns that Spark does not need; of none, one stays, or no row would be counted."""
        names = set(map(str, wanted.fieldNames()))
        fields = self.table.fields
        self.wanted = tuple(field.name for field in fields if field.name in names) or (fields[0].name,)

    def build(self) -> "MetadataScan":
        """Itself."""
        return self

    def description(self) -> str:
        """What EXPLAIN shows."""
        return f"RowDelta {self.table.name()}"

    def readSchema(self) -> JavaObject:
        """The columns of its rows."""
        return struct_type(spark_schema([field for field in self.table.fields if field.name in self.wanted]))

    def rows(self) -> JavaObject:
        """Its rows."""
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
        """None."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """Rows, not batches of columns."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")
