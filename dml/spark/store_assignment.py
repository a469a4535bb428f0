"""Cast SQL values to the types of columns, by Spark's rules of store assignment; SQL of column defaults. Driver.

Input: an SQL expression, its type, the column's type. Output: an SQL expression of the column's type that raises if the
value does not fit, regardless of `spark.sql.ansi.enabled`.

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
from dml.model.arrow_types import primitive_name
from dml.spark.types import shown_type, spark_type, type_text
from dml.sqlparse.quoting import quote_string, quoted

__all__ = [
    "OVERFLOW_MARK",
    "Assign",
    "StoreAssignmentPolicy",
    "default_sql",
    "is_assignable",
    "is_same_type",
    "is_upcast",
    "null_sql",
    "store_assignment_policy",
]

OVERFLOW_MARK: Final = "[rowdelta:overflow]"
"""Prefix of errors that RowDelta's generated SQL raises, which distinguishes them from the user's `raise_error`."""

DATETIMES: Final = (DateType, TimestampType, TimestampNTZType)
INTEGRAL_ORDER: Final = ("tinyint", "smallint", "int", "bigint")
INTEGRAL_DIGITS: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}


class StoreAssignmentPolicy(StrEnum):
    """`spark.sql.storeAssignmentPolicy`."""

    ANSI = "ansi"
    STRICT = "strict"


def store_assignment_policy(setting: str) -> StoreAssignmentPolicy:
    """Parse the setting `spark.sql.storeAssignmentPolicy`.

    Raises:
        NotSupportedError: it is `legacy`, which Spark refuses for catalog tables too.
    """
    try:
        return StoreAssignmentPolicy(setting.strip().lower())
    except ValueError:
        raise NotSupportedError(
            f"spark.sql.storeAssignmentPolicy is '{setting}', which tables of a catalog do not allow",
            hint="Set it to ANSI or STRICT",
        ) from None


def is_same_type(source: DataType, target: DataType) -> bool:
    """Return True if types are equal except for nullability, with struct fields in the same order and case."""
    if isinstance(source, StructType) and isinstance(target, StructType):
        return len(source.fields) == len(target.fields) and all(
            a.name == b.name and is_same_type(a.dataType, b.dataType)
            for a, b in zip(source.fields, target.fields, strict=True)
        )
    if isinstance(source, ArrayType) and isinstance(target, ArrayType):
        return is_same_type(source.elementType, target.elementType)
    if isinstance(source, MapType) and isinstance(target, MapType):
        return is_same_type(source.keyType, target.keyType) and is_same_type(source.valueType, target.valueType)
    return source.simpleString() == target.simpleString()


def is_upcast(source: DataType, target: DataType) -> bool:
    """Return True if a cast between atomic types loses nothing (Spark's up-cast)."""
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
    """Return True if the policy allows an assignment between atomic types; values may still overflow under ANSI."""
    if source.simpleString() == target.simpleString():
        return True
    if policy is StoreAssignmentPolicy.STRICT:
        return is_upcast(source, target)
    if isinstance(source, NullType):
        return True
    if isinstance(source, NumericType) and isinstance(target, NumericType):
        return True
    if isinstance(source, DATETIMES) and isinstance(target, DATETIMES):
        return True
    return isinstance(source, AtomicType) and isinstance(target, StringType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Generates the SQL of a statement's store assignments.

    Attributes:
        policy: The session's policy.
        case_sensitive: Whether names of struct fields are case-sensitive.
        by_name: Whether struct fields match by name (UPDATE, MERGE, INSERT BY NAME) or by position (INSERT).
    """

    policy: StoreAssignmentPolicy = StoreAssignmentPolicy.ANSI
    case_sensitive: bool = False
    by_name: bool = True

    def sql(
        self, expression: str, source: DataType, target: DataType, path: tuple[str, ...], *, required: bool = False
    ) -> str:
        """Return SQL that casts `expression` to the type of a column.

        Args:
            expression: SQL text that is cheap to repeat: a column of an inner query, not a computation.
            source: Its type.
            target: The column's type.
            path: Names from the column down, for messages.
            required: Whether the column is NOT NULL, for the hint if a NULL literal is refused.

        Raises:
            AnalysisError: the types are incompatible, or a struct lacks a field or has an unknown one.
        """
        try:
            return self.nested(expression, source, target, path, depth=0)
        except AnalysisError as error:
            if required and isinstance(source, NullType):
                error.hint = "The column is required: give it a value"
            raise

    def nested(self, expression: str, source: DataType, target: DataType, path: tuple[str, ...], depth: int) -> str:
        """Return the SQL of `sql`, inside `depth` lambda functions."""
        if is_same_type(source, target):
            return expression
        if isinstance(source, NullType) and self.policy is StoreAssignmentPolicy.ANSI:
            return f"CAST({expression} AS {type_text(target)})"  # not a plain NULL: raise_error() has the type void too
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
        """Cast an atomic value, with an overflow check if the cast narrows; raise if the policy forbids it."""
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
        if is_upcast(source, target) or not isinstance(target, (IntegralType, DecimalType, FractionalType)):
            return f"CAST({expression} AS {kind})"
        message = quote_string(f"{OVERFLOW_MARK}{'.'.join(path)}|{shown_type(source)}|{shown_type(target)}|")
        return (
            f"CASE WHEN {expression} IS NOT NULL AND try_cast({expression} AS {kind}) IS NULL "
            f"THEN raise_error(concat({message}, CAST({expression} AS STRING))) "
            f"ELSE try_cast({expression} AS {kind}) END"
        )

    def struct(self, expression: str, source: StructType, target: StructType, path: tuple[str, ...], depth: int) -> str:
        """Cast a struct field by field; a NULL struct stays NULL."""
        pairs = self.match_fields(source, target, path)
        fields = ", ".join(
            f"{quote_string(to.name)}, "
            + self.nested(f"{expression}.{quoted(of.name)}", of.dataType, to.dataType, (*path, to.name), depth)
            for of, to in pairs
        )
        return f"CASE WHEN {expression} IS NULL THEN CAST(NULL AS {type_text(target)}) ELSE named_struct({fields}) END"

    def match_fields(
        self, source: StructType, target: StructType, path: tuple[str, ...]
    ) -> list[tuple[StructField, StructField]]:
        """Pair source and target fields, in the target's order."""
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
        """Return a name in the form in which names are compared."""
        return name if self.case_sensitive else name.lower()


def conversion(source: DataType, target: DataType) -> str:
    """Return an example of a conversion to a type, for a hint."""
    if isinstance(source, StringType) and target.simpleString() == "variant":
        return "parse_json(...)"
    return f"CAST(... AS {shown_type(target)})"


def default_sql(target: iceberg.NestedField) -> str:
    """Return SQL for a field's write default, or a typed NULL if it has none (docs/semantics.md, C36)."""
    if target.write_default is None:
        return null_sql(target.field_type)
    kind, value = type_text(spark_type(target.field_type)), constant_sql(target.write_default, target.field_type)
    return value if isinstance(target.field_type, iceberg.TimeType) else f"CAST({value} AS {kind})"


def null_sql(kind: iceberg.IcebergType) -> str:
    """Return SQL for a typed NULL; an untyped one if Spark lacks the type, as a statement may omit the column."""
    if isinstance(kind, iceberg.TimeType):
        return "NULL"  # Spark has the type since 4.1, but casts to it only if `spark.sql.timeType.enabled` is set
    try:
        return f"CAST(NULL AS {type_text(spark_type(kind))})"
    except NotSupportedError:
        return "NULL"


def constant_sql(value: Any, kind: iceberg.IcebergType) -> str:
    """Convert a PyIceberg value to an SQL literal."""
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
