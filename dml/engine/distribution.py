"""Distribute the rows of a statement over writing tasks, and order them. Driver.

Input: rows to insert, the table's spec, sort order and `write.distribution-mode`; or a delta and the files that it
changes. Output: the same rows, distributed.
Source: Iceberg documentation, "Writing distribution modes"; docs/semantics.md, F1 to F7.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import col, expr, lit
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.engine.engine import StatementSettings
from dml.model.columns import FILE_ORDINAL, POS, ROW_OPERATION, value_name
from dml.model.manifest import is_unpartitioned
from dml.model.scan_task import ScanTask
from dml.options import (
    ADVISORY_PARTITION_SIZE,
    WRITE_DISTRIBUTION_MODE,
    DistributionMode,
    WriteOptions,
    choice,
    integer,
)
from dml.plan.row_delta_plan import ThroughSpark
from dml.rows import program
from dml.rows.program import Literal, Value
from dml.scan.split import TARGET_SIZE, TaskGroups, partition_groups
from dml.scan.table_scan import TableScan
from dml.spark.partition_number import partition_number, partition_number_sql, sort_field_sql
from dml.spark.task_frames import rebalance, repartition_by_id
from dml.sqlparse.quoting import quoted
from dml.write.partitioning import row_order

__all__ = [
    "distribute_delta",
    "distribute_rows",
    "distribution_mode",
    "groups_in_place",
    "orders_rows",
    "scatters",
    "sorts",
]


COLUMNAR_RATIO: Final = 3.0
ROW_BASED_RATIO: Final = 1.5
"""The ratio of the size of shuffled rows to that of their data file, from Iceberg's `SparkCompressionUtil` for Spark's
and Iceberg's usual compression: by default a task gets rows for a file of 128 MB."""


def distribution_mode(table: Table, properties: Mapping[str, str]) -> DistributionMode:
    """Return the mode of an INSERT: `write.distribution-mode`, else range for sorted, hash for partitioned tables.

    It is `none` if the mode needs a partition spec or sort order that the table lacks.
    """
    spec, sorted_table = table.spec(), not table.sort_order().is_unsorted
    default = DistributionMode.NONE
    if sorted_table:
        default = DistributionMode.RANGE
    elif not is_unpartitioned(spec):
        default = DistributionMode.HASH
    mode = choice(properties, WRITE_DISTRIBUTION_MODE, DistributionMode, default)
    if mode is DistributionMode.RANGE and is_unpartitioned(spec) and not sorted_table:
        return DistributionMode.NONE
    if mode is DistributionMode.HASH and is_unpartitioned(spec):
        return DistributionMode.NONE
    return mode


def scatters(table: Table, properties: Mapping[str, str], *, by_columns: bool) -> bool:
    """Return whether several tasks of an INSERT may get rows of one partition.

    Args:
        table: The table.
        properties: Its properties, overridden by the write's own options.
        by_columns: Whether rows are distributed by the source columns of the partition fields, and not by partition.
    """
    if distribution_mode(table, properties) is DistributionMode.NONE or is_unpartitioned(table.spec()):
        return True
    whole = (IdentityTransform, VoidTransform)
    return by_columns and not all(isinstance(field.transform, whole) for field in table.spec().fields)


def sorts(table: Table) -> bool:
    """Return whether files are written in the table's sort order: it has one, and the order's columns exist."""
    return not table.sort_order().is_unsorted and row_order(table.sort_order(), table.schema().fields) is not None


def orders_rows(table: Table) -> bool:
    """Return whether Spark can sort rows by the table's sort order: all its fields are columns without a transform."""
    order = table.sort_order()
    return not order.is_unsorted and len(sort_columns(table)) == len(order.fields)


def groups_in_place(
    tasks: Sequence[ScanTask],
    scan: TableScan,
    settings: StatementSettings,
    values: Mapping[int, Value],
    table: Table,
    properties: Mapping[str, str],
) -> TaskGroups | ThroughSpark:
    """Group scan tasks so that the task that reads a group can also write its rows into another table.

    Args:
        tasks: Of whole files.
        scan: Their scan.
        settings: The session's settings.
        values: The values of the other table's columns, by field id. Columns without one get NULL.
        table: The other table.
        properties: Its properties, overridden by the statement's own options.

    Returns:
        The scan tasks of each Spark task, or the reason why Spark must move or order the rows.
    """
    if not table.sort_order().is_unsorted:
        return ThroughSpark(reason="Spark must sort the rows by the table's sort order")
    clustered = WriteOptions.from_properties(properties).fanout is False and not is_unpartitioned(table.spec())
    mode = distribution_mode(table, properties)
    if mode is DistributionMode.NONE and not clustered:
        return scan.groups(tasks, settings.parallelism)
    if clustered:
        return ThroughSpark(reason="writers without fanout need rows clustered by partition")
    if mode is not DistributionMode.HASH:
        return ThroughSpark(reason=f"the distribution mode '{mode}' requires a shuffle")
    partitions = {task.file_ordinal: written_partition(task, scan.table, values, table.spec()) for task in tasks}
    if None in partitions.values():
        return ThroughSpark(reason="one source file may contain rows for several partitions")
    return partition_groups(tasks, lambda task: partitions[task.file_ordinal], parallelism=settings.parallelism)


def written_partition(
    task: ScanTask, source: Table, written: Mapping[int, Value], spec: PartitionSpec
) -> Hashable | None:
    """Return the one partition to which a file's rows are written; None if the file's own partition does not tell."""
    known = {
        (field.source_id, field.transform): value
        for field, value in zip(source.specs()[task.spec_id].fields, task.partition, strict=True)
    }
    values: list[Any] = []
    for field in spec.fields:
        value = written.get(field.source_id)
        key = (value.field_id if isinstance(value, program.Column) else None, field.transform)
        if value is None or (isinstance(value, Literal) and value.value is None):  # NULL in all rows
            values.append(None)
        elif key in known:
            values.append(known[key])
        elif not isinstance(field.transform, VoidTransform):
            return None
    return partition_key(spec.spec_id, tuple(values))


def distribute_rows(rows: DataFrame, table: Table, properties: Mapping[str, str]) -> DataFrame:
    """Distribute and order the rows of an INSERT.

    Args:
        rows: Columns `v0`, `v1`, ... for the table's columns, in its order.
        table: The table.
        properties: Its properties, overridden by the statement's own options.
    """
    mode, spec, schema = distribution_mode(table, properties), table.spec(), table.schema()
    partition = [] if is_unpartitioned(spec) else [partition_number(spec, schema, value_name)]
    order = sort_columns(table) if orders_rows(table) else []
    ranges = order or transformed_order(table)
    clustered = WriteOptions.from_properties(properties).fanout is False
    match mode:
        case DistributionMode.HASH if partition:
            rows = rebalance(rows.repartition(*partition), shuffled_size(properties))
        case DistributionMode.RANGE if partition or ranges:
            rows = rebalance(rows.repartitionByRange(*partition, *ranges), shuffled_size(properties))
        case _:
            pass
    # A writer without fanout has one file open at a time, so it needs clustered rows; Spark's sort can spill.
    return rows.sortWithinPartitions(*partition, *order) if order or (clustered and partition) else rows


def shuffled_size(properties: Mapping[str, str]) -> int:
    """Return the target size, in bytes, of the shuffled rows that one task of an INSERT writes.

    Args:
        properties: The table's properties, overridden by the write's own options.
    """
    ratio = ROW_BASED_RATIO if WriteOptions.from_properties(properties).file_format == "avro" else COLUMNAR_RATIO
    return integer(properties, ADVISORY_PARTITION_SIZE, int(TARGET_SIZE * ratio), minimum=1)


def distribute_delta(
    frame: DataFrame,
    table: Table,
    groups: TaskGroups,
    parallelism: int,
    *,
    inserts: bool,
    few_inserts: bool,
    clustered: bool,
    mode: DistributionMode | None,
) -> DataFrame:
    """Distribute the rows of a delta: all of a file to one task, in the order of the file.

    Inserted rows are clustered by partition. In an unpartitioned table, or in the mode `none`, they are distributed by
    their values; in the mode `range` each task gets a range. A few inserted rows go to the tasks of the files.

    Args:
        frame: The delta.
        table: The table.
        groups: The files that each task changes; the ordinals of the delta are those of the files.
        parallelism: The number of concurrent tasks.
        inserts: Whether the delta may insert rows.
        few_inserts: Whether these are no more than `limits.MAX_UNSCATTERED_INSERTS`.
        clustered: Whether inserted rows must be clustered by partition: `write.spark.fanout.enabled` is false.
        mode: The distribution mode of the command, from the session or the table.
    """
    files = sum(map(len, groups))
    tasks = max(1, len(groups)) if few_inserts or not inserts else max(parallelism, len(groups))
    # As SQL text: building a Column expression costs one call into the JVM for each of its nodes.
    task = task_of_file(groups, files) if tasks > 1 else "0"
    order: list[str | Column] = [FILE_ORDINAL, POS]
    if inserts and (tasks > 1 or clustered):
        spec, schema = table.spec(), table.schema()
        inserted = "0" if few_inserts else value_hash_sql(frame)
        if not is_unpartitioned(spec):
            partition = partition_number_sql(spec, schema, value_name)
            order += [expr(f"CASE WHEN {FILE_ORDINAL} IS NULL THEN {partition} END")] if clustered else []
            inserted = inserted if mode is DistributionMode.NONE else partition
        if tasks > 1:
            task = f"CASE WHEN {FILE_ORDINAL} IS NULL THEN pmod({inserted}, {tasks}) ELSE {task} END"
    ranges = inserted_ranges(table) if inserts and mode is DistributionMode.RANGE else []
    if ranges and tasks > 1 and not few_inserts:
        # Rows with equal range keys go to one task. All changes of a file have equal keys, so Spark never splits them.
        place = f"CASE WHEN {FILE_ORDINAL} IS NULL THEN {tasks} ELSE {task_of_file(groups, files)} END"
        return frame.repartitionByRange(tasks, expr(place), *ranges).sortWithinPartitions(*order)
    if tasks == 1 and few_inserts:
        # A shuffle would be another job. Without one, a single task reads everything: few files and a cached source.
        return frame.coalesce(1).sortWithinPartitions(*order)
    return repartition_by_id(frame, tasks, lit(0) if task == "0" else expr(task)).sortWithinPartitions(*order)


def task_of_file(groups: Sequence[Sequence[ScanTask]], files: int) -> str:
    """Return SQL for the group of a row's file; if there are very many files, neighbors share a group."""
    if len(groups) <= 1:
        return "0"
    if files > limits.MAX_PLACED_FILES:
        return f"CAST(CAST({FILE_ORDINAL} AS BIGINT) * {len(groups)}L DIV {files}L AS INT)"
    places = {task.file_ordinal: number for number, group in enumerate(groups) for task in group}
    numbers = ", ".join(str(places[ordinal]) for ordinal in range(files))
    return f"element_at(array({numbers}), coalesce({FILE_ORDINAL}, 0) + 1)"


def value_hash_sql(frame: DataFrame) -> str:
    """Return SQL that hashes a row's values, except maps and variants, for which Spark has no hash."""
    names = [
        quoted(field.name)
        for field in frame.schema.fields
        if field.name not in {FILE_ORDINAL, POS, ROW_OPERATION} and has_hash(field.dataType)
    ]
    return f"hash({', '.join(names)})" if names else "0"


def has_hash(kind: DataType) -> bool:
    """Return whether Spark can hash values of a type."""
    match kind:
        case StructType():
            return all(has_hash(field.dataType) for field in kind.fields)
        case ArrayType():
            return has_hash(kind.elementType)
        case MapType():
            return False
    return kind.simpleString() != "variant"


def sort_columns(table: Table) -> list[Column]:
    """Return the table's sort order over the value columns, without fields that have a transform."""
    places = {field.field_id: place for place, field in enumerate(table.schema().fields)}
    fields: Sequence[SortField] = table.sort_order().fields
    return [
        order_column(col(value_name(places[field.source_id])), field)
        for field in fields
        if isinstance(field.transform, IdentityTransform) and field.source_id in places
    ]


def transformed_order(table: Table) -> list[Column]:
    """Return the table's sort order with its transforms; empty if one is unknown. Writers sort within each range."""
    return [order_column(expr(text), field) for text, field in order_terms(table)]


def order_terms(table: Table) -> list[tuple[str, SortField]]:
    """Return the fields of the table's sort order, as SQL over the value columns; empty if a transform is unknown."""
    schema, fields = table.schema(), table.sort_order().fields
    texts = [sort_field_sql(field, schema, value_name) for field in fields]
    if None in texts or not sorts(table):
        return []
    return [(text, field) for text, field in zip(texts, fields, strict=True) if text]


def inserted_ranges(table: Table) -> list[Column]:
    """Return the range keys of inserted rows: partition, then sort order; NULL for all other rows."""

    def of_inserted(text: str) -> Column:
        return expr(f"CASE WHEN {FILE_ORDINAL} IS NULL THEN {text} END")

    spec = table.spec()
    partition = [] if is_unpartitioned(spec) else [of_inserted(partition_number_sql(spec, table.schema(), value_name))]
    return [*partition, *(order_column(of_inserted(text), field) for text, field in order_terms(table))]


def order_column(column: Column, field: SortField) -> Column:
    first = field.null_order == NullOrder.NULLS_FIRST
    if field.direction == SortDirection.ASC:
        return column.asc_nulls_first() if first else column.asc_nulls_last()
    return column.desc_nulls_first() if first else column.desc_nulls_last()
