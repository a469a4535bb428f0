"""The footer of a Parquet file, as far as splicing needs it, and whether the file can be spliced. Pure, worker-safe.

Input: a footer's bytes and where they stand in the file. Output: columns, row groups, and where the chunks of each
column and what belongs to them lie. Spec: `parquet.thrift`.

Footers come from anywhere: ranges lie within the file and apart from each other, counts agree, or it is a `ValueError`.
What is allowed, but not understood to the last field, is no error: `obstacle` names it, and the file is not spliced.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from dml import limits
from dml.splice.thrift_compact import BINARY, I32, I64, STRUCT, Fields, decode_struct, list_of, value_of

__all__ = ["MAGIC", "TRAILER_BYTES", "Chunk", "FileColumn", "Footer", "RowGroup", "footer_length"]

MAGIC: Final = b"PAR1"
TRAILER_BYTES: Final = 8
"""At the end of a file: the length of the footer, and the magic."""


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
"""Where something starts, and how many bytes it takes."""


def footer_length(trailer: bytes, file_size: int) -> int:
    """The length of the footer that the last bytes of a file announce.

    Raises:
        ValueError: they are not those of a Parquet file, or the footer would not fit in the file.
    """
    if len(trailer) != TRAILER_BYTES or trailer[4:] != MAGIC:
        raise ValueError("it does not end as a Parquet file does")
    length = int.from_bytes(trailer[:4], "little")
    if length > file_size - TRAILER_BYTES - len(MAGIC):
        raise ValueError(f"its footer of {length} bytes is longer than the file")
    return length


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """A column of a file: what is copied or written as one.

    Attributes:
        name: Its name in the file.
        field_id: Its field id; None where it has none.
        elements: Its part of the schema: itself, then what it holds.
        leaves: Its physical columns, as places among all of them.
        paths: The names from the column to each of them.
        repeated: For each of them, whether a row can have several values.
        leaf_ids: The field id of each of them; of the parts of a variant, the variant's.
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
        fields: Its `ColumnChunk`.
        meta_data: Its `ColumnMetaData`.
        pages: Where its pages lie.
        offset_index: Where its offset index lies; None where it has none.
        column_index: Where its column index lies.
        bloom_filter: Where its bloom filter starts.
        bloom_filter_length: How long that is; None where the footer does not say.
    """

    fields: Fields
    meta_data: Fields
    pages: Range
    offset_index: Range | None
    column_index: Range | None
    bloom_filter: int | None
    bloom_filter_length: int | None

    def ranges(self) -> Iterator[Range]:
        """All that is known to be taken by it."""
        yield self.pages
        if self.offset_index is not None:
            yield self.offset_index
        if self.column_index is not None:
            yield self.column_index
        if self.bloom_filter is not None:
            yield self.bloom_filter, self.bloom_filter_length or 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Some of a file's rows.

    Attributes:
        fields: Its `RowGroup`.
        rows: How many.
        chunks: One for each physical column; none in an empty row group.
    """

    fields: Fields
    rows: int
    chunks: tuple[Chunk, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footer:
    """A Parquet file.

    Attributes:
        fields: Its `FileMetaData`.
        start: Where the footer starts.
        root: The root of the schema.
        columns: Its columns.
        row_groups: Its row groups.
    """

    fields: Fields
    start: int
    root: Fields
    columns: tuple[FileColumn, ...]
    row_groups: tuple[RowGroup, ...]

    @staticmethod
    def of(data: bytes, start: int) -> "Footer":
        """Reads a footer.

        Args:
            data: Its bytes, without length and magic.
            start: Where they stand in the file.

        Raises:
            ValueError: it breaks the format, or contradicts itself or the file's size.
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
        """All rows."""
        return sum(group.rows for group in self.row_groups)

    @property
    def created_by(self) -> str:
        """The program that wrote it; empty where it does not say."""
        found = value_of(self.fields, CREATED_BY, BINARY)
        return "" if found is None else bytes(found).decode("utf-8", "replace")

    @property
    def key_values(self) -> dict[str, str]:
        """What its writer noted of it.

        Raises:
            ValueError: it is no text.
        """
        pairs = [
            (value_of(pair, KEY, BINARY), value_of(pair, VALUE, BINARY))
            for pair in list_of(self.fields, KEY_VALUES, STRUCT) or []
        ]
        return {bytes(key).decode(): bytes(value).decode() for key, value in pairs if key is not None and value}

    def obstacle(self) -> str | None:
        """Why the file is not to be spliced; None where it may be.

        Whoever copies a chunk must know every field that may say where something lies, and every reader must take the
        copied chunks, whose footer names their writer, as it took them before.
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
            return "it does not say how its values are ordered"
        return next((reason for group in self.row_groups if (reason := obstacle_of(group)) is not None), None)


OLD_WRITERS: Final = (
    # Statistics of other orders; dictionary headers that are not counted; pages of version 2 that are not compressed.
    (re.compile(r"parquet-mr(?![\w-])(?: version (\d+)\.(\d+))?"), (1, 10)),
    (re.compile(r"parquet-cpp-arrow(?! version \d+\.\d+)|parquet-cpp-arrow version (\d+)\.(\d+)"), (3, 0)),
    (re.compile(r"parquet-cpp(?![\w-])(?: version (\d+)\.(\d+))?"), (2**31, 0)),
    (re.compile(r"impala(?: version (\d+)\.(\d+))?"), (2**31, 0)),
)
"""What `created_by` starts with, and the first version that no reader treats apart."""


def is_old_writer(created_by: str) -> bool:
    """Whether readers read files of this writer in another way than those of others."""
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
    """The root of a schema, and its columns: the list is the tree, parents before what they hold.

    Raises:
        ValueError: the list is no tree.
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
    """Where a field and what it holds end in the list; of its physical columns paths, which are repeated, and ids."""
    place = start
    paths: list[tuple[bytes, ...]] = []
    repeated: list[bool] = []
    ids: list[int | None] = []
    # Of fields that are still to come, the next one last; with the id of the variant that they are in.
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
    """A field's id; some writers write a negative one where there is none."""
    found = value_of(element, FIELD_ID, I32)
    return None if found is None or found < 0 else int(found)


def name_of(element: Fields) -> bytes:
    name = value_of(element, ELEMENT_NAME, BINARY)
    if name is None:
        raise ValueError("its schema has a field without a name")
    return bytes(name)


Leaf = tuple[int, tuple[bytes, ...], bool]


def leaves_of(column: FileColumn) -> Iterator[Leaf]:
    """Physical type and path of each physical column, and whether it is repeated."""
    types = [value_of(element, ELEMENT_TYPE, I32) for element in column.elements if ELEMENT_TYPE in element]
    yield from zip(types, column.paths, column.repeated, strict=True)


def row_group(fields: Fields, leaves: list[Leaf], end: int) -> RowGroup:
    rows = value_of(fields, GROUP_ROWS, I64)
    if rows is None or rows < 0:
        raise ValueError(f"it has a row group of {rows} rows")
    chunks = list_of(fields, CHUNKS, STRUCT) or []
    if not rows:
        return RowGroup(fields=fields, rows=0, chunks=())  # writers differ in where its chunks lie
    if len(chunks) != len(leaves):
        raise ValueError(f"it has a row group of {len(chunks)} columns, {len(leaves)} expected")
    return RowGroup(
        fields=fields,
        rows=rows,
        chunks=tuple(chunk(part, leaf, rows, end) for part, leaf in zip(chunks, leaves, strict=True)),
    )


def chunk(fields: Fields, leaf: Leaf, rows: int, end: int) -> Chunk:
    """A chunk, checked.

    Args:
        fields: The `ColumnChunk`.
        leaf: Type and path of its column, and whether it is repeated.
        rows: Those of the row group.
        end: Where the footer starts: everything lies before it.
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
        raise ValueError("it has a column that does not say how it is encoded")
    if (value_of(meta_data, UNCOMPRESSED_SIZE, I64) or -1) < 0:
        raise ValueError("it has a column of no size")
    length = value_of(meta_data, COMPRESSED_SIZE, I64)
    first = value_of(meta_data, DATA_PAGE, I64)
    dictionary = value_of(meta_data, DICTIONARY_PAGE, I64) or 0
    if length is None or first is None:
        raise ValueError("it has a column without a place")
    start = min(first, dictionary) if dictionary > 0 else first
    if length:
        check_range(start, length, end)
        if max(first, dictionary) >= start + length:
            raise ValueError(f"it has a column whose pages start at {max(first, dictionary)}, behind its end")
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
        raise ValueError("it has a page index without a place")
    check_range(start, length, end)
    return start, length


def check_range(start: int, length: int, end: int) -> None:
    if start < len(MAGIC) or length <= 0 or start + length > end:
        raise ValueError(f"it refers to {length} bytes at {start}, which are not before its footer at {end}")


def check_apart(groups: Iterable[RowGroup]) -> None:
    """Nothing lies in two places' bytes."""
    taken = sorted(part for group in groups for chunk in group.chunks for part in chunk.ranges() if part[1])
    for (start, length), (following, _) in pairwise(taken):
        if start + length > following:
            raise ValueError(f"it refers to the bytes at {following} twice")
