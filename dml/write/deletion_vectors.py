"""Deletion vectors of version 3 tables. Worker.

Input: deleted positions by data file. Output: one Puffin file with a deletion vector for each data file. Spec:
"Deletion Vectors"; Puffin, "deletion-vector-v1 blob type".

A data file has one vector at most: the new one holds the positions of the one before or, after an upgrade, of all
position delete files. Of those, files for several data files stay, as others need them; readers ignore them once there
is a vector.
"""

from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.deletes.puffin import BlobMetadata, PuffinWriter, deletion_vector_blob
from dml.model.content_file import ContentFile, FileContent
from dml.model.file_deletes import FileDeletes
from dml.model.target_files import TargetFiles
from dml.write.delete_writer import DeletedPositions, DeleteResult
from dml.write.output_files import OutputFile, OutputFileFactory, write_errors
from dml.write.position_deletes import file_scoped

__all__ = ["DeletionVectorWriter", "VectorFile"]

CREATED_BY = "RowDelta"


class VectorFile:
    """A Puffin file of deletion vectors; it is created with the first of them.

    Args:
        output: Opens it.
    """

    def __init__(self, output: OutputFileFactory) -> None:
        self._output = output
        self._file: OutputFile | None = None
        self._puffin: PuffinWriter | None = None
        self._vectors: list[tuple[FileDeletes, BlobMetadata]] = []

    def add(self, deletes: FileDeletes) -> None:
        """Writes the vector of one data file."""
        puffin = self._puffin or self._open()
        blob = deletion_vector_blob(deletes.path, len(deletes.positions))
        assert self._file is not None
        with write_errors(self._file.location):
            self._vectors.append((deletes, puffin.write_blob(blob, encode(deletes.positions))))

    def close(self) -> tuple[ContentFile, ...]:
        """Finishes the file; gives its vectors, in their order."""
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
            self._puffin = PuffinWriter(self._file.stream, CREATED_BY)
        return self._puffin


class DeletionVectorWriter:
    """Writes the deletion vectors of one task into one Puffin file.

    Args:
        files: The data files.
        output: Opens the Puffin file; only when there is something to write.
    """

    def __init__(self, *, files: TargetFiles, output: OutputFileFactory) -> None:
        self._files = files
        self._vectors = VectorFile(output)
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
        self._vectors.add(FileDeletes(path=task.path, spec_id=task.spec_id, partition=task.partition, positions=merged))
        return counts

    def close(self) -> DeleteResult:
        """Finishes the Puffin file."""
        vectors = self._vectors.close()
        return DeleteResult(
            delete_files=vectors,
            rewritten_delete_files=tuple(self._rewritten),
            referenced_data_files=tuple(file.referenced_data_file for file in vectors if file.referenced_data_file),
        )


def content_file(deletes: FileDeletes, blob: BlobMetadata, location: str, size: int) -> ContentFile:
    """The manifest's view of a vector."""
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
