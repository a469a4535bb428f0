"""Inspect the query or write that Spark runs or explains in this thread. Driver, classic Spark only.

Output: its analyzed plan, which Spark does not pass to sources; the scans of a planned query; and whether a query may
count distinct values: the optimizer turns `count(DISTINCT 'web')` into a count of rows and pushes it down as one.
"""

from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession

from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import FAILURES, UnknownInternalsError, warn_degraded
from dml.spark.bridge.names import (
    DISTINCT_READ,
    EXPLAINED_PLAN,
    NOT_EXPLAINED,
    PLANNING_TRACKER,
    SQL_EXECUTION,
    TREE_PATTERN,
)
from dml.spark.bridge.sessions import query_execution
from dml.spark.bridge.values import elements

__all__ = ["counts_no_values", "explained_plan", "record_scan", "running_plan"]

Described = TypeVar("Described", bound="DescribedScan")


class DescribedScan(Protocol):
    """A scan that Spark plans."""

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedQuery:
    """A query that RowDelta explains.

    Attributes:
        execution: Its execution, which plans it.
        scans: The scans that Spark has planned for it.
    """

    execution: JavaObject
    scans: list[DescribedScan]


EXPLAINED: Final[list[ExplainedQuery]] = []
"""The queries that are explained at the moment, by all threads: Spark calls back in others."""


def explained_plan(frame: DataFrame, mode: str) -> tuple[str, list[str]] | None:
    """Plan a query as if it ran, so that EXPLAIN shows the readers that it would get.

    Args:
        frame: The query.
        mode: The mode of EXPLAIN: `simple`, `extended`, `codegen`, `cost` or `formatted`.

    Returns:
        Spark's text of the plans, and the descriptions of RowDelta's scans; None if this Spark has no such function.
    """
    query = ExplainedQuery(execution=query_execution(frame), scans=[])
    EXPLAINED.append(query)
    try:
        plan = str(EXPLAINED_PLAN.call("explainString", query.execution, mode))
        return plan, list(dict.fromkeys(scan.description() for scan in query.scans))
    except UnknownInternalsError as error:
        warn_degraded("the explained query", error, NOT_EXPLAINED)
        return None
    finally:
        EXPLAINED[:] = [other for other in EXPLAINED if other is not query]


def explained_query() -> ExplainedQuery | None:
    """Return the explained query that Spark optimizes in the calling thread of the JVM."""
    if not EXPLAINED:
        return None
    try:
        tracker = PLANNING_TRACKER.call("get")
        found = (query for query in tuple(EXPLAINED) if tracker.get() == query.execution.tracker())
        return next(found, None) if tracker.isDefined() else None
    except UnknownInternalsError as error:
        warn_degraded("the explained query", error, NOT_EXPLAINED)
        return None


def record_scan(scan: Described) -> Described:
    """Record a scan, if Spark plans it for EXPLAIN, and return it."""
    query = explained_query()
    if query is not None:
        query.scans.append(scan)
    return scan


def running_plan(spark: SparkSession) -> JavaObject | None:
    """Return the analyzed plan of the command that Spark runs in this thread; None if unknown."""
    execution = running_execution(spark)
    return None if execution is None else execution.analyzed()


def running_execution(spark: SparkSession) -> JavaObject | None:
    """Return the query execution in this thread; None if unknown."""
    # Raises if Spark keeps it elsewhere: a wrong guess about a write could lose rows of other commits.
    number = spark.sparkContext.getLocalProperty(SQL_EXECUTION.call("EXECUTION_ID_KEY"))
    return None if number is None else SQL_EXECUTION.call("getQueryExecution", int(number))


def counts_no_values(spark: SparkSession) -> bool:
    """Return whether the query that Spark optimizes in this thread is known to have no aggregate with DISTINCT.

    A query is known while Spark runs it or RowDelta explains it. The result is False if only its plan is requested, as
    by `DataFrame.explain`, or if it is optimized while another query runs.
    """
    try:
        explained = explained_query()
        execution = running_execution(spark) if explained is None else explained.execution
        tracker = PLANNING_TRACKER.call("get")
        if execution is None or not tracker.isDefined() or tracker.get() != execution.tracker():
            return False
        return not has_distinct(execution.analyzed())
    except UnknownInternalsError as error:
        warn_degraded("the running query", error, DISTINCT_READ)
        return False
    except FAILURES:  # for example, an expression without a text
        return False


def has_distinct(plan: JavaObject) -> bool:
    """Return whether an analyzed plan, including its subqueries, has an aggregate with DISTINCT."""
    pattern = TREE_PATTERN.call("AGGREGATE_EXPRESSION")
    stack = [plan]
    while stack:
        node = stack.pop()
        if not node.containsPattern(pattern):  # the pattern covers children and subqueries
            continue
        aggregates = (each for each in elements(node.expressions()) if each.containsPattern(pattern))
        if any("DISTINCT" in str(each.sql()) for each in aggregates):
            return True
        stack += [*elements(node.children()), *elements(node.subqueries())]
    return False
