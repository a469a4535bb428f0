"""RewriteFiles: the same rows in other files. Compaction of data files, of position delete files and vectors. Driver.

Input: the action. Output: its `FileChanges`. Rules: operation `replace`, which says to every other commit that no row
changed; so it has to be true when it is published, whatever others did since the files were read.

What was deleted meanwhile in a data file that is replaced would come back with the new one: that is a conflict (V2). An
equality delete would not, if the new files keep a data sequence number from before it: it applies to them as it did to
the old ones. That is what `data_sequence_number` is for, so that compaction can stand beside a stream of upserts.
"""

from dataclasses import dataclass

from dml.commit.changes import FileChanges, Operation, Validation
from dml.commit.validation import check_rewrite_replaces_files
from dml.model.content_file import ContentFile
from dml.model.listing import DeleteFileKey, Listing

__all__ = ["RewriteFiles", "rewrite_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteFiles:
    """Replace files by others that hold the same rows, or the same deletes.

    Attributes:
        data_files: New data files: the live rows of the removed ones.
        delete_files: New position delete files or deletion vectors: what the removed delete files deleted.
        removed_data_files: Paths of the data files that they replace; each has to be live still.
        removed_delete_files: Keys of the delete files that they replace, or that nothing needs any more; each has to be
            live still. Deletion vectors of removed data files are removed in any case.
        listing: Where all of these were listed, if known: so other manifests need not be opened.
        data_sequence_number: The data sequence number of the new data files, usually that of the snapshot that was
            read; None for that of the commit: then equality deletes that came since are a conflict.
        starting_snapshot_id: The snapshot whose rows were read.
    """

    data_files: tuple[ContentFile, ...] = ()
    delete_files: tuple[ContentFile, ...] = ()
    removed_data_files: frozenset[str] = frozenset()
    removed_delete_files: frozenset[DeleteFileKey] = frozenset()
    listing: Listing | None = None
    data_sequence_number: int | None = None
    starting_snapshot_id: int | None = None


def rewrite_changes(action: RewriteFiles) -> FileChanges:
    """The changes of a `RewriteFiles`.

    Raises:
        ValidationFailedError: files are added that replace none of their kind.
    """
    referenced = frozenset(
        file.referenced_data_file for file in action.delete_files if file.referenced_data_file is not None
    )
    changes = FileChanges(
        operation=Operation.REPLACE,
        added_data_files=action.data_files,
        added_delete_files=action.delete_files,
        removed_data_files=action.removed_data_files,
        removed_delete_files=action.removed_delete_files,
        listing=action.listing,
        data_sequence_number=action.data_sequence_number,
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            deletes_of_replaced_files=bool(action.removed_data_files),
            referenced_data_files=referenced,
            added_vectors=frozenset(
                file.referenced_data_file
                for file in action.delete_files
                if file.is_deletion_vector and file.referenced_data_file is not None
            ),
        ),
    )
    check_rewrite_replaces_files(changes)
    return changes
