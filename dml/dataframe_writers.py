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
from dml.merge_builder import Condition, MergeBuilder, Value, WhenMatchedBuilder, WhenNotMatchedBuilder
from dml.result import Result
from dml.spark.columns import column_sql, output_columns
from dml.spark.handlers import StatementHandler, find_handler, run_statement, session_key
from dml.spark.replaced_methods import Method

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
    alias, columns = output_columns(source, SOURCE)
    naming = Naming(columns=columns)
    builder = MergeBuilder(
        run=lambda text, _: cast("Result", run_statement(handler, text, None)),
        target=table,
        source=source,
        source_alias=alias,
        on=naming.condition(condition) or "TRUE",
    )
    return MergeIntoWriter(builder=builder, naming=naming)


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """Converts columns of the source to SQL text.

    Attributes:
        columns: The names of the source's columns, by Spark's expression ids.
    """

    columns: Mapping[int, tuple[str, ...]]

    def condition(self, condition: Condition | None) -> Condition | None:
        """Return a condition with columns of the source as names."""
        return column_sql(condition, self.columns) if isinstance(condition, Column) else condition

    def assignments(self, assignments: Mapping[str, Value]) -> Mapping[str, Value]:
        """Return assignments with columns of the source as names."""
        return {
            key: column_sql(value, self.columns) if isinstance(value, Column) else value
            for key, value in assignments.items()
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeIntoWriter:
    """PySpark's `MergeIntoWriter` over a `MergeBuilder`."""

    builder: MergeBuilder
    naming: Naming

    def whenMatched(self, condition: Condition | None = None) -> "WhenMatchedWriter":  # noqa: N802 - PySpark's name
        """Add `WHEN MATCHED [AND condition] THEN` with the action of the next call."""
        return WhenMatchedWriter(writer=self, clause=self.builder.whenMatched(self.naming.condition(condition)))

    def whenNotMatched(self, condition: Condition | None = None) -> "WhenNotMatchedWriter":  # noqa: N802
        """Add `WHEN NOT MATCHED [AND condition] THEN` with the action of the next call."""
        return WhenNotMatchedWriter(writer=self, clause=self.builder.whenNotMatched(self.naming.condition(condition)))

    def whenNotMatchedBySource(self, condition: Condition | None = None) -> "WhenMatchedWriter":  # noqa: N802
        """Add `WHEN NOT MATCHED BY SOURCE [AND condition] THEN` with the action of the next call."""
        return WhenMatchedWriter(
            writer=self, clause=self.builder.whenNotMatchedBySource(self.naming.condition(condition))
        )

    def withSchemaEvolution(self) -> "MergeIntoWriter":  # noqa: N802
        """Add columns of the source that the table lacks."""
        return self.followed_by(self.builder.withSchemaEvolution())

    def followed_by(self, builder: MergeBuilder) -> "MergeIntoWriter":
        """Return the writer with another builder."""
        return MergeIntoWriter(builder=builder, naming=self.naming)

    def merge(self) -> Result:
        """Run the MERGE.

        Returns:
            The counts of the statement; PySpark's own method returns nothing.

        Raises:
            DmlError: As for the SQL statement.
        """
        return self.builder.merge()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenMatchedWriter:
    """The action on target rows."""

    writer: MergeIntoWriter
    clause: WhenMatchedBuilder

    def update(self, assignments: Mapping[str, Value]) -> MergeIntoWriter:
        """Add `UPDATE SET ...`."""
        return self.writer.followed_by(self.clause.update(self.writer.naming.assignments(assignments)))

    def updateAll(self) -> MergeIntoWriter:  # noqa: N802
        """Add `UPDATE SET *`."""
        return self.writer.followed_by(self.clause.updateAll())

    def delete(self) -> MergeIntoWriter:
        """Add `DELETE`."""
        return self.writer.followed_by(self.clause.delete())


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenNotMatchedWriter:
    """The action on source rows that match no target row."""

    writer: MergeIntoWriter
    clause: WhenNotMatchedBuilder

    def insert(self, assignments: Mapping[str, Value]) -> MergeIntoWriter:
        """Add `INSERT (...) VALUES (...)`."""
        return self.writer.followed_by(self.clause.insert(self.writer.naming.assignments(assignments)))

    def insertAll(self) -> MergeIntoWriter:  # noqa: N802
        """Add `INSERT *`."""
        return self.writer.followed_by(self.clause.insertAll())
