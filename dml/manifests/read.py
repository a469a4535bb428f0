"""Read manifest lists and manifests of format versions 1, 2 and 3. Worker-safe.

Input: a snapshot, a FileIO. Output: `ManifestFile`s and `ManifestEntry`s, with the snapshot id, sequence numbers and
first row id that they inherit.

Source: Iceberg specification, "Manifests", "Manifest Lists", "Sequence Number Inheritance", "First Row ID Inheritance".
PyIceberg 0.12 reads with its version 2 structs, which lack `first_row_id`, `referenced_data_file`, `content_offset` and
`content_size_in_bytes`. Its reader of Avro files is not used: it reads a truncated file as one with fewer entries.

Anyone with write access to the table's storage can change metadata files. Avro has no checksums, so a byte that is
another valid value passes; all other damage is an error that names the file: see docs/architecture/07-deletes.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StructType

from dml import limits
from dml.errors import CorruptFileError, DmlError, storage_failure
from dml.manifests.avro_container import AvroContainer
from dml.manifests.avro_decoder import CheckedDecoder, check_elements
from dml.manifests.avro_schema import check_partition, record_type
from dml.manifests.entry_fields import ENTRY_READ_SCHEMA
from dml.manifests.lockstep_decoder import UnsureError
from dml.manifests.lockstep_search import lockstep_lines
from dml.manifests.record_reader import NO_READERS, Bind, RecordReader
from dml.manifests.weights import LineCache, bytes_of_encoded
from dml.model.manifest import (
    ContentFile,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    PartitionSummary,
)

__all__ = [
    "ENTRY_TYPE",
    "MANIFEST_LIST_SCHEMA",
    "SCHEMA_KEY",
    "blocks_of",
    "content_file",
    "decoders_of",
    "entries_in",
    "entries_of",
    "header_and_blocks_of",
    "manifest_entry",
    "manifests_of",
    "partition_tuple",
    "read_all",
    "read_each",
    "read_manifest_list",
    "reader_of",
    "records_in",
    "records_of",
    "report_damage",
]


MANIFEST_LIST_SCHEMA: Final = MANIFEST_LIST_FILE_SCHEMAS[3]
"""The schema of a manifest list's line in version 3, the only one of PyIceberg's with `first_row_id`."""


TOTAL_DATA_FILES: Final = "total-data-files"
SCHEMA_KEY: Final = "avro.schema"
RESTORE: Final = "Restore the file, or go back to a snapshot that does not need it"
# Dicts by code, because calling an enum takes longer.
STATUSES: Final = {status.value: status for status in EntryStatus}
CONTENTS: Final = {content.value: content for content in FileContent}
DELETED: Final = EntryStatus.DELETED.value

AS_STORED: Final = StructType()
"""Records of this type have the fields that the file has."""

# Created once: each look-up of a cached reader compares them.
ENTRY_TYPE: Final = ENTRY_READ_SCHEMA.as_struct()
# A v1 list may leave the counts out; version 3 requires them.
LINE_TYPE: Final = StructType(
    *(
        field.model_copy(update={"required": field.field_id in {500, 501, 502, 503}})
        for field in MANIFEST_LIST_SCHEMA.fields
    )
)


Read = TypeVar("Read")


def manifests_of(io: FileIO, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
    """Return the data and delete manifests of a snapshot, in the order of its manifest list.

    Args:
        io: The table's FileIO.
        snapshot: None for a table without snapshots.

    Raises:
        CorruptFileError: The manifest list is missing or is no manifest list.
        ExecutionError: The storage failed.
    """
    if snapshot is None:
        return ()
    manifests = read_manifest_list(io, snapshot.manifest_list)
    # A list truncated after its header looks like that of an empty table; only the summary shows the difference.
    if not manifests and snapshot.summary is not None and snapshot.summary.get(TOTAL_DATA_FILES, "0") != "0":
        files = snapshot.summary[TOTAL_DATA_FILES]
        raise corrupt(snapshot.manifest_list, f"it lists no files where its snapshot has {files} data files")
    return manifests


def read_manifest_list(io: FileIO, location: str) -> tuple[ManifestFile, ...]:
    """Return the lines of a manifest list.

    Raises:
        CorruptFileError: The file is missing or is no manifest list.
        ExecutionError: The storage failed.
    """
    with report_damage(location):
        file_type, found = blocks_of(io, location)
        blocks = [(count, block) for count, block in found if count or block]
        if sum(count for count, _ in blocks) >= limits.MIN_LOCKSTEP_LINES:
            with suppress(UnsureError):
                return line_reader(file_type).read(lockstep_lines(file_type, blocks))
        return tuple(map(manifest_file, records_of(file_type, decoders_of(blocks), LINE_TYPE)))


def entries_of(
    manifest: ManifestFile,
    io: FileIO,
    *,
    live_only: bool = False,
    in_partition: Callable[[tuple[Any, ...]], bool] | None = None,
) -> Iterator[ManifestEntry]:
    """Yield the entries of a committed manifest in the order of the file, inherited values filled in.

    Args:
        manifest: A line of a snapshot's manifest list.
        io: The table's FileIO.
        live_only: Skip entries with status DELETED.
        in_partition: Skip files of partitions for which it returns False. It is called once for each remaining entry,
            before the rest of the entry is checked.

    Raises:
        CorruptFileError: The manifest is missing, is no manifest, or breaks the rules of sequence numbers.
        ExecutionError: The storage failed.
    """
    with report_damage(manifest.manifest_path):
        file_type, blocks = blocks_of(io, manifest.manifest_path, manifest.manifest_length)
        yield from entries_in(file_type, decoders_of(blocks), manifest, live_only=live_only, in_partition=in_partition)


def entries_in(
    file_type: StructType,
    decoders: Iterable[tuple[int, CheckedDecoder]],
    manifest: ManifestFile,
    *,
    live_only: bool = False,
    in_partition: Callable[[tuple[Any, ...]], bool] | None = None,
) -> Iterator[ManifestEntry]:
    """Yield the entries of a manifest whose blocks were read, as `entries_of` does.

    Args:
        file_type: The type of the entries.
        decoders: The number of entries and the decoder of each block.
        manifest: A line of a snapshot's manifest list.
        live_only: As for `entries_of`.
        in_partition: As for `entries_of`.

    Raises:
        CorruptFileError: The manifest is no manifest, or breaks the rules of sequence numbers.
    """
    with report_damage(manifest.manifest_path):
        for record in records_in(file_type, decoders, manifest, live_only=live_only, in_partition=in_partition):
            yield manifest_entry(record, manifest.partition_spec_id)


def records_in(
    file_type: StructType,
    decoders: Iterable[tuple[int, CheckedDecoder]],
    manifest: ManifestFile,
    *,
    live_only: bool = False,
    in_partition: Callable[[tuple[Any, ...]], bool] | None = None,
    readers: Mapping[int, Bind] = NO_READERS,
) -> Iterator[list[Any]]:
    """Like `entries_in`, but yield records of `ENTRY_READ_SCHEMA`.

    Args:
        file_type: As for `entries_in`.
        decoders: As for `entries_in`.
        manifest: As for `entries_in`.
        live_only: As for `entries_of`.
        in_partition: As for `entries_of`.
        readers: Readers of some fields to use instead of the usual ones, by field id.

    Raises:
        Exception: The manifest is no manifest, or breaks the rules; `report_damage` turns it into a CorruptFileError.
    """
    next_row_id = manifest.first_row_id if manifest.content is ManifestContent.DATA else None
    is_data = manifest.content is ManifestContent.DATA
    for record in records_of(file_type, decoders, ENTRY_TYPE, readers):
        status, data = record[0], record[4]
        if status not in STATUSES:
            raise ValueError(f"it has an entry of status {status}")
        if data[1] is None or data[3] is None or data[4] is None or data[5] is None:
            raise ValueError("it has an entry without a path, a partition, a row count or a size")
        if data[4] < 0 or data[5] < 0:
            raise ValueError(f"the file '{data[1]}' has {data[4]} rows and {data[5]} bytes")
        if manifest.first_row_id is None:
            data[16] = None
        elif status != DELETED and next_row_id is not None and data[16] is None:
            data[16] = next_row_id
            next_row_id += data[4]
        if live_only and status == DELETED:
            continue
        content = data[0] = data[0] or 0
        if content not in CONTENTS or (content == 0) is not is_data:
            raise ValueError(f"it is a manifest of {manifest.content.name}, and has a file of content {content}")
        data[3] = tuple(data[3])
        if in_partition is not None and not in_partition(data[3]):
            continue
        if record[1] is None:
            record[1] = manifest.added_snapshot_id
        if record[2] is None:
            record[2] = inherited_number(status, manifest)
        if record[3] is None:
            record[3] = inherited_number(status, manifest)
        yield record


@contextmanager
def report_damage(location: str) -> Iterator[None]:
    """Turn every exception of decoding into a CorruptFileError that names the file, as its bytes caused it."""
    try:
        yield
    except DmlError:
        raise
    except Exception as error:
        raise corrupt(location, str(error).split("\n", 1)[0] or type(error).__name__) from error


def corrupt(location: str, what: str) -> CorruptFileError:
    return CorruptFileError(
        f"The metadata file '{location}' cannot be read: {what}",
        hint=RESTORE,
        file=location,
    )


def decoders_of(blocks: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, CheckedDecoder]]:
    """Yield the number of records of each block, and a decoder of its bytes."""
    return ((count, CheckedDecoder(block)) for count, block in blocks)


def records_of(
    file_type: StructType,
    decoders: Iterable[tuple[int, CheckedDecoder]],
    read_type: StructType,
    readers: Mapping[int, Bind] = NO_READERS,
) -> Iterator[list[Any]]:
    """Yield the records of blocks, projected to a type."""
    reader = reader_of(file_type, read_type)
    for count, decoder in decoders:
        read = reader.bind(decoder, readers)
        for _ in range(count):
            yield read()
        decoder.finish()


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def reader_of(file_type: StructType, read_type: StructType) -> RecordReader:
    """Return the reader of a type. Cached: creating one takes longer than reading a small file with it.

    Raises:
        ValueError: The types do not fit.
    """
    return RecordReader(file_type, read_type)


def partition_tuple(kind: StructType, data: bytes) -> tuple[Any, ...]:
    """Decode a partition tuple.

    Raises:
        Exception: The bytes are not a tuple of that type.
    """
    decoder = CheckedDecoder(data)
    found = reader_of(kind, AS_STORED).bind(decoder)()
    decoder.finish()
    return tuple(found)


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def type_of_records(avro_schema: bytes) -> StructType:
    """Convert the schema of a metadata file.

    Raises:
        Exception: It is not the schema of a metadata file.
    """
    file_type = record_type(avro_schema)
    check_elements(file_type)
    check_partition(file_type)
    return file_type


class LineReader:
    """Reads lines of manifest lists and caches them: nearly all lines of a list equal those of the previous list.

    Args:
        file_type: The type of the lines.
    """

    def __init__(self, file_type: StructType) -> None:
        self._reader = reader_of(file_type, LINE_TYPE)

    def read(self, lines: Sequence[bytes]) -> tuple[ManifestFile, ...]:
        """Return lines from the cache, and decode the others."""
        known = {line: found for line in lines if (found := READ_LINES.get((self, line))) is not None}
        missing = [line for line in lines if line not in known]
        for line, found in zip(missing, self.decode(missing), strict=True):
            known[line] = found
            if len(line) <= limits.MAX_CACHED_LINE_BYTES:
                READ_LINES.keep((self, line), found)
        return tuple(known[line] for line in lines)

    def decode(self, lines: Sequence[bytes]) -> list[ManifestFile]:
        """Decode lines with one decoder: creating one for each would take as long as decoding."""
        decoder = CheckedDecoder(b"".join(lines))
        read, found, end = self._reader.bind(decoder), [], 0
        for line in lines:
            found.append(manifest_file(read()))
            end += len(line)
            if decoder.tell() != end:
                raise ValueError(f"the line of '{found[-1].manifest_path}' has another length than its fields")
        return found


READ_LINES: Final[LineCache[tuple[LineReader, bytes], ManifestFile]] = LineCache(
    limits.LINE_CACHE_BYTES, lambda key, found: bytes_of_encoded(found, key[1])
)
"""One memory limit for the lines of all readers."""


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def line_reader(file_type: StructType) -> LineReader:
    return LineReader(file_type)


def blocks_of(io: FileIO, location: str, length: int | None = None) -> tuple[StructType, Iterator[tuple[int, bytes]]]:
    """Return the type of a metadata file's records, and the number of records and the bytes of each block.

    Args:
        io: The FileIO.
        location: The file.
        length: Its length according to the manifest list.

    Raises:
        CorruptFileError: The file is missing.
        ExecutionError: The storage failed.
        Exception: It is not a metadata file; `report_damage` turns it into a CorruptFileError.
    """
    _, file_type, blocks = header_and_blocks_of(io, location, length)
    return file_type, blocks


def header_and_blocks_of(
    io: FileIO, location: str, length: int | None = None
) -> tuple[Mapping[str, bytes], StructType, Iterator[tuple[int, bytes]]]:
    """Return the metadata in a file's header besides the result of `blocks_of`, with its arguments and errors."""
    content = content_of(io, location)
    if length is not None and length != len(content):
        raise ValueError(f"it has {len(content)} bytes where its manifest list has {length}")
    container = AvroContainer(BytesIO(content).read, len(content))
    avro_schema = container.metadata[SCHEMA_KEY]
    find = type_of_records if len(avro_schema) <= limits.MAX_CACHED_SCHEMA_BYTES else type_of_records.__wrapped__
    return container.metadata, find(avro_schema), limit_blocks(container.blocks(), len(content))


def limit_blocks(blocks: Iterable[tuple[int, bytes]], length: int) -> Iterator[tuple[int, bytes]]:
    """Limit the decompressed size of all blocks together by the length of their file.

    Raises:
        ValueError: They exceed the limit.
    """
    most, size = max(limits.FREE_BLOCK_BYTES, limits.MAX_DECOMPRESSION_RATIO * length), 0
    for count, block in blocks:
        size += len(block)
        if size > most:
            raise ValueError(f"its blocks have more than {most} bytes when they are decompressed")
        yield count, block


def content_of(io: FileIO, location: str) -> bytes:
    try:
        with io.new_input(location).open() as stream:
            return bytes(stream.read())
    except FileNotFoundError as error:
        raise CorruptFileError(f"The metadata file '{location}' is missing", hint=RESTORE, file=location) from error
    except OSError as error:
        raise storage_failure("Reading", location, error, io.properties) from error


def inherited_number(status: int, manifest: ManifestFile) -> int | None:
    """Return the sequence number of an entry without one: the manifest's own for an added file, 0 in version 1."""
    if status == EntryStatus.ADDED or manifest.sequence_number == 0:
        return manifest.sequence_number
    raise CorruptFileError(
        f"The manifest '{manifest.manifest_path}' has an entry with status {EntryStatus(status).name} and no sequence "
        "number",
        file=manifest.manifest_path,
    )


def manifest_entry(record: list[Any], spec_id: int) -> ManifestEntry:
    """Convert a record of `ENTRY_READ_SCHEMA` in which inherited values are filled in."""
    return ManifestEntry(
        status=STATUSES[record[0]],
        snapshot_id=record[1],
        data_sequence_number=record[2],
        file_sequence_number=record[3],
        first_row_id=record[4][16],
        data_file=content_file(record[4], spec_id),
    )


def content_file(data: list[Any], spec_id: int) -> ContentFile:
    """Convert the record of a file."""
    return ContentFile(
        content=CONTENTS[data[0]],
        path=data[1],
        file_format=data[2].lower(),
        spec_id=spec_id,
        partition=data[3],
        record_count=data[4],
        file_size_in_bytes=data[5],
        column_sizes=metrics(data[6]),
        value_counts=metrics(data[7]),
        null_value_counts=metrics(data[8]),
        nan_value_counts=metrics(data[9]),
        lower_bounds=metrics(data[10]),
        upper_bounds=metrics(data[11]),
        key_metadata=data[12],
        split_offsets=tuple(data[13] or ()),
        equality_ids=tuple(data[14] or ()),
        sort_order_id=data[15],
        referenced_data_file=data[17],
        content_offset=data[18],
        content_size_in_bytes=data[19],
    )


def metrics(value: Mapping[int, Any] | None) -> Mapping[int, Any]:
    """Return metrics by field id. PyIceberg creates the dict at the first access, and a scan reads few of them."""
    return {} if value is None else value


def manifest_file(record: list[Any]) -> ManifestFile:
    partitions = record[13]
    if partitions is not None and len(partitions) > limits.MAX_PARTITION_SUMMARIES:
        raise ValueError(f"its line of '{record[0]}' has summaries of {len(partitions)} partition fields")
    return ManifestFile(
        manifest_path=record[0],
        manifest_length=record[1],
        partition_spec_id=record[2],
        content=ManifestContent(record[3]) if record[3] else ManifestContent.DATA,
        sequence_number=record[4] or 0,
        min_sequence_number=record[5] or 0,
        added_snapshot_id=record[6],
        added_files_count=record[7],
        existing_files_count=record[8],
        deleted_files_count=record[9],
        added_rows_count=record[10],
        existing_rows_count=record[11],
        deleted_rows_count=record[12],
        partitions=None if partitions is None else tuple(map(partition_summary, partitions)),
        key_metadata=record[14],
        first_row_id=record[15],
    )


def partition_summary(record: list[Any]) -> PartitionSummary:
    return PartitionSummary(
        contains_null=record[0], contains_nan=record[1], lower_bound=record[2], upper_bound=record[3]
    )


# ---- several manifests at once ----------------------------------------------------------------------------------


def read_all(manifests: Sequence[ManifestFile], read: Callable[[ManifestFile], Read]) -> list[Read]:
    """Read manifests in several threads, as reads mostly wait for storage. Results keep the order of the manifests."""
    return [found for _, found in read_each(manifests, read)]


def read_each(
    manifests: Sequence[ManifestFile], read: Callable[[ManifestFile], Read]
) -> Iterator[tuple[ManifestFile, Read]]:
    """Read manifests in several threads, and yield each with its result, so that not all results are in memory."""
    if len(manifests) < 2:
        yield from ((manifest, read(manifest)) for manifest in manifests)
        return
    size = -(-len(manifests) // limits.MAX_THREAD_GROUPS)
    groups = [manifests[start : start + size] for start in range(0, len(manifests), size)]
    with ThreadPoolExecutor(min(limits.READ_THREADS, len(groups)), thread_name_prefix="manifests") as pool:
        for group, found in zip(groups, pool.map(lambda group: list(map(read, group)), groups), strict=True):
            yield from zip(group, found, strict=True)
