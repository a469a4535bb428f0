"""Run the work of Spark's tasks: read rows, run a row program, pass the result to a sink. Worker.

    groups of files ──> read ──> program ──> sink ──> reports
                                    ↑  └────────────> source rows that matched
                              source of a MERGE

Without a program, rows are passed on as they are read. Without a sink, they are returned to Spark.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from dml.errors import DmlError, ExecutionError
from dml.model.columns import FILE_ORDINAL, POS, ROW_OPERATION, value_name
from dml.model.scan_task import ScanContext
from dml.model.write_task import SourceMatches, TaskFailure, report_batch
from dml.read.data_file import coalesce_batches
from dml.read.reader import KeyTest, TaskReader
from dml.rows.changes import ChangedRows, ChangesRun
from dml.rows.evaluate import Columns, evaluate
from dml.rows.groups import partial_groups
from dml.rows.lookup import Places
from dml.rows.program import Changes, Groups, Program, Projection, Value
from dml.tasks.task_input import TaskInput

__all__ = ["RowTask", "Sink", "SourceRows", "discard", "inserted_batch", "pack_places", "project"]

Sink = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Consumes the rows of a task and returns reports (`dml.model.write_task.report_batch`). It can be pickled."""


class SourceRows(Protocol):
    """The rows of a MERGE's source, as tasks receive them. They can be pickled."""

    def batch(self) -> pa.RecordBatch:
        """Return the keys, in the order of `Join.key_ids`, then the columns with `source_id`s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTask:
    """The function that a Spark task runs. It can be pickled.

    Attributes:
        input: The groups of `ScanTask`s, with a `ScanContext`. The context projects the columns that the program reads
            and, for `Changes`, `FILE_ORDINAL` and `POS` after them; its filters have selected the rows.
        program: The row program.
        sink: Consumes the result.
        source: The source of a `Changes` program with a join.
        inserts_unmatched: Whether this is the only task, which inserts the source's rows without a match.
        inserts: Serialized `BitMap`s of the source's rows that a task inserts, by the number of its group.
        reports_matches: Whether to report the source's rows that matched.
    """

    input: TaskInput
    program: Program | None = None
    sink: Sink | None = None
    source: SourceRows | None = None
    inserts_unmatched: bool = False
    inserts: Mapping[int, bytes] = field(default_factory=lambda: MappingProxyType({}))
    reports_matches: bool = False

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the task.

        Args:
            batches: The groups to read, as `TaskInput.groups` takes them.

        Returns:
            The rows, or the reports of the sink.
        """
        context: ScanContext | None = self.input.context
        if context is None:
            yield from self._consumed(self._rows_of_streams(batches))
            return
        match self.program:
            case None:
                yield from self._consumed(self._rows(batches, TaskReader(context)))
            case Projection(values=values):
                rows = self._rows(batches, TaskReader(context))
                yield from self._consumed(project(batch, context, values) for batch in rows)
            case Groups():
                reader = TaskReader(context)
                rows = (row for tasks in self.input.groups(batches) for task in tasks for row in reader.read(task))
                tables = partial_groups(rows, reader.output_schema, self.program)
                yield from self._consumed(
                    found for table in tables for found in table.to_batches(max_chunksize=context.batch_rows)
                )
            case Changes():
                run = ChangesRun(self.program, None if self.source is None else self.source.batch())
                yield from self._consumed(self._delta(run, list(batches), context))
                if self.reports_matches:
                    yield report_batch(SourceMatches(rows=pack_places(np.flatnonzero(run.matched))))

    def _consumed(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return rows if self.sink is None else self.sink(rows)

    def _rows(self, batches: Iterable[pa.RecordBatch], reader: TaskReader) -> Iterator[pa.RecordBatch]:
        for tasks in self.input.groups(batches):
            rows = (found for task in tasks for found in reader.read(task))
            yield from coalesce_batches(rows, reader.context.batch_rows)

    def _rows_of_streams(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for context, *tasks in self.input.groups(batches):
            reader = TaskReader(context)
            yield from coalesce_batches((found for task in tasks for found in reader.read(task)), context.batch_rows)

    def _delta(self, run: ChangesRun, batches: list[pa.RecordBatch], context: ScanContext) -> Iterator[pa.RecordBatch]:
        keys = None
        if run.join is not None and not run.program.not_matched_by_source:  # which change rows with other keys
            keys = KeyTest(column_ids=run.join.key_ids, contains=run.lookup.contains)
        for batch in self._rows(batches, TaskReader(context, keys=keys)):
            changed = run.change(columns_of(batch, context), batch.num_rows)
            if len(changed.operations):
                places = [batch.column(FILE_ORDINAL), batch.column(POS)]
                if changed.places is not None:
                    places = [column.take(pa.array(changed.places)) for column in places]
                yield delta_batch(changed.operations, places, changed.values)
        if self.inserts_unmatched:
            yield from map(inserted_batch, run.insert(np.flatnonzero(~run.matched)))
        for batch in batches if self.inserts else ():
            for number in batch.column(0).to_pylist():
                if number in self.inserts:
                    yield from map(inserted_batch, run.insert(unpack_places(self.inserts[number])))


def columns_of(batch: pa.RecordBatch, context: ScanContext) -> Columns:
    """Return the columns of a batch by field id."""
    return {field_id: batch.column(place) for place, field_id in enumerate(context.projected_ids)}


def project(batch: pa.RecordBatch, context: ScanContext, values: Sequence[Value]) -> pa.RecordBatch:
    """Return a batch of computed values, named as in a row delta."""
    columns = columns_of(batch, context)
    arrays = [evaluate(value, columns, batch.num_rows) for value in values]
    return pa.RecordBatch.from_arrays(arrays, names=list(map(value_name, range(len(arrays)))))


def delta_batch(operations: pa.Array, places: list[pa.Array], values: list[pa.Array]) -> pa.RecordBatch:
    """Return a batch of a row delta (`dml.model.columns`)."""
    names = [ROW_OPERATION, FILE_ORDINAL, POS, *map(value_name, range(len(values)))]
    return pa.RecordBatch.from_arrays([operations, *places, *values], names=names)


def inserted_batch(new: ChangedRows) -> pa.RecordBatch:
    """Return new rows as a batch of a row delta."""
    rows = len(new.operations)
    return delta_batch(new.operations, [pa.nulls(rows, pa.int32()), pa.nulls(rows, pa.int64())], new.values)


def pack_places(places: Places) -> bytes:
    """Return ascending places as a serialized `BitMap`."""
    found: bytes = BitMap(places.astype(np.uint32)).serialize()
    return found


def unpack_places(data: bytes) -> Places:
    """Return the places of a serialized `BitMap`."""
    return np.asarray(BitMap.deserialize(data).to_array(), np.int64)


def discard(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Consume rows as a sink without output. A failure that another attempt would repeat is reported, not raised."""
    try:
        for _ in rows:
            pass
    except DmlError as error:
        if isinstance(error, ExecutionError):
            raise
        yield report_batch(TaskFailure(error))
