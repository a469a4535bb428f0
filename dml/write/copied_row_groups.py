"""Copy row groups of data files byte for byte into new files. Worker; `with_joined_metrics`: driver.

Input: scan tasks. Output: a `TaskCommit` with the new files, or None if the rows must be decoded. Deleted rows are
copied, too, and one deletion vector or position delete file deletes them again in the new file. In format version 3,
row ids and sequence numbers are written as new column chunks. Spec: "Row Lineage", "Deletion Vectors", "Position Delete
Files"; `parquet.thrift`.

A run of scan tasks is copied if decoding would write about the same bytes: all its files have all columns of the table,
with the physical types and field ids that this writer would use, the codec and bloom filters that the table's
properties request, and large row groups. The footers of all files are read before anything is written.

Footers have no NaN counts, and some writers include NaN in their bounds. On the driver, `with_joined_metrics` takes NaN
counts and bounds from the manifest entries of the old files. Spec: "Manifests", fields 125, 128 and 137.
"""

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import RowConservationError
from dml.files.file_io import file_errors
from dml.model.columns import ROW_ID
from dml.model.manifest import ContentFile, FileContent
from dml.model.row_map import ROW_MAP_KEY
from dml.model.scan_task import FileDeletes, ScanContext, ScanTask
from dml.model.write_task import JoinedDataFile, TaskCommit, TaskMetrics, WriteContext
from dml.options import PARQUET_COMPRESSION, PARQUET_ROW_GROUP_LIMIT
from dml.read.reader import PieceReader, piece_readers
from dml.splice.footer import CODEC, COLUMN_ORDERS, MAGIC, Footer, RowGroup
from dml.splice.spliced_file import CopiedFile, SplicedColumn, SplicedFile
from dml.splice.thrift_compact import I32, STRUCT, list_of, value_of
from dml.write.column_metrics import Leaf, MetricsMode, float_value, lower_bound, parquet_metrics, upper_bound
from dml.write.delete_files import CREATED_BY, write_deletes
from dml.write.delta_rows import OriginLog
from dml.write.file_layout import FileLayout, file_layout
from dml.write.output_files import OutputFileFactory, write_errors
from dml.write.parquet import check_codec, split_offsets
from dml.write.splice_columns import (
    ICEBERG_SCHEMA,
    OldFile,
    excludes_nan,
    is_floating,
    open_old_file,
    part_of,
    read_offset_indexes,
    same_type,
    without_nulls,
)
from dml.write.splicing import NewColumns, entries_by_path, written_footer
from dml.write.writer_spec import WriterSpec

__all__ = ["CopyRule", "RowGroupCopier", "with_float_metrics", "with_joined_metrics"]

CODEC_NUMBERS: Final = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
"""Parquet's `CompressionCodec`, by Arrow's name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyRule:
    """The conditions for copying row groups.

    Attributes:
        min_row_group_bytes: The minimum of their average compressed size.
        max_row_group_bytes: The maximum of their compressed sizes: a new file that holds a larger one would have to be
            rewritten again.
        max_deleted: The fraction of deleted rows in a new file at and above which they are decoded.
    """

    min_row_group_bytes: int
    max_row_group_bytes: int
    max_deleted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroupSource:
    """Row groups of a data file.

    Attributes:
        old: The open file.
        copied: The same file, in the form from which the new file copies.
        groups: The row groups, each with its index in the file and the position of its first row.
        rows: Reads row lineage and deleted positions.
    """

    old: OldFile
    copied: CopiedFile
    groups: tuple[tuple[int, int, RowGroup], ...]
    rows: PieceReader

    @property
    def task(self) -> ScanTask:
        """The scan task."""
        return self.old.task

    def deleted(self) -> int:
        """Return the number of deleted rows."""
        masks = (self.rows.deleted_mask(start, group.rows) for _, start, group in self.groups)
        return sum(int(mask.sum()) for mask in masks if mask is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyJob:
    """The state that all new files of a task share.

    Attributes:
        context: The write.
        layout: The columns of new files.
        lineage: The columns of row lineage, which get new chunks; empty before format version 3.
        output: Opens and closes new files.
    """

    context: WriteContext
    layout: FileLayout
    lineage: FileLayout
    output: OutputFileFactory


class RowGroupCopier:
    """Copy the row groups of runs.

    Args:
        spec: The write.
        layout: The columns of new files.
        context: The scan of the old files.
        output: Opens new files; the caller deletes them if the copy fails.
    """

    def __init__(self, spec: WriterSpec, layout: FileLayout, context: ScanContext, output: OutputFileFactory) -> None:
        lineage = layout.columns[len(layout.columns) - 2 * spec.row_lineage :]
        self._job = CopyJob(
            context=spec.context,
            layout=layout,
            lineage=part_of(layout, {column.field_id for column in lineage}),
            output=output,
        )
        self._scan = context
        self._written = written_footer(layout, spec.context.options)

    def copy(
        self,
        tasks: Sequence[ScanTask],
        partition: tuple[Any, ...],
        origins: OriginLog | None,
        *,
        rule: CopyRule,
        target_file_size: int,
    ) -> TaskCommit | None:
        """Copy the row groups of scan tasks, in their order.

        Args:
            tasks: The scan tasks, without equality deletes.
            partition: The partition of all rows.
            origins: Records where rows come from.
            rule: The row groups that are copied.
            target_file_size: The size in bytes at which a new file is closed.

        Returns:
            The new files and their deletes. None, with nothing written, if the files must be decoded.

        Raises:
            CorruptFileError: A file breaks its format.
            ExecutionError: The storage failed.
        """
        with ExitStack() as stack:
            sources = self._open(tasks, stack)
            if sources is None or not self._is_worth_it(sources, rule):
                return None
            files: list[NewFile] = []
            for source in sources:
                for place, start, group in source.groups:
                    if not files or files[-1].size + size_of(group) > target_file_size:
                        file = NewFile(self._job, source, partition, origins)
                        stack.callback(file.abort)
                        files.append(file)
                    files[-1].add(source, place, start, group)
            data_files = tuple(file.close() for file in files)
            deletes = [file.deletes() for file in files if file.deleted]
            return TaskCommit(
                data_files=data_files,
                delete_files=write_deletes(self._job.context, deletes, self._job.output),
                joined_files=tuple(file.joined_file() for file in files),
                row_origins=() if origins is None else origins.report(),
                metrics=TaskMetrics(
                    rows_carried=sum(file.record_count for file in data_files),
                    rows_marked=sum(len(file.positions) for file in deletes),
                ),
            )

    def _open(self, tasks: Sequence[ScanTask], stack: ExitStack) -> list[RowGroupSource] | None:
        """Open all files; None if one of them cannot be copied."""
        sources: list[RowGroupSource] = []
        footer_bytes = 0
        lineage = tuple(column.name for column in self._job.lineage.columns)
        for task in tasks:
            old = stack.enter_context(open_old_file(task, self._job.context.io_properties))
            if old is None:
                return None
            footer_bytes += task.file_size_in_bytes - old.footer.start
            groups = tuple(groups_of(old.footer, task))
            columns = self._columns(old.footer, [group for _, _, group in groups])
            if columns is None or footer_bytes > limits.MAX_COPIED_FOOTER_BYTES:
                return None
            if sources and not are_same_types(columns, sources[0].copied.columns):
                return None
            indexes = read_offset_indexes(old, columns)
            if indexes is None:
                return None
            (rows,) = stack.enter_context(piece_readers(task, self._scan, [((), lineage)]))
            sources.append(RowGroupSource(old=old, copied=old.copied(columns, indexes), groups=groups, rows=rows))
        return sources

    def _columns(self, footer: Footer, groups: Sequence[RowGroup]) -> tuple[SplicedColumn, ...] | None:
        """Return the columns of the new file with those of an old one; None if it must be decoded."""
        context, layout = self._job.context, self._job.layout
        held = {column.field_id: column for column in footer.columns}
        new_ids = {column.field_id for column in self._job.lineage.columns}
        orders, own_orders = (list_of(one.fields, COLUMN_ORDERS, STRUCT) or [] for one in (footer, self._written))
        codec = CODEC_NUMBERS[check_codec(context.options)] if PARQUET_COMPRESSION in context.properties else None
        columns = []
        if layout.variant_ids and context.options.shred_variants:
            return None
        for column, own in zip(layout.columns, self._written.columns, strict=True):
            found = held.get(column.field_id)
            if column.field_id in new_ids:
                columns.append(SplicedColumn(name=column.name))
                continue
            # Old files may require values where the table does not. Then their pages lack definition levels.
            if found is None or not same_type(found, without_nulls(found, own)):
                return None
            if [orders[leaf] for leaf in found.leaves] != [own_orders[leaf] for leaf in own.leaves]:
                return None
            for leaf, path in zip(found.leaves, own.paths, strict=True):
                filtered = b".".join(path).decode() in layout.bloom_filters
                for group in groups:
                    chunk = group.chunks[leaf]
                    if codec is not None and value_of(chunk.meta_data, CODEC, I32) != codec:
                        return None
                    if filtered and chunk.bloom_filter is None:
                        return None
            columns.append(SplicedColumn(name=column.name, copied=found))
        return tuple(columns)

    def _is_worth_it(self, sources: Sequence[RowGroupSource], rule: CopyRule) -> bool:
        """Return True if the row groups are neither too small nor too large, and few of their rows are deleted."""
        context = self._job.context
        groups = [group for source in sources for _, _, group in source.groups]
        sizes = [size_of(group) for group in groups]
        if sum(sizes) < rule.min_row_group_bytes * len(sizes) or not sizes:
            return False
        largest = min(rule.max_row_group_bytes, limits.MAX_COPIED_ROW_GROUP_RATIO * context.options.row_group_size)
        if max(sizes) > largest:
            return False
        rows = [group.rows for group in groups]
        if PARQUET_ROW_GROUP_LIMIT in context.properties and max(rows) > context.options.row_group_rows:
            return False
        return sum(source.deleted() for source in sources) < rule.max_deleted * sum(rows)


class NewFile:
    """A new data file.

    Args:
        job: The state that all files share.
        first: The source of its first row group.
        partition: The partition.
        origins: Records where rows come from.

    Attributes:
        deleted: The positions of deleted rows.
    """

    def __init__(
        self, job: CopyJob, first: RowGroupSource, partition: tuple[Any, ...], origins: OriginLog | None
    ) -> None:
        self._job, self._partition, self._origins = job, partition, origins
        # Adjacent rows have adjacent ids: stored as differences they take almost no space, as numbers a byte each.
        self._lineage = NewColumns(job.lineage, job.context.options, deltas=(ROW_ID,))
        self._file = job.output.open("parquet", job.context.default_spec_id, partition)
        self._spliced = SplicedFile(first.copied, self._write)
        self._sources = [first]
        self._copied: dict[str, int] = {}
        self._rows = 0
        self.deleted = PositionDeleteIndex()

    def abort(self) -> None:
        """Drop the new columns; the caller deletes the file."""
        self._lineage.abort()

    def _write(self, data: bytes) -> None:
        with write_errors(self._file.location):
            self._file.stream.write(data)

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return self._spliced.size

    def add(self, source: RowGroupSource, place: int, start: int, group: RowGroup) -> None:
        """Copy a row group.

        Args:
            source: Its file.
            place: Its index in the file.
            start: The position of its first row in the file.
            group: The row group.
        """
        if self._sources[-1] is not source:
            self._sources.append(source)
        with file_errors(source.task.path):
            lineage = list(self._lineage_rows(source, place, group))
            pages = self._lineage.row_group(lineage) if lineage else {}
            self._spliced.add_row_group(group, group.rows, pages, source.copied)
        mask = source.rows.deleted_mask(start, group.rows)
        if mask is not None:
            self.deleted.add_many(np.flatnonzero(mask) + self._rows)
        if self._origins is not None:
            self._origins.note_copied(self._file.location, source.task.file_ordinal, start, group.rows)
        self._copied[source.task.path] = self._copied.get(source.task.path, 0) + group.rows
        self._rows += group.rows

    def _lineage_rows(self, source: RowGroupSource, place: int, group: RowGroup) -> Iterator[pa.RecordBatch]:
        if not self._job.lineage.columns:
            return
        rows = 0
        for found in source.rows.rows(place):
            rows += found.batch.num_rows
            yield self._job.lineage.batch(found.batch.columns)
        if rows != group.rows:
            raise RowConservationError(
                f"Rows do not add up: a row group of {group.rows} rows has {rows} row ids", file=source.task.path
            )

    def deletes(self) -> FileDeletes:
        """Return the deleted rows."""
        spec_id = self._job.context.default_spec_id
        return FileDeletes(path=self._file.location, spec_id=spec_id, partition=self._partition, positions=self.deleted)

    def joined_file(self) -> JoinedDataFile:
        """Return the old files."""
        whole = {source.task.path: source.task.record_count for source in self._sources}
        sources = tuple((path, rows == whole[path]) for path, rows in self._copied.items())
        return JoinedDataFile(path=self._file.location, sources=sources)

    def close(self) -> ContentFile:
        """Complete the file, and return it with the metrics of its footer."""
        key_values = {ICEBERG_SCHEMA: self._job.layout.schema_json}
        row_map = None if self._origins is None else self._origins.row_map(self._file.location)
        if row_map is not None:
            key_values[ROW_MAP_KEY] = row_map
        writers = {source.old.footer.created_by for source in self._sources}
        created_by = None if len(writers) == 1 else CREATED_BY
        lineage = self._lineage.close()
        with file_errors(self._sources[0].task.path):
            footer = self._spliced.close(lineage, key_values, created_by)
        self._job.output.close(self._file)
        # Arrow parses the new footer before any reader depends on it.
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
        if metadata.num_rows != self._rows:
            raise RowConservationError(f"Rows do not add up: {self._rows} copied, {metadata.num_rows} in the footer")
        metrics = parquet_metrics(metadata, self._job.layout.leaves, self._modes(), {})
        return ContentFile(
            content=FileContent.DATA,
            path=self._file.location,
            file_format="parquet",
            spec_id=self._job.context.default_spec_id,
            partition=self._partition,
            record_count=self._rows,
            file_size_in_bytes=self._spliced.size,
            split_offsets=split_offsets(metadata),
            sort_order_id=self._job.layout.sort_order_id,
            **{name: getattr(metrics, name) for name in metrics.__slots__},
        )

    def _modes(self) -> dict[int, MetricsMode]:
        """Return the metrics modes: not all writers exclude NaN from the bounds in their footers."""
        modes = dict(self._job.layout.modes)
        if all(excludes_nan(source.old.footer) for source in self._sources):
            return modes
        for leaf in self._job.layout.leaves:
            if is_floating(leaf) and leaf.field.field_id in modes:
                modes[leaf.field.field_id] = replace(modes[leaf.field.field_id], bounds=False)
        return modes


def are_same_types(columns: Sequence[SplicedColumn], others: Sequence[SplicedColumn]) -> bool:
    """Return True if chunks of two files can be in one file."""
    return all(
        column.copied is None or other.copied is None or same_type(column.copied, other.copied)
        for column, other in zip(columns, others, strict=True)
    )


def groups_of(footer: Footer, task: ScanTask) -> Iterator[tuple[int, int, RowGroup]]:
    """Yield the row groups that start in a scan task's byte range, as `dml.read.reader` chooses them."""
    end = task.start + task.length
    is_last = end >= task.file_size_in_bytes
    position = 0
    for place, group in enumerate(footer.row_groups):
        start = min(part.pages[0] for part in group.chunks[:1])
        if (start >= task.start or task.start == 0) and (is_last or start < end):
            yield place, position, group
        position += group.rows


def size_of(group: RowGroup) -> int:
    """Return the compressed bytes of a row group."""
    return sum(chunk.pages[1] for chunk in group.chunks)


def with_joined_metrics(
    files: Sequence[ContentFile],
    joined_files: Sequence[JoinedDataFile],
    table: Table,
    snapshot_id: int,
    data_manifests: Mapping[str, str],
    context: WriteContext,
) -> tuple[ContentFile, ...]:
    """Add NaN counts and bounds of floating-point columns to the metrics of new files with copied row groups.

    Args:
        files: The new files.
        joined_files: The new files with copied row groups.
        table: The table.
        snapshot_id: The snapshot that was read.
        data_manifests: The manifest of each data file that was read.
        context: The write.

    Raises:
        CorruptFileError: A manifest is missing or broken.
        ExecutionError: The storage failed.
    """
    layout = file_layout(context, row_lineage=False)
    floating = [
        leaf
        for leaf in layout.leaves
        if is_floating(leaf) and not leaf.repeated and layout.modes.get(leaf.field.field_id, NO_METRICS).counts
    ]
    if not joined_files or not floating:
        return tuple(files)
    paths = {path for file in joined_files for path, _ in file.sources}
    entries = entries_by_path(table, snapshot_id, {path: data_manifests[path] for path in paths})
    joined = {file.path: file for file in joined_files}
    return tuple(
        with_float_metrics(file, joined[file.path], entries, floating, layout.modes) if file.path in joined else file
        for file in files
    )


NO_METRICS: Final = MetricsMode(counts=False, bounds=False)


def with_float_metrics(
    file: ContentFile,
    joined: JoinedDataFile,
    entries: Mapping[str, ContentFile],
    floating: Sequence[Leaf],
    modes: Mapping[int, MetricsMode],
) -> ContentFile:
    """Return a new data file with the NaN counts and bounds of floating-point columns.

    Args:
        file: The new file.
        joined: Its old files.
        entries: The manifest entries of old files, by path. NaN in a bound tells nothing about the file's values.
        floating: The leaves of the columns.
        modes: The metrics modes, by field id.
    """
    nans, lower, upper = dict(file.nan_value_counts), dict(file.lower_bounds), dict(file.upper_bounds)
    sources = [(entries[path], is_whole) for path, is_whole in joined.sources]
    for leaf in floating:
        field_id, kind = leaf.field.field_id, leaf.field.field_type
        assert isinstance(kind, PrimitiveType)
        counts = [nan_count(entry, field_id, is_whole=is_whole) for entry, is_whole in sources]
        known = [number for number in counts if number is not None]
        if len(known) == len(counts):
            nans[field_id] = sum(known)
        if not modes[field_id].bounds or field_id in lower or field_id in upper:
            continue
        filled = [entry for entry, _ in sources if may_have_numbers(entry, field_id)]
        try:
            least = [float_value(entry.lower_bounds[field_id], kind) for entry in filled]
            greatest = [float_value(entry.upper_bounds[field_id], kind) for entry in filled]
        except (KeyError, struct.error):  # a file without bounds may have any number
            continue
        if any(map(math.isnan, (*least, *greatest))):  # such bounds tell nothing
            continue
        low = lower_bound(min(least), kind, None) if least else None
        high = upper_bound(max(greatest), kind, None) if greatest else None
        if low is not None and high is not None:
            lower[field_id], upper[field_id] = low, high
    return replace(file, nan_value_counts=nans, lower_bounds=lower, upper_bounds=upper)


def nan_count(entry: ContentFile, field_id: int, *, is_whole: bool) -> int | None:
    """Return the number of NaNs in the copied rows of an old file; None if unknown."""
    found = entry.nan_value_counts.get(field_id)
    return found if is_whole or not found else None


def may_have_numbers(entry: ContentFile, field_id: int) -> bool:
    """Return False if all values of a floating-point column are NULL or NaN."""
    values, nulls = entry.value_counts.get(field_id), entry.null_value_counts.get(field_id)
    nans = entry.nan_value_counts.get(field_id)
    return values is None or nulls is None or nans is None or nulls + nans < values
