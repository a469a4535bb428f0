"""Encode and decode deletion vectors, and write the Puffin files that contain them. Worker-safe.

Input and output: `PositionDeleteIndex` and bytes. Sources: Iceberg specification, Puffin, "deletion-vector-v1 blob
type"; RoaringFormatSpec and its "Extension for 64-bit implementations". A blob is::

    4 bytes, big-endian   length of magic and vector
    4 bytes               D1 D3 39 64
    ...                   vector: portable 64-bit roaring, that is 32-bit bitmaps by the high half of their positions
    4 bytes, big-endian   CRC-32 of magic and vector

A 32-bit bitmap is a header, then a container for each range of 65,536 values with a member::

    4 bytes   12346 and 4 bytes with the number of containers, or
              12347 + (number of containers - 1) * 65536 and a bit for each container, set if it holds runs
    4 bytes   for each container: its key (the high half of its values) and its cardinality - 1
    4 bytes   for each container: its offset; absent if a container may hold runs and there are fewer than 4
    ...       containers: sorted values, or 65,536 bits, or a count and (start, length - 1) of runs

The bytes are untrusted: every length is checked against the available bytes before it is used.

A Puffin file is a sequence of blobs, then a footer with their offsets. The caller opens the stream. Source: "File
structure", "Footer", "BlobMetadata" in the specification. A scan reads a vector at the offset in its manifest entry,
without the footer.
"""

import json
import struct
import zlib
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from dml import limits
from dml.deletes.position_index import MAX_KEY, PositionDeleteIndex
from dml.errors import CorruptFileError, NotSupportedError

__all__ = [
    "FOOTER_END",
    "NO_FLAGS",
    "PUFFIN_MAGIC",
    "REFERENCED_DATA_FILE",
    "Blob",
    "BlobMetadata",
    "PuffinWriter",
    "decode",
    "deletion_vector_blob",
    "encode",
]

DELETION_VECTOR_V1 = "deletion-vector-v1"
REFERENCED_DATA_FILE = "referenced-data-file"

ROW_POSITION_FIELD_ID = 2147483645
NOT_INHERITED_YET = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Blob:
    """A blob before it is written.

    Attributes:
        type: The type of the blob.
        fields: Ids of the fields that it was computed from.
        snapshot_id: Snapshot that it was computed from.
        sequence_number: Sequence number of that snapshot.
        properties: Properties of the blob.
        compression_codec: `zstd` or `lz4` if the payload is compressed; None if it is not.
    """

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    properties: Mapping[str, str] = field(default_factory=dict)
    compression_codec: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobMetadata(Blob):
    """A blob in a file.

    Attributes:
        offset: Offset of its first byte in the file.
        length: Its size in the file, in bytes.
    """

    offset: int
    length: int


def deletion_vector_blob(referenced_data_file: str, cardinality: int) -> Blob:
    """Describe the blob of a data file's deletion vector.

    Snapshot and sequence number are -1: they are inherited from the manifest entry when the commit succeeds.

    Args:
        referenced_data_file: Location of the data file, byte for byte as in its manifest.
        cardinality: Number of deleted positions.
    """
    return Blob(
        type=DELETION_VECTOR_V1,
        fields=(ROW_POSITION_FIELD_ID,),
        snapshot_id=NOT_INHERITED_YET,
        sequence_number=NOT_INHERITED_YET,
        properties={REFERENCED_DATA_FILE: referenced_data_file, "cardinality": str(cardinality)},
    )


PUFFIN_MAGIC = b"PFA1"
CREATED_BY = "created-by"


@dataclass(frozen=True, slots=True, kw_only=True)
class PuffinFooter:
    """The blobs of a file in order, and properties of the file."""

    blobs: tuple[BlobMetadata, ...]
    properties: Mapping[str, str] = field(default_factory=dict)


def footer_payload(footer: PuffinFooter) -> bytes:
    """Return a footer as JSON in UTF-8."""
    payload: dict[str, Any] = {"blobs": [blob_json(blob) for blob in footer.blobs]}
    if footer.properties:
        payload["properties"] = dict(footer.properties)
    return json.dumps(payload, ensure_ascii=False, separators=(",", ":")).encode()


def blob_json(blob: BlobMetadata) -> dict[str, Any]:
    result: dict[str, Any] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        result["compression-codec"] = blob.compression_codec
    if blob.properties:
        result["properties"] = dict(blob.properties)
    return result


FOOTER_END = struct.Struct("<iI4s")
NO_FLAGS = 0


class PuffinWriter:
    """Writes blobs sequentially; the caller opens and closes the stream.

    The caller compresses payloads; the specification forbids it for deletion vectors. The footer is small and not
    compressed.

    Args:
        write: Writes all given bytes to the stream, which is empty at first.
        created_by: Application and version, for the file's property `created-by`.

    Attributes:
        footer_size: The bytes of the footer, with both of its magic numbers; 0 until `close`.
    """

    def __init__(self, write: Callable[[bytes], object], created_by: str) -> None:
        self._write_bytes = write
        self._properties = {CREATED_BY: created_by}
        self._blobs: list[BlobMetadata] = []
        self._size = 0
        self._closed = False
        self.footer_size = 0
        self._write(PUFFIN_MAGIC)

    def write_blob(self, blob: Blob, payload: bytes) -> BlobMetadata:
        """Write a blob.

        Args:
            blob: Its metadata.
            payload: Its bytes.

        Returns:
            The metadata with offset and length.
        """
        metadata = BlobMetadata(
            type=blob.type,
            fields=blob.fields,
            snapshot_id=blob.snapshot_id,
            sequence_number=blob.sequence_number,
            properties=blob.properties,
            compression_codec=blob.compression_codec,
            offset=self._size,
            length=len(payload),
        )
        self._write(payload)
        self._blobs.append(metadata)
        return metadata

    @property
    def blobs(self) -> tuple[BlobMetadata, ...]:
        """The blobs written so far."""
        return tuple(self._blobs)

    def close(self) -> int:
        """Write the footer; the stream stays open.

        Returns:
            The size of the file in bytes.
        """
        if not self._closed:
            self._closed = True
            payload = footer_payload(PuffinFooter(blobs=self.blobs, properties=self._properties))
            footer = b"".join((PUFFIN_MAGIC, payload, FOOTER_END.pack(len(payload), NO_FLAGS, PUFFIN_MAGIC)))
            self.footer_size = len(footer)
            self._write(footer)
        return self._size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, error_class: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an error the file stays without a footer, so that it cannot be mistaken for a complete one.
        if error_class is None:
            self.close()

    def _write(self, data: bytes) -> None:
        self._write_bytes(data)
        self._size += len(data)


NO_RUN_COOKIE = 12346
RUN_COOKIE = 12347
NO_OFFSET_THRESHOLD = 4
MAX_CONTAINERS = 2**16
ARRAY_MAX_CARDINALITY = 4096
BITSET_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The containers of a bitmap.

    Attributes:
        keys: High half of the values of each container.
        cardinalities: Number of values of each container according to the header.
        run_containers: Indexes of the containers with runs.
        run_counts: The number of runs of each run container.
        length: Size of the whole bitmap in bytes.
    """

    keys: npt.NDArray[np.int64]
    cardinalities: npt.NDArray[np.int64]
    run_containers: npt.NDArray[np.int64]
    run_counts: npt.NDArray[np.int64]
    length: int


def corrupt_vector(file: str, what: str) -> CorruptFileError:
    """Return the error for a deletion vector that violates its format."""
    return CorruptFileError(
        f"A deletion vector in {file} is corrupt: {what}",
        hint="Restore the file, or go back to a snapshot from before it was written",
        file=file,
    )


def bitmap_length(data: memoryview, *, file: str) -> int:
    """Return the number of bytes of the bitmap at the start of `data`, which the format does not store.

    Raises:
        CorruptFileError: no bitmap starts there, or it is truncated.
    """
    return layout_of(data, file).length


def read_bitmap(data: memoryview, *, file: str) -> BitMap:
    """Decode a bitmap, and check the order and number of its values.

    Raises:
        CorruptFileError: a container is not well formed.
    """
    try:
        return BitMap.deserialize(data)  # type: ignore[arg-type] # accepts any buffer
    except (ValueError, IndexError) as error:
        raise corrupt_vector(file, f"a bitmap of it is not well formed ({error})") from error


def canonical_bytes(bitmap: BitMap) -> bytes:
    """Encode a bitmap with each container in its shortest form; equal bitmaps give equal bytes.

    The bitmap's internal form may change, but not its values. If runs and sorted values have the same size, sorted
    values are written, as in Iceberg's Java library when it adds positions one by one.
    """
    bitmap.run_optimize()
    data = bitmap.serialize()
    layout = layout_of(memoryview(data), "a new bitmap")
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
    # A run container starts with its number of runs, so its offset depends on the sizes of all containers before it.
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


MAX_VECTOR_BYTES = 2**31 - 64
"""Iceberg's Java library has signed 32-bit lengths, and the frame around the vector needs a few bytes."""


COUNT = struct.Struct("<Q")
KEY = struct.Struct("<I")
EMPTY_BITMAP = np.dtype([("key", "<u4"), ("cookie", "<u4"), ("containers", "<u4")])


def write_vector(bitmaps: Mapping[int, BitMap]) -> bytes:
    """Encode bitmaps in the portable format, each container in its shortest form.

    Every key from 0 to the greatest is written, missing ones as empty bitmaps, as in Iceberg's Java library: both write
    equal bytes for equal sets of positions. If the greatest key is above `limits.MAX_FILLED_BITMAPS`, which no real
    file reaches, missing keys are omitted; readers accept both forms.

    Args:
        bitmaps: Bitmaps by key. Their internal form may change, but not their values.

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
    """Decode bitmaps by key; empty ones, which some writers store, are omitted.

    Args:
        data: Exactly the bytes of the vector.
        file: The file that contains it, for messages.

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
    # One high key implies up to a hundred million empty bitmaps, so they are checked in bulk.
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


MAGIC = b"\xd1\xd3\x39\x64"
WORD = struct.Struct(">I")
FRAME_BYTES = WORD.size + len(MAGIC) + WORD.size


def encode(index: PositionDeleteIndex) -> bytes:
    """Encode the whole blob: length, magic, vector, checksum. Equal indexes give equal bytes.

    Raises:
        NotSupportedError: the blob would be longer than 2 GiB.
    """
    # Encoding changes the form of bitmaps, and threads may share the caller's index.
    vector = write_vector({key: bitmap.copy() for key, bitmap in index.bitmaps.items()})
    checksum = zlib.crc32(vector, zlib.crc32(MAGIC))
    return b"".join((WORD.pack(len(MAGIC) + len(vector)), MAGIC, vector, WORD.pack(checksum)))


def decode(blob: bytes | memoryview, *, file: str, cardinality: int | None) -> PositionDeleteIndex:
    """Decode a whole blob.

    Args:
        blob: The bytes of the blob, from its length to its checksum.
        file: The Puffin file, for messages.
        cardinality: The number of positions in the manifest entry (`record_count`); None to skip the check.

    Raises:
        CorruptFileError: length, magic, checksum, the vector itself or the number of positions is wrong.
    """
    data = memoryview(blob).cast("B")
    if len(data) < FRAME_BYTES:
        raise corrupt_vector(file, f"the blob has {len(data)} bytes, fewer than its frame of {FRAME_BYTES}")
    (length,) = WORD.unpack_from(data)
    body = data[WORD.size : -WORD.size]
    if length != len(body):
        raise corrupt_vector(file, f"it gives its length as {length}, but {len(body)} bytes are there")
    if body[: len(MAGIC)] != MAGIC:
        raise corrupt_vector(file, f"it starts with {body[: len(MAGIC)].hex()} instead of {MAGIC.hex()}")
    (expected,), checksum = WORD.unpack_from(data, len(data) - WORD.size), zlib.crc32(body)
    if checksum != expected:
        raise corrupt_vector(file, f"the checksum of its bytes is {checksum:08x}, not {expected:08x}")
    index = PositionDeleteIndex.from_bitmaps(read_vector(body[len(MAGIC) :], file=file))
    if cardinality is not None and len(index) != cardinality:
        raise corrupt_vector(file, f"it holds {len(index)} positions, but its manifest entry has {cardinality}")
    return index
