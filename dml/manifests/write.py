"""Write manifests, of data files and delete files, and manifest lists in format versions 1, 2 and 3. Driver.

Input: `ManifestEntry`s and `ManifestFile`s. Output: Avro files, and the lines of a manifest list for them.
Source: Iceberg specification, "Manifests", "Manifest Lists", "Sequence Number Inheritance", "Row Lineage".

PyIceberg 0.12 writes neither delete manifests nor version 3. Its Avro encoder is used.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from itertools import chain, islice
from math import isnan
from typing import Any, Final, cast

from pydantic_core import to_json
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, AvroFileHeader, AvroOutputFile
from pyiceberg.avro.resolver import construct_writer
from pyiceberg.avro.writer import Writer
from pyiceberg.conversions import to_bytes
from pyiceberg.io import FileIO, OutputFile
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    PrimitiveType,
    StructType,
)

from dml import limits
from dml.errors import ValidationFailedError, storage_failure
from dml.manifests.avro_schema import avro_schema
from dml.manifests.entry_fields import ENTRY_READ_SCHEMA
from dml.manifests.live_entries import LiveEntry, row_encoder
from dml.manifests.read import SCHEMA_KEY
from dml.manifests.weights import LineCache, bytes_of_encoded
from dml.model.manifest import ContentFile, EntryStatus, ManifestContent, ManifestEntry, ManifestFile, PartitionSummary

__all__ = ["UNASSIGNED_SNAPSHOT", "ManifestWriter", "avro_bytes", "partition_type", "write_manifest_list"]

UNASSIGNED_SNAPSHOT: Final = -1
"""The snapshot of a manifest that is written before its commit knows its snapshot."""

CODEC: Final = {"avro.codec": "deflate"}
# Version 1 of the specification requires this field, but no reader uses it.
V1_BLOCK_SIZE: Final = 64 * 1024 * 1024

# Fields of an entry that a format version lacks.
NOT_IN: Final = {1: {134, 135, 142, 143, 144, 145}, 2: {142, 144, 145}, 3: set[int]()}

WRITTEN_LINES: Final[LineCache[tuple[ManifestFile, int], bytes]] = LineCache(
    limits.LINE_CACHE_BYTES, lambda key, line: bytes_of_encoded(key[0], line)
)
"""Encoded lines of manifest lists, by their `ManifestFile` and the format version."""


def partition_type(spec: PartitionSpec, metadata: TableMetadata) -> StructType:
    """Return the type of a spec's partition tuples, all fields optional.

    The type of a dropped source column is that of the newest schema that has it.

    Raises:
        ValidationFailedError: no schema of the table has a source column.
    """
    schemas = [metadata.schema(), *reversed(metadata.schemas)]
    fields = []
    for field in spec.fields:
        source = next((found for schema in schemas if (found := find(schema, field.source_id))), None)
        if source is None:
            raise ValidationFailedError(
                f"The partition spec {spec.spec_id} uses the column with id {field.source_id}, which no schema has"
            )
        fields.append(NestedField(field.field_id, field.name, field.transform.result_type(source), required=False))
    return StructType(*fields)


def find(schema: Schema, field_id: int) -> IcebergType | None:
    return schema.find_type(field_id) if field_id in schema.field_ids else None


@dataclass(frozen=True, slots=True)
class ManifestLayout:
    """The schema and header of manifests with one partition spec and content."""

    entry_schema: Schema
    partition: StructType
    header: dict[str, str]


class ManifestWriter:
    """Writes manifests of one commit.

    Args:
        io: The table's FileIO.
        metadata: The table's metadata before the commit.
        snapshot_id: The commit's snapshot.
    """

    def __init__(self, io: FileIO, metadata: TableMetadata, snapshot_id: int) -> None:
        self._io = io
        self._metadata = metadata
        self._version = metadata.format_version
        self._snapshot_id = snapshot_id
        self._layouts: dict[tuple[int, ManifestContent], ManifestLayout] = {}

    def write(
        self, location: str, spec_id: int, content: ManifestContent, entries: Sequence[ManifestEntry]
    ) -> ManifestFile:
        """Write a manifest.

        Args:
            location: The location of the new manifest.
            spec_id: Partition spec of all files.
            content: Data files, or delete files.
            entries: At least one; ADDED entries may lack sequence numbers, others have them.

        Returns:
            The manifest's line in a manifest list; a sequence number that the commit will assign is None.

        Raises:
            ExecutionError: the storage failed.
        """
        layout = self._layout(spec_id, content)
        rows = self._rows(entries, content)
        data = avro_bytes(layout.entry_schema, "manifest_entry", layout.header, rows)
        store(self._io, location, data)
        return replace(
            count_entries(entries),
            manifest_path=location,
            manifest_length=len(data),
            partition_spec_id=spec_id,
            content=content,
            added_snapshot_id=self._snapshot_id,
            partitions=tuple(
                summary_of(field.field_type, {entry.data_file.partition[position] for entry in entries})
                for position, field in enumerate(layout.partition.fields)
            ),
        )

    def write_existing(
        self,
        location: Callable[[], str],
        spec_id: int,
        content: ManifestContent,
        entries: Iterable[LiveEntry],
        max_bytes: int,
    ) -> Iterator[ManifestFile]:
        """Write live files of other manifests as EXISTING, in their order. All their values are kept.

        Args:
            location: Returns the location of the next manifest.
            spec_id: Partition spec of all files.
            content: Data files, or delete files.
            entries: The files.
            max_bytes: Another manifest begins after the block of entries that reaches this size.

        Yields:
            The line of each manifest in a manifest list, after it was stored.

        Raises:
            ExecutionError: The storage failed.
        """
        rest = iter(entries)
        for first in rest:
            yield self._write_existing(location(), spec_id, content, chain((first,), rest), max_bytes)

    def _write_existing(
        self, location: str, spec_id: int, content: ManifestContent, entries: Iterator[LiveEntry], max_bytes: int
    ) -> ManifestFile:
        layout, buffer = self._layout(spec_id, content), Buffer()
        keeps_row_ids = self._version > 2 and content is ManifestContent.DATA
        encode = row_encoder(self._version, spec_id, layout.partition, V1_BLOCK_SIZE, keeps_row_ids=keeps_row_ids)
        files = rows = 0
        numbers: set[int] = set()
        row_ids: set[int] = set()
        lacks_row_ids = not keeps_row_ids
        partitions: list[set[Any]] = [set() for _ in layout.partition.fields]
        with open_avro(buffer, layout.entry_schema, "manifest_entry", layout.header, ENCODED) as avro:
            # At least one block, even if the header alone is above the size.
            while (not files or buffer.tell() < max_bytes) and (
                block := list(islice(entries, limits.MANIFEST_BLOCK_ENTRIES))
            ):
                avro.write_block(cast("list[Record]", [encode(entry) for entry in block]))
                files += len(block)
                rows += sum(entry.record_count for entry in block)
                numbers.add(min(entry.data_sequence_number for entry in block))
                known = [entry.first_row_id for entry in block if entry.first_row_id is not None]
                lacks_row_ids = lacks_row_ids or len(known) < len(block)
                row_ids.update((min(known),) if known else ())
                for partition in {entry.partition for entry in block}:
                    for values, value in zip(partitions, partition, strict=True):
                        values.add(value)
        data = buffer.getvalue()
        store(self._io, location, data)
        return ManifestFile(
            manifest_path=location,
            manifest_length=len(data),
            partition_spec_id=spec_id,
            content=content,
            sequence_number=None,
            min_sequence_number=min(numbers),
            added_snapshot_id=self._snapshot_id,
            added_files_count=0,
            existing_files_count=files,
            deleted_files_count=0,
            added_rows_count=0,
            existing_rows_count=rows,
            deleted_rows_count=0,
            partitions=tuple(map(summary_of, (field.field_type for field in layout.partition.fields), partitions)),
            # A manifest without one would take row ids from the table, though none of its files needs them.
            first_row_id=None if lacks_row_ids else min(row_ids),
        )

    def _layout(self, spec_id: int, content: ManifestContent) -> ManifestLayout:
        key = (spec_id, content)
        if key not in self._layouts:
            spec = self._metadata.specs()[spec_id]
            partition = partition_type(spec, self._metadata)
            header = {
                "schema": self._schema_of(spec).model_dump_json(),
                "partition-spec": to_json(spec.fields).decode("utf-8"),
                "partition-spec-id": str(spec_id),
                "format-version": str(self._version),
            }
            if self._version > 1:
                header["content"] = "deletes" if content is ManifestContent.DELETES else "data"
            self._layouts[key] = ManifestLayout(entry_schema_of(self._version, partition), partition, header)
        return self._layouts[key]

    def _schema_of(self, spec: PartitionSpec) -> Schema:
        """Return a schema that has the spec's columns: the current one, if it still has them."""
        current = self._metadata.schema()
        sources = {field.source_id for field in spec.fields}
        return next(
            (schema for schema in (current, *reversed(self._metadata.schemas)) if sources <= schema.field_ids), current
        )

    def _rows(self, entries: Iterable[ManifestEntry], content: ManifestContent) -> Iterable[tuple[Any, ...]]:
        keeps_row_id = self._version > 2 and content is ManifestContent.DATA
        for entry in entries:
            # Always null for an added file: the manifest list assigns its row ids.
            row_id = entry.first_row_id if keeps_row_id and entry.status is not EntryStatus.ADDED else None
            snapshot_id = self._snapshot_id if entry.snapshot_id is None else entry.snapshot_id
            if self._version == 1:
                yield entry.status, snapshot_id, v1_file(entry.data_file)
            else:
                yield (
                    entry.status,
                    snapshot_id,
                    entry.data_sequence_number,
                    entry.file_sequence_number,
                    (v2_file if self._version == 2 else v3_file)(entry.data_file, row_id),
                )


def count_entries(entries: Sequence[ManifestEntry]) -> ManifestFile:
    """Return a manifest's counts and least sequence number. The caller sets the other fields."""
    files, rows = [0, 0, 0], [0, 0, 0]
    least: int | None = None
    for entry in entries:
        files[entry.status] += 1
        rows[entry.status] += entry.data_file.record_count
        number = entry.data_sequence_number
        if entry.is_live and number is not None and (least is None or number < least):
            least = number
    return ManifestFile(
        manifest_path="",
        manifest_length=0,
        partition_spec_id=0,
        sequence_number=None,
        min_sequence_number=least,
        added_snapshot_id=0,
        added_files_count=files[EntryStatus.ADDED],
        existing_files_count=files[EntryStatus.EXISTING],
        deleted_files_count=files[EntryStatus.DELETED],
        added_rows_count=rows[EntryStatus.ADDED],
        existing_rows_count=rows[EntryStatus.EXISTING],
        deleted_rows_count=rows[EntryStatus.DELETED],
    )


def write_manifest_list(
    io: FileIO,
    location: str,
    *,
    version: int,
    manifests: Sequence[ManifestFile],
    snapshot_id: int,
    parent_snapshot_id: int | None,
    sequence_number: int,
    first_row_id: int,
) -> int:
    """Write a manifest list, and assign the sequence numbers and first row ids of new manifests.

    Args:
        io: The table's FileIO.
        location: The location of the new manifest list.
        version: Format version.
        manifests: All manifests of the snapshot.
        snapshot_id: The snapshot.
        parent_snapshot_id: Its parent, or None.
        sequence_number: Its sequence number; 0 in version 1.
        first_row_id: The table's next row id.

    Returns:
        The next row id after it.

    Raises:
        ExecutionError: the storage failed.
    """
    header = {
        "snapshot-id": str(snapshot_id),
        "parent-snapshot-id": "null" if parent_snapshot_id is None else str(parent_snapshot_id),
        "format-version": str(version),
    }
    if version > 1:
        header["sequence-number"] = str(sequence_number)
    if version > 2:
        header["first-row-id"] = str(first_row_id)
    next_row_id = first_row_id
    rows = []
    for manifest in manifests:
        assigned = with_sequence_numbers(manifest, sequence_number)
        if version > 2 and manifest.content is ManifestContent.DATA and manifest.first_row_id is None:
            assigned = replace(assigned, first_row_id=next_row_id)
            next_row_id += (manifest.added_rows_count or 0) + (manifest.existing_rows_count or 0)
        rows.append(list_line(assigned, version))
    store(io, location, avro_bytes(MANIFEST_LIST_FILE_SCHEMAS[version], "manifest_file", header, rows, ENCODED))
    return next_row_id


def with_sequence_numbers(manifest: ManifestFile, sequence_number: int) -> ManifestFile:
    if manifest.sequence_number is not None and manifest.min_sequence_number is not None:
        return manifest
    return replace(
        manifest,
        sequence_number=sequence_number if manifest.sequence_number is None else manifest.sequence_number,
        min_sequence_number=sequence_number if manifest.min_sequence_number is None else manifest.min_sequence_number,
    )


def list_line(manifest: ManifestFile, version: int) -> bytes:
    """Encode a line of a manifest list, or return it from the cache: most lines equal those of the previous list."""
    key = (manifest, version)
    line = WRITTEN_LINES.get(key)
    if line is None:
        line = encode_line(manifest, version)
        if len(line) <= limits.MAX_CACHED_LINE_BYTES:
            WRITTEN_LINES.keep(key, line)
    return line


def encode_line(manifest: ManifestFile, version: int) -> bytes:
    """Encode a line of a manifest list without the cache."""
    buffer = BytesIO()
    line_writer(version).write(BinaryEncoder(buffer), list_row(manifest, version))
    return buffer.getvalue()


@cache
def line_writer(version: int) -> Writer:
    """Return the Avro writer of manifest list lines."""
    return construct_writer(MANIFEST_LIST_FILE_SCHEMAS[version])


def list_row(manifest: ManifestFile, version: int) -> tuple[Any, ...]:
    partitions = manifest.partitions and [
        (summary.contains_null, summary.contains_nan, summary.lower_bound, summary.upper_bound)
        for summary in manifest.partitions
    ]
    head = (manifest.manifest_path, manifest.manifest_length, manifest.partition_spec_id)
    numbers = (manifest.content, manifest.sequence_number, manifest.min_sequence_number)
    counts = (
        manifest.added_files_count,
        manifest.existing_files_count,
        manifest.deleted_files_count,
        manifest.added_rows_count,
        manifest.existing_rows_count,
        manifest.deleted_rows_count,
    )
    # Counts are optional in version 1 and required in later versions.
    known = counts if version == 1 else tuple(count or 0 for count in counts)
    row = (
        *head,
        *(numbers if version > 1 else ()),
        manifest.added_snapshot_id,
        *known,
        partitions if manifest.partitions is not None else None,
        manifest.key_metadata,
    )
    return (*row, manifest.first_row_id) if version > 2 else row


def summary_of(field_type: IcebergType, values: set[Any]) -> PartitionSummary:
    plain = [value for value in values if value is not None and not is_nan(value)]
    assert isinstance(field_type, PrimitiveType)
    floating = isinstance(field_type, (FloatType, DoubleType))
    lower, upper = (min(plain), max(plain)) if plain else (None, None)
    if floating:
        # A set keeps one of -0.0 and 0.0, which are two partitions, and in this order for Iceberg's Java library.
        lower, upper = -0.0 if lower == 0 else lower, 0.0 if upper == 0 else upper
    return PartitionSummary(
        contains_null=None in values,
        contains_nan=floating and any(is_nan(value) for value in values),
        lower_bound=None if lower is None else to_bytes(field_type, lower),
        upper_bound=None if upper is None else to_bytes(field_type, upper),
    )


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and isnan(value)


def entry_schema_of(version: int, partition: StructType) -> Schema:
    """Return the Avro schema of an entry, with the fields in the order of `_rows`."""
    data_file = ENTRY_READ_SCHEMA.find_field(2).field_type
    assert isinstance(data_file, StructType)
    fields = [
        field.model_copy(update=PATCHES[field.field_id](partition)) if field.field_id in PATCHES else field
        for field in data_file.fields
        if field.field_id not in NOT_IN[version]
    ]
    if version == 1:
        fields.insert(5, NestedField(105, "block_size_in_bytes", LongType(), required=True))
    first = (
        NestedField(0, "status", IntegerType(), required=True),
        NestedField(1, "snapshot_id", LongType(), required=version == 1),
    )
    numbers = (
        NestedField(3, "sequence_number", LongType(), required=False),
        NestedField(4, "file_sequence_number", LongType(), required=False),
    )
    last = NestedField(2, "data_file", StructType(*fields), required=True)
    return Schema(*first, *(numbers if version > 1 else ()), last)


# Fields whose write schema differs from the read schema.
PATCHES: Final[dict[int, Any]] = {
    134: lambda _: {"required": True, "initial_default": None},
    102: lambda partition: {"field_type": with_ascii_names(partition)},
    135: lambda _: {"field_type": ListType(136, IntegerType(), element_required=True)},
}


def with_ascii_names(partition: StructType) -> StructType:
    """Replace non-ASCII letters in the names of a partition type, in PyIceberg's manner. Readers match fields by id.

    PyIceberg and Iceberg's Java library keep letters of all languages, which stop readers written in C, such as
    DuckDB's. PyIceberg replaces the other characters that Avro does not allow.
    """
    return StructType(*(field.model_copy(update={"name": ascii_name(field.name)}) for field in partition.fields))


def ascii_name(name: str) -> str:
    return "".join(letter if letter.isascii() else f"_x{ord(letter):X}" for letter in name)


def v1_file(file: ContentFile) -> tuple[Any, ...]:
    location = (file.path, file.file_format.upper(), file.partition, file.record_count, file.file_size_in_bytes)
    return (*location, V1_BLOCK_SIZE, *metrics(file), file.sort_order_id)


def v2_file(file: ContentFile, _: int | None) -> tuple[Any, ...]:
    return (
        *identity(file),
        *metrics(file),
        list_or_none(file.equality_ids),
        file.sort_order_id,
        file.referenced_data_file,
    )


def v3_file(file: ContentFile, first_row_id: int | None) -> tuple[Any, ...]:
    return (
        *identity(file),
        *metrics(file),
        list_or_none(file.equality_ids),
        file.sort_order_id,
        first_row_id,
        file.referenced_data_file,
        file.content_offset,
        file.content_size_in_bytes,
    )


def identity(file: ContentFile) -> tuple[Any, ...]:
    return (
        file.content,
        file.path,
        file.file_format.upper(),
        file.partition,
        file.record_count,
        file.file_size_in_bytes,
    )


def metrics(file: ContentFile) -> tuple[Any, ...]:
    return (
        file.column_sizes or None,
        file.value_counts or None,
        file.null_value_counts or None,
        file.nan_value_counts or None,
        file.lower_bounds or None,
        file.upper_bounds or None,
        file.key_metadata,
        list_or_none(file.split_offsets),
    )


def list_or_none(values: tuple[int, ...]) -> list[int] | None:
    return list(values) or None


class Buffer(BytesIO):
    """An output file in memory, so that its length is known and it is stored in one write."""

    def create(self, overwrite: bool = False) -> "Buffer":  # noqa: ARG002 - PyIceberg's signature
        return self

    def close(self) -> None:
        """Keep the bytes when PyIceberg closes the file."""


class EncodedWriter:
    """Writes encoded rows, with the interface of PyIceberg's `Writer`."""

    def write(self, encoder: BinaryEncoder, val: bytes) -> None:
        """Write a row."""
        encoder.write(val)


ENCODED: Final = cast("Writer", EncodedWriter())


class ManifestAvroFile(AvroOutputFile[Record]):
    """An Avro file whose schema defines each type once."""

    def _write_header(self) -> None:
        metadata = {**self.metadata, SCHEMA_KEY: avro_schema(self.file_schema, self.schema_name)}
        construct_writer(META_SCHEMA).write(self.encoder, AvroFileHeader(MAGIC, metadata, self.sync_bytes))


@contextmanager
def open_avro(
    buffer: Buffer, schema: Schema, name: str, header: dict[str, str], writer: Writer | None
) -> Iterator[AvroOutputFile[Record]]:
    with ManifestAvroFile(cast("OutputFile", buffer), schema, name, metadata={**header, **CODEC}) as avro:
        if writer is not None:
            avro.writer = writer
        yield avro


def avro_bytes(
    schema: Schema, name: str, header: dict[str, str], rows: Iterable[Any], writer: Writer | None = None
) -> bytes:
    """Return the bytes of an Avro file. Rows are tuples, or values that `writer` accepts."""
    buffer = Buffer()
    with open_avro(buffer, schema, name, header, writer) as avro:
        block: list[Any] = []
        for row in rows:
            block.append(row)
            if len(block) == limits.MANIFEST_BLOCK_ENTRIES:
                avro.write_block(block)
                block = []
        if block:
            avro.write_block(block)
    return buffer.getvalue()


def store(io: FileIO, location: str, data: bytes) -> None:
    try:
        # The name is unique, so the check for an existing file is skipped.
        with io.new_output(location).create(overwrite=True) as stream:
            stream.write(data)
    except OSError as error:
        raise storage_failure("Writing the metadata file", location, error, io.properties) from error
