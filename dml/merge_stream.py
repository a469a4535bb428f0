"""`stream_merge(...)`: merges each micro-batch of a stream once. Driver; on Connect also next to its server.

Input: a streaming DataFrame, a table, the clauses of a MERGE. Output: a streaming query. Each micro-batch is merged
like `merge_into`, with the query's id and the number of the micro-batch as its idempotency key.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final
from uuid import UUID

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Window
from pyspark.sql.functions import col, row_number
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import ArrayType, DataType, StructType

from dml.commit import CommitKey, StreamEpoch
from dml.connector import execute_and_refresh
from dml.engine.engine import Engine
from dml.engine.located import locate_error
from dml.engine.ownership import parse_cached
from dml.engine.row_level import build_delta
from dml.engine.row_level_plan import plan_statement
from dml.errors import AnalysisError, ErrorKind
from dml.merge_builder import (
    Condition,
    MergeClauses,
    MergeText,
    columns_of,
    condition_text,
    equal_columns,
    merge_rows,
    resolve_target,
)
from dml.result import Result
from dml.spark.errors import translate
from dml.spark.foreign_data import is_foreign_data
from dml.spark.handlers import run_as_handler
from dml.spark_connect.server_side import batch_function
from dml.sqlparse.quoting import quoted
from dml.sqlparse.statements import MergeStatement
from dml.tracebacks import short_tracebacks

__all__ = ["StreamMerge", "stream_merge"]

NUMBER: Final = "__rowdelta_number"

UNSORTABLE: Final = frozenset({"map", "variant", "interval"})
"""The names of types that Spark cannot sort: names, because PySpark 3.5 has no class for a variant."""


def stream_merge(
    engine: Engine,
    source: object,
    table: str,
    on: Condition | Sequence[str],
    *,
    keys: Sequence[str] | str | None,
    latest_by: Sequence[str] | str | None,
    source_alias: str,
) -> "StreamMerge":
    """Begin the MERGE of a stream.

    Args:
        engine: The session and its catalogs.
        source: A streaming DataFrame.
        table: The name of the table, with an alias if the conditions use one.
        on: The condition that matches source rows with target rows, or the names of columns that both have.
        keys: The columns that identify source rows; by default the names in `on`.
        latest_by: Of rows with equal keys, merge the one with the greatest value in these columns.
        source_alias: The alias of the source in conditions and values.

    Raises:
        AnalysisError: The source is not a stream, lacks the columns, or cannot be sorted by them for `latest_by`.
        NotFoundError: The table does not exist.
    """
    if not isinstance(source, DataFrame) or not source.isStreaming:
        what = "a batch" if isinstance(source, DataFrame) or is_foreign_data(source) else type(source).__name__
        raise AnalysisError(
            f"The source of stream_merge must be a streaming DataFrame, not {what}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Create one with spark.readStream, or use merge_into or upsert for a batch",
        )
    target = resolve_target(engine, table)
    named = None if isinstance(on, str) or not isinstance(on, Sequence) else columns_of(source, on, "on")
    unique = named if keys is None else columns_of(source, keys, "keys")
    latest = () if latest_by is None else columns_of(source, latest_by, "latest_by")
    if latest and not unique:
        raise AnalysisError(
            "latest_by needs the columns that identify a row",
            kind=ErrorKind.INVALID_VALUE,
            hint="Pass on=['id'] for columns that both have, or keys=['id'] with a condition",
        )
    if latest:
        check_sortable(source, unique or (), "keys" if keys is not None else "on")
        check_sortable(source, latest, "latest_by")
    return StreamMerge(
        StreamParts(
            engine=engine,
            source=source,
            merge=MergeText(
                target=target.sql,
                source_alias=source_alias,
                on=condition_text(on) if named is None else equal_columns(target, source_alias, named),
            ),
            latest=Latest(keys=unique or (), order=latest),
            table_uuid=target.resolved.table.metadata.table_uuid,
        )
    )


def check_sortable(source: DataFrame, names: Sequence[str], argument: str) -> None:
    """Check that Spark can sort by columns, which finds the greatest value of each key.

    Raises:
        AnalysisError: The type of a column cannot be sorted.
    """
    for column in source.schema.fields:
        if column.name.lower() in {name.lower() for name in names} and not is_sortable(column.dataType):
            raise AnalysisError(
                f"The column '{column.name}' of the source, which {argument} names, is "
                f"{column.dataType.simpleString().upper()}, which has no order",
                kind=ErrorKind.TYPE_MISMATCH,
                hint="Use columns whose values can be sorted, or add one that is computed from it",
                column=column.name,
            )


def is_sortable(kind: DataType) -> bool:
    """Return True if Spark can sort values of a type."""
    match kind:
        case StructType():
            return all(is_sortable(inner.dataType) for inner in kind.fields)
        case ArrayType():
            return is_sortable(kind.elementType)
        case _:
            return kind.typeName() not in UNSORTABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Selects the rows of a micro-batch to merge.

    Attributes:
        keys: The columns that identify rows.
        order: Of rows with equal keys, select the one with the greatest values in these columns; empty selects all.
    """

    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def of(self, batch: DataFrame) -> DataFrame:
        """Return the rows of a micro-batch to merge; rows with a NULL in their key are all kept."""
        if not self.order:
            return batch
        descending = [col(quoted(name)).desc_nulls_last() for name in self.order]
        number = row_number().over(Window.partitionBy(*(quoted(name) for name in self.keys)).orderBy(*descending))
        has_null = reduce(lambda one, other: one | other, (col(quoted(name)).isNull() for name in self.keys))
        return batch.withColumn(NUMBER, number).where((col(NUMBER) == 1) | has_null).drop(NUMBER)


@short_tracebacks
class StreamMerge(MergeClauses):
    """Builds a MERGE of each micro-batch of a stream; nothing runs before `start()`.

    The source of its clauses is one micro-batch, not the whole stream.

    Args:
        parts: The stream and its MERGE.
    """

    def __init__(self, parts: "StreamParts") -> None:
        self._parts = parts

    @property
    def _text(self) -> MergeText:
        return self._parts.merge

    def _with_text(self, text: MergeText) -> "StreamMerge":
        return StreamMerge(replace(self._parts, merge=text))

    def trigger(self, **when: Any) -> "StreamMerge":
        """Set when micro-batches run, like PySpark's `trigger`: `processingTime="1 minute"`, `availableNow=True`."""
        return self._set_on_writer("trigger", **when)

    def outputMode(self, mode: str) -> "StreamMerge":  # noqa: N802
        """Set the rows of an aggregation in a micro-batch, like PySpark's: `append`, `update` or `complete`."""
        return self._set_on_writer("outputMode", mode)

    def queryName(self, name: str) -> "StreamMerge":  # noqa: N802
        """Set the name of the query, like PySpark's."""
        return self._set_on_writer("queryName", name)

    def _set_on_writer(self, method: str, *values: Any, **named: Any) -> "StreamMerge":
        """Return the stream merge with an additional call of PySpark's writer."""
        return StreamMerge(replace(self._parts, settings=(*self._parts.settings, (method, values, named))))

    def start(self, checkpoint: str, *, adopt_checkpoint: bool = False) -> StreamingQuery:
        """Start the query.

        Args:
            checkpoint: The location of the query's own checkpoint, with its id and progress.
            adopt_checkpoint: Continue from a checkpoint although the table has none of its earlier micro-batches.

        Returns:
            PySpark's query. An error of a micro-batch ends it; `awaitTermination` raises the error.

        Raises:
            DmlError: The statement does not fit the table or the source; nothing is started.
        """
        if not isinstance(checkpoint, str) or not checkpoint:
            raise AnalysisError(
                "A stream merge needs a checkpoint: without one, every start would begin from scratch",
                kind=ErrorKind.INVALID_VALUE,
                hint="Pass its location: start('checkpoints/orders')",
            )
        parts = self._parts
        check_statement(parts)
        writer = parts.source.writeStream
        for method, values, named in parts.settings:
            writer = getattr(writer, method)(*values, **named)
        epoch = StreamEpoch(query_id="", epoch_id=0, table_uuid=parts.table_uuid, adopts_checkpoint=adopt_checkpoint)
        batches = BatchMerge(merge=parts.merge, latest=parts.latest, epoch=epoch)
        function = batch_function(parts.engine, batches.write, checkpoint)
        return writer.option("checkpointLocation", checkpoint).foreachBatch(function).start()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamParts:
    """A stream and the MERGE of its micro-batches.

    Attributes:
        engine: The session and its catalogs.
        source: The stream.
        merge: The MERGE so far.
        latest: Selects the rows of a micro-batch to merge.
        table_uuid: The UUID of the table.
        settings: Calls of PySpark's stream writer: methods with their arguments.
    """

    engine: Engine
    source: DataFrame
    merge: MergeText
    latest: Latest
    table_uuid: UUID
    settings: tuple[tuple[str, tuple[Any, ...], Mapping[str, Any]], ...] = ()


def check_statement(parts: StreamParts) -> None:
    """Plan the MERGE with an empty source and let Spark analyze it, without writing.

    Raises:
        DmlError: It does not fit the table or the source.
    """
    engine = parts.engine
    empty = parts.latest.of(engine.spark.createDataFrame([], parts.source.schema))

    def plan(text: str, _: CommitKey | None) -> Result:
        statement = parse_cached(text)
        assert isinstance(statement, MergeStatement)
        with run_as_handler():
            planned = plan_statement(engine, statement, text)
            try:
                build_delta(engine, planned).frame()
            except PySparkException as error:
                raise locate_error(translate(error), statement, text, engine) from error
            finally:
                if planned.source is not None:
                    planned.source.release()
        return Result(command="MERGE", table="", mode="none")

    merge_rows(parts.merge, plan, empty, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMerge:
    """Merges the micro-batches of a stream. It can be pickled.

    Attributes:
        merge: The MERGE.
        latest: Selects the rows to merge.
        epoch: The template of the epoch, without query id and number.
    """

    merge: MergeText
    latest: Latest
    epoch: StreamEpoch

    def write(self, engine: Engine, batch: DataFrame, query_id: str, number: int) -> None:
        """Merge a micro-batch unless the table already has it."""

        def run(text: str, key: CommitKey | None) -> Result:
            with run_as_handler():
                result = execute_and_refresh(engine, parse_cached(text), text, key)
            assert isinstance(result, Result)
            return result

        epoch = replace(self.epoch, query_id=query_id, epoch_id=number)
        merge_rows(self.merge, run, self.latest.of(batch), epoch)
