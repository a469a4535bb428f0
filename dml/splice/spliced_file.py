"""A Parquet file put together of chunks: some copied from another file byte for byte, some new. Pure, worker-safe.

Input: a file with its footer; new chunks, each column's written into a file of its own. Output: the bytes of the new
file. Each row group is either made of one of the old file's, of which any columns are copied, or all new. Spec:
`parquet.thrift`; "Page Index"; "Bloom Filter".

Pages hold no places, so they are right wherever they lie, checksums included. What holds places is shifted as far as
its chunk: the chunk's metadata, its offset index, its bloom filter. Chunks lie row group by row group in the order of
the columns: readers that split files go by the place of a row group's first chunk.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dml import limits
from dml.splice.footer import (
    BLOOM_FILTER,
    CHUNKS,
    COLUMN_INDEX,
    COLUMN_ORDERS,
    COMPRESSED_SIZE,
    DATA_PAGE,
    DICTIONARY_PAGE,
    ELEMENT_NAME,
    GROUP_ROWS,
    KEY,
    KEY_VALUES,
    MAGIC,
    META_DATA,
    NUM_CHILDREN,
    NUM_ROWS,
    OFFSET_INDEX,
    PATH,
    ROW_GROUPS,
    SCHEMA,
    SORTED_COLUMN,
    SORTING_COLUMNS,
    UNCOMPRESSED_SIZE,
    VALUE,
    Chunk,
    FileColumn,
    Footer,
    Range,
    RowGroup,
)
from dml.splice.pages import PAGE_LOCATIONS, PAGE_START, NearbyReads, PageHeaders, Read
from dml.splice.thrift_compact import (
    BINARY,
    I16,
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

__all__ = ["ColumnFile", "SplicedColumn", "SplicedFile"]


BLOOM_HEADER_BYTES: Final = 64
MAX_PLACE: Final = 2**15 - 1
"""Of a row group that can say which one it is."""

# FileMetaData
VERSION: Final = 1
# RowGroup
TOTAL_BYTES: Final = 2
GROUP_START: Final = 5
GROUP_COMPRESSED_BYTES: Final = 6
GROUP_PLACE: Final = 7
# ColumnChunk, ColumnMetaData
CHUNK_START: Final = 2
# BloomFilterHeader
BLOOM_BYTES: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SplicedColumn:
    """A column of the new file.

    Attributes:
        name: Its name.
        copied: The column of the old file of which chunks may be copied; None for one that is all new. Where chunks are
            new nevertheless, they are of the same type.
    """

    name: str
    copied: FileColumn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """A new column: a Parquet file of nothing else, whose pages are in the new file already.

    Attributes:
        footer: Its footer.
        tail: Its bytes behind the pages.
        tail_start: Where these start.
    """

    footer: Footer
    tail: bytes
    tail_start: int

    def read(self, start: int, length: int) -> bytes:
        """Some of what lies behind the pages."""
        place = start - self.tail_start
        if place < 0 or place + length > len(self.tail):
            raise ValueError("a new column has an index among its pages")
        return self.tail[place : place + length]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRowGroup:
    """A row group of the new file whose pages have been written.

    Attributes:
        old: The row group of the old file that it comes from; None if all of its rows are new.
        rows: How many.
        new: The columns of which it has new chunks.
        shifts: How far each copied chunk, and the chunks of each new column, were moved.
    """

    old: RowGroup | None
    rows: int
    new: frozenset[str]
    shifts: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Placed:
    """A chunk in the new file.

    Attributes:
        copied: Whether it is the old file's.
        chunk: As its own file has it.
        shift: How far it was moved.
        read: Reads its own file.
        fields: Its `ColumnChunk` in the new footer; indexes are added once they are written.
        meta_data: Its `ColumnMetaData` there.
    """

    copied: bool
    chunk: Chunk
    shift: int
    read: Read
    fields: Fields
    meta_data: Fields


class SplicedFile:
    """Puts a file together, row group by row group.

    Args:
        footer: The old file's.
        read: Reads the old file.
        write: Takes the new file's bytes, in order.
        columns: The new file's columns, in order.
        offset_indexes: Those of the chunks that are copied.
    """

    def __init__(
        self,
        footer: Footer,
        read: Read,
        write: Callable[[bytes], Any],
        columns: Sequence[SplicedColumn],
        offset_indexes: Mapping[Range, Fields],
    ) -> None:
        self._footer = footer
        self._read = read
        self._output = write
        self._columns = tuple(columns)
        self._parts: list[WrittenRowGroup] = []
        self._offset_indexes = offset_indexes
        self._run: Range = (0, 0)
        self._followed: list[PageHeaders] = []
        self.size = 0
        self._write(MAGIC)

    def add_row_group(self, old: RowGroup | None, rows: int, pages: Mapping[str, tuple[int, bytes]]) -> None:
        """Writes the next row group.

        Args:
            old: The row group of the old file whose chunks are copied, for the columns that have no new ones; None
                where all have.
            rows: How many rows it has.
            pages: Of each column with a new chunk, by its name: where its pages lie in its own file, and the pages.

        Raises:
            ValueError: the old file ends too early, or has pages of other sizes than its footer says.
        """
        shifts = []
        for column in self._columns:
            if column.name in pages:
                self._flush()
                start, data = pages[column.name]
                shifts.append(self.size - start)
                self._write(data)
                continue
            assert old is not None, "a row group that is all new lacks a column"
            assert column.copied is not None, "a new column has no chunk"
            shifts.extend(self._copy(old.chunks[leaf]) for leaf in column.copied.leaves)
        self._flush()
        self._parts.append(WrittenRowGroup(old=old, rows=rows, new=frozenset(pages), shifts=tuple(shifts)))

    def _copy(self, chunk: Chunk) -> int:
        """Copies pages soon: neighbours are read together. Gives how far they are moved."""
        start, length = chunk.pages
        first, held = self._run
        if first + held != start:
            self._flush()
            first, held = start, 0
        self._run = first, held + length
        if chunk.offset_index is None:
            self._followed.append(PageHeaders(chunk))
        return self.size + held - start

    def _flush(self) -> None:
        start, length = self._run
        followed, self._followed, self._run = self._followed, [], (0, 0)
        for offset in range(0, length, limits.COPY_BYTES):
            data = self._read(start + offset, min(limits.COPY_BYTES, length - offset))
            for headers in followed:
                headers.feed(start + offset, data)
            self._write(data)
        for headers in followed:
            headers.finish()

    def _write(self, data: bytes) -> None:
        self._output(data)
        self.size += len(data)

    def close(self, new: Mapping[str, ColumnFile], key_values: Mapping[str, str]) -> bytes:
        """Writes what follows the pages.

        Args:
            new: The new columns, by name.
            key_values: The file's own metadata.

        Returns:
            The footer, as it was written.

        Raises:
            ValueError: an index of the old file breaks the format, or a new column does not fit.
        """
        for name, column in new.items():
            if [group.rows for group in column.footer.row_groups] != [
                part.rows for part in self._parts if name in part.new
            ]:
                raise ValueError("a new column has row groups of other sizes")
        nearby = NearbyReads(self._read, self._index_ranges())
        own = {name: iter(column.footer.row_groups) for name, column in new.items()}
        groups = [list(self._placed(part, new, own, nearby.read)) for part in self._parts]
        chunks = [chunk for group in groups for chunk in group]
        self._write_bloom_filters(chunks)
        self._write_page_index(chunks)
        fields = self._file_meta_data(groups, new, key_values)
        data = encode_struct(fields)
        self._write(data)
        self._write(len(data).to_bytes(4, "little") + MAGIC)
        return data

    def _index_ranges(self) -> Iterator[Range]:
        """Where the column indexes and bloom filters lie that are copied."""
        for part in self._parts:
            for column in self._columns:
                if part.old is None or column.copied is None or column.name in part.new:
                    continue
                for leaf in column.copied.leaves:
                    chunk = part.old.chunks[leaf]
                    if chunk.column_index is not None:
                        yield chunk.column_index
                    if chunk.bloom_filter is not None:
                        yield chunk.bloom_filter, chunk.bloom_filter_length or BLOOM_HEADER_BYTES

    def _placed(
        self, part: WrittenRowGroup, new: Mapping[str, ColumnFile], own: Mapping[str, Iterator[RowGroup]], read: Read
    ) -> Iterator[Placed]:
        """The chunks of a row group, with their places.

        Args:
            part: The row group.
            new: The new columns, by name.
            own: The row groups of their files that are still to come.
            read: Reads the old file.
        """
        shifts = iter(part.shifts)
        for column in self._columns:
            if column.name in part.new:
                shift = next(shifts)
                for found in next(own[column.name]).chunks:
                    yield moved(found, shift, column.name, new[column.name].read, copied=False)
            elif part.old is not None and column.copied is not None:
                for leaf in column.copied.leaves:
                    yield moved(part.old.chunks[leaf], next(shifts), column.name, read, copied=True)

    def _write_bloom_filters(self, chunks: Sequence[Placed]) -> None:
        for placed in chunks:
            if placed.chunk.bloom_filter is None:
                continue
            data = bloom_filter(placed)
            placed.meta_data[BLOOM_FILTER[0]] = (I64, self.size)
            placed.meta_data[BLOOM_FILTER[1]] = (I32, len(data))
            self._write(data)

    def _write_page_index(self, chunks: Sequence[Placed]) -> None:
        """Of all chunks, or of none: some readers want the offset indexes of all columns once there is one."""
        if any(placed.chunk.offset_index is None for placed in chunks):
            return
        for ids, make in ((COLUMN_INDEX, column_index), (OFFSET_INDEX, self._offset_index)):
            for placed in chunks:
                data = make(placed)
                if data is not None:
                    placed.fields[ids[0]] = (I64, self.size)
                    placed.fields[ids[1]] = (I32, len(data))
                    self._write(data)

    def _offset_index(self, placed: Placed) -> bytes:
        """An offset index with the places of the moved pages."""
        found = placed.chunk.offset_index
        assert found is not None
        index = self._offset_indexes[found] if placed.copied else decode_struct(placed.read(*found))[0]
        pages = [
            {**page, PAGE_START: (I64, page[PAGE_START][1] + placed.shift)}
            for page in list_of(index, PAGE_LOCATIONS, STRUCT) or []
        ]
        return encode_struct({**index, PAGE_LOCATIONS: (LIST, (STRUCT, pages))})

    def _file_meta_data(
        self, groups: Sequence[Sequence[Placed]], new: Mapping[str, ColumnFile], key_values: Mapping[str, str]
    ) -> Fields:
        fields = dict(self._footer.fields)
        fields[NUM_ROWS] = (I64, sum(part.rows for part in self._parts))
        fields[VERSION] = (I32, max(value_of(part.fields, VERSION, I32) or 1 for part in (self._footer, *footers(new))))
        elements = [{**self._footer.root, NUM_CHILDREN: (I32, len(self._columns))}]
        orders: list[Fields] = []
        own_orders = list_of(self._footer.fields, COLUMN_ORDERS, STRUCT) or []
        for column in self._columns:
            source = column.copied or new[column.name].footer.columns[0]
            head, *below = source.elements
            elements.extend([{**head, ELEMENT_NAME: (BINARY, column.name.encode())}, *below])
            if column.copied is None:
                orders.extend(list_of(new[column.name].footer.fields, COLUMN_ORDERS, STRUCT) or [])
            else:
                orders.extend(own_orders[leaf] for leaf in source.leaves)
        fields[SCHEMA] = (LIST, (STRUCT, elements))
        fields[COLUMN_ORDERS] = (LIST, (STRUCT, orders))
        pairs = [{KEY: (BINARY, key.encode()), VALUE: (BINARY, text.encode())} for key, text in key_values.items()]
        fields.pop(KEY_VALUES, None)
        if pairs:
            fields[KEY_VALUES] = (LIST, (STRUCT, pairs))
        rows = [
            row_group_fields(place, part, group, self._leaves(part, new))
            for place, (part, group) in enumerate(zip(self._parts, groups, strict=True))
        ]
        fields[ROW_GROUPS] = (LIST, (STRUCT, rows))
        return fields

    def _leaves(self, part: WrittenRowGroup, new: Mapping[str, ColumnFile]) -> list[int | None]:
        """For each physical column of a row group, its place in the old file; None for new chunks."""
        found: list[int | None] = []
        for column in self._columns:
            source = column.copied or new[column.name].footer.columns[0]
            found.extend(source.leaves if column.name not in part.new else [None] * len(source.leaves))
        return found


def footers(new: Mapping[str, ColumnFile]) -> list[Footer]:
    return [column.footer for column in new.values()]


def moved(chunk: Chunk, shift: int, column: str, read: Read, *, copied: bool) -> Placed:
    """A chunk at its new place, without indexes; nothing of what was read is changed."""
    meta_data = dict(chunk.meta_data)
    dictionary = meta_data.pop(DICTIONARY_PAGE, None)
    if dictionary is not None and dictionary[1] > 0:  # some writers write 0 where there is none
        meta_data[DICTIONARY_PAGE] = (I64, dictionary[1] + shift)
    meta_data[DATA_PAGE] = (I64, meta_data[DATA_PAGE][1] + shift)
    path = list_of(meta_data, PATH, BINARY) or []
    meta_data[PATH] = (LIST, (BINARY, [column.encode(), *path[1:]]))
    fields = {key: value for key, value in chunk.fields.items() if key not in {*OFFSET_INDEX, *COLUMN_INDEX}}
    fields[CHUNK_START] = (I64, 0)  # deprecated: writers differ in what it means, readers do not look
    for field_id in BLOOM_FILTER:
        meta_data.pop(field_id, None)
    fields[META_DATA] = (STRUCT, meta_data)
    return Placed(copied=copied, chunk=chunk, shift=shift, read=read, fields=fields, meta_data=meta_data)


def bloom_filter(placed: Placed) -> bytes:
    """A bloom filter: a header that says how long the bits behind it are."""
    start, length = placed.chunk.bloom_filter, placed.chunk.bloom_filter_length
    assert start is not None
    if length is None:
        header, taken = decode_struct(placed.read(start, BLOOM_HEADER_BYTES))
        bits = value_of(header, BLOOM_BYTES, I32)
        if bits is None or not 0 <= bits <= limits.MAX_PAGE_INDEX_BYTES:
            raise ValueError(f"it has a bloom filter of {bits} bytes")
        length = taken + bits
    return placed.read(start, length)


def column_index(placed: Placed) -> bytes | None:
    """A column index as it is: it holds no places."""
    found = placed.chunk.column_index
    return None if found is None else placed.read(*found)


def row_group_fields(
    place: int, part: WrittenRowGroup, chunks: Sequence[Placed], leaves: Sequence[int | None]
) -> Fields:
    """A row group as the new footer has it.

    Args:
        place: Its place in the file.
        part: What it is made of.
        chunks: Its chunks.
        leaves: For each of them, its place in the old file; None for new ones.
    """
    fields: Fields = {} if part.old is None else dict(part.old.fields)
    fields[GROUP_ROWS] = (I64, part.rows)
    fields.pop(GROUP_PLACE, None)
    if place <= MAX_PLACE:
        fields[GROUP_PLACE] = (I16, place)
    fields[CHUNKS] = (LIST, (STRUCT, [placed.fields for placed in chunks]))
    fields[TOTAL_BYTES] = (I64, sum(value_of(placed.meta_data, UNCOMPRESSED_SIZE, I64) or 0 for placed in chunks))
    fields[GROUP_COMPRESSED_BYTES] = (
        I64,
        sum(value_of(placed.meta_data, COMPRESSED_SIZE, I64) or 0 for placed in chunks),
    )
    first = chunks[0]
    fields[GROUP_START] = (I64, first.chunk.pages[0] + first.shift)
    order = sorting(list_of(fields, SORTING_COLUMNS, STRUCT) or [], leaves)
    if order:
        fields[SORTING_COLUMNS] = (LIST, (STRUCT, order))
    else:
        fields.pop(SORTING_COLUMNS, None)
    return fields


def sorting(order: Sequence[Fields], leaves: Sequence[int | None]) -> list[Fields]:
    """By which columns the rows are sorted: as far as these were copied."""
    places = {leaf: place for place, leaf in enumerate(leaves) if leaf is not None}
    kept: list[Fields] = []
    for column in order:
        place = places.get(value_of(column, SORTED_COLUMN, I32))
        if place is None:
            break
        kept.append({**column, SORTED_COLUMN: (I32, place)})
    return kept
