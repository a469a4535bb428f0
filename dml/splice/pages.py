"""Whether a chunk holds what its footer says: its pages follow each other to its end. Pure, worker-safe.

Input: chunks of an old file, and its bytes. Output: their offset indexes, or a `ValueError`.

Nobody decodes what is copied, so a footer that is wrong about a chunk's length would cut it off for good. The offset
index says where all pages lie; without one their headers say it, which are looked at while the bytes pass.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Final

from dml import limits
from dml.splice.footer import CHUNK_TYPE, NUM_VALUES, UNCOMPRESSED_SIZE, Chunk, Range
from dml.splice.thrift_compact import I32, I64, STRUCT, Fields, decode_struct, list_of, value_of

__all__ = ["PAGE_LOCATIONS", "PAGE_START", "NearbyReads", "PageHeaders", "Read", "decoded_bytes", "offset_indexes"]

Read = Callable[[int, int], bytes]
"""Gives so many bytes of a file from a place on."""

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
"""Of any length, and of one fixed length."""
FLAT_BYTES: Final = 8


class NearbyReads:
    """Reads small ranges near to each other at once: an object store takes as long for each of them as for a large one.

    Args:
        read: Reads the file.
        ranges: What is going to be read.
    """

    def __init__(self, read: Read, ranges: Iterable[Range]) -> None:
        self._read = read
        self._runs = runs(ranges)
        self._starts = [start for start, _ in self._runs]
        self._held: tuple[int, bytes] = (0, b"")

    def read(self, start: int, length: int) -> bytes:
        """One of the ranges, or others near to them."""
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
    """Ranges of a file, neighbours joined."""
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
    """The offset indexes of some chunks, by their places.

    Raises:
        ValueError: an index breaks the format, or its pages are not what its chunk consists of.
    """
    chunks = [chunk for chunk in chunks if chunk.offset_index is not None]
    nearby = NearbyReads(read, [chunk.offset_index for chunk in chunks if chunk.offset_index is not None])
    return {chunk.offset_index: checked(chunk, nearby.read) for chunk in chunks if chunk.offset_index is not None}


def checked(chunk: Chunk, read: Read) -> Fields:
    assert chunk.offset_index is not None
    index, taken = decode_struct(read(*chunk.offset_index))
    if taken != chunk.offset_index[1]:
        raise ValueError(f"it has an offset index of {taken} bytes where its footer says {chunk.offset_index[1]}")
    start, length = chunk.pages
    place: int | None = None
    for page in list_of(index, PAGE_LOCATIONS, STRUCT) or []:
        offset, size = value_of(page, PAGE_START, I64), value_of(page, PAGE_BYTES, I32)
        if size is None or size <= 0 or offset is None or offset < start or (place is not None and offset != place):
            raise ValueError(f"it has an offset index with a page of {size} bytes at {offset}, which is not there")
        place = offset + size
    if place != start + length:
        raise ValueError(f"it has a column that ends at {start + length}, but whose pages end at {place}")
    return index


def decoded_bytes(chunk: Chunk) -> int:
    """About how many bytes the values of a chunk take once they are decoded; texts as its writer counted them."""
    values = value_of(chunk.meta_data, NUM_VALUES, I64) or 0
    if value_of(chunk.meta_data, CHUNK_TYPE, I32) not in LONG_TYPES:
        return int(values * FLAT_BYTES)
    sizes = value_of(chunk.meta_data, SIZE_STATISTICS, STRUCT) or {}
    encoded = value_of(chunk.meta_data, UNCOMPRESSED_SIZE, I64) or 0
    return int(values * FLAT_BYTES + max(encoded, value_of(sizes, UNENCODED_BYTES, I64) or 0))


class PageHeaders:
    """Follows the pages of a chunk from header to header, while its bytes pass in order.

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
        """Looks at the next bytes of the file; those of other chunks may be among them.

        Raises:
            ValueError: there is no page where one should be.
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
                self._held = data[place:]  # it goes on in the next bytes
                return
            size = value_of(header, BODY_BYTES, I32)
            if size is None or size < 0:
                raise ValueError(f"it has a page of {size} bytes")
            inner = value_of(header, DATA_HEADER.get(value_of(header, KIND, I32), 0), STRUCT)
            if inner is not None:
                self._missing -= value_of(inner, PAGE_VALUES, I32) or 0
            self._next = start + after + size

    def finish(self) -> None:
        """All bytes have passed.

        Raises:
            ValueError: the pages end elsewhere than the chunk, or have other values.
        """
        if self._next != self._end:
            raise ValueError(f"it has a column that ends at {self._end}, but a page at {self._next}")
        if self._missing:
            raise ValueError(f"it has a column whose pages lack {self._missing} values")
