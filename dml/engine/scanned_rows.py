"""INSERT ... SELECT from a table in scan tasks: they read, compute and write the rows. Driver.

    INSERT INTO archive SELECT id, amount * 2, 'old' FROM lake.db.orders WHERE id % 10 = 3

Spark analyses the statement like every other, so that its errors and the types of columns are Spark's; the rows bypass
it. Spark runs the statement if tasks may compute something else (`dml.plan.plain_scan`) or if rows have to be moved.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

from dml.engine.by_tasks import write_by_tasks
from dml.engine.distribution import groups_in_place
from dml.engine.engine import Engine, StatementSettings
from dml.engine.query import snapshot_to_read
from dml.engine.writes import WriteOutcome
from dml.model.columns import FILE_ORDINAL, DeltaLayout
from dml.model.scan_task import ScanContext, ScanTask
from dml.plan.insert import InsertPlan
from dml.plan.plain_scan import plain_scan
from dml.plan.row_delta_plan import DefaultValue, RawValue, raw_place
from dml.plan.row_terms import stored_value
from dml.read.projection import arrow_type, constant_array
from dml.rows.expressions import Column, Literal, Value, column_ids
from dml.rows.program import Projection
from dml.scan.planner import plan_scan
from dml.scan.source import scan_context
from dml.spark.store_assignment import StoreAssignmentPolicy, is_assignable, same_type
from dml.spark.types import spark_field, spark_type
from dml.sqlparse.statements import Fragment
from dml.views import StatementTables
from dml.write.writer_spec import WriterSpec

__all__ = ["ScannedRows", "Targets", "plain_targets", "scanned_rows", "write_scanned_rows"]


Targets = Sequence[tuple[NestedField, int | Literal]]
"""Columns of the table that rows go to, each with the place of the query's column that it takes, or its default."""

COMPUTED: Final = {
    pa.bool_(): spark_types.BooleanType(),
    pa.int32(): spark_types.IntegerType(),
    pa.int64(): spark_types.LongType(),
    pa.float64(): spark_types.DoubleType(),
    pa.string(): spark_types.StringType(),
    pa.binary(): spark_types.BinaryType(),
    pa.date32(): spark_types.DateType(),
    pa.timestamp("us"): spark_types.TimestampNTZType(),
    pa.timestamp("us", tz="UTC"): spark_types.TimestampType(),
}
"""Spark's types of values that tasks compute. Strings have the default collation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRows:
    """Rows of one snapshot of a table, and the table's columns that they go to.

    Attributes:
        context: What all groups share.
        groups: The scan tasks that each task reads.
        value_ids: Field ids of the columns that they go to; the others get NULL.
        program: The values of these columns.
    """

    context: ScanContext
    groups: Sequence[Sequence[ScanTask]]
    value_ids: tuple[int, ...]
    program: Projection


def scanned_rows(
    engine: Engine,
    settings: StatementSettings,
    tables: StatementTables,
    query: Fragment,
    found: StructType,
    targets: Targets,
    target: Table,
    properties: Mapping[str, str],
    policy: StoreAssignmentPolicy,
) -> ScannedRows | None:
    """Return the rows of a query, or None if only Spark can compute or write them.

    Args:
        engine: The session and its catalogs.
        settings: The session's settings.
        tables: Finds the table, which the statement has loaded.
        query: The query.
        found: The columns that Spark says it has.
        targets: Where they go.
        target: The table that they go to.
        properties: Its properties, the statement's own options over them.
        policy: The rules of store assignment.
    """
    if len(query.tables) != 1 or settings.quoted_regex:
        return None
    (reference,) = query.tables
    resolved = tables.resolve(reference)
    if resolved is None or resolved.metadata_table is not None:
        return None
    source = resolved.table
    snapshot_id, schema = snapshot_to_read(engine, settings, tables.statement, resolved, reference)
    scan = plain_scan(
        query,
        reference,
        schema,
        case_sensitive=settings.case_sensitive,
        time_zone=settings.time_zone,
        trees=settings.trees,
        catalogs=engine.registry.catalogs,
    )
    if scan is None:
        return None
    values = stored_values(scan.values, [column.dataType for column in found.fields], schema, targets, policy)
    if values is None:
        return None
    case_sensitive, row_filter = settings.case_sensitive, scan.condition.pruning
    tasks: Sequence[ScanTask] = ()
    if snapshot_id is not None:
        tasks = plan_scan(source, snapshot_id, row_filter, case_sensitive=case_sensitive, schema=schema).tasks
    groups = groups_in_place(tasks, source, settings, values, target, properties)
    if groups is None:
        return None
    read = dict.fromkeys(field_id for value in values.values() for field_id in sorted(column_ids(value)))
    context = scan_context(
        source,
        tasks,
        tuple(read),
        metadata_columns=() if read else (FILE_ORDINAL,),  # a batch without columns has no rows
        row_filter=None if isinstance(row_filter, AlwaysTrue) else row_filter,
        row_predicate=scan.condition.rows,
        case_sensitive=case_sensitive,
        schema=schema,
    )
    return ScannedRows(
        context=context,
        groups=groups,
        value_ids=tuple(values),
        program=Projection(values=tuple(values.values())),
    )


def stored_values(
    selected: Sequence[Value],
    kinds: Sequence[DataType],
    schema: Schema,
    targets: Targets,
    policy: StoreAssignmentPolicy,
) -> dict[int, Value] | None:
    """Return the values that are stored, by field id, or None if only Spark can convert them.

    Args:
        selected: The values of the query's columns.
        kinds: The types of these columns, from Spark.
        schema: The schema of the table that is read.
        targets: The columns that they go to.
        policy: The rules of store assignment.
    """
    if len(selected) != len(kinds):
        return None
    values: dict[int, Value] = {}
    for column, source in targets:
        if isinstance(source, Literal):
            values[column.field_id] = source
            continue
        value, kind, target = selected[source], kinds[source], spark_type(column.field_type)
        if not has_type(value, kind, schema):
            return None
        stored: Value | None = value
        if not same_type(kind, target) or isinstance(value, Literal):
            if not is_assignable(kind, target, policy):
                return None
            narrows = policy is StoreAssignmentPolicy.ANSI
            stored = stored_value(value, arrow_type(column.field_type, spark=True), narrows=narrows)
        if stored is None:
            return None
        values[column.field_id] = stored
    return values


def has_type(value: Value, kind: DataType, schema: Schema) -> bool:
    """Return whether tasks compute a value in the type that Spark gives it."""
    if isinstance(value, Column):
        return same_type(spark_field(schema.find_field(value.field_id)).dataType, kind)
    if isinstance(value, Literal) and value.value is None:
        return True
    if pa.types.is_decimal(value.type):
        return same_type(spark_types.DecimalType(value.type.precision, value.type.scale), kind)
    known = COMPUTED.get(value.type)
    return known is not None and same_type(known, kind)


def plain_targets(plan: InsertPlan) -> Targets | None:
    """Return where columns of the query go, or None if a value is neither one of them nor a default."""
    targets: list[tuple[NestedField, int | Literal]] = []
    for column, source in plan.columns:
        match source:
            case RawValue(raw=raw, fills=False) if not plan.statics:
                targets.append((column, raw_place(raw)))
            case DefaultValue() if column.write_default is None:
                pass
            case DefaultValue() if column.field_type.is_primitive:
                (value,) = constant_array(column.write_default, column.field_type, 1, spark=True)
                targets.append((column, Literal(value=value.as_py(), type=value.type)))
            case _:
                return None
    return targets


def write_scanned_rows(spark: SparkSession, rows: ScannedRows, target: Table, spec: WriterSpec) -> WriteOutcome:
    """Write the rows.

    Args:
        spark: The session.
        rows: The rows.
        target: The table that they go to.
        spec: The write.

    Raises:
        SetupError: The workers run a Python without this package.
        NumberOverflowError: A number does not fit its type; no file is left then.
        DmlError: Reading or writing failed; no file is left then.
        PySparkException: Spark failed; no file is left then.
    """
    spec = replace(spec, layout=DeltaLayout(value_ids=rows.value_ids))
    return write_by_tasks(spark, rows.program, rows.context, rows.groups, target, spec)
