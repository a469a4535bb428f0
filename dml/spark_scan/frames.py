"""What a query in SQL reads of a table, as a DataFrame whose scan Spark plans. Driver, classic Spark only.

Input: a table in one state, the columns and rows that the query can need. Output: a DataFrame that Spark plans as it
plans `spark.table`, so that conditions and columns that are chosen later leave out files, fixed to a snapshot: Spark
loads a table anew for each action where it knows the table's catalog, and here it does not.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.scan.planner import ScanPlan
from dml.scan.size import live_rows
from dml.scan.table_scan import spark_schema
from dml.spark.handlers import is_classic
from dml.spark.internals import works
from dml.spark.java import capabilities, java_class, none, static, struct_type
from dml.spark.jvm import classic_session, take_callbacks, weak_session
from dml.spark.proxies import Proxy, default_method
from dml.spark.shared_files import check_reads
from dml.spark_scan.known_values import has_known_extremes
from dml.spark_scan.scan import PlannedScan, SparkRead, SparkScan
from dml.spark_scan.scan_builder import cheapest, scan_builder
from dml.spark_scan.workers import has_python_readers

__all__ = ["ALIAS", "SUBQUERY_ALIAS", "frame_of", "plans_our_scans", "read_frame", "relation_of", "scala_sequence"]

SUBQUERY_ALIAS: Final = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
ALIAS: Final = "org.apache.spark.sql.catalyst.AliasIdentifier"
TABLE_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
DATASET: Final = "org.apache.spark.sql.classic.Dataset"


def plans_our_scans(spark: SparkSession) -> bool:
    """Whether Spark takes scans of ours by its connector API: not on Connect, nor where Python readers cannot run."""
    return (
        is_classic(spark)
        and has_python_readers()
        and works("the logical plans of tables", lambda: try_plan(spark), "Python functions read tables in SQL")
    )


def try_plan(spark: SparkSession) -> None:
    """Make the DataFrame of a table without columns, in the same way as that of a real table."""
    take_callbacks()
    sequence, make = scala_sequence(()), java_class(SUBQUERY_ALIAS)
    frame_of(spark, make(java_class(ALIAS)("nothing", sequence), relation_of(NoTable())))


class NoTable(Proxy):
    """A table without columns, for trials."""

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def name(self) -> str:
        """A name."""
        return "nothing"

    def schema(self) -> JavaObject:
        """No columns."""
        return struct_type(StructType([]))

    def columns(self) -> JavaObject:
        """No columns, as Spark makes them of the schema."""
        return default_method(self, "columns")

    def capabilities(self) -> JavaObject:
        """It is read, and nothing else."""
        return capabilities("BATCH_READ")


def read_frame(
    spark: SparkSession, read: SparkRead, extremes: Sequence[tuple[str, str]], plan: ScanPlan | None = None
) -> DataFrame | None:
    """Return what a query in SQL reads of a table, as a DataFrame.

    Args:
        spark: The session.
        read: The columns and rows that the query can need; without columns, it needs the number of rows.
        extremes: As in `TableRead`.
        plan: The tasks, where all of them are read and no others; None where Spark may leave out more.

    Returns:
        The rows; None where a plan is given and Python workers would read it: rows that come from one by the connector
        API are copied once more than those of a DataFrame that `TableScan` makes.

    Raises:
        NotSupportedError: Spark has no type for a column.
        SetupError: The workers cannot run our tasks.
    """
    check_reads(spark, read.table)
    take_callbacks()
    # A query that needs no column counts rows, as a rule.
    needs_nothing = not read.columns and not read.metadata_columns
    if needs_nothing:
        read = replace(read, columns=(cheapest(read.schema.fields).field_id,))
    if plan is not None:
        is_counted = needs_nothing and live_rows(plan.tasks, trust_position_deletes=False) is not None
        if has_known_extremes(spark, read, plan, extremes):
            plan = None  # Spark asks the builder of scans, which answers
        elif not is_counted and SparkScan(spark, read, plan).vectorized is None:
            return None
    return frame_of(spark, relation_of(ReadTable(weak_session(spark), read, plan)))


class ReadTable(Proxy):
    """What a query in SQL reads of a table, as a table of its own: no other columns, metadata columns among them.

    The query's own conditions leave out rows, also by functions of which Spark tells a scan nothing.

    Args:
        session: Gives the session. The table does not hold it: a temporary view keeps its tables and is kept by its
            session, which would then never be freed.
        read: What is read.
        plan: Its tasks, where all of them are read and no others.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def __init__(self, session: Callable[[], SparkSession], read: SparkRead, plan: ScanPlan | None = None) -> None:
        self._session = session
        self.read = read
        self.plan = plan
        self.fields = spark_schema(read.context(()))

    @property
    def identity(self) -> tuple[object, ...]:
        """What is read, and of which state."""
        return (*self.read.identity, self.plan is None)

    def name(self) -> str:
        """The table's full name."""
        return self.read.name

    def schema(self) -> JavaObject:
        """Its columns."""
        return self._java_schema

    def columns(self) -> JavaObject:
        """Its columns, as Spark makes them of the schema."""
        return self._java_columns

    def capabilities(self) -> JavaObject:
        """It is read, and nothing else."""
        return capabilities("BATCH_READ")

    def newScanBuilder(self, _: JavaObject) -> Proxy:
        """A builder of scans."""
        if self.plan is not None:
            return PlannedScan(self._session(), self.read, self.plan)
        return scan_builder(self._session(), self.read)

    @cached_property
    def _java_schema(self) -> JavaObject:
        return struct_type(self.fields)

    @cached_property
    def _java_columns(self) -> JavaObject:
        return default_method(self, "columns")


def relation_of(table: Proxy) -> JavaObject:
    """A table as a logical plan, without a catalog."""
    create = static(TABLE_RELATION, "create")
    return create(table, none(), none())


def frame_of(spark: SparkSession, plan: JavaObject) -> DataFrame:
    """The DataFrame of a logical plan."""
    return DataFrame(static(DATASET, "ofRows")(classic_session(spark), plan), spark)


def scala_sequence(parts: Iterable[str]) -> JavaObject:
    """Convert strings to a Scala sequence."""
    listed = java_class("java.util.ArrayList")()
    for part in parts:
        listed.add(part)
    return java_class("org.apache.spark.api.python.PythonUtils").toSeq(listed)
