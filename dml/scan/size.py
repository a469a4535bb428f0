"""How much a scan gives, by what manifests say of the files that it reads. Driver.

Input: scan tasks, the columns of the rows. Output: a `ScanSize`. Spark's joins go by it, whichever way the rows take.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from dml.model.scan_task import KeyFilter, ScanTask
from dml.spark.task_frames import value_size

__all__ = ["ScanSize", "scan_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSize:
    """How much a scan gives, about.

    Attributes:
        rows: Rows.
        size: Their bytes.
    """

    rows: int
    size: int


def scan_size(
    tasks: Iterable[ScanTask], row: StructType, *, columns: int, columns_read: int, key_filter: KeyFilter | None = None
) -> ScanSize:
    """How much a scan gives: live rows, in the bytes that Spark takes them for or that their files have.

    Args:
        tasks: What is read.
        row: The columns of its rows.
        columns: How many columns the table has.
        columns_read: How many of them are read.
        key_filter: The join keys that matter; a key is taken for one row's.
    """
    rows = size = 0
    for task in tasks:
        rows += live_rows(task)
        size += task.length
    share = size * columns_read // max(1, columns)
    if key_filter is not None:
        found = min(rows, number_of(key_filter))
        rows, share = found, share * found // max(1, rows)
    return ScanSize(rows=rows, size=max(rows * value_size(row), share))


def live_rows(task: ScanTask) -> int:
    """About how many rows a file, or a part of it, has that are not deleted."""
    vector = task.deletion_vector
    deleted = 0 if vector is None else vector.record_count
    deleted += sum(ref.record_count for ref in task.position_deletes if ref.referenced_data_file is not None)
    rows = max(0, task.record_count - deleted)
    if task.length >= task.file_size_in_bytes:
        return rows
    return -(-rows * task.length // task.file_size_in_bytes)


def number_of(key_filter: KeyFilter) -> int:
    """How many keys there are."""
    with pa.ipc.open_stream(key_filter.values) as reader:
        return sum(batch.num_rows for batch in reader)
