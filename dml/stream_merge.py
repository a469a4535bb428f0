"""`stream_merge(...)`: a MERGE of each micro-batch of a stream, each once. Driver; on Connect also beside its server.

Input: a streaming DataFrame, a table, the clauses of a MERGE. Output: a streaming query. Each micro-batch is merged as
`merge_into` would merge it, under the query's id and its own number in the place of an idempotency key.
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
from dml.engine.located import located
from dml.engine.ownership import parsed
from dml.engine.row_level import delta_of
from dml.engine.row_level_plan import plan_statement
from dml.errors import AnalysisError, DmlError, ErrorKind, NotFoundError
from dml.hints import did_you_mean
from dml.merge_builder import (
    Condition,
    MergeBuilder,
    Value,
    WhenMatchedBuilder,
    WhenNotMatchedBuilder,
    condition_text,
    name_text,
)
from dml.result import Result
from dml.spark.errors import translate
from dml.spark.handlers import running
from dml.spark.jobs import running_query_id
from dml.spark.jvm import carried
from dml.sqlparse import parse
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.statements import DeleteStatement, MergeStatement
from dml.streaming.server_side import engine_of, packed_catalogs, query_id_of

__all__ = ["StreamMerge", "StreamWhenMatched", "StreamWhenNotMatched", "stream_merge"]

NUMBER: Final = "__rowdelta_number"

UNSORTABLE: Final = frozenset({"map", "variant", "interval"})
"""Types by whose values Spark cannot sort, by its names: PySpark 3.5 has no class for a variant."""

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
        table: Name of the table, with an alias if the conditions use one.
        on: The condition that matches source rows with target rows, or the names of columns that both have.
        keys: The columns that tell source rows apart; where `on` has names, these.
        latest_by: Of rows with equal keys the one with the greatest value in these columns is merged.
        source_alias: How conditions and values call the source.

    Raises:
        AnalysisError: the source is no stream, has not the columns, or cannot be sorted by them for `latest_by`.
        NotFoundError: there is no such table.
    """
    if not isinstance(source, DataFrame) or not source.isStreaming:
        what = "a DataFrame that is no stream" if isinstance(source, DataFrame) else type(source).__name__
        raise AnalysisError(
            f"The source of stream_merge is a streaming DataFrame, not {what}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Take one of spark.readStream; merge_into merges other DataFrames",
        )
    statement = parse(f"DELETE FROM {name_text(table)}")
    assert isinstance(statement, DeleteStatement)
    reference = statement.target
    resolved = engine.registry.resolve(reference.parts)
    if resolved is None:
        raise NotFoundError(
            f"There is no table '{'.'.join(reference.parts)}'", hint=engine.registry.proposal(reference.parts)
        )
    # What the name ends in stays: of the parts of a table only branches can be written to, and the others are refused.
    state = (resolved.branch, resolved.tag, resolved.snapshot_id, resolved.timestamp_ms)
    ends = (resolved.metadata_table is not None) + any(part is not None for part in state)
    suffix = reference.parts[len(reference.parts) - ends :]
    full = quote_name((resolved.catalog_name, *resolved.identifier, *suffix))
    named = None if isinstance(on, str) or not isinstance(on, Sequence) else columns_of(source, on, "on")
    unique = named if keys is None else columns_of(source, keys, "keys")
    latest = () if latest_by is None else columns_of(source, latest_by, "latest_by")
    if latest and not unique:
        raise AnalysisError(
            "latest_by needs to know which rows of the source are about the same row",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give on=['id'], the names of columns that both have, or keys=['id'] beside a condition",
        )
    if latest:
        check_sortable(source, unique or (), "keys" if keys is not None else "on")
        check_sortable(source, latest, "latest_by")
    target = quoted(reference.alias or reference.parts[-1])
    condition = (
        condition_text(on)
        if named is None
        else " AND ".join(f"{target}.{quoted(name)} = {quoted(source_alias)}.{quoted(name)}" for name in named)
    )
    return StreamMerge(
        engine=engine,
        source=source,
        merge=MergeBuilder(
            run=run,
            target=full if reference.alias is None else f"{full} AS {quoted(reference.alias)}",
            source=source,
            source_alias=source_alias,
            on=condition,
        ),
        latest=Latest(keys=unique or (), order=latest),
        table_uuid=resolved.table.metadata.table_uuid,
    )


def columns_of(source: DataFrame, names: Sequence[str] | str, argument: str) -> tuple[str, ...]:
    """The columns of the source that an argument names.

    Raises:
        AnalysisError: it names none, or one that is not there, or is something else than names.
    """
    if not isinstance(names, Sequence):
        raise AnalysisError(
            f"{argument} has the names of columns as texts, not {type(names).__name__}",
            kind=ErrorKind.INVALID_VALUE,
            hint=f"Write {argument}=['id'], for example",
        )
    listed = (names,) if isinstance(names, str) else tuple(names)
    known = {name.lower() for name in source.columns}
    for name in listed:
        if not isinstance(name, str) or name.lower() not in known:
            raise AnalysisError(
                f"The source has no column '{name}', which {argument} names",
                kind=ErrorKind.UNRESOLVED_COLUMN,
                hint=did_you_mean(str(name), source.columns),
            )
    if not listed:
        raise AnalysisError(f"{argument} names no column", kind=ErrorKind.INVALID_VALUE, hint="Give at least one")
    return listed


def check_sortable(source: DataFrame, names: Sequence[str], argument: str) -> None:
    """See that Spark can sort by columns, which it does to find the greatest value of each key.

    Raises:
        AnalysisError: it cannot sort by the type of one.
    """
    for column in source.schema.fields:
        if column.name.lower() in {name.lower() for name in names} and not is_sortable(column.dataType):
            raise AnalysisError(
                f"The column '{column.name}' of the source, which {argument} names, is "
                f"{column.dataType.simpleString().upper()}, and such values have no order",
                kind=ErrorKind.TYPE_MISMATCH,
                hint="With latest_by, name columns whose values can be sorted, or add one that is made of it",
                column=column.name,
            )


def is_sortable(kind: DataType) -> bool:
    """Whether Spark can sort by values of a type."""
    match kind:
        case StructType():
            return all(is_sortable(inner.dataType) for inner in kind.fields)
        case ArrayType():
            return is_sortable(kind.elementType)
        case _:
            return kind.typeName() not in UNSORTABLE


@dataclass(frozen=True, slots=True, kw_only=True)
class Latest:
    """Which rows of a micro-batch are merged.

    Attributes:
        keys: The columns that tell rows apart.
        order: Of rows with equal keys that with the greatest values in these columns; all rows where it is empty.
    """

    keys: tuple[str, ...] = ()
    order: tuple[str, ...] = ()

    def of(self, batch: DataFrame) -> DataFrame:
        """The rows of a micro-batch that are merged; one with a NULL in its key is about no other row, and stays."""
        if not self.order:
            return batch
        descending = [col(quoted(name)).desc_nulls_last() for name in self.order]
        number = row_number().over(Window.partitionBy(*(quoted(name) for name in self.keys)).orderBy(*descending))
        has_null = reduce(lambda one, other: one | other, (col(quoted(name)).isNull() for name in self.keys))
        return batch.withColumn(NUMBER, number).where((col(NUMBER) == 1) | has_null).drop(NUMBER)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamMerge:
    """A MERGE of each micro-batch of a stream, in the making; nothing runs before `start()`.

    Attributes:
        engine: The session and its catalogs.
        source: The stream.
        merge: The MERGE so far.
        latest: Which rows of a micro-batch are merged.
        table_uuid: The table.
        settings: What PySpark's writer of streams will be told: methods and their arguments.
    """

    engine: Engine = field(repr=False)
    source: DataFrame = field(repr=False)
    merge: MergeBuilder
    latest: Latest
    table_uuid: UUID
    settings: tuple[tuple[str, tuple[Any, ...], Mapping[str, Any]], ...] = ()

    def whenMatched(self, condition: Condition | None = None) -> "StreamWhenMatched":  # noqa: N802 - PySpark's name
        """`WHEN MATCHED [AND condition] THEN` what is called next."""
        return StreamWhenMatched(stream=self, clause=self.merge.whenMatched(condition))

    def whenNotMatched(self, condition: Condition | None = None) -> "StreamWhenNotMatched":  # noqa: N802
        """`WHEN NOT MATCHED [AND condition] THEN` what is called next."""
        return StreamWhenNotMatched(stream=self, clause=self.merge.whenNotMatched(condition))

    def whenNotMatchedBySource(self, condition: Condition | None = None) -> "StreamWhenMatched":  # noqa: N802
        """`WHEN NOT MATCHED BY SOURCE [AND condition] THEN` what is called next; the source is one micro-batch."""
        return StreamWhenMatched(stream=self, clause=self.merge.whenNotMatchedBySource(condition))

    def withSchemaEvolution(self) -> "StreamMerge":  # noqa: N802
        """Add columns of the source that the table lacks."""
        return self.followed_by(self.merge.withSchemaEvolution())

    def trigger(self, **when: Any) -> "StreamMerge":
        """When micro-batches run, as PySpark's `trigger`: `processingTime="1 minute"`, `availableNow=True`."""
        return self.set_on_writer("trigger", **when)

    def outputMode(self, mode: str) -> "StreamMerge":  # noqa: N802
        """Which rows of an aggregation a micro-batch has, as PySpark's: `append`, `update` or `complete`."""
        return self.set_on_writer("outputMode", mode)

    def queryName(self, name: str) -> "StreamMerge":  # noqa: N802
        """The name of the query, as PySpark's."""
        return self.set_on_writer("queryName", name)

    def followed_by(self, merge: MergeBuilder) -> "StreamMerge":
        """The same with one more clause, or another setting."""
        return replace(self, merge=merge)

    def set_on_writer(self, method: str, *values: Any, **named: Any) -> "StreamMerge":
        """The same, with a call that PySpark's writer will get."""
        return replace(self, settings=(*self.settings, (method, values, named)))

    def start(self, checkpoint: str, *, adopt_checkpoint: bool = False) -> StreamingQuery:
        """Start the query.

        Args:
            checkpoint: Location of its checkpoint, which is its own: what it has read, and its id.
            adopt_checkpoint: Go on from a checkpoint whose earlier micro-batches the table knows nothing of.

        Returns:
            PySpark's query. An error of a micro-batch ends it; `awaitTermination` raises the error.

        Raises:
            DmlError: the statement does not fit the table or the source; nothing is started then.
        """
        if not isinstance(checkpoint, str) or not checkpoint:
            raise AnalysisError(
                "A stream that merges needs a checkpoint: without one it would begin anew with each start",
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
                catalogs=packed_catalogs(self.engine.registry),
                # What runs a statement here cannot be sent; there the server's own session does.
                merge=replace(self.merge, run=not_here, source=""),
                latest=self.latest,
                epoch=epoch,
                checkpoint=checkpoint,
            )
        else:
            function = LocalMerge(merge=self.merge, latest=self.latest, epoch=epoch)
        return writer.option("checkpointLocation", checkpoint).foreachBatch(function).start()

    def check(self) -> None:
        """Plan the MERGE of no rows, and have Spark analyse it; nothing is written.

        Raises:
            DmlError: it does not fit the table or the source.
        """
        spark = self.engine.spark
        empty = self.latest.of(spark.createDataFrame([], self.source.schema))

        def plan(text: str, _: CommitKey | None) -> Result:
            statement = parsed(text)
            assert isinstance(statement, MergeStatement)
            with running():
                planned = plan_statement(self.engine, statement, text)
                try:
                    delta_of(self.engine, planned).frame()
                except PySparkException as error:
                    raise located(translate(error), statement, text, self.engine) from error
                finally:
                    if planned.source is not None:
                        planned.source.release()
            return Result(command="MERGE", table="", mode="none")

        replace(self.merge, run=plan).merge_rows(empty, None)


def not_here(_: str, __: CommitKey | None) -> Result:
    """In the place of what runs a statement, where nothing can."""
    raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalMerge:
    """Merges a micro-batch in the process of the session: what `foreachBatch` calls on classic Spark.

    Attributes:
        merge: The MERGE.
        latest: Which rows are merged.
        epoch: All but the query and the number.
    """

    merge: MergeBuilder
    latest: Latest
    epoch: StreamEpoch

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Merge it, unless the table has it already."""
        try:
            epoch = replace(self.epoch, query_id=running_query_id(), epoch_id=number)
            self.merge.merge_rows(self.latest.of(batch), epoch)
        except DmlError as error:
            raise carried(error) from error  # so that it is raised as itself where the query is waited for


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteMerge:
    """Merges a micro-batch beside a Spark Connect server. It can be pickled.

    Attributes:
        catalogs: Those of the session that started the query.
        merge: The MERGE.
        latest: Which rows are merged.
        epoch: All but the query and the number.
        checkpoint: The query's.
    """

    catalogs: bytes = field(repr=False)
    merge: MergeBuilder
    latest: Latest
    epoch: StreamEpoch
    checkpoint: str

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Merge it, unless the table has it already."""
        engine = engine_of(batch, self.catalogs)
        query_id = query_id_of(batch.sparkSession, self.checkpoint)

        def run(text: str, key: CommitKey | None) -> Result:
            with running():
                result = execute_and_refresh(engine, parsed(text), text, key)
            assert isinstance(result, Result)
            return result

        replace(self.merge, run=run).merge_rows(
            self.latest.of(batch), replace(self.epoch, query_id=query_id, epoch_id=number)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWhenMatched:
    """What is done with target rows: of WHEN MATCHED, and of WHEN NOT MATCHED BY SOURCE."""

    stream: StreamMerge
    clause: WhenMatchedBuilder

    def update(self, assignments: Mapping[str, Value]) -> StreamMerge:
        """`UPDATE SET ...`: values are SQL text, Columns, numbers, truth values or None."""
        return self.stream.followed_by(self.clause.update(assignments))

    def updateAll(self) -> StreamMerge:  # noqa: N802
        """`UPDATE SET *`."""
        return self.stream.followed_by(self.clause.updateAll())

    def delete(self) -> StreamMerge:
        """`DELETE`."""
        return self.stream.followed_by(self.clause.delete())


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWhenNotMatched:
    """What is done with source rows that match no target row."""

    stream: StreamMerge
    clause: WhenNotMatchedBuilder

    def insert(self, assignments: Mapping[str, Value]) -> StreamMerge:
        """`INSERT (...) VALUES (...)`: values are SQL text, Columns, numbers, truth values or None."""
        return self.stream.followed_by(self.clause.insert(assignments))

    def insertAll(self) -> StreamMerge:  # noqa: N802
        """`INSERT *`."""
        return self.stream.followed_by(self.clause.insertAll())
