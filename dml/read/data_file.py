"""The interface of an open data file of any format: columns with field ids, pieces, batches. Worker-safe.

Input: an open file and the table's name mapping. Output: its columns as a tree of `FileField`, its pieces (row groups,
stripes), and their record batches: checked against the manifest's row count, and coalesced if they are small.
Spec: "Column Projection", "Name Mapping", and the appendices on Parquet and ORC for where ids are kept.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.types import NestedField

from dml.errors import CorruptFileError
from dml.model.arrow_types import PARQUET_FIELD_ID
from dml.pruning.row_tests import Bounds

__all__ = [
    "DataFile",
    "FileField",
    "Piece",
    "check_row_count",
    "coalesce_batches",
    "empty_batches",
    "empty_rows",
    "file_fields",
    "leaf_columns",
    "walk",
    "with_mapped_ids",
    "wrong_row_count",
]

ID_KEYS = (PARQUET_FIELD_ID, b"iceberg.id")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileField:
    """A column of a file, or a field inside one.

    Attributes:
        name: The name in the file.
        field_id: The Iceberg field id, or None if the file has none.
        type: The Arrow type.
        children: The fields of a struct; the element of a list; key and value of a map.
    """

    name: str
    field_id: int | None
    type: pa.DataType
    children: tuple["FileField", ...] = ()


def file_fields(schema: pa.Schema, name_mapping: NameMapping | None) -> tuple[FileField, ...]:
    """Return the columns of a file.

    Ids come from the file. A file without ids takes them from the name mapping. Without a mapping, columns are numbered
    from 1 in file order, as Java's `ParquetSchemaUtil.addFallbackIds` does.
    """
    fields = tuple(from_arrow(field) for field in schema)
    if any(field.field_id is not None for field in walk(fields)):
        return fields
    if name_mapping is not None:
        return with_mapped_ids(fields, name_mapping.root)
    return tuple(replace(field, field_id=place) for place, field in enumerate(fields, start=1))


def from_arrow(field: pa.Field) -> FileField:
    return FileField(
        name=field.name,
        field_id=arrow_field_id(field),
        type=field.type,
        children=tuple(from_arrow(child) for child in arrow_children(field.type)),
    )


def arrow_field_id(field: pa.Field) -> int | None:
    """Return the field id that Arrow's Parquet and ORC readers keep in a field's metadata."""
    metadata = field.metadata or {}
    for key in ID_KEYS:
        text = metadata.get(key)
        if text is not None and text.lstrip(b"-").isdigit() and int(text) >= 0:
            return int(text)
    return None


def arrow_children(arrow_type: pa.DataType) -> Iterable[pa.Field]:
    if pa.types.is_struct(arrow_type):
        return tuple(arrow_type.field(place) for place in range(arrow_type.num_fields))
    if pa.types.is_map(arrow_type):
        return arrow_type.key_field, arrow_type.item_field
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return (arrow_type.value_field,)
    return ()


def with_mapped_ids(fields: tuple[FileField, ...], mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """Return the fields with the ids of a name mapping."""
    by_name = {name: entry for entry in mapping for name in entry.names}
    result = []
    for field in fields:
        entry = by_name.get(field.name)
        inner = entry.fields if entry is not None else ()
        result.append(
            replace(
                field,
                field_id=None if entry is None else entry.field_id,
                children=children_with_mapped_ids(field, inner),
            )
        )
    return tuple(result)


def children_with_mapped_ids(field: FileField, mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """Return the children of a field with mapped ids.

    Writers choose the names of elements, keys and values. The mapping always has the standard ones.
    """
    if pa.types.is_struct(field.type):
        return with_mapped_ids(field.children, mapping)
    standard = ("key", "value") if pa.types.is_map(field.type) else ("element",)
    renamed = tuple(replace(child, name=name) for child, name in zip(field.children, standard, strict=False))
    return with_mapped_ids(renamed, mapping)


def walk(fields: Iterable[FileField]) -> Iterator[FileField]:
    """Yield all fields, parents before their children."""
    for field in fields:
        yield field
        yield from walk(field.children)


def leaf_columns(fields: tuple[FileField, ...]) -> tuple[range, ...]:
    """Return, for each column, the range of its leaves among the physical columns of a Parquet file."""
    result, start = [], 0
    for field in fields:
        end = start + leaves(field)
        result.append(range(start, end))
        start = end
    return tuple(result)


def leaves(field: FileField) -> int:
    """Return the number of physical columns of a field."""
    return sum(leaves(child) for child in field.children) if field.children else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row group or stripe: the unit that is read or pruned.

    Attributes:
        index: The ordinal in the file.
        start: The offset of the first byte.
        first_position: The position of the first row in the file.
        rows: The row count; more than any file has if the format does not store it.
    """

    index: int
    start: int
    first_position: int
    rows: int


class DataFile(Protocol):
    """An open data file."""

    columnar: bool
    """True if some columns can be read without decoding the others."""

    @property
    def rows(self) -> int | None:
        """The row count that the file stores, or None if the format stores none."""

    @property
    def fields(self) -> tuple[FileField, ...]:
        """The columns."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """The pieces, in file order."""

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:
        """Return the bounds of a column in one piece, from the file's statistics."""

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of consecutive pieces, in order.

        Args:
            pieces: Neighbours in the file.
            columns: Indexes in `fields` of the columns to read; the batches have them in this order.
            batch_rows: Maximum number of rows of a batch.
        """


def check_row_count(batches: Iterable[pa.RecordBatch], rows: int, path: str) -> Iterator[pa.RecordBatch]:
    """Yield the same batches, and check that they have the expected number of rows in total.

    Args:
        batches: Batches of a file.
        rows: The expected number of rows.
        path: The file.

    Raises:
        CorruptFileError: There are more rows, or, at the end, fewer.
    """
    found = 0
    for batch in batches:
        found += batch.num_rows
        if found > rows:
            raise wrong_row_count(path, found, rows)
        yield batch
    if found != rows:
        raise wrong_row_count(path, found, rows)


def wrong_row_count(path: str, found: int, rows: int) -> CorruptFileError:
    """Return the error for a file whose row count differs from its manifest or footer."""
    return CorruptFileError(
        f"The file '{path}' has {found} rows where {rows} are expected",
        hint="It was damaged or replaced: restore it, or go back to a snapshot from before it was written",
        file=path,
    )


def coalesce_batches(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    """Concatenate small neighbouring batches.

    A filter leaves a few rows of each batch, and every batch that goes to Spark has a fixed cost.

    Args:
        batches: Batches of one schema; empty ones are dropped.
        rows: Maximum number of rows of a concatenated batch. A batch of at least half as many passes unchanged.
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
    """Return a batch that has rows but no columns."""
    structs = pa.StructArray.from_buffers(pa.struct([]), rows, [None])
    return pa.RecordBatch.from_struct_array(structs)


def empty_batches(rows: int, batch_rows: int) -> Iterator[pa.RecordBatch]:
    """Yield batches without columns, for a file of which no column needs to be decoded."""
    for start in range(0, rows, batch_rows):
        yield empty_rows(min(batch_rows, rows - start))
