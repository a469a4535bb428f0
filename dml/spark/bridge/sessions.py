"""Private fields and methods of PySpark's sessions, contexts and DataFrames. Driver.

Input: objects of PySpark. Output: the JVM's objects behind classic ones. Readers and writers are in `writers.py`.
"""
# ruff: noqa: SLF001  PySpark has no public names for them

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from dml.spark.bridge.gateway import JavaObject, jvm_view

__all__ = [
    "activate",
    "analyzed_plan",
    "cache_manager",
    "classic_session",
    "empty_frame",
    "internal_rows",
    "is_classic",
    "named_frames",
    "optimized_plan",
    "session_state",
    "weak_session",
]


def is_classic(spark: SparkSession) -> bool:
    """Return True if this process is the driver of a session: False on Connect."""
    return hasattr(spark, "_jsparkSession")


def classic_session(spark: SparkSession) -> JavaObject:
    """Return the JVM's session of a classic one."""
    return cast("Any", spark)._jsparkSession


def session_state(spark: SparkSession) -> JavaObject:
    """Return the `SessionState` of a classic session: its parser, its catalogs."""
    return classic_session(spark).sessionState()


def weak_session(spark: SparkSession) -> Callable[[], SparkSession]:
    """Return a getter of a classic session that holds it weakly: JVM objects of the session could keep it alive."""
    context = spark.sparkContext
    reference = jvm_view().java.lang.ref.WeakReference(cast("Any", spark)._jsparkSession)
    return lambda: SparkSession(context, reference.get())


def activate(spark: SparkSession) -> None:
    """Make a classic session the thread's active one if it has none: Spark would use default settings."""
    session = classic_session(spark)
    if not session.getActiveSession().isDefined():
        session.setActiveSession(session)


def cache_manager(spark: SparkSession) -> JavaObject:
    """Return the `CacheManager` of an application, which its sessions share."""
    return cast("Any", spark)._jsparkSession.sharedState().cacheManager()


def analyzed_plan(frame: DataFrame) -> JavaObject:
    """Return the analyzed plan of a DataFrame."""
    return cast("Any", frame)._jdf.queryExecution().analyzed()


def optimized_plan(frame: DataFrame) -> JavaObject:
    """Return the optimized plan of a DataFrame."""
    return cast("Any", frame)._jdf.queryExecution().optimizedPlan()


def internal_rows(frame: DataFrame) -> JavaObject:
    """Run a DataFrame and return its rows as `InternalRow`s."""
    return cast("Any", frame)._jdf.queryExecution().executedPlan().executeCollect()


def empty_frame(spark: SparkSession, schema: StructType) -> DataFrame:
    """Create a DataFrame without rows that Spark can optimize: one from PySpark's `createDataFrame` runs a job.

    Args:
        spark: A session, classic or Connect.
        schema: The columns.
    """
    if not is_classic(spark):
        return spark.createDataFrame([], schema)
    session = classic_session(spark)
    if not schema.fields:
        return DataFrame(session.emptyDataFrame(), spark)
    rows, columns = jvm_view().java.util.ArrayList(), session.parseDataType(schema.json())
    return DataFrame(session.createDataFrame(rows, columns), spark)


@contextmanager
def named_frames(spark: SparkSession, frames: Mapping[str, DataFrame]) -> Iterator[None]:
    """Create temporary views for the block, and drop them without uncaching their rows.

    `spark.catalog.dropTempView` of a classic session, and so a DataFrame among the arguments of its `sql`, uncaches
    them: the source of a MERGE would be evaluated again, and return other rows if it is not deterministic.

    Args:
        spark: The session, classic or Connect.
        frames: The DataFrames by view name, in lower case.
    """
    catalog = session_state(spark).catalog() if is_classic(spark) else spark.catalog
    try:
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        yield
    finally:
        for name in frames:
            catalog.dropTempView(name)
