"""What a DataFrame's writer does to a table of ours. Driver, classic Spark only.

Input: the table as Spark loaded it for the write, the write's options and condition. Output: Spark's `Write`: rows into
the table, in the place of all, of those of a condition, or of those of their partitions. The rows arrive as a DataFrame
(Spark's `V1Write`) with the columns and types of the table, or with their own where the table accepts any, and are
written and committed as those of an INSERT. For partitions that the rows themselves choose Spark has no such way, nor
for streams: `dml.connector.partition_write`, `dml.connector.stream_write`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

from py4j.java_gateway import JavaObject
from pyiceberg.expressions import AlwaysTrue
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dml.catalog import LoadState
from dml.catalog.registry import ResolvedTable
from dml.connector.job_write import keeping_files_open, reading_itself
from dml.connector.partition_write import PartitionWrite
from dml.connector.stream_write import is_of_stream, not_continuous, stream_write
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import (
    InsertOptions,
    RowsWrite,
    insert_options,
    plan_rows_write,
    rows_by_name,
    write_rows,
)
from dml.engine.replaced_rows import Replaced
from dml.engine.schema_evolution import Fitted, accepts_any_schema, fitted_rows, overwritten_target
from dml.engine.target import Target, writable_target
from dml.errors import ErrorKind, ExecutionError, NotSupportedError
from dml.model.columns import value_name
from dml.result import Result
from dml.spark.java import options_of, python_schema
from dml.spark.proxies import Proxy
from dml.spark_scan.conditions import pushed_down
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import Span, TableReference
from dml.streaming.columns import stream_columns
from dml.streaming.options import stream_options
from dml.write.stream_rows import StreamRows

__all__ = ["OF_PARTITIONS", "OnResult", "SparkWriteBuilder", "WrittenTable"]

OF_PARTITIONS: Final = "rowdelta.overwrite-partitions"
"""The option of a writer that is called to overwrite partitions: no user's, so that it can be taken back."""

OnResult = Callable[[Result], None]


def ignored(_: Result) -> None:
    """What came of a write, where nobody asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """A table that is written to, as Spark loaded it for the write.

    Attributes:
        engine: The session and its catalogs.
        resolved: The table, and what its name says beside it.
        load_state: Where the table is created or replaced by the same commit: finds it as it is for each attempt.
    """

    engine: Engine
    resolved: ResolvedTable
    load_state: LoadState | None = None


class SparkWriteBuilder(Proxy):
    """Builds one write.

    Args:
        written: The table.
        info: What Spark says of the write: its options.
        on_result: Is told what came of it.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.SupportsOverwriteV2", "write.SupportsDynamicOverwrite")

    def __init__(self, written: WrittenTable, info: JavaObject, on_result: OnResult = ignored) -> None:
        self._written = written
        self._schema = info.schema()
        self._write_id = str(info.queryId())
        self._on_result = on_result
        options = options_of(info.options().asCaseSensitiveMap())
        self._of_partitions = options.pop(OF_PARTITIONS, "") == "true"
        self._of_stream = is_of_stream(written.engine.spark, self._write_id, options)
        self._given = options
        self._command = "INSERT"
        self._predicates: tuple[JavaObject, ...] | None = None
        self._dynamic = False

    def truncate(self) -> "SparkWriteBuilder":
        """The rows replace all others; where the writer or `overwrite-mode` says so, those of their partitions."""
        self._command, self._predicates = "INSERT OVERWRITE", ()
        return self

    def canOverwrite(self, _: Sequence[JavaObject]) -> bool:
        """Whether `overwrite` may be asked: it says better than Spark why a condition is refused."""
        return True

    def overwrite(self, predicates: Sequence[JavaObject]) -> "SparkWriteBuilder":
        """The rows replace those of a condition."""
        self._command, self._predicates = "INSERT OVERWRITE", tuple(predicates)
        return self

    def overwriteDynamicPartitions(self) -> "SparkWriteBuilder":
        """The rows replace those of their partitions."""
        self._command, self._dynamic = "INSERT OVERWRITE", True
        return self

    def build(self) -> Proxy:
        """The write."""
        started = time.perf_counter()
        written, engine = self._written, self._written.engine
        if self._of_stream:
            return self._stream_write()
        settings = StatementSettings.of(engine)
        target = target_of_write(written, self._command, settings, self._options)
        # A table that is being created or replaced has no rows to replace, and the columns of its rows.
        creates = written.load_state is not None
        replaced = None if creates else self._replaced(target, settings)
        fitted = None if creates else self._fitted(target, settings, replaced)
        target = target if fitted is None else fitted.target
        write = plan_rows_write(
            engine,
            target,
            self._command,
            started,
            replaced=replaced,
            options=keeping_files_open(self._options, target.table) if self._dynamic else self._options,
            load_state=written.load_state,
            by_columns=self._dynamic,
        )
        if self._dynamic:
            rows = None if fitted is None else arranged(write, python_schema(self._schema), settings)
            return PartitionWrite(write, self._schema, rows)
        return SparkWrite(write, self._on_result, fitted)

    @cached_property
    def _options(self) -> InsertOptions:
        return writer_options(self._given, creates=self._written.load_state is not None)

    def _stream_write(self) -> Proxy:
        """That of a micro-batch; a stream in complete mode truncates first."""
        return stream_write(
            self._written.engine,
            self._written.resolved,
            self._write_id,
            self._schema,
            stream_options(self._given),
            complete=self._predicates is not None,
        )

    def _fitted(self, target: Target, settings: StatementSettings, replaced: Replaced | None) -> Fitted | None:
        """The target with a place for the columns of the rows; None where Spark has fitted them to the table's."""
        options = self._options.columns
        if accepts_any_schema(target.table):
            return fitted_rows(target, python_schema(self._schema), options, settings, replaced)
        if options.overwrites:
            overwritten_target(target, python_schema(self._schema), settings, replaced)
        return None

    def _replaced(self, target: Target, settings: StatementSettings) -> Replaced | None:
        """Which rows the new ones replace."""
        if self._dynamic or (self._predicates == () and (self._of_partitions or self._options.dynamic)):
            return Replaced(row_filter=None)
        if self._predicates is None:
            return None
        if not self._predicates:
            return Replaced(row_filter=AlwaysTrue())
        pushdown = pushed_down(self._predicates, target.table.schema(), settings.rules)
        if not pushdown.pruning_is_exact:
            condition = " AND ".join(str(predicate.describe()) for predicate in self._predicates)
            raise NotSupportedError(
                f"The rows to replace must be chosen by comparisons of columns with constants, not by {condition}",
                kind=ErrorKind.INVALID_CONDITION,
                hint="Delete them with this condition, then append",
            )
        return Replaced(row_filter=pushdown.pruning)


class SparkWrite(Proxy):
    """Rows that arrive as a DataFrame.

    Args:
        write: The write, planned.
        on_result: Is told what came of it.
        fitted: How their columns are matched; None where Spark has done so.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("write.V1Write",)

    def __init__(self, write: RowsWrite, on_result: OnResult, fitted: Fitted | None) -> None:
        self._write = write
        self._on_result = on_result
        self._fitted = fitted

    def description(self) -> str:
        """What Spark shows."""
        return f"RowDelta {self._write.command} {self._write.target.resolved.name}"

    def toString(self) -> str:
        """What Spark shows."""
        return self.description()

    def toStreaming(self) -> Proxy:
        """None: micro-batches have a write of their own, so this is a stream in continuous mode."""
        raise not_continuous()

    def toInsertableRelation(self) -> "RowsRelation":
        """Where the rows go."""
        return RowsRelation(self._write, self._on_result, self._fitted)


class RowsRelation(Proxy):
    """Takes the rows of a write.

    Args:
        write: The write, planned.
        on_result: Is told what came of it.
        fitted: How their columns are matched; None where Spark has done so.
    """

    interfaces: ClassVar[tuple[str, ...]] = ("org.apache.spark.sql.sources.InsertableRelation",)

    def __init__(self, write: RowsWrite, on_result: OnResult, fitted: Fitted | None) -> None:
        self._write = write
        self._on_result = on_result
        self._fitted = fitted

    def insert(self, data: JavaObject, _: bool) -> None:
        """Write rows and commit them.

        Args:
            data: The rows, with the table's columns, in its order and types.
            _: Whether they replace others: always false, what is replaced is known before.
        """
        write, spark = self._write, self._write.engine.spark
        rows = DataFrame(data, spark)
        if self._fitted is None:
            rows = self._in_place(rows)
        else:
            rows = rows_by_name(rows, self._fitted, StatementSettings.of(write.engine))
        self._on_result(write_rows(reading_itself(write, data.queryExecution().analyzed()), rows))

    def _in_place(self, rows: DataFrame) -> DataFrame:
        """Rows that Spark has fitted to the table's columns."""
        write = self._write
        columns = write.target.table.schema().fields
        if len(rows.columns) != len(columns):  # values go to columns by their places: these would go to others
            raise ExecutionError(
                f"Spark gave {len(rows.columns)} columns for the {len(columns)} of {write.target.resolved.name}",
                hint="The table has changed meanwhile: write again",
            )
        return rows.toDF(*(value_name(index) for index in range(len(rows.columns))))


def arranged(write: RowsWrite, source: StructType, settings: StatementSettings) -> StreamRows:
    """What puts the columns of rows that Spark has not fitted in the table's order."""
    target = write.target
    columns = stream_columns(
        source, target.table.schema(), target.resolved.name, case_sensitive=settings.case_sensitive, rows="DataFrame"
    )
    return StreamRows(task=write.task, columns=columns)


def target_of_write(written: WrittenTable, command: str, settings: StatementSettings, options: InsertOptions) -> Target:
    """The branch that a write changes."""
    resolved = written.resolved
    suffix = () if resolved.branch is None else (f"branch_{resolved.branch}",)
    parts = (resolved.catalog_name, *resolved.identifier, *suffix)
    text = quote_name(parts)
    reference = TableReference(parts=parts, span=Span(0, len(text)))
    return writable_target(resolved, reference, text, settings, command, branch_option=options.branch)


def writer_options(given: Mapping[str, str], *, creates: bool) -> InsertOptions:
    """The options of a writer.

    Args:
        given: They, by name.
        creates: Whether the write creates its table: the location among its options is the table's then.

    Raises:
        NotSupportedError: an option that is not known.
        AnalysisError: a value that the option cannot have.
    """
    return insert_options([pair for pair in given.items() if not creates or pair[0].lower() != "path"])
