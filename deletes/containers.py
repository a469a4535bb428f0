"""The portable format of one 32-bit roaring bitmap: how long it is, and the one way in which we write it. Worker-safe.

Input: bytes of a bitmap, or a bitmap. Output: its length, or its bytes. Source: RoaringFormatSpec.

A bitmap is a header, then a container for each 65,536 values that holds some::

    4 bytes   12346 and 4 bytes with the number of containers, or
              12347 + (number of containers - 1) * 65536 and a bit for each container, set if it holds runs
    4 bytes   for each container: its key (the high half of its values) and its cardinality - 1
    4 bytes   for each container: its offset; absent if a container may hold runs and there are fewer than 4
    ...       containers: sorted values, or 65,536 bits, or a count and (start, length - 1) of runs

Bytes read here may come from anybody: every length is checked against the bytes that are there before it is used.
"""

import struct
from array import array
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from dml.errors import CorruptFileError

__all__ = ["NO_RUN_COOKIE", "bitmap_length", "canonical_bytes", "corrupt_vector", "read_bitmap"]

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
    return _layout(data, file).length


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
    layout = _layout(memoryview(data), "a bitmap of our own")
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


def _layout(data: memoryview, file: str) -> Layout:
    count, position, runs, has_offsets = _header(data, file)
    body = position + count * (8 if has_offsets else 4)
    if body > len(data):
        raise corrupt_vector(file, f"a bitmap claims {count} containers, more than its bytes can hold")
    pairs = np.frombuffer(data, "<u2", 2 * count, position).astype(np.int64)
    cardinalities = pairs[1::2] + 1
    sizes = np.where(cardinalities <= ARRAY_MAX_CARDINALITY, 2 * cardinalities, BITSET_BYTES)
    sizes[runs] = 0
    run_counts = _run_counts(data[body:], sizes, runs, file)
    length = body + int(sizes.sum() + (2 + 4 * run_counts).sum())
    if length > len(data):
        raise corrupt_vector(file, f"a bitmap of {length} bytes does not fit into the {len(data)} that are left")
    return Layout(
        keys=pairs[0::2], cardinalities=cardinalities, run_containers=runs, run_counts=run_counts, length=length
    )


def _header(data: memoryview, file: str) -> tuple[int, int, npt.NDArray[np.int64], bool]:
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


def _run_counts(
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
