"""MERGE WITH SCHEMA EVOLUTION: columns and types that the source has and the table lacks. Driver.

Input: the statement, the table and the source's schema. Output: what ALTER TABLE does before the MERGE is planned, each
a commit of its own, as in Spark. Source: Iceberg documentation, "Spark Writes: schema evolution".
"""

from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType
from pyspark.sql import types as spark

from dml.options import boolean
from dml.plan.assignments import TargetNames
from dml.plan.merge import whens
from dml.plan.store_assignment import widens
from dml.spark.types import spark_type, type_text
from dml.sqlparse.statements import (
    AddColumns,
    AlterAction,
    AlterColumn,
    ColumnDefinition,
    InsertAction,
    MergeStatement,
    Span,
    UpdateAction,
)

__all__ = ["evolution", "evolves"]

PROMOTIONS = (
    (spark.IntegerType, spark.LongType),
    (spark.FloatType, spark.DoubleType),
    (spark.DecimalType, spark.DecimalType),
)
"""What Iceberg can widen in place (specification, "Schema Evolution")."""


def evolves(statement: MergeStatement, properties: dict[str, str]) -> bool:
    """Whether the statement may change the schema: it says so, the table allows it, and a star takes every column."""
    if not statement.with_schema_evolution:
        return False
    if not boolean(properties, "write.spark.auto-schema-evolution.enabled", default=True):
        return False
    actions = [when.action for when in whens(statement)]
    return any(isinstance(action, UpdateAction | InsertAction) and action.assignments is None for action in actions)


def evolution(source: spark.StructType, schema: Schema, names: TargetNames, span: Span) -> Iterator[AlterAction]:
    """What ALTER TABLE has to do before the source's columns fit.

    Args:
        source: The source's schema.
        schema: The table's schema.
        names: How names are compared.
        span: The place of the source, for errors.
    """
    added = tuple(additions(source, schema.fields, names, (), span))
    if added:
        yield AddColumns(columns=added)
    yield from widenings(source, schema.fields, names, (), span)


def matched(
    source: spark.StructType, fields: tuple[NestedField, ...], names: TargetNames
) -> Iterator[tuple[spark.StructField, NestedField | None]]:
    """The source's fields with the table's of the same name."""
    known = {names.folded(field.name): field for field in fields}
    for column in source.fields:
        yield column, known.get(names.folded(column.name))


def additions(
    source: spark.StructType,
    fields: tuple[NestedField, ...],
    names: TargetNames,
    path: tuple[str, ...],
    span: Span,
) -> Iterator[ColumnDefinition]:
    """Columns and struct fields that the table lacks; they are optional and come last."""
    for column, field in matched(source, fields, names):
        if field is None:
            yield ColumnDefinition(path=(*path, column.name), data_type=type_text(column.dataType), span=span)
        elif isinstance(column.dataType, spark.StructType) and isinstance(field.field_type, StructType):
            yield from additions(column.dataType, field.field_type.fields, names, (*path, field.name), span)


def widenings(
    source: spark.StructType,
    fields: tuple[NestedField, ...],
    names: TargetNames,
    path: tuple[str, ...],
    span: Span,
) -> Iterator[AlterColumn]:
    """Columns whose type is narrower than the source's, where Iceberg can widen it."""
    for column, field in matched(source, fields, names):
        if field is None:
            continue
        if isinstance(column.dataType, spark.StructType) and isinstance(field.field_type, StructType):
            yield from widenings(column.dataType, field.field_type.fields, names, (*path, field.name), span)
        elif promotes(spark_type(field.field_type), column.dataType):
            yield AlterColumn(column=(*path, field.name), span=span, data_type=type_text(column.dataType))


def promotes(current: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether Iceberg can widen a type to another in place."""
    if current == wanted or not any(
        isinstance(current, narrow) and isinstance(wanted, wide) for narrow, wide in PROMOTIONS
    ):
        return False
    if isinstance(current, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return current.scale == wanted.scale and current.precision < wanted.precision
    return widens(current, wanted)
