"""Parse the footer of a Parquet file, and check whether the file can be spliced. Pure, worker-safe.

Input: a footer's bytes and their offset in the file. Output: columns, row groups, and the byte ranges of the chunks of
each column and of their indexes and bloom filters. Spec: `parquet.thrift`.

Footers are not trusted: ranges that overlap or leave the file, and counts that disagree, raise `ValueError`.
A valid footer with features that splicing does not support is no error: `obstacle` names them, and the file is not
spliced.

`annotate_variants` changes a footer that Arrow wrote, where a variant is a group of two byte columns. It annotates
these groups as VARIANT, which Arrow cannot write. Spec: `VariantType`; Parquet's `VariantEncoding.md`, "Variant in
Parquet".
"""

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dml import limits
from dml.splice.thrift_compact import (
    BINARY,
    BYTE,
    I32,
    I64,
    LIST,
    STRUCT,
    Fields,
    decode_struct,
    encode_struct,
    list_of,
    value_of,
)

__all__ = [
    "MAGIC",
    "TRAILER_BYTES",
    "Chunk",
    "FileColumn",
    "Footer",
    "RowGroup",
    "annotate_tail",
    "annotate_variants",
    "footer_length",
]

MAGIC: Final = b"PAR1"
TRAILER_BYTES: Final = 8
"""The size of a file's trailer: the length of the footer, and the magic."""


# FileMetaData
SCHEMA: Final = 2
NUM_ROWS: Final = 3
ROW_GROUPS: Final = 4
KEY_VALUES: Final = 5
CREATED_BY: Final = 6
COLUMN_ORDERS: Final = 7
ENCRYPTION: Final = 8
# SchemaElement
ELEMENT_TYPE: Final = 1
REPETITION: Final = 3
ELEMENT_NAME: Final = 4
NUM_CHILDREN: Final = 5
FIELD_ID: Final = 9
LOGICAL_TYPE: Final = 10
# LogicalType
VARIANT: Final = 16
# KeyValue
KEY: Final = 1
VALUE: Final = 2
# RowGroup
CHUNKS: Final = 1
GROUP_ROWS: Final = 3
SORTING_COLUMNS: Final = 4
SORTED_COLUMN: Final = 1
KNOWN_OF_GROUP: Final = frozenset(range(1, 8))
# ColumnChunk
FILE_PATH: Final = 1
META_DATA: Final = 3
OFFSET_INDEX: Final = (4, 5)
COLUMN_INDEX: Final = (6, 7)
KNOWN_OF_CHUNK: Final = frozenset(range(2, 8))
# ColumnMetaData
CHUNK_TYPE: Final = 1
ENCODINGS: Final = 2
PATH: Final = 3
CODEC: Final = 4
NUM_VALUES: Final = 5
UNCOMPRESSED_SIZE: Final = 6
COMPRESSED_SIZE: Final = 7
DATA_PAGE: Final = 9
DICTIONARY_PAGE: Final = 11
STATISTICS: Final = 12
NULL_COUNT: Final = 3
BLOOM_FILTER: Final = (14, 15)
KNOWN_OF_META_DATA: Final = frozenset(range(1, 18)) - {10}


INT96: Final = 3
REPEATED: Final = 2
CODECS: Final = range(8)

Range = tuple[int, int]
"""An offset and a length in bytes."""


def footer_length(trailer: bytes, file_size: int) -> int:
    """Return the length of the footer, from the last bytes of a file.

    Raises:
        ValueError: They are not those of a Parquet file, or the footer does not fit in the file.
    """
    if len(trailer) != TRAILER_BYTES or trailer[4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(trailer[:4], "little")
    if length > file_size - TRAILER_BYTES - len(MAGIC):
        raise ValueError(f"its footer of {length} bytes is longer than the file")
    return length


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """A column of a file, which is copied or written as a whole.

    Attributes:
        name: The name in the file.
        field_id: The field id; None if there is none.
        elements: The column's part of the schema: its own element, then those of its children.
        leaves: The indexes of its physical columns among those of the file.
        paths: The names from the column to each physical column.
        repeated: For each physical column, True if a row can have several values.
        leaf_ids: The field id of each physical column. The parts of a variant have the variant's id.
    """

    name: str
    field_id: int | None
    elements: tuple[Fields, ...]
    leaves: range
    paths: tuple[tuple[bytes, ...], ...]
    repeated: tuple[bool, ...]
    leaf_ids: tuple[int | None, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """The values of a physical column in a row group.

    Attributes:
        fields: The `ColumnChunk`.
        meta_data: The `ColumnMetaData`.
        pages: The range of the pages.
        offset_index: The range of the offset index; None if there is none.
        column_index: The range of the column index; None if there is none.
        bloom_filter: The offset of the bloom filter; None if there is none.
        bloom_filter_length: The length of the bloom filter; None if the footer lacks it.
    """

    fields: Fields
    meta_data: Fields
    pages: Range
    offset_index: Range | None
    column_index: Range | None
    bloom_filter: int | None
    bloom_filter_length: int | None

    def ranges(self) -> Iterator[Range]:
        """Yield all ranges that the chunk is known to occupy."""
        yield self.pages
        if self.offset_index is not None:
            yield self.offset_index
        if self.column_index is not None:
            yield self.column_index
        if self.bloom_filter is not None:
            yield self.bloom_filter, self.bloom_filter_length or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group.

    Attributes:
        fields: The `RowGroup` struct.
        rows: The number of rows.
        chunks: One per physical column; empty in an empty row group.
    """

    fields: Fields
    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """The footer of a Parquet file.

    Attributes:
        fields: The `FileMetaData`.
        start: The offset of the footer.
        root: The root of the schema.
        columns: The columns.
        row_groups: The row groups.
    """

    fields: Fields
    start: int
    root: Fields
    columns: tuple[FileColumn, ...]
    row_groups: tuple[RowGroup, ...]

    @staticmethod
    def of(data: bytes, start: int) -> "Footer":
        """Parse a footer.

        Args:
            data: The footer's bytes, without length and magic.
            start: The offset of the footer in the file.

        Raises:
            ValueError: The footer breaks the format, or contradicts itself or the file's size.
        """
        fields, length = decode_struct(data)
        if length != len(data):
            raise ValueError(f"its footer takes {length} bytes of {len(data)}")
        root, columns = columns_of(list_of(fields, SCHEMA, STRUCT) or [])
        leaves = [leaf for column in columns for leaf in leaves_of(column)]
        groups = tuple(row_group(group, leaves, start) for group in list_of(fields, ROW_GROUPS, STRUCT) or [])
        rows = sum(group.rows for group in groups)
        if rows != value_of(fields, NUM_ROWS, I64):
            raise ValueError(f"its row groups have {rows} rows, and the file {value_of(fields, NUM_ROWS, I64)}")
        check_apart(groups)
        return Footer(fields=fields, start=start, root=root, columns=columns, row_groups=groups)

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(group.rows for group in self.row_groups)

    @property
    def created_by(self) -> str:
        """The program that wrote the file; empty if unknown."""
        found = value_of(self.fields, CREATED_BY, BINARY)
        return "" if found is None else bytes(found).decode("utf-8", "replace")

    @property
    def key_values(self) -> dict[str, str]:
        """The file's key-value metadata.

        Raises:
            ValueError: It is not UTF-8.
        """
        pairs = [
            (value_of(pair, KEY, BINARY), value_of(pair, VALUE, BINARY))
            for pair in list_of(self.fields, KEY_VALUES, STRUCT) or []
        ]
        return {bytes(key).decode(): bytes(value).decode() for key, value in pairs if key is not None and value}

    def obstacle(self) -> str | None:
        """Return why the file cannot be spliced, or None if it can.

        Splicing must understand every field that may hold an offset. Every reader must also treat the copied chunks,
        whose new footer names the same writer, as it did before.
        """
        if ENCRYPTION in self.fields:
            return "it is encrypted"
        if is_old_writer(self.created_by):
            return f"readers work around mistakes of its writer, {self.created_by}"
        ids = [column.field_id for column in self.columns]
        if None in ids or len(set(ids)) != len(ids):
            return "its columns do not each have a field id of their own"
        leaves = sum(len(column.leaves) for column in self.columns)
        orders = list_of(self.fields, COLUMN_ORDERS, STRUCT)
        if orders is None or len(orders) != leaves:
            return "its footer lacks column orders"
        return next((reason for group in self.row_groups if (reason := obstacle_of(group)) is not None), None)


OLD_WRITERS: Final = (
    # Statistics in wrong orders; sizes without dictionary headers; uncompressed version 2 pages.
    (re.compile(r"parquet-mr(?![\w-])(?: version (\d+)\.(\d+))?"), (1, 10)),
    (re.compile(r"parquet-cpp-arrow(?! version \d+\.\d+)|parquet-cpp-arrow version (\d+)\.(\d+)"), (3, 0)),
    (re.compile(r"parquet-cpp(?![\w-])(?: version (\d+)\.(\d+))?"), (2**31, 0)),
    (re.compile(r"impala(?: version (\d+)\.(\d+))?"), (2**31, 0)),
)
"""Patterns of `created_by`, and the first version that readers treat normally."""


def is_old_writer(created_by: str) -> bool:
    """Return True if readers treat files of this writer differently from those of others."""
    for pattern, first in OLD_WRITERS:
        found = pattern.match(created_by)
        if found is not None:
            return found[1] is None or (int(found[1]), int(found[2])) < first
    return False


def obstacle_of(group: RowGroup) -> str | None:
    if not 0 < group.rows <= limits.MAX_ROW_GROUP_ROWS:
        return f"it has a row group of {group.rows} rows"
    if not group.fields.keys() <= KNOWN_OF_GROUP:
        return "its row groups have fields that are not known"
    if any(
        value_of(order, SORTED_COLUMN, I32) is None for order in list_of(group.fields, SORTING_COLUMNS, STRUCT) or []
    ):
        return "it is sorted by a column that it does not name"
    for chunk in group.chunks:
        if FILE_PATH in chunk.fields:
            return "its values lie in other files"
        if not chunk.fields.keys() <= KNOWN_OF_CHUNK or not chunk.meta_data.keys() <= KNOWN_OF_META_DATA:
            return "its columns have fields that are not known"
        if value_of(chunk.meta_data, CHUNK_TYPE, I32) == INT96:
            return "it has timestamps of 96 bits"
        if any(length > limits.MAX_PAGE_INDEX_BYTES for _, length in list(chunk.ranges())[1:]):
            return "its indexes are too large"
    return None


def columns_of(elements: list[Fields]) -> tuple[Fields, tuple[FileColumn, ...]]:
    """Return the root of a schema, and its columns. The list is the tree in preorder.

    Raises:
        ValueError: The list is not a tree.
    """
    if not elements:
        raise ValueError("it has no schema")
    root, place, leaf = elements[0], 1, 0
    columns = []
    for _ in range(children_of(root, len(elements))):
        end, paths, repeated, ids = subtree(elements, place)
        head = elements[place]
        columns.append(
            FileColumn(
                name=name_of(head).decode("utf-8"),
                field_id=field_id_of(head),
                elements=tuple(elements[place:end]),
                leaves=range(leaf, leaf + len(paths)),
                paths=tuple(paths),
                repeated=tuple(repeated),
                leaf_ids=tuple(ids),
            )
        )
        place, leaf = end, leaf + len(paths)
    if place != len(elements):
        raise ValueError("its schema has fields that belong to no column")
    return root, tuple(columns)


def subtree(elements: list[Fields], start: int) -> tuple[int, list[tuple[bytes, ...]], list[bool], list[int | None]]:
    """Return the index after a field's subtree, and the paths, repetition and ids of its physical columns."""
    place = start
    paths: list[tuple[bytes, ...]] = []
    repeated: list[bool] = []
    ids: list[int | None] = []
    # A stack of the parents' state for the fields still to come: path, repeated, id of the enclosing variant.
    above: list[tuple[tuple[bytes, ...], bool, int | None]] = [((), False, None)]
    while above:
        if place >= len(elements):
            raise ValueError("its schema breaks off")
        element, (prefix, many, variant_id) = elements[place], above.pop()
        path, many = (*prefix, name_of(element)), many or value_of(element, REPETITION, I32) == REPEATED
        place += 1
        if ELEMENT_TYPE in element:
            if children_of(element, len(elements)):
                raise ValueError("its schema has a field with values and with fields inside")
            paths.append(path)
            repeated.append(many)
            ids.append(field_id_of(element) if variant_id is None else variant_id)
            continue
        children = children_of(element, len(elements))
        if not children:
            raise ValueError("its schema has a field without values")
        if len(above) + children > len(elements) - place:
            raise ValueError("its schema breaks off")
        if len(path) > limits.MAX_PARQUET_DEPTH:
            raise ValueError(f"its schema is nested more than {limits.MAX_PARQUET_DEPTH} levels deep")
        if variant_id is None and VARIANT in (value_of(element, LOGICAL_TYPE, STRUCT) or ()):
            variant_id = field_id_of(element)
        above.extend([(path, many, variant_id)] * children)
    return place, paths, repeated, ids


def children_of(element: Fields, limit: int) -> int:
    number = value_of(element, NUM_CHILDREN, I32) or 0
    if not 0 <= number < limit:
        raise ValueError(f"its schema has a field with {number} fields inside")
    return int(number)


def field_id_of(element: Fields) -> int | None:
    """Return a field's id. Some writers store a negative one for none."""
    found = value_of(element, FIELD_ID, I32)
    return None if found is None or found < 0 else int(found)


def name_of(element: Fields) -> bytes:
    name = value_of(element, ELEMENT_NAME, BINARY)
    if name is None:
        raise ValueError("its schema has a field without a name")
    return bytes(name)


Leaf = tuple[int, tuple[bytes, ...], bool]


def leaves_of(column: FileColumn) -> Iterator[Leaf]:
    """Yield the physical type and path of each physical column, and whether it is repeated."""
    types = [value_of(element, ELEMENT_TYPE, I32) for element in column.elements if ELEMENT_TYPE in element]
    yield from zip(types, column.paths, column.repeated, strict=True)


def row_group(fields: Fields, leaves: list[Leaf], end: int) -> RowGroup:
    rows = value_of(fields, GROUP_ROWS, I64)
    if rows is None or rows < 0:
        raise ValueError(f"it has a row group of {rows} rows")
    chunks = list_of(fields, CHUNKS, STRUCT) or []
    if not rows:
        return RowGroup(fields=fields, rows=0, chunks=())  # writers disagree about the offsets of its chunks
    if len(chunks) != len(leaves):
        raise ValueError(f"it has a row group of {len(chunks)} columns, {len(leaves)} expected")
    return RowGroup(
        fields=fields,
        rows=rows,
        chunks=tuple(chunk(part, leaf, rows, end) for part, leaf in zip(chunks, leaves, strict=True)),
    )


def chunk(fields: Fields, leaf: Leaf, rows: int, end: int) -> Chunk:
    """Return a chunk after checking it.

    Args:
        fields: The `ColumnChunk`.
        leaf: Type and path of the column, and whether it is repeated.
        rows: The rows of the row group.
        end: The offset of the footer, before which all ranges must end.
    """
    meta_data = value_of(fields, META_DATA, STRUCT)
    if meta_data is None:
        raise ValueError("it has a column without metadata")
    path = list_of(meta_data, PATH, BINARY)
    kind, names, repeated = leaf
    if path is None or (value_of(meta_data, CHUNK_TYPE, I32), tuple(path)) != (kind, names):
        raise ValueError(f"it has a column {path} where its schema has {names}")
    values = value_of(meta_data, NUM_VALUES, I64)
    if values is None or values < 0 or (values != rows and not repeated):
        raise ValueError(f"it has a column of {values} values in a row group of {rows} rows")
    if value_of(meta_data, CODEC, I32) not in CODECS or list_of(meta_data, ENCODINGS, I32) is None:
        raise ValueError("it has a column without a codec or encodings")
    if (value_of(meta_data, UNCOMPRESSED_SIZE, I64) or -1) < 0:
        raise ValueError("it has a column of no size")
    length = value_of(meta_data, COMPRESSED_SIZE, I64)
    first = value_of(meta_data, DATA_PAGE, I64)
    dictionary = value_of(meta_data, DICTIONARY_PAGE, I64) or 0
    if length is None or first is None:
        raise ValueError("it has a column without an offset or length")
    start = min(first, dictionary) if dictionary > 0 else first
    if length:
        check_range(start, length, end)
        if max(first, dictionary) >= start + length:
            raise ValueError(f"it has a column whose pages start at {max(first, dictionary)}, after its end")
    elif not 0 <= start <= end:
        raise ValueError(f"it has a column that starts at {start}")
    filter_start = value_of(meta_data, BLOOM_FILTER[0], I64)
    filter_length = value_of(meta_data, BLOOM_FILTER[1], I32)
    if filter_start is not None:
        check_range(filter_start, 1 if filter_length is None else filter_length, end)
    return Chunk(
        fields=fields,
        meta_data=meta_data,
        pages=(start, length),
        offset_index=index_range(fields, OFFSET_INDEX, end),
        column_index=index_range(fields, COLUMN_INDEX, end),
        bloom_filter=filter_start,
        bloom_filter_length=filter_length,
    )


def index_range(fields: Fields, ids: tuple[int, int], end: int) -> Range | None:
    start, length = value_of(fields, ids[0], I64), value_of(fields, ids[1], I32)
    if start is None and length is None:
        return None
    if start is None or length is None:
        raise ValueError("it has a page index without an offset or length")
    check_range(start, length, end)
    return start, length


def check_range(start: int, length: int, end: int) -> None:
    if start < len(MAGIC) or length <= 0 or start + length > end:
        raise ValueError(f"it refers to {length} bytes at {start}, which are not before its footer at {end}")


def check_apart(groups: Iterable[RowGroup]) -> None:
    """Raise ValueError if ranges overlap."""
    taken = sorted(part for group in groups for chunk in group.chunks for part in chunk.ranges() if part[1])
    for (start, length), (following, _) in pairwise(taken):
        if start + length > following:
            raise ValueError(f"it refers to the bytes at {following} twice")


SPECIFICATION_VERSION: Final = 1
"""The field of Parquet's `VariantType` that holds the version of the encoding."""

ANNOTATION: Final = (STRUCT, {VARIANT: (STRUCT, {SPECIFICATION_VERSION: (BYTE, 1)})})


def annotate_variants(footer: bytes, ids: Collection[int]) -> bytes:
    """Annotate the variants of a footer as VARIANT.

    Args:
        footer: The footer, without length and magic.
        ids: The field ids of the variants.

    Raises:
        ValueError: The bytes are not a footer.
    """
    if not ids:
        return footer
    fields, _ = decode_struct(footer)
    elements = [annotate_element(element, ids) for element in list_of(fields, SCHEMA, STRUCT) or []]
    return encode_struct({**fields, SCHEMA: (LIST, (STRUCT, elements))})


def annotate_element(element: Fields, ids: Collection[int]) -> Fields:
    is_variant = value_of(element, FIELD_ID, I32) in ids and value_of(element, NUM_CHILDREN, I32) is not None
    return {**element, LOGICAL_TYPE: ANNOTATION} if is_variant else element


def annotate_tail(tail: bytes, ids: Collection[int]) -> bytes:
    """Annotate the variants in the footer at the end of a file.

    Args:
        tail: The bytes from anywhere before the footer to the end of the file.
        ids: The field ids of the variants.

    Raises:
        ValueError: The file does not end as a Parquet file does.
    """
    trailer = tail[-TRAILER_BYTES:]
    length = footer_length(trailer, 2**63)
    start = len(tail) - TRAILER_BYTES - length
    if start < 0:
        raise ValueError("the footer breaks off")
    footer = annotate_variants(tail[start:-TRAILER_BYTES], ids)
    return tail[:start] + footer + len(footer).to_bytes(4, "little") + trailer[4:]
