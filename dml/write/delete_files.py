"""Write deleted positions to position delete files (version 2) and deletion vectors (version 3). Worker.

Input: deleted positions by data file. Output: delete files. Spec: "Position Delete Files", "Deletion Vectors"; Puffin,
"deletion-vector-v1 blob type".

With granularity `file`, each data file gets a position delete file, with its spec and partition. The new file includes
the positions of older delete files that are for this data file alone, and replaces them. With granularity `partition`,
each partition gets a file, and older files stay.

A data file has at most one deletion vector. The new one includes the positions of the vector that it replaces or, after
an upgrade, of all position delete files. Position delete files for several data files stay, because the other data
files need them; readers ignore them for a data file with a vector.
"""

import uuid
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa
from pyiceberg.types import LongType, NestedField, StringType

from dml.deletes.delete_file_index import partition_key
from dml.deletes.deletion_vector import BlobMetadata, PuffinWriter, deletion_vector_blob, encode
from dml.deletes.position_delete_file import FILE_PATH, FILE_PATH_ID, POS, POS_ID, bounds, table_of
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.manifest import ContentFile, FileContent
from dml.model.scan_task import DeleteFileRef, FileDeletes, ScanTask
from dml.model.write_task import HeldDeletes, WriteContext
from dml.options import (
    DELETE_AVRO_COMPRESSION,
    DELETE_ORC_COMPRESSION,
    DELETE_PARQUET_COMPRESSION,
    DeleteGranularity,
    WriteOptions,
)
from dml.read.reader import TargetFiles
from dml.write.file_layout import FileLayout
from dml.write.output_files import OutputFile, OutputFileFactory, TaskIdentity, write_errors
from dml.write.parquet import write_parquet
from dml.write.partitioning import WRITERS
from dml.write.writer_spec import DELETION_VECTOR_VERSION

__all__ = [
    "CREATED_BY",
    "DeleteResult",
    "DeleteWriter",
    "DeletedPositions",
    "DeletionVectorWriter",
    "PositionDeleteWriter",
    "VectorFile",
    "delete_file_options",
    "file_scoped",
    "write_deletes",
    "write_late_deletes",
    "write_partition_deletes",
    "write_position_deletes",
    "write_positions",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """The delete files of a task.

    Attributes:
        delete_files: New position delete files or deletion vectors.
        rewritten_delete_files: Keys of the older delete files that they replace.
        referenced_data_files: Paths of the data files with new deletes.
        held: Positions left to the driver, because they are few.
    """

    delete_files: tuple[ContentFile, ...] = ()
    rewritten_delete_files: tuple[tuple[str, int | None, int | None], ...] = ()
    referenced_data_files: tuple[str, ...] = ()
    held: tuple[HeldDeletes, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletedPositions:
    """The position counts of one data file in its new delete file.

    Attributes:
        path: The data file.
        before: Number of positions from older delete files.
        after: Number of all positions.
    """

    path: str
    before: int
    after: int


def held_deletes(deletes: Sequence[FileDeletes]) -> tuple[HeldDeletes, ...]:
    """Encode deleted positions for the task commit."""
    return tuple(
        HeldDeletes(path=file.path, spec_id=file.spec_id, partition=file.partition, positions=encode(file.positions))
        for file in deletes
    )


def held_size(deletes: FileDeletes) -> int:
    """Return the approximate maximum size in a task commit: a small bitmap takes two bytes per position."""
    return len(deletes.path) + 2 * len(deletes.positions)


class DeleteWriter(Protocol):
    """Write the deleted positions of data files. The task's `OutputFileFactory` removes the files on abort."""

    def delete(self, ordinal: int, positions: PositionDeleteIndex) -> DeletedPositions:
        """Add the deleted positions of one data file. Call it once per data file."""

    def close(self) -> DeleteResult:
        """Finish all files."""


SCHEMA_JSON: Final = (
    '{"type":"struct","schema-id":0,"fields":['
    '{"id":2147483546,"name":"file_path","required":true,"type":"string"},'
    '{"id":2147483545,"name":"pos","required":true,"type":"long"}'
    "]}"
)
KEY_VALUES: Final = {"iceberg.schema": SCHEMA_JSON, "delete-type": "position"}
POSITION_FIELDS: Final = (
    NestedField(FILE_PATH_ID, FILE_PATH, StringType(), required=True),
    NestedField(POS_ID, POS, LongType(), required=True),
)
BYTES_PER_POSITION: Final = 3
"""Approximate encoded size of a row: paths repeat and positions ascend, so both compress well."""

Group = tuple[int, tuple[Any, ...]]


class PositionDeleteWriter:
    """Write position delete files.

    Args:
        files: The data files.
        options: Granularity and target size.
        output: Opens new files.
        max_held_bytes: With granularity `partition`, positions up to this size are left to the driver.
    """

    def __init__(
        self, *, files: TargetFiles, options: WriteOptions, output: OutputFileFactory, max_held_bytes: int = 0
    ) -> None:
        self._files = files
        self._options = options
        self._output = output
        self._max_held_bytes = max_held_bytes
        self._of_partitions: list[FileDeletes] = []
        self._written: list[ContentFile] = []
        self._rewritten: list[tuple[str, int | None, int | None]] = []
        self._referenced: list[str] = []

    def delete(self, ordinal: int, positions: PositionDeleteIndex) -> DeletedPositions:
        """Add the deleted positions of one data file, and with granularity `file` write its delete file."""
        task = self._files.task(ordinal)
        self._referenced.append(task.path)
        deletes = FileDeletes(path=task.path, spec_id=task.spec_id, partition=task.partition, positions=positions)
        if self._options.delete_granularity is DeleteGranularity.PARTITION:
            self._of_partitions.append(deletes)
            return DeletedPositions(path=task.path, before=0, after=len(positions))
        old = file_scoped(task)
        before = 0
        if old:
            existing = self._files.existing_positions(ordinal, old)
            before, positions = len(existing), positions.union(existing)
            self._rewritten.extend(reference.key for reference in old)
        self._written.extend(
            write_partition_deletes([replace(deletes, positions=positions)], self._options, self._output)
        )
        return DeletedPositions(path=task.path, before=before, after=len(positions))

    def close(self) -> DeleteResult:
        """Write the delete files of partitions, or leave their positions to the driver."""
        deletes, self._of_partitions = self._of_partitions, []
        holds = sum(map(held_size, deletes)) <= self._max_held_bytes
        if not holds:
            self._written.extend(write_partition_deletes(deletes, self._options, self._output))
        return DeleteResult(
            delete_files=tuple(self._written),
            rewritten_delete_files=tuple(self._rewritten),
            referenced_data_files=tuple(self._referenced),
            held=held_deletes(deletes) if holds else (),
        )


def write_partition_deletes(
    deletes: Iterable[FileDeletes], options: WriteOptions, output: OutputFileFactory
) -> Iterator[ContentFile]:
    """Write one position delete file per partition, or more if it would exceed the target size.

    Args:
        deletes: Each data file once, with its deleted positions.
        options: Compression and sizes.
        output: Opens new files.
    """
    partitions: dict[Hashable, tuple[Group, dict[str, PositionDeleteIndex]]] = {}
    for file in deletes:
        group = (file.spec_id, file.partition)
        _, indexes = partitions.setdefault(partition_key(*group), (group, {}))
        indexes[file.path] = file.positions
    rows = max(1000, options.delete_target_file_size // BYTES_PER_POSITION)
    for group, indexes in partitions.values():
        table = table_of(indexes)
        for start in range(0, table.num_rows, rows):
            yield write_position_deletes(group, table.slice(start, rows), options, output)


def write_position_deletes(
    group: Group, table: pa.Table, options: WriteOptions, output: OutputFileFactory
) -> ContentFile:
    """Write one position delete file.

    Args:
        group: Spec id and partition of the data files.
        table: Paths and positions, sorted.
        options: Compression and sizes.
        output: Opens the file.
    """
    spec_id, partition = group
    paths = table.column("file_path")
    path = paths[0].as_py()
    single = {path: PositionDeleteIndex.from_positions(table.column("pos"))} if paths[-1].as_py() == path else {}
    lower, upper = bounds(single)
    file_format = options.delete_file_format
    file = output.open(file_format, spec_id, partition, deletes=True)
    with write_errors(file.location):
        size, offsets = write_positions(file.stream, table, options)
    output.close(file)
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        path=file.location,
        file_format=file_format,
        spec_id=spec_id,
        partition=partition,
        record_count=table.num_rows,
        file_size_in_bytes=size,
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=offsets,
        referenced_data_file=path if single else None,
    )


def write_positions(stream: pa.NativeFile, table: pa.Table, options: WriteOptions) -> tuple[int, tuple[int, ...]]:
    """Write the rows of a position delete file. The caller closes the stream.

    Formats other than Parquet are written by the writer of data files.

    Returns:
        The file size in bytes, and the split offsets.
    """
    if options.delete_file_format == "parquet":
        return write_parquet(stream, table, options, KEY_VALUES)
    layout = FileLayout(
        columns=POSITION_FIELDS, arrow=table.schema, checks=(), leaves=(), modes={}, schema_json=SCHEMA_JSON
    )
    writer = WRITERS[options.delete_file_format](stream, layout, options)
    for batch in table.to_batches():
        writer.write(batch)
    return writer.close().file_size_in_bytes, ()


def delete_file_options(context: WriteContext) -> WriteOptions:
    """Return the options of delete files: their own compression properties, by default those of data files."""
    options, properties = context.options, context.properties
    return replace(
        options,
        compression=properties.get(DELETE_PARQUET_COMPRESSION, options.compression).lower(),
        orc_compression=properties.get(DELETE_ORC_COMPRESSION, options.orc_compression).lower(),
        avro_compression=properties.get(DELETE_AVRO_COMPRESSION, options.avro_compression).lower(),
    )


def file_scoped(task: ScanTask) -> tuple[DeleteFileRef, ...]:
    """Return the position delete files that reference this data file alone."""
    return tuple(reference for reference in task.position_deletes if reference.referenced_data_file == task.path)


CREATED_BY = "RowDelta"


class VectorFile:
    """A Puffin file of deletion vectors. The first vector creates it.

    Args:
        output: Opens the file.
    """

    def __init__(self, output: OutputFileFactory) -> None:
        self._output = output
        self._file: OutputFile | None = None
        self._puffin: PuffinWriter | None = None
        self._vectors: list[tuple[FileDeletes, BlobMetadata]] = []

    def add(self, deletes: FileDeletes) -> None:
        """Write the vector of one data file."""
        puffin = self._puffin or self._open()
        blob = deletion_vector_blob(deletes.path, len(deletes.positions))
        assert self._file is not None
        with write_errors(self._file.location):
            self._vectors.append((deletes, puffin.write_blob(blob, encode(deletes.positions))))

    def close(self) -> tuple[ContentFile, ...]:
        """Finish the file, and return its vectors in order."""
        if self._puffin is None or self._file is None:
            return ()
        location = self._file.location
        with write_errors(location):
            size = self._puffin.close()
        self._output.close(self._file)
        return tuple(content_file(deletes, blob, location, size) for deletes, blob in self._vectors)

    def _open(self) -> PuffinWriter:
        self._file = self._output.open("puffin", deletes=True)
        with write_errors(self._file.location):
            self._puffin = PuffinWriter(self._file.stream.write, CREATED_BY)
        return self._puffin


class DeletionVectorWriter:
    """Write the deletion vectors of one task into one Puffin file.

    Args:
        files: The data files.
        output: Opens the Puffin file when there is a vector to write.
        max_held_bytes: Vectors up to this size are left to the driver.
    """

    def __init__(self, *, files: TargetFiles, output: OutputFileFactory, max_held_bytes: int = 0) -> None:
        self._files = files
        self._vectors = VectorFile(output)
        self._may_hold = max_held_bytes
        self._held: list[FileDeletes] = []
        self._referenced: list[str] = []
        self._rewritten: list[tuple[str, int | None, int | None]] = []

    def delete(self, ordinal: int, positions: PositionDeleteIndex) -> DeletedPositions:
        """Merge the positions with the existing deletes of the data file, and write or hold its vector."""
        task = self._files.task(ordinal)
        old = (task.deletion_vector,) if task.deletion_vector is not None else task.position_deletes
        existing = self._files.existing_positions(ordinal, old) if old else PositionDeleteIndex()
        merged = existing.union(positions)
        counts = DeletedPositions(path=task.path, before=len(existing), after=len(merged))
        if counts.before == counts.after:
            return counts
        self._rewritten.extend(
            reference.key for reference in (old if task.deletion_vector is not None else file_scoped(task))
        )
        self._referenced.append(task.path)
        self._add(FileDeletes(path=task.path, spec_id=task.spec_id, partition=task.partition, positions=merged))
        return counts

    def _add(self, deletes: FileDeletes) -> None:
        """Hold vectors up to the limit. Above it, write them and all that follow."""
        self._may_hold -= held_size(deletes)
        self._held.append(deletes)
        if self._may_hold < 0:
            ready, self._held = self._held, []
            for file in ready:
                self._vectors.add(file)

    def close(self) -> DeleteResult:
        """Finish the Puffin file."""
        return DeleteResult(
            delete_files=self._vectors.close(),
            rewritten_delete_files=tuple(self._rewritten),
            referenced_data_files=tuple(self._referenced),
            held=held_deletes(self._held),
        )


def content_file(deletes: FileDeletes, blob: BlobMetadata, location: str, size: int) -> ContentFile:
    """Return the manifest entry of a vector."""
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        path=location,
        file_format="puffin",
        spec_id=deletes.spec_id,
        partition=deletes.partition,
        record_count=len(deletes.positions),
        file_size_in_bytes=size,
        referenced_data_file=deletes.path,
        content_offset=blob.offset,
        content_size_in_bytes=blob.length,
    )


def write_late_deletes(context: WriteContext, deletes: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
    """Write one deletion vector or position delete file for each data file.

    Args:
        context: The write.
        deletes: The data files with all their deleted positions, including earlier ones.

    Returns:
        The delete files, in the order of `deletes`.

    Raises:
        Exception: The storage failed. The files written so far are deleted.
    """
    output = OutputFileFactory(replace(context, query_id=str(uuid.uuid4())), TaskIdentity())
    try:
        return write_deletes(context, deletes, output)
    except BaseException:
        output.abort()
        raise


def write_deletes(
    context: WriteContext, deletes: Sequence[FileDeletes], output: OutputFileFactory
) -> tuple[ContentFile, ...]:
    """Write one deletion vector or position delete file for each data file, in this order.

    Args:
        context: The write.
        deletes: The data files with all their deleted positions.
        output: Opens new files.
    """
    if context.format_version >= DELETION_VECTOR_VERSION:
        vectors = VectorFile(output)
        for file in deletes:
            vectors.add(file)
        return vectors.close()
    options = delete_file_options(context)
    return tuple(
        write_position_deletes((file.spec_id, file.partition), table_of({file.path: file.positions}), options, output)
        for file in deletes
    )
