"""Replaces `mergeInto` and `overwritePartitions` of PySpark's writers for RowDelta tables. Driver.

Input: PySpark's calls on RowDelta tables. Output: `mergeInto` builds a MERGE with `MergeBuilder` and runs it like
`spark.sql`. `overwritePartitions` runs an overwrite with the option for dynamic overwrites: RowDelta receives the rows
before they are distributed, because Spark cannot compute Iceberg's buckets. Other tables keep PySpark's methods.

The source of a MERGE has the name of the DataFrame: its alias, or the table or view of its columns. Columns that are
bound to the DataFrame (`source.id`, `source["id"]`) refer to the source, too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.functions import lit

from dml.connector.write import OVERWRITE_PARTITIONS_OPTION
from dml.merge_builder import (
    Condition,
    MergeClauses,
    MergeText,
    RunStatement,
    Value,
    condition_text,
    merge_rows,
)
from dml.result import Result
from dml.spark.classic_columns import output_names
from dml.spark.handlers import StatementHandler, find_handler, run_statement, session_key
from dml.spark.replaced_methods import Method
from dml.spark.runtime import Runtime
from dml.spark_connect.plans import named_plans
from dml.sql_values import column_sql
from dml.tracebacks import short_tracebacks

__all__ = [
    "MergeIntoWriter",
    "handler_of_merge",
    "handler_of_writer",
    "merge_into",
    "overwrite_partitions",
    "remember_target",
    "target_of_writer",
]

SOURCE: Final = "source"
"""The default alias of a source."""


def target_of_writer(_: Any, df: DataFrame, table: str) -> tuple[SparkSession, str]:
    """Return the session and the table of `DataFrameWriterV2(df, table)`."""
    return df.sparkSession, table


def remember_target(
    original: Method, target: tuple[SparkSession, str], /, self: Any, *given: Any, **named: Any
) -> None:
    """Initialize a `DataFrameWriterV2`, and keep its session and table in it."""
    original(self, *given, **named)
    self.rowdelta_target = target


def handler_of_writer(self: Any) -> StatementHandler | None:
    """Return the handler for the table of `overwritePartitions()`."""
    target = getattr(self, "rowdelta_target", None)
    return None if target is None else handler_for(*target)


def overwrite_partitions(_: Method, __: StatementHandler, /, self: Any) -> None:
    """Run `overwritePartitions()` as an overwrite of the partitions of its rows."""
    self.option(OVERWRITE_PARTITIONS_OPTION, "true")
    try:
        self.overwrite(lit(True))
    finally:
        self.option(OVERWRITE_PARTITIONS_OPTION, "false")  # the writer may be used for another call


def handler_for(spark: SparkSession, table: str) -> StatementHandler | None:
    """Return the handler for statements on a table, or None if it is not a RowDelta table."""
    return find_handler(session_key(spark), f"DELETE FROM {table}", lambda: spark)


def handler_of_merge(self: DataFrame, table: str, *_: Any, **__: Any) -> StatementHandler | None:
    """Return the handler for the table of `df.mergeInto(table, condition)`."""
    return handler_for(self.sparkSession, table)


def merge_into(
    _: Method, handler: StatementHandler, /, self: DataFrame, table: str, condition: Condition
) -> "MergeIntoWriter":
    """Run `df.mergeInto(table, condition)`."""
    return begin_merge(handler, self, table, condition)


def begin_merge(handler: StatementHandler, source: DataFrame, table: str, condition: Condition) -> "MergeIntoWriter":
    """Begin a MERGE into a RowDelta table."""
    names = named_plans if Runtime.of(source.sparkSession).is_connect else output_names
    alias, columns = names(source, SOURCE)
    naming = Naming(columns=columns)
    text = MergeText(target=table, source_alias=alias, on=condition_text(naming.condition(condition)))
    return MergeIntoWriter(text, source, naming, lambda text, _: cast("Result", run_statement(handler, text, None)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Converts columns of the source to SQL text.

    Attributes:
        columns: The names of the source's columns by Spark's expression id; on Connect its qualifier by plan id.
    """

    columns: Mapping[int, tuple[str, ...]]

    def condition(self, condition: Condition) -> Condition:
        """Return a condition with columns of the source as names."""
        return column_sql(condition, self.columns) if isinstance(condition, Column) else condition

    def assignments(self, assignments: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return assignments with columns of the source as names."""
        return {
            key: column_sql(value, self.columns) if isinstance(value, Column) else value
            for key, value in assignments.items()
        }


@short_tracebacks
class MergeIntoWriter(MergeClauses):
    """PySpark's `MergeIntoWriter`.

    Args:
        text: The MERGE so far.
        source: Its source.
        naming: The columns of the source, to which conditions and values may be bound.
        run: Runs the statement.
    """

    def __init__(self, text: MergeText, source: DataFrame, naming: Naming, run: RunStatement) -> None:
        self._merge = text
        self._source = source
        self._naming = naming
        self._run = run

    @property
    def _text(self) -> MergeText:
        return self._merge

    def _with_text(self, text: MergeText) -> "MergeIntoWriter":
        return MergeIntoWriter(text, self._source, self._naming, self._run)

    def _named_condition(self, condition: Condition) -> Condition:
        return self._naming.condition(condition)

    def _named_values(self, assignments: Mapping[str, Value]) -> Mapping[str, Value]:
        return self._naming.assignments(assignments)

    def merge(self) -> Result:
        """Run the MERGE.

        Returns:
            The counts of the statement; PySpark's own method returns nothing.

        Raises:
            DmlError: As for the SQL statement.
        """
        return merge_rows(self._merge, self._run, self._source, None)
