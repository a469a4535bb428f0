"""The query or write that Spark runs in this thread, beyond what Spark passes to a source. Driver, classic Spark only.

Output: its analysed plan, and whether it may count different values: the optimizer turns `count(DISTINCT 'web')` into
a count of rows, and pushes it down as one.
"""

from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from dml.spark.internals import FAILURES, internals
from dml.spark.java import java_class, static

__all__ = ["counts_no_values", "running_plan"]

EXECUTIONS: Final = "org.apache.spark.sql.execution.SQLExecution"
CATALYST: Final = "org.apache.spark.sql.catalyst."


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
