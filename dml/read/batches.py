"""Record batches of a good size. Worker-safe.

Input and output: record batches with the same rows in the same order.
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from dml.errors import CorruptFileError

__all__ = ["coalesced", "counted", "empty_batches", "empty_rows", "wrong_rows"]


def counted(batches: Iterable[pa.RecordBatch], rows: int, path: str) -> Iterator[pa.RecordBatch]:
    """The same batches; that they have so many rows is checked as they come.

    Args:
        batches: Batches of a file.
        rows: How many rows they should have.
        path: The file.

    Raises:
        CorruptFileError: they have more, or, at the end, fewer.
    """
    found = 0
    for batch in batches:
        found += batch.num_rows
        if found > rows:
            raise wrong_rows(path, found, rows)
        yield batch
    if found != rows:
        raise wrong_rows(path, found, rows)


def wrong_rows(path: str, found: int, rows: int) -> CorruptFileError:
    """The error for a file that has other rows than its manifest, or its footer, says."""
    return CorruptFileError(
        f"The file '{path}' has {found} rows where {rows} are expected",
        hint="It was damaged or replaced: restore it, or go back to a snapshot from before it was written",
        file=path,
    )


def coalesced(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Joins small neighbours: a filter leaves a few rows of each batch, and every batch that goes to Spark costs.

    Args:
        batches: Batches of one schema; empty ones are left out.
        rows: A batch that has half as many goes through as it is.
    """
    pending: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        if not pending and batch.num_rows * 2 >= rows:
            yield batch
            continue
        if held + batch.num_rows > rows:
            yield pa.concat_batches(pending)
            pending, held = [], 0
        pending.append(batch)
        held += batch.num_rows
        if held * 2 >= rows:
            yield pa.concat_batches(pending)
            pending, held = [], 0
    if pending:
        yield pa.concat_batches(pending)


def empty_rows(rows: int) -> pa.RecordBatch:
    """A batch without columns that has rows all the same."""
    structs = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(structs)


def empty_batches(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Batches without columns that have so many rows: a file of which no column is wanted need not be decoded."""
    for start in range(0, rows, batch_rows):
        yield empty_rows(min(batch_rows, rows - start))
