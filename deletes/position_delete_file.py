"""Convert position delete files from and to Arrow: group their rows by data file, or sort them. Worker-safe.

Input: record batches, or an index of positions by data file. Output: positions by data file, or a table with its
bounds. Source: Iceberg specification, "Position Delete Files".
"""

import struct
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError

__all__ = [
    "FILE_PATH",
    "FILE_PATH_ID",
    "POS",
    "POS_ID",
    "SCHEMA",
    "bounds",
    "positions_by_file",
    "table_of",
    "with_other_paths",
]

FILE_PATH = "file_path"
FILE_PATH_ID = 2147483546
POS = "pos"
POS_ID = 2147483545
FIELD_ID = "PARQUET:field_id"

SCHEMA = pa.schema(
    [
        pa.field(FILE_PATH, pa.string(), nullable=False, metadata={FIELD_ID: str(FILE_PATH_ID)}),
        pa.field(POS, pa.int64(), nullable=False, metadata={FIELD_ID: str(POS_ID)}),
    ]
)

LONG = struct.Struct("<q")


def positions_by_file(
    batch: pa.RecordBatch | pa.Table, *, file: str = "a position delete file"
) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
    """Yield each data file in a batch once, in order of first occurrence, with its positions in the batch's order.

    Args:
        batch: Rows of a position delete file, sorted or not; paths may be dictionary-encoded. Columns are found by
            field id, else by name.
        file: The delete file, for messages.

    Raises:
        CorruptFileError: a column is missing or has another type, or a value is null or negative.
    """
    values = positions_of(column_of(batch, POS, POS_ID, file), file)
    if not len(values):
        return
    names, codes = paths_of(column_of(batch, FILE_PATH, FILE_PATH_ID, file), file)
    order = None if (np.diff(codes) >= 0).all() else np.argsort(codes, kind="stable")
    if order is not None:
        codes, values = codes[order], values[order]
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    for start, part in zip(starts, np.split(values, starts[1:]), strict=True):
        yield names[codes[start]], part


def with_other_paths(
    batch: pa.RecordBatch, change: Callable[[str], str], *, file: str = "a position delete file"
) -> pa.RecordBatch:
    """Return a batch's rows in their order, with other paths, in the columns of `SCHEMA`.

    Args:
        batch: As for `positions_by_file`.
        change: Called once for each distinct path.
        file: As for `positions_by_file`.

    Raises:
        CorruptFileError: As for `positions_by_file`.
    """
    positions = positions_of(column_of(batch, POS, POS_ID, file), file)
    names, codes = paths_of(column_of(batch, FILE_PATH, FILE_PATH_ID, file), file)
    paths = pa.array([change(name) for name in names], pa.string()).take(pa.array(codes))
    return pa.record_batch([paths, pa.array(positions)], schema=SCHEMA)


def table_of(indexes: Mapping[str, PositionDeleteIndex]) -> pa.Table:
    """Return the rows of a position delete file, sorted by path and position, without duplicates.

    Args:
        indexes: Deleted positions by location of the data file.
    """
    paths = sorted(path for path, index in indexes.items() if not index.is_empty)  # by code point, as UTF-8 sorts
    if not paths:
        return SCHEMA.empty_table()
    parts = [indexes[path].to_numpy() for path in paths]
    codes = np.repeat(np.arange(len(paths)), [len(part) for part in parts])
    positions = np.concatenate(parts)
    names = pa.array(paths, pa.string())
    # An Arrow string array can hold at most 2 GiB of text.
    rows = max(1, min(limits.CHUNK_ROWS, limits.MAX_CHUNK_BYTES // max(len(path.encode()) for path in paths)))
    columns = [
        [names.take(pa.array(codes[start : start + rows])), pa.array(positions[start : start + rows])]
        for start in range(0, len(positions), rows)
    ]
    return pa.Table.from_batches([pa.record_batch(pair, schema=SCHEMA) for pair in columns], SCHEMA)


def bounds(indexes: Mapping[str, PositionDeleteIndex]) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Return lower and upper bounds by field id for the manifest entry of `table_of(indexes)`.

    With one data file the bounds are exact and not truncated, so that they identify the file. With several there are
    none.
    """
    if sum(not index.is_empty for index in indexes.values()) != 1:
        return {}, {}
    path, index = next((path, index) for path, index in indexes.items() if not index.is_empty)
    low, high = index.min(), index.max()
    return (
        {FILE_PATH_ID: path.encode(), POS_ID: LONG.pack(low)},
        {FILE_PATH_ID: path.encode(), POS_ID: LONG.pack(high)},
    )


def column_of(batch: pa.RecordBatch | pa.Table, name: str, field_id: int, file: str) -> pa.Array:
    wanted = str(field_id).encode()
    ids = [(field.metadata or {}).get(FIELD_ID.encode()) for field in batch.schema]
    number = ids.index(wanted) if wanted in ids else batch.schema.get_field_index(name)
    if number < 0:
        raise corrupt(file, f"it has no column '{name}'")
    column = batch.column(number)
    if column.null_count:
        raise corrupt(file, f"its column '{name}' has {column.null_count} nulls")
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def positions_of(column: pa.Array, file: str) -> npt.NDArray[np.int64]:
    if not pa.types.is_signed_integer(column.type):
        raise corrupt(file, f"its positions are {column.type}")
    values: npt.NDArray[np.int64] = np.asarray(column).astype(np.int64, copy=False)
    if len(values) and values.min() < 0:
        raise corrupt(file, f"it has the position {values.min()}")
    return values


def paths_of(column: pa.Array, file: str) -> tuple[list[str], npt.NDArray[np.int64]]:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise corrupt(file, f"its paths are {column.type}")
    # A dictionary in the file may contain a path twice, or paths in another order than the rows.
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    encoded = pc.dictionary_encode(plain.cast(pa.large_string()))
    if encoded.null_count:
        raise corrupt(file, f"it has {encoded.null_count} null paths")
    try:
        names = encoded.dictionary.to_pylist()
    except UnicodeDecodeError as error:
        raise corrupt(file, f"it has a path that is not UTF-8 ({error})") from error
    return names, encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def corrupt(file: str, what: str) -> CorruptFileError:
    return CorruptFileError(
        f"The position delete file {file} is corrupt: {what}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=file,
    )
