"""Compute queries of one table without Spark: INSERT ... SELECT in tasks, and the source of a MERGE. Driver.

    INSERT INTO archive SELECT id, amount * 2, 'old' FROM lake.db.orders WHERE id % 10 = 3

Spark analyzes the statement like any other, so errors and column types are Spark's, but the rows bypass it. The
statement falls back to Spark if tasks might compute different values (`dml.plan.plain_scan`) or rows must be moved.
Constants and foreign rows that the driver holds are stored by the same rules; Spark does not analyze them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import types as spark_types
from pyspark.sql.types import DataType, StructType

from dml.engine.distribution import groups_in_place
from dml.engine.engine import Engine, StatementSettings
from dml.engine.query import snapshot_to_read
from dml.model.columns import FILE_ORDINAL, value_name
from dml.model.scan_task import ScanContext, ScanTask
from dml.plan.insert import InsertPlan
from dml.plan.literal_rows import literal_columns
from dml.plan.names import SqlRules
from dml.plan.plain_scan import NOT_PLAIN, PlainScan, column_value, plain_scan, selects_all
from dml.plan.row_delta_plan import DefaultValue, RawValue, ThroughSpark, raw_index
from dml.plan.row_terms import stored_value
from dml.read.projection import arrow_type, constant_array
from dml.rows.evaluate import UncomputableValueError, evaluate
from dml.rows.program import Column, Literal, Projection, Value, column_ids
from dml.scan.table_scan import TableScan
from dml.spark.foreign_data import ForeignRows
from dml.spark.store_assignment import StoreAssignmentPolicy, is_assignable, is_same_type
from dml.spark.types import iceberg_type, spark_field, spark_type
from dml.sqlparse.statements import Fragment
from dml.views import StatementTables

__all__ = [
    "DriverRows",
    "PlainRows",
    "ScannedRows",
    "Targets",
    "combine_chunks",
    "foreign_batch",
    "has_type",
    "literal_batch",
    "literal_rows",
    "literal_type",
    "plain_rows",
    "plain_targets",
    "scanned_rows",
    "selected_foreign_rows",
    "stored_in",
]


Targets = Sequence[tuple[NestedField, int | Literal]]
"""Columns of the target table, each with the index of the query's column that it gets, or its default."""

COMPUTED: Final = {
    pa.bool_(): spark_types.BooleanType(),
    pa.int32(): spark_types.IntegerType(),
    pa.int64(): spark_types.LongType(),
    pa.float32(): spark_types.FloatType(),
    pa.float64(): spark_types.DoubleType(),
    pa.string(): spark_types.StringType(),
    pa.binary(): spark_types.BinaryType(),
    pa.date32(): spark_types.DateType(),
    pa.timestamp("us"): spark_types.TimestampNTZType(),
    pa.timestamp("us", tz="UTC"): spark_types.TimestampType(),
}
"""Spark's type for each Arrow type that tasks compute. Strings have the default collation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainRows:
    """The rows of a query that a scan of one table can read, filter and compute.

    Attributes:
        table: The table.
        snapshot_id: The snapshot that the query reads; None for a table without snapshots.
        schema: The schema under which it is read.
        plain: The values of the query's columns, and its condition.
        case_sensitive: How names in the condition match.
        parallelism: The number of concurrent tasks.
    """

    table: Table
    snapshot_id: int | None
    schema: Schema
    plain: PlainScan
    case_sensitive: bool
    parallelism: int

    def scan(self, values: Iterable[Value]) -> TableScan:
        """Return the scan that reads what values need. At least one column is read."""
        read = dict.fromkeys(field_id for value in values for field_id in sorted(column_ids(value)))
        return TableScan(
            table=self.table,
            snapshot_id=self.snapshot_id,
            schema=self.schema,
            columns=tuple(read),
            metadata_columns=() if read else (FILE_ORDINAL,),  # a batch without columns has no rows
            row_filter=self.plain.condition.pruning,
            row_predicate=self.plain.condition.rows,
            case_sensitive=self.case_sensitive,
        )


def plain_rows(
    engine: Engine, settings: StatementSettings, tables: StatementTables, query: Fragment
) -> PlainRows | ThroughSpark:
    """Return the rows of a query, or the reason why only Spark can compute them.

    Args:
        engine: The session and its catalogs.
        settings: The session's settings.
        tables: Finds the table, which the statement has loaded.
        query: The query, or the name of a table.
    """
    if not query.tables:
        return ThroughSpark(reason="the query reads no table")
    if len(query.tables) > 1:
        return NOT_PLAIN
    if settings.quoted_regex:
        return ThroughSpark(reason="names in backquotes are patterns")
    (reference,) = query.tables
    resolved = tables.resolve(reference)
    if resolved is None:
        return ThroughSpark(reason="the query does not read a RowDelta table")
    if resolved.metadata_table is not None:
        return ThroughSpark(reason="the query reads a metadata table")
    snapshot_id, schema = snapshot_to_read(engine, settings, tables.statement, resolved, reference)
    plain = plain_scan(query, reference, schema, settings.rules)
    if isinstance(plain, ThroughSpark):
        return plain
    return PlainRows(
        table=resolved.table,
        snapshot_id=snapshot_id,
        schema=schema,
        plain=plain,
        case_sensitive=settings.case_sensitive,
        parallelism=settings.parallelism,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRows:
    """Rows that scan tasks read from one snapshot, and the target columns that they fill.

    Attributes:
        context: The scan context that all groups share.
        groups: The scan tasks that each task reads.
        value_ids: Field ids of the target columns that get a value; the others get NULL.
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
) -> ScannedRows | ThroughSpark:
    """Return the rows of a query, or the reason why Spark must compute or move them.

    Args:
        engine: The session and its catalogs.
        settings: The session's settings.
        tables: Finds the table, which the statement has loaded.
        query: The query.
        found: The query's columns, analyzed by Spark.
        targets: The target columns.
        target: The target table.
        properties: Its properties, overridden by the statement's options.
        policy: The rules of store assignment.
    """
    rows = plain_rows(engine, settings, tables, query)
    if isinstance(rows, ThroughSpark):
        return rows
    kinds = [column.dataType for column in found.fields]
    values = stored_values(rows.plain.values, kinds, rows.schema, targets, policy)
    if isinstance(values, ThroughSpark):
        return values
    scan = rows.scan(values.values())
    tasks = scan.plan().tasks
    groups = groups_in_place(tasks, scan, settings, values, target, properties)
    if isinstance(groups, ThroughSpark):
        return groups
    return ScannedRows(
        context=scan.context(tasks),
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
) -> dict[int, Value] | ThroughSpark:
    """Return the values to store, by field id, or the reason why Spark must convert them.

    Args:
        selected: The values of the query's columns.
        kinds: The types of these columns, from Spark.
        schema: The schema of the table that is read.
        targets: The target columns.
        policy: The rules of store assignment.
    """
    if len(selected) != len(kinds):
        return NOT_PLAIN
    values: dict[int, Value] = {}
    for column, source in targets:
        if isinstance(source, Literal):
            values[column.field_id] = source
            continue
        stored = stored_in(selected[source], kinds[source], schema, column, policy)
        if isinstance(stored, ThroughSpark):
            return stored
        values[column.field_id] = stored
    return values


def stored_in(
    value: Value, kind: DataType, schema: Schema, column: NestedField, policy: StoreAssignmentPolicy
) -> Value | ThroughSpark:
    """Return a value as it is stored in a column, or the reason why Spark must convert it.

    Args:
        value: The value.
        kind: Its type, from Spark.
        schema: The schema of the columns that it reads.
        column: The target column.
        policy: The rules of store assignment.
    """
    target = spark_type(column.field_type)
    stored: Value | None = None
    if has_type(value, kind, schema):
        if is_same_type(kind, target) and not isinstance(value, Literal):
            stored = value
        elif is_assignable(kind, target, policy):
            narrows = policy is StoreAssignmentPolicy.ANSI
            stored = stored_value(value, arrow_type(column.field_type, spark=True), narrows=narrows)
    if stored is None:
        conversion = f"{kind.simpleString()} into {target.simpleString()}"
        return ThroughSpark(reason=f"tasks cannot store {conversion} ('{column.name}') as Spark does")
    return stored


def has_type(value: Value, kind: DataType, schema: Schema) -> bool:
    """Return whether tasks compute a value in the type that Spark found for it."""
    if isinstance(value, Column):
        return is_same_type(spark_field(schema.find_field(value.field_id)).dataType, kind)
    if isinstance(value, Literal) and value.value is None:
        return True
    if pa.types.is_decimal(value.type):
        return is_same_type(spark_types.DecimalType(value.type.precision, value.type.scale), kind)
    known = COMPUTED.get(value.type)
    return known is not None and is_same_type(known, kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRows:
    """Rows that the driver holds: constants, or foreign rows.

    Attributes:
        columns: The values of its columns.
        case_sensitive: Whether column names are case-sensitive.
    """

    columns: tuple[pa.Array, ...]
    case_sensitive: bool

    @staticmethod
    def of(rows: ForeignRows, rules: SqlRules) -> "DriverRows":
        """Return foreign rows in this form."""
        return DriverRows(columns=tuple(map(combine_chunks, rows.table.columns)), case_sensitive=rules.case_sensitive)


def combine_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks of a column."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def selected_foreign_rows(foreign: Mapping[str, ForeignRows], query: Fragment) -> ForeignRows | None:
    """Return the foreign rows that a query selects without changes, or None.

    Args:
        foreign: The foreign rows that the statement names, by view.
        query: The query.
    """
    if len(query.tables) != 1:
        return None
    (reference,) = query.tables
    rows = foreign.get(reference.parts[0]) if len(reference.parts) == 1 else None
    return rows if rows is not None and selects_all(query, reference) else None


def literal_rows(query: Fragment, rules: SqlRules) -> tuple[DriverRows, list[DataType]] | None:
    """Return the constant rows of a query and Spark's types of its columns; None if only Spark can evaluate them.

    Args:
        query: The query.
        rules: Rules for its literals.
    """
    found = literal_columns(query, rules)
    if found is None:
        return None
    types = [{value.type for value in column if value.type != pa.null()} for column in found]
    kinds = [kind for known in types if len(known) == 1 and (kind := literal_type(next(iter(known)))) is not None]
    if len(kinds) < len(types):
        return None
    columns = tuple(
        pa.array([value.value for value in column], next(iter(known)))
        for column, known in zip(found, types, strict=True)
    )
    return DriverRows(columns=columns, case_sensitive=rules.case_sensitive), kinds


def literal_batch(
    columns: Sequence[Sequence[Literal]], targets: Targets, policy: StoreAssignmentPolicy
) -> pa.RecordBatch | None:
    """Return constants as they are stored: columns `v0`, `v1`, ... for the targets; None if only Spark converts them.

    Args:
        columns: The values of each column of the query.
        targets: The target columns.
        policy: The rules of store assignment.
    """
    arrays, rows = [], len(columns[0])
    for column, source in targets:
        if isinstance(source, Literal):
            stored: list[Literal | None] = [source] * rows
        else:
            stored = [stored_literal(value, column, policy) for value in columns[source]]
        known = [one for one in stored if one is not None]
        if len(known) < rows or (column.required and any(one.value is None for one in known)):
            return None
        arrays.append(pa.concat_arrays([pa.array([one.value], one.type) for one in known]))
    return pa.RecordBatch.from_arrays(arrays, names=list(map(value_name, range(len(arrays)))))


def foreign_batch(rows: ForeignRows, targets: Targets, policy: StoreAssignmentPolicy) -> pa.RecordBatch | None:
    """Convert foreign rows to the target's types: columns `v0`, `v1`, ... Return None if only Spark converts them.

    Args:
        rows: The rows.
        targets: The target columns.
        policy: The rules of store assignment.
    """
    kinds = [iceberg_type(column.dataType) for column in rows.schema.fields]
    fields = [
        NestedField(place, name, kind, required=False)
        for place, (name, kind) in enumerate(zip(rows.columns, kinds, strict=True), start=1)
        if kind is not None
    ]
    if len(fields) < len(kinds):
        return None
    schema = Schema(*fields)
    values = stored_values(
        list(map(column_value, fields)), [spark_type(field.field_type) for field in fields], schema, targets, policy
    )
    if isinstance(values, ThroughSpark):
        return None
    known = {field.field_id: combine_chunks(column) for field, column in zip(fields, rows.table.columns, strict=True)}
    try:
        arrays = [evaluate(value, known, rows.table.num_rows) for value in values.values()]
    except UncomputableValueError:
        return None
    if any(column.required and array.null_count for (column, _), array in zip(targets, arrays, strict=True)):
        return None
    return pa.RecordBatch.from_arrays(arrays, names=list(map(value_name, range(len(arrays)))))


def stored_literal(value: Literal, column: NestedField, policy: StoreAssignmentPolicy) -> Literal | None:
    """Return a constant as it is stored in a column; None if only Spark can convert it, or refuses to."""
    kind = literal_type(value.type)
    if kind is None or not column.field_type.is_primitive:
        return None
    stored = stored_in(value, kind, Schema(), column, policy)
    return stored if isinstance(stored, Literal) else None


def literal_type(kind: pa.DataType) -> DataType | None:
    """Return Spark's type for the type of a constant."""
    if pa.types.is_decimal(kind):
        return spark_types.DecimalType(kind.precision, kind.scale)
    return spark_types.NullType() if kind == pa.null() else COMPUTED.get(kind)


def plain_targets(plan: InsertPlan) -> Targets | ThroughSpark:
    """Return the target columns, or the reason why Spark must compute a value.

    Tasks can store columns of the query and defaults only.

    Args:
        plan: The source of each column's value.
    """
    if plan.statics:
        return ThroughSpark(reason="the PARTITION clause has static values")
    targets: list[tuple[NestedField, int | Literal]] = []
    for column, source in plan.columns:
        match source:
            case RawValue(raw=raw, fills=False):
                targets.append((column, raw_index(raw)))
            case DefaultValue() if column.write_default is None:
                pass
            case DefaultValue() if column.field_type.is_primitive:
                (value,) = constant_array(column.write_default, column.field_type, 1, spark=True)
                targets.append((column, Literal(value=value.as_py(), type=value.type)))
            case _:
                return ThroughSpark(reason=f"'{column.name}' is filled field by field")
    return targets
