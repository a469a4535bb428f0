"""Delete files that are written at commit time, for deletes that are only known then. Driver.

Input: deleted positions of a few data files. Output: delete files as the table's format version has them. The names
hold an id of their own: those of the statement's tasks stay unique.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace

from dml.deletes.position_delete_file import table_of
from dml.model.content_file import ContentFile
from dml.model.file_deletes import FileDeletes
from dml.model.write_context import WriteContext
from dml.write.deletion_vectors import VectorFile
from dml.write.output_files import OutputFileFactory
from dml.write.position_deletes import delete_file_options, write_position_deletes
from dml.write.task_identity import TaskIdentity
from dml.write.writer_spec import DELETION_VECTOR_VERSION

__all__ = ["write_late_deletes"]


def write_late_deletes(context: WriteContext, deletes: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
    """Write one deletion vector or position delete file for each data file.

    Args:
        context: The write.
        deletes: The data files and all their deleted positions.

    Returns:
        The delete files, in the order of `deletes`.

    Raises:
        Exception: the storage failed; what was written is deleted.
    """
    output = OutputFileFactory(replace(context, query_id=str(uuid.uuid4())), TaskIdentity())
    try:
        if context.format_version >= DELETION_VECTOR_VERSION:
            vectors = VectorFile(output)
            for file in deletes:
                vectors.add(file)
            return vectors.close()
        options = delete_file_options(context)
        return tuple(
            write_position_deletes(
                (file.spec_id, file.partition), table_of({file.path: file.positions}), options, output
            )
            for file in deletes
        )
    except BaseException:
        output.abort()
        raise
