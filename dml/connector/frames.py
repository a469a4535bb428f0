"""Tables in the state that they have now, as DataFrames. Driver, classic Spark only.

Input: a table, or what a query in SQL reads of one. Output: a DataFrame that Spark plans as it plans `spark.table`, so
that conditions and columns that are chosen later leave out files, fixed to a snapshot: Spark loads a table anew for
each action where it knows the table's catalog, and here it does not.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.catalog.registry import ResolvedTable
from dml.connector.java import capabilities, java_class, none, static, struct_type
from dml.connector.known_values import has_known_extremes
from dml.connector.proxies import Proxy, default_method
from dml.connector.scan import PlannedScan, ScanRead, SparkScan
from dml.connector.scan_builder import cheapest, scan_builder
from dml.connector.state import TableState
from dml.connector.table import SparkTable
from dml.connector.table_changes import reference_of
from dml.connector.workers import has_python_readers
from dml.engine.engine import Engine, ReadFrame, SnapshotRead, StatementSettings, is_connect
from dml.scan.planner import ScanPlan
from dml.scan.size import live_rows
from dml.scan.source import spark_schema
from dml.spark.internals import works
from dml.spark.jvm import classic_session, take_callbacks, weak_session
from dml.spark.shared_files import check_reads
from dml.sqlparse.names import name_parts
from dml.views import StatementTables

__all__ = ["frames_of_reads", "table_frame"]

SUBQUERY_ALIAS: Final = "org.apache.spark.sql.catalyst.plans.logical.SubqueryAlias"
ALIAS: Final = "org.apache.spark.sql.catalyst.AliasIdentifier"
TABLE_RELATION: Final = "org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation"
DATASET: Final = "org.apache.spark.sql.classic.Dataset"


def table_frame(engine: Engine, name: str) -> DataFrame | None:
    """A table as it is now, or the part of it that its name says.

    Args:
        engine: The session and its catalogs.
        name: The table's name, as in a statement.

    Returns:
        Its rows; None where a statement has to find it: on Spark Connect, of metadata tables, of views, of no table.

    Raises:
        NotFoundError: it has no such branch, tag or snapshot.
    """
    parts = name_parts(name)
    if not parts or not plans_our_scans(engine.spark):
        return None
    tables = StatementTables(statement=name, spark=engine.spark, registry=engine.registry)
    resolved = tables.resolve(reference_of(parts))
    if resolved is None or resolved.metadata_table is not None:
        return None
    take_callbacks()
    state = TableState.of(engine, resolved, None, None).fixed()
    relation = relation_of(SparkTable(lambda: engine, state))
    plan = java_class(SUBQUERY_ALIAS)(name_of(resolved), relation)
    return frame_of(engine.spark, plan)


def frames_of_reads(spark: SparkSession) -> ReadFrame | None:
    """What makes the DataFrames of tables in SQL; None where Spark cannot plan our scans."""
    return read_frame if plans_our_scans(spark) else None


def plans_our_scans(spark: SparkSession) -> bool:
    """Whether Spark takes scans of ours by its connector API: not on Connect, nor where Python readers cannot run."""
    return (
        not is_connect(spark)
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


def read_frame(engine: Engine, settings: StatementSettings, found: SnapshotRead) -> DataFrame | None:
    """What a query in SQL reads of a table, as a DataFrame.

    Args:
        engine: The session and its catalogs.
        settings: The session's settings as they were when the statement started.
        found: The table in one state, the columns and rows that the query can need.

    Returns:
        Its rows; None where Python workers would have to read them, and `found` asks for a frame without them.

    Raises:
        NotSupportedError: Spark has no type for a column.
        SetupError: the workers cannot run our tasks.
    """
    check_reads(engine.spark, found.resolved.table)
    take_callbacks()
    state = TableState(resolved=found.resolved, snapshot_id=found.snapshot_id, schema=found.schema).fixed()
    needed = found.needed
    columns = needed.field_ids
    if not columns and not needed.metadata_columns:
        columns = (cheapest(found.schema.fields).field_id,)
    read = ScanRead(
        state=state, columns=columns, metadata_columns=needed.metadata_columns, row_filter=needed.row_filter
    )
    # A query that needs no column counts rows, as a rule.
    needs_nothing = not needed.field_ids and not needed.metadata_columns
    is_counted = (
        needs_nothing
        and found.plan is not None
        and live_rows(found.plan.tasks, trust_position_deletes=False) is not None
    )
    plan = found.plan
    if plan is not None and has_known_extremes(engine.spark, read, plan, needed.extremes):
        plan = None  # Spark asks the builder of scans, which answers
    elif found.without_python and not is_counted and SparkScan(engine, read, found.plan, settings).vectorized is None:
        return None
    registry, session = engine.registry, weak_session(engine.spark)
    table = ReadTable(lambda: Engine(spark=session(), registry=registry), settings, read, plan)
    return frame_of(engine.spark, relation_of(table))


class ReadTable(Proxy):
    """What a query in SQL reads of a table, as a table of its own: no other columns, metadata columns among them.

    The query's own conditions leave out rows, also by functions of which Spark tells a scan nothing.

    Args:
        engine: Gives the session and its catalogs: a temporary view keeps its tables, and is kept by its session, which
            nobody could let go if they held it.
        settings: The statement's settings.
        read: What is read.
        plan: Its tasks, where all of them are read and no others.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("catalog.SupportsRead",)

    def __init__(
        self, engine: Callable[[], Engine], settings: StatementSettings, read: ScanRead, plan: ScanPlan | None = None
    ) -> None:
        self._provide = engine
        self.settings = settings
        self.read = read
        self.plan = plan
        self.fields = spark_schema(read.context(ScanPlan(snapshot_id=None)))

    @property
    def identity(self) -> tuple[object, ...]:
        """What is read, and of which state."""
        return (*self.read.identity, self.plan is None)

    def name(self) -> str:
        """The table's full name."""
        return self.read.state.resolved.name

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
            return PlannedScan(self._provide(), self.read, self.plan, self.settings)
        return scan_builder(self._provide(), self.read, self.settings)

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


def name_of(resolved: ResolvedTable) -> JavaObject:
    """The name that columns may be qualified with, or its end."""
    qualifier = scala_sequence((resolved.catalog_name, *resolved.identifier[:-1]))
    return java_class(ALIAS)(resolved.identifier[-1], qualifier)


def scala_sequence(parts: Iterable[str]) -> JavaObject:
    """Convert strings to a Scala sequence."""
    listed = java_class("java.util.ArrayList")()
    for part in parts:
        listed.add(part)
    return java_class("org.apache.spark.api.python.PythonUtils").toSeq(listed)
