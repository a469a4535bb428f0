"""MERGE WITH SCHEMA EVOLUTION: columns and types that the source has and the table lacks. Driver.

Input: the statement, the table and the source's schema. Output: the columns that are added and widened, in one commit
of the schema before the MERGE. Source: Iceberg documentation, "Spark Writes: schema evolution".
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import types as spark

from dml.options import SPARK_AUTO_SCHEMA_EVOLUTION, boolean
from dml.plan.assignments import TargetNames
from dml.plan.merge import whens
from dml.spark.store_assignment import widens
from dml.spark.types import spark_type, type_text
from dml.sqlparse.statements import (
    AddColumns,
    AlterColumn,
    AlterColumns,
    ColumnDefinition,
    InsertAction,
    MergeStatement,
    Span,
    UpdateAction,
)

__all__ = ["Evolution", "evolution", "evolves"]

PROMOTIONS = (
    (spark.IntegerType, spark.LongType),
    (spark.FloatType, spark.DoubleType),
    (spark.DecimalType, spark.DecimalType),
)
"""What Iceberg can widen in place (specification, "Schema Evolution")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evolution:
    """What ALTER TABLE would have to do; all of it is one change of the schema.

    Attributes:
        added: Columns and struct fields that the table lacks; they are optional and come last.
        widened: Columns whose type is narrower than the source's, where Iceberg can widen it.
    """

    added: AddColumns
    widened: AlterColumns


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where the source's type and the table's are not both structs, arrays or maps.

    Attributes:
        path: Names from the column down; `element` and `value` are the inside of an array and a map.
        wanted: The source's type.
        current: The table's type; None where it has no such field.
    """

    path: tuple[str, ...]
    wanted: spark.DataType
    current: IcebergType | None


def evolves(statement: MergeStatement, properties: dict[str, str]) -> bool:
    """Whether the statement may change the schema: it says so, the table allows it, and a star takes every column."""
    if not statement.with_schema_evolution:
        return False
    if not boolean(properties, SPARK_AUTO_SCHEMA_EVOLUTION, default=True):
        return False
    actions = [when.action for when in whens(statement)]
    return any(isinstance(action, UpdateAction | InsertAction) and action.assignments is None for action in actions)


def evolution(source: spark.StructType, schema: Schema, names: TargetNames, span: Span) -> Evolution:
    """What has to change before the source's columns fit.

    Args:
        source: The source's schema.
        schema: The table's schema.
        names: How names are compared.
        span: The place of the source, for errors.
    """
    found = tuple(differences(source, schema.as_struct(), names))
    return Evolution(
        added=AddColumns(
            columns=tuple(
                ColumnDefinition(path=difference.path, data_type=type_text(difference.wanted), span=span)
                for difference in found
                if difference.current is None
            )
        ),
        widened=AlterColumns(
            columns=tuple(
                AlterColumn(column=difference.path, span=span, data_type=type_text(difference.wanted))
                for difference in found
                if difference.current is not None and promotes(spark_type(difference.current), difference.wanted)
            )
        ),
    )


def differences(
    source: spark.DataType, current: IcebergType, names: TargetNames, path: tuple[str, ...] = ()
) -> Iterator[Difference]:
    """Where two types differ: fields that the table lacks, and what is of another type inside.

    The walk goes through structs, the elements of arrays and the values of maps; the key of a map cannot change.
    """
    match source, current:
        case spark.StructType(), StructType():
            known = {names.folded(field.name): field for field in current.fields}
            for column in source.fields:
                field = known.get(names.folded(column.name))
                if field is None:
                    yield Difference(path=(*path, column.name), wanted=column.dataType, current=None)
                else:
                    yield from differences(column.dataType, field.field_type, names, (*path, field.name))
        case spark.ArrayType(), ListType():
            yield from differences(source.elementType, current.element_type, names, (*path, "element"))
        case spark.MapType(), MapType():
            yield from differences(source.valueType, current.value_type, names, (*path, "value"))
        case _:
            yield Difference(path=path, wanted=source, current=current)


def promotes(current: spark.DataType, wanted: spark.DataType) -> bool:
    """Whether Iceberg can widen a type to another in place."""
    if current == wanted or not any(
        isinstance(current, narrow) and isinstance(wanted, wide) for narrow, wide in PROMOTIONS
    ):
        return False
    if isinstance(current, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return current.scale == wanted.scale and current.precision < wanted.precision
    return widens(current, wanted)
