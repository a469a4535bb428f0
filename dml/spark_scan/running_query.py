"""Inspect the query or write that Spark runs or explains in this thread. Driver, classic Spark only.

Output: its analyzed plan, which Spark does not pass to sources; the scans of a planned query; and whether a query may
count distinct values: the optimizer turns `count(DISTINCT 'web')` into a count of rows and pushes it down as one.
"""

import threading
from typing import Final, Protocol, TypeVar

from pyspark.sql import DataFrame, SparkSession

from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import FAILURES, UnknownInternalsError, warn_degraded
from dml.spark.bridge.names import DISTINCT_READ, EXPLAINED_PLAN, PLANNING_TRACKER, SQL_EXECUTION, TREE_PATTERN
from dml.spark.bridge.sessions import query_execution

__all__ = ["counts_no_values", "explained_plan", "record_scan", "running_plan"]

Described = TypeVar("Described", bound="DescribedScan")


class ExplainedQuery(threading.local):
    """The query that this thread explains, and the scans that Spark has planned for it."""

    def __init__(self) -> None:
        self.execution: JavaObject | None = None
        self.scans: list[DescribedScan] = []


class DescribedScan(Protocol):
    """A scan that Spark plans."""

    def description(self) -> str:
        """Return the text that EXPLAIN shows."""


EXPLAINED: Final = ExplainedQuery()


def explained_plan(frame: DataFrame, mode: str) -> tuple[str, list[str]]:
    """Plan a query as if it ran, so that EXPLAIN shows the readers that it would get.

    Args:
        frame: The query.
        mode: The mode of EXPLAIN: `simple`, `extended`, `codegen`, `cost` or `formatted`.

    Returns:
        Spark's text of the plans, and the descriptions of RowDelta's scans.
    """
    EXPLAINED.execution, EXPLAINED.scans = query_execution(frame), []
    try:
        plan = str(EXPLAINED_PLAN.call("explainString", EXPLAINED.execution, mode))
        return plan, list(dict.fromkeys(scan.description() for scan in EXPLAINED.scans))
    finally:
        EXPLAINED.execution, EXPLAINED.scans = None, []


def record_scan(scan: Described) -> Described:
    """Record a scan that Spark plans for EXPLAIN, and return it. Spark calls back in the thread that explains."""
    if EXPLAINED.execution is not None:
        EXPLAINED.scans.append(scan)
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
        execution = running_execution(spark) if EXPLAINED.execution is None else EXPLAINED.execution
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
        aggregates = (each for each in items(node.expressions()) if each.containsPattern(pattern))
        if any("DISTINCT" in str(each.sql()) for each in aggregates):
            return True
        stack += [*items(node.children()), *items(node.subqueries())]
    return False


def items(sequence: JavaObject) -> list[JavaObject]:
    """Return the items of a Scala sequence."""
    return [sequence.apply(place) for place in range(sequence.size())]
