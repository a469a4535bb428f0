"""What Spark's plans say of a write or a query beyond what Spark tells a source. Driver, classic Spark only.

Input: a plan of Spark's. Output: of a write, whether its rows are made of rows of its own table, and of which snapshot:
what others add meanwhile would be gone otherwise, and nobody would have seen it. Of a query, whether it may count
different values: the optimizer makes a count of rows of `count(DISTINCT 'web')`, and pushes it as one.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from dml.connector.java import java_class, simple_name, static
from dml.engine.insert import RowsWrite
from dml.engine.target import Target
from dml.spark.internals import FAILURES, internals
from dml.spark.versions import Feature, has

__all__ = ["counts_no_values", "reading_itself", "running_plan"]

EXECUTIONS: Final = "org.apache.spark.sql.execution.SQLExecution"
CATALYST: Final = "org.apache.spark.sql.catalyst."
CURRENT_SNAPSHOT: Final = "current-snapshot-id"
"""The property in which a table says what it was loaded with: before Spark 4.1 tables have no version."""


def reading_itself(write: RowsWrite, plan: JavaObject | None) -> RowsWrite:
    """A write that knows whether its rows are made of rows of its own table, as far as their plan shows.

    Args:
        write: The write.
        plan: The analysed plan of its rows; None where it is not known.
    """
    if write.replaced is None or plan is None:
        return write
    target = write.target
    own = [relation for relation in relations(plan) if str(relation.table().name()) == target.resolved.name]
    if not own:
        return write
    read = {snapshot_id(relation) for relation in own if not travels(relation)} - {target.snapshot_id}
    oldest = min(read, key=lambda found: age(target, found)) if read else target.snapshot_id
    return replace(
        write, replaced=replace(write.replaced, reads_table=True), target=replace(target, snapshot_id=oldest)
    )


def age(target: Target, read: int | None) -> int:
    """The place of a snapshot in the order of the table's; of no snapshot, and of one that is gone, the first."""
    snapshot = None if read is None else target.table.snapshot_by_id(read)
    return -1 if snapshot is None else snapshot.sequence_number or 0


def relations(plan: JavaObject) -> Iterator[JavaObject]:
    """The tables of catalogs that a plan reads."""
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        match simple_name(leaf):
            case "DataSourceV2Relation":
                yield leaf
            case "DataSourceV2ScanRelation":
                yield leaf.relation()


def travels(relation: JavaObject) -> bool:
    """Whether an older state was asked for, as by `VERSION AS OF`; before Spark 4.1 a plan does not say so."""
    return has(Feature.TRAVEL_IN_PLANS) and bool(relation.timeTravelSpec().isDefined())


def snapshot_id(relation: JavaObject) -> int | None:
    """The snapshot that a relation of ours was analysed with; None where the table had none."""
    shown = str(relation.table().properties()[CURRENT_SNAPSHOT])
    return int(shown) if shown.isdigit() else None


def running_plan(spark: SparkSession) -> JavaObject | None:
    """The plan of the command that Spark runs in this thread; None where that is not known."""
    execution = running_execution(spark)
    return None if execution is None else execution.analyzed()


def running_execution(spark: SparkSession) -> JavaObject | None:
    """What Spark runs in this thread; None where that is not known."""
    with internals(EXECUTIONS):  # guessing about a write could lose rows of others
        executions = java_class(EXECUTIONS)
        number = spark.sparkContext.getLocalProperty(executions.EXECUTION_ID_KEY())
        return None if number is None else executions.getQueryExecution(int(number))


def counts_no_values(spark: SparkSession) -> bool:
    """Whether the query that Spark optimizes in this thread is known, and has no aggregate function with DISTINCT.

    It is known while Spark runs it. Who only asks for its plan, as EXPLAIN does, gets False; so does a query that is
    optimized while another one runs.
    """
    try:
        execution = running_execution(spark)
        tracker = static(CATALYST + "QueryPlanningTracker", "get")()
        if execution is None or not tracker.isDefined() or tracker.get() != execution.tracker():
            return False
        return not has_distinct(execution.analyzed())
    except FAILURES:  # for example, an expression without a text
        return False


def has_distinct(plan: JavaObject) -> bool:
    """Whether an aggregate function with DISTINCT is in an analysed plan, its subqueries included."""
    pattern = static(CATALYST + "trees.TreePattern", "AGGREGATE_EXPRESSION")()
    stack = [plan]
    while stack:
        node = stack.pop()
        if not node.containsPattern(pattern):  # nor has anything below it, or a subquery in it
            continue
        asked = (each for each in items(node.expressions()) if each.containsPattern(pattern))
        if any("DISTINCT" in str(each.sql()) for each in asked):
            return True
        stack += [*items(node.children()), *items(node.subqueries())]
    return False


def items(sequence: JavaObject) -> list[JavaObject]:
    """The items of a sequence of Scala's."""
    return [sequence.apply(place) for place in range(sequence.size())]
