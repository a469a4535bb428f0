"""The portable 64-bit roaring format: 32-bit bitmaps by the high half of a position, to bytes and back. Worker-safe.

Input and output: bytes and `{key: BitMap}`, where a position is `key * 2**32 + value`. Sources: RoaringFormatSpec,
"Extension for 64-bit implementations"; Iceberg specification, Puffin, "deletion-vector-v1 blob type".

Bytes read here may come from anybody: every length is checked against the bytes that are there before it is used.
"""

import struct
from collections.abc import Mapping

import numpy as np
from pyroaring import BitMap

from dml.deletes.containers import NO_RUN_COOKIE, bitmap_length, canonical_bytes, corrupt_vector, read_bitmap
from dml.errors import NotSupportedError

__all__ = ["MAX_KEY", "MAX_VECTOR_BYTES", "read_vector", "write_vector"]

MAX_KEY = 2**31 - 2
"""Iceberg's Java library holds the bitmaps in an array, whose length is at most 2**31 - 1."""

MAX_VECTOR_BYTES = 2**31 - 64
"""Lengths are signed 32-bit integers to Iceberg's Java library; the frame around the vector needs a few bytes."""

MAX_FILLED_KEYS = 2**16
"""Above this key, which is that of row 2**48, absent bitmaps are left out: a few bytes must not become gigabytes."""

COUNT = struct.Struct("<Q")
KEY = struct.Struct("<I")
EMPTY_BITMAP = np.dtype([("key", "<u4"), ("cookie", "<u4"), ("containers", "<u4")])
SCAN_RECORDS = 4096


def write_vector(bitmaps: Mapping[int, BitMap]) -> bytes:
    """The bitmaps as portable bytes, each container in its shortest form.

    Every key from 0 to the greatest is written, absent ones as empty bitmaps, as Iceberg's Java library does: equal
    sets of positions are equal bytes across the two. Only where the greatest key is above `MAX_FILLED_KEYS`, which no
    real file reaches, absent ones are left out; readers know both forms.

    Args:
        bitmaps: Bitmaps by key; they may change their form, not their values.

    Raises:
        NotSupportedError: the vector would be longer than `MAX_VECTOR_BYTES`.
    """
    keys = sorted(bitmaps)
    filled = bool(keys) and keys[-1] <= MAX_FILLED_KEYS
    pieces = [COUNT.pack(keys[-1] + 1 if filled else len(keys))]
    following = 0
    for key in keys:
        if filled:
            pieces.append(_empty_bitmaps(following, key))
        pieces += (KEY.pack(key), canonical_bytes(bitmaps[key]))
        following = key + 1
    size = sum(map(len, pieces))
    if size > MAX_VECTOR_BYTES:
        raise NotSupportedError(
            f"A deletion vector of {size} bytes cannot be written: the greatest is {MAX_VECTOR_BYTES}",
            hint="Rewrite the data file without its deleted rows ('write.delete.mode' = 'copy-on-write')",
        )
    return b"".join(pieces)


def _empty_bitmaps(start: int, stop: int) -> bytes:
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
        empty, previous = _empty_bitmaps_at(data, offset, min(count, SCAN_RECORDS), previous, file)
        if empty:
            offset, count = offset + empty * EMPTY_BITMAP.itemsize, count - empty
            continue
        if len(data) - offset < KEY.size:
            raise corrupt_vector(file, "it ends before its last bitmap")
        (key,) = KEY.unpack_from(data, offset)
        _check_keys(np.array([previous, key]), file)
        start = offset + KEY.size
        offset, previous, count = start + bitmap_length(data[start:], file=file), key, count - 1
        bitmaps[key] = read_bitmap(data[start:offset], file=file)
    if offset != len(data):
        raise corrupt_vector(file, f"{len(data) - offset} bytes follow its last bitmap")
    return bitmaps


def _empty_bitmaps_at(data: memoryview, offset: int, limit: int, previous: int, file: str) -> tuple[int, int]:
    # One high key brings up to a hundred million empty bitmaps with it: they are looked at many at a time.
    fitting = min(limit, (len(data) - offset) // EMPTY_BITMAP.itemsize)
    records = np.frombuffer(data, EMPTY_BITMAP, fitting, offset) if fitting else np.empty(0, dtype=EMPTY_BITMAP)
    is_empty = (records["cookie"] == NO_RUN_COOKIE) & (records["containers"] == 0)
    length = len(records) if is_empty.all() else int(np.argmin(is_empty))
    if not length:
        return 0, previous
    keys = np.concatenate(([previous], records["key"][:length].astype(np.int64)))
    _check_keys(keys, file)
    return length, int(keys[-1])


def _check_keys(keys: "np.ndarray[tuple[int], np.dtype[np.int64]]", file: str) -> None:
    if (np.diff(keys) <= 0).any() or keys[-1] > MAX_KEY:
        raise corrupt_vector(
            file, f"the bitmap keys from {keys[0]} to {keys[-1]} do not ascend from 0 to at most {MAX_KEY}"
        )
