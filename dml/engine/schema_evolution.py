"""A write that changes the schema of its table: what its rows have beside the columns, as one change. Driver.

Input: the columns of the new rows, as Spark has them; the table's schema. Output: a `SchemaEvolution`, by which the
statement is planned and its files are written, and which is committed together with the snapshot of the rows: others
see both or none of it, and a statement that fails leaves the schema as it was.

Columns and fields of structs are added at the end, and are optional; types are widened where Iceberg can do so in
place. Nothing is narrowed, dropped or made optional. Source: Iceberg specification, "Schema Evolution";
`UnionByNameVisitor.java`; Iceberg documentation, "Spark Writes: schema merge".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import types as spark

from dml.ddl.alter_table import evolution_change
from dml.ddl.commit import MetadataChange, SchemaEvolution
from dml.engine.engine import StatementSettings
from dml.engine.target import Target
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

__all__ = ["evolves", "merged_target"]

PROMOTIONS: Final = (
    (spark.IntegerType, spark.LongType),
    (spark.FloatType, spark.DoubleType),
    (spark.DecimalType, spark.DecimalType),
)
"""What Iceberg can widen in place (specification, "Schema Evolution")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where the source's type and the table's are not both structs, arrays or maps.

    Attributes:
        path: Names from the column down; `element` and `value` are the inside of an array and a map.
        wanted: The source's type.
        current: The table's type; None where it has no such field.
        comment: What the source says of the field.
    """

    path: tuple[str, ...]
    wanted: spark.DataType
    current: IcebergType | None
    comment: str | None = None


def evolves(statement: MergeStatement, properties: dict[str, str]) -> bool:
    """Whether a MERGE may change the schema: it says so, the table allows it, and a star takes every column."""
    if not statement.with_schema_evolution:
        return False
    if not boolean(properties, SPARK_AUTO_SCHEMA_EVOLUTION, default=True):
        return False
    actions = [when.action for when in whens(statement)]
    return any(isinstance(action, UpdateAction | InsertAction) and action.assignments is None for action in actions)


def merged_target(target: Target, source: spark.StructType, settings: StatementSettings, span: Span) -> Target:
    """A target that has the columns of the source, matched by name.

    Args:
        target: The target.
        source: The columns of the new rows.
        settings: The session's settings.
        span: The place of the source, for errors.

    Returns:
        The target as it will be; the same where nothing has to change.

    Raises:
        AnalysisError: a column cannot be added.
        NotSupportedError: the format has no such type, or a name is reserved.
    """

    def change(metadata: TableMetadata) -> MetadataChange:
        added, widened = union_by_name(source, metadata.schema(), target.names, span)
        return evolution_change(added, widened, metadata, time_zone=settings.time_zone)

    evolution = SchemaEvolution.of(target.table, change)
    return target if evolution is None else target.evolved(evolution)


def union_by_name(
    source: spark.StructType, schema: Schema, names: TargetNames, span: Span
) -> tuple[AddColumns, AlterColumns]:
    """What ALTER TABLE would have to do before the source's columns fit: what it adds, and what it widens."""
    found = tuple(differences(source, schema.as_struct(), names))
    added = tuple(
        ColumnDefinition(
            path=difference.path, data_type=type_text(difference.wanted), comment=difference.comment, span=span
        )
        for difference in found
        if difference.current is None
    )
    widened = tuple(
        AlterColumn(column=difference.path, span=span, data_type=type_text(difference.wanted))
        for difference in found
        if difference.current is not None and promotes(spark_type(difference.current), difference.wanted)
    )
    return AddColumns(columns=added), AlterColumns(columns=widened)


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
                    comment = (column.metadata or {}).get("comment")
                    yield Difference(path=(*path, column.name), wanted=column.dataType, current=None, comment=comment)
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
