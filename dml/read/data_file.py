"""What the reader needs of a data file, whatever its format: columns with field ids, pieces, batches. Worker-safe.

Input: an open file and the table's name mapping. Output: its columns as a tree of `FileField`, its pieces (row groups,
stripes) and record batches of them, with as many rows as the manifest says, of a good size.
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
    "coalesced",
    "counted",
    "empty_batches",
    "empty_rows",
    "file_fields",
    "leaf_columns",
    "mapped",
    "walk",
    "wrong_rows",
]

ID_KEYS = (PARQUET_FIELD_ID, b"iceberg.id")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileField:
    """A column of a file, or a field inside one.

    Attributes:
        name: Its name in the file.
        field_id: Its Iceberg field id; None where the file has none.
        type: Its Arrow type.
        children: Fields of a struct; the element of a list; key and value of a map.
    """

    name: str
    field_id: int | None
    type: pa.DataType
    children: tuple["FileField", ...] = ()


def file_fields(schema: pa.Schema, name_mapping: NameMapping | None) -> tuple[FileField, ...]:
    """The columns of a file.

    Ids come from the file. A file without any takes them from the name mapping; without a mapping, its columns count
    from 1 in their order, as Java's `ParquetSchemaUtil.addFallbackIds` does.
    """
    fields = tuple(from_arrow(field) for field in schema)
    if any(field.field_id is not None for field in walk(fields)):
        return fields
    if name_mapping is not None:
        return mapped(fields, name_mapping.root)
    return tuple(replace(field, field_id=place) for place, field in enumerate(fields, start=1))


def from_arrow(field: pa.Field) -> FileField:
    """One field of an Arrow schema, with those inside it."""
    return FileField(
        name=field.name,
        field_id=arrow_field_id(field),
        type=field.type,
        children=tuple(from_arrow(child) for child in arrow_children(field.type)),
    )


def arrow_field_id(field: pa.Field) -> int | None:
    """The id that Arrow's readers leave in a field's metadata."""
    metadata = field.metadata or {}
    for key in ID_KEYS:
        text = metadata.get(key)
        if text is not None and text.lstrip(b"-").isdigit() and int(text) >= 0:
            return int(text)
    return None


def arrow_children(arrow_type: pa.DataType) -> Iterable[pa.Field]:
    """The fields inside a nested type."""
    if pa.types.is_struct(arrow_type):
        return tuple(arrow_type.field(place) for place in range(arrow_type.num_fields))
    if pa.types.is_map(arrow_type):
        return arrow_type.key_field, arrow_type.item_field
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return (arrow_type.value_field,)
    return ()


def mapped(fields: tuple[FileField, ...], mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """The fields with the ids of a name mapping."""
    by_name = {name: entry for entry in mapping for name in entry.names}
    result = []
    for field in fields:
        entry = by_name.get(field.name)
        inner = entry.fields if entry is not None else ()
        result.append(
            replace(field, field_id=None if entry is None else entry.field_id, children=mapped_children(field, inner))
        )
    return tuple(result)


def mapped_children(field: FileField, mapping: Sequence[MappedField]) -> tuple[FileField, ...]:
    """The fields inside one; writers name elements, keys and values as they like, the mapping always the same."""
    if pa.types.is_struct(field.type):
        return mapped(field.children, mapping)
    standard = ("key", "value") if pa.types.is_map(field.type) else ("element",)
    renamed = tuple(replace(child, name=name) for child, name in zip(field.children, standard, strict=False))
    return mapped(renamed, mapping)


def walk(fields: Iterable[FileField]) -> Iterator[FileField]:
    """All fields, parents before what they hold."""
    for field in fields:
        yield field
        yield from walk(field.children)


def leaf_columns(fields: tuple[FileField, ...]) -> tuple[range, ...]:
    """For each column, the range of its leaves among the physical columns of a Parquet file."""
    result, start = [], 0
    for field in fields:
        end = start + leaves(field)
        result.append(range(start, end))
        start = end
    return tuple(result)


def leaves(field: FileField) -> int:
    """How many physical columns a field has."""
    return sum(leaves(child) for child in field.children) if field.children else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A row group or stripe: what can be read, or left out, by itself.

    Attributes:
        index: Its place in the file.
        start: Offset of its first byte.
        first_position: Position in the file of its first row.
        rows: How many rows it has; where the format does not say, more than any file has.
    """

    index: int
    start: int
    first_position: int
    rows: int


class DataFile(Protocol):
    """An open data file."""

    columnar: bool
    """Whether some columns can be read without decoding the others."""

    @property
    def rows(self) -> int | None:
        """How many rows it says that it has; None where the format does not say."""

    @property
    def fields(self) -> tuple[FileField, ...]:
        """Its columns."""

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Its pieces, in order."""

    def bounds(self, piece: Piece, field: NestedField) -> Bounds:
        """What its statistics say of a column in one piece."""

    def batches(self, pieces: Sequence[Piece], columns: Sequence[int], batch_rows: int) -> Iterator[pa.RecordBatch]:
        """The rows of consecutive pieces, in order.

        Args:
            pieces: Neighbours in the file.
            columns: Places of the wanted columns in `fields`; the batches have them in this order.
            batch_rows: Greatest number of rows of a batch.
        """


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
