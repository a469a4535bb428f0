"""Assemble a Parquet file from chunks: some copied from other files byte for byte, some new. Pure, worker-safe.

Input: one or more files with their footers; new chunks, where each column is written into a file of its own. Output:
the bytes of the new file. Each row group is either derived from one of an old file, with any columns copied, or all
new. Spec: `parquet.thrift`; "Page Index"; "Bloom Filter".

Copied chunks are not decoded, so that a footer with a wrong chunk length would truncate them for good. Therefore the
pages of each chunk are followed to its end, and a mismatch raises `ValueError`. The offset index has the offsets of all
pages. Without one, the page headers are parsed while the bytes are copied.

Pages contain no offsets, so that they stay valid anywhere, including checksums. Structures with offsets are shifted by
the distance that their chunk moved: the chunk's metadata, its offset index, its bloom filter. Chunks are stored row
group by row group in column order, because readers that split files use the offset of a row group's first chunk.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dml import limits
from dml.splice.footer import (
    BLOOM_FILTER,
    CHUNK_TYPE,
    CHUNKS,
    COLUMN_INDEX,
    COLUMN_ORDERS,
    COMPRESSED_SIZE,
    CREATED_BY,
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
    NUM_VALUES,
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

__all__ = ["ColumnFile", "CopiedFile", "Read", "SplicedColumn", "SplicedFile", "decoded_bytes", "offset_indexes"]

Read = Callable[[int, int], bytes]
"""Read a range of a file, given its offset and length."""

# OffsetIndex, PageLocation
PAGE_LOCATIONS: Final = 1
PAGE_START: Final = 1
PAGE_BYTES: Final = 2
# PageHeader, and its headers of data pages
KIND: Final = 1
BODY_BYTES: Final = 3
DATA_HEADER: Final = {0: 5, 3: 8}
PAGE_VALUES: Final = 1

# ColumnMetaData, SizeStatistics
SIZE_STATISTICS: Final = 16
UNENCODED_BYTES: Final = 1

LONG_TYPES: Final = (6, 7)
"""The physical types of variable-length and fixed-length bytes."""
FLAT_BYTES: Final = 8


class NearbyReads:
    """Coalesce reads of small neighbouring ranges: on an object store, a small read takes as long as a large one.

    Args:
        read: Reads the file.
        ranges: The ranges that will be read.
    """

    def __init__(self, read: Read, ranges: Iterable[Range]) -> None:
        self._read = read
        self._runs = runs(ranges)
        self._starts = [start for start, _ in self._runs]
        self._held: tuple[int, bytes] = (0, b"")

    def read(self, start: int, length: int) -> bytes:
        """Read one of the ranges, or another one."""
        place = start - self._held[0]
        if place < 0 or place + length > len(self._held[1]):
            found = bisect_right(self._starts, start) - 1
            run = self._runs[found] if found >= 0 else (start, length)
            if start + length > sum(run):
                return self._read(start, length)
            self._held = run[0], self._read(*run)
            place = start - run[0]
        return self._held[1][place : place + length]


def runs(ranges: Iterable[Range]) -> list[Range]:
    """Merge neighbouring ranges of a file."""
    joined: list[Range] = []
    for start, length in sorted(ranges):
        if joined:
            first, held = joined[-1]
            if (
                start - (first + held) <= limits.MAX_READ_GAP_BYTES
                and start + length - first <= limits.MAX_JOINED_READ_BYTES
            ):
                joined[-1] = first, max(held, start + length - first)
                continue
        joined.append((start, length))
    return joined


def offset_indexes(chunks: Iterable[Chunk], read: Read) -> dict[Range, Fields]:
    """Return the offset indexes of some chunks, by their ranges.

    Raises:
        ValueError: An index breaks the format, or its pages do not add up to its chunk.
    """
    chunks = [chunk for chunk in chunks if chunk.offset_index is not None]
    nearby = NearbyReads(read, [chunk.offset_index for chunk in chunks if chunk.offset_index is not None])
    return {
        chunk.offset_index: decode_offset_index(chunk, nearby.read)
        for chunk in chunks
        if chunk.offset_index is not None
    }


def decode_offset_index(chunk: Chunk, read: Read) -> Fields:
    assert chunk.offset_index is not None
    index, taken = decode_struct(read(*chunk.offset_index))
    if taken != chunk.offset_index[1]:
        raise ValueError(f"it has an offset index of {taken} bytes where its footer has {chunk.offset_index[1]}")
    start, length = chunk.pages
    place: int | None = None
    for page in list_of(index, PAGE_LOCATIONS, STRUCT) or []:
        offset, size = value_of(page, PAGE_START, I64), value_of(page, PAGE_BYTES, I32)
        if size is None or size <= 0 or offset is None or offset < start or (place is not None and offset != place):
            raise ValueError(f"it has an offset index with a page of {size} bytes at {offset}, which does not exist")
        place = offset + size
    if place != start + length:
        raise ValueError(f"it has a column that ends at {start + length}, but whose pages end at {place}")
    return index


def decoded_bytes(chunk: Chunk) -> int:
    """Estimate the decoded size of a chunk in bytes, with the size of strings as the writer recorded it."""
    values = value_of(chunk.meta_data, NUM_VALUES, I64) or 0
    if value_of(chunk.meta_data, CHUNK_TYPE, I32) not in LONG_TYPES:
        return int(values * FLAT_BYTES)
    sizes = value_of(chunk.meta_data, SIZE_STATISTICS, STRUCT) or {}
    encoded = value_of(chunk.meta_data, UNCOMPRESSED_SIZE, I64) or 0
    return int(values * FLAT_BYTES + max(encoded, value_of(sizes, UNENCODED_BYTES, I64) or 0))


class PageHeaders:
    """Follow the pages of a chunk from header to header, while its bytes are copied in order.

    Args:
        chunk: The chunk.
    """

    def __init__(self, chunk: Chunk) -> None:
        start, length = chunk.pages
        self._next = start
        self._end = start + length
        self._missing: int = value_of(chunk.meta_data, NUM_VALUES, I64) or 0
        self._held = b""

    def feed(self, start: int, data: bytes) -> None:
        """Parse the page headers in the next bytes of the file, which may include those of other chunks.

        Raises:
            ValueError: There is no page where one should be.
        """
        if self._held:
            start, data, self._held = start - len(self._held), self._held + data, b""
        while self._next < min(start + len(data), self._end):
            place = self._next - start
            try:
                header, after = decode_struct(data, place)
            except ValueError:
                if len(data) - place >= limits.MAX_PAGE_HEADER_BYTES:
                    raise
                self._held = data[place:]  # the header continues in the next bytes
                return
            size = value_of(header, BODY_BYTES, I32)
            if size is None or size < 0:
                raise ValueError(f"it has a page of {size} bytes")
            inner = value_of(header, DATA_HEADER.get(value_of(header, KIND, I32), 0), STRUCT)
            if inner is not None:
                self._missing -= value_of(inner, PAGE_VALUES, I32) or 0
            self._next = start + after + size

    def finish(self) -> None:
        """Check the chunk after all of its bytes.

        Raises:
            ValueError: The pages do not end with the chunk, or have another number of values.
        """
        if self._next != self._end:
            raise ValueError(f"it has a column that ends at {self._end}, but a page at {self._next}")
        if self._missing:
            raise ValueError(f"it has a column whose pages lack {self._missing} values")


BLOOM_HEADER_BYTES: Final = 64
MAX_PLACE: Final = 2**15 - 1
"""The greatest ordinal that a row group can store, in 16 bits."""

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
        name: The name.
        copied: The column of the old file whose chunks may be copied; None for an all new one. New chunks of a copied
            column have the same type.
    """

    name: str
    copied: FileColumn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedFile:
    """An old file.

    Attributes:
        footer: The footer.
        read: Reads the file.
        columns: The new file's columns, in order. All old files have the same names and types.
        offset_indexes: The offset indexes of the copied chunks, by range.
    """

    footer: Footer
    read: Read
    columns: tuple[SplicedColumn, ...]
    offset_indexes: Mapping[Range, Fields]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFile:
    """A Parquet file with one new column, whose pages are already in the new file.

    Attributes:
        footer: The footer.
        tail: The bytes after the pages.
        tail_start: The offset of these bytes.
    """

    footer: Footer
    tail: bytes
    tail_start: int

    def read(self, start: int, length: int) -> bytes:
        """Read a range after the pages."""
        place = start - self.tail_start
        if place < 0 or place + length > len(self.tail):
            raise ValueError("a new column has an index among its pages")
        return self.tail[place : place + length]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRowGroup:
    """A row group of the new file whose pages are written.

    Attributes:
        file: The old file.
        old: The row group of the old file that it derives from; None if all of its rows are new.
        rows: The number of rows.
        new: The columns with new chunks.
        shifts: The distances that each copied chunk, and the chunks of each new column, moved.
    """

    file: CopiedFile
    old: RowGroup | None
    rows: int
    new: frozenset[str]
    shifts: tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class Placed:
    """A chunk in the new file.

    Attributes:
        chunk: The chunk in its own file.
        shift: The distance that it moved.
        read: Reads its own file.
        offset_index: The offset index, if it is known already.
        fields: The `ColumnChunk` in the new footer; indexes are added once they are written.
        meta_data: The `ColumnMetaData` in the new footer.
    """

    chunk: Chunk
    shift: int
    read: Read
    offset_index: Fields | None
    fields: Fields
    meta_data: Fields


class SplicedFile:
    """Assemble a file, row group by row group.

    Args:
        file: The first or only old file. The new file has the columns and footer fields of this one.
        write: Receives the new file's bytes, in order.
    """

    def __init__(self, file: CopiedFile, write: Callable[[bytes], Any]) -> None:
        self._file = file
        self._output = write
        self._parts: list[WrittenRowGroup] = []
        self._run: Range = (0, 0)
        self._followed: list[PageHeaders] = []
        self.size = 0
        self._write(MAGIC)

    def add_row_group(
        self,
        old: RowGroup | None,
        rows: int,
        pages: Mapping[str, tuple[int, bytes]],
        file: CopiedFile | None = None,
    ) -> None:
        """Write the next row group.

        Args:
            old: The row group of an old file whose chunks are copied for columns without new ones; None if all columns
                have new chunks.
            rows: The number of rows.
            pages: By name, for each column with a new chunk: the offset of its pages in its own file, and the pages.
            file: The old file; None for the first one. It must stay readable until `close`.

        Raises:
            ValueError: The old file ends too early, or has pages of other sizes than in its footer.
        """
        file = self._file if file is None else file
        shifts = []
        for column in file.columns:
            if column.name in pages:
                self._flush(file)
                start, data = pages[column.name]
                shifts.append(self.size - start)
                self._write(data)
                continue
            assert old is not None, "a row group that is all new lacks a column"
            assert column.copied is not None, "a new column has no chunk"
            shifts.extend(self._copy(file, old.chunks[leaf]) for leaf in column.copied.leaves)
        self._flush(file)
        self._parts.append(WrittenRowGroup(file=file, old=old, rows=rows, new=frozenset(pages), shifts=tuple(shifts)))

    def _copy(self, file: CopiedFile, chunk: Chunk) -> int:
        """Schedule pages for copying, so that neighbours are read together. Return the distance that they move."""
        start, length = chunk.pages
        first, held = self._run
        if first + held != start:
            self._flush(file)
            first, held = start, 0
        self._run = first, held + length
        if chunk.offset_index is None:
            self._followed.append(PageHeaders(chunk))
        return self.size + held - start

    def _flush(self, file: CopiedFile) -> None:
        start, length = self._run
        followed, self._followed, self._run = self._followed, [], (0, 0)
        for offset in range(0, length, limits.COPY_BYTES):
            data = file.read(start + offset, min(limits.COPY_BYTES, length - offset))
            for headers in followed:
                headers.feed(start + offset, data)
            self._write(data)
        for headers in followed:
            headers.finish()

    def _write(self, data: bytes) -> None:
        self._output(data)
        self.size += len(data)

    def close(
        self, new: Mapping[str, ColumnFile], key_values: Mapping[str, str], created_by: str | None = None
    ) -> bytes:
        """Write everything after the pages.

        Args:
            new: The new columns, by name.
            key_values: The key-value metadata of the file.
            created_by: The program in the footer; None for that of the first old file.

        Returns:
            The footer, as written.

        Raises:
            ValueError: An index of the old file breaks the format, or a new column does not fit.
        """
        for name, column in new.items():
            if [group.rows for group in column.footer.row_groups] != [
                part.rows for part in self._parts if name in part.new
            ]:
                raise ValueError("a new column has row groups of other sizes")
        nearby = {
            id(file): NearbyReads(file.read, self._index_ranges(file)) for file in (part.file for part in self._parts)
        }
        own = {name: iter(column.footer.row_groups) for name, column in new.items()}
        groups = [list(self._move_chunks(part, new, own, nearby[id(part.file)].read)) for part in self._parts]
        chunks = [chunk for group in groups for chunk in group]
        self._write_bloom_filters(chunks)
        self._write_page_index(chunks)
        fields = self._file_meta_data(groups, new, key_values)
        if created_by is not None:
            fields[CREATED_BY] = (BINARY, created_by.encode())
        data = encode_struct(fields)
        self._write(data)
        self._write(len(data).to_bytes(4, "little") + MAGIC)
        return data

    def _index_ranges(self, file: CopiedFile) -> Iterator[Range]:
        """Yield the ranges of the column indexes and bloom filters to copy from an old file."""
        for part in self._parts:
            for column in file.columns if part.file is file else ():
                if part.old is None or column.copied is None or column.name in part.new:
                    continue
                for leaf in column.copied.leaves:
                    chunk = part.old.chunks[leaf]
                    if chunk.column_index is not None:
                        yield chunk.column_index
                    if chunk.bloom_filter is not None:
                        yield chunk.bloom_filter, chunk.bloom_filter_length or BLOOM_HEADER_BYTES

    def _move_chunks(
        self, part: WrittenRowGroup, new: Mapping[str, ColumnFile], own: Mapping[str, Iterator[RowGroup]], read: Read
    ) -> Iterator[Placed]:
        """Yield the chunks of a row group at their new offsets.

        Args:
            part: The row group.
            new: The new columns, by name.
            own: The remaining row groups of the new columns' files, by name.
            read: Reads the old file.
        """
        shifts = iter(part.shifts)
        for column in part.file.columns:
            if column.name in part.new:
                shift = next(shifts)
                for found in next(own[column.name]).chunks:
                    yield move_chunk(found, shift, column.name, new[column.name].read, None)
            elif part.old is not None and column.copied is not None:
                for leaf in column.copied.leaves:
                    chunk = part.old.chunks[leaf]
                    index = None if chunk.offset_index is None else part.file.offset_indexes[chunk.offset_index]
                    yield move_chunk(chunk, next(shifts), column.name, read, index)

    def _write_bloom_filters(self, chunks: Sequence[Placed]) -> None:
        for placed in chunks:
            if placed.chunk.bloom_filter is None:
                continue
            data = bloom_filter(placed)
            placed.meta_data[BLOOM_FILTER[0]] = (I64, self.size)
            placed.meta_data[BLOOM_FILTER[1]] = (I32, len(data))
            self._write(data)

    def _write_page_index(self, chunks: Sequence[Placed]) -> None:
        """Write the page index of all chunks or of none: some readers require it to be complete."""
        if any(placed.chunk.offset_index is None for placed in chunks):
            return
        for ids, make in ((COLUMN_INDEX, column_index), (OFFSET_INDEX, offset_index)):
            for placed in chunks:
                data = make(placed)
                if data is not None:
                    placed.fields[ids[0]] = (I64, self.size)
                    placed.fields[ids[1]] = (I32, len(data))
                    self._write(data)

    def _file_meta_data(
        self, groups: Sequence[Sequence[Placed]], new: Mapping[str, ColumnFile], key_values: Mapping[str, str]
    ) -> Fields:
        footer = self._file.footer
        fields = dict(footer.fields)
        fields[NUM_ROWS] = (I64, sum(part.rows for part in self._parts))
        every = [footer, *(part.file.footer for part in self._parts), *footers(new)]
        fields[VERSION] = (I32, max(value_of(one.fields, VERSION, I32) or 1 for one in every))
        elements = [{**footer.root, NUM_CHILDREN: (I32, len(self._file.columns))}]
        orders: list[Fields] = []
        own_orders = list_of(footer.fields, COLUMN_ORDERS, STRUCT) or []
        for column in self._file.columns:
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
        """Return, for each physical column of a row group, its index in the old file; None for new chunks."""
        found: list[int | None] = []
        for column in part.file.columns:
            source = column.copied or new[column.name].footer.columns[0]
            found.extend(source.leaves if column.name not in part.new else [None] * len(source.leaves))
        return found


def footers(new: Mapping[str, ColumnFile]) -> list[Footer]:
    return [column.footer for column in new.values()]


def move_chunk(chunk: Chunk, shift: int, column: str, read: Read, index: Fields | None) -> Placed:
    """Return a chunk at its new offset, without indexes. The parsed structs are copied, not changed."""
    meta_data = dict(chunk.meta_data)
    dictionary = meta_data.pop(DICTIONARY_PAGE, None)
    if dictionary is not None and dictionary[1] > 0:  # some writers write 0 for none
        meta_data[DICTIONARY_PAGE] = (I64, dictionary[1] + shift)
    meta_data[DATA_PAGE] = (I64, meta_data[DATA_PAGE][1] + shift)
    path = list_of(meta_data, PATH, BINARY) or []
    meta_data[PATH] = (LIST, (BINARY, [column.encode(), *path[1:]]))
    fields = {key: value for key, value in chunk.fields.items() if key not in {*OFFSET_INDEX, *COLUMN_INDEX}}
    fields[CHUNK_START] = (I64, 0)  # deprecated, and ignored by readers
    for field_id in BLOOM_FILTER:
        meta_data.pop(field_id, None)
    fields[META_DATA] = (STRUCT, meta_data)
    return Placed(chunk=chunk, shift=shift, read=read, offset_index=index, fields=fields, meta_data=meta_data)


def bloom_filter(placed: Placed) -> bytes:
    """Read a bloom filter, whose header has the length of the bits after it."""
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
    """Read a column index, which is copied unchanged because it contains no offsets."""
    found = placed.chunk.column_index
    return None if found is None else placed.read(*found)


def offset_index(placed: Placed) -> bytes:
    """Return an offset index with the offsets of the moved pages."""
    found, index = placed.chunk.offset_index, placed.offset_index
    assert found is not None
    if index is None:
        index = decode_struct(placed.read(*found))[0]
    pages = [
        {**page, PAGE_START: (I64, page[PAGE_START][1] + placed.shift)}
        for page in list_of(index, PAGE_LOCATIONS, STRUCT) or []
    ]
    return encode_struct({**index, PAGE_LOCATIONS: (LIST, (STRUCT, pages))})


def row_group_fields(
    place: int, part: WrittenRowGroup, chunks: Sequence[Placed], leaves: Sequence[int | None]
) -> Fields:
    """Return the `RowGroup` struct of the new footer.

    Args:
        place: The ordinal of the row group in the file.
        part: The row group.
        chunks: The chunks.
        leaves: The index of each chunk's physical column in the old file; None for new ones.
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
    """Return the prefix of the sorting columns that were copied."""
    places = {leaf: place for place, leaf in enumerate(leaves) if leaf is not None}
    kept: list[Fields] = []
    for column in order:
        place = places.get(value_of(column, SORTED_COLUMN, I32))
        if place is None:
            break
        kept.append({**column, SORTED_COLUMN: (I32, place)})
    return kept
