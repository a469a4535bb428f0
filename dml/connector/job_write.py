"""Jobs of Spark's that run our writer: which rows come to which task, and the job's end. Driver, classic Spark only.

Input: a planned write. Output: the distribution and order that Spark is asked for, and what its tasks wrote.

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

from dml.connector.state import column_path
from dml.engine.distribution import distribution_mode, orders_rows
from dml.engine.insert import InsertOptions, RowsWrite
from dml.engine.target import Target
from dml.engine.writes import WriteOutcome, delete_uncommitted, written_by
from dml.model.write_task import report_from_bytes
from dml.options import ADVISORY_PARTITION_SIZE, DistributionMode, integer
from dml.spark.java import CONNECTOR, array, constant, java_class, simple_name
from dml.spark.jobs import await_tasks, new_tag, tagged
from dml.spark.proxies import Proxy
from dml.spark.shared_files import check_writes
from dml.spark.versions import Feature, has
from dml.sqlparse.quoting import quote_name

__all__ = ["DistributedWrite", "WriterJob", "keeping_files_open", "reading_itself"]

EXPRESSIONS: Final = CONNECTOR + "expressions."
CURRENT_SNAPSHOT: Final = "current-snapshot-id"
"""The property with the snapshot that a table was loaded at: before Spark 4.1 tables have no version."""


class DistributedWrite(Proxy):
    """A write whose rows Spark distributes and orders.

    Args:
        write: The write, planned with `keeping_files_open`.
        tasks: How many tasks write at most, where rows are distributed; 0 for as many as Spark thinks right.
        left_out: Ids of the columns that the rows have not.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.RequiresDistributionAndOrdering",)

    def __init__(self, write: RowsWrite, tasks: int = 0, left_out: frozenset[int] = frozenset()) -> None:
        self._write = write
        self._tasks = tasks
        self._left_out = left_out

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def toString(self) -> str:
        """What Spark shows."""
        return self.description()

    def requiredDistribution(self) -> JavaObject:
        """Which rows have to come to one task."""
        distributions, spread = java_class(CONNECTOR + "distributions.Distributions"), self._spread()
        if spread is None:
            return distributions.unspecified()
        is_ordered, terms = spread
        if is_ordered:
            return distributions.ordered(array(EXPRESSIONS + "SortOrder", terms))
        return distributions.clustered(array(EXPRESSIONS + "Expression", terms))

    def distributionStrictlyRequired(self) -> bool:
        """Whether Spark may not put many small parts together, or split a large one."""
        return False

    def requiredNumPartitions(self) -> int:
        """How many tasks there are, where rows are distributed; Spark takes a number for nothing else."""
        return self._tasks if self._tasks and self._spread() is not None else 0

    def advisoryPartitionSizeInBytes(self) -> int:
        """As large as the table says, or as Spark thinks right; only where Spark chooses how many tasks there are."""
        properties = self._write.context.properties
        chosen = ADVISORY_PARTITION_SIZE in properties and not self._tasks and self._spread() is not None
        return integer(properties, ADVISORY_PARTITION_SIZE, 0, minimum=1) if chosen else 0

    def requiredOrdering(self) -> JavaObject:
        """The order in which the rows come to a task."""
        columns = [] if self._write.context.options.fanout is not False else self._partition_columns()
        order = self._table_order() if orders_rows(self._write.target.table) else ()
        return array(EXPRESSIONS + "SortOrder", [*map(ascending, columns), *order])

    def _spread(self) -> tuple[bool, list[JavaObject]] | None:
        """By what rows are spread, and whether that is an order; None where they stay where they are."""
        table, columns = self._write.target.table, self._partition_columns()
        match distribution_mode(table, self._write.context.properties):
            case DistributionMode.HASH if columns and follow_columns(table) and not all_identities(table):
                return True, list(map(ascending, columns))
            case DistributionMode.HASH if columns:
                return False, columns
            case DistributionMode.RANGE if columns or orders_rows(table):
                order = [*map(ascending, columns), *self._table_order()]
                return (True, order) if order else None
            case _:
                return None

    def _partition_columns(self) -> list[JavaObject]:
        """The columns that tell partitions apart, each once: those whose order partitions follow, if there are any."""
        table = self._write.target.table
        fields = [field for field in partition_fields(table) if self._has(field.source_id)]
        chosen = [field for field in fields if field.transform.preserves_order] or fields
        ids = dict.fromkeys(field.source_id for field in chosen)
        return [column_reference(table, source_id) for source_id in ids]

    def _table_order(self) -> Iterator[JavaObject]:
        """The table's sort order, where each of its fields is a column as it is."""
        table = self._write.target.table
        fields: Sequence[SortField] = table.sort_order().fields
        for field in fields:
            if self._has(field.source_id):
                yield sorted_by(
                    column_reference(table, field.source_id),
                    ascends=field.direction == SortDirection.ASC,
                    nulls_first=field.null_order == NullOrder.NULLS_FIRST,
                )

    def _has(self, field_id: int) -> bool:
        """Whether the rows have a column, or the column that a field is in."""
        path = column_path(self._write.target.table.schema(), field_id)
        assert path is not None
        return self._write.target.table.schema().find_field(path[0]).field_id not in self._left_out


class WriterJob:
    """One job of Spark's that runs a writer: what it wrote, or nothing that stays.

    Args:
        write: The write, planned.
    """

    def __init__(self, write: RowsWrite) -> None:
        self._write = write
        self._tag = new_tag()
        self._job = ExitStack()
        self._commits = False

    def begin(self) -> None:
        """The job begins after this.

        Raises:
            SetupError: the workers run a Python without this package.
        """
        spark = self._write.engine.spark
        check_writes(spark, self._write.target.table, self._write.context)
        self._job.enter_context(tagged(spark, self._tag, interrupts=False))

    def written(self, messages: Sequence[JavaObject]) -> WriteOutcome:
        """What the tasks wrote. From here on the files are the commit's, also where it fails.

        Args:
            messages: What each task said.

        Raises:
            DmlError: the first failure that a task reported; the files of all tasks are deleted.
        """
        self._job.close()
        self._commits = True
        reports = [report_from_bytes(bytes(message.pickledMessage())) for message in messages]
        return written_by(reports, self._write.target.table, self._write.task.spec)

    def abort(self) -> None:
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
    return replace(options, write={**options.write, "fanout-enabled": "true"})


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


def column_reference(table: Table, field_id: int) -> JavaObject:
    """A column, or a field of one, as Spark's expressions name it."""
    path = column_path(table.schema(), field_id)
    assert path is not None
    return java_class(EXPRESSIONS + "Expressions").column(quote_name(path))


def ascending(column: JavaObject) -> JavaObject:
    """Ascending, NULL first."""
    return sorted_by(column, ascends=True, nulls_first=True)


def sorted_by(column: JavaObject, *, ascends: bool, nulls_first: bool) -> JavaObject:
    """One part of an order."""
    direction = constant(EXPRESSIONS + "SortDirection", "ASCENDING" if ascends else "DESCENDING")
    nulls = constant(EXPRESSIONS + "NullOrdering", "NULLS_FIRST" if nulls_first else "NULLS_LAST")
    return java_class(EXPRESSIONS + "Expressions").sort(column, direction, nulls)


def reading_itself(write: RowsWrite, plan: JavaObject | None) -> RowsWrite:
    """Mark the write if it reads its own table, as far as the plan of its rows shows.

    Such a write validates against the snapshot that the plan reads. Otherwise it would silently replace rows that
    other commits have added since.

    Args:
        write: The write.
        plan: The analyzed plan of its rows; None if unknown.
    """
    if write.replaced is None or plan is None:
        return write
    target = write.target
    own = [relation for relation in relations(plan) if str(relation.table().name()) == target.resolved.name]
    if not own:
        return write
    read = {snapshot_id(relation) for relation in own if not travels(relation)} - {target.snapshot_id}
    oldest = min(read, key=lambda found: age(target, found)) if read else target.snapshot_id
    return replace(
        write, replaced=replace(write.replaced, reads_table=True), target=replace(target, snapshot_id=oldest)
    )


def age(target: Target, read: int | None) -> int:
    """Return a sort key by the order of the table's snapshots; None and expired snapshots come first."""
    snapshot = None if read is None else target.table.snapshot_by_id(read)
    return -1 if snapshot is None else snapshot.sequence_number or 0


def relations(plan: JavaObject) -> Iterator[JavaObject]:
    """Return the catalog tables that a plan reads."""
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        match simple_name(leaf):
            case "DataSourceV2Relation":
                yield leaf
            case "DataSourceV2ScanRelation":
                yield leaf.relation()


def travels(relation: JavaObject) -> bool:
    """Return whether the relation time-travels, as with `VERSION AS OF`; plans before Spark 4.1 do not show it."""
    return has(Feature.TRAVEL_IN_PLANS) and bool(relation.timeTravelSpec().isDefined())


def snapshot_id(relation: JavaObject) -> int | None:
    """Return the snapshot at which a RowDelta relation was analyzed; None if the table had none."""
    shown = str(relation.table().properties()[CURRENT_SNAPSHOT])
    return int(shown) if shown.isdigit() else None
