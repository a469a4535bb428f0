"""Choose what reads the rows of a query. Driver.

Input: what Spark asks of a table, the planned data files, what the session can do. Output: a `Reader`, with the reason
for EXPLAIN. `choose_reader` is the only place where a reader is chosen, for SQL, `spark.table`, DataFrames and views.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Final

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)
from pyspark.sql import SparkSession

from dml import limits
from dml.errors import DmlError
from dml.files.schemes import check_location
from dml.model.scan_task import ScanTask
from dml.options import DEFAULT_NAME_MAPPING, PARQUET_VECTORIZATION_ENABLED
from dml.rows.program import Aggregate, AggregateFunction, Groups
from dml.scan.planner import ScanPlan
from dml.scan.table_scan import Scan
from dml.spark_scan.filter_share import keeps_most_rows
from dml.spark_scan.known_values import Value, known_values
from dml.spark_scan.read import AggregateCall, Aggregation, SparkRead
from dml.spark_scan.running_query import counts_no_values
from dml.spark_scan.vectorized import (
    SETTERS,
    VectorizedRead,
    has_stable_types,
    have_field_ids,
    identity_places,
    is_local_parquet,
    is_simple,
    is_supported,
)
from dml.spark_scan.workers import can_run_tasks

__all__ = ["GroupedRead", "KnownValues", "PythonRead", "Reader", "ReaderRuntime", "choose_reader", "reader_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownValues:
    """The manifests answer the query. No file is opened, and no job runs.

    Attributes:
        calls: The aggregate functions of the query.
        values: Their values.
    """

    calls: tuple[AggregateCall, ...]
    values: tuple[Value | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedRead:
    """Python workers read the files and return partial aggregates, which Spark combines.

    Attributes:
        reason: The reason, as a clause for "because".
        calls: The aggregate functions of the query.
        columns: Field ids of the columns to read.
        program: The partial aggregation over these columns.
    """

    reason: str
    calls: tuple[AggregateCall, ...]
    columns: tuple[int, ...]
    program: Groups


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonRead:
    """Python workers read the files with RowDelta's reader, and return the rows.

    Attributes:
        reason: The reason, as a clause for "because".
    """

    reason: str


Reader = KnownValues | GroupedRead | VectorizedRead | PythonRead


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderRuntime:
    """What a session allows and can do. The functions are costly: they are called only if nothing cheaper decides.

    Attributes:
        setting: Returns a setting of the session, or the default.
        counts_rows: Returns whether a count of rows in the running query is one, and not one of distinct constants.
        runs_tasks: Returns whether the Python workers can run RowDelta's tasks.
        reads_parquet: Returns whether RowDelta can use Spark's Parquet reader.
        known_values: Returns the values of an aggregation from the manifests, or None.
        keeps_most_rows: Returns whether a filter keeps so many rows that reading all is faster.
        have_field_ids: Returns whether the files' columns have field ids.
        unplanned: The reason why Spark cannot plan RowDelta's scans; None if it can.
    """

    setting: Callable[[str, str], str | None]
    counts_rows: Callable[[], bool]
    runs_tasks: Callable[[], bool]
    reads_parquet: Callable[[], bool]
    known_values: Callable[[SparkRead, ScanPlan], tuple[Value | None, ...] | None] = known_values
    keeps_most_rows: Callable[[Scan], bool] = keeps_most_rows
    have_field_ids: Callable[[Table, Sequence[ScanTask]], bool] = have_field_ids
    unplanned: str | None = None

    @staticmethod
    def of(spark: SparkSession, unplanned: str | None = None) -> "ReaderRuntime":
        """Return the runtime of a session, for one query."""
        return ReaderRuntime(
            setting=spark.conf.get,
            counts_rows=cache(partial(counts_no_values, spark)),
            runs_tasks=partial(can_run_tasks, spark),
            reads_parquet=partial(is_supported, spark),
            unplanned=unplanned,
        )


def choose_reader(read: SparkRead, plan: ScanPlan, runtime: ReaderRuntime) -> Reader:
    """Choose what reads the rows of a query. The first row of the table that applies decides.

    | session, query and files | reader |
    | --- | --- |
    | Spark cannot plan the scan: Connect, PySpark 3.5, a table without columns | `PythonRead` |
    | an aggregation whose values the manifests have | `KnownValues` |
    | an aggregation that tasks compute; texts, grouped by texts, dates or booleans | `GroupedRead` |
    | an aggregation that tasks compute, and Spark's reader cannot read the columns | `GroupedRead` |
    | metadata columns | `PythonRead` |
    | no data file, or too many for Spark's reader | `PythonRead` |
    | few bytes | `PythonRead` |
    | a file that is not local Parquet, or has deletes | `PythonRead` |
    | a nested column, or one with an initial default | `PythonRead` |
    | a name mapping, or a property of the table against it | `PythonRead` |
    | a column that had another type | `PythonRead` |
    | partition values that Spark's reader cannot take, or nothing else | `PythonRead` |
    | a setting of the session against it | `PythonRead` |
    | a file that may not be read, or a damaged one: the reader reports it | `PythonRead` |
    | a filter that keeps few rows | `PythonRead` |
    | files without field ids | `PythonRead` |
    | a Spark whose reader RowDelta cannot use | `PythonRead` |
    | all else | `VectorizedRead` |

    An aggregation counts only if no setting turns it off, it needs no metadata columns, and a count of rows is one.

    Args:
        read: The columns and rows, and the aggregation of all rows of the files.
        plan: The data files.
        runtime: What the session allows and can do.
    """
    if runtime.unplanned is not None:
        return PythonRead(reason=runtime.unplanned)
    aggregation = read.aggregation
    if aggregation is None or not may_aggregate(read, aggregation, runtime):
        return row_reader(read, plan, runtime)
    values = runtime.known_values(read, plan)
    if values is not None:
        return KnownValues(calls=aggregation.calls, values=values)
    columns = aggregated_columns(aggregation)
    if not columns:
        return row_reader(read, plan, runtime)
    rows = row_reader(replace(read, columns=tuple(columns)), plan, runtime)
    is_fast = isinstance(rows, VectorizedRead)
    if (is_fast and not has_texts_in_few_groups(aggregation)) or not runtime.runs_tasks():
        return rows
    return GroupedRead(
        reason="few groups are faster to pass to Spark than texts" if is_fast else rows.reason,
        calls=aggregation.calls,
        columns=tuple(columns),
        program=Groups(
            by=tuple(columns.index(column.field_id) for column in aggregation.by),
            aggregates=tuple(
                Aggregate(
                    function=call.function, place=None if call.column is None else columns.index(call.column.field_id)
                )
                for call in aggregation.calls
            ),
        ),
    )


PUSH_DOWN: Final = "spark.sql.iceberg.aggregate-push-down.enabled"
"""Iceberg's session setting."""


def may_aggregate(read: SparkRead, aggregation: Aggregation, runtime: ReaderRuntime) -> bool:
    """Return whether anything but Spark may compute an aggregation."""
    return (
        not read.metadata_columns
        and not is_set(runtime, PUSH_DOWN, "true", "false")
        and (not aggregation.counts_rows or runtime.counts_rows())
    )


def is_set(runtime: ReaderRuntime, key: str, default: str, wanted: str) -> bool:
    """Return whether a setting has a value."""
    return (runtime.setting(key, default) or default).strip().lower() == wanted


EXACT: Final = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
"""Types whose values compare in Arrow as in Spark: equal values have equal bits."""

SUMMED: Final = (IntegerType, DoubleType)
"""Types whose sums cannot overflow. Wider sums can, and the session's ANSI mode decides if that is an error."""

COUNTED: Final = (*EXACT, DoubleType)
"""Types whose values tasks count."""

KINDS: Final[Mapping[AggregateFunction, tuple[type[IcebergType], ...]]] = {
    AggregateFunction.COUNT: COUNTED,
    AggregateFunction.MIN: EXACT,
    AggregateFunction.MAX: EXACT,
    AggregateFunction.SUM: SUMMED,
}
"""The types of the columns of which tasks compute each function."""


def aggregated_columns(aggregation: Aggregation) -> list[int]:
    """Return the columns from which tasks compute an aggregation; none if they cannot."""
    used: list[tuple[NestedField, tuple[type[IcebergType], ...]]] = [(column, EXACT) for column in aggregation.by]
    used += [(call.column, KINDS[call.function]) for call in aggregation.calls if call.column is not None]
    if not all(isinstance(column.field_type, kinds) for column, kinds in used):
        return []
    return list(dict.fromkeys(column.field_id for column, _ in used))


TEXTS: Final = (BinaryType, StringType)
"""Types whose values are slow to convert into Spark's rows."""

FEW_VALUES: Final = (BooleanType, DateType, StringType)
"""Types of columns that usually have few distinct values."""


def has_texts_in_few_groups(aggregation: Aggregation) -> bool:
    """Return whether tasks aggregate faster than Spark, whatever reads the files.

    Integers, times and decimals are often nearly unique, and then Python workers return as many groups as rows.
    """
    called = [call.column for call in aggregation.calls if call.column is not None]
    has_texts = any(isinstance(column.field_type, TEXTS) for column in (*aggregation.by, *called))
    return has_texts and all(isinstance(column.field_type, FEW_VALUES) for column in aggregation.by)


def row_reader(read: SparkRead, plan: ScanPlan, runtime: ReaderRuntime) -> VectorizedRead | PythonRead:
    """Choose what reads rows."""
    try:
        reason = next(reasons_for_python(read, plan, runtime), None)
    except DmlError:
        reason = "a data file cannot be opened, which its tasks report"
    if reason is not None:
        return PythonRead(reason=reason)
    constants = constant_places(read, plan)
    assert constants is not None
    filtered = ", and the filter keeps most rows" if is_filtered(read, plan) else ""
    return VectorizedRead(
        reason=f"the data files are local Parquet files without deletes{filtered}",
        columns=tuple(known for known in read.columns if known not in constants),
        constants=tuple(constants),
        places=tuple(constants.values()),
    )


SETTINGS: Final = (
    ("spark.sql.iceberg.vectorization.enabled", "true", "true"),
    ("spark.sql.parquet.enableVectorizedReader", "true", "true"),
    ("spark.sql.parquet.binaryAsString", "false", "false"),
)
"""Settings of a session, their defaults, and the values that Spark's reader requires."""


def reasons_for_python(read: SparkRead, plan: ScanPlan, runtime: ReaderRuntime) -> Iterator[str]:
    """Yield the reasons why Spark's reader cannot read rows, or is slower; the costly ones last.

    Raises:
        DmlError: A data file cannot be read, or its location is not allowed.
    """
    yield from reasons_of_files(read, plan)
    yield from reasons_of_table(read, plan)
    yield from reasons_of_session(read, plan, runtime)


def reasons_of_files(read: SparkRead, plan: ScanPlan) -> Iterator[str]:
    tasks = plan.tasks
    if read.metadata_columns:
        yield "the query reads metadata columns"
    if not tasks:
        yield "no data file can contain matching rows"
    if len(tasks) > limits.MAX_SPARK_READER_FILES:
        yield "the data files are many"
    if sum(task.length for task in tasks) < limits.MIN_SPARK_READER_BYTES:
        yield "the data files are small"
    if not all(map(is_local_parquet, tasks)):
        yield "not all data files are local Parquet files"
    if any(task.has_deletes for task in tasks):
        yield "delete files apply to the data files"


def reasons_of_table(read: SparkRead, plan: ScanPlan) -> Iterator[str]:
    table = read.table
    fields = [read.schema.find_field(field_id) for field_id in read.columns]
    if not all(map(is_simple, fields)):
        yield "a column has a nested type or an initial default"
    if DEFAULT_NAME_MAPPING in table.properties:
        yield "the table has a name mapping"
    if table.properties.get(PARQUET_VECTORIZATION_ENABLED, "true").lower() != "true":
        yield f"of the table property {PARQUET_VECTORIZATION_ENABLED}"
    if not has_stable_types(table, fields):
        yield "the type of a column has changed"
    constants = constant_places(read, plan)
    if constants is None:
        yield "Spark's reader cannot take the partition values of these data files"
    elif len(constants) == len(fields):
        yield "all columns have their values from the partitions"


def reasons_of_session(read: SparkRead, plan: ScanPlan, runtime: ReaderRuntime) -> Iterator[str]:
    for key, default, wanted in SETTINGS:
        if not is_set(runtime, key, default, wanted):
            yield f"of the session setting {key}"
    for task in plan.tasks:
        check_location(read.table.io, task.path)
    if is_filtered(read, plan) and not runtime.keeps_most_rows(Scan(read=read, plan=plan)):
        yield "the filter keeps few rows"
    if not runtime.have_field_ids(read.table, plan.tasks):
        yield "the data files have no field ids"
    if not runtime.reads_parquet():
        yield "RowDelta cannot use the Parquet reader of this Spark"


def constant_places(read: SparkRead, plan: ScanPlan) -> dict[int, int] | None:
    """Map the columns with partition values to their index in partition tuples; None if Spark's reader cannot."""
    places = identity_places(read.table, read.columns, {task.spec_id for task in plan.tasks})
    if places is None or all(isinstance(read.schema.find_field(known).field_type, tuple(SETTERS)) for known in places):
        return places
    return None


def is_filtered(read: SparkRead, plan: ScanPlan) -> bool:
    """Return whether a filter may drop rows of the files."""
    return not plan.covers_whole_files and not isinstance(read.row_filter, AlwaysTrue)


def reader_text(reader: Reader) -> str:
    """Return the line of EXPLAIN that names the reader, and the reason."""
    match reader:
        case KnownValues():
            return "rows: known from the manifests, because these have every value of the query; no data file is opened"
        case GroupedRead(reason=reason):
            return f"rows: aggregated by the Python workers that read them, because {reason}"
        case VectorizedRead(reason=reason):
            return f"rows: read by Spark's Parquet reader, because {reason}"
        case PythonRead(reason=reason):
            return f"rows: read by Python workers, because {reason}"
