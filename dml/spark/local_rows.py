"""What Spark's optimizer knows of the rows of a DataFrame without running it. Driver.

Input: a DataFrame. Output: whether its rows are made of its plan alone (numbers, constants, rows that the driver gave),
and about how many bytes they take.
"""

import re
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from dml import limits
from dml.spark.handlers import is_classic
from dml.spark.internals import FAILURES
from dml.spark.jvm import analyzed_plan, jvm_view, optimized_plan

__all__ = ["estimated_bytes", "local_rows"]

MADE_OF_NOTHING: Final = frozenset(
    ["Project", "Filter", "Range", "LocalRelation", "OneRowRelation", "Union", "GlobalLimit", "LocalLimit"]
)

SPECIAL: Final = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Texts that Spark takes for the time when they become a date or timestamp."""


def local_rows(frame: DataFrame) -> int | None:
    """How many rows a DataFrame has at most, where they are the same each time, and cost next to nothing.

    Args:
        frame: A DataFrame, analysed.

    Returns:
        None also where nobody knows, as on Connect.
    """
    if not is_classic(frame.sparkSession):
        return None
    try:
        plan = optimized_plan(frame)
        known = plan.maxRows()
        if not known.isDefined() or not is_made_of_nothing(plan, limits.MAX_LITERAL_PLAN_NODES):
            return None
        # The optimizer has computed some of it already, so it is no witness of what comes out another time.
        analyzed = analyzed_plan(frame)
        return int(known.get()) if analyzed.deterministic() and not reads_clock(analyzed) else None
    except FAILURES:  # an error of the query, which running it shows
        return None


def estimated_bytes(frame: DataFrame) -> int | None:
    """About how many bytes the rows of a DataFrame take, as Spark's own choice of joins goes by it.

    Args:
        frame: A DataFrame, analysed.

    Returns:
        None where nobody knows, as on Connect.
    """
    if not is_classic(frame.sparkSession):
        return None
    try:
        return int(str(optimized_plan(frame).stats().sizeInBytes()))
    except FAILURES:  # an error of the query, which running it shows
        return None


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
    return bool(plan.containsPattern(current)) or SPECIAL.search(plan.toString()) is not None
