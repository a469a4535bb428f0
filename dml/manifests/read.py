"""Reading manifest lists and manifests of format versions 1, 2 and 3.

Input: a snapshot, a FileIO. Output: `ManifestFile`s and `ManifestEntry`s with everything inherited that the
specification lets a file inherit: snapshot id, sequence numbers, first row id. Driver.

Source: Iceberg specification, "Manifests", "Manifest Lists", "Sequence Number Inheritance", "First Row ID Inheritance".
PyIceberg 0.12 reads with its version 2 structs, which lack `first_row_id`, `referenced_data_file`, `content_offset` and
`content_size_in_bytes`; the readers of records underneath are its own. Its reader of Avro files is not used: it takes a
file that is cut short for one with fewer entries.

Metadata files come from anybody who may write where the table lies. Avro has no checksums, so a byte that is another
valid value passes; all else is an error that names the file: see docs/architecture/07-deletes.md.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BytesIO
from typing import Any, Final, cast

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import resolve_reader
from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from dml import limits
from dml.errors import CorruptFileError, DmlError, storage_failure
from dml.manifests.avro_container import AvroContainer
from dml.manifests.avro_decoder import CheckedDecoder, check_elements
from dml.manifests.avro_schema import check_partition, record_type
from dml.manifests.lockstep_decoder import UnsureError
from dml.manifests.lockstep_lines import lockstep_lines
from dml.manifests.weights import KeptLines, bytes_of_encoded
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
    "ENTRY_READ_SCHEMA",
    "MANIFEST_LIST_SCHEMA",
    "SCHEMA_KEY",
    "blocks_of",
    "damage_named",
    "decoders_of",
    "entries_in",
    "entries_of",
    "manifests_of",
    "read_manifest_list",
]


def counts(field_id: int, name: str, key_id: int) -> NestedField:
    return NestedField(
        field_id, name, MapType(key_id, IntegerType(), key_id + 1, LongType(), value_required=True), required=False
    )


def bounds(field_id: int, name: str, key_id: int) -> NestedField:
    return NestedField(
        field_id, name, MapType(key_id, IntegerType(), key_id + 1, BinaryType(), value_required=True), required=False
    )


DATA_FILE_TYPE: Final = StructType(
    NestedField(134, "content", IntegerType(), required=False, initial_default=0),
    NestedField(100, "file_path", StringType(), required=True),
    NestedField(101, "file_format", StringType(), required=True),
    # Without fields: the partition is then read as the file has it.
    NestedField(102, "partition", StructType(), required=True),
    NestedField(103, "record_count", LongType(), required=True),
    NestedField(104, "file_size_in_bytes", LongType(), required=True),
    counts(108, "column_sizes", 117),
    counts(109, "value_counts", 119),
    counts(110, "null_value_counts", 121),
    counts(137, "nan_value_counts", 138),
    bounds(125, "lower_bounds", 126),
    bounds(128, "upper_bounds", 129),
    NestedField(131, "key_metadata", BinaryType(), required=False),
    NestedField(132, "split_offsets", ListType(133, LongType(), element_required=True), required=False),
    # The specification says int; PyIceberg writes long, and an int is read as a long.
    NestedField(135, "equality_ids", ListType(136, LongType(), element_required=True), required=False),
    NestedField(140, "sort_order_id", IntegerType(), required=False),
    NestedField(142, "first_row_id", LongType(), required=False),
    NestedField(143, "referenced_data_file", StringType(), required=False),
    NestedField(144, "content_offset", LongType(), required=False),
    NestedField(145, "content_size_in_bytes", LongType(), required=False),
)

ENTRY_READ_SCHEMA: Final = Schema(
    NestedField(0, "status", IntegerType(), required=True),
    NestedField(1, "snapshot_id", LongType(), required=False),
    NestedField(3, "sequence_number", LongType(), required=False),
    NestedField(4, "file_sequence_number", LongType(), required=False),
    NestedField(2, "data_file", DATA_FILE_TYPE, required=True),
)
"""A manifest entry of every format version; what an older one lacks is read as null."""

MANIFEST_LIST_SCHEMA: Final = MANIFEST_LIST_FILE_SCHEMAS[3]
"""A manifest list's line in version 3, in which PyIceberg knows `first_row_id`."""


TOTAL_DATA_FILES: Final = "total-data-files"
SCHEMA_KEY: Final = "avro.schema"
RESTORE: Final = "Restore the file, or go back to a snapshot that does not need it"
# By code: an enum's own look-up takes longer.
STATUSES: Final = {status.value: status for status in EntryStatus}
CONTENTS: Final = {content.value: content for content in FileContent}

# A v1 list may leave the counts out; version 3 requires them.
MANIFEST_LIST_READ_SCHEMA: Final = Schema(
    *(
        field.model_copy(update={"required": field.field_id in {500, 501, 502, 503}})
        for field in MANIFEST_LIST_SCHEMA.fields
    )
)


def manifests_of(io: FileIO, snapshot: Snapshot | None) -> tuple[ManifestFile, ...]:
    """The manifests of a snapshot, data and delete manifests, in the order of its manifest list.

    Args:
        io: The table's FileIO.
        snapshot: A snapshot of the table; None for a table that has none.

    Raises:
        CorruptFileError: the manifest list is missing or is no manifest list.
        ExecutionError: the storage failed.
    """
    if snapshot is None:
        return ()
    manifests = read_manifest_list(io, snapshot.manifest_list)
    # A list that is cut short behind its header is one of an empty table, and nothing else says how long it is.
    if not manifests and snapshot.summary is not None and snapshot.summary.get(TOTAL_DATA_FILES, "0") != "0":
        files = snapshot.summary[TOTAL_DATA_FILES]
        raise corrupt(snapshot.manifest_list, f"it lists no files where its snapshot has {files} data files")
    return manifests


def read_manifest_list(io: FileIO, location: str) -> tuple[ManifestFile, ...]:
    """The lines of a manifest list.

    Raises:
        CorruptFileError: it is missing or is no manifest list.
        ExecutionError: the storage failed.
    """
    with damage_named(location):
        file_type, found = blocks_of(io, location)
        blocks = [(count, block) for count, block in found if count or block]
        if sum(count for count, _ in blocks) >= limits.MIN_LOCKSTEP_LINES:
            with suppress(UnsureError):
                return tuple(map(line_reader(file_type).read, lockstep_lines(file_type, blocks)))
        return tuple(map(manifest_file, records_of(file_type, decoders_of(blocks), MANIFEST_LIST_READ_SCHEMA)))


def entries_of(
    manifest: ManifestFile,
    io: FileIO,
    *,
    live_only: bool = False,
    in_partition: Callable[[tuple[Any, ...]], bool] | None = None,
) -> Iterator[ManifestEntry]:
    """The entries of a committed manifest, with what they inherit from its line in the manifest list.

    Args:
        manifest: A line of a snapshot's manifest list.
        io: The table's FileIO.
        live_only: Leave out entries with status DELETED.
        in_partition: Leave out the files of partitions for which it is False. It is asked once for each entry that is
            not left out already, before anything else of the entry is looked at.

    Yields:
        The entries in the order of the file.

    Raises:
        CorruptFileError: the manifest is missing, is no manifest, or breaks the rules of sequence numbers.
        ExecutionError: the storage failed.
    """
    with damage_named(manifest.manifest_path):
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
    """The same, of a manifest whose blocks were read.

    Args:
        file_type: The type of the entries.
        decoders: For each block the number of entries, and what decodes them.
        manifest: A line of a snapshot's manifest list.
        live_only: As for `entries_of`.
        in_partition: The same.

    Yields:
        The entries in the order of the file.

    Raises:
        CorruptFileError: the manifest is no manifest, or breaks the rules of sequence numbers.
    """
    next_row_id = manifest.first_row_id if manifest.content is ManifestContent.DATA else None
    with damage_named(manifest.manifest_path):
        for record in records_of(file_type, decoders, ENTRY_READ_SCHEMA):
            status = STATUSES[record[0]]
            data = record[4]
            if data[4] < 0 or data[5] < 0:
                raise ValueError(f"the file '{data[1]}' has {data[4]} rows and {data[5]} bytes")
            first_row_id = data[16] if manifest.first_row_id is not None else None
            if status is not EntryStatus.DELETED and next_row_id is not None and first_row_id is None:
                first_row_id = next_row_id
                next_row_id += data[4]
            if live_only and status is EntryStatus.DELETED:
                continue
            if ((data[0] or 0) == FileContent.DATA) is not (manifest.content is ManifestContent.DATA):
                raise ValueError(f"it is a manifest of {manifest.content.name}, and has a file of content {data[0]}")
            partition = tuple(data[3])
            if in_partition is not None and not in_partition(partition):
                continue
            yield ManifestEntry(
                status=status,
                snapshot_id=manifest.added_snapshot_id if record[1] is None else record[1],
                data_sequence_number=sequence_number_of(record[2], status, manifest),
                file_sequence_number=sequence_number_of(record[3], status, manifest),
                first_row_id=first_row_id,
                data_file=content_file(data, manifest.partition_spec_id, partition),
            )


def row(*values: Any) -> list[Any]:
    """A struct as the decoder fills it, by position: PyIceberg's own `Record` takes twice as long."""
    return list(values)


# By field id, -1 for the top: all structs of manifests and of manifest lists.
ROWS: Final[dict[int, Callable[..., Any]]] = dict.fromkeys((-1, 2, 102, 508), row)


@contextmanager
def damage_named(location: str) -> Iterator[None]:
    """Whatever is raised while bytes are decoded, the bytes led to it."""
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
    """What decodes each block, and the number of its records."""
    return ((count, CheckedDecoder(block)) for count, block in blocks)


def records_of(file_type: StructType, decoders: Iterable[tuple[int, CheckedDecoder]], schema: Schema) -> Iterator[Any]:
    """The records of blocks, as those of a schema."""
    reader = reader_of(file_type, schema.as_struct())
    for count, decoder in decoders:
        for _ in range(count):
            yield reader.read(cast("BinaryDecoder", decoder))
        decoder.finish()


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def reader_of(file_type: StructType, wanted: StructType) -> Reader:
    """Reads records of a type as those of another. It keeps nothing of what it reads, so threads may share it."""
    return resolve_reader(Schema(*file_type.fields), Schema(*wanted.fields), ROWS)


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def type_of_records(avro_schema: bytes) -> StructType:
    """The type of the records of a file with a schema.

    Raises:
        Exception: it is none of a metadata file.
    """
    file_type = record_type(avro_schema)
    check_elements(file_type)
    check_partition(file_type)
    return file_type


class LineReader:
    """Reads lines of manifest lists, each once as long as it is kept: a line is the same in list after list.

    Args:
        file_type: The type of the lines.
    """

    def __init__(self, file_type: StructType) -> None:
        self._reader = reader_of(file_type, MANIFEST_LIST_READ_SCHEMA.as_struct())

    def read(self, line: bytes) -> ManifestFile:
        """What a line says."""
        if len(line) > limits.MAX_CACHED_LINE_BYTES:
            return self.decoded(line)
        key = (self, line)
        found = READ_LINES.get(key)
        if found is None:
            found = self.decoded(line)
            READ_LINES.keep(key, found)
        return found

    def decoded(self, line: bytes) -> ManifestFile:
        """The same, read anew."""
        decoder = CheckedDecoder(line)
        record = self._reader.read(cast("BinaryDecoder", decoder))
        decoder.finish()
        return manifest_file(record)


READ_LINES: Final[KeptLines[tuple[LineReader, bytes], ManifestFile]] = KeptLines(
    limits.LINE_CACHE_BYTES, lambda key, found: bytes_of_encoded(found, key[1])
)
"""What lines say, those of all readers together: what is kept has one bound."""


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def line_reader(file_type: StructType) -> LineReader:
    """What reads lines of a type."""
    return LineReader(file_type)


def blocks_of(io: FileIO, location: str, length: int | None = None) -> tuple[StructType, Iterator[tuple[int, bytes]]]:
    """The schema of a metadata file, and its blocks: the number of records, and their bytes.

    Args:
        io: The FileIO.
        location: The file.
        length: How long a manifest list says it is.

    Raises:
        CorruptFileError: it is missing.
        ExecutionError: the storage failed.
        Exception: it is no such file; `damage_named` makes a CorruptFileError of it.
    """
    content = content_of(io, location)
    if length is not None and length != len(content):
        raise ValueError(f"it has {len(content)} bytes where its manifest list says {length}")
    container = AvroContainer(BytesIO(content).read, len(content))
    avro_schema = container.metadata[SCHEMA_KEY]
    find = type_of_records if len(avro_schema) <= limits.MAX_CACHED_SCHEMA_BYTES else type_of_records.__wrapped__
    return find(avro_schema), bounded(container.blocks(), len(content))


def bounded(blocks: Iterable[tuple[int, bytes]], length: int) -> Iterator[tuple[int, bytes]]:
    """Blocks, as long as all of them together are not much more than a file of so many bytes has, decompressed.

    Raises:
        ValueError: they are.
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


def sequence_number_of(explicit: int | None, status: EntryStatus, manifest: ManifestFile) -> int | None:
    """Null means the manifest's own for a file that it added, and 0 for everything from version 1."""
    if explicit is not None:
        return explicit
    if status is EntryStatus.ADDED or manifest.sequence_number == 0:
        return manifest.sequence_number
    raise CorruptFileError(
        f"The manifest '{manifest.manifest_path}' has an entry with status {status.name} and no sequence number",
        file=manifest.manifest_path,
    )


def content_file(data: list[Any], spec_id: int, partition: tuple[Any, ...]) -> ContentFile:
    return ContentFile(
        content=CONTENTS[data[0] or 0],
        path=data[1],
        file_format=data[2].lower(),
        spec_id=spec_id,
        partition=partition,
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
    """Metrics by field id. PyIceberg makes a dict of them at the first look, and a scan looks at few of them."""
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
