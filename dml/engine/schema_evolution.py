"""Writes whose rows have other columns than the table, and what they change of its schema. Driver.

Input: the columns of the new rows, as Spark has them; the table's schema. Output: a `SchemaEvolution`, by which the
statement is planned and its files are written, and which is committed together with the snapshot of the rows: others
see both or none of it, and a statement that fails leaves the schema as it was.

Columns and fields of structs are added at the end, and are optional; types are widened where Iceberg can do so in
place. Nothing is narrowed, dropped or made optional. Source: Iceberg specification, "Schema Evolution";
`UnionByNameVisitor.java`; Iceberg documentation, "Spark Writes: schema merge".
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.types import IcebergType, ListType, MapType, StructType
from pyspark.sql import types as spark

from dml.ddl import schema_from_json
from dml.ddl.alter_table import evolution_change, replaced_columns
from dml.ddl.commit import MetadataChange, SchemaEvolution
from dml.engine.engine import StatementSettings
from dml.engine.replaced_rows import Replaced
from dml.engine.target import Target
from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.options import SPARK_ACCEPT_ANY_SCHEMA, SPARK_AUTO_SCHEMA_EVOLUTION, boolean
from dml.plan.merge_clauses import whens
from dml.plan.names import TargetNames
from dml.spark.store_assignment import Assign, StoreAssignmentPolicy, widens
from dml.spark.types import spark_type, type_text
from dml.sqlparse.statements import (
    AddColumns,
    AlterColumn,
    AlterColumns,
    ColumnDefinition,
    InsertAction,
    InsertStatement,
    MergeStatement,
    Span,
    UpdateAction,
)

__all__ = [
    "COLUMN_OPTIONS",
    "ColumnOptions",
    "Fitted",
    "accepts_any_schema",
    "evolves",
    "fitted_insert",
    "fitted_rows",
    "merged_target",
    "overwritten_target",
]

NOWHERE: Final = Span(0, 0)

PROMOTIONS: Final = (
    (spark.IntegerType, spark.LongType),
    (spark.FloatType, spark.DoubleType),
    (spark.DecimalType, spark.DecimalType),
)
"""What Iceberg can widen in place (specification, "Schema Evolution")."""


COLUMN_OPTIONS: Final[Mapping[str, str]] = {
    "merge-schema": "merge-schema",
    "mergeschema": "merge-schema",
    "overwrite-schema": "overwrite-schema",
    "overwriteschema": "overwrite-schema",
    "check-ordering": "check-ordering",
    "check-nullability": "check-nullability",
}
"""Write options about columns, in small letters: Iceberg's names, and those that Spark's users know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """What becomes of columns that are not those of the table; None leaves it to the session's setting.

    Attributes:
        merges: Whether new columns are added, and types widened.
        overwrites: Whether an overwrite of all rows replaces the columns as well.
        checks_ordering: Whether columns have to come in the order of the table, although they are matched by name.
        checks_nullability: Whether a column that may be NULL is refused where the table requires a value; else each
            value is looked at.
    """

    merges: bool | None = None
    overwrites: bool = False
    checks_ordering: bool | None = None
    checks_nullability: bool | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Those among write options, whose names are in small letters."""
        named = {COLUMN_OPTIONS[key]: value for key, value in given.items() if key in COLUMN_OPTIONS}

        def flag(key: str) -> bool | None:
            return boolean(named, key, default=False) if key in named else None

        return cls(
            merges=flag("merge-schema"),
            overwrites=bool(flag("overwrite-schema")),
            checks_ordering=flag("check-ordering"),
            checks_nullability=flag("check-nullability"),
        )

    def in_session(self, settings: StatementSettings) -> Self:
        """With what the session says of the others."""
        session = self.of({key: value for key, value in settings.iceberg.items() if key != "overwrite-schema"})
        return replace(
            self,
            merges=session.merges if self.merges is None else self.merges,
            checks_ordering=session.checks_ordering if self.checks_ordering is None else self.checks_ordering,
            checks_nullability=session.checks_nullability
            if self.checks_nullability is None
            else self.checks_nullability,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A target that has a place for each column of the new rows, or says which it has not when they are matched.

    Attributes:
        target: The target, perhaps with a change of its schema.
        fills: Whether structs may lack fields.
        widens_only: Whether a value may go into a wider type alone, whatever the session's rules of store assignment.
    """

    target: Target
    fills: bool = False
    widens_only: bool = False

    def assign(self, settings: StatementSettings, *, by_name: bool) -> Assign:
        """The rules of store assignment; fields of structs go by name where columns are added by name."""
        policy = StoreAssignmentPolicy.STRICT if self.widens_only else settings.policy
        return Assign(policy=policy, case_sensitive=settings.case_sensitive, by_name=by_name or self.fills)


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


def accepts_any_schema(table: Table) -> bool:
    """Whether writers may bring other columns than the table's (`write.spark.accept-any-schema`)."""
    return boolean(table.properties, SPARK_ACCEPT_ANY_SCHEMA, default=False)


def fitted_insert(
    statement: InsertStatement,
    target: Target,
    source: spark.StructType,
    options: ColumnOptions,
    settings: StatementSettings,
    replaced: Replaced | None,
    is_given: bool,
) -> Fitted:
    """The target of an INSERT, with its columns.

    Args:
        statement: The statement.
        target: Its target.
        source: The columns of its query.
        options: Its options about columns.
        settings: The session's settings.
        replaced: Which rows it replaces.
        is_given: Whether a DataFrame's writer gives the rows, and no text.

    Raises:
        DmlError: the columns cannot be added, or cannot be as the options want them.
    """
    if is_given and accepts_any_schema(target.table):
        return fitted_rows(target, source, options, settings, replaced)
    if options.overwrites:
        return Fitted(target=overwritten_target(target, source, settings, replaced), fills=True)
    # By its setting alone a session does not add columns whose names nobody chose: VALUES has `col1`, `col2`.
    merges = options.in_session(settings).merges if statement.by_name else options.merges
    properties = target.table.properties
    evolves = statement.with_schema_evolution and boolean(properties, SPARK_AUTO_SCHEMA_EVOLUTION, default=True)
    names_columns = bool(statement.columns) or any(entry.value is not None for entry in statement.partition)
    if names_columns or not (evolves or (merges and accepts_any_schema(target.table))):
        return Fitted(target=target)
    placed = source if statement.by_name else at_their_places(source, target)
    return Fitted(target=merged_target(target, placed, settings, statement.query.span), fills=True)


def fitted_rows(
    target: Target,
    source: spark.StructType,
    options: ColumnOptions,
    settings: StatementSettings,
    replaced: Replaced | None,
) -> Fitted:
    """The target of a writer's rows, in a table that accepts any columns: they are matched by name.

    Args:
        target: The target.
        source: The columns of the rows.
        options: The write's options about columns.
        settings: The session's settings.
        replaced: Which rows it replaces.

    Raises:
        DmlError: the columns cannot be added, or cannot be as the options want them.
    """
    options = options.in_session(settings)
    if options.overwrites:
        return Fitted(target=overwritten_target(target, source, settings, replaced), fills=True, widens_only=True)
    if options.merges:
        target = merged_target(target, source, settings, NOWHERE)
    schema = target.table.schema()
    if options.checks_ordering is not False:
        check_ordering(source, schema.as_struct(), target.names)
    if options.checks_nullability:
        check_nullability(source, target.names)
    return Fitted(target=target, fills=True, widens_only=True)


def at_their_places(source: spark.StructType, target: Target) -> spark.StructType:
    """Columns that are matched by their places, under the table's names; those beyond its last keep theirs.

    One that is called as a column before stays out: it is one too many.
    """
    fields = target.table.schema().fields
    known = {target.names.folded(field.name) for field in fields}
    placed = [
        spark.StructField(field.name, column.dataType) for field, column in zip(fields, source.fields, strict=False)
    ]
    beyond = [column for column in source.fields[len(fields) :] if target.names.folded(column.name) not in known]
    return spark.StructType([*placed, *beyond])


def overwritten_target(
    target: Target, source: spark.StructType, settings: StatementSettings, replaced: Replaced | None
) -> Target:
    """A target that has the columns of the source and no others: all of its rows are replaced.

    Raises:
        NotSupportedError: rows stay, the rows of main among them, the table does not accept it, or it is partitioned,
            sorted or identified by a column that would go.
    """
    if target.branch != MAIN_BRANCH or target.wap_id is not None:
        raise NotSupportedError(
            f"The write option 'overwrite-schema' is for {MAIN_BRANCH} alone: there is one schema for all branches",
            hint="Add columns with 'merge-schema', or write to main",
            option="overwrite-schema",
        )
    if replaced is None or replaced.row_filter != AlwaysTrue():
        raise NotSupportedError(
            "The write option 'overwrite-schema' needs a write that replaces all rows",
            hint="Overwrite all rows (overwrite(lit(True)), INSERT OVERWRITE without partitions, 'overwrite-mode' "
            "static), or add columns with 'merge-schema'",
            option="overwrite-schema",
        )
    if not accepts_any_schema(target.table):
        raise NotSupportedError(
            f"The table {target.resolved.name} does not accept other columns than its own",
            hint=f"ALTER TABLE ... SET TBLPROPERTIES ('{SPARK_ACCEPT_ANY_SCHEMA}' = 'true'), or replace the table",
            option="overwrite-schema",
        )
    text = source.json()

    def change(metadata: TableMetadata) -> MetadataChange:
        return replaced_columns(metadata, schema_from_json(text), case_sensitive=settings.case_sensitive)

    evolution = SchemaEvolution.of(target.table, change)
    return target if evolution is None else target.evolved(evolution)


def check_ordering(source: spark.DataType, target: IcebergType, names: TargetNames, path: tuple[str, ...] = ()) -> None:
    """Refuse columns, or fields of structs, in another order than the table's.

    Raises:
        AnalysisError: one comes after another that the table has behind it.
    """
    match source, target:
        case spark.StructType(), StructType():
            places = {names.folded(field.name): place for place, field in enumerate(target.fields)}
            last, before = -1, ""
            for column in source.fields:
                place = places.get(names.folded(column.name))
                if place is None:
                    continue
                if place < last:
                    raise AnalysisError(
                        f"The column '{'.'.join((*path, column.name))}' is out of order: the table has it before "
                        f"'{before}'",
                        kind=ErrorKind.INVALID_ASSIGNMENT,
                        hint="Columns go by their names here: set the option 'check-ordering' to 'false' if that is "
                        "meant, or select them in the table's order",
                        column=column.name,
                    )
                last, before = place, column.name
                check_ordering(column.dataType, target.fields[place].field_type, names, (*path, column.name))
        case spark.ArrayType(), ListType():
            check_ordering(source.elementType, target.element_type, names, (*path, "element"))
        case spark.MapType(), MapType():
            check_ordering(source.valueType, target.value_type, names, (*path, "value"))
        case _:
            pass


def check_nullability(source: spark.StructType, names: TargetNames) -> None:
    """Refuse columns that may be NULL where the table requires values.

    Raises:
        AnalysisError: there is one.
    """
    for column in source.fields:
        field = names.column(column.name)
        if field is not None and field.required and column.nullable:
            raise AnalysisError(
                f"The column '{field.name}' is required, and that of the rows may be NULL",
                kind=ErrorKind.INVALID_ASSIGNMENT,
                hint="Leave the option 'check-nullability' out: then each value is looked at",
                column=field.name,
            )


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
