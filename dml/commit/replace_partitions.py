"""ReplacePartitions: the partitions that new files lie in lose all their old files. Dynamic overwrite. Driver.

Input: the action. Output: its `FileChanges`. Rules: operation `overwrite`, summary `replace-partitions`; a partition is
a spec id and a tuple, so files of other specs stay.
"""

from dataclasses import dataclass

from dml.commit.changes import FileChanges, Operation, Validation
from dml.deletes.delete_file_index import partition_key
from dml.model.content_file import ContentFile
from dml.options import IsolationLevel

__all__ = ["ReplacePartitions", "replace_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacePartitions:
    """Replace the partitions of the new files.

    Attributes:
        data_files: New data files; without any there is nothing to commit.
        starting_snapshot_id: Validate against snapshots after this one; None means all.
        isolation_level: What to validate; None for nothing.
        reads_table: Whether the new rows were made of rows of the table: what is validated then concerns all of it.
    """

    data_files: tuple[ContentFile, ...]
    starting_snapshot_id: int | None = None
    isolation_level: IsolationLevel | None = None
    reads_table: bool = False


def replace_changes(action: ReplacePartitions) -> FileChanges:
    """The changes of a `ReplacePartitions`."""
    found = {partition_key(file.spec_id, file.partition): (file.spec_id, file.partition) for file in action.data_files}
    partitions = tuple(found.values())
    return FileChanges(
        operation=Operation.OVERWRITE,
        added_data_files=action.data_files,
        replaced_partitions=partitions,
        summary=(("replace-partitions", "true"),),
        validation=Validation(
            starting_snapshot_id=action.starting_snapshot_id,
            partitions=None if action.reads_table else partitions,
            new_data_files=action.isolation_level is IsolationLevel.SERIALIZABLE,
            new_delete_files=action.isolation_level is not None,
            removed_data_files=action.isolation_level is not None,
        ),
    )
