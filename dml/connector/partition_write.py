"""Rows in place of those of their partitions, written by the tasks of Spark's own job. Driver, classic Spark only.

Input: a planned write. Output: Spark's `Write` and `BatchWrite`: its tasks run our writer as the write function of a
Python data source, and its commit is that of an INSERT OVERWRITE.

Spark distributes the rows, and can do so by columns alone. By those of the partition's values where these follow the
columns' order, so that the rows of a partition come to one task or to neighbours. The bucket of a value is not known to
Spark: each task may have rows of each bucket, and keeps a file open for each.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, VoidTransform

from dml.connector.java import CONNECTOR, array, constant, java_class
from dml.connector.plans import reading_itself, running_plan
from dml.connector.proxies import Proxy
from dml.connector.state import column_path
from dml.connector.workers import writer_factory
from dml.engine.distribution import distribution_mode, orders_rows
from dml.engine.insert import InsertOptions, RowsWrite, commit_rows
from dml.engine.writes import delete_uncommitted, written_by
from dml.model.write_task import TaskCommit
from dml.options import SPARK_FANOUT_ENABLED, DistributionMode
from dml.spark.jobs import await_tasks, new_tag, tagged
from dml.spark.workers import check_workers
from dml.sqlparse.quoting import quote_name

__all__ = ["PartitionWrite", "keeping_files_open"]

EXPRESSIONS: Final = CONNECTOR + "expressions."


class PartitionWrite(Proxy):
    """Rows that replace the partitions that they lie in.

    Args:
        write: The write, planned with `keeping_files_open`.
        schema: The columns of the rows.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.RequiresDistributionAndOrdering",)

    def __init__(self, write: RowsWrite, schema: JavaObject) -> None:
        self._write = write
        self._schema = schema

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name} (dynamic)"

    def toString(self) -> str:
        """What Spark shows."""
        return self.description()

    def requiredDistribution(self) -> JavaObject:
        """Which rows have to come to one task."""
        table, properties = self._write.target.table, self._write.context.properties
        distributions = java_class(CONNECTOR + "distributions.Distributions")
        columns = partition_columns(table)
        match distribution_mode(table, properties):
            case DistributionMode.HASH if columns and follow_columns(table) and not all_identities(table):
                return distributions.ordered(array(EXPRESSIONS + "SortOrder", map(ascending, columns)))
            case DistributionMode.HASH if columns:
                return distributions.clustered(array(EXPRESSIONS + "Expression", columns))
            case DistributionMode.RANGE if columns or orders_rows(table):
                order = [*map(ascending, columns), *table_order(table)]
                return distributions.ordered(array(EXPRESSIONS + "SortOrder", order))
            case _:
                return distributions.unspecified()

    def distributionStrictlyRequired(self) -> bool:
        """Whether Spark may not put many small parts together, or split a large one."""
        return False

    def requiredNumPartitions(self) -> int:
        """As many tasks as Spark thinks right."""
        return 0

    def advisoryPartitionSizeInBytes(self) -> int:
        """As large as Spark thinks right."""
        return 0

    def requiredOrdering(self) -> JavaObject:
        """The order in which the rows come to a task."""
        table = self._write.target.table
        columns = [] if self._write.context.options.fanout is not False else partition_columns(table)
        order = table_order(table) if orders_rows(table) else []
        return array(EXPRESSIONS + "SortOrder", [*map(ascending, columns), *order])

    def toBatch(self) -> "SparkBatchWrite":
        """The write of one job."""
        write = reading_itself(self._write, running_plan(self._write.engine.spark))
        return SparkBatchWrite(write, self._schema)


class SparkBatchWrite(Proxy):
    """The write of one job.

    Args:
        write: The write, planned.
        schema: The columns of the rows.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.BatchWrite",)

    def __init__(self, write: RowsWrite, schema: JavaObject) -> None:
        self._write = write
        self._schema = schema
        self._tag = new_tag()
        self._job = ExitStack()
        self._commits = False

    def toString(self) -> str:
        """What Spark's log shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def createBatchWriterFactory(self, _: JavaObject) -> JavaObject:
        """What writes the rows of a task; the job begins after this."""
        spark = self._write.engine.spark
        check_workers(spark)
        factory = writer_factory(self._write.task, self._schema)
        self._job.enter_context(tagged(spark, self._tag, interrupts=False))
        return factory

    def useCommitCoordinator(self) -> bool:
        """One attempt of a task counts."""
        return True

    def onDataWriterCommit(self, message: JavaObject) -> None:
        """Nothing: the files of a task are known with those of all tasks."""

    def commit(self, messages: Sequence[JavaObject], *_: JavaObject) -> None:
        """Commit what the tasks wrote."""
        self._job.close()
        self._commits = True  # from here on the files are the commit's, also where it fails
        write = self._write
        commits = [TaskCommit.from_bytes(bytes(message.pickledMessage())) for message in messages]
        commit_rows(write, written_by(commits, write.target.table, write.context))

    def abort(self, _: Sequence[JavaObject | None]) -> None:
        """Delete what the tasks wrote, when they have ended."""
        self._job.close()
        if not self._commits:
            await_tasks(self._write.engine.spark.sparkContext, self._tag)
            delete_uncommitted(self._write.target.table, self._write.context)


def keeping_files_open(options: InsertOptions, table: Table) -> InsertOptions:
    """The options of a write, with `fanout-enabled` where Spark cannot bring the rows of a partition together.

    One file at a time is enough only where rows in the order of the columns are partition by partition, and no other
    order is wanted.
    """
    if all_identities(table) or (follow_columns(table) and clustered_by_columns(table) and not orders_rows(table)):
        return options
    return replace(options, properties={**options.properties, SPARK_FANOUT_ENABLED: "true"})


def partition_fields(table: Table) -> Iterator[PartitionField]:
    """The fields that tell partitions apart."""
    return (field for field in table.spec().fields if not isinstance(field.transform, VoidTransform))


def all_identities(table: Table) -> bool:
    """Whether a partition is told by the values of columns themselves."""
    return all(isinstance(field.transform, IdentityTransform) for field in partition_fields(table))


def follow_columns(table: Table) -> bool:
    """Whether the partitions of rows that are in the order of the columns are in order too."""
    return all(field.transform.preserves_order for field in partition_fields(table))


def clustered_by_columns(table: Table) -> bool:
    """Whether rows in the order of the columns are partition by partition.

    With `(days(ts), k)` they are not: a day has each `k` as often as it has other values of `ts`.
    """
    ids = list(dict.fromkeys(field.source_id for field in partition_fields(table)))
    whole = {field.source_id for field in partition_fields(table) if isinstance(field.transform, IdentityTransform)}
    return all(source_id in whole for source_id in ids[:-1])


def partition_columns(table: Table) -> list[JavaObject]:
    """The columns that tell partitions apart, each once: those whose order partitions follow, if there are any."""
    fields = list(partition_fields(table))
    chosen = [field for field in fields if field.transform.preserves_order] or fields
    ids = dict.fromkeys(field.source_id for field in chosen)
    return [column_reference(table, source_id) for source_id in ids]


def column_reference(table: Table, field_id: int) -> JavaObject:
    """A column, or a field of one, as Spark's expressions name it."""
    path = column_path(table.schema(), field_id)
    assert path is not None
    return java_class(EXPRESSIONS + "Expressions").column(quote_name(path))


def ascending(column: JavaObject) -> JavaObject:
    """Ascending, NULL first."""
    return sorted_by(column, ascends=True, nulls_first=True)


def table_order(table: Table) -> Iterator[JavaObject]:
    """The table's sort order, where each of its fields is a column as it is."""
    fields: Sequence[SortField] = table.sort_order().fields
    for field in fields:
        yield sorted_by(
            column_reference(table, field.source_id),
            ascends=field.direction == SortDirection.ASC,
            nulls_first=field.null_order == NullOrder.NULLS_FIRST,
        )


def sorted_by(column: JavaObject, *, ascends: bool, nulls_first: bool) -> JavaObject:
    """One part of an order."""
    direction = constant(EXPRESSIONS + "SortDirection", "ASCENDING" if ascends else "DESCENDING")
    nulls = constant(EXPRESSIONS + "NullOrdering", "NULLS_FIRST" if nulls_first else "NULLS_LAST")
    return java_class(EXPRESSIONS + "Expressions").sort(column, direction, nulls)
