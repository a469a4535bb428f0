"""`stream_merge(...)`: merges each micro-batch of a stream once. Driver; on Connect also next to its server.

Input: a streaming DataFrame, a table, the clauses of a MERGE. Output: a streaming query. Each micro-batch is merged
like `merge_into`, with the query's id and the number of the micro-batch as its idempotency key.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from dml.engine.engine import Engine, is_connect
from dml.engine.located import locate_error
from dml.engine.ownership import parse_cached
from dml.engine.row_level import build_delta
from dml.engine.row_level_plan import plan_statement
from dml.errors import AnalysisError, DmlError, ErrorKind
from dml.merge_builder import (
    Condition,
    MergeBuilder,
    Value,
    WhenMatchedBuilder,
    WhenNotMatchedBuilder,
    columns_of,
    condition_text,
    equal_columns,
    resolve_target,
)
from dml.result import Result
from dml.spark.bridge.gateway import to_callback_error
from dml.spark.errors import translate
from dml.spark.handlers import run_as_handler
from dml.spark.jobs import running_query_id
from dml.sqlparse.quoting import quoted
from dml.sqlparse.statements import MergeStatement
from dml.streaming.server_side import engine_of, pack_catalogs, query_id_of

__all__ = ["StreamMerge", "StreamWhenMatched", "StreamWhenNotMatched", "stream_merge"]

NUMBER: Final = "__rowdelta_number"

UNSORTABLE: Final = frozenset({"map", "variant", "interval"})
"""The names of types that Spark cannot sort: names, because PySpark 3.5 has no class for a variant."""

Run = Callable[[str, CommitKey | None], Result]


def stream_merge(
    engine: Engine,
    run: Run,
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
        run: Runs the text of a MERGE, on classic Spark in the session of the micro-batch.
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
        what = "a batch DataFrame" if isinstance(source, DataFrame) else type(source).__name__
        raise AnalysisError(
            f"The source of stream_merge must be a streaming DataFrame, not {what}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Take one of spark.readStream; merge_into merges other DataFrames",
        )
    target = resolve_target(engine, table)
    named = None if isinstance(on, str) or not isinstance(on, Sequence) else columns_of(source, on, "on")
    unique = named if keys is None else columns_of(source, keys, "keys")
    latest = () if latest_by is None else columns_of(source, latest_by, "latest_by")
    if latest and not unique:
        raise AnalysisError(
            "latest_by needs the columns that identify a row",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give on=['id'], the names of columns that both have, or keys=['id'] beside a condition",
        )
    if latest:
        check_sortable(source, unique or (), "keys" if keys is not None else "on")
        check_sortable(source, latest, "latest_by")
    return StreamMerge(
        engine=engine,
        source=source,
        merge=MergeBuilder(
            run=run,
            target=target.sql,
            source=source,
            source_alias=source_alias,
            on=condition_text(on) if named is None else equal_columns(target, source_alias, named),
        ),
        latest=Latest(keys=unique or (), order=latest),
        table_uuid=target.resolved.table.metadata.table_uuid,
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
                hint="With latest_by, name columns whose values can be sorted, or add one that is made of it",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMerge:
    """Builds a MERGE of each micro-batch of a stream; nothing runs before `start()`.

    Attributes:
        engine: The session and its catalogs.
        source: The stream.
        merge: The MERGE so far.
        latest: Selects the rows of a micro-batch to merge.
        table_uuid: The UUID of the table.
        settings: Calls of PySpark's stream writer: methods with their arguments.
    """

    engine: Engine = field(repr=False)
    source: DataFrame = field(repr=False)
    merge: MergeBuilder
    latest: Latest
    table_uuid: UUID
    settings: tuple[tuple[str, tuple[Any, ...], Mapping[str, Any]], ...] = ()

    def whenMatched(self, condition: Condition | None = None) -> "StreamWhenMatched":  # noqa: N802 - PySpark's name
        """Add `WHEN MATCHED [AND condition] THEN` with the action of the next call."""
        return StreamWhenMatched(stream=self, clause=self.merge.whenMatched(condition))

    def whenNotMatched(self, condition: Condition | None = None) -> "StreamWhenNotMatched":  # noqa: N802
        """Add `WHEN NOT MATCHED [AND condition] THEN` with the action of the next call."""
        return StreamWhenNotMatched(stream=self, clause=self.merge.whenNotMatched(condition))

    def whenNotMatchedBySource(self, condition: Condition | None = None) -> "StreamWhenMatched":  # noqa: N802
        """Add `WHEN NOT MATCHED BY SOURCE [AND condition] THEN` with the action of the next call.

        The source is one micro-batch, not the whole stream.
        """
        return StreamWhenMatched(stream=self, clause=self.merge.whenNotMatchedBySource(condition))

    def withSchemaEvolution(self) -> "StreamMerge":  # noqa: N802
        """Add columns of the source that the table lacks."""
        return self.followed_by(self.merge.withSchemaEvolution())

    def trigger(self, **when: Any) -> "StreamMerge":
        """Set when micro-batches run, like PySpark's `trigger`: `processingTime="1 minute"`, `availableNow=True`."""
        return self.set_on_writer("trigger", **when)

    def outputMode(self, mode: str) -> "StreamMerge":  # noqa: N802
        """Set the rows of an aggregation in a micro-batch, like PySpark's: `append`, `update` or `complete`."""
        return self.set_on_writer("outputMode", mode)

    def queryName(self, name: str) -> "StreamMerge":  # noqa: N802
        """Set the name of the query, like PySpark's."""
        return self.set_on_writer("queryName", name)

    def followed_by(self, merge: MergeBuilder) -> "StreamMerge":
        """Return the stream merge with another builder."""
        return replace(self, merge=merge)

    def set_on_writer(self, method: str, *values: Any, **named: Any) -> "StreamMerge":
        """Return the stream merge with an additional call of PySpark's writer."""
        return replace(self, settings=(*self.settings, (method, values, named)))

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
                hint="start('checkpoints/orders')",
            )
        self.check()
        writer = self.source.writeStream
        for method, values, named in self.settings:
            writer = getattr(writer, method)(*values, **named)
        epoch = StreamEpoch(query_id="", epoch_id=0, table_uuid=self.table_uuid, adopts_checkpoint=adopt_checkpoint)
        function: Callable[[DataFrame, int], None]
        if is_connect(self.engine.spark):
            function = RemoteMerge(
                catalogs=pack_catalogs(self.engine.registry),
                # `run` cannot be pickled; on the server, `RemoteMerge` replaces it.
                merge=replace(self.merge, run=cannot_run, source=""),
                latest=self.latest,
                epoch=epoch,
                checkpoint=checkpoint,
            )
        else:
            function = LocalMerge(merge=self.merge, latest=self.latest, epoch=epoch)
        return writer.option("checkpointLocation", checkpoint).foreachBatch(function).start()

    def check(self) -> None:
        """Plan the MERGE with an empty source and let Spark analyze it, without writing.

        Raises:
            DmlError: It does not fit the table or the source.
        """
        spark = self.engine.spark
        empty = self.latest.of(spark.createDataFrame([], self.source.schema))

        def plan(text: str, _: CommitKey | None) -> Result:
            statement = parse_cached(text)
            assert isinstance(statement, MergeStatement)
            with run_as_handler():
                planned = plan_statement(self.engine, statement, text)
                try:
                    build_delta(self.engine, planned).frame()
                except PySparkException as error:
                    raise locate_error(translate(error), statement, text, self.engine) from error
                finally:
                    if planned.source is not None:
                        planned.source.release()
            return Result(command="MERGE", table="", mode="none")

        replace(self.merge, run=plan).merge_rows(empty, None)


def cannot_run(_: str, __: CommitKey | None) -> Result:
    """Stand in for the function that runs a statement, until the server replaces it."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMerge:
    """Merges a micro-batch in the session's process; `foreachBatch` calls it on classic Spark.

    Attributes:
        merge: The MERGE.
        latest: Selects the rows to merge.
        epoch: The template of the epoch, without query id and number.
    """

    merge: MergeBuilder
    latest: Latest
    epoch: StreamEpoch

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Merge a micro-batch unless the table already has it."""
        try:
            epoch = replace(self.epoch, query_id=running_query_id(), epoch_id=number)
            self.merge.merge_rows(self.latest.of(batch), epoch)
        except DmlError as error:
            raise to_callback_error(error) from error  # so that `awaitTermination` raises the same error


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMerge:
    """Merges a micro-batch next to a Spark Connect server. Picklable.

    Attributes:
        catalogs: The catalogs of the session that started the query, packed.
        merge: The MERGE.
        latest: Selects the rows to merge.
        epoch: The template of the epoch, without query id and number.
        checkpoint: The location of the query's checkpoint.
    """

    catalogs: bytes = field(repr=False)
    merge: MergeBuilder
    latest: Latest
    epoch: StreamEpoch
    checkpoint: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Merge a micro-batch unless the table already has it."""
        engine = engine_of(batch, self.catalogs)
        query_id = query_id_of(batch.sparkSession, self.checkpoint)

        def run(text: str, key: CommitKey | None) -> Result:
            with run_as_handler():
                result = execute_and_refresh(engine, parse_cached(text), text, key)
            assert isinstance(result, Result)
            return result

        replace(self.merge, run=run).merge_rows(
            self.latest.of(batch), replace(self.epoch, query_id=query_id, epoch_id=number)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWhenMatched:
    """The action on target rows, of WHEN MATCHED or WHEN NOT MATCHED BY SOURCE."""

    stream: StreamMerge
    clause: WhenMatchedBuilder

    def update(self, assignments: Mapping[str, Value]) -> StreamMerge:
        """Add `UPDATE SET ...`; values are SQL text, Columns, numbers, booleans or None."""
        return self.stream.followed_by(self.clause.update(assignments))

    def updateAll(self) -> StreamMerge:  # noqa: N802
        """Add `UPDATE SET *`."""
        return self.stream.followed_by(self.clause.updateAll())

    def delete(self) -> StreamMerge:
        """Add `DELETE`."""
        return self.stream.followed_by(self.clause.delete())


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWhenNotMatched:
    """The action on source rows that match no target row."""

    stream: StreamMerge
    clause: WhenNotMatchedBuilder

    def insert(self, assignments: Mapping[str, Value]) -> StreamMerge:
        """Add `INSERT (...) VALUES (...)`; values are SQL text, Columns, numbers, booleans or None."""
        return self.stream.followed_by(self.clause.insert(assignments))

    def insertAll(self) -> StreamMerge:  # noqa: N802
        """Add `INSERT *`."""
        return self.stream.followed_by(self.clause.insertAll())
