"""Decide which columns of a Parquet file can be spliced, from its footer and offset indexes. Worker.

Input: a data file, the columns of new files, and the footer that these would get. Output: for each kind of row group
the columns that have to be encoded, or None if the file cannot be spliced. The decision is made before anything is
written, and in few reads, because each request to an object store has a latency. Spec: "Column Projection" for columns
that were dropped, renamed or added since the file was written.

A column that is copied in one row group and new in another has one type for both, and its metrics combine the footer
statistics of both. If the old file's types or statistics differ from what this writer would produce, the column is
new throughout.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FloatType, NestedField, StructType

from dml import limits
from dml.files.file_io import check_size, file_errors, file_io, open_file
from dml.model.arrow_types import METADATA
from dml.model.columns import DeltaLayout
from dml.model.scan_task import ScanTask
from dml.pyiceberg_patch import VariantType
from dml.splice.footer import (
    CHUNK_TYPE,
    COLUMN_ORDERS,
    ELEMENT_NAME,
    ELEMENT_TYPE,
    LOGICAL_TYPE,
    NULL_COUNT,
    NUM_CHILDREN,
    REPETITION,
    STATISTICS,
    TRAILER_BYTES,
    FileColumn,
    Footer,
    Range,
    RowGroup,
    footer_length,
)
from dml.splice.spliced_file import CopiedFile, SplicedColumn, decoded_bytes, offset_indexes
from dml.splice.thrift_compact import I32, I64, STRUCT, Fields, list_of, value_of
from dml.write.column_metrics import Leaf, leaves
from dml.write.file_layout import FileLayout

__all__ = [
    "ICEBERG_SCHEMA",
    "OldFile",
    "SpliceColumns",
    "absent_leaves",
    "excludes_nan",
    "is_floating",
    "key_values",
    "new_bytes",
    "new_bytes_ratio",
    "open_old_file",
    "part_of",
    "physical_leaves",
    "read_offset_indexes",
    "same_type",
    "splice_columns",
    "without_nulls",
]


ICEBERG_SCHEMA: Final = "iceberg.schema"

UNKNOWN: Final = Leaf(field=NestedField(-1, "unknown", BinaryType(), required=False), path=())
"""A physical column of a dropped field, which has no metrics."""

ARROW: Final = "parquet-cpp-arrow "
"""Prefix of `created_by` of a writer whose bounds exclude NaN, as Iceberg requires."""

# SchemaElement
TYPE_LENGTH: Final = 2
REQUIRED: Final = 0
CONVERTED_TYPE: Final = 6
IMPLIED: Final = (CONVERTED_TYPE, 7, 8)
"""Fields that the logical type implies."""
FIXED_LENGTH: Final = 7
PLAIN_INTEGERS: Final = {1: 17, 2: 18}
"""By physical type, the converted type that is implied."""
FLOATING: Final = (4, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpliceColumns:
    """The columns of a file that are copied.

    Attributes:
        columns: The columns of the new file.
        untouched: The new columns in row groups without changes.
        updated: The new columns in row groups with updates alone.
        rewritten: The new columns in row groups that lose rows: all columns.
        loses_rows: True if rows may leave the file.
        gains_rows: True if new rows may be appended.
    """

    columns: tuple[SplicedColumn, ...]
    untouched: FileLayout
    updated: FileLayout
    rewritten: FileLayout
    loses_rows: bool
    gains_rows: bool

    def copies(self, layout: FileLayout) -> bool:
        """Return True if any column is copied when the columns of a layout are new."""
        new = {column.name for column in layout.columns}
        return any(column.copied is not None and column.name not in new for column in self.columns)


def splice_columns(
    footer: Footer,
    layout: FileLayout,
    delta: DeltaLayout,
    written: Footer,
    *,
    lineage: int,
    loses_rows: bool,
    gains_rows: bool,
) -> SpliceColumns:
    """Decide which columns of a file are copied. A column that is neither in the file nor assigned is omitted.

    Args:
        footer: The footer of the file.
        layout: The columns of new files.
        delta: The columns of the delta.
        written: The footer that new files get.
        lineage: The number of row lineage columns, which are the last ones of the layout.
        loses_rows: True if rows may leave the file.
        gains_rows: True if new rows, with all columns, may be appended.
    """
    held = {column.field_id: column for column in footer.columns}
    written_columns = {column.field_id: column for column in written.columns}
    last = {column.field_id for column in layout.columns[len(layout.columns) - lineage :]}
    orders, own_orders = (list_of(part.fields, COLUMN_ORDERS, STRUCT) or [] for part in (footer, written))
    columns, always = [], set()
    for column in layout.columns:
        field_id = column.field_id
        assigned = field_id in delta.assigned_ids
        if field_id not in held and not assigned and field_id not in last and not gains_rows:
            continue
        found, own = held.get(field_id), written_columns[field_id]
        copied = None if field_id in last else found
        if copied is not None and (assigned or loses_rows or gains_rows):
            same_orders = [orders[leaf] for leaf in copied.leaves] == [own_orders[leaf] for leaf in own.leaves]
            if not (same_orders and same_type(copied, own) and has_metrics(copied, footer)):
                copied = None
        if copied is None:
            always.add(field_id)
        columns.append(SplicedColumn(name=column.name, copied=copied))
    ids = {column.field_id for column in layout.columns if column.field_id in held} | always
    return SpliceColumns(
        columns=tuple(columns),
        untouched=part_of(layout, always),
        updated=part_of(layout, always | {*delta.assigned_ids}),
        rewritten=part_of(layout, ids),
        loses_rows=loses_rows,
        gains_rows=gains_rows,
    )


def part_of(layout: FileLayout, ids: Collection[int]) -> FileLayout:
    """Return the layout of some of the columns."""
    places = [place for place, column in enumerate(layout.columns) if column.field_id in ids]
    columns = tuple(layout.columns[place] for place in places)
    return replace(
        layout,
        columns=columns,
        arrow=pa.schema([layout.arrow.field(place) for place in places]),
        checks=tuple(layout.checks[place] for place in places),
        leaves=leaves(columns),
    )


def same_type(column: FileColumn, own: FileColumn) -> bool:
    """Return True if chunks of a file's column can be mixed with new ones."""
    parts = zip_longest(column.elements, own.elements)
    return all(
        found is not None
        and new is not None
        and element_key(found, inner=place > 0) == element_key(new, inner=place > 0)
        for place, (found, new) in enumerate(parts)
    )


def without_nulls(column: FileColumn, own: FileColumn) -> FileColumn:
    """Return the column of a new file as a writer would write it that knows where an old file requires values."""
    if len(column.elements) != len(own.elements):
        return own
    elements = [
        {**new, REPETITION: found[REPETITION]} if is_required(found) and REPETITION in new else new
        for found, new in zip(column.elements, own.elements, strict=True)
    ]
    return replace(own, elements=tuple(elements))


def is_required(element: Fields) -> bool:
    return bool(value_of(element, REPETITION, I32) == REQUIRED)


def element_key(element: Fields, *, inner: bool) -> Fields:
    """Return a schema element without redundant fields, in which writers differ."""
    fields = dict(element)
    kind = value_of(element, ELEMENT_TYPE, I32)
    if not inner:
        fields.pop(ELEMENT_NAME, None)  # columns may be renamed
    if kind != FIXED_LENGTH:
        fields.pop(TYPE_LENGTH, None)
    if kind is not None and value_of(element, CONVERTED_TYPE, I32) == PLAIN_INTEGERS.get(kind):
        fields.pop(LOGICAL_TYPE, None)
        fields.pop(CONVERTED_TYPE, None)
    if LOGICAL_TYPE in fields:
        for implied in IMPLIED:
            fields.pop(implied, None)
    if kind is not None:
        fields.pop(NUM_CHILDREN, None)  # some writers write 0
    return fields


def excludes_nan(footer: Footer) -> bool:
    """Return True if the writer of a file excludes NaN from bounds."""
    return footer.created_by.startswith(ARROW)


def has_metrics(column: FileColumn, footer: Footer) -> bool:
    """Return True if the footer describes each chunk of a column as a new footer would."""
    for leaf, repeated in zip(column.leaves, column.repeated, strict=True):
        if repeated:
            continue  # repeated columns have only a size as metrics
        for group in footer.row_groups:
            meta_data = group.chunks[leaf].meta_data
            statistics = value_of(meta_data, STATISTICS, STRUCT)
            if statistics is None or value_of(statistics, NULL_COUNT, I64) is None:
                return False
            if value_of(meta_data, CHUNK_TYPE, I32) in FLOATING and not excludes_nan(footer):
                return False
    return True


def new_bytes(footer: Footer, group: RowGroup, layout: FileLayout) -> int:
    """Estimate the memory that the new columns of a row group take."""
    ids = {column.field_id for column in layout.columns}
    return sum(
        decoded_bytes(group.chunks[leaf])
        for column in footer.columns
        if column.field_id in ids
        for leaf in column.leaves
    )


def new_bytes_ratio(footer: Footer, layout: FileLayout) -> float:
    """Return the share of these columns in a file's compressed bytes."""
    ids = {column.field_id for column in layout.columns}
    sizes = {True: 0, False: 0}
    for group in footer.row_groups:
        for column in footer.columns:
            sizes[column.field_id in ids] += sum(group.chunks[leaf].pages[1] for leaf in column.leaves)
    return sizes[True] / max(1, sum(sizes.values()))


def key_values(footer: Footer, columns: Sequence[SplicedColumn], layout: FileLayout, schema: Schema) -> dict[str, str]:
    """Return the key-value metadata of the new file: its Iceberg schema, if the old file has one.

    Some readers rely on the schema in the file. Copied columns keep the types and nested fields with which they were
    written.

    Args:
        footer: The footer of the old file.
        columns: The new file's columns.
        layout: The columns of new files.
        schema: The table's schema.
    """
    held = held_fields(footer)
    own = {column.name: column for column in layout.columns}
    fields = []
    for column in columns:
        if column.copied is None:
            fields.append(own[column.name])
            continue
        field = held.get(column.copied.field_id)
        if field is None or {leaf.field.field_id for leaf in leaves((field,))} != {*column.copied.leaf_ids}:
            return {}
        fields.append(field.model_copy(update={"name": column.name}))
    ids = {field.field_id for field in fields}
    identifiers = [field_id for field_id in schema.identifier_field_ids if field_id in ids]
    found = Schema(*fields, schema_id=schema.schema_id, identifier_field_ids=identifiers)
    return {ICEBERG_SCHEMA: found.model_dump_json()}


def held_fields(footer: Footer) -> dict[int | None, NestedField]:
    """Return a file's columns by field id, from the Iceberg schema in its footer; empty without one."""
    try:
        text = footer.key_values.get(ICEBERG_SCHEMA)
        schema = None if text is None else Schema.model_validate_json(text)
    except ValueError:
        return {}
    return {} if schema is None else {field.field_id: field for field in schema.fields}


def physical_leaves(columns: Iterable[SplicedColumn], layout: FileLayout) -> list[tuple[Leaf, ...]]:
    """Return the physical columns of each column. A copied one may have fields that the table has dropped.

    Args:
        columns: The columns of a new file.
        layout: The columns of all new files.
    """
    known: Mapping[int, Leaf] = {leaf.field.field_id: leaf for leaf in layout.leaves}
    own: dict[str, list[Leaf]] = {}
    for leaf in layout.leaves:
        own.setdefault(layout.columns[leaf.path[0]].name, []).append(leaf)
    return [
        tuple(own.get(column.name, ()))
        if column.copied is None
        else tuple(
            part_of_variant(known.get(leaf, UNKNOWN), path) if leaf is not None else UNKNOWN
            for leaf, path in zip(column.copied.leaf_ids, column.copied.paths, strict=True)
        )
        for column in columns
    ]


def part_of_variant(leaf: Leaf, path: tuple[bytes, ...]) -> Leaf:
    """Return the physical column of a field at a path: a shredded variant has many."""
    is_variant = isinstance(leaf.field.field_type, VariantType)
    return replace(leaf, counts=path[-1] == METADATA.encode()) if is_variant else leaf


def absent_leaves(
    physical: Iterable[Iterable[Leaf]], layout: FileLayout, constant_ids: Collection[int]
) -> Iterator[Leaf]:
    """Return the physical columns, outside of lists and maps, that a file lacks and that are NULL in all its rows.

    Args:
        physical: The physical columns of the file.
        layout: The columns of new files.
        constant_ids: Columns whose value comes from the partition.
    """
    held = {leaf.field.field_id for found in physical for leaf in found}
    for leaf in layout.leaves:
        if leaf.field.field_id in held or leaf.field.field_id in constant_ids or leaf.repeated:
            continue
        field = layout.columns[leaf.path[0]]
        fields = [field]
        for place in leaf.path[1:]:
            assert isinstance(field.field_type, StructType)
            field = field.field_type.fields[place]
            fields.append(field)
        if all(field.initial_default is None for field in fields):
            yield leaf


def is_floating(leaf: Leaf) -> bool:
    """Return True if a physical column may hold NaNs."""
    return isinstance(leaf.field.field_type, FloatType | DoubleType)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFile:
    """An open data file to be spliced.

    Attributes:
        task: The scan task of the file.
        stream: The open file.
        footer: The footer.
    """

    task: ScanTask
    stream: Any
    footer: Footer

    def read(self, start: int, length: int) -> bytes:
        """Read exactly these bytes.

        Raises:
            CorruptFileError: The file ends before them.
            ExecutionError: The storage failed.
        """
        with file_errors(self.task.path):
            return read_exactly(self.stream, start, length)

    def copied(self, columns: tuple[SplicedColumn, ...], indexes: Mapping[Range, Fields]) -> CopiedFile:
        """Return the file in the form that `SplicedFile` copies from.

        Args:
            columns: The columns of the new file.
            indexes: The offset indexes of the copied chunks.
        """
        return CopiedFile(footer=self.footer, read=self.read, columns=columns, offset_indexes=indexes)


def read_exactly(stream: Any, start: int, length: int) -> bytes:
    stream.seek(start)
    data = bytes(stream.read(length))
    if len(data) != length:
        raise ValueError(f"it ends at {start + len(data)}, but bytes up to {start + length} are needed")
    return data


@contextmanager
def open_old_file(task: ScanTask, io_properties: dict[str, str]) -> Iterator[OldFile | None]:
    """Open a data file to be spliced; yield None if it cannot be."""
    io = file_io(io_properties, task.path)
    with file_errors(task.path):
        stream = open_file(io, task.path)
    with stream:  # failures while the new file is written must not be reported as this file's
        with file_errors(task.path):
            check_size(stream, task.path, task.file_size_in_bytes)
            footer = read_footer(stream, task)
        yield None if footer is None else OldFile(task=task, stream=stream, footer=footer)


def read_footer(stream: Any, task: ScanTask) -> Footer | None:
    """Return the footer of a file that can be spliced, else None.

    A broken footer also returns None: the file is then rewritten, and the reader reports the damage.
    """
    size = task.file_size_in_bytes
    tail = read_exactly(stream, max(0, size - limits.FOOTER_READ_BYTES), min(size, limits.FOOTER_READ_BYTES))
    try:
        length = footer_length(tail[-TRAILER_BYTES:], size)
        if length > limits.MAX_FOOTER_BYTES:
            return None
        start = size - TRAILER_BYTES - length
        missing = length + TRAILER_BYTES - len(tail)
        data = read_exactly(stream, start, missing) + tail if missing > 0 else tail[-TRAILER_BYTES - length :]
        footer = Footer.of(data[:-TRAILER_BYTES], start)
        return footer if footer.obstacle() is None and footer.rows == task.record_count else None
    except ValueError:
        return None


def read_offset_indexes(old: OldFile, columns: Iterable[SplicedColumn]) -> dict[Range, Fields] | None:
    """Return the offset indexes of the chunks that may be copied; None if one is broken.

    A broken index is not an error, because readers may ignore it.

    Raises:
        ExecutionError: The storage failed.
    """
    leaves = [leaf for column in columns if column.copied is not None for leaf in column.copied.leaves]
    chunks = [group.chunks[leaf] for group in old.footer.row_groups for leaf in leaves]
    with file_errors(old.task.path):
        try:
            return offset_indexes(chunks, partial(read_exactly, old.stream))
        except ValueError:
            return None
