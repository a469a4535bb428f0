"""Evolve the table's schema for writes whose rows have other columns than the table. Driver.

Input: the columns of the new rows, as Spark types; the table's schema. Output: a `SchemaEvolution`, with which the
statement is planned and its files are written. It is committed together with the snapshot of the rows: others see both
or neither, and a statement that fails leaves the schema unchanged.

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
from dml.plan.merge import when_clauses
from dml.plan.names import TargetNames
from dml.spark.store_assignment import Assign, StoreAssignmentPolicy, is_upcast
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
    "fit_insert",
    "fit_rows",
    "merge_target_schema",
    "overwrite_target_schema",
]

NOWHERE: Final = Span(0, 0)

PROMOTIONS: Final = (
    (spark.IntegerType, spark.LongType),
    (spark.FloatType, spark.DoubleType),
    (spark.DecimalType, spark.DecimalType),
)
"""Types that Iceberg can widen in place, with the wider types (specification, "Schema Evolution")."""


COLUMN_OPTIONS: Final[Mapping[str, str]] = {
    "merge-schema": "merge-schema",
    "mergeschema": "merge-schema",
    "overwrite-schema": "overwrite-schema",
    "overwriteschema": "overwrite-schema",
    "check-ordering": "check-ordering",
    "check-nullability": "check-nullability",
}
"""Write options about columns, in lower case: Iceberg's names, and the spellings common in Spark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOptions:
    """The write options about columns; None leaves an option to the session's setting.

    Attributes:
        merges: Whether new columns are added, and types widened.
        overwrites: Whether an overwrite of all rows replaces the columns as well.
        checks_ordering: Whether columns must be in the order of the table, although they are matched by name.
        checks_nullability: Whether a nullable column is rejected if the table requires a value; else each value is
            checked.
    """

    merges: bool | None = None
    overwrites: bool = False
    checks_ordering: bool | None = None
    checks_nullability: bool | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Read the options about columns among write options, whose names are in lower case."""
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
        """Fill the options that are None from the session's settings."""
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
    """A target that fits the columns of the new rows. Columns that it lacks are reported when columns are matched.

    Attributes:
        target: The target, perhaps with a change of its schema.
        fills: Whether structs may lack fields.
        widens_only: Whether values may only be widened, whatever the session's rules of store assignment.
    """

    target: Target
    fills: bool = False
    widens_only: bool = False

    def assign(self, settings: StatementSettings, *, by_name: bool) -> Assign:
        """Return the rules of store assignment; struct fields are matched by name if columns are added by name."""
        policy = StoreAssignmentPolicy.STRICT if self.widens_only else settings.policy
        return Assign(policy=policy, case_sensitive=settings.case_sensitive, by_name=by_name or self.fills)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A place where the source's type and the table's are not both structs, arrays or maps.

    Attributes:
        path: Names from the column down; `element` and `value` are the inside of an array and a map.
        wanted: The source's type.
        current: The table's type; None if it has no such field.
        comment: The source's comment on the field.
    """

    path: tuple[str, ...]
    wanted: spark.DataType
    current: IcebergType | None
    comment: str | None = None


def evolves(statement: MergeStatement, properties: dict[str, str]) -> bool:
    """Return whether a MERGE may change the schema: WITH SCHEMA EVOLUTION, the table's property, and a star clause."""
    if not statement.with_schema_evolution:
        return False
    if not boolean(properties, SPARK_AUTO_SCHEMA_EVOLUTION, default=True):
        return False
    actions = [when.action for when in when_clauses(statement)]
    return any(isinstance(action, UpdateAction | InsertAction) and action.assignments is None for action in actions)


def accepts_any_schema(table: Table) -> bool:
    """Return whether writers may bring other columns than the table's (`write.spark.accept-any-schema`)."""
    return boolean(table.properties, SPARK_ACCEPT_ANY_SCHEMA, default=False)


def fit_insert(
    statement: InsertStatement,
    target: Target,
    source: spark.StructType,
    options: ColumnOptions,
    settings: StatementSettings,
    replaced: Replaced | None,
    is_given: bool,
) -> Fitted:
    """Return the target of an INSERT, evolved to fit its columns if they may change the schema.

    Args:
        statement: The statement.
        target: Its target.
        source: The columns of its query.
        options: Its options about columns.
        settings: The session's settings.
        replaced: The rows that it replaces.
        is_given: Whether the rows come from a DataFrame's writer instead of SQL text.

    Raises:
        DmlError: the columns cannot be added, or violate the options.
    """
    if is_given and accepts_any_schema(target.table):
        return fit_rows(target, source, options, settings, replaced)
    if options.overwrites:
        return Fitted(target=overwrite_target_schema(target, source, settings, replaced), fills=True)
    # The session's setting alone does not add columns by position: their names may be generated, as `col1` of VALUES.
    merges = options.in_session(settings).merges if statement.by_name else options.merges
    properties = target.table.properties
    evolves = statement.with_schema_evolution and boolean(properties, SPARK_AUTO_SCHEMA_EVOLUTION, default=True)
    names_columns = bool(statement.columns) or any(entry.value is not None for entry in statement.partition)
    if names_columns or not (evolves or (merges and accepts_any_schema(target.table))):
        return Fitted(target=target)
    placed = source if statement.by_name else name_by_position(source, target)
    return Fitted(target=merge_target_schema(target, placed, settings, statement.query.span), fills=True)


def fit_rows(
    target: Target,
    source: spark.StructType,
    options: ColumnOptions,
    settings: StatementSettings,
    replaced: Replaced | None,
) -> Fitted:
    """Return the target of a writer's rows in a table that accepts any columns: columns are matched by name.

    Args:
        target: The target.
        source: The columns of the rows.
        options: The write's options about columns.
        settings: The session's settings.
        replaced: The rows that they replace.

    Raises:
        DmlError: the columns cannot be added, or violate the options.
    """
    options = options.in_session(settings)
    if options.overwrites:
        return Fitted(target=overwrite_target_schema(target, source, settings, replaced), fills=True, widens_only=True)
    if options.merges:
        target = merge_target_schema(target, source, settings, NOWHERE)
    schema = target.table.schema()
    if options.checks_ordering is not False:
        check_ordering(source, schema.as_struct(), target.names)
    if options.checks_nullability:
        check_nullability(source, target.names)
    return Fitted(target=target, fills=True, widens_only=True)


def name_by_position(source: spark.StructType, target: Target) -> spark.StructType:
    """Rename columns that are matched by position to the table's names; those beyond its last keep theirs.

    A column beyond the last with the name of a table column is dropped: there are too many columns then.
    """
    fields = target.table.schema().fields
    known = {target.names.folded(field.name) for field in fields}
    placed = [
        spark.StructField(field.name, column.dataType) for field, column in zip(fields, source.fields, strict=False)
    ]
    beyond = [column for column in source.fields[len(fields) :] if target.names.folded(column.name) not in known]
    return spark.StructType([*placed, *beyond])


def overwrite_target_schema(
    target: Target, source: spark.StructType, settings: StatementSettings, replaced: Replaced | None
) -> Target:
    """Return a target with exactly the columns of the source: all of its rows are replaced.

    Raises:
        NotSupportedError: some rows are kept, the write is not to main, the table does not accept any schema, or a
            dropped column is in its partition spec, sort order or identifier.
    """
    if target.branch != MAIN_BRANCH or target.wap_id is not None:
        raise NotSupportedError(
            f"The write option 'overwrite-schema' works only on {MAIN_BRANCH}: all branches share one schema",
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
    return target if evolution is None else target.with_evolution(evolution)


def check_ordering(source: spark.DataType, target: IcebergType, names: TargetNames, path: tuple[str, ...] = ()) -> None:
    """Reject columns, or fields of structs, in another order than the table's.

    Raises:
        AnalysisError: a column comes after one that it precedes in the table.
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
                        hint="Columns are matched by name: set the option 'check-ordering' to 'false' to allow any "
                        "order, or select them in the table's order",
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
    """Reject nullable columns where the table requires values.

    Raises:
        AnalysisError: there is one.
    """
    for column in source.fields:
        field = names.column(column.name)
        if field is not None and field.required and column.nullable:
            raise AnalysisError(
                f"The column '{field.name}' is required, but that of the rows is nullable",
                kind=ErrorKind.INVALID_ASSIGNMENT,
                hint="Remove the option 'check-nullability' to check each value instead",
                column=field.name,
            )


def merge_target_schema(target: Target, source: spark.StructType, settings: StatementSettings, span: Span) -> Target:
    """Return a target that has the columns of the source, matched by name.

    Args:
        target: The target.
        source: The columns of the new rows.
        settings: The session's settings.
        span: The place of the source, for errors.

    Returns:
        The evolved target; the same target if nothing has to change.

    Raises:
        AnalysisError: a column cannot be added.
        NotSupportedError: the format has no such type, or a name is reserved.
    """

    def change(metadata: TableMetadata) -> MetadataChange:
        added, widened = union_by_name(source, metadata.schema(), target.names, span)
        return evolution_change(added, widened, metadata, time_zone=settings.time_zone)

    evolution = SchemaEvolution.of(target.table, change)
    return target if evolution is None else target.with_evolution(evolution)


def union_by_name(
    source: spark.StructType, schema: Schema, names: TargetNames, span: Span
) -> tuple[AddColumns, AlterColumns]:
    """Return the ALTER TABLE actions that make the source's columns fit: columns to add, and columns to widen."""
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
    """Yield where two types differ: fields that the table lacks, and fields of another type.

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
    """Return whether Iceberg can widen a type to another in place."""
    if current == wanted or not any(
        isinstance(current, narrow) and isinstance(wanted, wide) for narrow, wide in PROMOTIONS
    ):
        return False
    if isinstance(current, spark.DecimalType) and isinstance(wanted, spark.DecimalType):
        return current.scale == wanted.scale and current.precision < wanted.precision
    return is_upcast(current, wanted)
