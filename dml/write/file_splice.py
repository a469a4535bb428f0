"""Splices one data file, row group by row group. Worker.

Input: an open file, its changes, and which of its columns are new in which kind of row group. Output: a new file with
the rows that stay, in their order. A row group is copied, but for few columns, where none of its rows leaves; of
others the rows that stay are written anew, neighbours together; where no row stays, nothing is read.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from dml.files.file_io import file_errors
from dml.model.columns import DeltaLayout
from dml.model.manifest import ContentFile, FileContent
from dml.model.write_task import SplicedDataFile, WriteContext
from dml.options import WriteOptions
from dml.read.reader import FileBatch, PieceReader
from dml.splice.footer import MAGIC, Range, RowGroup
from dml.splice.spliced_file import SplicedFile
from dml.splice.thrift_compact import Fields
from dml.write.column_chunks import NewColumns
from dml.write.column_metrics import ColumnMetrics, Leaf, MetricsMode, NanCounter, parquet_metrics
from dml.write.delta_rows import ChangeCursor, misplaced
from dml.write.file_layout import FileLayout
from dml.write.output_files import OutputFile, OutputFileFactory, write_errors
from dml.write.parquet import split_offsets
from dml.write.row_builder import Mask, RowBuilder
from dml.write.row_log import OriginLog
from dml.write.splice_columns import SpliceColumns, absent_leaves, is_floating, key_values, new_bytes, physical_leaves
from dml.write.spliceable import OldFile

__all__ = ["FileSplice", "SpliceJob", "Spliced"]

MAX_AHEAD_BYTES: Final = 64 * 2**20
"""Changes of a file that are kept in memory before anything is done with them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpliceJob:
    """What is the same for all files of a task.

    Attributes:
        layout: The columns of new files.
        delta: The columns of the delta.
        output: Opens new files.
        context: The write.
        schema: The table's schema.
        lineage: The columns of row lineage, where rows keep their ids.
        constant_ids: The columns whose values are those of a partition: files may lack them.
        origins: Notes where rows come from; None where nobody asks.
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
    """A data file that was spliced.

    Attributes:
        rows_before: Rows of it that were live.
        rows_carried: Rows that are as they were.
        data_file: The new file; None where no row is left. Its metrics are as good as its footer.
        copied: What of it is copied.
    """

    rows_before: int
    rows_carried: int
    data_file: ContentFile | None = None
    copied: SplicedDataFile | None = None


class Fate(Enum):
    """What becomes of a row group."""

    UNTOUCHED = auto()
    UPDATED = auto()
    REWRITTEN = auto()
    GONE = auto()


class Part:
    """How row groups of one fate are written.

    Args:
        job: What is the same for all files.
        layout: The columns that are new.
        reader: Reads them.
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
    """The splicing of one data file.

    Args:
        job: What is the same for all files.
        old: The file.
        columns: What of it may be copied.
        readers: Of the columns that are new in untouched, updated and rewritten row groups.
        changes: Its changes.
        max_new_bytes: What the new columns of a row group may take in memory, if its rows stay together.
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
            fate: Part(job, layout, reader, shared)
            for fate, layout, reader in zip(
                (Fate.UNTOUCHED, Fate.UPDATED, Fate.REWRITTEN), layouts, readers, strict=True
            )
        }
        self._new = NewColumns(columns.rewritten, job.context.options)
        self._pending = PendingRows(job.context.options)
        self._output: OutputFile | None = None
        self._spliced: SplicedFile | None = None
        self._rows_before = self._rows_carried = self._rows_written = 0
        self._fates: set[Fate] = set()
        self._renewed: set[str] = set()
        self._copied: set[str] = set()

    def is_worth_it(self) -> bool:
        """Whether chunks are going to be copied, or every row leaves; no change is taken."""
        fates = set()
        for place, start in self._starts():
            fate = self._fate(place, start)
            if fate is None:
                return False
            if fate in {Fate.UNTOUCHED, Fate.UPDATED} and self._columns.copies(self._parts[fate].layout):
                return True
            fates.add(fate)
        return fates == {Fate.GONE}

    def _starts(self) -> Iterator[tuple[int, int]]:
        """The place of each row group, and the position of its first row."""
        start = 0
        for place, group in enumerate(self._old.footer.row_groups):
            yield place, start
            start += group.rows

    def _fate(self, place: int, start: int) -> Fate | None:
        """What becomes of a row group; None where there are too many changes to know that before they are taken."""
        group = self._old.footer.row_groups[place]
        ahead = self._changes.ahead(start, start + group.rows, MAX_AHEAD_BYTES)
        if not self._columns.loses_rows:
            return Fate.UNTOUCHED if ahead is not None and not len(ahead.positions) else Fate.UPDATED
        if ahead is None:
            return None
        dead = self._parts[Fate.REWRITTEN].reader.dead(start, group.rows)
        places = ahead.positions - start
        if dead is None and ahead.updates == len(places):
            fate = Fate.UPDATED if len(places) else Fate.UNTOUCHED
            size = new_bytes(self._old.footer, group, self._parts[fate].layout)
            return fate if size <= self._max_new_bytes else Fate.REWRITTEN
        live = group.rows if dead is None else group.rows - int(dead.sum())
        goes = not ahead.updates and len(places) == live and (dead is None or not dead[places].any())
        return Fate.GONE if goes else Fate.REWRITTEN

    def run(self, indexes: Mapping[Range, Fields]) -> Spliced:
        """Writes the new file.

        Args:
            indexes: The offset indexes of chunks that may be copied.

        Raises:
            DataError: a new value breaks a rule.
            ExecutionError: the changes do not fit the file.
            CorruptFileError: the file breaks its format.
        """
        self._indexes = indexes
        try:
            for place, start in self._starts():
                fate = self._fate(place, start) or Fate.REWRITTEN
                self._fates.add(fate)
                match fate:
                    case Fate.GONE:
                        gone = self._changes.before(start + self._old.footer.row_groups[place].rows)
                        self._rows_before += 0 if gone is None else len(gone)
                    case Fate.REWRITTEN:
                        self._rewrite(place)
                    case Fate.UNTOUCHED | Fate.UPDATED:
                        self._copy(place, start, fate)
            self._write_pending()
            return self._close()
        except BaseException:
            self._new.abort()
            raise

    def _rewrite(self, place: int) -> None:
        """A row group of which rows leave."""
        part = self._parts[Fate.REWRITTEN]
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
            self._write(self._parts[Fate.REWRITTEN], rest, None)

    def _copy(self, place: int, start: int, fate: Fate) -> None:
        """A row group whose rows stay: the columns that are not new are copied."""
        self._write_pending()
        group, part = self._old.footer.row_groups[place], self._parts[fate]
        self._note(start, group.rows, None)
        self._rows_carried += group.rows
        batches = []
        if part.layout.columns:
            for rows in part.reader.rows(place):
                batch, keep = self._changed(part, rows)
                assert keep is None, "only row groups whose rows stay where they are can be copied"
                batches.append(batch)
        else:
            self._rows_before += group.rows
        self._write(part, batches, group)

    def _changed(self, part: Part, rows: FileBatch) -> tuple[pa.RecordBatch, Mask | None]:
        """Rows with their changes, and which of them stay; they are counted."""
        changes = self._changes.before(rows.start_position + rows.batch.num_rows)
        self._rows_before += rows.batch.num_rows if rows.live is None else int(rows.live.sum())
        part.old_nans.add(rows.batch.columns)
        batch, keep, updates = part.builder.changed(rows, changes)
        self._rows_carried -= updates
        return batch, keep

    def _note(self, start: int, rows: int, keep: Mask | None) -> None:
        """Notes where the next rows of the new file come from."""
        self._rows_written += rows if keep is None else int(keep.sum())
        file, _ = self._opened()
        if self._job.origins is not None:
            self._job.origins.copied(file.location, self._old.task.file_ordinal, start, rows, keep)

    def _opened(self) -> tuple[OutputFile, SplicedFile]:
        """The new file: there is none before there is a row for it."""
        if self._output is None or self._spliced is None:
            task = self._old.task
            self._output = file = self._job.output.open("parquet", self._job.context.default_spec_id, task.partition)

            def write(data: bytes) -> None:
                with write_errors(file.location):
                    file.stream.write(data)

            self._spliced = SplicedFile(self._old.footer, self._old.read, write, self._columns.columns, self._indexes)
        return self._output, self._spliced

    def _write(self, part: Part, batches: list[pa.RecordBatch], group: RowGroup | None) -> None:
        """Writes a row group.

        Args:
            part: Which of its columns are new.
            batches: The rows of these.
            group: The row group of the old file of which the other columns are copied; None where there are none.
        """
        for batch in batches:
            part.new_nans.add(batch.columns)
        pages = self._new.row_group(batches) if batches else {}
        rows = sum(batch.num_rows for batch in batches) if group is None else group.rows
        with file_errors(self._old.task.path):
            self._opened()[1].add_row_group(group, rows, pages)
        self._renewed.update(pages)
        self._copied.update(column.name for column in self._columns.columns if column.name not in pages)

    def _close(self) -> Spliced:
        """Ends the new file."""
        if not self._changes.exhausted():
            raise misplaced(self._old.task, self._changes.next_position)
        spliced, file = self._spliced, self._output
        if spliced is None or file is None:
            return Spliced(rows_before=self._rows_before, rows_carried=0)
        columns, layout, task = self._columns.columns, self._job.layout, self._old.task
        with file_errors(task.path):
            said = key_values(self._old.footer, columns, layout, self._job.schema)
            footer = spliced.close(self._new.close(), said)
        self._job.output.close(file)
        # Arrow reads what was written before anybody else does.
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
        physical = physical_leaves(columns, layout)
        whole = self._whole_columns()
        new_nans = added(part.new_nans for part in self._parts.values())
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
        return Spliced(
            rows_before=self._rows_before,
            rows_carried=self._rows_carried,
            data_file=ContentFile(
                content=FileContent.DATA,
                path=file.location,
                file_format="parquet",
                spec_id=self._job.context.default_spec_id,
                partition=task.partition,
                record_count=self._rows_written,
                file_size_in_bytes=spliced.size,
                split_offsets=split_offsets(metadata),
                **{name: getattr(metrics, name) for name in metrics.__slots__},
            ),
            copied=SplicedDataFile(
                path=file.location,
                replaces=task.path,
                copied_ids=ids,
                new_nans={field_id: number for field_id, number in new_nans.items() if field_id not in exact | ids},
                old_nans=None if Fate.GONE in self._fates else added(part.old_nans for part in self._parts.values()),
            ),
        )

    def _whole_columns(self) -> set[str]:
        """The columns that hold what they held in the old file."""
        return set() if self._fates & {Fate.GONE, Fate.REWRITTEN} else self._copied - self._renewed

    def _modes(
        self, metadata: pq.FileMetaData, physical: list[tuple[Leaf, ...]], whole: set[str]
    ) -> dict[int, MetricsMode]:
        """The metrics modes, without bounds where the footer's are none of the table's values.

        That is so where a copied column was promoted, and where there may be NaNs: not all writers leave them out. What
        is only partly copied is of our types, and of a writer that does.
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
    """Adds what there is to say of a column that a file lacks: readers take it for NULL in each row.

    A rewritten file has it, and is left out by its metrics where other values are looked for.
    """
    field_id = leaf.field.field_id
    if field_id not in modes or not modes[field_id].counts:
        return
    metrics.value_counts[field_id] = metrics.null_value_counts[field_id] = rows
    if is_floating(leaf):
        metrics.nan_value_counts[field_id] = 0


def added(counters: Iterable[NanCounter]) -> dict[int, int]:
    """NaNs by field id."""
    total: dict[int, int] = {}
    for counter in counters:
        for field_id, number in counter.counts.items():
            total[field_id] = total.get(field_id, 0) + number
    return total


class PendingRows:
    """Rows that wait until they make a row group.

    Args:
        options: How large one may be.
    """

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        self._held: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[list[pa.RecordBatch]]:
        """Adds rows; gives those of the row groups that are full."""
        limit = self._options.row_group_rows
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, limit - self._rows)
            start += part.num_rows
            self._held.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= limit or self._bytes >= self._options.row_group_size:
                yield self.take()

    def take(self) -> list[pa.RecordBatch]:
        """The rows that wait."""
        held, self._held = self._held, []
        self._rows = self._bytes = 0
        return held
