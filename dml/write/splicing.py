"""Copy-on-write that copies the columns that a statement does not assign, byte for byte. Worker.

Input: a data file whose rows are only updated, and its changes. Output: a data file with the same rows at the same
places, of which only the assigned columns, and those of row lineage, were decoded and encoded. Spec: "Row Lineage",
"Column Projection" for columns that were dropped, renamed or added since the file was written.

What of this a file allows is decided by its footer, before anything is written; all other files are rewritten.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, DoubleType, FloatType, NestedField

from dml.files.file_io import check_size, file_errors, file_io, open_file
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER, ROW_ID, DeltaLayout
from dml.model.manifest import ContentFile, FileContent
from dml.model.scan_task import ScanTask
from dml.model.write_task import SplicedDataFile, WriteContext
from dml.options import WriteOptions
from dml.read.target_files import TargetFiles
from dml.splice.footer import MAGIC, MAX_FOOTER_BYTES, TRAILER_BYTES, Footer, Range, footer_length
from dml.splice.pages import decoded_bytes, offset_indexes
from dml.splice.spliced_file import SplicedColumn, SplicedFile
from dml.splice.thrift_compact import Fields
from dml.write.column_chunks import NewColumns
from dml.write.column_metrics import Leaf, MetricsMode, leaves, parquet_metrics
from dml.write.delta_rows import ChangeCursor, misplaced
from dml.write.file_layout import FileLayout
from dml.write.output_files import OutputFile, OutputFileFactory, write_errors
from dml.write.parquet import split_offsets
from dml.write.row_builder import RowBuilder
from dml.write.row_log import OriginLog

__all__ = ["Splicer", "may_splice"]

FOOTER_GUESS_BYTES: Final = 64 * 2**10
"""What is read of a file's end at once: most footers are not longer."""

MAX_NEW_BYTES: Final = 256 * 2**20
"""Of a row group: its new columns are in memory at once."""

ICEBERG_SCHEMA: Final = "iceberg.schema"

UNKNOWN: Final = Leaf(field=NestedField(-1, "unknown", BinaryType(), required=False), path=())
"""A physical column of a field that the table has dropped: it has no metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OldFile:
    """An open data file that is to be spliced.

    Attributes:
        task: The file.
        stream: Its bytes.
        footer: Its footer.
    """

    task: ScanTask
    stream: Any
    footer: Footer

    def read(self, start: int, length: int) -> bytes:
        """Exactly these bytes.

        Raises:
            CorruptFileError: the file ends before them.
            ExecutionError: the storage failed.
        """
        with file_errors(self.task.path):
            return read_exactly(self.stream, start, length)


def read_exactly(stream: Any, start: int, length: int) -> bytes:
    stream.seek(start)
    data = bytes(stream.read(length))
    if len(data) != length:
        raise ValueError(f"it ends at {start + len(data)}, but bytes up to {start + length} are needed")
    return data


@contextmanager
def opened(task: ScanTask, io_properties: dict[str, str]) -> Iterator[OldFile | None]:
    """A data file to be spliced; None for one that cannot be."""
    io = file_io(io_properties, task.path)
    with file_errors(task.path):
        stream = open_file(io, task.path)
    with stream:  # what goes wrong while the new file is written is not the old one's fault
        with file_errors(task.path):
            check_size(stream, task.path, task.file_size_in_bytes)
            footer = read_footer(stream, task)
        yield None if footer is None else OldFile(task=task, stream=stream, footer=footer)


def read_footer(stream: Any, task: ScanTask) -> Footer | None:
    """The footer of a file that can be spliced.

    A footer that breaks the format is for the reader to judge, which is about to read the file anyway.
    """
    size = task.file_size_in_bytes
    tail = read_exactly(stream, max(0, size - FOOTER_GUESS_BYTES), min(size, FOOTER_GUESS_BYTES))
    try:
        length = footer_length(tail[-TRAILER_BYTES:], size)
        if length > MAX_FOOTER_BYTES:
            return None
        start = size - TRAILER_BYTES - length
        missing = length + TRAILER_BYTES - len(tail)
        data = read_exactly(stream, start, missing) + tail if missing > 0 else tail[-TRAILER_BYTES - length :]
        footer = Footer.of(data[:-TRAILER_BYTES], start)
        return footer if footer.obstacle() is None and footer.rows == task.record_count else None
    except ValueError:
        return None


def may_splice(task: ScanTask, spec_id: int, options: WriteOptions) -> bool:
    """Whether a data file can be spliced, as far as its manifest entry says.

    Args:
        task: The file.
        spec_id: The spec of new files.
        options: The table's properties. Small files are rewritten: several of them become one then.
    """
    return (
        task.file_format.lower() == "parquet"
        and task.spec_id == spec_id
        and not task.has_deletes
        and task.file_size_in_bytes >= options.splice_min_file_size
    )


class Splicer:
    """Splices data files.

    Args:
        files: The data files.
        layout: The columns of new files.
        delta: The columns of the delta.
        output: Opens new files.
        context: The write.
        row_lineage: Whether rows keep their ids.
        origins: Notes where rows come from; None where nobody asks.

    Attributes:
        data_files: The new files. Their metrics are as good as their footers.
        spliced_files: What of them is copied.
    """

    def __init__(
        self,
        *,
        files: TargetFiles,
        layout: FileLayout,
        delta: DeltaLayout,
        output: OutputFileFactory,
        context: WriteContext,
        row_lineage: bool,
        origins: OriginLog | None = None,
    ) -> None:
        self._files = files
        self._delta = delta
        self._output = output
        self._options = context.options
        self._schema = Schema.model_validate_json(context.schema_json)
        self._spec_id = context.default_spec_id
        self._io_properties = context.io_properties
        self._origins = origins
        self._layout = layout
        self._lineage = (ROW_ID, LAST_UPDATED_SEQUENCE_NUMBER) if row_lineage else ()
        self._new = new_layout(layout, delta, lineage=len(self._lineage))
        self._assigned = tuple(column.field_id for column in self._new.columns)[: -len(self._lineage) or None]
        self.data_files: list[ContentFile] = []
        self.spliced_files: list[SplicedDataFile] = []

    def splice(self, task: ScanTask, changes: ChangeCursor) -> tuple[int, int] | None:
        """Splices a data file.

        Args:
            task: The file.
            changes: Its changes: updates alone.

        Returns:
            How many rows were read and written, and how many of them were updated; None where the file cannot be
            spliced, and no change was taken.

        Raises:
            DataError: a new value breaks a rule.
            ExecutionError: the changes do not fit the file.
            CorruptFileError: the file breaks its format.
        """
        if not may_splice(task, self._spec_id, self._options):
            return None
        with opened(task, self._io_properties) as old:
            if old is None:
                return None
            columns = self._columns(old.footer)
            if not any(column.copied for column in columns) or self._new_bytes(old.footer) > MAX_NEW_BYTES:
                return None
            indexes = read_offset_indexes(old, columns)
            if indexes is None:
                return None
            file = self._output.open("parquet", self._spec_id, task.partition)
            new = NewColumns(self._new, self._options)
            try:
                updated = self._write(old, file, columns, indexes, new, changes)
            except BaseException:
                new.abort()
                raise
        return new.rows, updated

    def _columns(self, footer: Footer) -> list[SplicedColumn]:
        """The columns of the new file, in the table's order; one that the old file lacks, the new one lacks as well."""
        held = {column.field_id: column for column in footer.columns}
        written = {column.field_id for column in self._new.columns}
        return [
            SplicedColumn(name=column.name, copied=None if column.field_id in written else held[column.field_id])
            for column in self._layout.columns
            if column.field_id in written or column.field_id in held
        ]

    def _new_bytes(self, footer: Footer) -> int:
        """About what the columns that are written take in memory: those of the largest row group."""
        written = {column.field_id for column in self._new.columns}
        leaves = [leaf for column in footer.columns if column.field_id in written for leaf in column.leaves]
        sizes = (sum(decoded_bytes(group.chunks[leaf]) for leaf in leaves) for group in footer.row_groups)
        return max(sizes, default=0)

    def _write(
        self,
        old: OldFile,
        file: OutputFile,
        columns: Sequence[SplicedColumn],
        indexes: Mapping[Range, Fields],
        new: NewColumns,
        changes: ChangeCursor,
    ) -> int:
        task = old.task
        rows = UpdatedRows(RowBuilder(self._new, self._delta), changes)
        batches = rows.of(self._files.rows(task.file_ordinal, columns=self._assigned, metadata_columns=self._lineage))
        groups = regrouped(batches, [group.rows for group in old.footer.row_groups])

        def write(data: bytes) -> None:
            with write_errors(file.location):
                file.stream.write(data)

        spliced = SplicedFile(old.footer, old.read, write, columns, indexes)
        for group in groups:
            pages = new.row_group(group)
            with file_errors(task.path):
                spliced.add_row_group(pages)
        if not changes.exhausted():
            raise misplaced(task, changes.next_position)
        with file_errors(task.path):
            footer = spliced.close(new.close(), self._key_values(old.footer, columns))
        self._output.close(file)
        self._report(task, file, spliced.size, footer, columns, new)
        return rows.updated

    def _key_values(self, footer: Footer, columns: Sequence[SplicedColumn]) -> dict[str, str]:
        """The new file's own metadata: its Iceberg schema, where the old one has it.

        It says what is in the file, and some readers go by it: copied columns keep the types, and the fields inside,
        that they were written with.
        """
        held = held_fields(footer)
        written = {column.name: column for column in self._new.columns}
        fields = []
        for column in columns:
            if column.copied is None:
                fields.append(written[column.name])
                continue
            field = held.get(column.copied.field_id)
            if field is None or {leaf.field.field_id for leaf in leaves((field,))} != {*column.copied.leaf_ids}:
                return {}
            fields.append(field.model_copy(update={"name": column.name}))
        ids = {field.field_id for field in fields}
        identifiers = [field_id for field_id in self._schema.identifier_field_ids if field_id in ids]
        schema = Schema(*fields, schema_id=self._schema.schema_id, identifier_field_ids=identifiers)
        return {ICEBERG_SCHEMA: schema.model_dump_json()}

    def _report(
        self,
        task: ScanTask,
        file: OutputFile,
        size: int,
        footer: bytes,
        columns: Sequence[SplicedColumn],
        new: NewColumns,
    ) -> None:
        # Arrow reads what was written before anybody else does.
        metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
        physical = tuple(leaf for column in columns for leaf in self._leaves(column))
        metrics = parquet_metrics(metadata, physical, self._modes(metadata, columns), new.nan_counts)
        self.data_files.append(
            ContentFile(
                content=FileContent.DATA,
                path=file.location,
                file_format="parquet",
                spec_id=self._spec_id,
                partition=task.partition,
                record_count=new.rows,
                file_size_in_bytes=size,
                split_offsets=split_offsets(metadata),
                **{name: getattr(metrics, name) for name in metrics.__slots__},
            )
        )
        copied = [column.copied for column in columns if column.copied is not None]
        ids = frozenset(field_id for column in copied for field_id in column.leaf_ids if field_id is not None)
        self.spliced_files.append(SplicedDataFile(path=file.location, replaces=task.path, copied_ids=ids))
        if self._origins is not None:
            self._origins.copied(file.location, task.file_ordinal, new.rows)

    def _leaves(self, column: SplicedColumn) -> Iterator[Leaf]:
        """The physical columns of a column; a copied one may hold fields that the table has dropped."""
        known = {leaf.field.field_id: leaf for leaf in self._layout.leaves}
        if column.copied is None:
            yield from (leaf for leaf in self._new.leaves if self._new.columns[leaf.path[0]].name == column.name)
            return
        for field_id in column.copied.leaf_ids:
            yield UNKNOWN if field_id is None else known.get(field_id, UNKNOWN)

    def _modes(self, metadata: Any, columns: Sequence[SplicedColumn]) -> dict[int, MetricsMode]:
        """The metrics modes, without bounds where the footer's are none of the table's values.

        That is so where a column was promoted, and where there may be NaNs: not all writers leave them out.
        """
        modes = dict(self._layout.modes)
        held = metadata.schema.to_arrow_schema()
        for column in columns:
            if column.copied is None:
                continue
            same = held.field(column.name).type == self._layout.arrow.field(column.name).type
            for leaf in self._leaves(column):
                mode = modes.get(leaf.field.field_id)
                if mode is not None and (not same or isinstance(leaf.field.field_type, FloatType | DoubleType)):
                    modes[leaf.field.field_id] = replace(mode, bounds=False)
        return modes


def read_offset_indexes(old: OldFile, columns: Iterable[SplicedColumn]) -> dict[Range, Fields] | None:
    """The offset indexes of the chunks that are copied; None where one of them is broken, which readers may not mind.

    Raises:
        ExecutionError: the storage failed.
    """
    leaves = [leaf for column in columns if column.copied is not None for leaf in column.copied.leaves]
    chunks = [group.chunks[leaf] for group in old.footer.row_groups for leaf in leaves]
    with file_errors(old.task.path):
        try:
            return offset_indexes(chunks, partial(read_exactly, old.stream))
        except ValueError:
            return None


def held_fields(footer: Footer) -> dict[int | None, NestedField]:
    """The columns of a file by field id, as its own Iceberg schema has them; none where it has none."""
    try:
        text = footer.key_values.get(ICEBERG_SCHEMA)
        schema = None if text is None else Schema.model_validate_json(text)
    except ValueError:
        return {}
    return {} if schema is None else {field.field_id: field for field in schema.fields}


def new_layout(layout: FileLayout, delta: DeltaLayout, lineage: int) -> FileLayout:
    """The layout of the columns that are written: the assigned ones, and the last ones, which are of row lineage."""
    last = len(layout.columns) - lineage
    places = [
        place for place, column in enumerate(layout.columns) if column.field_id in delta.assigned_ids or place >= last
    ]
    columns = tuple(layout.columns[place] for place in places)
    return replace(
        layout,
        columns=columns,
        arrow=pa.schema([layout.arrow.field(place) for place in places]),
        checks=tuple(layout.checks[place] for place in places),
        leaves=leaves(columns),
    )


class UpdatedRows:
    """The new columns of a file's rows, and how many of these were updated.

    Args:
        rows: Makes them.
        changes: The updates.
    """

    def __init__(self, rows: RowBuilder, changes: ChangeCursor) -> None:
        self._rows = rows
        self._changes = changes
        self.updated = 0

    def of(self, batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """The rows of a file, in order.

        Args:
            batches: As the file holds them.
        """
        for held in batches:
            arrays, start = held.batch.columns, held.start_position
            changes = self._changes.before(start + held.batch.num_rows)
            if changes is None:
                yield self._rows.carried(arrays)
                continue
            assert changes.updates.all(), "only files whose rows stay where they are can be spliced"
            self.updated += len(changes)
            yield self._rows.patched(arrays, changes.values, changes.positions - start)


def regrouped(batches: Iterable[pa.RecordBatch], sizes: Sequence[int]) -> Iterator[list[pa.RecordBatch]]:
    """Neighbouring rows in groups of given sizes."""
    source = iter(batches)
    rest: pa.RecordBatch | None = None
    for size in sizes:
        group: list[pa.RecordBatch] = []
        missing = size
        while missing:
            batch = next(source) if rest is None else rest
            part = batch.slice(0, missing)
            rest = batch.slice(missing) if batch.num_rows > missing else None
            group.append(part)
            missing -= part.num_rows
        yield group
    for batch in source:  # the reader checks how many rows the file has once it has read all of them
        assert not batch.num_rows
