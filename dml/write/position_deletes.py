"""Position delete files of version 2 tables. Worker.

Input: deleted positions by data file. Output: sorted Parquet files under the spec and partition of the data files they
are for. Spec: "Position Delete Files".

With granularity `file` there is a file for each data file; it takes over the positions of older files for that data
file alone. With granularity `partition` there is a file for each partition, and older files stay.
"""

from collections.abc import Hashable
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from dml.deletes.delete_file_index import partition_key
from dml.deletes.position_delete_file import bounds, table_of
from dml.deletes.position_index import PositionDeleteIndex
from dml.model.content_file import ContentFile, FileContent
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.model.target_files import TargetFiles
from dml.model.write_context import WriteContext
from dml.options import DeleteGranularity, WriteOptions
from dml.write.delete_writer import DeletedPositions, DeleteResult
from dml.write.output_files import OutputFileFactory, write_errors
from dml.write.parquet import write_parquet

__all__ = ["PositionDeleteWriter", "delete_file_options", "file_scoped", "write_position_deletes"]

SCHEMA_JSON: Final = (
    '{"type":"struct","schema-id":0,"fields":['
    '{"id":2147483546,"name":"file_path","required":true,"type":"string"},'
    '{"id":2147483545,"name":"pos","required":true,"type":"long"}'
    "]}"
)
KEY_VALUES: Final = {"iceberg.schema": SCHEMA_JSON, "delete-type": "position"}
BYTES_PER_POSITION: Final = 3
"""What a row takes in a file, about: paths repeat, positions ascend."""

Group = tuple[int, tuple[Any, ...]]


class PositionDeleteWriter:
    """Writes position delete files.

    Args:
        files: The data files.
        options: Granularity and target size.
        output: Opens new files.
    """

    def __init__(self, *, files: TargetFiles, options: WriteOptions, output: OutputFileFactory) -> None:
        self._files = files
        self._options = options
        self._output = output
        self._by_partition: dict[Hashable, tuple[Group, dict[str, PositionDeleteIndex]]] = {}
        self._written: list[ContentFile] = []
        self._rewritten: list[tuple[str, int | None, int | None]] = []
        self._referenced: list[str] = []

    def delete(self, ordinal: int, positions: PositionDeleteIndex) -> DeletedPositions:
        """Takes the deleted positions of one data file."""
        task = self._files.task(ordinal)
        self._referenced.append(task.path)
        group = (task.spec_id, task.partition)
        if self._options.delete_granularity is DeleteGranularity.PARTITION:
            _, indexes = self._by_partition.setdefault(partition_key(*group), (group, {}))
            indexes[task.path] = positions
            return DeletedPositions(path=task.path, before=0, after=len(positions))
        old = file_scoped(task)
        before = 0
        if old:
            existing = self._files.existing_positions(ordinal, old)
            before, positions = len(existing), positions.union(existing)
            self._rewritten.extend(reference.key for reference in old)
        self._write(group, {task.path: positions})
        return DeletedPositions(path=task.path, before=before, after=len(positions))

    def close(self) -> DeleteResult:
        """Writes the files of partitions."""
        for group, indexes in self._by_partition.values():
            self._write(group, indexes)
        self._by_partition = {}
        return DeleteResult(
            delete_files=tuple(self._written),
            rewritten_delete_files=tuple(self._rewritten),
            referenced_data_files=tuple(self._referenced),
        )

    def _write(self, group: Group, indexes: dict[str, PositionDeleteIndex]) -> None:
        rows = max(1000, self._options.delete_target_file_size // BYTES_PER_POSITION)
        table = table_of(indexes)
        for start in range(0, table.num_rows, rows):
            part = table.slice(start, rows)
            self._written.append(write_position_deletes(group, part, self._options, self._output))


def write_position_deletes(
    group: Group, table: pa.Table, options: WriteOptions, output: OutputFileFactory
) -> ContentFile:
    """Writes one position delete file.

    Args:
        group: Spec id and partition of the data files that it is for.
        table: Its rows, sorted.
        options: Compression and sizes.
        output: Opens it.
    """
    spec_id, partition = group
    paths = table.column("file_path")
    path = paths[0].as_py()
    single = {path: PositionDeleteIndex.from_positions(table.column("pos"))} if paths[-1].as_py() == path else {}
    lower, upper = bounds(single)
    file = output.open("parquet", spec_id, partition, deletes=True)
    with write_errors(file.location):
        size, offsets = write_parquet(file.stream, table, options, KEY_VALUES)
    output.close(file)
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        path=file.location,
        file_format="parquet",
        spec_id=spec_id,
        partition=partition,
        record_count=table.num_rows,
        file_size_in_bytes=size,
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=offsets,
        referenced_data_file=path if single else None,
    )


def delete_file_options(context: WriteContext) -> WriteOptions:
    """Options of delete files: they have properties of their own; those of data files hold where these are not set."""
    codec = context.properties.get("write.delete.parquet.compression-codec", context.options.compression)
    return replace(context.options, compression=codec.lower())


def file_scoped(task: ScanTask) -> tuple[DeleteFileRef, ...]:
    """The position delete files that are for this data file alone."""
    return tuple(reference for reference in task.position_deletes if reference.referenced_data_file == task.path)
