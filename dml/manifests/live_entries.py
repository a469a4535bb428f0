"""Read the live entries of manifests for new manifests, and encode them as EXISTING. Worker-safe.

Input: lines of a manifest list. Output: `LiveEntry`s, inherited values filled in; the encoded rows of a new manifest.
Source: Iceberg specification, "Manifests", "Sequence Number Inheritance", "First Row ID Inheritance".

Metrics and lists are copied as encoded bytes: all format versions encode them alike, and decoding them takes most of
the time of reading an entry.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.io import FileIO
from pyiceberg.types import StructType

from dml.deletes.delete_file_index import partition_key
from dml.manifests.avro_decoder import CheckedDecoder
from dml.manifests.entry_fields import BOUND_MAPS, COUNT_MAPS, NUMBER_LISTS
from dml.manifests.read import blocks_of, records_in, report_damage
from dml.manifests.read_arrays import SKIPS
from dml.manifests.record_reader import Bind
from dml.model.manifest import EntryStatus, ManifestFile

__all__ = ["LiveEntry", "live_entries", "row_encoder"]


class LiveEntry(NamedTuple):
    """A live file of a committed manifest.

    Attributes:
        snapshot_id: The snapshot that added the file.
        data_sequence_number: The sequence number of its rows.
        file_sequence_number: The sequence number of the snapshot that added it.
        file: Its record, with the fields of `DATA_FILE_TYPE`; metrics and lists are encoded.
    """

    snapshot_id: int
    data_sequence_number: int
    file_sequence_number: int
    file: list[Any]

    @property
    def partition(self) -> tuple[Any, ...]:
        """The partition tuple."""
        partition: tuple[Any, ...] = self.file[3]
        return partition

    @property
    def record_count(self) -> int:
        """The rows of the file."""
        count: int = self.file[4]
        return count

    @property
    def place(self) -> tuple[str, int]:
        """The location of the file and the offset of the deletion vector; 0 for other files."""
        location: str = self.file[1]
        offset: int | None = self.file[18]
        return location, offset or 0

    @property
    def first_row_id(self) -> int | None:
        """The row id of its first row."""
        row_id: int | None = self.file[16]
        return row_id


class SliceDecoder(CheckedDecoder):
    """A decoder that gives access to its bytes."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


def slice_of(skip: Bind) -> Bind:
    """Return a reader of the encoded bytes of a value that `skip` skips."""

    def bind(decoder: CheckedDecoder) -> Callable[[], bytes]:
        assert isinstance(decoder, SliceDecoder)
        data, tell, skip_value = decoder.data, decoder.tell, skip(decoder)

        def read() -> bytes:
            start = tell()
            skip_value()
            return data[start : tell()]

        return read

    return bind


SLICES: Final = {field_id: slice_of(SKIPS[field_id]) for field_id in (*COUNT_MAPS, *BOUND_MAPS, *NUMBER_LISTS)}


def live_entries(
    manifest: ManifestFile, io: FileIO, in_partition: Callable[[tuple[Any, ...]], bool] | None = None
) -> Iterator[LiveEntry]:
    """Fetch a committed manifest, and return an iterator that decodes its live entries in the order of the file.

    Args:
        manifest: A line of a snapshot's manifest list.
        io: The table's FileIO.
        in_partition: Skip files of partitions for which it returns False.

    Raises:
        CorruptFileError: The manifest is missing, is no manifest, or breaks the rules of sequence numbers.
        ExecutionError: The storage failed.
    """
    with report_damage(manifest.manifest_path):
        file_type, blocks = blocks_of(io, manifest.manifest_path, manifest.manifest_length)

    def decode() -> Iterator[LiveEntry]:
        with report_damage(manifest.manifest_path):
            decoders = ((count, SliceDecoder(block)) for count, block in blocks)
            for record in records_in(
                file_type, decoders, manifest, live_only=True, in_partition=in_partition, readers=SLICES
            ):
                yield LiveEntry(record[1], record[2], record[3], record[4])

    return decode()


NULL: Final = b"\x00"
SOME: Final = b"\x02"
"""The branches of an optional field."""


def long_bytes(value: int) -> bytes:
    """Encode a number as Avro's zigzag varint."""
    rest = (value << 1) ^ (value >> 63)
    found = bytearray()
    while rest > 0x7F:
        found.append(rest & 0x7F | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)


def data_bytes(value: bytes) -> bytes:
    return long_bytes(len(value)) + value


def optional_long(value: int | None) -> bytes:
    return NULL if value is None else SOME + long_bytes(value)


def optional_data(value: bytes | None) -> bytes:
    return NULL if value is None else SOME + data_bytes(value)


def optional_slice(value: bytes | None) -> bytes:
    return NULL if value is None else SOME + value


class RowBuffer:
    """Collects the bytes that PyIceberg's writer of partition tuples writes."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Append bytes."""
        self.parts.append(data)


def row_encoder(
    version: int, spec_id: int, partition: StructType, block_size: int, *, keeps_row_ids: bool
) -> Callable[[LiveEntry], bytes]:
    """Return a function that encodes an entry with status EXISTING, as `ManifestWriter` lays out its schema.

    Args:
        version: The format version of the manifest.
        spec_id: The partition spec of the files.
        partition: The type of their partition tuples.
        block_size: The value of `block_size_in_bytes`, which version 1 requires.
        keeps_row_ids: Write first row ids; False for delete files.
    """
    tuples: dict[object, bytes] = {}
    write_tuple = construct_writer(partition).write

    def partition_bytes(values: tuple[Any, ...]) -> bytes:
        key = partition_key(spec_id, values)
        if key not in tuples:
            buffer = RowBuffer()
            write_tuple(BinaryEncoder(buffer), values)  # type: ignore[arg-type]  # it only writes
            tuples[key] = b"".join(buffer.parts)
        return tuples[key]

    existing, size_of_block = long_bytes(EntryStatus.EXISTING), long_bytes(block_size)

    def encode(entry: LiveEntry) -> bytes:
        file = entry.file
        head = (
            data_bytes(file[1].encode()),
            data_bytes(file[2].upper().encode()),
            partition_bytes(file[3]),
            long_bytes(file[4]),
            long_bytes(file[5]),
        )
        metrics = (*map(optional_slice, file[6:12]), optional_data(file[12]), optional_slice(file[13]))
        if version == 1:
            return b"".join(
                (existing, long_bytes(entry.snapshot_id), *head, size_of_block, *metrics, optional_long(file[15]))
            )
        referenced = optional_data(None if file[17] is None else file[17].encode())
        row_id = optional_long(file[16] if keeps_row_ids else None)
        return b"".join(
            (
                existing,
                optional_long(entry.snapshot_id),
                optional_long(entry.data_sequence_number),
                optional_long(entry.file_sequence_number),
                long_bytes(file[0]),
                *head,
                *metrics,
                optional_slice(file[14]),
                optional_long(file[15]),
                *(() if version == 2 else (row_id,)),
                referenced,
                *(() if version == 2 else (optional_long(file[18]), optional_long(file[19]))),
            )
        )

    return encode
