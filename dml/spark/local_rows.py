"""Whether the rows of a DataFrame are made of its plan alone: numbers, constants, rows that the driver gave. Driver.

Input: a DataFrame. Output: what Spark's optimizer knows of it; no job is run.
"""

from typing import Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dml.spark.handlers import is_classic
from dml.spark.jvm import analyzed_plan, jvm_view, optimized_plan

__all__ = ["has_at_most"]

MADE_OF_NOTHING: Final = frozenset(
    ["Project", "Filter", "Range", "LocalRelation", "OneRowRelation", "Union", "GlobalLimit", "LocalLimit"]
)
MOST_NODES: Final = 8


def has_at_most(frame: DataFrame, rows: int) -> bool:
    """Whether a DataFrame certainly has no more rows, the same ones each time, and costs next to nothing.

    Args:
        frame: A DataFrame, analysed.
        rows: How many.

    Returns:
        False also where nobody knows, as on Connect.
    """
    if not is_classic(frame.sparkSession):
        return False
    try:
        plan = optimized_plan(frame)
        known = plan.maxRows()
        return bool(
            known.isDefined()
            and known.get() <= rows
            and plan.deterministic()
            and is_made_of_nothing(plan, MOST_NODES)
            and not reads_clock(analyzed_plan(frame))
        )
    except (Py4JError, PySparkException):  # an error of the query, which running it shows
        return False


def is_made_of_nothing(plan: JavaObject, nodes: int) -> bool:
    """Whether a plan has no more than so many nodes, all of which read nothing."""
    stack = [plan]
    while stack:
        nodes -= 1
        node = stack.pop()
        if nodes < 0 or node.nodeName() not in MADE_OF_NOTHING:
            return False
        children = node.children()
        stack += [children.apply(place) for place in range(children.size())]
    return True


def reads_clock(plan: JavaObject) -> bool:
    """Whether an analysed plan asks for the time (`current_date`, `now()`), the user or the database."""
    current = jvm_view().org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    return bool(plan.containsPattern(current))
