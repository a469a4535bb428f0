"""The portable roaring formats: bitmaps of 64-bit positions to bytes and back. Worker-safe.

Input and output: bytes and `{key: BitMap}`, where a position is `key * 2**32 + value`. Sources: RoaringFormatSpec and
its "Extension for 64-bit implementations"; Iceberg specification, Puffin, "deletion-vector-v1 blob type".

A 32-bit bitmap is a header, then a container for each 65,536 values that holds some::

    4 bytes   12346 and 4 bytes with the number of containers, or
              12347 + (number of containers - 1) * 65536 and a bit for each container, set if it holds runs
    4 bytes   for each container: its key (the high half of its values) and its cardinality - 1
    4 bytes   for each container: its offset; absent if a container may hold runs and there are fewer than 4
    ...       containers: sorted values, or 65,536 bits, or a count and (start, length - 1) of runs

Bytes read here may come from anybody: every length is checked against the bytes that are there before it is used.
"""

import struct
from array import array
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from dml import limits
from dml.errors import CorruptFileError, NotSupportedError

__all__ = ["MAX_KEY", "corrupt_vector", "read_vector", "write_vector"]


NO_RUN_COOKIE = 12346
RUN_COOKIE = 12347
NO_OFFSET_THRESHOLD = 4
MAX_CONTAINERS = 2**16
ARRAY_MAX_CARDINALITY = 4096
BITSET_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Where the containers of a bitmap lie.

    Attributes:
        keys: High half of the values of each container.
        cardinalities: Number of values that the header gives for each container.
        run_containers: Which containers hold runs.
        run_counts: The number of runs of each of those.
        length: Bytes of the whole bitmap.
    """

    keys: npt.NDArray[np.int64]
    cardinalities: npt.NDArray[np.int64]
    run_containers: npt.NDArray[np.int64]
    run_counts: npt.NDArray[np.int64]
    length: int


def corrupt_vector(file: str, what: str) -> CorruptFileError:
    """The error for a deletion vector that breaks its format."""
    return CorruptFileError(
        f"A deletion vector in {file} is corrupt: {what}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=file,
    )


def bitmap_length(data: memoryview, *, file: str) -> int:
    """The number of bytes of the bitmap at the start of `data`, which the format does not store.

    Raises:
        CorruptFileError: no bitmap starts there, or its bytes do not reach to its end.
    """
    return layout_of(data, file).length


def read_bitmap(data: memoryview, *, file: str) -> BitMap:
    """The bitmap whose bytes these are, with the order and number of its values checked.

    Raises:
        CorruptFileError: a container is not well formed.
    """
    try:
        return BitMap.deserialize(data)  # type: ignore[arg-type] # any buffer will do
    except (ValueError, IndexError) as error:
        raise corrupt_vector(file, f"a bitmap of it is not well formed ({error})") from error


def canonical_bytes(bitmap: BitMap) -> bytes:
    """The bytes of a bitmap with each container in its shortest form; equal bitmaps give equal bytes.

    The bitmap may change its form, not its values. Where runs and sorted values take the same room, the values are
    written, as Iceberg's Java library does when it adds positions one by one.
    """
    bitmap.run_optimize()
    data = bitmap.serialize()
    layout = layout_of(memoryview(data), "a bitmap of our own")
    tied = layout.cardinalities[layout.run_containers] == 2 * layout.run_counts + 1
    if not tied.any():
        return data
    for key in layout.keys[layout.run_containers[tied]].tolist():
        start, stop = key << 16, key + 1 << 16
        first, last = bitmap.rank(start - 1) if start else 0, bitmap.rank(stop - 1)
        values = array("I", bitmap[first:last].to_array())
        bitmap.remove_range(start, stop)
        bitmap.update(BitMap(values))
    return bitmap.serialize()


def layout_of(data: memoryview, file: str) -> Layout:
    count, position, runs, has_offsets = header(data, file)
    body = position + count * (8 if has_offsets else 4)
    if body > len(data):
        raise corrupt_vector(file, f"a bitmap claims {count} containers, more than its bytes can hold")
    pairs = np.frombuffer(data, "<u2", 2 * count, position).astype(np.int64)
    cardinalities = pairs[1::2] + 1
    sizes = np.where(cardinalities <= ARRAY_MAX_CARDINALITY, 2 * cardinalities, BITSET_BYTES)
    sizes[runs] = 0
    run_counts = run_counts_of(data[body:], sizes, runs, file)
    length = body + int(sizes.sum() + (2 + 4 * run_counts).sum())
    if length > len(data):
        raise corrupt_vector(file, f"a bitmap of {length} bytes does not fit into the {len(data)} that are left")
    return Layout(
        keys=pairs[0::2], cardinalities=cardinalities, run_containers=runs, run_counts=run_counts, length=length
    )


def header(data: memoryview, file: str) -> tuple[int, int, npt.NDArray[np.int64], bool]:
    if len(data) < 8:
        raise corrupt_vector(file, "it ends inside the header of a bitmap")
    cookie, count = struct.unpack_from("<II", data)
    if cookie & 0xFFFF == RUN_COOKIE:
        count = (cookie >> 16) + 1
        position = 4 + (count + 7) // 8
        flags = np.frombuffer(data[4:position], np.uint8)
        runs = np.flatnonzero(np.unpackbits(flags, bitorder="little")[:count])
        return count, position, runs, count >= NO_OFFSET_THRESHOLD
    if cookie != NO_RUN_COOKIE or count > MAX_CONTAINERS:
        raise corrupt_vector(file, f"a bitmap starts with cookie {cookie} and {count} containers")
    return count, 8, np.empty(0, dtype=np.int64), True


def run_counts_of(
    data: memoryview, sizes: npt.NDArray[np.int64], runs: npt.NDArray[np.int64], file: str
) -> npt.NDArray[np.int64]:
    # A run container says its number of runs where it stands, so its place needs the sizes of those before it.
    before = np.cumsum(sizes) - sizes
    counts = np.zeros(len(runs), dtype=np.int64)
    run_bytes = 0
    for number, place in enumerate(before[runs].tolist()):
        start = place + run_bytes
        if start + 2 > len(data):
            raise corrupt_vector(file, "it ends inside a run container")
        counts[number] = int.from_bytes(data[start : start + 2], "little")
        run_bytes += 2 + 4 * int(counts[number])
    return counts


MAX_KEY = 2**31 - 2
"""Iceberg's Java library holds the bitmaps in an array, whose length is at most 2**31 - 1."""

MAX_VECTOR_BYTES = 2**31 - 64
"""Lengths are signed 32-bit integers to Iceberg's Java library; the frame around the vector needs a few bytes."""


COUNT = struct.Struct("<Q")
KEY = struct.Struct("<I")
EMPTY_BITMAP = np.dtype([("key", "<u4"), ("cookie", "<u4"), ("containers", "<u4")])


def write_vector(bitmaps: Mapping[int, BitMap]) -> bytes:
    """The bitmaps as portable bytes, each container in its shortest form.

    Every key from 0 to the greatest is written, absent ones as empty bitmaps, as Iceberg's Java library does: equal
    sets of positions are equal bytes across the two. Only where the greatest key is above `limits.MAX_FILLED_BITMAPS`,
    which no real file reaches, absent ones are left out; readers accept both forms.

    Args:
        bitmaps: Bitmaps by key; they may change their form, not their values.

    Raises:
        NotSupportedError: the vector would be longer than `MAX_VECTOR_BYTES`.
    """
    keys = sorted(bitmaps)
    filled = bool(keys) and keys[-1] <= limits.MAX_FILLED_BITMAPS
    pieces = [COUNT.pack(keys[-1] + 1 if filled else len(keys))]
    following = 0
    for key in keys:
        if filled:
            pieces.append(empty_bitmaps(following, key))
        pieces += (KEY.pack(key), canonical_bytes(bitmaps[key]))
        following = key + 1
    size = sum(map(len, pieces))
    if size > MAX_VECTOR_BYTES:
        raise NotSupportedError(
            f"A deletion vector of {size} bytes cannot be written: the greatest is {MAX_VECTOR_BYTES}",
            hint="Rewrite the data file without its deleted rows ('write.delete.mode' = 'copy-on-write')",
        )
    return b"".join(pieces)


def empty_bitmaps(start: int, stop: int) -> bytes:
    records = np.zeros(stop - start, dtype=EMPTY_BITMAP)
    records["key"] = np.arange(start, stop, dtype=np.uint32)
    records["cookie"] = NO_RUN_COOKIE
    return records.tobytes()


def read_vector(data: memoryview, *, file: str) -> dict[int, BitMap]:
    """The bitmaps by key; empty ones, which some writers keep, are left out.

    Args:
        data: The whole vector, nothing before or after it.
        file: The file that it comes from, for messages.

    Raises:
        CorruptFileError: the bytes are not one well-formed vector of positions.
    """
    if len(data) < COUNT.size:
        raise corrupt_vector(file, f"the vector has {len(data)} bytes, fewer than its number of bitmaps takes")
    (count,) = COUNT.unpack_from(data)
    if count > (len(data) - COUNT.size) // EMPTY_BITMAP.itemsize:
        raise corrupt_vector(file, f"it claims {count} bitmaps, more than its {len(data)} bytes can hold")
    bitmaps: dict[int, BitMap] = {}
    offset, previous = COUNT.size, -1
    while count:
        empty, previous = empty_bitmaps_at(data, offset, min(count, limits.BITMAP_SCAN_RECORDS), previous, file)
        if empty:
            offset, count = offset + empty * EMPTY_BITMAP.itemsize, count - empty
            continue
        if len(data) - offset < KEY.size:
            raise corrupt_vector(file, "it ends before its last bitmap")
        (key,) = KEY.unpack_from(data, offset)
        check_keys(np.array([previous, key]), file)
        start = offset + KEY.size
        offset, previous, count = start + bitmap_length(data[start:], file=file), key, count - 1
        bitmaps[key] = read_bitmap(data[start:offset], file=file)
    if offset != len(data):
        raise corrupt_vector(file, f"{len(data) - offset} bytes follow its last bitmap")
    return bitmaps


def empty_bitmaps_at(data: memoryview, offset: int, limit: int, previous: int, file: str) -> tuple[int, int]:
    # One high key makes up to a hundred million empty bitmaps: they are looked at many at a time.
    fitting = min(limit, (len(data) - offset) // EMPTY_BITMAP.itemsize)
    records = np.frombuffer(data, EMPTY_BITMAP, fitting, offset) if fitting else np.empty(0, dtype=EMPTY_BITMAP)
    is_empty = (records["cookie"] == NO_RUN_COOKIE) & (records["containers"] == 0)
    length = len(records) if is_empty.all() else int(np.argmin(is_empty))
    if not length:
        return 0, previous
    keys = np.concatenate(([previous], records["key"][:length].astype(np.int64)))
    check_keys(keys, file)
    return length, int(keys[-1])


def check_keys(keys: "np.ndarray[tuple[int], np.dtype[np.int64]]", file: str) -> None:
    if (np.diff(keys) <= 0).any() or keys[-1] > MAX_KEY:
        raise corrupt_vector(
            file, f"the bitmap keys from {keys[0]} to {keys[-1]} do not ascend from 0 to at most {MAX_KEY}"
        )
