"""Scans of our tables as Spark plans them. Driver, classic Spark only.

Input: a table in one state, the columns and rows that Spark can need. Output: Spark's `Batch`: one partition for each
group of scan tasks, read by the reader of `dml.read` in Python workers, and what Spark should know of its size.

Spark carries the reader as the read function of a Python data source: `PythonPartitionReaderFactory`. The tasks of a
group travel with their partition, the context with the function.
"""

from functools import cached_property
from typing import ClassVar

from py4j.java_gateway import JavaObject
from pyiceberg.types import NestedField
from pyspark.sql.types import StructType

from dml.connector.java import CONNECTOR, array, constant, java_class, optional_long, struct_type
from dml.connector.proxies import Proxy
from dml.connector.state import TableState
from dml.connector.workers import python_partition, reader_factory
from dml.engine.engine import Engine, StatementSettings
from dml.engine.scans import PlannedScan, plan_table_scan, task_groups
from dml.read.packed_groups import GroupReader, pack
from dml.scan.source import spark_schema
from dml.spark.workers import check_workers

__all__ = ["SparkScan", "SparkScanBuilder"]


class SparkScanBuilder(Proxy):
    """Learns what Spark needs of a table.

    Args:
        engine: The session and its catalogs.
        table: The table.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.ScanBuilder", "read.SupportsPushDownRequiredColumns")

    def __init__(self, engine: Engine, table: TableState) -> None:
        self.engine = engine
        self.table = table
        self.columns = tuple(field.field_id for field in table.schema.fields)

    def pruneColumns(self, wanted: JavaObject) -> None:
        """Leave out the columns that Spark does not need; of none, one stays, or no row would be counted."""
        names = set(map(str, wanted.fieldNames()))
        fields = self.table.schema.fields
        chosen = tuple(field.field_id for field in fields if field.name in names)
        self.columns = chosen or (cheapest(fields).field_id,)

    def build(self) -> "SparkScan":
        """The scan."""
        return SparkScan(self.engine, self.table, self.columns)


def cheapest(fields: tuple[NestedField, ...]) -> NestedField:
    """The column that is read where only the number of rows matters."""
    sizes = {"boolean": 1, "int": 2, "date": 2, "long": 3, "float": 4, "double": 5, "timestamp": 6, "timestamptz": 6}
    return min(fields, key=lambda field: sizes.get(str(field.field_type), 7 if field.field_type.is_primitive else 8))


class SparkScan(Proxy):
    """Rows and columns of a table in one state.

    Args:
        engine: The session and its catalogs.
        table: The table.
        columns: Ids of the columns.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Scan", "read.SupportsReportStatistics")

    def __init__(self, engine: Engine, table: TableState, columns: tuple[int, ...]) -> None:
        self.engine = engine
        self.table = table
        self.columns = columns

    @property
    def identity(self) -> tuple[object, ...]:
        """What two scans of the same rows have in common."""
        state = self.table
        return (
            *state.identity,
            state.table.metadata.table_uuid,
            state.snapshot_id,
            state.schema.schema_id,
            self.columns,
        )

    def description(self) -> str:
        """What EXPLAIN shows."""
        return f"RowDelta {self.table.resolved.name} (snapshot {self.table.snapshot_id})"

    def readSchema(self) -> JavaObject:
        """The columns of its rows."""
        return struct_type(self.schema)

    def toBatch(self) -> "SparkBatch":
        """Its rows."""
        return SparkBatch(self)

    def estimateStatistics(self) -> "SparkStatistics":
        """Rows and bytes."""
        tasks = self.planned.plan.tasks
        rows = sum(task.record_count for task in tasks)
        return SparkStatistics(rows, rows * max(1, width(self.schema)))

    def supportedCustomMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomMetric", ())

    def reportDriverMetrics(self) -> JavaObject:
        """None."""
        return array(CONNECTOR + "metric.CustomTaskMetric", ())

    def columnarSupportMode(self) -> JavaObject:
        """Rows, not batches of columns."""
        return constant(CONNECTOR + "read.Scan$ColumnarSupportMode", "UNSUPPORTED")

    @cached_property
    def schema(self) -> StructType:
        """The columns of its rows."""
        return spark_schema(self.planned.context)

    @cached_property
    def planned(self) -> PlannedScan:
        """Its tasks."""
        return plan_table_scan(
            self.settings,
            self.table.table,
            self.table.schema,
            self.table.snapshot_id,
            self.columns,
        )

    @cached_property
    def settings(self) -> StatementSettings:
        """The session's settings, as they were when it was planned."""
        return StatementSettings.of(self.engine.spark)


def width(schema: StructType) -> int:
    """About how many bytes a row takes in memory."""
    return int(struct_type(schema).defaultSize())


class SparkBatch(Proxy):
    """The rows of a scan, in partitions.

    Args:
        scan: The scan.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Batch",)

    def __init__(self, scan: SparkScan) -> None:
        self.scan = scan

    @property
    def identity(self) -> tuple[object, ...]:
        """That of its scan."""
        return self.scan.identity

    def planInputPartitions(self) -> JavaObject:
        """A partition for each group of tasks."""
        scan = self.scan
        groups = task_groups(scan.planned.plan.tasks, scan.table.table, scan.settings, whole_files=False)
        partitions = (python_partition(number, pack(group)) for number, group in enumerate(groups))
        return array(CONNECTOR + "read.InputPartition", partitions)

    def createReaderFactory(self) -> JavaObject:
        """What reads a partition on an executor."""
        check_workers(self.scan.engine.spark)
        reader = GroupReader(context=pack(self.scan.planned.context))
        return reader_factory(reader, self.scan.schema)


class SparkStatistics(Proxy):
    """How much a scan gives.

    Args:
        rows: How many rows.
        size: Bytes.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("read.Statistics",)

    def __init__(self, rows: int, size: int) -> None:
        self._rows = rows
        self._size = size

    def numRows(self) -> JavaObject:
        """Rows."""
        return optional_long(self._rows)

    def sizeInBytes(self) -> JavaObject:
        """Bytes."""
        return optional_long(self._size)

    def columnStats(self) -> JavaObject:
        """Nothing of single columns."""
        return java_class("java.util.HashMap")()
