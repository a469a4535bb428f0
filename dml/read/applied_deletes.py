"""Load the deletes that apply to a data file: an index of deleted positions and sets of deleted keys. Worker-safe.

Input: a scan task's delete files. Spec: "Scan Planning", "Deletion Vectors", "Position Delete Files", "Equality Delete
Files".
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from dml import limits
from dml.deletes.deletion_vector import decode
from dml.deletes.position_delete_file import FILE_PATH_ID, POS_ID, positions_by_file
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError, NotSupportedError
from dml.files.file_io import file_io, read_range
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.read.data_file import DataFile, FileField, check_row_count
from dml.read.open_data_file import open_data_file
from dml.read.projection import arrow_type, projector
from dml.rows.lookup import KeyLookup

__all__ = ["DeleteLoader", "EqualityDeletes", "position_batches"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityDeletes:
    """Keys of deleted rows, compared as Iceberg's Java library does (`StructLikeSet`, `Comparators`).

    NULL equals NULL, every NaN equals every NaN, and -0.0 does not equal 0.0.

    Attributes:
        column_ids: The field ids of the key columns.
        keys: The key values.
    """

    column_ids: tuple[int, ...]
    keys: KeyLookup


class DeleteLoader:
    """Load the deletes of scan tasks, and cache those of delete files that several data files share.

    Args:
        schema: The table's schema, which equality delete files are projected to.
        io_properties: Properties of the FileIO.
    """

    def __init__(self, schema: Schema, io_properties: Mapping[str, str]) -> None:
        self.schema = schema
        self.io_properties = io_properties
        self.shared: OrderedDict[Hashable, Any] = OrderedDict()

    def positions(self, task: ScanTask) -> PositionDeleteIndex | None:
        """Return the deleted positions of a data file, or None if there are none.

        Raises:
            CorruptFileError: A delete file breaks its format.
            ExecutionError: The storage failed.
        """
        files = task.position_deletes if task.deletion_vector is None else (task.deletion_vector,)
        if not files:
            return None
        vector = task.deletion_vector
        positions = self._deletion_vector(vector) if vector else self.positions_in(task.path, files)
        last = positions.max()
        if last is not None and last >= task.record_count:
            raise CorruptFileError(
                f"Deletes of '{task.path}', which has {task.record_count} rows, name its row {last}: "
                f"{', '.join(ref.path for ref in files)}",
                hint="They belong to another data file: restore them, or go back to a snapshot from before them",
                file=files[0].path,
            )
        return None if positions.is_empty else positions

    def positions_in(self, path: str, files: Sequence[DeleteFileRef]) -> PositionDeleteIndex:
        """Return the positions of a data file that the given deletion vectors and position delete files delete.

        Raises:
            CorruptFileError: A delete file breaks its format.
            ExecutionError: The storage failed.
        """
        index = PositionDeleteIndex()
        for ref in files:
            if ref.is_deletion_vector:
                index.update(self._deletion_vector(ref))
            else:
                self._add_positions(index, ref, path)
        return index

    def equality(self, task: ScanTask) -> list[EqualityDeletes]:
        """Return the deleted keys, one set for each combination of key columns.

        Raises:
            CorruptFileError: A delete file breaks its format, or lacks a key column.
            ExecutionError: The storage failed.
        """
        ordered = sorted(task.equality_deletes, key=lambda ref: (ref.equality_ids, ref.path))
        return [self._equality(ids, tuple(refs)) for ids, refs in groupby(ordered, key=lambda ref: ref.equality_ids)]

    def _equality(self, ids: tuple[int, ...], refs: tuple[DeleteFileRef, ...]) -> EqualityDeletes:
        key = ("keys", *(ref.key for ref in refs))
        deletes: EqualityDeletes = self._shared(key, lambda: self._keys(ids, refs))
        return deletes

    def _shared(self, key: Hashable, load: Callable[[], Any]) -> Any:
        if key in self.shared:
            self.shared.move_to_end(key)
            return self.shared[key]
        value = self.shared[key] = load()
        while len(self.shared) > limits.CACHED_DELETE_FILES:
            self.shared.popitem(last=False)
        return value

    def _io(self, location: str) -> FileIO:
        return file_io(self.io_properties, location)

    def _deletion_vector(self, ref: DeleteFileRef) -> PositionDeleteIndex:
        offset, length = ref.content_offset, ref.content_size_in_bytes
        if offset is None or length is None or not 0 <= offset <= offset + length <= ref.file_size_in_bytes:
            raise CorruptFileError(
                f"The deletion vector of {length} bytes at {offset} of '{ref.path}' does not lie in the file of "
                f"{ref.file_size_in_bytes} bytes",
                hint="The table's metadata is corrupt: go back to an earlier snapshot",
                file=ref.path,
            )
        blob = read_range(self._io(ref.path), ref.path, offset, length, size=ref.file_size_in_bytes)
        return decode(blob, file=ref.path, cardinality=ref.record_count)

    def _add_positions(self, index: PositionDeleteIndex, ref: DeleteFileRef, data_file: str) -> None:
        if ref.referenced_data_file is None and ref.record_count <= limits.MAX_CACHED_DELETE_ROWS:
            found = self._shared(("positions", ref.key), lambda: self._all_positions(ref)).get(data_file)
            if found is not None:
                index.update(found)
            return
        for path, positions in self.position_rows(ref):
            if path == data_file:
                index.add_many(positions)

    def _all_positions(self, ref: DeleteFileRef) -> dict[str, PositionDeleteIndex]:
        by_file: dict[str, PositionDeleteIndex] = {}
        for path, positions in self.position_rows(ref):
            by_file.setdefault(path, PositionDeleteIndex()).add_many(positions)
        return by_file

    def position_rows(self, ref: DeleteFileRef) -> Iterator[tuple[str, Any]]:
        """Yield data files of a position delete file with positions, batch by batch.

        Raises:
            CorruptFileError: The delete file breaks its format.
            ExecutionError: The storage failed.
        """
        for batch in position_batches(self._io(ref.path), ref):
            yield from positions_by_file(batch, file=ref.path)

    def _keys(self, ids: tuple[int, ...], refs: Sequence[DeleteFileRef]) -> EqualityDeletes:
        fields = [key_field(self.schema, field_id, refs[0].path) for field_id in ids]
        rows = [columns for ref in refs for columns in self._key_rows(fields, ref)]
        none = [pa.nulls(0, arrow_type(field.field_type, spark=False)) for field in fields]
        columns = [pa.concat_arrays(parts) for parts in zip(none, *rows, strict=True)]
        return EqualityDeletes(column_ids=ids, keys=KeyLookup(columns, range(len(ids)), signed_zeros=True))

    def _key_rows(self, fields: list[NestedField], ref: DeleteFileRef) -> Iterator[list[pa.Array]]:
        with open_data_file(self._io(ref.path), ref.path, ref.file_format, None, size=ref.file_size_in_bytes) as file:
            places = [place_of(file, field.field_id, field.name, ref.path) for field in fields]
            projections = [
                projector(field, file.fields[place], spark=False) for field, place in zip(fields, places, strict=True)
            ]
            for batch in check_row_count(
                file.batches(file.pieces, places, limits.NARROW_BATCH_ROWS), ref.record_count, ref.path
            ):
                yield [
                    column if projection is None else projection(column)
                    for column, projection in zip(batch.columns, projections, strict=True)
                ]


DELETE_COLUMNS = ((FILE_PATH_ID, "file_path"), (POS_ID, "pos"))


def position_batches(io: FileIO, ref: DeleteFileRef) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a position delete file in their order, in the columns `file_path` and `pos`.

    Raises:
        CorruptFileError: The file breaks its format, or has another number of rows than its manifest says.
        ExecutionError: The storage failed.
    """
    with open_data_file(io, ref.path, ref.file_format, None, size=ref.file_size_in_bytes) as file:
        places = [place_of(file, field_id, name, ref.path) for field_id, name in DELETE_COLUMNS]
        batches = file.batches(file.pieces, places, limits.NARROW_BATCH_ROWS)
        for batch in check_row_count(batches, ref.record_count, ref.path):
            yield pa.RecordBatch.from_arrays(batch.columns, names=[name for _, name in DELETE_COLUMNS])


def place_of(file: DataFile, field_id: int, name: str, path: str) -> int:
    """Return the index of a delete file's column, found by its field id, else by its name.

    Raises:
        CorruptFileError: The file lacks the column.
    """
    by_id = [place for place, field in enumerate(file.fields) if field.field_id == field_id]
    by_name = [place for place, field in enumerate(file.fields) if is_named(field, name)]
    if not by_id and not by_name:
        raise CorruptFileError(f"The delete file '{path}' lacks the column '{name}' (field id {field_id})", file=path)
    return (by_id or by_name)[0]


def is_named(field: FileField, name: str) -> bool:
    return field.name == name


def key_field(schema: Schema, field_id: int, path: str) -> NestedField:
    """Return the table's field of a key column.

    Raises:
        CorruptFileError: The scan's schema lacks the field.
        NotSupportedError: The field has a nested type.
    """
    for field in schema.fields:
        if field.field_id == field_id:
            if not field.field_type.is_primitive:
                raise NotSupportedError(
                    f"The equality delete file '{path}' compares the column '{field.name}' of type {field.field_type}",
                    hint="Equality deletes may compare columns of primitive types only",
                )
            return field
    raise CorruptFileError(
        f"The equality delete file '{path}' compares the field {field_id}, which the table lacks", file=path
    )
