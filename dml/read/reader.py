"""Read scan tasks as Arrow record batches: table and metadata columns, with deletes applied. Worker.

Input: `ScanTask` and `ScanContext`. Output: record batches with the live rows that may match the context's filters
(`read`), or a whole file in file order with a mask of its live rows, for writers that copy it (`scan_file`).
`TargetFiles` packs the scan tasks of a statement on the driver, for writers that read rows and deleted positions of one
data file at a time. Spec: "Scan Planning", "Column Projection", "Row Lineage".

The reader materializes late: it applies the deleted positions first, then the filters on the columns that they need,
and then projects the other columns of the remaining rows.
"""

import pickle
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import NestedField

from dml import limits
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError
from dml.files.file_io import file_errors, file_io
from dml.model.scan_task import DeleteFileRef, KeyFilter, ScanContext, ScanTask
from dml.pruning.row_tests import Bounds, any_match
from dml.read.applied_deletes import DeleteLoader, EqualityDeletes
from dml.read.data_file import DataFile, Piece, check_row_count, coalesce_batches, empty_rows, wrong_row_count
from dml.read.open_data_file import open_data_file
from dml.read.projection import LINEAGE_IDS, MetadataColumns, Projector, arrow_field, constant_array, projector
from dml.read.row_predicates import select_rows
from dml.rows.evaluate import CompiledPredicate
from dml.rows.lookup import KeyLookup
from dml.rows.program import TRUE, all_of

__all__ = ["FileBatch", "KeyTest", "PieceReader", "TargetFiles", "TaskReader", "piece_readers", "scan_file"]

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Columns = Callable[[int], pa.Array]
"""Return a native column of a batch by field id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTest:
    """A test of which rows may have one of the keys of a join.

    Attributes:
        column_ids: Field ids of the key columns.
        contains: Return a mask for rows, given their key columns in Iceberg's native types.
    """

    column_ids: tuple[int, ...]
    contains: Callable[[Sequence[pa.Array]], Mask]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileBatch:
    """Neighbouring rows of a data file, including deleted ones.

    Attributes:
        start_position: The position of the first row in the file.
        batch: The context's columns in Iceberg's native types, then its metadata columns.
        live: The mask of rows that are not deleted, or None if all are live.
    """

    start_position: int
    batch: pa.RecordBatch
    live: Mask | None


def scan_file(task: ScanTask, context: ScanContext, positions: Positions | None = None) -> Iterator[FileBatch]:
    """Yield all rows of a scan task in file order and native types, with a mask of the live ones, ignoring filters.

    Args:
        task: The scan task.
        context: The scan.
        positions: Ascending positions: row groups without any of them are skipped; None reads all.

    Raises:
        CorruptFileError: A file is missing or breaks its format.
        ExecutionError: The storage failed.
    """
    return TaskReader(context, spark_types=False).scan_file(task, positions)


@contextmanager
def piece_readers(
    task: ScanTask, context: ScanContext, choices: Sequence[tuple[tuple[int, ...], tuple[str, ...]]]
) -> Iterator[tuple["PieceReader", ...]]:
    """Yield readers of one data file, each with its own columns.

    The file is opened once, when the first piece is read. Errors inside the block are not attributed to the file.

    Args:
        task: The file, without equality deletes.
        context: The scan; filters are ignored.
        choices: For each reader the field ids of the columns, and the names of the metadata columns that follow them.

    Raises:
        CorruptFileError: The file or a delete file is missing or breaks its format.
        ExecutionError: The storage failed.
    """
    readers = [
        TaskReader(replace(context, projected_ids=columns, metadata_columns=names), spark_types=False)
        for columns, names in choices
    ]
    positions = readers[0].deletes.positions(task)
    stack = ExitStack()

    @cache
    def opened() -> DataFile:
        return stack.enter_context(readers[0].open(task))

    try:
        yield tuple(PieceReader(reader, task, opened, positions) for reader in readers)
    finally:
        stack.close()


class TaskReader:
    """Read the scan tasks of one scan.

    Args:
        context: The scan.
        spark_types: True for types that Spark takes; False for the lossless types for copying from file to file.
        keys: Replaces the context's key filter.

    Attributes:
        output_schema: The schema of the batches of `read`.

    Raises:
        NotSupportedError: Spark cannot hold a column.
    """

    def __init__(self, context: ScanContext, *, spark_types: bool = True, keys: KeyTest | None = None) -> None:
        self.context = context
        self.keys = keys
        self.spark_types = spark_types
        self.schema = Schema.model_validate_json(context.schema_json)
        self.columns = {field.field_id: field for field in self.schema.fields}
        self.specs = {spec_id: PartitionSpec.model_validate_json(text) for spec_id, text in context.specs_json}
        self.name_mapping = (
            None if context.name_mapping_json is None else parse_mapping_from_json(context.name_mapping_json)
        )
        self.deletes = DeleteLoader(self.schema, context.io_properties)
        self.metadata = MetadataColumns(context.metadata_columns, self.schema, self.specs, spark=spark_types)
        self.projected = [self.columns[field_id] for field_id in context.projected_ids]
        fields = [arrow_field(field, spark=spark_types) for field in self.projected]
        self.output_schema = pa.schema([*fields, *self.metadata.fields()])
        self._compile_filters()

    def _compile_filters(self) -> None:
        context = self.context
        self.may_match, predicate = None, context.row_predicate
        if context.row_filter is not None:
            self.may_match = any_match(context.row_filter, self.schema, case_sensitive=context.case_sensitive)
            selected = select_rows(context.row_filter, self.schema, case_sensitive=context.case_sensitive)
            predicate = all_of((selected.predicate, predicate))
        # A scan that does not decide rows keeps those that overflow: Spark evaluates the condition again.
        self.row_test = None
        if predicate != TRUE:
            self.row_test = CompiledPredicate(predicate, keeps_uncomputable=not context.decides_rows)
        self.filter_ids = frozenset[int]() if self.row_test is None else self.row_test.column_ids
        if self.keys is None and context.key_filter is not None:
            self.keys = self._key_test(context.key_filter)
        self.key_ids = () if self.keys is None else self.keys.column_ids

    def _key_test(self, keys: KeyFilter) -> KeyTest:
        table = pa.ipc.open_stream(keys.values).read_all()
        types = [arrow_field(self.columns[field_id], spark=False).type for field_id in keys.column_ids]
        columns = [column.cast(target).combine_chunks() for column, target in zip(table.columns, types, strict=True)]
        return KeyTest(column_ids=keys.column_ids, contains=KeyLookup(columns, keys.null_safe).contains)

    def read(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        """Yield the live rows of a scan task that may match the filters.

        Raises:
            CorruptFileError: A file is missing or breaks its format.
            ExecutionError: The storage failed.
        """
        return coalesce_batches(self._batches(task), self.context.batch_rows)

    def _batches(self, task: ScanTask) -> Iterator[pa.RecordBatch]:
        positions, equality = self.deletes.positions(task), self.deletes.equality(task)
        with self.open(task) as file:
            view = FileView(self, task, file, equality)
            for pieces in view.matching_runs(task_pieces(file, task)):
                for start, batch in view.rows(pieces):
                    keep = view.kept_mask(start, batch, positions)
                    if keep is None or keep.any():
                        yield view.output(start, batch, None if keep is None or keep.all() else keep)

    @contextmanager
    def open(self, task: ScanTask) -> Iterator[DataFile]:
        """Open the data file of a scan task, and check its row count against the manifest if the file stores one."""
        io = file_io(self.context.io_properties, task.path)
        size = task.file_size_in_bytes
        with open_data_file(io, task.path, task.file_format, self.name_mapping, size=size) as file:
            if file.rows is not None and file.rows != task.record_count:
                raise wrong_row_count(task.path, file.rows, task.record_count)
            yield file

    def scan_file(self, task: ScanTask, wanted: Positions | None = None) -> Iterator[FileBatch]:
        """Yield all rows of a scan task in file order, with a mask of the live ones, ignoring filters.

        Args:
            task: The scan task.
            wanted: Ascending positions: row groups without any of them are skipped; None reads all.

        Raises:
            CorruptFileError: A file is missing or breaks its format.
            ExecutionError: The storage failed.
        """
        positions, equality = self.deletes.positions(task), self.deletes.equality(task)
        with self.open(task) as file:
            view = FileView(self, task, file, equality)
            for pieces in runs(pieces_with(task_pieces(file, task), wanted)):
                for start, batch in view.rows(pieces):
                    live = view.live_mask(start, batch, positions)
                    yield FileBatch(start_position=start, batch=view.output(start, batch, None), live=live)


def pieces_with(pieces: Sequence[Piece], positions: Positions | None) -> Sequence[Piece]:
    """Return the pieces that hold any of the ascending positions."""
    if positions is None:
        return pieces
    starts = np.searchsorted(positions, [piece.first_position for piece in pieces])
    ends = np.searchsorted(positions, [piece.first_position + piece.rows for piece in pieces])
    return [piece for piece, start, end in zip(pieces, starts, ends, strict=True) if start < end]


def task_pieces(file: DataFile, task: ScanTask) -> list[Piece]:
    """Return the pieces that start in the scan task's byte range. The last range of a file has all remaining ones."""
    end = task.start + task.length
    last = end >= task.file_size_in_bytes
    return [
        piece for piece in file.pieces if (piece.start >= task.start or task.start == 0) and (last or piece.start < end)
    ]


class FileView:
    """A data file as one scan reads it: which columns are read, and how they are filtered and projected."""

    def __init__(self, reader: TaskReader, task: ScanTask, file: DataFile, equality: Sequence[EqualityDeletes]) -> None:
        self.reader, self.task, self.file, self.equality = reader, task, file, equality
        self.places = {field.field_id: place for place, field in enumerate(file.fields) if field.field_id is not None}
        self.constants = identity_values(reader.specs[task.spec_id], task) if task.spec_id in reader.specs else {}
        self.lineage = self._lineage()
        self.test_ids = {*reader.filter_ids, *reader.key_ids, *(i for e in equality for i in e.column_ids)}
        self.filter_ids = {*reader.filter_ids, *reader.key_ids}
        output_ids = [*reader.context.projected_ids, *self.lineage.values()]
        self.output_places = {self.places[i] for i in output_ids if i in self.places}
        tested = {self.places[i] for i in self.test_ids if i in self.places}
        self.read_places = sorted(self.output_places | tested)
        self.index = {place: index for index, place in enumerate(self.read_places)}
        self.native = {field_id: self._projector(reader.columns[field_id], spark=False) for field_id in self.test_ids}
        self.outputs = [self._projector(field, spark=reader.spark_types) for field in reader.projected]

    def _lineage(self) -> dict[str, int]:
        if self.task.first_row_id is None:
            return {}
        wanted = self.reader.context.metadata_columns
        return {name: i for name, i in LINEAGE_IDS.items() if name in wanted and i in self.places}

    def _projector(self, field: NestedField, *, spark: bool) -> Projector | None:
        place = self.places.get(field.field_id)
        if place is not None:
            return projector(field, self.file.fields[place], spark=spark)
        if field.field_id not in self.constants and field.initial_default is None and field.required:
            raise CorruptFileError(
                f"The file '{self.task.path}' lacks the required column '{field.name}', which has no default",
                file=self.task.path,
                column=field.name,
            )
        return None

    def rows(self, pieces: Sequence[Piece]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield batches of the file's columns, each with its first position."""
        return self._rows(pieces, self.read_places)

    def _rows(self, pieces: Sequence[Piece], places: list[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
        start = pieces[0].first_position if pieces else 0
        rows = self.task.record_count if self.file.rows is None else sum(piece.rows for piece in pieces)
        batches = self.file.batches(pieces, places, self.reader.context.batch_rows)
        for batch in check_row_count(batches, rows if pieces else 0, self.task.path):
            yield start, batch
            start += batch.num_rows

    def matching_runs(self, pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
        """Yield runs of neighbouring pieces in which a row may match the filters."""
        may_match = self.reader.may_match
        if may_match is not None:
            pieces = [piece for piece in pieces if may_match(partial(self._bounds, piece))]
        filter_places = sorted(self.places[i] for i in self.filter_ids if i in self.places)
        if not self.file.columnar or not filter_places or self.output_places <= set(filter_places):
            yield from runs(pieces)
            return
        # Decode the filters' columns first: often no row of a row group matches, which saves decoding the others.
        view = self._probe(filter_places)
        for piece in pieces:
            if any(view.filter_mask(batch).any() for _, batch in view.rows([piece])):
                yield [piece]

    def _bounds(self, piece: Piece, field_id: int) -> Bounds:
        return self.file.bounds(piece, self.reader.schema.find_field(field_id))

    def _probe(self, places: list[int]) -> "FileView":
        probe = object.__new__(FileView)
        probe.__dict__.update(self.__dict__)
        probe.read_places = places
        probe.index = {place: index for index, place in enumerate(places)}
        return probe

    def kept_mask(self, start: int, batch: pa.RecordBatch, positions: PositionDeleteIndex | None) -> Mask | None:
        """Return the mask of live rows that may match the filters; None for all."""
        keep = self.live_mask(start, batch, positions)
        selects = self.reader.row_test is not None or self.reader.keys is not None
        if not selects or (keep is not None and not keep.any()):
            return keep
        matching = self.filter_mask(batch)
        return matching if keep is None else keep & matching

    def live_mask(self, start: int, batch: pa.RecordBatch, positions: PositionDeleteIndex | None) -> Mask | None:
        """Return the mask of rows that are not deleted; None for all."""
        deleted = None if positions is None else positions.deleted_mask(start, batch.num_rows)
        for deletes in self.equality:
            matching = deletes.keys.contains([self._native(batch, field_id) for field_id in deletes.column_ids])
            deleted = matching if deleted is None else deleted | matching
        return ~deleted if deleted is not None and deleted.any() else None

    def filter_mask(self, batch: pa.RecordBatch) -> Mask:
        """Return the mask of rows that may match the row filter and the key filter."""
        columns = {field_id: self._native(batch, field_id) for field_id in self.filter_ids}
        mask = np.ones(batch.num_rows, np.bool_)
        if self.reader.row_test is not None:
            mask &= self.reader.row_test.mask(columns, batch.num_rows)
        if self.reader.keys is not None:
            mask &= self.reader.keys.contains([columns[field_id] for field_id in self.reader.key_ids])
        return mask

    def _native(self, batch: pa.RecordBatch, field_id: int) -> pa.Array:
        return self._column(batch, self.reader.columns[field_id], self.native[field_id], spark=False)

    def _column(
        self, batch: pa.RecordBatch, field: NestedField, projection: Projector | None, *, spark: bool
    ) -> pa.Array:
        place = self.places.get(field.field_id)
        if place is None:
            value = self.constants.get(field.field_id, field.initial_default)
            return constant_array(value, field.field_type, batch.num_rows, spark=spark)
        array = batch.column(self.index[place])
        return array if projection is None else projection(array)

    def output(self, start: int, batch: pa.RecordBatch, keep: Mask | None) -> pa.RecordBatch:
        """Return the scan's columns for the rows to keep.

        Args:
            start: The position of the batch's first row.
            batch: The file's columns.
            keep: The rows to keep; None for all.
        """
        positions = np.arange(start, start + batch.num_rows, dtype=np.int64)
        if keep is not None:
            positions = positions[keep]
            batch = batch.filter(pa.array(keep)) if batch.num_columns else empty_rows(len(positions))
        stored = {name: self._stored(batch, field_id) for name, field_id in self.lineage.items()}
        arrays = [
            self._column(batch, field, projection, spark=self.reader.spark_types)
            for field, projection in zip(self.reader.projected, self.outputs, strict=True)
        ]
        arrays += self.reader.metadata.arrays(self.task, positions, stored)
        return pa.RecordBatch.from_arrays(arrays, schema=self.reader.output_schema)

    def _stored(self, batch: pa.RecordBatch, field_id: int) -> pa.Array:
        return batch.column(self.index[self.places[field_id]]).cast(pa.int64())


class PieceReader:
    """Read the pieces of a data file in any order.

    Args:
        reader: The reader of the columns to return.
        task: The file.
        opened: Opens the file at the first call and returns it.
        positions: The file's deleted positions; None if there are none.
    """

    def __init__(
        self,
        reader: TaskReader,
        task: ScanTask,
        opened: Callable[[], DataFile],
        positions: PositionDeleteIndex | None,
    ) -> None:
        self._reader = reader
        self._task = task
        self._opened = opened
        self._positions = positions

    @cached_property
    def _view(self) -> FileView:
        return FileView(self._reader, self._task, self._opened(), ())

    def deleted_mask(self, start: int, rows: int) -> Mask | None:
        """Return the mask of deleted rows from a position on; None if there are none."""
        deleted = None if self._positions is None else self._positions.deleted_mask(start, rows)
        return deleted if deleted is not None and deleted.any() else None

    def rows(self, place: int) -> Iterator[FileBatch]:
        """Yield the rows of a piece, in order.

        Args:
            place: The index of the piece.

        Raises:
            CorruptFileError: The file breaks its format.
            ExecutionError: The storage failed.
        """
        with file_errors(self._task.path):
            for start, batch in self._view.rows([self._view.file.pieces[place]]):
                live = self._view.live_mask(start, batch, self._positions)
                yield FileBatch(start_position=start, batch=self._view.output(start, batch, None), live=live)


def identity_values(spec: PartitionSpec, task: ScanTask) -> dict[int, object]:
    """Return the partition values of identity transforms, by the source column's field id."""
    return {
        field.source_id: value
        for field, value in zip(spec.fields, task.partition, strict=True)
        if isinstance(field.transform, IdentityTransform)
    }


def runs(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Group pieces into runs of neighbours."""
    run: list[Piece] = []
    for piece in pieces:
        if run and run[-1].index + 1 != piece.index:
            yield run
            run = []
        run.append(piece)
    if run:
        yield run


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFiles:
    """The data files that a statement scanned, by ordinal.

    Attributes:
        blocks: Packed scan tasks, `limits.SCAN_TASKS_PER_BLOCK` in each: a worker unpacks only those that it needs.
        context: The scan's context. Its columns are replaced by those that a writer reads, and filters are removed.
    """

    blocks: tuple[bytes, ...]
    context: ScanContext

    @staticmethod
    def of(tasks: Sequence[ScanTask], context: ScanContext) -> "TargetFiles":
        """Pack the tasks of a scan, whose ordinals are their indexes."""
        assert all(task.file_ordinal == place for place, task in enumerate(tasks)), "ordinals are places"
        blocks = tuple(
            zlib.compress(
                pickle.dumps(tuple(tasks[start : start + limits.SCAN_TASKS_PER_BLOCK]), pickle.HIGHEST_PROTOCOL),
                limits.MESSAGE_COMPRESSION_LEVEL,
            )
            for start in range(0, len(tasks), limits.SCAN_TASKS_PER_BLOCK)
        )
        return TargetFiles(
            blocks=blocks, context=replace(context, row_filter=None, key_filter=None, row_predicate=TRUE)
        )

    def task(self, ordinal: int) -> ScanTask:
        """Return the scan task of a whole data file, with the delete files that apply to it."""
        block: tuple[ScanTask, ...] = pickle.loads(  # noqa: S301 - packed by `of` on the driver of the statement
            zlib.decompress(self.blocks[ordinal // limits.SCAN_TASKS_PER_BLOCK])
        )
        return block[ordinal % limits.SCAN_TASKS_PER_BLOCK]

    def rows(
        self,
        ordinal: int,
        *,
        columns: tuple[int, ...],
        metadata_columns: tuple[str, ...] = (),
        positions: npt.NDArray[np.int64] | None = None,
    ) -> Iterator[FileBatch]:
        """Yield the rows of a data file, in file order.

        Args:
            ordinal: The file's ordinal.
            columns: Field ids of the table columns to read, in the order of the batches' columns.
            metadata_columns: Names of metadata columns that follow them.
            positions: Ascending positions; row groups without any of them may be skipped. None reads all.
        """
        context = replace(self.context, projected_ids=columns, metadata_columns=metadata_columns)
        return scan_file(self.task(ordinal), context, positions=positions)

    def pieces(
        self, ordinal: int, choices: Sequence[tuple[tuple[int, ...], tuple[str, ...]]]
    ) -> AbstractContextManager[tuple[PieceReader, ...]]:
        """Open readers of a data file's row groups; see `dml.read.reader.piece_readers`."""
        return piece_readers(self.task(ordinal), self.context, choices)

    def existing_positions(self, ordinal: int, delete_files: tuple[DeleteFileRef, ...]) -> PositionDeleteIndex:
        """Return the positions of a data file that the given delete files delete."""
        vectors = [ref for ref in delete_files if ref.is_deletion_vector]
        task = replace(
            self.task(ordinal),
            deletion_vector=vectors[0] if vectors else None,
            position_deletes=tuple(ref for ref in delete_files if not ref.is_deletion_vector),
        )
        loader = DeleteLoader(Schema.model_validate_json(self.context.schema_json), self.context.io_properties)
        return loader.positions(task) or PositionDeleteIndex()
