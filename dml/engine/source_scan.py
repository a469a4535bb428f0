"""Plan to read and compute the source of a MERGE by RowDelta's own scan, if it is a query of one table. Driver.

    MERGE INTO t USING (SELECT id, n + 1 AS n FROM lake.db.changes WHERE abs(n) > 3) s ON t.id = s.id WHEN MATCHED ...

The scan reads, filters and computes the fields of the source that the statement needs. The keys, conditions and new
values of the statement are computed from these fields. If the source has a DataFrame, Spark analyzes the same
expressions first. Otherwise the types are those of the row compiler, which accepts only what Spark accepts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql.types import DataType

from dml.engine.join_keys import PruningKey
from dml.engine.merge_source import MergeSourceFrame
from dml.engine.scanned_rows import DriverRows, PlainRows, has_type, literal_type, stored_in
from dml.plan.merge import OnlySparkError
from dml.plan.plain_scan import NOT_PLAIN
from dml.plan.row_delta_plan import SentSourcePlan, SourceColumn, ThroughSpark, only_spark, raw_name
from dml.plan.row_terms import stored_value
from dml.read.projection import arrow_type, constant_array
from dml.rows.evaluate import CompiledPredicate, evaluate
from dml.rows.program import CaseWhen, Column, Comparison, Literal, Predicate, Value, column_ids, source_id
from dml.spark.store_assignment import StoreAssignmentPolicy
from dml.spark.types import spark_field
from dml.sqlparse.quoting import unquoted

__all__ = ["SourceProgram", "source_program"]

BOOLEAN: Final = pa.bool_()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgram:
    """The program that reads and computes a source.

    Attributes:
        rows: Its query.
        field_ids: The required fields of the source (`MergeSource.fields`), at least one.
        fields: Their values over the columns of the table that the query reads.
        keys: The join keys, over the fields.
        columns: The columns of the plan, over the fields and the columns before them, which have a `source_id`.
    """

    rows: PlainRows | DriverRows
    field_ids: tuple[int, ...]
    fields: tuple[Value, ...]
    keys: tuple[Value, ...]
    columns: tuple[Value | Predicate, ...]

    def compute(self, fields: Sequence[pa.Array]) -> list[pa.Array]:
        """Compute the keys and columns.

        Args:
            fields: The fields, in the order of `field_ids`.

        Raises:
            UncomputableValueError: Only Spark can compute a value.
        """
        known, rows = dict(zip(self.field_ids, fields, strict=True)), len(fields[0])
        found = [evaluate(key, known, rows) for key in self.keys]
        for place, column in enumerate(self.columns):
            if isinstance(column, Predicate):
                array = pa.array(CompiledPredicate(column).mask(known, rows))
            else:
                array = evaluate(column, known, rows)
            known[source_id(place)] = array
            found.append(array)
        return found


def source_program(
    plan: SentSourcePlan, source: MergeSourceFrame, kinds: Mapping[str, DataType] | None, policy: StoreAssignmentPolicy
) -> SourceProgram | ThroughSpark:
    """Return the program that reads and computes a source, or the reason why only Spark can.

    Args:
        plan: The columns to compute.
        source: The source.
        kinds: The types that Spark found for the expressions of these columns, by raw name. None if Spark did not
            analyze them.
        policy: The rules of store assignment.
    """
    rows, fields = source.scan, {field.field_id: field for field in source.described.fields}
    if isinstance(rows, ThroughSpark):
        return rows
    if isinstance(rows, PlainRows) and len(rows.plain.values) != len(
        source.schema.fields
    ):  # `*` has metadata columns that the query names
        return NOT_PLAIN
    schema = Schema(*fields.values())
    try:
        keys = tuple(key_value(key, schema, case_sensitive=rows.case_sensitive) for key in source.pruning_keys)
        columns = tuple(
            column_value(column, kind, schema, policy)
            for column, kind in zip(plan.columns, kinds_of(plan, kinds, schema), strict=True)
        )
        needed = sorted({found for value in (*keys, *columns) for found in column_ids(value) if found > 0})
        values = tuple(field_value(rows, fields[field_id], source) for field_id in needed)
    except OnlySparkError as error:
        return ThroughSpark(reason=str(error))
    return SourceProgram(rows=rows, field_ids=tuple(needed), fields=values, keys=keys, columns=columns)


def kinds_of(plan: SentSourcePlan, kinds: Mapping[str, DataType] | None, fields: Schema) -> Iterator[DataType | None]:
    """Yield the types of the columns' expressions: those of Spark, or those in which tasks compute them."""
    for place, column in enumerate(plan.columns):
        yield own_type(column, fields) if kinds is None else kinds.get(raw_name(place))


def own_type(column: SourceColumn, fields: Schema) -> DataType | None:
    """Return Spark's type for the value of a column; None for a condition, or if only Spark can compute it."""
    value = column.value
    if value is None or isinstance(value, Predicate):
        return None
    if not isinstance(value, Column):
        return literal_type(value.type)
    return spark_field(fields.find_field(value.field_id)).dataType if value.field_id > 0 else None


def key_value(key: PruningKey, fields: Schema, *, case_sensitive: bool) -> Value:
    """Return a join key in the type of the target's column.

    Raises:
        OnlySparkError: Only Spark can convert it.
    """
    folded = str if case_sensitive else str.lower
    name = folded(unquoted(key.name))
    same = [field for field in fields.fields if folded(field.name) == name]
    if same and key.is_exact:
        value = Column(field_id=same[0].field_id, type=arrow_type(same[0].field_type, spark=True))
        found = stored_value(value, arrow_type(key.column.field_type, spark=True), narrows=False)
        if found is not None:
            return found
    raise OnlySparkError(f"tasks cannot convert {key.name} into {key.column.field_type} as Spark does")


def column_value(
    column: SourceColumn, kind: DataType | None, fields: Schema, policy: StoreAssignmentPolicy
) -> Value | Predicate:
    """Return a column as an expression over the fields of the source.

    Args:
        column: The column.
        kind: Spark's type of its expression.
        fields: The fields.
        policy: The rules of store assignment.

    Raises:
        OnlySparkError: Only Spark can compute it.
    """
    if column.sql is None:
        assert column.value_of is not None
        return default_value(column.value_of)
    if column.value is None:
        raise OnlySparkError(only_spark(column.sql).reason)
    if column.value_of is None:
        return column.value
    if kind is None:
        raise OnlySparkError(only_spark(column.sql).reason)
    assert not isinstance(column.value, Predicate)
    stored = stored_in(column.value, kind, fields, column.value_of, policy)
    if isinstance(stored, ThroughSpark):
        raise OnlySparkError(stored.reason)
    if column.guard is None:
        return stored
    flag = Column(field_id=source_id(column.guard), type=BOOLEAN)
    guard = Comparison(operator="=", left=flag, right=Literal(value=True, type=BOOLEAN), type=BOOLEAN)
    return CaseWhen(branches=((guard, stored),), default=Literal(value=None, type=stored.type), type=stored.type)


def default_value(column: NestedField) -> Value:
    """Return the default of a column of the target.

    Raises:
        OnlySparkError: It is neither NULL nor a primitive value.
    """
    kind = arrow_type(column.field_type, spark=True)
    if column.write_default is None:
        return Literal(value=None, type=kind)
    if not column.field_type.is_primitive:
        raise OnlySparkError(f"the default of '{column.name}' is not a primitive value")
    (value,) = constant_array(column.write_default, column.field_type, 1, spark=True)
    return Literal(value=value.as_py(), type=kind)


def field_value(rows: PlainRows | DriverRows, field: NestedField, source: MergeSourceFrame) -> Value:
    """Return the value of a field of the source, over the columns of the table that it reads.

    Raises:
        OnlySparkError: It may have another type in Spark.
    """
    if isinstance(rows, DriverRows):
        return Column(field_id=field.field_id, type=arrow_type(field.field_type, spark=True))
    place = field.field_id - 1
    value, kind = rows.plain.values[place], source.schema.fields[place].dataType
    found = stored_value(value, arrow_type(field.field_type, spark=True), narrows=False)
    if found is None or not has_type(value, kind, rows.schema):
        raise OnlySparkError(only_spark(field.name).reason)
    return found
