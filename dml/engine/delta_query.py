"""Build a delta query's DataFrame: Spark analyzes the inner query, then values are stored into the columns. Driver.

Input: the text of a plan. Output: a DataFrame that has not been evaluated. The type of a raw column is only known after
analysis, so the outer projection is written here and not by the plan.
"""

from collections.abc import Callable

from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyspark.sql import DataFrame
from pyspark.sql import types as spark
from pyspark.sql.types import DataType

from dml.errors import AnalysisError, ErrorKind
from dml.model.columns import CLAUSE, FILE_ORDINAL, POS, ROW_OPERATION, RowOperation, value_name
from dml.plan.row_delta_plan import (
    DefaultValue,
    DeltaQuery,
    OldValue,
    RawValue,
    StructValue,
    ValueColumn,
    ValueSource,
)
from dml.spark.store_assignment import Assign, default_sql, is_same_type, null_sql
from dml.spark.types import spark_type, type_text
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_string, quoted

__all__ = ["delta_frame", "lacks_fields", "value_sql"]


def delta_frame(run_sql: Callable[[str], DataFrame], query: DeltaQuery, assign: Assign) -> DataFrame:
    """Return the row delta of a planned statement, as an unevaluated DataFrame.

    Args:
        run_sql: Returns the DataFrame of an SQL text, with the statement's views bound.
        query: The delta query.
        assign: The rules of store assignment.

    Returns:
        Columns `ROW_OPERATION` int, `FILE_ORDINAL` int, `POS` bigint, then `v0`, `v1`, ... in the order of
        `query.values`, each of its column's Spark type.

    Raises:
        AnalysisException: Spark cannot resolve the statement's expressions.
        AnalysisError: a value cannot be stored in its column.
    """
    inner = run_sql(query.inner)
    raw_types = {column.name: column.dataType for column in inner.schema.fields} if query.values else {}
    values = [
        f"{case_sql(column, raw_types, assign)} AS {value_name(index)}" for index, column in enumerate(query.values)
    ]
    return inner.where(f"{CLAUSE} IS NOT NULL").selectExpr(
        f"{operation_sql(query)} AS {ROW_OPERATION}", FILE_ORDINAL, POS, *values
    )


def operation_sql(query: DeltaQuery) -> str:
    """Return SQL for the operation code of a clause number; other numbers are matches that change nothing."""
    branches = " ".join(f"WHEN {clause.number} THEN {clause.code}" for clause in query.clauses)
    return f"CASE {CLAUSE} {branches} ELSE {int(RowOperation.MATCHED)} END"


def case_sql(column: ValueColumn, raw_types: dict[str, DataType], assign: Assign) -> str:
    """Return SQL for a column's value over all clauses."""
    path = (column.field.name,)
    stored = [(number, value_sql(value, column.field, raw_types, assign, path)) for number, value in column.cases]
    if not stored:
        return null_sql(column.field.field_type)
    branches = " ".join(f"WHEN {number} THEN {sql}" for number, sql in stored)
    return f"CASE {CLAUSE} {branches} END"


def value_sql(
    value: ValueSource, target: NestedField, raw_types: dict[str, DataType], assign: Assign, path: tuple[str, ...]
) -> str:
    """Return SQL, over the inner query's columns, for a column's new value.

    Raises:
        AnalysisError: the raw column's type cannot be stored in the target.
    """
    match value:
        case RawValue(raw=raw, span=span, fills=True, old=old):
            with at(span):
                return fill_sql(assign, raw, raw_types[raw], target.field_type, path, None if old is None else old.sql)
        case RawValue(raw=raw, span=span):
            with at(span):
                return assign.sql(raw, raw_types[raw], spark_type(target.field_type), path, required=target.required)
        case OldValue():
            return value.sql
        case DefaultValue():
            return default_sql(target)
        case StructValue(fields=fields):
            parts = ", ".join(
                f"{quote_string(nested.name)}, {value_sql(source, nested, raw_types, assign, (*path, nested.name))}"
                for nested, source in fields
            )
            return f"named_struct({parts})"


def fill_sql(
    assign: Assign,
    expression: str,
    source: DataType,
    target: IcebergType,
    path: tuple[str, ...],
    old: str | None = None,
    depth: int = 0,
) -> str:
    """Return SQL as `Assign.sql` does, for structs that may lack fields.

    A lacking field gets the old row's value, or its default without one. A struct that is NULL stays NULL, unless the
    old row has values that would be lost with it.

    Args:
        assign: The rules of store assignment.
        expression: SQL text that may be repeated.
        source: Its type.
        target: The column's type, or the field's.
        path: Names from the column down, for messages.
        old: The SQL of the old row's value.
        depth: The number of enclosing lambda functions.

    Raises:
        AnalysisError: the types do not fit, a struct has an unknown field, or lacks a required one.
    """
    if is_same_type(source, spark_type(target)):
        return expression
    match source, target:
        case spark.NullType(), _:  # a cast of NULL loses nothing, even if the rules are strict
            return f"CAST({expression} AS {type_text(spark_type(target))})"
        case spark.StructType(), StructType():
            return fill_struct_sql(assign, expression, source, target, path, old, depth)
        case spark.ArrayType(), ListType():
            name = f"__e{depth}"
            inner = fill_sql(assign, name, source.elementType, target.element_type, (*path, "element"), None, depth + 1)
            return f"transform({expression}, {name} -> {inner})"
        case spark.MapType(), MapType():
            name = f"__e{depth}"
            key = assign.nested(f"{name}.key", source.keyType, spark_type(target.key_type), (*path, "key"), depth + 1)
            value = fill_sql(
                assign, f"{name}.value", source.valueType, target.value_type, (*path, "value"), None, depth + 1
            )
            pairs = f"transform(map_entries({expression}), {name} -> struct({key} AS key, {value} AS value))"
            return f"map_from_entries({pairs})"
        case _:
            return assign.nested(expression, source, spark_type(target), path, depth)


def fill_struct_sql(
    assign: Assign,
    expression: str,
    source: spark.StructType,
    target: StructType,
    path: tuple[str, ...],
    old: str | None,
    depth: int,
) -> str:
    """Return SQL for a struct, field by field."""
    given = {assign.folded(field.name): field for field in source.fields}
    lacks, values = False, []
    for field in target.fields:
        of = given.pop(assign.folded(field.name), None)
        kept = None if old is None else f"{old}.{quoted(field.name)}"
        below = (*path, field.name)
        if of is not None:
            inside = f"{expression}.{quoted(of.name)}"
            value = fill_sql(assign, inside, of.dataType, field.field_type, below, kept, depth)
        else:
            lacks, value = True, kept or lacking_field_sql(field, below)
        values.append(f"{quote_string(field.name)}, {value}")
    if given:
        extra = ", ".join(repr(field.name) for field in given.values())
        raise AnalysisError(
            f"The struct for the column '{'.'.join(path)}' has the unknown field {extra}",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Leave it out, or add it to the column with ALTER TABLE ... ADD COLUMNS",
            column=".".join(path),
        )
    is_null = f"{expression} IS NULL" + (f" AND {old} IS NULL" if lacks and old is not None else "")
    kind = type_text(spark_type(target))
    return f"CASE WHEN {is_null} THEN CAST(NULL AS {kind}) ELSE named_struct({', '.join(values)}) END"


def lacking_field_sql(field: NestedField, path: tuple[str, ...]) -> str:
    """Return SQL for a field that a struct lacks.

    Raises:
        AnalysisError: the field is required, and has no default.
    """
    if field.required and field.write_default is None:
        raise AnalysisError(
            f"The struct for the column '{'.'.join(path[:-1])}' lacks '{field.name}', which is required",
            kind=ErrorKind.TYPE_MISMATCH,
            hint="Give the struct this field",
            column=".".join(path),
        )
    return default_sql(field)


def lacks_fields(source: DataType, target: IcebergType, folded: Callable[[str], str]) -> bool:
    """Return whether a struct anywhere in a type lacks a field of the target's struct in the same place."""
    match source, target:
        case spark.StructType(), StructType():
            given = {folded(field.name): field.dataType for field in source.fields}
            return any(
                folded(field.name) not in given or lacks_fields(given[folded(field.name)], field.field_type, folded)
                for field in target.fields
            )
        case spark.ArrayType(), ListType():
            return lacks_fields(source.elementType, target.element_type, folded)
        case spark.MapType(), MapType():
            return lacks_fields(source.valueType, target.value_type, folded)
        case _:
            return False
