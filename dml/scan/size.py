"""Estimate the live rows and the size of a scan from metadata alone. Driver.

Input: scan tasks, and for a size the columns of the rows. Output: a row count, exact or estimated, or a `ScanSize`, by
which Spark chooses how it joins. Only this module interprets delete counts. `dml.verification` deliberately has its own
count, because it checks the rest of the package.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import StructType

from dml.model.scan_task import KeyFilter, ScanTask
from dml.spark.task_frames import value_size

__all__ = ["ScanSize", "estimate_live_rows", "live_rows", "scan_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanSize:
    """Estimated rows of a scan and their bytes."""

    rows: int
    size: int


def scan_size(
    tasks: Iterable[ScanTask], row: StructType, *, columns: int, columns_read: int, key_filter: KeyFilter | None = None
) -> ScanSize:
    """Estimate the live rows of a scan and their bytes: Spark's row width or the share of the files, the larger one.

    Args:
        tasks: The scan tasks.
        row: The columns of its rows.
        columns: Number of columns of the table.
        columns_read: Number of columns that are read.
        key_filter: Join keys that limit the rows; each key is assumed to match one row.
    """
    rows = size = 0
    for task in tasks:
        rows += estimate_live_rows(task)
        size += task.length
    share = size * columns_read // max(1, columns)
    if key_filter is not None:
        found = min(rows, number_of(key_filter))
        rows, share = found, share * found // max(1, rows)
    return ScanSize(rows=rows, size=max(rows * value_size(row), share))


def live_rows(tasks: Iterable[ScanTask], *, trust_position_deletes: bool) -> int | None:
    """Return the live rows of whole data files, or None if only reading can tell.

    A deletion vector holds each position once, and its manifest entry has their number. Equality delete files may list
    rows that the data file does not have.

    Args:
        tasks: Whole files.
        trust_position_deletes: Count the rows of a position delete file that is the only one of its data file. The
            specification allows it to list a position twice, so the result is exact only if its writer did not.
    """
    total = 0
    for task in tasks:
        deleted = 0
        if task.equality_deletes:
            return None
        if task.deletion_vector is not None:
            deleted = task.deletion_vector.record_count
        elif task.position_deletes:
            # Several files may list the same position, and a file without a single data file lists those of others.
            only = task.position_deletes[0]
            if not trust_position_deletes or len(task.position_deletes) > 1 or only.referenced_data_file is None:
                return None
            deleted = only.record_count
        total += task.record_count - deleted
    return total


def estimate_live_rows(task: ScanTask) -> int:
    """Estimate the live rows of a file or of a byte range of it."""
    known = (task.deletion_vector, *(ref for ref in task.position_deletes if ref.referenced_data_file is not None))
    rows = max(0, task.record_count - sum(ref.record_count for ref in known if ref is not None))
    if task.length >= task.file_size_in_bytes:
        return rows
    return -(-rows * task.length // task.file_size_in_bytes)


def number_of(key_filter: KeyFilter) -> int:
    with pa.ipc.open_stream(key_filter.values) as reader:
        return sum(batch.num_rows for batch in reader)
