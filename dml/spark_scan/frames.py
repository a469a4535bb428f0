"""DataFrames over the tables of a SQL query, whose scans Spark plans. Driver, classic Spark only.

Input: a table in one state, the columns and rows that the query may need. Output: a DataFrame that Spark plans like
`spark.table`, so that later conditions and projections prune files too. It is pinned to a snapshot: its plan names no
catalog, so Spark cannot reload the table for each action.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import pyspark
from pyiceberg.schema import Schema
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.scan.table_scan import spark_schema
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import works
from dml.spark.bridge.names import ALIAS_IDENTIFIER, DATASET, PYTHON_PLANS, SUBQUERY_ALIAS, TABLE_RELATION
from dml.spark.bridge.proxies import Proxy, default_method
from dml.spark.bridge.sessions import classic_session, weak_session
from dml.spark.bridge.values import capabilities, scala_list, scala_none, struct_type
from dml.spark.callbacks import take_callbacks
from dml.spark.runtime import Runtime
from dml.spark.workers import check_reads
from dml.spark_scan.read import SparkRead
from dml.spark_scan.scan_builder import cheapest, scan_builder
from dml.spark_scan.workers import has_python_readers

__all__ = ["frame_of", "named_plan", "read_frame", "relation_of", "unplanned_reason"]


def unplanned_reason(spark: SparkSession, schema: Schema | None = None) -> str | None:
    """Return why Spark cannot plan RowDelta's scans, as a clause to follow "because"; None if it can.

    Args:
        spark: The session.
        schema: The schema of the table; None to check the session alone.
    """
    if Runtime.of(spark).is_connect:
        return "the session uses Spark Connect"
    if not has_python_readers():
        return f"PySpark {pyspark.__version__} lacks the data source API that RowDelta's scans need"
    if not works("the logical plans of tables", lambda: try_plan(spark), PYTHON_PLANS):
        return "RowDelta cannot use the logical plans of this Spark version"
    return "the table has no columns" if schema is not None and not schema.fields else None


def try_plan(spark: SparkSession) -> None:
    """Build the DataFrame of a table without columns, in the same way as for a real table."""
    take_callbacks()
    frame_of(spark, named_plan("nothing", (), relation_of(NoTable())))


class NoTable(Proxy):
    """A table without columns, to test whether the mechanism works."""

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def name(self) -> str:
        """Return a name."""
        return "nothing"

    def schema(self) -> JavaObject:
        """Return an empty schema."""
        return struct_type(StructType([]))

    def columns(self) -> JavaObject:
        """Return no columns, derived by Spark from the schema."""
        return default_method(self, "columns")

    def capabilities(self) -> JavaObject:
        """Allow batch reads only."""
        return capabilities("BATCH_READ")


def read_frame(spark: SparkSession, read: SparkRead) -> DataFrame:
    """Return a DataFrame of the rows that a SQL query reads from a table.

    Args:
        spark: The session.
        read: The columns and rows that the query may need. Without columns, it needs only the number of rows.

    Raises:
        NotSupportedError: Spark has no type for a column.
        SetupError: The workers cannot run RowDelta's tasks.
    """
    check_reads(spark, read.table)
    take_callbacks()
    if not read.columns and not read.metadata_columns:
        read = replace(read, columns=(cheapest(read.schema.fields).field_id,))
    return frame_of(spark, relation_of(ReadTable(weak_session(spark), read)))


class ReadTable(Proxy):
    """A table with only the columns that a SQL query reads, including metadata columns.

    The query's conditions prune it, even if they call functions that Spark does not push down to scans.

    Args:
        session: Returns the session. The table holds no reference to it: the session keeps temporary views and their
            tables alive, so a reference would keep the session from being freed.
        read: The columns and rows to read.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def __init__(self, session: Callable[[], SparkSession], read: SparkRead) -> None:
        self._session = session
        self.read = read
        self.fields = spark_schema(read.context(()))

    @property
    def identity(self) -> tuple[object, ...]:
        """A key for the columns, rows and snapshot."""
        return self.read.identity

    def name(self) -> str:
        """Return the table's full name."""
        return self.read.name

    def schema(self) -> JavaObject:
        """Return the columns as a Spark schema."""
        return self._java_schema

    def columns(self) -> JavaObject:
        """Return the columns, which Spark derives from the schema."""
        return self._java_columns

    def capabilities(self) -> JavaObject:
        """Allow batch reads only."""
        return capabilities("BATCH_READ")

    def newScanBuilder(self, _: JavaObject) -> Proxy:
        """Return a scan builder."""
        return scan_builder(self._session(), self.read)

    @cached_property
    def _java_schema(self) -> JavaObject:
        return struct_type(self.fields)

    @cached_property
    def _java_columns(self) -> JavaObject:
        return default_method(self, "columns")


def relation_of(table: Proxy) -> JavaObject:
    """Return the logical plan of a table, without a catalog."""
    return TABLE_RELATION.call("create", table, scala_none(), scala_none())


def frame_of(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """Return the DataFrame of a logical plan."""
    return DataFrame(DATASET.call("ofRows", classic_session(spark), plan), spark)


def named_plan(name: str, qualifier: Iterable[str], plan: JavaObject) -> JavaObject:
    """Return a plan under a name, by which its columns can be qualified."""
    return SUBQUERY_ALIAS.new(ALIAS_IDENTIFIER.new(name, scala_list(qualifier)), plan)
