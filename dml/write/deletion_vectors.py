"""Deletion vectors of version 3 tables. Worker.

Input: deleted positions by data file. Output: one Puffin file with a deletion vector for each data file. Spec:
"Deletion Vectors"; Puffin, "deletion-vector-v1 blob type".

A data file has one vector at most: the new one holds the positions of the one before or, after an upgrade, of all
position delete files. Of those, files for several data files stay, as others need them; readers ignore them once there
is a vector.
"""

from dataclasses import dataclass

from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.deletes.puffin import BlobMetadata, PuffinWriter, deletion_vector_blob
from dml.model.content_file import ContentFile, FileContent
from dml.model.scan_task import ScanTask
from dml.model.target_files import TargetFiles
from dml.write.delete_writer import DeletedPositions, DeleteResult
from dml.write.output_files import OutputFile, OutputFileFactory
from dml.write.position_deletes import file_scoped

__all__ = ["DeletionVectorWriter"]

CREATED_BY = "RowDelta"


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenVector:
    """A blob in the open Puffin file, and the data file that it is for."""

    task: ScanTask
    blob: BlobMetadata
    cardinality: int


class DeletionVectorWriter:
    """Writes the deletion vectors of one task into one Puffin file.

    Args:
        files: The data files.
        output: Opens the Puffin file; only when there is something to write.
    """

    def __init__(self, *, files: TargetFiles, output: OutputFileFactory) -> None:
        self._files = files
        self._output = output
        self._file: OutputFile | None = None
        self._puffin: PuffinWriter | None = None
        self._vectors: list[WrittenVector] = []
        self._rewritten: list[tuple[str, int | None, int | None]] = []

    def delete(self, ordinal: int, positions: PositionDeleteIndex) -> DeletedPositions:
        """Writes the deletion vector of one data file."""
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
        puffin = self._puffin or self._open()
        blob = puffin.write_blob(deletion_vector_blob(task.path, len(merged)), encode(merged))
        self._vectors.append(WrittenVector(task=task, blob=blob, cardinality=len(merged)))
        return counts

    def close(self) -> DeleteResult:
        """Finishes the Puffin file."""
        if self._puffin is None or self._file is None:
            return DeleteResult()
        size = self._puffin.close()
        self._output.close(self._file)
        return DeleteResult(
            delete_files=tuple(content_file(vector, self._file.location, size) for vector in self._vectors),
            rewritten_delete_files=tuple(self._rewritten),
            referenced_data_files=tuple(vector.task.path for vector in self._vectors),
        )

    def _open(self) -> PuffinWriter:
        self._file = self._output.open("puffin", deletes=True)
        self._puffin = PuffinWriter(self._file.stream, CREATED_BY)
        return self._puffin


def content_file(vector: WrittenVector, location: str, size: int) -> ContentFile:
    """The manifest's view of a vector."""
    return ContentFile(
        content=FileContent.POSITION_DELETES,
        path=location,
        file_format="puffin",
        spec_id=vector.task.spec_id,
        partition=vector.task.partition,
        record_count=vector.cardinality,
        file_size_in_bytes=size,
        referenced_data_file=vector.task.path,
        content_offset=vector.blob.offset,
        content_size_in_bytes=vector.blob.length,
    )
