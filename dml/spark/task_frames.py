"""DataFrames with known sizes or partitions: task rows, literal rows, repartitioned rows. Driver.

`task_frame` creates a DataFrame whose rows are read by a function in a number of tasks. The function receives the
number of its task. Spark estimates that `mapInArrow` returns as many bytes as it receives. From one number per task it
would conclude that a table of any size is small enough to broadcast. On classic Spark the numbers are an RDD with
explicit statistics. Spark Connect has no such plan. There a filter selects one of many numbers for each task, beside an
empty column whose type Spark takes for wide. Spark does not estimate the selectivity of the filter.

`literal_row_limit` returns the number of rows of a literal plan (numbers, constants, rows from the driver), from
Spark's optimizer, without running it.

`rebalance` turns a repartitioned DataFrame into one with the same distribution whose small partitions adaptive
execution combines, and whose large ones it splits, by their actual sizes. It may not split the partitions of
`repartition` or `repartitionByRange`. PySpark's hint for this takes columns but no size. Spark Connect allows neither:
the distribution stays as requested. Source: Spark's `RebalancePartitions`, which it plans for the writes of tables that
request a distribution.

`repartition_by_id` sends each row to the partition with a given number. Before Spark 4.1 it uses hash partitioning,
with keys found by inverting Spark's hash function, which a Connect server is assumed to use. Source: Spark's
`HashPartitioning` and `Murmur3_x86_32`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import types as spark_types
from pyspark.sql.functions import element_at, expr

from dml import limits
from dml.spark.bridge.gateway import JavaObject
from dml.spark.bridge.internals import FAILURES, UnknownInternalsError, warn_degraded
from dml.spark.bridge.names import DATASET, FILTERED, LOGICAL_RDD, NOT_BALANCED, RANGE, REBALANCE, TREE_PATTERN
from dml.spark.bridge.sessions import analyzed_plan, classic_session, optimized_plan, query_execution
from dml.spark.bridge.values import companion, elements, scala_none, static_method
from dml.spark.runtime import Runtime
from dml.spark.versions import INSTALLED_FEATURES, Feature

__all__ = [
    "estimated_bytes",
    "filtered_numbers",
    "invert_hash",
    "known_numbers",
    "literal_row_limit",
    "rebalance",
    "repartition_by_id",
    "repartition_by_key",
    "task_frame",
    "value_size",
]

LITERAL_NODES: Final = frozenset(
    ["Project", "Filter", "Range", "LocalRelation", "OneRowRelation", "Union", "GlobalLimit", "LocalLimit"]
)

SPECIAL: Final = re.compile(r"\b(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
"""Strings that Spark casts to the current date or time."""


def literal_row_limit(frame: DataFrame) -> int | None:
    """Return the maximum number of rows of a deterministic, literal DataFrame, which costs almost nothing to run.

    Returns:
        None for other DataFrames, and on Connect, where the plan is unknown.
    """
    if Runtime.of(frame.sparkSession).is_connect:
        return None
    try:
        plan = optimized_plan(frame)
        known = plan.maxRows()
        if not known.isDefined() or not is_literal_plan(plan, limits.MAX_LITERAL_PLAN_NODES):
            return None
        # The optimized plan has evaluated expressions already, so only the analyzed plan shows if it is deterministic.
        analyzed = analyzed_plan(frame)
        return int(known.get()) if analyzed.deterministic() and not reads_clock(analyzed) else None
    except UnknownInternalsError as error:
        warn_degraded("the patterns of plans", error, TREE_PATTERN.fallback)
        return None
    except FAILURES:  # an error of the query, which running it shows
        return None


def estimated_bytes(frame: DataFrame) -> int | None:
    """Return Spark's estimate of a DataFrame's size in bytes, on which its join selection is based; None on Connect."""
    if Runtime.of(frame.sparkSession).is_connect:
        return None
    try:
        return int(str(optimized_plan(frame).stats().sizeInBytes()))
    except FAILURES:  # an error of the query, which running it shows
        return None


def is_literal_plan(plan: JavaObject, nodes: int) -> bool:
    """Return True if a plan scans no table and has at most `nodes` nodes."""
    stack = [plan]
    while stack:
        nodes -= 1
        node = stack.pop()
        if nodes < 0 or node.nodeName() not in LITERAL_NODES:
            return False
        stack += elements(node.children())
    return True


def reads_clock(plan: JavaObject) -> bool:
    """Return True if an analyzed plan depends on the time (`current_date`, `now()`), the user or the database."""
    return bool(plan.containsPattern(TREE_PATTERN.call("CURRENT_LIKE"))) or SPECIAL.search(plan.toString()) is not None


def rebalance(frame: DataFrame, size: int) -> DataFrame:
    """Rebalance a DataFrame into tasks of about the same size; return it unchanged where Spark cannot.

    Args:
        frame: A DataFrame whose last operation is a repartitioning.
        size: The target size of a task in shuffled bytes.
    """
    spark = frame.sparkSession
    if Runtime.of(spark).is_connect:
        return frame
    try:
        distributed = analyzed_plan(frame)
        arguments = distributed.partitionExpressions(), distributed.child(), scala_none(), long_option(size)
        plan = REBALANCE.new(*arguments)
        return DataFrame(DATASET.call("ofRows", classic_session(spark), plan), spark)
    except FAILURES as error:  # plans are not a public API of Spark: a vendor's may differ
        warn_degraded("the plan that rebalances tasks", error, NOT_BALANCED)
        return frame


def long_option(number: int) -> JavaObject:
    """Return Scala's `Some` of a long: py4j would convert a small number to an integer."""
    return RANGE.call_object("apply", 0, number, 1, 1).maxRows()


NUMBER_SIZE: Final = 8
"""Bytes of a task number."""

NUMBER_ROW_SIZE: Final = NUMBER_SIZE + 8
"""Spark's size estimate in bytes for a row with only a number."""


WIDE: Final = "CAST(NULL AS STRUCT<" + ", ".join(f"b{number}: BINARY" for number in range(100)) + ">) AS wide"
WIDE_SIZE: Final = 100 * 100
"""Spark's size estimate in bytes for a value of that column, whatever its content."""


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
"""Spark's size estimates in bytes for values of types, if not eight."""

LONG_DIGITS: Final = 18
"""Decimals of more digits take 16 bytes instead of 8."""


def value_size(kind: spark_types.DataType) -> int:
    """Return Spark's size estimate in bytes for a value of a type: its `defaultSize` in the JVM."""
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
    """Create a DataFrame whose rows a function reads in tasks.

    Args:
        spark: A session, classic or Connect.
        tasks: The number of tasks, at least one.
        read: Yields the rows of the tasks whose numbers are in the first column.
        schema: The columns of the rows.
        size: The estimated size of all rows in bytes, for Spark's join selection.
    """
    numbers = (filtered_numbers if Runtime.of(spark).is_connect else known_numbers)(spark, tasks, size)
    return numbers.mapInArrow(cast("Any", read), schema)


def filtered_numbers(spark: SparkSession, tasks: int, size: int) -> DataFrame:
    """Create one number per task, in the first column, by filtering more numbers.

    Args:
        spark: A session.
        tasks: The number of tasks.
        size: The approximate size in bytes that Spark should estimate; about 80 GB is the maximum.
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
    """Create one number per task on classic Spark, with the size in the statistics of the plan.

    The plan of an RDD is not a public API. If a vendor's Spark builds it differently, fall back to `filtered_numbers`.
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
        warn_degraded("the plan of rows of known size", error, FILTERED)
        return filtered_numbers(spark, tasks, size)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskNumbers:
    """The plan of a DataFrame of task numbers, created once per application and number of tasks.

    Attributes:
        before_session: The first constructor arguments of the plan of an RDD: the column, the rows, and their
            partitioning (with a single task Spark can then omit shuffles).
        after_statistics: Its last constructor arguments.
        numbers: Creates Spark's own plan of a range of numbers, which has statistics.
        option: Creates a Scala option.
        plan: Creates the plan of an RDD.
        frame_of: Creates the DataFrame of a plan.
    """

    before_session: tuple[Any, ...]
    after_statistics: tuple[Any, ...]
    numbers: Callable[..., JavaObject]
    option: Callable[..., JavaObject]
    plan: Callable[..., JavaObject]
    frame_of: Callable[..., JavaObject]

    @staticmethod
    def of(spark: SparkSession, tasks: int) -> "TaskNumbers":
        execution = query_execution(spark.range(0, tasks, 1, tasks))
        planned = execution.executedPlan()
        unordered = companion("scala.collection.immutable.Nil")
        kinds = LOGICAL_RDD.constructor_types()
        at_session = kinds.index("SparkSession")
        others = {"Option": scala_none(), "boolean": False}
        first = (execution.analyzed().output(), planned.execute(), planned.outputPartitioning(), unordered)
        return TaskNumbers(
            before_session=(*first, *(others[kind] for kind in kinds[len(first) : at_session])),
            after_statistics=tuple(others[kind] for kind in kinds[at_session + 2 :]),
            numbers=RANGE.companion().apply,
            option=static_method("scala.Option", "apply"),
            plan=LOGICAL_RDD.resolve(),
            frame_of=DATASET.static("ofRows"),
        )

    def frame(self, spark: SparkSession, estimated_rows: int) -> DataFrame:
        """Create a DataFrame of the numbers, which Spark takes for `estimated_rows` numbers."""
        session = classic_session(spark)
        statistics = self.option(self.numbers(0, estimated_rows, 1, 1).stats())
        plan = self.plan(*self.before_session, session, statistics, *self.after_statistics)
        return DataFrame(self.frame_of(session, plan), spark)


LEAVES: Final[WeakKeyDictionary[SparkContext, dict[int, TaskNumbers]]] = WeakKeyDictionary()


def repartition_by_id(frame: DataFrame, partitions: int, number: Column) -> DataFrame:
    """Repartition a DataFrame by a column of partition numbers.

    Args:
        frame: The rows.
        partitions: The number of partitions.
        number: An int from 0 up to, but not including, `partitions`; never NULL.
    """
    if Feature.REPARTITION_BY_ID in INSTALLED_FEATURES & Runtime.of(frame.sparkSession).features:
        return frame.repartitionById(partitions, number)
    return repartition_by_key(frame, partitions, number)


def repartition_by_key(frame: DataFrame, partitions: int, number: Column) -> DataFrame:
    """Implement `repartition_by_id` with hash partitioning: replace each number by a key with that hash."""
    keys = expr(f"array({', '.join(str(invert_hash(each)) for each in range(max(1, partitions)))})")
    return frame.repartition(partitions, element_at(keys, number + 1))


WORD: Final = 0xFFFFFFFF
SEED: Final = 42
FIRST, SECOND = 0xCC9E2D51, 0x1B873593
LAST, BEFORE_LAST = 0xC2B2AE35, 0x85EBCA6B


def invert_hash(hashed: int) -> int:
    """Return the int that has a given hash: the inverse of 32-bit Murmur3 with Spark's seed."""
    state = hashed & WORD
    state ^= state >> 16
    state = state * pow(LAST, -1, 1 << 32) & WORD
    state ^= state >> 13 ^ state >> 26
    state = state * pow(BEFORE_LAST, -1, 1 << 32) & WORD
    state ^= state >> 16
    state ^= 4  # the length of an int
    state = (state - 0xE6546B64) * pow(5, -1, 1 << 32) & WORD
    state = rotate_left(state, 32 - 13) ^ SEED
    state = state * pow(SECOND, -1, 1 << 32) & WORD
    state = rotate_left(state, 32 - 15) * pow(FIRST, -1, 1 << 32) & WORD
    return state - (1 << 32) if state >> 31 else state


def rotate_left(word: int, bits: int) -> int:
    """Rotate a 32-bit word to the left."""
    return (word << bits | word >> 32 - bits) & WORD
