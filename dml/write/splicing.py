"""Splice data files: copy-on-write that copies bytes instead of decoding rows. Worker; `with_copied_metrics`: driver.

Input: a data file and its changes. Output: a data file with the remaining rows, in their order. Spec: "Row Lineage".

`Splicer` decides from a file's footer and its changes, before anything is written, whether the file can be spliced and
whether that copies anything; all other files are rewritten. `FileSplice` then processes one row group after the other:

- no row leaves: its chunks are copied, except for columns that are assigned or that row lineage renews;
- some rows leave: the remaining rows are encoded again, together with those of neighbouring row groups;
- all rows leave: nothing is read.

New rows of a MERGE become the last row group of a spliced file of their partition, to avoid another small file. Small
row groups at the end of a file, from earlier MERGEs, are encoded again as one, together with the new rows.

`NewColumns` encodes each new column to a Parquet file of its own, in memory, which holds only the pages of one row
group at a time.

On the worker, the metrics of copied columns come from the footer, which has less than a manifest entry: it has no
NaN counts, and other writers truncate values. `with_copied_metrics` completes them on the driver, from the manifest
entry of the replaced file. Spec: "Manifests", fields 108 to 128 and 140.
"""

from collections import OrderedDict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import BinaryType, FixedType, IcebergType, StringType

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.files.file_io import file_errors
from dml.manifests.read import entries_of, manifests_of
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID, DeltaLayout
from dml.model.manifest import ContentFile, FileContent
from dml.model.scan_task import ScanTask
from dml.model.write_task import SplicedDataFile, WriteContext
from dml.options import RowLevelOperationMode, WriteOptions
from dml.read.reader import FileBatch, PieceReader
from dml.splice.footer import MAGIC, TRAILER_BYTES, Footer, Range, RowGroup, annotate_variants, footer_length
from dml.splice.spliced_file import ColumnFile, SplicedFile
from dml.splice.thrift_compact import Fields
from dml.write.column_metrics import (
    ColumnMetrics,
    Leaf,
    MetricsMode,
    NanCounter,
    leaves,
    metrics_modes,
    parquet_metrics,
)
from dml.write.delta_rows import ChangeCursor, Mask, OriginLog, RowBuilder, missing_row_error
from dml.write.file_layout import FileLayout
from dml.write.output_files import OutputFile, OutputFileFactory, write_errors
from dml.write.parquet import dictionary_columns, geometry_schema, open_parquet, split_offsets
from dml.write.splice_columns import (
    OldFile,
    SpliceColumns,
    absent_leaves,
    is_floating,
    key_values,
    new_bytes,
    new_bytes_ratio,
    open_old_file,
    physical_leaves,
    read_offset_indexes,
    splice_columns,
)
from dml.write.writer_spec import WriteJob, WriterSpec, current_spec

__all__ = [
    "NewColumns",
    "Splicer",
    "copied_metrics",
    "entries_by_path",
    "may_splice",
    "may_splice_statement",
    "with_copied_metrics",
    "written_footer",
]


class PageSink:
    """A write-only file in memory. `take` removes the bytes that were written so far."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self._start = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes."""
        self._parts.append(bytes(data))
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the number of bytes written, including those that were taken."""
        return self._size

    def flush(self) -> None:
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Close the file. Bytes that were not taken stay."""
        self.closed = True

    def take(self) -> tuple[int, bytes]:
        """Return the offset of the bytes since the last call, and these bytes."""
        start, data = self._start, b"".join(self._parts)
        self._start, self._parts = self._size, []
        return start, data


class NewColumns:
    """Write each column to a Parquet file of its own.

    Args:
        layout: All columns that may have new chunks.
        options: Sizes and compression.
        deltas: Columns of integers that are stored as differences.
    """

    def __init__(self, layout: FileLayout, options: WriteOptions, deltas: Collection[str] = ()) -> None:
        self._layout = layout
        self._options = options
        self._deltas = deltas
        self._schema = stored_schema(layout)
        self._files: dict[str, tuple[PageSink, pq.ParquetWriter]] = {}

    def row_group(self, batches: Sequence[pa.RecordBatch]) -> dict[str, tuple[int, bytes]]:
        """Write a row group of some columns.

        Args:
            batches: The rows, with exactly the columns that have new chunks in this row group.

        Returns:
            By column: the offset of its pages in its own file, and the pages.
        """
        table = pa.Table.from_batches(batches)
        if self._layout.has_geometries:
            table = table.cast(pa.schema([self._schema.field(name) for name in table.column_names]))
        repeating: list[str] | None = None
        pages = {}
        for name in table.column_names:
            if name not in self._files:
                repeating = dictionary_columns(table) if repeating is None else repeating
                self._open(name, repeating, table.num_rows)
            sink, writer = self._files[name]
            writer.write_table(table.select([name]), row_group_size=max(1, table.num_rows))
            pages[name] = sink.take()
        return pages

    def _open(self, column: str, repeating: Sequence[str], rows: int) -> None:
        sink = PageSink()
        own = {name: part for name, part in self._layout.bloom_filters.items() if is_part(name, column)}
        writer = open_parquet(
            pa.PythonFile(sink, mode="w"),
            pa.schema([self._schema.field(column)]),
            self._options,
            dictionary=[name for name in repeating if is_part(name, column) and name not in self._deltas],
            deltas=[column] if column in self._deltas else [],
            footer=[],
            bloom_filters={name: {"ndv": max(1, rows), "fpp": probability} for name, probability in own.items()},
        )
        sink.take()  # Parquet's magic bytes
        self._files[column] = sink, writer

    def close(self) -> dict[str, ColumnFile]:
        """Close the files of all columns.

        Returns:
            By column: its footer, and the bytes after its pages.
        """
        ids = self._layout.variant_ids
        return {name: column_file(sink, writer, ids) for name, (sink, writer) in self._files.items()}

    def abort(self) -> None:
        """Drop the columns."""
        for _, writer in self._files.values():
            writer.is_open = False  # an open writer writes its footer when it is garbage-collected


def stored_schema(layout: FileLayout) -> pa.Schema:
    """Return the schema for Arrow's Parquet writer."""
    return geometry_schema(layout.columns) if layout.has_geometries else layout.arrow


def written_footer(layout: FileLayout, options: WriteOptions) -> Footer:
    """Return the footer of a file without rows, which has the physical types of the columns.

    Args:
        layout: The columns.
        options: Sizes and compression.
    """
    sink = PageSink()
    schema = stored_schema(layout)
    open_parquet(pa.PythonFile(sink, mode="w"), schema, options, dictionary=False, footer=[]).close()
    data = sink.take()[1]
    length = footer_length(data[-TRAILER_BYTES:], len(data))
    start = len(data) - TRAILER_BYTES - length
    return Footer.of(annotate_variants(data[start:-TRAILER_BYTES], layout.variant_ids), start)


def is_part(name: str, column: str) -> bool:
    """Return True if a dotted name is a column or a field inside it."""
    return name == column or name.startswith(f"{column}.")


def column_file(sink: PageSink, writer: Any, variant_ids: frozenset[int]) -> ColumnFile:
    """Close the file of a column, and return its footer and the bytes after its pages."""
    writer.close()
    start, tail = sink.take()
    length = footer_length(tail[-TRAILER_BYTES:], sink.tell())
    end = sink.tell() - TRAILER_BYTES
    footer = Footer.of(annotate_variants(tail[-TRAILER_BYTES - length : -TRAILER_BYTES], variant_ids), end - length)
    return ColumnFile(footer=footer, tail=tail, tail_start=start)


def with_copied_metrics(
    files: Sequence[ContentFile],
    spliced_files: Sequence[SplicedDataFile],
    table: Table,
    snapshot_id: int | None,
    data_manifests: Mapping[str, str],
    context: WriteContext,
) -> tuple[ContentFile, ...]:
    """Return new data files, where spliced ones get the metrics and sort order of their copied columns.

    Args:
        files: The new files.
        spliced_files: Those that were spliced.
        table: The table.
        snapshot_id: The snapshot that was read.
        data_manifests: The manifest of each data file that was read.
        context: The write.

    Raises:
        CorruptFileError: A manifest is missing or broken.
        ExecutionError: The storage failed.
    """
    if not spliced_files:
        return tuple(files)
    replaced = {file.replaces for file in spliced_files}
    entries = entries_by_path(table, snapshot_id, {path: data_manifests[path] for path in replaced})
    schema = Schema.model_validate_json(context.schema_json)
    sorted_ids = [field.source_id for field in table.sort_order().fields]
    modes = metrics_modes(schema, context.properties, sorted_ids)
    spliced = {file.path: file for file in spliced_files}
    return tuple(
        copied_metrics(file, spliced[file.path], entries[spliced[file.path].replaces], modes, schema)
        if file.path in spliced
        else file
        for file in files
    )


def entries_by_path(table: Table, snapshot_id: int | None, manifests: Mapping[str, str]) -> dict[str, ContentFile]:
    """Return the manifest entries of data files. Decoding of a manifest stops at the last of them.

    Args:
        table: The table.
        snapshot_id: The snapshot that has the files.
        manifests: The manifest of each file, by the file's path.
    """
    snapshot = None if snapshot_id is None else table.snapshot_by_id(snapshot_id)
    wanted: dict[str, set[str]] = {}
    for path, manifest_path in manifests.items():
        wanted.setdefault(manifest_path, set()).add(path)
    found: dict[str, ContentFile] = {}
    for manifest in manifests_of(table.io, snapshot):
        missing = wanted.get(manifest.manifest_path, set())
        for entry in entries_of(manifest, table.io, live_only=True) if missing else ():
            if entry.data_file.path in missing:
                missing.remove(entry.data_file.path)
                found[entry.data_file.path] = entry.data_file
            if not missing:
                break
    return found


COUNTS: Final = ("value_counts", "null_value_counts", "nan_value_counts")
BOUNDS: Final = ("lower_bounds", "upper_bounds")


def copied_metrics(
    file: ContentFile,
    spliced: SplicedDataFile,
    entry: ContentFile,
    modes: Mapping[int, MetricsMode],
    schema: Schema,
) -> ContentFile:
    """Return a new file with the metrics of the old one for the copied columns.

    Metrics that the old entry lacks, because the table's properties differed then, stay as in the footer. Metrics that
    the properties no longer include are dropped.

    Args:
        file: The new file, with the metrics of its footer.
        spliced: The copied columns.
        entry: The old file.
        modes: The metrics modes of the table's fields.
        schema: The table's schema.
    """
    wanted = {field_id: modes[field_id] for field_id in spliced.copied_ids if field_id in modes}
    counted = [field_id for field_id, mode in wanted.items() if mode.counts]
    bounded = [field_id for field_id in counted if wanted[field_id].bounds]
    values: dict[str, Any] = {
        name: overlay_metrics(getattr(file, name), getattr(entry, name), counted) for name in COUNTS
    }
    for name in BOUNDS:
        old: Mapping[int, bytes] = getattr(entry, name)
        fitting = [
            field_id
            for field_id in bounded
            if field_id in old and fits(old[field_id], schema.find_type(field_id), wanted[field_id].length)
        ]
        values[name] = overlay_metrics(getattr(file, name), old, fitting)
    values["nan_value_counts"].update(changed_nans(spliced, entry, modes))
    return replace(file, sort_order_id=entry.sort_order_id, **values)


def changed_nans(
    spliced: SplicedDataFile, entry: ContentFile, modes: Mapping[int, MetricsMode]
) -> Iterator[tuple[int, int]]:
    """Yield the NaN counts of columns that are new in a part of the file, by field id, if they are certain."""
    for field_id, new in spliced.new_nans.items():
        before = entry.nan_value_counts.get(field_id)
        if before is None or field_id not in modes or not modes[field_id].counts:
            continue
        if spliced.old_nans is not None and before >= spliced.old_nans.get(field_id, 0):
            yield field_id, before - spliced.old_nans.get(field_id, 0) + new
        elif not before:
            yield field_id, new


def overlay_metrics(new: Mapping[int, Any], old: Mapping[int, Any], ids: Iterable[int]) -> dict[int, Any]:
    """Overwrite the metrics of some columns with those of the old file, if it has them."""
    return {**new, **{field_id: old[field_id] for field_id in ids if field_id in old}}


def fits(bound: bytes, field_type: IcebergType, length: int | None) -> bool:
    """Return True if a bound respects the length that the metrics mode allows."""
    if length is None or not isinstance(field_type, StringType | BinaryType | FixedType):
        return True
    return len(bound.decode("utf-8", "replace") if isinstance(field_type, StringType) else bound) <= length


@dataclass(frozen=True, slots=True, kw_only=True)
class SpliceJob:
    """The state that all spliced files of a task share.

    Attributes:
        layout: The columns of new files.
        delta: The columns of the delta.
        output: Opens new files.
        context: The write.
        schema: The table's schema.
        lineage: The row lineage columns, if rows keep their ids.
        constant_ids: The columns whose values are a partition's: files may lack them.
        origins: Records where rows come from; None if the job does not track it.
    """

    layout: FileLayout
    delta: DeltaLayout
    output: OutputFileFactory
    context: WriteContext
    schema: Schema
    lineage: tuple[str, ...] = ()
    constant_ids: frozenset[int] = frozenset()
    origins: OriginLog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spliced:
    """The row counts of a spliced data file.

    Attributes:
        rows_before: Live rows before the changes.
        rows_carried: Rows copied unchanged.
    """

    rows_before: int
    rows_carried: int


class GroupFate(Enum):
    """How a row group is written to the new file."""

    UNTOUCHED = auto()
    UPDATED = auto()
    REWRITTEN = auto()
    DROPPED = auto()


class RowGroupWriter:
    """The columns, readers and counters for the row groups that share a `GroupFate`.

    Args:
        job: The state that all files share.
        layout: The columns that are new.
        reader: Reads these columns.
        shared: Columns that are copied elsewhere in the file.
    """

    def __init__(self, job: SpliceJob, layout: FileLayout, reader: PieceReader, shared: frozenset[str]) -> None:
        self.layout = layout
        self.reader = reader
        self.builder = RowBuilder(layout, job.delta)
        self.new_nans = NanCounter(layout.leaves, layout.modes)
        replaced = tuple(leaf for leaf in layout.leaves if layout.columns[leaf.path[0]].name in shared)
        self.old_nans = NanCounter(replaced, layout.modes)


class FileSplice:
    """Splice one data file.

    Args:
        job: The state that all files share.
        old: The old file.
        columns: The columns that may be copied.
        readers: Read the columns that are new in untouched, updated and rewritten row groups, in this order.
        changes: The changes of the file.
        max_new_bytes: Limit for the new columns of a row group whose rows stay together.
    """

    def __init__(
        self,
        job: SpliceJob,
        old: OldFile,
        columns: SpliceColumns,
        readers: tuple[PieceReader, ...],
        changes: ChangeCursor,
        *,
        max_new_bytes: int,
    ) -> None:
        self._job = job
        self._old = old
        self._columns = columns
        self._indexes: Mapping[Range, Fields] = {}
        self._changes = changes
        self._max_new_bytes = max_new_bytes
        layouts = (columns.untouched, columns.updated, columns.rewritten)
        shared = frozenset(column.name for column in columns.columns if column.copied is not None)
        self._parts = {
            fate: RowGroupWriter(job, layout, reader, shared)
            for fate, layout, reader in zip(
                (GroupFate.UNTOUCHED, GroupFate.UPDATED, GroupFate.REWRITTEN), layouts, readers, strict=True
            )
        }
        self._new = NewColumns(columns.rewritten, job.context.options)
        self._pending = PendingRows(job.context.options)
        self._first_joined = first_joined_group(old.footer, columns)
        self._output: OutputFile | None = None
        self._spliced: SplicedFile | None = None
        self._rows_before = self._rows_carried = self._rows_written = self._rows_added = 0
        self._fates: set[GroupFate] = set()
        self._renewed: set[str] = set()
        self._copied: set[str] = set()

    def is_worth_it(self) -> bool:
        """Return True if any chunk will be copied, or if every row leaves. Consumes no change."""
        fates = set()
        for place, start in self._starts():
            fate = self._fate(place, start)
            if fate is None:
                return False
            if fate in {GroupFate.UNTOUCHED, GroupFate.UPDATED} and self._columns.copies(self._parts[fate].layout):
                return True
            fates.add(fate)
        return fates == {GroupFate.DROPPED}

    def _starts(self) -> Iterator[tuple[int, int]]:
        """Yield the index of each row group and the position of its first row."""
        start = 0
        for place, group in enumerate(self._old.footer.row_groups):
            yield place, start
            start += group.rows

    def _fate(self, place: int, start: int) -> GroupFate | None:
        """Return the fate of a row group, or None if it has too many changes to decide in advance."""
        group = self._old.footer.row_groups[place]
        ahead = self._changes.ahead(start, start + group.rows, limits.MAX_HELD_CHANGE_BYTES)
        if not self._columns.loses_rows and place < self._first_joined:
            return GroupFate.UNTOUCHED if ahead is not None and not len(ahead.positions) else GroupFate.UPDATED
        if ahead is None:
            return None
        dead = self._parts[GroupFate.REWRITTEN].reader.deleted_mask(start, group.rows)
        places = ahead.positions - start
        if dead is None and ahead.updates == len(places) and place < self._first_joined:
            fate = GroupFate.UPDATED if len(places) else GroupFate.UNTOUCHED
            size = new_bytes(self._old.footer, group, self._parts[fate].layout)
            return fate if size <= self._max_new_bytes else GroupFate.REWRITTEN
        live = group.rows if dead is None else group.rows - int(dead.sum())
        goes = not ahead.updates and len(places) == live and (dead is None or not dead[places].any())
        return GroupFate.DROPPED if goes else GroupFate.REWRITTEN

    @property
    def is_open(self) -> bool:
        """True if the new file exists and accepts new rows."""
        return self._output is not None

    def run(self, indexes: Mapping[Range, Fields]) -> Spliced:
        """Write the remaining rows of the old file.

        Args:
            indexes: The offset indexes of chunks that may be copied.

        Raises:
            DataError: A new value violates a constraint.
            ExecutionError: The changes do not fit the file.
            CorruptFileError: The file breaks its format.
        """
        self._indexes = indexes
        try:
            for place, start in self._starts():
                fate = self._fate(place, start) or GroupFate.REWRITTEN
                self._fates.add(fate)
                match fate:
                    case GroupFate.DROPPED:
                        gone = self._changes.before(start + self._old.footer.row_groups[place].rows)
                        self._rows_before += 0 if gone is None else len(gone)
                    case GroupFate.REWRITTEN:
                        self._rewrite(place)
                    case GroupFate.UNTOUCHED | GroupFate.UPDATED:
                        self._copy(place, start, fate)
            if self._pending.bytes > limits.MAX_JOINED_GROUP_BYTES:
                self._write_pending()
        except BaseException:
            self.abort()
            raise
        if not self._changes.exhausted():
            self.abort()
            raise missing_row_error(self._old.task, self._changes.next_position)
        return Spliced(rows_before=self._rows_before, rows_carried=self._rows_carried)

    def append(self, rows: pa.RecordBatch) -> None:
        """Add new rows to the open file.

        Args:
            rows: The rows, with all columns of new files.
        """
        file, _ = self._open_output()
        if self._job.origins is not None:
            rows = self._job.origins.take(self._job.origins.with_new_origins(rows), file.location)
        self._rows_added += rows.num_rows
        self._rows_written += rows.num_rows
        for full in self._pending.add(rows):
            self._write(self._parts[GroupFate.REWRITTEN], full, None)

    def abort(self) -> None:
        """Drop the new columns; the caller deletes the file."""
        self._new.abort()

    def _rewrite(self, place: int) -> None:
        """Encode the remaining rows of a row group."""
        part = self._parts[GroupFate.REWRITTEN]
        for rows in part.reader.rows(place):
            batch, keep = self._changed(part, rows)
            if keep is not None:
                batch = batch.filter(pa.array(keep))
            self._rows_carried += batch.num_rows
            if batch.num_rows:
                self._note(rows.start_position, rows.batch.num_rows, keep)
                for full in self._pending.add(batch):
                    self._write(part, full, None)

    def _write_pending(self) -> None:
        rest = self._pending.take()
        if rest:
            self._write(self._parts[GroupFate.REWRITTEN], rest, None)

    def _copy(self, place: int, start: int, fate: GroupFate) -> None:
        """Write a row group whose rows all stay, and copy the columns that are not new."""
        self._write_pending()
        group, part = self._old.footer.row_groups[place], self._parts[fate]
        self._note(start, group.rows, None)
        self._rows_carried += group.rows
        batches = []
        if part.layout.columns:
            for rows in part.reader.rows(place):
                batch, keep = self._changed(part, rows)
                assert keep is None, "only row groups that keep all their rows can be copied"
                batches.append(batch)
        else:
            self._rows_before += group.rows
        self._write(part, batches, group)

    def _changed(self, part: RowGroupWriter, rows: FileBatch) -> tuple[pa.RecordBatch, Mask | None]:
        """Apply changes to rows and count them. Return the rows and the mask of those that stay."""
        changes = self._changes.before(rows.start_position + rows.batch.num_rows)
        self._rows_before += rows.batch.num_rows if rows.live is None else int(rows.live.sum())
        part.old_nans.add(rows.batch.columns)
        batch, keep, updates = part.builder.apply_changes(rows, changes)
        self._rows_carried -= updates
        return batch, keep

    def _note(self, start: int, rows: int, keep: Mask | None) -> None:
        """Record where the next rows of the new file come from."""
        self._rows_written += rows if keep is None else int(keep.sum())
        file, _ = self._open_output()
        if self._job.origins is not None:
            self._job.origins.note_copied(file.location, self._old.task.file_ordinal, start, rows, keep)

    def _open_output(self) -> tuple[OutputFile, SplicedFile]:
        """Return the new file, opened for its first row."""
        if self._output is None or self._spliced is None:
            task = self._old.task
            self._output = file = self._job.output.open("parquet", self._job.context.default_spec_id, task.partition)

            def write(data: bytes) -> None:
                with write_errors(file.location):
                    file.stream.write(data)

            self._spliced = SplicedFile(self._old.copied(self._columns.columns, self._indexes), write)
        return self._output, self._spliced

    def _write(self, part: RowGroupWriter, batches: list[pa.RecordBatch], group: RowGroup | None) -> None:
        """Write a row group.

        Args:
            part: The columns that are new.
            batches: The rows of these columns.
            group: The old row group whose other columns are copied; None if all columns are new.
        """
        for batch in batches:
            part.new_nans.add(batch.columns)
        pages = self._new.row_group(batches) if batches else {}
        rows = sum(batch.num_rows for batch in batches) if group is None else group.rows
        with file_errors(self._old.task.path):
            self._open_output()[1].add_row_group(group, rows, pages)
        self._renewed.update(pages)
        self._copied.update(column.name for column in self._columns.columns if column.name not in pages)

    def close(self) -> tuple[ContentFile, SplicedDataFile] | None:
        """Complete the new file. Return it with the metrics from its footer, and its copied columns.

        Returns:
            None if no rows remain, so that no file was written.
        """
        self._write_pending()
        spliced, file = self._spliced, self._output
        if spliced is None or file is None:
            return None
        columns, layout, task = self._columns.columns, self._job.layout, self._old.task
        with file_errors(task.path):
            metadata_entries = key_values(self._old.footer, columns, layout, self._job.schema)
            footer = spliced.close(self._new.close(), metadata_entries)
        self._job.output.close(file)
        # Arrow parses the new footer before any reader depends on it.
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
        physical = physical_leaves(columns, layout)
        whole = self._whole_columns()
        new_nans = sum_nan_counts(part.new_nans for part in self._parts.values())
        exact = {
            leaf.field.field_id
            for column, found in zip(columns, physical, strict=True)
            for leaf in found
            if column.name not in self._copied
        }
        metrics = parquet_metrics(
            metadata,
            tuple(chain.from_iterable(physical)),
            self._modes(metadata, physical, whole),
            {field_id: number for field_id, number in new_nans.items() if field_id in exact},
        )
        for leaf in absent_leaves(physical, layout, self._job.constant_ids):
            add_nulls(metrics, leaf, self._job.layout.modes, self._rows_written)
        ids = frozenset(
            field_id
            for column in columns
            if column.name in whole and column.copied is not None
            for field_id in column.copied.leaf_ids
            if field_id is not None
        )
        data_file = ContentFile(
            content=FileContent.DATA,
            path=file.location,
            file_format="parquet",
            spec_id=self._job.context.default_spec_id,
            partition=task.partition,
            record_count=self._rows_written,
            file_size_in_bytes=spliced.size,
            split_offsets=split_offsets(metadata),
            **{name: getattr(metrics, name) for name in metrics.__slots__},
        )
        copied = SplicedDataFile(
            path=file.location,
            replaces=task.path,
            copied_ids=ids,
            new_nans={field_id: number for field_id, number in new_nans.items() if field_id not in exact | ids},
            old_nans=None
            if GroupFate.DROPPED in self._fates
            else sum_nan_counts(part.old_nans for part in self._parts.values()),
        )
        return data_file, copied

    def _whole_columns(self) -> set[str]:
        """Return the columns whose content equals that of the old file."""
        changes_rows = self._rows_added or self._fates & {GroupFate.DROPPED, GroupFate.REWRITTEN}
        return set() if changes_rows else self._copied - self._renewed

    def _modes(
        self, metadata: pq.FileMetaData, physical: list[tuple[Leaf, ...]], whole: set[str]
    ) -> dict[int, MetricsMode]:
        """Return the metrics modes, without bounds where the footer's bounds are not those of the table's values.

        They differ for a copied column that was promoted, and may differ for one that can hold NaNs, because not all
        writers exclude NaN from bounds. Partly copied columns are not affected: they have the table's types, and their
        writer excludes NaN.
        """
        modes = dict(self._job.layout.modes)
        held = metadata.schema.to_arrow_schema()
        for column, found in zip(self._columns.columns, physical, strict=True):
            if column.name not in whole:
                continue
            same = held.field(column.name).type == self._job.layout.arrow.field(column.name).type
            for leaf in found:
                mode = modes.get(leaf.field.field_id)
                if mode is not None and (not same or is_floating(leaf)):
                    modes[leaf.field.field_id] = replace(mode, bounds=False)
        return modes


def add_nulls(metrics: ColumnMetrics, leaf: Leaf, modes: Mapping[int, MetricsMode], rows: int) -> None:
    """Add the metrics of a column that a file lacks, which readers return as NULL in each row.

    Without them, scans could not prune the file by this column as they prune a rewritten file.
    """
    field_id = leaf.field.field_id
    if field_id not in modes or not modes[field_id].counts:
        return
    metrics.value_counts[field_id] = metrics.null_value_counts[field_id] = rows
    if is_floating(leaf):
        metrics.nan_value_counts[field_id] = 0


def sum_nan_counts(counters: Iterable[NanCounter]) -> dict[int, int]:
    """Sum NaN counts by field id."""
    total: dict[int, int] = {}
    for counter in counters:
        for field_id, number in counter.counts.items():
            total[field_id] = total.get(field_id, 0) + number
    return total


class PendingRows:
    """Buffers rows until they fill a row group.

    Args:
        options: The size of row groups.

    Attributes:
        bytes: The size of the buffered rows.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._held: list[pa.RecordBatch] = []
        self._rows = self.bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[list[pa.RecordBatch]]:
        """Add rows; yield those of full row groups."""
        limit = self._options.row_group_rows
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, limit - self._rows)
            start += part.num_rows
            self._held.append(part)
            self._rows += part.num_rows
            self.bytes += part.nbytes
            if self._rows >= limit or self.bytes >= self._options.row_group_size:
                yield self.take()

    def take(self) -> list[pa.RecordBatch]:
        """Remove and return the buffered rows."""
        held, self._held = self._held, []
        self._rows = self.bytes = 0
        return held


def may_splice_statement(
    table: Table, mode: RowLevelOperationMode, options: WriteOptions, *, inserts: bool, assigned_ids: Collection[int]
) -> bool:
    """Return True if a statement keeps the remaining rows in file order, so that files can be spliced.

    Args:
        table: The table.
        mode: The mode of the statement.
        options: The table's properties.
        inserts: True if the statement may insert rows, which are appended to files and would break a sort order.
        assigned_ids: The columns that it assigns.
    """
    return (
        mode is not RowLevelOperationMode.MERGE_ON_READ
        and options.splice_enabled
        and options.file_format == "parquet"
        and not (inserts and any(order.fields for order in table.sort_orders().values()))
        and placing_columns(table).isdisjoint(assigned_ids)
    )


def placing_columns(table: Table) -> frozenset[int]:
    """Return the columns that determine the file and order of rows: sources of the spec and the sort orders."""
    sources = {field.source_id for field in table.spec().fields if not isinstance(field.transform, VoidTransform)}
    sources.update(field.source_id for order in table.sort_orders().values() for field in order.fields)
    columns = table.schema().fields
    return frozenset(columns[leaf.path[0]].field_id for leaf in leaves(columns) if leaf.field.field_id in sources)


def may_splice(task: ScanTask, spec_id: int, options: WriteOptions) -> bool:
    """Return True if a data file can be spliced, as far as its manifest entry shows.

    Args:
        task: The scan task of the file.
        spec_id: The spec of new files.
        options: The table's properties. Small files are rewritten, so that several of them become one.
    """
    return (
        task.file_format.lower() == "parquet"
        and task.spec_id == spec_id
        and not task.equality_deletes
        and task.file_size_in_bytes >= options.splice_min_file_size
    )


class Splicer:
    """Splice data files.

    Args:
        spec: The job.
        layout: The columns of new files.
        output: Opens new files.
        origins: Records where rows come from; None if the job does not track it.

    Attributes:
        data_files: The new files, with the metrics of their footers.
        spliced_files: The copied columns of these files.
    """

    def __init__(
        self, spec: WriterSpec, layout: FileLayout, output: OutputFileFactory, origins: OriginLog | None
    ) -> None:
        assert spec.files is not None
        fields = current_spec(spec.context).fields
        self._files = spec.files
        self._job = job = SpliceJob(
            layout=layout,
            delta=spec.layout,
            output=output,
            context=spec.context,
            schema=Schema.model_validate_json(spec.context.schema_json),
            constant_ids=frozenset(
                field.source_id for field in fields if isinstance(field.transform, IdentityTransform)
            ),
            lineage=(ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if spec.row_lineage else (),
            origins=origins,
        )
        self._deletes = spec.deletes
        self._written = written_footer(job.layout, job.context.options)
        # In other modes, new rows go to files of their own.
        self.gains_rows = bool(spec.layout.insert_ids) and spec.job is WriteJob.COPY_ON_WRITE
        self._open: OrderedDict[Hashable, tuple[FileSplice, ExitStack]] = OrderedDict()
        self.data_files: list[ContentFile] = []
        self.spliced_files: list[SplicedDataFile] = []

    def splice(self, task: ScanTask, changes: ChangeCursor) -> Spliced | None:
        """Splice a data file.

        Args:
            task: The scan task of the file.
            changes: The changes of the file.

        Returns:
            The row counts. None, with no change consumed, if the file cannot be spliced or nothing would be copied.

        Raises:
            DataError: A new value violates a constraint.
            ExecutionError: The changes do not fit the file.
            CorruptFileError: The file breaks its format.
        """
        job = self._job
        if not may_splice(task, job.context.default_spec_id, job.context.options):
            return None
        with ExitStack() as stack:
            old = stack.enter_context(open_old_file(task, job.context.io_properties))
            if old is None:
                return None
            columns = self._columns(task, old.footer)
            if not columns.copies(columns.untouched) or is_too_large(old.footer, columns):
                return None
            choices = [self._choice(part) for part in (columns.untouched, columns.updated, columns.rewritten)]
            readers = stack.enter_context(self._files.pieces(task.file_ordinal, choices))
            splice = FileSplice(job, old, columns, readers, changes, max_new_bytes=limits.MAX_SPLICED_BYTES)
            if not splice.is_worth_it():
                return None
            indexes = read_offset_indexes(old, columns.columns)
            if indexes is None:
                return None
            done = splice.run(indexes)
            self._hold(task, splice, stack.pop_all())
        return done

    def append(self, spec_id: int, partition: tuple[Any, ...], rows: pa.RecordBatch) -> bool:
        """Add new rows to the last spliced file of their partition.

        Args:
            spec_id: The spec of new files.
            partition: The partition.
            rows: The rows, with all columns of new files.

        Returns:
            False if there is no such file.
        """
        found = self._open.get(partition_key(spec_id, partition))
        if found is not None:
            found[0].append(rows)
        return found is not None

    def close(self) -> None:
        """Complete the files that are still open."""
        while self._open:
            self._finish(*self._open.popitem(last=False)[1])

    def abort(self) -> None:
        """Drop the open files, which the caller deletes."""
        with ExitStack() as every:  # one that fails does not keep the others open
            for splice, stack in self._open.values():
                every.push(stack)
                every.callback(splice.abort)
            self._open.clear()

    def _hold(self, task: ScanTask, splice: FileSplice, stack: ExitStack) -> None:
        """Keep a file open for new rows and complete the previous one of its partition, or complete it now.

        New rows do not go to a file of the target size, because small MERGEs would add row groups to it forever.
        """
        is_full = task.file_size_in_bytes >= self._job.context.options.target_file_size
        if is_full or not (self.gains_rows and splice.is_open):
            self._finish(splice, stack)
            return
        key = partition_key(task.spec_id, task.partition)
        previous = self._open.pop(key, None)
        self._open[key] = (splice, stack)  # first, so that `abort` finds it if the previous one cannot be completed
        if previous is not None:
            self._finish(*previous)
        if len(self._open) > limits.MAX_OPEN_SPLICED_FILES:
            self._finish(*self._open.popitem(last=False)[1])

    def _finish(self, splice: FileSplice, stack: ExitStack) -> None:
        with stack:
            try:
                found = splice.close()
            except BaseException:
                splice.abort()
                raise
        if found is not None:
            self.data_files.append(found[0])
            self.spliced_files.append(found[1])

    def new_bytes_ratio(self, task: ScanTask) -> float | None:
        """Return the share of a data file's bytes that would be new if some of its rows were updated.

        Args:
            task: The scan task of the file.

        Returns:
            The share; None if the file cannot be spliced.

        Raises:
            CorruptFileError: The file has another size than expected.
            ExecutionError: The storage failed.
        """
        job = self._job
        if not may_splice(task, job.context.default_spec_id, job.context.options):
            return None
        with open_old_file(task, job.context.io_properties) as old:
            if old is None:
                return None
            columns = self._columns(task, old.footer)
            if not columns.copies(columns.updated) or is_too_large(old.footer, columns):
                return None
            return new_bytes_ratio(old.footer, columns.updated)

    def _columns(self, task: ScanTask, footer: Footer) -> SpliceColumns:
        """Return which columns of a file are copied."""
        return splice_columns(
            footer,
            self._job.layout,
            self._job.delta,
            self._written,
            lineage=len(self._job.lineage),
            loses_rows=self._deletes or task.has_deletes,
            gains_rows=self.gains_rows,
        )

    def _choice(self, layout: FileLayout) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Return the columns and metadata columns to read for new chunks."""
        ids = tuple(column.field_id for column in layout.columns)
        return ids[: len(ids) - len(self._job.lineage)], self._job.lineage


def first_joined_group(footer: Footer, columns: SpliceColumns) -> int:
    """Return the index of the first of the small row groups at the end of a file that are joined into one.

    Args:
        footer: The footer of the file.
        columns: The columns of the file.

    Returns:
        The number of row groups if none are joined: no rows may be appended, or less than two groups are small, or all
        of them are, so that nothing would be copied.
    """
    groups = footer.row_groups
    first, size = len(groups), 0
    while columns.gains_rows and first:
        size += new_bytes(footer, groups[first - 1], columns.rewritten)
        if size > limits.MAX_JOINED_GROUP_BYTES:
            break
        first -= 1
    return first if 0 < first < len(groups) - 1 else len(groups)


def is_too_large(footer: Footer, columns: SpliceColumns) -> bool:
    """Return True if a row group's new columns exceed the memory limit and its rows must stay together."""
    return not columns.loses_rows and any(
        new_bytes(footer, group, columns.updated) > limits.MAX_SPLICED_BYTES for group in footer.row_groups
    )
