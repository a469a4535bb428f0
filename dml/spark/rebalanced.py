"""Rows that are distributed over tasks of about a size, by Spark's adaptive execution. Driver.

Input: a DataFrame that `repartition` or `repartitionByRange` has distributed. Output: one that is distributed alike, of
which Spark puts small parts together and splits large ones, when it knows how large they are. Of a repartitioned
DataFrame it may not split what belongs to one task, however large that is.

PySpark has a hint for it, which takes columns alone and no size. On Spark Connect nobody can give either: what was
asked for stays.

Source: Spark's `RebalancePartitions`, which it makes of what a table's write asks for.
"""

from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from dml.spark.handlers import is_classic
from dml.spark.internals import FAILURES, warn_degraded
from dml.spark.jvm import analyzed_plan, classic_session, jvm_view
from dml.spark.versions import CLASSIC_PACKAGE

__all__ = ["rebalanced"]

PLANS: Final = "org.apache.spark.sql.catalyst.plans.logical"


def rebalanced(frame: DataFrame, size: int) -> DataFrame:
    """The rows in tasks of about a size.

    Args:
        frame: Rows that were distributed last of all.
        size: About how many bytes a task gets, as they are shuffled.
    """
    spark = frame.sparkSession
    if not is_classic(spark):
        return frame
    try:
        jvm = jvm_view()
        distributed = analyzed_plan(frame)
        none = getattr(jvm, "scala.Option").empty()
        plan = getattr(jvm, f"{PLANS}.RebalancePartitions")(
            distributed.partitionExpressions(), distributed.child(), none, long_option(size)
        )
        return DataFrame(getattr(jvm, f"{CLASSIC_PACKAGE}.Dataset").ofRows(classic_session(spark), plan), spark)
    except FAILURES as error:  # a plan is no interface of Spark's: a vendor's may differ
        warn_degraded("the plan that rebalances tasks", error, "writes do not split large tasks or combine small ones")
        return frame


def long_option(number: int) -> JavaObject:
    """Scala's `Some` of a long; py4j would make an integer of a small number."""
    numbers = getattr(getattr(jvm_view(), f"{PLANS}.Range$"), "MODULE$")
    return numbers.apply(0, number, 1, 1).maxRows()
