"""Private fields and methods of PySpark's sessions, contexts and DataFrames. Driver.

Input: objects of PySpark. Output: the JVM's objects behind classic ones. Readers and writers are in `writers.py`.
"""
# ruff: noqa: SLF001  PySpark has no public names for them

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, cast

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.spark.bridge.gateway import JavaObject, java_class
from dml.spark.bridge.names import BUILDER_OPTIONS, FORMATTER_VIEWS, FRAME, SESSION

__all__ = [
    "PendingContext",
    "activate",
    "active_context",
    "analyzed_plan",
    "builder_options",
    "cache_manager",
    "classic_session",
    "drop_view",
    "empty_frame",
    "frame_of_plan",
    "frames_of_formatter",
    "has_pending_context",
    "instantiated_session",
    "internal_rows",
    "is_connect",
    "jar_loader",
    "java_session_state",
    "named_frames",
    "optimized_plan",
    "query_execution",
    "session_state",
    "set_pending_context",
    "spark_context",
    "start_gateway",
    "start_jvm",
    "weak_session",
]


def is_connect(value: object) -> bool:
    """Return True if a session, a DataFrame, a Column, a reader or a writer is one of Spark Connect's client.

    Sends no request. For a session, prefer `Runtime.of(spark).is_connect`.
    """
    return type(value).__module__.startswith("pyspark.sql.connect.")


def classic_session(spark: SparkSession) -> JavaObject:
    """Return the JVM's session of a classic one."""
    return SESSION.of(spark)


def session_state(spark: SparkSession) -> JavaObject:
    """Return the `SessionState` of a classic session: its parser, its catalogs."""
    return java_session_state(SESSION.of(spark))


def query_execution(frame: DataFrame) -> JavaObject:
    """Return the `QueryExecution` of a DataFrame."""
    return FRAME.of(frame).queryExecution()


def active_context() -> Any:
    """Return the running context of this process, or None."""
    found = cast("Any", SparkContext)._active_spark_context
    return found if isinstance(found, SparkContext) else None


class PendingContext:
    """Stands in for the context of a session that has not started: PySpark's use of it starts the session.

    `F.col("id")` and `SparkSession.getActiveSession()` read the context of the process.

    Args:
        start: Starts the session and returns its context.
    """

    def __init__(self, start: Callable[[], SparkContext]) -> None:
        self._start = start

    def __bool__(self) -> bool:
        return False  # PySpark refuses a second context beside a running one

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._start(), name)


def set_pending_context(context: PendingContext | None) -> None:
    """Make PySpark find a placeholder for the context, or none, unless a context is running."""
    if active_context() is None:
        cast("Any", SparkContext)._active_spark_context = context


def has_pending_context() -> bool:
    """Return True if PySpark finds a placeholder for the context."""
    return isinstance(cast("Any", SparkContext)._active_spark_context, PendingContext)


def spark_context(spark: SparkSession) -> SparkContext | None:
    """Return the context of a classic session; None on Connect."""
    return None if is_connect(spark) else spark.sparkContext


def instantiated_session() -> SparkSession | None:
    """Return the session that PySpark's builder returns, if there is one."""
    return cast("Any", SparkSession)._instantiatedSession  # type: ignore[no-any-return]


def builder_options(builder: SparkSession.Builder) -> dict[str, Any]:
    """Return the options of a builder, to read or to change them."""
    return BUILDER_OPTIONS.of(builder)  # type: ignore[no-any-return]


def start_gateway() -> None:
    """Connect to the JVM that spark-submit has started. Before that, Python does not have its settings."""
    cast("Any", SparkContext)._ensure_initialized()


def start_jvm(settings: Mapping[str, str], stderr: int) -> None:
    """Start the JVM of this process, unless it is running, as PySpark would for a session with these settings.

    Args:
        settings: The settings of the session.
        stderr: The file descriptor of its standard error.
    """
    context = cast("Any", SparkContext)
    if context._gateway is None:
        conf = SparkConf()
        for key, value in settings.items():
            conf.set(key, value)
        context._ensure_initialized(gateway=cast("Any", launch_gateway)(conf, {"stderr": stderr}))


def frames_of_formatter(formatter: Any) -> list[tuple[DataFrame, str]]:
    """Return the DataFrames in the placeholders of a statement, and the names of their views."""
    return FORMATTER_VIEWS.of(formatter)  # type: ignore[no-any-return]


def java_session_state(session: JavaObject) -> JavaObject:
    """Return the `SessionState` of the JVM's session."""
    return session.sessionState()


def jar_loader(spark: SparkSession) -> JavaObject:
    """Return the class loader that includes the JARs added to the running application."""
    return SESSION.of(spark).sharedState().jarClassLoader()


def weak_session(spark: SparkSession) -> Callable[[], SparkSession]:
    """Return a getter of a classic session that holds it weakly: JVM objects of the session could keep it alive."""
    context = spark.sparkContext
    reference = java_class("java.lang.ref.WeakReference")(SESSION.of(spark))
    return lambda: SparkSession(context, reference.get())


def activate(spark: SparkSession) -> None:
    """Make a classic session the thread's active one if it has none: otherwise Spark would use default settings."""
    session = classic_session(spark)
    if not session.getActiveSession().isDefined():
        session.setActiveSession(session)


def cache_manager(spark: SparkSession) -> JavaObject:
    """Return the `CacheManager` of an application, which its sessions share."""
    return SESSION.of(spark).sharedState().cacheManager()


def analyzed_plan(frame: DataFrame) -> JavaObject:
    """Return the analyzed plan of a DataFrame."""
    return query_execution(frame).analyzed()


def optimized_plan(frame: DataFrame) -> JavaObject:
    """Return the optimized plan of a DataFrame."""
    return query_execution(frame).optimizedPlan()


def internal_rows(frame: DataFrame) -> JavaObject:
    """Run a DataFrame and return its rows as `InternalRow`s."""
    return query_execution(frame).executedPlan().executeCollect()


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Create a DataFrame without rows that Spark can optimize: one from PySpark's `createDataFrame` runs a job.

    Args:
        spark: A session, classic or Connect.
        schema: The columns.
    """
    if is_connect(spark):
        frame = spark.createDataFrame([], schema)
        return frame if schema.fields else finished(frame)
    session = classic_session(spark)
    if not schema.fields:
        return finished(DataFrame(session.emptyDataFrame(), spark))
    rows, columns = java_class("java.util.ArrayList")(), session.parseDataType(schema.json())
    return DataFrame(session.createDataFrame(rows, columns), spark)


def finished(frame: DataFrame) -> DataFrame:
    """Return the DataFrame without columns that a statement such as CREATE TABLE returns: a prompt shows `FINISHED`."""
    kind: Any = type(frame)
    frame.__class__ = finished_class(kind)
    return frame


@cache
def finished_class(kind: type[Any]) -> type[Any]:
    """Return a subclass of a class of DataFrames, of which there are two, that shows `FINISHED`."""

    def show_finished(_: object) -> str:
        return FINISHED

    methods = {"__repr__": show_finished, "_repr_html_": show_finished, "__module__": kind.__module__}
    return type(kind.__name__, (kind,), methods)


FINISHED: Final = "Done (no rows)"


@contextmanager
def named_frames(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Create temporary views for the block, and drop them without uncaching their rows.

    On a classic session, `spark.catalog.dropTempView` uncaches the rows of a view, and so does `sql` with a DataFrame
    as an argument. The source of a MERGE would then be evaluated again, and return other rows if it is not
    deterministic.

    Args:
        spark: The session, classic or Connect.
        frames: The DataFrames by view name, in lower case.
    """
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name in frames:
            drop_view(spark, name)


def drop_view(spark: SparkSession, name: str) -> None:
    """Drop a temporary view without uncaching its rows."""
    catalog = spark.catalog if is_connect(spark) else session_state(spark).catalog()
    catalog.dropTempView(name)


def frame_of_plan(plan: Any, spark: SparkSession) -> DataFrame:
    """Return the DataFrame of a plan of Spark Connect's client."""
    return cast("DataFrame", importlib.import_module("pyspark.sql.connect.dataframe").DataFrame(plan, spark))
