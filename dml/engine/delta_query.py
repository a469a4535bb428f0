"""A delta query as a DataFrame: the inner query analysed by Spark, then values stored into the columns. Driver.

Input: the text of a plan. Output: a DataFrame that has not been evaluated. Spark analyses here and runs nothing; which
type a raw column has is known after that, so the outer projection is written here and not by the plan.
"""

from collections.abc import Callable

from pyiceberg.types import NestedField
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

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
from dml.spark.store_assignment import Assign, default_sql
from dml.spark.types import spark_type, type_text
from dml.sqlparse.diagnosis import at
from dml.sqlparse.quoting import quote_string

__all__ = ["delta_frame", "value_sql"]


def delta_frame(run_sql: Callable[[str], DataFrame], query: DeltaQuery, assign: Assign) -> DataFrame:
    """The row delta of a planned statement, as an unevaluated DataFrame.

    Args:
        run_sql: Gives the DataFrame of an SQL text, the statement's views bound.
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
    """The operation code of a clause number; a number that is no clause is a match that changes nothing."""
    branches = " ".join(f"WHEN {clause.number} THEN {clause.code}" for clause in query.clauses)
    return f"CASE {CLAUSE} {branches} ELSE {int(RowOperation.MATCHED)} END"


def case_sql(column: ValueColumn, raw_types: dict[str, DataType], assign: Assign) -> str:
    """A column's value over all clauses."""
    path = (column.field.name,)
    stored = [(number, value_sql(value, column.field, raw_types, assign, path)) for number, value in column.cases]
    if not stored:
        return f"CAST(NULL AS {type_text(spark_type(column.field.field_type))})"
    branches = " ".join(f"WHEN {number} THEN {sql}" for number, sql in stored)
    return f"CASE {CLAUSE} {branches} END"


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
