"""Choose the reader of a query's rows. Driver.

Input: the read that Spark requests, the planned data files, the capabilities of the session. Output: a `Reader`, with
the reason that EXPLAIN shows. `choose_reader` is the only place that chooses one, for SQL, `spark.table`, DataFrames
and views.
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

__all__ = ["GroupedRead", "KnownValues", "PythonRead", "Reader", "ReaderCapabilities", "choose_reader", "reader_text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownValues:
    """The manifests answer the query: no data file is opened, and no job runs.

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
        reason: Why Spark's reader is not used, or is slower: a clause to follow "because".
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
        reason: Why Spark's reader is not used: a clause to follow "because".
    """

    reason: str


Reader = KnownValues | GroupedRead | VectorizedRead | PythonRead


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderCapabilities:
    """The settings and capabilities of a session. The functions open files or run jobs, so they are called last.

    Attributes:
        setting: Returns a setting of the session, or the default.
        counts_rows: Returns whether `count(*)` in the running query counts rows. Spark's optimizer also turns
            `count(DISTINCT constant)` into one.
        runs_tasks: Returns whether the Python workers can run RowDelta's tasks.
        reads_parquet: Returns whether RowDelta can use Spark's Parquet reader.
        known_values: Returns the values of an aggregation from the manifests, or None.
        keeps_most_rows: Returns whether a filter keeps most rows: Spark's reader, which returns all, is then faster.
        have_field_ids: Returns whether the files' columns have field ids.
        unplanned_reason: Why Spark cannot plan RowDelta's scans, a clause to follow "because"; None if it can.
    """

    setting: Callable[[str, str], str | None]
    counts_rows: Callable[[], bool]
    runs_tasks: Callable[[], bool]
    reads_parquet: Callable[[], bool]
    known_values: Callable[[SparkRead, ScanPlan], tuple[Value | None, ...] | None] = known_values
    keeps_most_rows: Callable[[Scan], bool] = keeps_most_rows
    have_field_ids: Callable[[Table, Sequence[ScanTask]], bool] = have_field_ids
    unplanned_reason: str | None = None

    @staticmethod
    def of(spark: SparkSession, unplanned_reason: str | None = None) -> "ReaderCapabilities":
        """Return the capabilities of a session. Use it for one query: it caches an answer about that query."""
        return ReaderCapabilities(
            setting=spark.conf.get,
            counts_rows=cache(partial(counts_no_values, spark)),
            runs_tasks=partial(can_run_tasks, spark),
            reads_parquet=partial(is_supported, spark),
            unplanned_reason=unplanned_reason,
        )


def choose_reader(read: SparkRead, plan: ScanPlan, capabilities: ReaderCapabilities) -> Reader:
    """Choose the reader of a query's rows by the first matching row of this table.

    | session, query and files | reader |
    | --- | --- |
    | Spark cannot plan the scan: Connect, PySpark 3.5, a table without columns | `PythonRead` |
    | an aggregation that the manifests answer | `KnownValues` |
    | an aggregation that tasks can compute: of strings, grouped by strings, dates or booleans | `GroupedRead` |
    | an aggregation that tasks can compute, on columns or files that Spark's reader cannot read | `GroupedRead` |
    | metadata columns | `PythonRead` |
    | no data file, or too many for Spark's reader | `PythonRead` |
    | little data | `PythonRead` |
    | a file that is not local Parquet, or to which deletes apply | `PythonRead` |
    | a nested column, or one with an initial default | `PythonRead` |
    | a name mapping, or a table property that turns Spark's reader off | `PythonRead` |
    | a column whose type has changed | `PythonRead` |
    | partition values that Spark's reader cannot add, or no other columns | `PythonRead` |
    | a session setting that turns Spark's reader off | `PythonRead` |
    | a damaged file, or one in a storage that is not allowed | `PythonRead` |
    | a filter that keeps few rows | `PythonRead` |
    | files without field ids | `PythonRead` |
    | a Spark version whose reader RowDelta cannot use | `PythonRead` |
    | otherwise | `VectorizedRead` |

    The rows on aggregations apply only if aggregate push-down is on, the query uses no metadata columns, and `count(*)`
    counts rows. For a damaged or forbidden file, the Python workers raise the error.

    Args:
        read: The columns, the filter, and the aggregation if it covers all rows of the files.
        plan: The data files to read.
        capabilities: The settings and capabilities of the session.
    """
    if capabilities.unplanned_reason is not None:
        return PythonRead(reason=capabilities.unplanned_reason)
    aggregation = read.aggregation
    if aggregation is None or not may_aggregate(read, aggregation, capabilities):
        return choose_row_reader(read, plan, capabilities)
    values = capabilities.known_values(read, plan)
    if values is not None:
        return KnownValues(calls=aggregation.calls, values=values)
    columns = aggregated_columns(aggregation)
    if not columns:
        return choose_row_reader(read, plan, capabilities)
    rows = choose_row_reader(replace(read, columns=tuple(columns)), plan, capabilities)
    is_vectorized = isinstance(rows, VectorizedRead)
    if (is_vectorized and not has_texts_in_few_groups(aggregation)) or not capabilities.runs_tasks():
        return rows
    return GroupedRead(
        reason="passing a row per group to Spark is faster than passing every string" if is_vectorized else rows.reason,
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


AGGREGATE_PUSH_DOWN: Final = "spark.sql.iceberg.aggregate-push-down.enabled"
"""Iceberg's session setting that turns aggregate push-down off."""


def may_aggregate(read: SparkRead, aggregation: Aggregation, capabilities: ReaderCapabilities) -> bool:
    """Return whether manifests or tasks may compute an aggregation instead of Spark."""
    return (
        not read.metadata_columns
        and not setting_equals(capabilities, AGGREGATE_PUSH_DOWN, "true", "false")
        and (not aggregation.counts_rows or capabilities.counts_rows())
    )


def setting_equals(capabilities: ReaderCapabilities, key: str, default: str, wanted: str) -> bool:
    """Return whether a setting, or its default, equals a value in lower case."""
    return (capabilities.setting(key, default) or default).strip().lower() == wanted


EXACT_TYPES: Final = (
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

SUMMABLE_TYPES: Final = (IntegerType, DoubleType)
"""Types whose sums cannot overflow. Sums of wider types can, and ANSI mode decides whether that is an error."""

COUNTABLE_TYPES: Final = (*EXACT_TYPES, DoubleType)
"""Types whose values tasks count."""

TYPES_BY_FUNCTION: Final[Mapping[AggregateFunction, tuple[type[IcebergType], ...]]] = {
    AggregateFunction.COUNT: COUNTABLE_TYPES,
    AggregateFunction.MIN: EXACT_TYPES,
    AggregateFunction.MAX: EXACT_TYPES,
    AggregateFunction.SUM: SUMMABLE_TYPES,
}
"""The column types for which tasks compute each function."""


def aggregated_columns(aggregation: Aggregation) -> list[int]:
    """Return the field ids of the columns from which tasks compute an aggregation; an empty list if they cannot."""
    used: list[tuple[NestedField, tuple[type[IcebergType], ...]]] = [(column, EXACT_TYPES) for column in aggregation.by]
    used += [(call.column, TYPES_BY_FUNCTION[call.function]) for call in aggregation.calls if call.column is not None]
    if not all(isinstance(column.field_type, kinds) for column, kinds in used):
        return []
    return list(dict.fromkeys(column.field_id for column, _ in used))


TEXT_TYPES: Final = (BinaryType, StringType)
"""Types whose values are slow to convert to Spark's rows."""

LOW_CARDINALITY_TYPES: Final = (BooleanType, DateType, StringType)
"""Types of columns that usually have few distinct values."""


def has_texts_in_few_groups(aggregation: Aggregation) -> bool:
    """Return whether tasks aggregate faster than Spark, even if Spark's own reader could read the files.

    Integers, times and decimals are excluded as groups: they are often nearly unique, and then Python workers would
    return as many groups as rows.
    """
    called = [call.column for call in aggregation.calls if call.column is not None]
    has_texts = any(isinstance(column.field_type, TEXT_TYPES) for column in (*aggregation.by, *called))
    return has_texts and all(isinstance(column.field_type, LOW_CARDINALITY_TYPES) for column in aggregation.by)


def choose_row_reader(read: SparkRead, plan: ScanPlan, capabilities: ReaderCapabilities) -> VectorizedRead | PythonRead:
    """Choose the reader of rows that are not aggregated before Spark receives them."""
    try:
        reason = next(reasons_for_python(read, plan, capabilities), None)
    except DmlError:
        reason = "a data file is damaged or cannot be opened; the query will report the error"
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


REQUIRED_SETTINGS: Final = (
    ("spark.sql.iceberg.vectorization.enabled", "true", "true"),
    ("spark.sql.parquet.enableVectorizedReader", "true", "true"),
    ("spark.sql.parquet.binaryAsString", "false", "false"),
)
"""Session settings, their defaults, and the values without which Spark's reader is not used."""


def reasons_for_python(read: SparkRead, plan: ScanPlan, capabilities: ReaderCapabilities) -> Iterator[str]:
    """Yield the reasons against Spark's reader: it cannot read the rows, or is slower. Costly checks come last.

    Raises:
        DmlError: A data file cannot be read, or its location is not allowed.
    """
    yield from file_reasons(read, plan)
    yield from table_reasons(read, plan)
    yield from session_reasons(read, plan, capabilities)


def file_reasons(read: SparkRead, plan: ScanPlan) -> Iterator[str]:
    tasks = plan.tasks
    if read.metadata_columns:
        yield "the query uses metadata columns, such as _file and _pos"
    if not tasks:
        yield "no data file can contain matching rows"
    if len(tasks) > limits.MAX_SPARK_READER_FILES:
        yield f"the query reads {len(tasks):,} data files, too many for Spark's reader to be faster"
    if sum(task.length for task in tasks) < limits.MIN_SPARK_READER_BYTES:
        smallest = limits.MIN_SPARK_READER_BYTES // 2**20
        yield f"the query reads less than {smallest} MiB, too little for Spark's reader to be faster"
    if not all(map(is_local_parquet, tasks)):
        yield "some data files are not Parquet, or not on a local path"
    if any(task.has_deletes for task in tasks):
        yield "delete files or deletion vectors apply to some data files; compaction removes them"


def table_reasons(read: SparkRead, plan: ScanPlan) -> Iterator[str]:
    table = read.table
    fields = [read.schema.find_field(field_id) for field_id in read.columns]
    complex_columns = [known.name for known in fields if not is_simple(known)]
    if complex_columns:
        yield f"Spark's reader does not support the type or the initial default of the column {complex_columns[0]}"
    if DEFAULT_NAME_MAPPING in table.properties:
        yield f"the table has a name mapping (table property {DEFAULT_NAME_MAPPING})"
    if table.properties.get(PARQUET_VECTORIZATION_ENABLED, "true").lower() != "true":
        yield f"the table property {PARQUET_VECTORIZATION_ENABLED} is not true"
    if not has_stable_types(table, fields):
        yield "the type of a column has changed, and older data files may have the earlier type"
    constants = constant_places(read, plan)
    if constants is None:
        yield "Spark's reader cannot add the partition values of these data files"
    elif len(constants) == len(fields):
        yield "the query needs no columns except partition columns"


def session_reasons(read: SparkRead, plan: ScanPlan, capabilities: ReaderCapabilities) -> Iterator[str]:
    for key, default, wanted in REQUIRED_SETTINGS:
        if not setting_equals(capabilities, key, default, wanted):
            yield f"the session setting {key} is not {wanted}"
    for task in plan.tasks:
        check_location(read.table.io, task.path)
    if is_filtered(read, plan) and not capabilities.keeps_most_rows(Scan(read=read, plan=plan)):
        yield "the filter keeps few rows, and Spark's reader would return all"
    if not capabilities.have_field_ids(read.table, plan.tasks):
        yield "data files have no field ids, as after an import"
    if not capabilities.reads_parquet():
        yield "RowDelta cannot use the Parquet reader of this Spark version"


def constant_places(read: SparkRead, plan: ScanPlan) -> dict[int, int] | None:
    """Map columns to their index in partition tuples; None if Spark's reader cannot add their values."""
    places = identity_places(read.table, read.columns, {task.spec_id for task in plan.tasks})
    if places is None or all(isinstance(read.schema.find_field(known).field_type, tuple(SETTERS)) for known in places):
        return places
    return None


def is_filtered(read: SparkRead, plan: ScanPlan) -> bool:
    """Return whether the filter may exclude rows of the planned files."""
    return not plan.covers_whole_files and not isinstance(read.row_filter, AlwaysTrue)


def reader_text(reader: Reader) -> str:
    """Return the line of EXPLAIN on a reader: which one, and why."""
    match reader:
        case KnownValues():
            return "rows: answered from the manifests, which determine every requested value; no data file is opened"
        case GroupedRead(reason=reason):
            return f"rows: aggregated by the Python workers that read them, because {reason}"
        case VectorizedRead(reason=reason):
            return f"rows: read by Spark's Parquet reader, because {reason}"
        case PythonRead(reason=reason):
            return f"rows: read by Python workers, because {reason}"
