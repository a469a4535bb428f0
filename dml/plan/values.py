"""Where the values of a delta row come from, and the SQL that computes them. Driver.

A statement's expressions are evaluated once, in an inner query, each as a raw column of whatever type Spark gives it;
an outer projection stores the raw columns into the table's columns (types, struct fields, defaults).
The real names are longer:

    UPDATE t SET s.a = 1, n = 2.5
    inner   SELECT ..., 1 AS __r0, 2.5 AS __r1, t.s AS __old_3 FROM ...
    outer   SELECT ..., named_struct('a', CAST(__r0 AS bigint), 'b', __old_3.b) AS v0, <2.5 checked to fit an int> AS v1
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql.types import DataType

from dml.errors import ErrorKind, NotSupportedError
from dml.model.columns import INTERNAL_PREFIX
from dml.plan.assignments import AssignedDefault, AssignedExpression, AssignedStruct, AssignedValue
from dml.plan.store_assignment import Assign, literal
from dml.spark.types import quoted, spark_type, type_text
from dml.sqlparse.places import at
from dml.sqlparse.statements import Fragment, Span

__all__ = [
    "DefaultValue",
    "OldValue",
    "RawColumn",
    "RawColumns",
    "RawValue",
    "StructValue",
    "ValueSource",
    "default_sql",
    "value_sql",
]


RAW_PREFIX: Final = f"{INTERNAL_PREFIX}r"
OLD_PREFIX: Final = f"{INTERNAL_PREFIX}old_"


@dataclass(frozen=True, slots=True, kw_only=True)
class RawColumn:
    """A column of the inner query.

    Attributes:
        name: Its name there.
        sql: The expression.
        span: The place of the user's expression behind it; None for columns of our own.
    """

    name: str
    sql: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawValue:
    """A raw column, to be stored by the rules of store assignment."""

    raw: str
    span: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OldValue:
    """A value of the old row, or a field of it: it has the column's type already.

    Attributes:
        raw: The raw column that holds the old value of the whole column.
        path: Field names below it.
    """

    raw: str
    path: tuple[str, ...] = ()

    @property
    def field_id(self) -> int:
        """The column."""
        return int(self.raw.removeprefix(OLD_PREFIX))

    @property
    def sql(self) -> str:
        """The field of the raw column."""
        return ".".join((self.raw, *(quoted(part) for part in self.path)))


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultValue:
    """The field's write default, or NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StructValue:
    """A struct put together from its fields' values, all of them, in the struct's order."""

    fields: tuple[tuple[NestedField, "ValueSource"], ...]


ValueSource = RawValue | OldValue | DefaultValue | StructValue


@dataclass(slots=True, kw_only=True)
class RawColumns:
    """Collects the raw columns of one inner query.

    Attributes:
        target: The SQL qualifier of the target in the inner query.
        render: Gives a fragment's text with its table references replaced.
    """

    target: str
    render: Callable[[Fragment], str]
    columns: list[RawColumn] = field(default_factory=list)

    def expression(self, fragment: Fragment, guard: str | None) -> RawValue:
        """A raw column for an expression; under a guard it is evaluated only for rows where the guard is true."""
        text = self.render(fragment)
        sql = f"({text})" if guard is None else f"CASE WHEN {guard} THEN ({text}) END"
        name = f"{RAW_PREFIX}{len(self.columns)}"
        self.columns.append(RawColumn(name=name, sql=sql, span=fragment.span))
        return RawValue(raw=name, span=fragment.span)

    def qualified(self, qualifier: str, column: str, guard: str | None) -> RawValue:
        """A raw column for a column of a side of the join."""
        text = f"{quoted(qualifier)}.{quoted(column)}"
        name = f"{RAW_PREFIX}{len(self.columns)}"
        sql = text if guard is None else f"CASE WHEN {guard} THEN {text} END"
        self.columns.append(RawColumn(name=name, sql=sql))
        return RawValue(raw=name)

    def old(self, column: NestedField) -> OldValue:
        """The raw column with the old value of a column; asked for twice, it is one."""
        name = f"{OLD_PREFIX}{column.field_id}"
        if all(present.name != name for present in self.columns):
            self.columns.append(RawColumn(name=name, sql=f"{quoted(self.target)}.{quoted(column.name)}"))
        return OldValue(raw=name)

    def source(self, column: NestedField, value: AssignedValue, guard: str | None = None) -> ValueSource:
        """Where the new value of a column comes from."""
        return self.part(column, value, guard, column, ())

    def part(
        self, part: NestedField, value: AssignedValue, guard: str | None, column: NestedField, path: tuple[str, ...]
    ) -> ValueSource:
        """As `source`, for a field of a column."""
        match value:
            case AssignedExpression(fragment=fragment):
                return self.expression(fragment, guard)
            case AssignedDefault():
                return DefaultValue()
            case AssignedStruct(fields=assigned):
                assert isinstance(part.field_type, StructType)
                fields: list[tuple[NestedField, ValueSource]] = []
                for nested in part.field_type.fields:
                    below = (*path, nested.name)
                    if nested.field_id in assigned:
                        fields.append((nested, self.part(nested, assigned[nested.field_id], guard, column, below)))
                    else:
                        fields.append((nested, OldValue(raw=self.old(column).raw, path=below)))
                return StructValue(fields=tuple(fields))


def value_sql(
    value: ValueSource, target: NestedField, raw_types: dict[str, DataType], assign: Assign, path: tuple[str, ...]
) -> str:
    """The SQL, over the inner query's columns, of a column's new value.

    Raises:
        AnalysisError: the raw column's type cannot be stored in the target.
    """
    match value:
        case RawValue(raw=raw, span=span):
            with at(span):
                return assign.sql(raw, raw_types[raw], spark_type(target.field_type), path)
        case OldValue():
            return value.sql
        case DefaultValue():
            return default_sql(target)
        case StructValue(fields=fields):
            parts = ", ".join(
                f"{literal(nested.name)}, {value_sql(source, nested, raw_types, assign, (*path, nested.name))}"
                for nested, source in fields
            )
            return f"named_struct({parts})"


def default_sql(target: NestedField) -> str:
    """The SQL of a field's write default; NULL of its type where it has none (docs/semantics.md, C36)."""
    kind = type_text(spark_type(target.field_type))
    if target.write_default is None:
        return f"CAST(NULL AS {kind})"
    return f"CAST({constant_sql(target.write_default, target.field_type)} AS {kind})"


def constant_sql(value: Any, kind: IcebergType) -> str:
    """An Iceberg value, in PyIceberg's Python form, as an SQL literal."""
    match kind:
        case BooleanType():
            return "TRUE" if value else "FALSE"
        case IntegerType() | LongType() | DecimalType():
            return str(value)
        case FloatType() | DoubleType():
            return f"'{value!r}'"
        case StringType() | UUIDType():
            return literal(str(value))
        case BinaryType() | FixedType():
            return f"X'{bytes(value).hex()}'"
        case DateType():
            return f"DATE '{value.isoformat()}'"
        case TimestampType():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case TimestamptzType():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case _:
            raise NotSupportedError(
                f"The default of a column of type {kind} cannot be written here",
                kind=ErrorKind.NOT_SUPPORTED,
                hint="Give the value in the statement",
            )
