"""Rows of `position_deletes`, from position delete files and deletion vectors. Worker-safe.

Input: a `PositionScan`, delete files. Output: record batches of the projected columns. Spec:
"Position Delete Files", "Deletion Vectors".
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StructType

from dml import limits
from dml.deletes.position_delete_file import FILE_PATH_ID, POS_ID
from dml.errors import CorruptFileError
from dml.files.file_io import file_io
from dml.metadata_tables.values import value_array
from dml.model.scan_task import DeleteFileRef
from dml.read.applied_deletes import DeleteLoader, place_of
from dml.read.data_file import check_row_count
from dml.read.open_data_file import open_data_file
from dml.read.projection import arrow_type, projector
from dml.tasks.task_input import TaskInput

__all__ = ["DeleteFile", "PositionScan", "PositionsTask"]

ROW_ID: Final = 2147483544
"""The field id of the optional deleted row in position delete files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFile:
    """A position delete file or a deletion vector.

    Attributes:
        ref: The file.
        spec_id: The id of its partition spec.
        partition: Its partition values, in the fields of all specs.
    """

    ref: DeleteFileRef
    spec_id: int
    partition: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionScan:
    """The settings that all tasks share.

    Attributes:
        schema_json: The projected schema of the metadata table (Iceberg JSON).
        io_properties: Properties of the FileIO. They may hold credentials and are never printed.
    """

    schema_json: str
    io_properties: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionsTask:
    """Reads delete files in a Spark task. Picklable.

    Attributes:
        input: Groups of `DeleteFile`s, with a `PositionScan`.
    """

    input: TaskInput

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the task's groups."""
        reader = PositionReader(self.input.context)
        for files in self.input.groups(batches):
            for file in files:
                yield from reader.batches(file)


class PositionReader:
    """Reads delete files as record batches.

    Args:
        scan: The columns to read.
    """

    def __init__(self, scan: PositionScan) -> None:
        self.io_properties = scan.io_properties
        self.fields = Schema.model_validate_json(scan.schema_json).fields
        self.schema = pa.schema([pa.field(f.name, arrow_type(f.field_type, spark=True)) for f in self.fields])
        self.deletes = DeleteLoader(Schema(), scan.io_properties)

    def batches(self, file: DeleteFile) -> Iterator[pa.RecordBatch]:
        """Yield the positions that a file deletes.

        Raises:
            CorruptFileError: the file is missing or breaks its format.
            ExecutionError: the storage failed.
        """
        parts = self.vector(file.ref) if file.ref.is_deletion_vector else self.rows(file.ref)
        for paths, positions, deleted in parts:
            arrays = [self.array(found, file, paths, positions, deleted) for found in self.fields]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def vector(self, ref: DeleteFileRef) -> Iterator[tuple[pa.Array, pa.Array, pa.Array | None]]:
        if ref.referenced_data_file is None:
            raise CorruptFileError(f"The deletion vector in '{ref.path}' names no data file", file=ref.path)
        positions = self.deletes.positions_in(ref.referenced_data_file, (ref,)).to_numpy()
        path = pa.scalar(ref.referenced_data_file, pa.string())
        for start in range(0, len(positions), limits.SPARK_BATCH_ROWS):
            part = pa.array(positions[start : start + limits.SPARK_BATCH_ROWS], pa.int64())
            yield pa.repeat(path, len(part)), part, None

    def rows(self, ref: DeleteFileRef) -> Iterator[tuple[pa.Array, pa.Array, pa.Array | None]]:
        io = file_io(self.io_properties, ref.path)
        with open_data_file(io, ref.path, ref.file_format, None, size=ref.file_size_in_bytes) as file:
            places = [place_of(file, FILE_PATH_ID, "file_path", ref.path), place_of(file, POS_ID, "pos", ref.path)]
            row = next((found for found in self.fields if found.name == "row"), None)
            stored = [place for place, found in enumerate(file.fields) if row and found.field_id == ROW_ID]
            projection = projector(row, file.fields[stored[0]], spark=True) if row is not None and stored else None
            columns = [*places, *stored[:1]]
            for batch in check_row_count(
                file.batches(file.pieces, columns, limits.SPARK_BATCH_ROWS), ref.record_count, ref.path
            ):
                deleted = batch.column(2) if stored else None
                if deleted is not None and projection is not None:
                    deleted = projection(deleted)
                yield batch.column(0).cast(pa.string()), batch.column(1).cast(pa.int64()), deleted

    def array(
        self, found: NestedField, file: DeleteFile, paths: pa.Array, positions: pa.Array, deleted: pa.Array | None
    ) -> pa.Array:
        rows = len(positions)
        match found.name:
            case "file_path":
                return paths
            case "pos":
                return positions
            case "row":
                return pa.nulls(rows, arrow_type(found.field_type, spark=True)) if deleted is None else deleted
            case "partition":
                assert isinstance(found.field_type, StructType)
                fields = found.field_type.fields
                arrays = [
                    value_array([value] * rows, part.field_type)
                    for value, part in zip(file.partition, fields, strict=True)
                ]
                names = [pa.field(part.name, arrow_type(part.field_type, spark=True)) for part in fields]
                return pa.StructArray.from_arrays(arrays, fields=names)
            case "spec_id":
                return pa.repeat(pa.scalar(file.spec_id, pa.int32()), rows)
            case "delete_file_path":
                return pa.repeat(pa.scalar(file.ref.path, pa.string()), rows)
            case "content_offset":
                return pa.repeat(pa.scalar(file.ref.content_offset, pa.int64()), rows)
        return pa.repeat(pa.scalar(file.ref.content_size_in_bytes, pa.int64()), rows)
