"""Values as SQL text of a column's type: stored by Spark's rules of store assignment, or the default. Driver.

Input: an SQL expression, its type, the column's type. Output: an SQL expression of the column's type that raises where
the value does not fit, whatever `spark.sql.ansi.enabled` says.

Source: Spark SQL reference, "ANSI Compliance: Store assignment", and the behaviour of `TableOutputResolver`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from pyiceberg import types as iceberg
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    FractionalType,
    IntegralType,
    MapType,
    NullType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.model.type_names import primitive_name
from dml.spark.types import shown_type, spark_type, type_text
from dml.sqlparse.quoting import quote_string, quoted

__all__ = [
    "OVERFLOW_MARK",
    "Assign",
    "StoreAssignmentPolicy",
    "default_sql",
    "is_assignable",
    "null_sql",
    "same_type",
    "store_assignment_policy",
    "widens",
]

OVERFLOW_MARK: Final = "[rowdelta:overflow]"
"""Starts the text of an error that our SQL raises, so that it differs from the user's own `raise_error`."""

DATETIMES: Final = (DateType, TimestampType, TimestampNTZType)
INTEGRAL_ORDER: Final = ("tinyint", "smallint", "int", "bigint")
INTEGRAL_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


class StoreAssignmentPolicy(StrEnum):
    """`spark.sql.storeAssignmentPolicy`."""

    ANSI = "ansi"
    STRICT = "strict"


def store_assignment_policy(setting: str) -> StoreAssignmentPolicy:
    """The policy that the session asks for.

    Raises:
        NotSupportedError: `legacy`, which Spark too refuses for catalog tables.
    """
    try:
        return StoreAssignmentPolicy(setting.strip().lower())
    except ValueError:
        raise NotSupportedError(
            f"spark.sql.storeAssignmentPolicy is '{setting}', which tables of a catalog do not allow",
            hint="Set it to ANSI or STRICT",
        ) from None


def same_type(source: DataType, target: DataType) -> bool:
    """Whether values need no change: equal but for nullability; struct fields in the same order and case."""
    if isinstance(source, StructType) and isinstance(target, StructType):
        return len(source.fields) == len(target.fields) and all(
            a.name == b.name and same_type(a.dataType, b.dataType)
            for a, b in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return same_type(source.elementType, target.elementType)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return same_type(source.keyType, target.keyType) and same_type(source.valueType, target.valueType)
    return source.simpleString() == target.simpleString()


def widens(source: DataType, target: DataType) -> bool:
    """Whether every value of an atomic type is a value of another (Spark's up-cast)."""
    if isinstance(source, NullType):
        return False
    if isinstance(source, IntegralType) and isinstance(target, IntegralType):
        return INTEGRAL_ORDER.index(source.simpleString()) <= INTEGRAL_ORDER.index(target.simpleString())
    if isinstance(source, IntegralType) and isinstance(target, DecimalType):
        return target.precision - target.scale >= INTEGRAL_DIGITS[source.simpleString()]
    if isinstance(source, DecimalType) and isinstance(target, DecimalType):
        return target.scale >= source.scale and target.precision - target.scale >= source.precision - source.scale
    if isinstance(source, (IntegralType, FloatType)) and isinstance(target, DoubleType):
        return True
    if isinstance(source, IntegralType) and isinstance(target, FloatType):
        return True
    if isinstance(source, DateType) and isinstance(target, (TimestampType, TimestampNTZType)):
        return True
    return isinstance(source, AtomicType) and isinstance(target, StringType)


def is_assignable(source: DataType, target: DataType, policy: StoreAssignmentPolicy) -> bool:
    """Whether an atomic type may be stored in another at all; values may still overflow under ANSI."""
    if source.simpleString() == target.simpleString():
        return True
    if policy is StoreAssignmentPolicy.STRICT:
        return widens(source, target)
    if isinstance(source, NullType):
        return True
    if isinstance(source, NumericType) and isinstance(target, NumericType):
        return True
    if isinstance(source, DATETIMES) and isinstance(target, DATETIMES):
        return True
    return isinstance(source, AtomicType) and isinstance(target, StringType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Writes the SQL that stores values; one for a statement.

    Attributes:
        policy: The session's policy.
        case_sensitive: How struct fields are matched by name.
        by_name: Struct fields by name (UPDATE, MERGE, INSERT BY NAME) or by position (INSERT).
    """

    policy: StoreAssignmentPolicy = StoreAssignmentPolicy.ANSI
    case_sensitive: bool = False
    by_name: bool = True

    def sql(
        self, expression: str, source: DataType, target: DataType, path: tuple[str, ...], *, required: bool = False
    ) -> str:
        """The expression that stores `expression` (of type `source`) into a column.

        Args:
            expression: SQL text that may be repeated: a column of an inner query, not a computation.
            source: Its type.
            target: The column's type.
            path: Names from the column down, for messages.
            required: Whether the column takes no NULL, for the hint where one is refused.

        Raises:
            AnalysisError: the types do not fit, a struct lacks a field or has one too many.
        """
        try:
            return self.nested(expression, source, target, path, depth=0)
        except AnalysisError as error:
            if required and isinstance(source, NullType):
                error.hint = "The column is required: give it a value"
            raise

    def nested(self, expression: str, source: DataType, target: DataType, path: tuple[str, ...], depth: int) -> str:
        """As `sql`, inside `depth` lambda functions."""
        if same_type(source, target):
            return expression
        if isinstance(source, NullType) and self.policy is StoreAssignmentPolicy.ANSI:
            return f"CAST({expression} AS {type_text(target)})"  # not NULL alone: raise_error() is of no type either
        if isinstance(source, StructType) and isinstance(target, StructType):
            return self.struct(expression, source, target, path, depth)
        if isinstance(source, ArrayType) and isinstance(target, ArrayType):
            element = f"__e{depth}"
            inner = self.nested(element, source.elementType, target.elementType, (*path, "element"), depth + 1)
            return f"transform({expression}, {element} -> {inner})"
        if isinstance(source, MapType) and isinstance(target, MapType):
            entry = f"__e{depth}"
            key = self.nested(f"{entry}.key", source.keyType, target.keyType, (*path, "key"), depth + 1)
            value = self.nested(f"{entry}.value", source.valueType, target.valueType, (*path, "value"), depth + 1)
            pairs = f"transform(map_entries({expression}), {entry} -> struct({key} AS key, {value} AS value))"
            return f"map_from_entries({pairs})"
        return self.atomic(expression, source, target, path)

    def atomic(self, expression: str, source: DataType, target: DataType, path: tuple[str, ...]) -> str:
        """One value: refused, widened, or checked as it narrows."""
        if not is_assignable(source, target, self.policy):
            name = ".".join(path)
            raise AnalysisError(
                f"A value of type {shown_type(source)} cannot be stored in the column '{name}' of type "
                f"{shown_type(target)}",
                kind=ErrorKind.TYPE_MISMATCH,
                hint=f"Convert it in the statement, with {conversion(source, target)} for example",
                column=name,
            )
        kind = type_text(target)
        if widens(source, target) or not isinstance(target, (IntegralType, DecimalType, FractionalType)):
            return f"CAST({expression} AS {kind})"
        message = quote_string(f"{OVERFLOW_MARK}{'.'.join(path)}|{shown_type(source)}|{shown_type(target)}|")
        return (
            f"CASE WHEN {expression} IS NOT NULL AND try_cast({expression} AS {kind}) IS NULL "
            f"THEN raise_error(concat({message}, CAST({expression} AS STRING))) "
            f"ELSE try_cast({expression} AS {kind}) END"
        )

    def struct(self, expression: str, source: StructType, target: StructType, path: tuple[str, ...], depth: int) -> str:
        """Field by field; a NULL struct stays NULL."""
        pairs = self.matched_fields(source, target, path)
        fields = ", ".join(
            f"{quote_string(to.name)}, "
            + self.nested(f"{expression}.{quoted(of.name)}", of.dataType, to.dataType, (*path, to.name), depth)
            for of, to in pairs
        )
        return f"CASE WHEN {expression} IS NULL THEN CAST(NULL AS {type_text(target)}) ELSE named_struct({fields}) END"

    def matched_fields(
        self, source: StructType, target: StructType, path: tuple[str, ...]
    ) -> list[tuple[StructField, StructField]]:
        """Pairs of a source field and the target field that it is stored in, in the target's order."""
        name = ".".join(path)
        if not self.by_name:
            if len(source.fields) != len(target.fields):
                raise AnalysisError(
                    f"The struct for the column '{name}' has {len(source.fields)} fields, the column has "
                    f"{len(target.fields)}",
                    kind=ErrorKind.TYPE_MISMATCH,
                    hint="Give the fields of the column, in its order, or use INSERT ... BY NAME",
                    column=name,
                )
            return list(zip(source.fields, target.fields, strict=True))
        given = {self.folded(field.name): field for field in source.fields}
        wanted = {self.folded(field.name) for field in target.fields}
        missing = [f.name for f in target.fields if self.folded(f.name) not in given]
        extra = [f.name for f in source.fields if self.folded(f.name) not in wanted]
        if missing or extra:
            problems = [
                f"{what} {', '.join(repr(field) for field in fields)}"
                for what, fields in (("lacks", missing), ("has the unknown field", extra))
                if fields
            ]
            raise AnalysisError(
                f"The struct for the column '{name}' {' and '.join(problems)}",
                kind=ErrorKind.TYPE_MISMATCH,
                hint="Name exactly the column's fields, with named_struct(...) for example",
                column=name,
            )
        return [(given[self.folded(field.name)], field) for field in target.fields]

    def folded(self, name: str) -> str:
        """A name as it is compared."""
        return name if self.case_sensitive else name.lower()


def conversion(source: DataType, target: DataType) -> str:
    """A conversion to a type, for a hint."""
    if isinstance(source, StringType) and target.simpleString() == "variant":
        return "parse_json(...)"
    return f"CAST(... AS {shown_type(target)})"


def default_sql(target: iceberg.NestedField) -> str:
    """The SQL of a field's write default; NULL of its type where it has none (docs/semantics.md, C36)."""
    if target.write_default is None:
        return null_sql(target.field_type)
    kind, value = type_text(spark_type(target.field_type)), constant_sql(target.write_default, target.field_type)
    return value if isinstance(target.field_type, iceberg.TimeType) else f"CAST({value} AS {kind})"


def null_sql(kind: iceberg.IcebergType) -> str:
    """The SQL of NULL in a column; without a type where Spark has none for it, as a statement may leave it out."""
    if isinstance(kind, iceberg.TimeType):
        return "NULL"  # Spark has the type from 4.1 on, but casts to it only where `spark.sql.timeType.enabled` is set
    try:
        return f"CAST(NULL AS {type_text(spark_type(kind))})"
    except NotSupportedError:
        return "NULL"


def constant_sql(value: Any, kind: iceberg.IcebergType) -> str:
    """An Iceberg value, in PyIceberg's Python form, as an SQL literal."""
    match kind:
        case iceberg.BooleanType():
            return "TRUE" if value else "FALSE"
        case iceberg.IntegerType() | iceberg.LongType() | iceberg.DecimalType():
            return str(value)
        case iceberg.FloatType() | iceberg.DoubleType():
            return f"'{value!r}'"
        case iceberg.StringType() | iceberg.UUIDType():
            return quote_string(str(value))
        case iceberg.BinaryType() | iceberg.FixedType():
            return f"X'{bytes(value).hex()}'"
        case iceberg.DateType():
            return f"DATE '{value.isoformat()}'"
        case iceberg.TimeType():
            return f"TIME '{value.isoformat()}'"
        case iceberg.TimestampType():
            return f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'"
        case iceberg.TimestamptzType():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case _:
            raise NotSupportedError(
                f"The default of a column of type {primitive_name(kind)} cannot be written here",
                kind=ErrorKind.NOT_SUPPORTED,
                hint="Give the value in the statement",
            )
