"""What a MERGE by tasks inserts: the rows of its source that match nothing, for whoever writes them. Driver.

Input: the source, and which of its rows match. Output: the rows, where they are few; else which task inserts which.
"""

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
from dml.read.key_index import Places
from dml.write.broadcast_merge import BroadcastRows, Joined, serialized
from dml.write.file_layout import file_layout
from dml.write.held_rows import stream_of
from dml.write.partition_values import PartitionRouter
from dml.write.row_builder import RowBuilder
from dml.write.writer_spec import WriterSpec, current_spec

__all__ = ["held_inserts", "inserted_rows", "insertions"]

PLACE: Final = f"{INTERNAL_PREFIX}place"


def inserted_rows(source: BroadcastRows, spec: WriterSpec, matched: BitMap) -> pa.RecordBatch | None:
    """What a MERGE inserts, as a delta; None for nothing. Driver.

    Args:
        source: The source.
        spec: The write.
        matched: The rows of the source that match.
    """
    joined = Joined(source, spec, ())
    found = [delta for delta, _ in joined.inserts(joined.unmatched(matched))]
    return pa.concat_batches(found) if found else None


def insertions(
    source: BroadcastRows, spec: WriterSpec, matched: BitMap, loads: Mapping[int, int], *, by_partition: bool
) -> dict[int, bytes]:
    """Which rows of the source each task inserts (`BroadcastMergeTask.inserted`). Driver.

    Args:
        source: The source.
        spec: The write.
        matched: The rows of the source that match.
        loads: Numbers of the tasks, and how many rows each has to write besides.
        by_partition: Whether one task gets all rows of a partition.

    Raises:
        DataError: a value breaks a rule.
    """
    joined = Joined(source, spec, ())
    places, partition_spec = joined.unmatched(matched), current_spec(spec.context)
    if not by_partition or is_unpartitioned(partition_spec):
        ends = np.cumsum(filled(list(loads.values()), len(places)))
        shares = np.split(places, ends[:-1])
    else:
        layout = file_layout(spec.context, row_lineage=spec.row_lineage)
        router, rows = PartitionRouter(partition_spec, layout.columns), RowBuilder(layout, spec.layout)
        partitions: dict[tuple[Any, ...], list[Places]] = {}
        for delta, part in joined.inserts(places):
            new = rows.inserted(delta.drop_columns([ROW_OPERATION, FILE_ORDINAL, POS]))
            numbered = pa.RecordBatch.from_arrays([*new.columns, pa.array(part)], [*new.schema.names, PLACE])
            for partition, found in router.split(numbered):
                partitions.setdefault(partition, []).append(found.column(PLACE).to_numpy())
        shares = dealt([np.concatenate(found) for found in partitions.values()], list(loads.values()))
    return {task: serialized(np.sort(share)) for task, share in zip(loads, shares, strict=True) if len(share)}


def filled(loads: Sequence[int], rows: int) -> npt.NDArray[np.int64]:
    """How many of some rows each task gets, so that the loads of all that get any are even."""
    order = np.argsort(loads, kind="stable")
    ascending = np.asarray(loads, np.int64)[order]
    levels = (np.cumsum(ascending) + rows) / np.arange(1, len(loads) + 1)
    taking = int(np.flatnonzero(levels > ascending)[-1]) + 1
    share = np.zeros(len(loads), np.int64)
    share[order[:taking]] = levels[taking - 1] - ascending[:taking]
    share[order[0]] += rows - share.sum()
    return share


def dealt(parts: Sequence[Places], loads: Sequence[int]) -> list[Places]:
    """Parts, each as a whole: the largest goes first, each to the task with the least load."""
    heap = [(load, number) for number, load in enumerate(loads)]
    heapq.heapify(heap)
    members: list[list[Places]] = [[np.empty(0, np.int64)] for _ in heap]
    for part in sorted(parts, key=len, reverse=True):
        size, number = heapq.heappop(heap)
        members[number].append(part)
        heapq.heappush(heap, (size + len(part), number))
    return [np.concatenate(found) for found in members]


def held_inserts(inserted: pa.RecordBatch, spec: WriterSpec) -> TaskCommit:
    """Rows that a MERGE inserts, as if a task had left them to the driver. Driver.

    Args:
        inserted: The rows, as a delta.
        spec: The write.

    Raises:
        DataError: a value breaks a rule.
    """
    layout = file_layout(spec.context, row_lineage=spec.row_lineage)
    rows = RowBuilder(layout, spec.layout).inserted(inserted.drop_columns([ROW_OPERATION, FILE_ORDINAL, POS]))
    return TaskCommit(held_rows=stream_of([rows]), metrics=TaskMetrics(rows_inserted=rows.num_rows))
