"""Insert the rows of a MERGE's source that match nothing: on the driver if they are few, otherwise in tasks. Driver."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from dml.model.columns import FILE_ORDINAL, INTERNAL_PREFIX, POS, ROW_OPERATION
from dml.model.manifest import is_unpartitioned
from dml.model.write_task import TaskCommit, TaskMetrics
from dml.rows.changes import ChangesRun
from dml.rows.lookup import Places
from dml.rows.program import Changes
from dml.tasks.row_task import SourceRows, inserted_batch, pack_places
from dml.write.file_layout import file_layout
from dml.write.held_rows import stream_of
from dml.write.partition_values import PartitionRouter
from dml.write.row_builder import RowBuilder
from dml.write.writer_spec import WriterSpec, current_spec

__all__ = ["assign_inserts", "held_inserts", "inserted_rows"]

PLACE: Final = f"{INTERNAL_PREFIX}place"


def unmatched_places(run: ChangesRun, matched: BitMap) -> Places:
    """Return the places of the source's rows that match nothing."""
    mask = np.ones(len(run.matched), np.bool_)
    mask[np.asarray(matched.to_array(), np.int64)] = False
    return np.flatnonzero(mask)


def inserted_rows(program: Changes, source: SourceRows, matched: BitMap) -> pa.RecordBatch | None:
    """Return the new rows of a MERGE as a delta; None if there are none.

    Args:
        program: The MERGE.
        source: Its source.
        matched: The rows of the source that match.
    """
    run = ChangesRun(program, source.batch())
    found = list(map(inserted_batch, run.insert(unmatched_places(run, matched))))
    return pa.concat_batches(found) if found else None


def assign_inserts(
    program: Changes,
    source: SourceRows,
    spec: WriterSpec,
    matched: BitMap,
    loads: Mapping[int, int],
    *,
    by_partition: bool,
) -> dict[int, bytes]:
    """Return the rows of the source that each task inserts, as `RowTask.inserts` has them.

    Args:
        program: The MERGE.
        source: Its source.
        spec: The write.
        matched: The rows of the source that match.
        loads: Numbers of the tasks, and how many other rows each writes.
        by_partition: Whether one task gets all rows of a partition.

    Raises:
        DataError: A value breaks a rule.
    """
    run = ChangesRun(program, source.batch())
    places, partition_spec = unmatched_places(run, matched), current_spec(spec.context)
    if not by_partition or is_unpartitioned(partition_spec):
        ends = np.cumsum(even_shares(list(loads.values()), len(places)))
        shares = np.split(places, ends[:-1])
    else:
        layout = file_layout(spec.context, row_lineage=spec.row_lineage)
        router, rows = PartitionRouter(partition_spec, layout.columns), RowBuilder(layout, spec.layout)
        partitions: dict[tuple[Any, ...], list[Places]] = {}
        for inserted in run.insert(places):
            new = rows.inserted(inserted_batch(inserted).drop_columns([ROW_OPERATION, FILE_ORDINAL, POS]))
            numbered = pa.RecordBatch.from_arrays([*new.columns, pa.array(inserted.places)], [*new.schema.names, PLACE])
            for partition, found in router.split(numbered):
                partitions.setdefault(partition, []).append(found.column(PLACE).to_numpy())
        shares = pack_largest_first([np.concatenate(found) for found in partitions.values()], list(loads.values()))
    return {task: pack_places(np.sort(share)) for task, share in zip(loads, shares, strict=True) if len(share)}


def even_shares(loads: Sequence[int], rows: int) -> npt.NDArray[np.int64]:
    """Return how many rows each task gets, so that the loads of all tasks that get any are even."""
    order = np.argsort(loads, kind="stable")
    ascending = np.asarray(loads, np.int64)[order]
    levels = (np.cumsum(ascending) + rows) / np.arange(1, len(loads) + 1)
    taking = int(np.flatnonzero(levels > ascending)[-1]) + 1
    share = np.zeros(len(loads), np.int64)
    share[order[:taking]] = levels[taking - 1] - ascending[:taking]
    share[order[0]] += rows - share.sum()
    return share


def pack_largest_first(parts: Sequence[Places], loads: Sequence[int]) -> list[Places]:
    """Assign whole parts to tasks, the largest part first, each to the task with the smallest load."""
    heap = [(load, number) for number, load in enumerate(loads)]
    heapq.heapify(heap)
    members: list[list[Places]] = [[np.empty(0, np.int64)] for _ in heap]
    for part in sorted(parts, key=len, reverse=True):
        size, number = heapq.heappop(heap)
        members[number].append(part)
        heapq.heappush(heap, (size + len(part), number))
    return [np.concatenate(found) for found in members]


def held_inserts(inserted: pa.RecordBatch, spec: WriterSpec) -> TaskCommit:
    """Return new rows of a MERGE as if a task had left them to the driver.

    Args:
        inserted: The rows, as a delta.
        spec: The write.

    Raises:
        DataError: a value breaks a rule.
    """
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    rows = RowBuilder(layout, spec.layout).inserted(inserted.drop_columns([ROW_OPERATION, FILE_ORDINAL, POS]))
    return TaskCommit(held_rows=stream_of([rows]), metrics=TaskMetrics(rows_inserted=rows.num_rows))
