"""Calls of writers that Spark would do otherwise: `mergeInto` and `overwritePartitions`. Driver.

Input: PySpark's calls on tables of ours. Output: of `mergeInto` the MERGE that `MergeBuilder` puts together, run as
`spark.sql` would run it; of `overwritePartitions` an overwrite with the option that makes it dynamic: its rows come to
us before they are distributed, and Spark does not know the bucket of a value. Tables that are none of ours keep
PySpark's methods.

The source of a MERGE is called as the DataFrame is: by its alias, or by the table or view that its columns are from.
Columns that are bound to it (`source.id`, `source["id"]`) are its columns too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.sql import Column, DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql.functions import lit

from dml.connector.write import OF_PARTITIONS
from dml.engine.engine import is_connect
from dml.merge_builder import Condition, MergeBuilder, Value, WhenMatchedBuilder, WhenNotMatchedBuilder
from dml.result import Result
from dml.spark.columns import column_sql, output_columns
from dml.spark.handlers import StatementHandler, find_handler, run_statement, session_key
from dml.spark.replaced_methods import Method, Replacement, replace_methods

__all__ = ["CLASSIC_REPLACEMENTS", "MergeIntoWriter", "merge_replacement", "take_writers"]

SOURCE: Final = "source"
"""The alias of a source that has none."""


def take_writers(spark: SparkSession) -> None:
    """Let the writers of a session's DataFrames look whether the table is ours; PySpark 3.5 has no `mergeInto`."""
    if not is_connect(spark):
        replace_methods(CLASSIC_REPLACEMENTS)
    owner = class_with_merge_into(spark)
    if owner is not None:
        replace_methods([merge_replacement(owner)])


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
    self.option(OF_PARTITIONS, "true")
    try:
        self.overwrite(lit(True))
    finally:
        self.option(OF_PARTITIONS, "false")  # the next call of this writer may be another


CLASSIC_REPLACEMENTS: Final = (
    Replacement(DataFrameWriterV2, "__init__", target_of_writer, remember_target),
    Replacement(DataFrameWriterV2, "overwritePartitions", handler_of_writer, overwrite_partitions),
)


def handler_for(spark: SparkSession, table: str) -> StatementHandler | None:
    """What takes the statements on a table; None for one that is none of ours."""
    return find_handler(session_key(spark), f"DELETE FROM {table}", lambda: spark)


def class_with_merge_into(spark: SparkSession) -> Any:
    """The class that defines `mergeInto` of a session's DataFrames; None where there is none."""
    frame = type(spark.range(0))
    return next((kind for kind in frame.__mro__ if "mergeInto" in vars(kind)), None)


def merge_replacement(owner: Any) -> Replacement:
    """Return the replacement of `mergeInto` for a class of DataFrames."""
    return Replacement(owner, "mergeInto", handler_of_merge, merge_into)


def handler_of_merge(self: DataFrame, table: str, *_: Any, **__: Any) -> StatementHandler | None:
    """Return the handler for the table of `df.mergeInto(table, condition)`."""
    return handler_for(self.sparkSession, table)


def merge_into(
    _: Method, handler: StatementHandler, /, self: DataFrame, table: str, condition: Condition
) -> "MergeIntoWriter":
    """Run `df.mergeInto(table, condition)`."""
    return writer(handler, self, table, condition)


def writer(handler: StatementHandler, source: DataFrame, table: str, condition: Condition) -> "MergeIntoWriter":
    """Begin a MERGE into a table of ours."""
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
    """Columns of the source as SQL text.

    Attributes:
        columns: The names of the source's columns, by Spark's ids of them.
    """

    columns: Mapping[int, tuple[str, ...]]

    def condition(self, condition: Condition | None) -> Condition | None:
        """A condition, without columns that are bound to the source."""
        return column_sql(condition, self.columns) if isinstance(condition, Column) else condition

    def assignments(self, assignments: Mapping[str, Value]) -> Mapping[str, Value]:
        """Assignments, without columns that are bound to the source."""
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
        """`WHEN MATCHED [AND condition] THEN` what is called next."""
        return WhenMatchedWriter(writer=self, clause=self.builder.whenMatched(self.naming.condition(condition)))

    def whenNotMatched(self, condition: Condition | None = None) -> "WhenNotMatchedWriter":  # noqa: N802
        """`WHEN NOT MATCHED [AND condition] THEN` what is called next."""
        return WhenNotMatchedWriter(writer=self, clause=self.builder.whenNotMatched(self.naming.condition(condition)))

    def whenNotMatchedBySource(self, condition: Condition | None = None) -> "WhenMatchedWriter":  # noqa: N802
        """`WHEN NOT MATCHED BY SOURCE [AND condition] THEN` what is called next."""
        return WhenMatchedWriter(
            writer=self, clause=self.builder.whenNotMatchedBySource(self.naming.condition(condition))
        )

    def withSchemaEvolution(self) -> "MergeIntoWriter":  # noqa: N802
        """Add columns of the source that the table lacks."""
        return self.followed_by(self.builder.withSchemaEvolution())

    def followed_by(self, builder: MergeBuilder) -> "MergeIntoWriter":
        """The same with one more clause, or another setting."""
        return MergeIntoWriter(builder=builder, naming=self.naming)

    def merge(self) -> Result:
        """Run it.

        Returns:
            What it did; PySpark's own returns nothing.

        Raises:
            DmlError: as the SQL statement would.
        """
        return self.builder.merge()


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenMatchedWriter:
    """What is done with target rows."""

    writer: MergeIntoWriter
    clause: WhenMatchedBuilder

    def update(self, assignments: Mapping[str, Value]) -> MergeIntoWriter:
        """`UPDATE SET ...`."""
        return self.writer.followed_by(self.clause.update(self.writer.naming.assignments(assignments)))

    def updateAll(self) -> MergeIntoWriter:  # noqa: N802
        """`UPDATE SET *`."""
        return self.writer.followed_by(self.clause.updateAll())

    def delete(self) -> MergeIntoWriter:
        """`DELETE`."""
        return self.writer.followed_by(self.clause.delete())


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenNotMatchedWriter:
    """What is done with source rows that match no target row."""

    writer: MergeIntoWriter
    clause: WhenNotMatchedBuilder

    def insert(self, assignments: Mapping[str, Value]) -> MergeIntoWriter:
        """`INSERT (...) VALUES (...)`."""
        return self.writer.followed_by(self.clause.insert(self.writer.naming.assignments(assignments)))

    def insertAll(self) -> MergeIntoWriter:  # noqa: N802
        """`INSERT *`."""
        return self.writer.followed_by(self.clause.insertAll())
