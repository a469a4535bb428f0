"""Rows that Spark's tasks read by a function of ours, as a DataFrame whose size Spark knows. Driver.

Input: how many tasks, the function, the columns and the bytes of its rows. Output: a DataFrame. The function is given
the number of its task, and Spark takes what `mapInArrow` gives for as many bytes as it is given: from one number a task
it would conclude that a table of any size is small enough to be sent to every task of a join.

On classic Spark the numbers are an RDD of which Spark is told how large it is. On Spark Connect nobody can be told:
there are more numbers, of which a filter leaves one for each task, and beside them a column of nothing that Spark takes
for wide. It does not estimate what a filter leaves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from py4j.java_gateway import JavaObject
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as spark_types

from dml import limits
from dml.spark.handlers import is_classic
from dml.spark.internals import FAILURES, warn_degraded
from dml.spark.jvm import classic_session, jvm_view
from dml.spark.versions import CLASSIC_PACKAGE

__all__ = ["filtered_numbers", "known_numbers", "task_frame", "value_size"]

NUMBER_SIZE: Final = 8
"""Bytes of a number."""

NUMBER_ROW_SIZE: Final = NUMBER_SIZE + 8
"""Bytes that Spark takes a row for which has a number alone."""


WIDE: Final = "CAST(NULL AS STRUCT<" + ", ".join(f"b{number}: BINARY" for number in range(100)) + ">) AS wide"
WIDE_SIZE: Final = 100 * 100
"""Bytes that Spark takes such a column for, whatever is in it."""


LOGICAL_RDD: Final = "org.apache.spark.sql.execution.LogicalRDD"
RANGE: Final = "org.apache.spark.sql.catalyst.plans.logical.Range"

VALUE_SIZES: Final[Mapping[type[spark_types.DataType], int]] = {
    spark_types.BooleanType: 1,
    spark_types.ByteType: 1,
    spark_types.NullType: 1,
    spark_types.ShortType: 2,
    spark_types.IntegerType: 4,
    spark_types.DateType: 4,
    spark_types.FloatType: 4,
    spark_types.StringType: 20,
    spark_types.BinaryType: 100,
}
"""Bytes that Spark takes values of a type for, where these are not eight."""

LONG_DIGITS: Final = 18
"""Decimals of more digits take twice the bytes."""


def value_size(kind: spark_types.DataType) -> int:
    """Bytes that Spark takes a value of a type for: `defaultSize` of the type in the JVM."""
    match kind:
        case spark_types.StructType():
            return sum(value_size(field.dataType) for field in kind.fields)
        case spark_types.ArrayType():
            return value_size(kind.elementType)
        case spark_types.MapType():
            return value_size(kind.keyType) + value_size(kind.valueType)
        case spark_types.DecimalType():
            return 8 if kind.precision <= LONG_DIGITS else 16
        case _:
            return VALUE_SIZES.get(type(kind), 8)


def task_frame(
    spark: SparkSession,
    tasks: int,
    read: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: spark_types.StructType,
    size: int,
) -> DataFrame:
    """The rows that a function gives.

    Args:
        spark: A session, classic or Connect.
        tasks: How many tasks there are, one or more.
        read: Gives the rows of the tasks whose numbers are in the first column.
        schema: The columns of the rows.
        size: About how many bytes all rows take; Spark's joins go by it.
    """
    numbers = known_numbers(spark, tasks, size) if is_classic(spark) else filtered_numbers(spark, tasks, size)
    return numbers.mapInArrow(cast("Any", read), schema)


def filtered_numbers(spark: SparkSession, tasks: int, size: int) -> DataFrame:
    """A number for each task, in the first column.

    Args:
        spark: A session.
        tasks: How many tasks there are.
        size: For how many bytes Spark shall take them, or about that; for some 80 GB at most.
    """
    few = -(-size // NUMBER_SIZE)
    wide = few > max(limits.MAX_NARROW_TASK_NUMBERS, tasks)
    if wide:
        few = -(-size * NUMBER_ROW_SIZE // ((NUMBER_ROW_SIZE + WIDE_SIZE) * NUMBER_SIZE))
    each = max(1, -(-min(few, limits.MAX_TASK_NUMBERS) // tasks))
    numbers = spark.range(0, tasks * each, 1, tasks)
    if each == 1 and not wide:
        return numbers
    return numbers.where(f"id % {each} = 0").selectExpr(f"id DIV {each} AS id", *([WIDE] if wide else ()))


def known_numbers(spark: SparkSession, tasks: int, size: int) -> DataFrame:
    """As `filtered_numbers`, on classic Spark, where Spark is told and there are no other numbers.

    The plan of an RDD is no interface of Spark's: where a vendor's Spark makes it of something else, numbers are
    filtered there too.
    """
    known = LEAVES.setdefault(spark.sparkContext, {})
    try:
        leaf = known.get(tasks)
        if leaf is None:
            if len(known) >= limits.CACHED_TASK_NUMBERS:
                known.clear()
            leaf = known[tasks] = TaskNumbers.of(spark, tasks)
        return leaf.frame(spark, max(-(-size // NUMBER_SIZE), tasks))
    except FAILURES as error:
        warn_degraded("the plan of rows of known size", error, "scans generate numbers and filter them")
        return filtered_numbers(spark, tasks, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNumbers:
    """The plan of a DataFrame of task numbers, made once per application and shared by its DataFrames.

    Attributes:
        before_session: The first arguments of the plan of an RDD: the column, the rows, and how they are distributed
            (of a single task Spark knows then that nothing need be moved).
        after_statistics: Its last arguments.
        numbers: Makes Spark's own plan of numbers, of which it knows the size.
        option: Makes an option of Scala's.
        plan: Makes the plan of an RDD.
        frame_of: Makes the DataFrame of a plan.
    """

    before_session: tuple[Any, ...]
    after_statistics: tuple[Any, ...]
    numbers: Callable[..., JavaObject]
    option: Callable[..., JavaObject]
    plan: Callable[..., JavaObject]
    frame_of: Callable[..., JavaObject]

    @staticmethod
    def of(spark: SparkSession, tasks: int) -> "TaskNumbers":
        """The numbers of so many tasks."""
        jvm = jvm_view()
        execution = classic_session(spark).range(0, tasks, 1, tasks).queryExecution()
        planned = execution.executedPlan()
        unordered = getattr(getattr(jvm, "scala.collection.immutable.Nil$"), "MODULE$")
        nothing = getattr(jvm, "scala.Option").empty()
        (constructor,) = jvm.java.lang.Class.forName(LOGICAL_RDD).getConstructors()
        kinds = [str(kind.getSimpleName()) for kind in constructor.getParameterTypes()]
        at_session = kinds.index("SparkSession")
        others = {"Option": nothing, "boolean": False}
        first = (execution.analyzed().output(), planned.execute(), planned.outputPartitioning(), unordered)
        return TaskNumbers(
            before_session=(*first, *(others[kind] for kind in kinds[len(first) : at_session])),
            after_statistics=tuple(others[kind] for kind in kinds[at_session + 2 :]),
            numbers=getattr(getattr(jvm, f"{RANGE}$"), "MODULE$").apply,
            option=getattr(jvm, "scala.Option").apply,
            plan=getattr(jvm, LOGICAL_RDD),
            frame_of=getattr(jvm, f"{CLASSIC_PACKAGE}.Dataset").ofRows,
        )

    def frame(self, spark: SparkSession, taken_for: int) -> DataFrame:
        """The numbers, which Spark takes for so many as it is told."""
        session = classic_session(spark)
        statistics = self.option(self.numbers(0, taken_for, 1, 1).stats())
        plan = self.plan(*self.before_session, session, statistics, *self.after_statistics)
        return DataFrame(self.frame_of(session, plan), spark)


LEAVES: Final[WeakKeyDictionary[SparkContext, dict[int, TaskNumbers]]] = WeakKeyDictionary()
