"""The checks of a commit against concurrent snapshots, in order. Pure; driver.

Input: the rules (`Validation`), entries of concurrent commits. Output: an error that names the files.
Each check covers one kind of entries, which the caller reads.

=====  ==========================================================  =================================================
label  conflict                                                    applies to
=====  ==========================================================  =================================================
V4     a data file that new deletes point to was removed           merge-on-read
V1     a data file that may hold rows of the filter was added      serializable isolation
V7     a data file that may hold rows of the filter was removed    overwrite by filter, replace partitions
V5     a delete file that may apply to such rows was added         merge-on-read UPDATE and MERGE; overwrites as V7
V6     another commit added a deletion vector for the data file    merge-on-read, version 3
V10    a data file that may hold rows of the filter was removed,   serializable statements that rest on rows which they
       and its rows changed                                        do not change
V2     a delete was added for a data file that is replaced         copy-on-write, compaction
V3     a file to remove is no longer live                          all that remove files by name
V8     a file is both removed and pointed to by a new delete       row delta
=====  ==========================================================  =================================================

`attempt.CHECKS` lists all checks in order. V9, the rule that a filter only removes whole files, is checked in
`new_manifests`. If the rows of a commit are known, `concurrent_deletes` compares concurrent delete files row by row,
and V2, V5 and V6 pass over those.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from dml.commit.changes import FileChanges, Operation
from dml.deletes.delete_file_index import partition_key
from dml.deletes.position_delete_file import FILE_PATH_ID
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CommitConflictError, ValidationFailedError
from dml.manifests.write import partition_type
from dml.model.manifest import (
    ContentFile,
    DeleteFileKey,
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    Partition,
)
from dml.model.transforms import partition_path
from dml.pruning.filter_text import filter_text
from dml.pruning.pruner import FileFilter

__all__ = [
    "ENTRY_CHECKS",
    "Conflict",
    "EntryCheck",
    "check_data_sequence_number",
    "check_deletes_of_replaced_files",
    "check_format_version",
    "check_manifests_are_live",
    "check_manifests_list_the_same",
    "check_not_upgraded",
    "check_removed_files_are_live",
    "check_removed_files_are_not_referenced",
    "check_rewrite_adds_no_rows",
    "check_rewrite_replaces_files",
    "only_data_file",
    "row_conflict",
    "vanished_data_files",
]

MOST_NAMED: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """A file of a concurrent commit that conflicts.

    Attributes:
        label: The check that found it.
        path: The path of the file.
        snapshot_id: The snapshot of the commit.
        is_compaction: True if the commit only moved the rows of the file to another one.
    """

    label: str
    path: str
    snapshot_id: int | None
    is_compaction: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryCheck:
    """A rule for the entries of concurrent commits.

    Attributes:
        label: V1 to V10.
        content: The content of the manifests to read.
        status: The status of the entries to check.
        operations: Returns the operations of the snapshots to read, given the changes.
        own_files: The rule covers the data files that the commit changes, regardless of the filter.
        applies: Returns True if the changes need the rule.
        conflicts: Returns True if an entry breaks the rule, given the changes and the filter.
        message: Returns the error message, given the changes and the table.
    """

    label: str
    content: ManifestContent
    status: EntryStatus
    operations: Callable[[FileChanges], frozenset[Operation]]
    own_files: bool = False
    applies: Callable[[FileChanges], bool]
    conflicts: Callable[[FileChanges, ManifestEntry, FileFilter], bool]
    message: Callable[[FileChanges, TableMetadata], str]

    def run(
        self,
        changes: FileChanges,
        table: TableMetadata,
        entries: Iterable[ManifestEntry],
        wanted: FileFilter,
        compared_files: frozenset[DeleteFileKey] = frozenset(),
    ) -> None:
        """Check entries, except those that are known not to conflict.

        Raises:
            CommitConflictError: An entry breaks the rule.
        """
        found = [
            Conflict(label=self.label, path=file_text(entry.data_file), snapshot_id=entry.snapshot_id)
            for entry in entries
            if entry.data_file.key not in compared_files and self.conflicts(changes, entry, wanted)
        ]
        if found:
            raise conflict_error(self.message(changes, table), found)


def conflict_error(message: str, found: Sequence[Conflict]) -> CommitConflictError:
    return CommitConflictError(
        f"{message}: {paths_text([conflict.path for conflict in found])}",
        hint="Another commit came first: run the statement again",
        conflicts=tuple(found),
    )


def row_conflict(path: str, rows: PositionDeleteIndex, snapshot_ids: Iterable[int | None]) -> CommitConflictError:
    """Build the error for rows that this commit changes, or relies on, and that others deleted.

    Args:
        path: The data file.
        rows: The positions of the rows.
        snapshot_ids: The snapshots of the other commits.
    """
    shown = [str(position) for position in rows.to_numpy()[:MOST_NAMED].tolist()]
    more = f" and {len(rows) - MOST_NAMED} more" if len(rows) > MOST_NAMED else ""
    found = [
        Conflict(label="ROWS", path=path, snapshot_id=snapshot_id) for snapshot_id in sorted(set(snapshot_ids), key=str)
    ]
    return CommitConflictError(
        f"Another commit deleted or updated rows that this one changes too: {path}, rows {', '.join(shown)}{more}",
        hint="Another commit came first: run the statement again",
        conflicts=tuple(found),
        rows=tuple(rows.to_numpy()[:MOST_NAMED].tolist()),
    )


def file_text(file: ContentFile) -> str:
    return f"{file.path} (for {file.referenced_data_file})" if file.is_deletion_vector else file.path


def paths_text(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return f"[{', '.join(paths[:MOST_NAMED])}{more}]"


def matching_text(changes: FileChanges, table: TableMetadata, verb: str) -> str:
    validation = changes.validation
    if validation.partitions is not None:
        paths = sorted(partition_text(partition, table) for partition in validation.partitions)
        return f"{verb} matching partitions {paths_text(paths)}"
    return f"{verb} matching {filter_text(validation.conflict_filter)}"


def partition_text(partition: Partition, table: TableMetadata) -> str:
    """Format a partition like the folders of its files: `day=2026-01-01/kind=a`."""
    spec_id, values = partition
    if not values:
        return "all"
    spec = table.specs()[spec_id]
    return partition_path(spec, partition_type(spec, table), values)


def always(*operations: Operation) -> Callable[[FileChanges], frozenset[Operation]]:
    return lambda _: frozenset(operations)


def missing_operations(changes: FileChanges) -> frozenset[Operation]:
    removing = frozenset({Operation.OVERWRITE, Operation.REPLACE})
    return removing if changes.validation.tolerate_deleted else removing | {Operation.DELETE}


def may_match(_: FileChanges, entry: ManifestEntry, wanted: FileFilter) -> bool:
    return wanted.may_match(entry.data_file)


def is_referenced(changes: FileChanges, entry: ManifestEntry, _: FileFilter) -> bool:
    return entry.data_file.path in changes.validation.referenced_data_files


def covers_our_file(changes: FileChanges, entry: ManifestEntry, _: FileFilter) -> bool:
    file = entry.data_file
    return file.is_deletion_vector and file.referenced_data_file in changes.validation.added_vectors


ENTRY_CHECKS: Final = (
    EntryCheck(
        label="V4",
        content=ManifestContent.DATA,
        status=EntryStatus.DELETED,
        operations=missing_operations,
        own_files=True,
        applies=lambda changes: bool(changes.validation.referenced_data_files),
        conflicts=is_referenced,
        message=lambda _, __: "Cannot commit, missing data files",
    ),
    EntryCheck(
        label="V1",
        content=ManifestContent.DATA,
        status=EntryStatus.ADDED,
        operations=always(Operation.APPEND, Operation.OVERWRITE),
        applies=lambda changes: changes.validation.new_data_files,
        conflicts=may_match,
        message=lambda changes, now: matching_text(changes, now, "Found conflicting files that can contain records"),
    ),
    EntryCheck(
        label="V7",
        content=ManifestContent.DATA,
        status=EntryStatus.DELETED,
        operations=always(Operation.OVERWRITE, Operation.REPLACE, Operation.DELETE),
        applies=lambda changes: changes.validation.removed_data_files,
        conflicts=may_match,
        message=lambda changes, table: matching_text(
            changes, table, "Found conflicting deleted files that can contain records"
        ),
    ),
    EntryCheck(
        label="V10",
        content=ManifestContent.DATA,
        status=EntryStatus.DELETED,
        operations=always(Operation.OVERWRITE, Operation.DELETE),
        applies=lambda changes: changes.validation.removed_rows,
        conflicts=may_match,
        message=lambda changes, table: matching_text(
            changes, table, "Found conflicting removed files that can contain records"
        ),
    ),
    EntryCheck(
        label="V5",
        content=ManifestContent.DELETES,
        status=EntryStatus.ADDED,
        operations=always(Operation.OVERWRITE, Operation.DELETE),
        applies=lambda changes: changes.validation.new_delete_files,
        conflicts=may_match,
        message=lambda changes, table: matching_text(
            changes, table, "Found new conflicting delete files that can apply to records"
        ),
    ),
    EntryCheck(
        label="V6",
        content=ManifestContent.DELETES,
        status=EntryStatus.ADDED,
        operations=always(Operation.OVERWRITE, Operation.DELETE, Operation.REPLACE),
        own_files=True,
        applies=lambda changes: bool(changes.validation.added_vectors),
        conflicts=covers_our_file,
        message=lambda _, __: "Found concurrently added deletion vectors",
    ),
)
"""The checks of concurrent commits' entries, in order; `attempt.CHECKS` has all checks."""


def check_not_upgraded(changes: FileChanges, planned: int, version: int) -> None:
    """Reject files for version 2 in version 3, which stores deletes differently and has row ids.

    Args:
        changes: The changes of the commit.
        planned: The format version when the statement was planned.
        version: The table's current format version.

    Raises:
        CommitConflictError: The changes have position deletes, or rows or manifests of replaced ones without their ids.
    """
    rewrites = (changes.added_data_files and changes.removed_data_files) or changes.added_manifests
    if planned < 3 <= version and (changes.added_delete_files or rewrites):
        raise CommitConflictError(
            f"The table was upgraded from format version {planned} to {version} while the statement ran",
            hint="Run the statement again",
        )


def check_format_version(changes: FileChanges, version: int, spec_ids: Iterable[int]) -> None:
    """Check that new files fit the table's format version and specs.

    Raises:
        ValidationFailedError: they do not.
    """
    for file in changes.added_delete_files:
        if version == 1:
            raise ValidationFailedError(
                "Deletes are supported in V2 and above, and the table has format version 1", file=file.path
            )
        if version == 2 and file.is_deletion_vector:
            raise ValidationFailedError("Must not use DVs for position deletes in V2", file=file.path)
        if version > 2 and file.content is FileContent.POSITION_DELETES and not file.is_deletion_vector:
            raise ValidationFailedError("Must use DVs for position deletes in V3", file=file.path)
    known = set(spec_ids)
    for file in (*changes.added_data_files, *changes.added_delete_files):
        if file.spec_id not in known:
            raise ValidationFailedError(f"The table has no partition spec {file.spec_id}", file=file.path)


def check_removed_files_are_not_referenced(changes: FileChanges) -> None:
    """Check V8.

    Raises:
        ValidationFailedError: New deletes point to a removed data file.
    """
    both = sorted(changes.removed_data_files & changes.validation.referenced_data_files)
    if both:
        raise ValidationFailedError(
            f"Cannot delete data files {paths_text(both)} that are referenced by new delete files", files=tuple(both)
        )


def check_removed_files_are_live(missing: Iterable[str]) -> None:
    """Check V3.

    Args:
        missing: Paths of files to remove that are not live in the branch's head.

    Raises:
        CommitConflictError: There are any.
    """
    found = [Conflict(label="V3", path=path, snapshot_id=None) for path in sorted(missing)]
    if found:
        raise conflict_error("Missing required files to delete", found)


def check_deletes_of_replaced_files(
    removed: Iterable[ManifestEntry],
    new_deletes: Iterable[ManifestEntry],
    unpartitioned: Collection[int],
    *,
    moves: Collection[Hashable] | None = None,
) -> None:
    """Check V2: replaced files carry over all rows, so a concurrent delete of any row would be undone.

    Args:
        removed: Entries of the data files that this commit replaces.
        new_deletes: Entries of the delete files that other commits added.
        unpartitioned: The ids of unpartitioned specs.
        moves: The partitions that rows leave or enter, if the new files keep the data sequence number: other equality
            deletes apply to the new files as to the old ones. With None, the new files are too young for them.

    Raises:
        CommitConflictError: A new delete applies to a replaced file, or does not apply to the same rows any more.
    """
    replaced = {partition_key(entry.data_file.spec_id, entry.data_file.partition) for entry in removed}
    paths = {entry.data_file.path for entry in removed}

    def conflicts(delete: ContentFile) -> bool:
        if moves is None or delete.content is not FileContent.EQUALITY_DELETES:
            return may_apply(delete, paths, replaced, unpartitioned)
        return delete.spec_id not in unpartitioned and partition_key(delete.spec_id, delete.partition) in moves

    found = [
        Conflict(label="V2", path=file_text(entry.data_file), snapshot_id=entry.snapshot_id)
        for entry in new_deletes
        if conflicts(entry.data_file)
    ]
    if found:
        raise conflict_error("Cannot commit, found new delete for replaced data file", found)


def check_manifests_list_the_same(added: Iterable[ManifestFile], removed: Iterable[ManifestFile]) -> None:
    """Check that new manifests list as many live files and rows as the ones that they replace.

    Source: Iceberg's `BaseRewriteManifests.validateFilesCounts`.

    Raises:
        ValidationFailedError: They list more or fewer, or a count is unknown.
    """
    new, old = [live_counts(manifests) for manifests in (tuple(added), tuple(removed))]
    for content in ManifestContent:
        for place, what in enumerate(("active files", "rows")):
            if new[content][place] != old[content][place]:
                raise ValidationFailedError(
                    f"Replaced and created manifests of {content.name.lower()} must have the same number of {what}: "
                    f"{new[content][place]} (new), {old[content][place]} (old)"
                )


def live_counts(manifests: Iterable[ManifestFile]) -> dict[ManifestContent, tuple[int, int]]:
    """Return the live files and rows by content."""
    counts = dict.fromkeys(ManifestContent, (0, 0))
    for manifest in manifests:
        known = (
            manifest.added_files_count,
            manifest.existing_files_count,
            manifest.added_rows_count,
            manifest.existing_rows_count,
        )
        if None in known:
            raise ValidationFailedError(f"No file counts in manifest: {manifest.manifest_path}")
        added_files, existing_files, added_rows, existing_rows = (number or 0 for number in known)
        files, rows = counts[manifest.content]
        counts[manifest.content] = (files + added_files + existing_files, rows + added_rows + existing_rows)
    return counts


def check_manifests_are_live(removed: Iterable[ManifestFile], live: Iterable[ManifestFile]) -> None:
    """Check that manifests to replace are still in the branch's head, with the same row ids.

    Args:
        removed: The manifests to replace.
        live: The manifests of the head.

    Raises:
        CommitConflictError: One is missing. After an upgrade to version 3, another commit may have given one row ids,
            which the new manifests lack.
    """
    known = {(manifest.manifest_path, manifest.first_row_id) for manifest in live}
    found = [
        Conflict(label="manifests", path=manifest.manifest_path, snapshot_id=None)
        for manifest in removed
        if (manifest.manifest_path, manifest.first_row_id) not in known
    ]
    if found:
        raise conflict_error("Deleted manifests could not be found in the latest snapshot", found)


def check_rewrite_replaces_files(changes: FileChanges) -> None:
    """Check that a rewrite replaces files only with files of the same kind.

    Raises:
        ValidationFailedError: It removes no file, adds files of a kind of which it removes none, or adds equality
            deletes.
    """
    data, deletes = changes.removed_data_files, changes.removed_delete_files
    if not data and not deletes:
        raise ValidationFailedError("A rewrite has to remove files")
    if changes.added_data_files and not data:
        raise ValidationFailedError("A rewrite cannot add data files: it removes none")
    added = {file.path for file in changes.added_data_files}
    if not deletes and any(file.referenced_data_file not in added for file in changes.added_delete_files):
        raise ValidationFailedError("A rewrite cannot add delete files: it removes none")
    equality = [file.path for file in changes.added_delete_files if file.content is FileContent.EQUALITY_DELETES]
    if equality:
        raise ValidationFailedError(
            f"A rewrite cannot add equality deletes: {paths_text(equality)}", files=tuple(equality)
        )


def check_rewrite_adds_no_rows(changes: FileChanges, removed: Iterable[ManifestEntry]) -> None:
    """Check that a rewrite holds at most the rows of the files that it replaces.

    Raises:
        ValidationFailedError: The new files hold more rows.
    """
    before = sum(entry.data_file.record_count for entry in removed)
    after = sum(file.record_count for file in changes.added_data_files)
    if after > before:
        raise ValidationFailedError(f"A rewrite cannot add rows: it replaces {before} of them by {after}")


def check_data_sequence_number(changes: FileChanges, removed: Iterable[ManifestEntry], first_since: int) -> None:
    """Check a data sequence number that new files keep: only later equality deletes may apply to them.

    Args:
        changes: The changes of the commit.
        removed: Entries of the replaced data files.
        first_since: The sequence number of the first snapshot after the one whose rows the new files hold.

    Raises:
        ValidationFailedError: The number is below that of a replaced file, or not below `first_since`.
    """
    number = changes.data_sequence_number
    if number is None:
        return
    youngest = max((entry.data_sequence_number or 0 for entry in removed), default=0)
    if not youngest <= number < first_since:
        raise ValidationFailedError(
            f"The data sequence number {number} does not fit: the replaced files have up to {youngest}, and the first "
            f"commit since they were read has {first_since}"
        )


def may_apply(delete: ContentFile, paths: set[str], partitions: set[Hashable], unpartitioned: Collection[int]) -> bool:
    scope = only_data_file(delete)
    if scope is not None:
        return scope in paths
    # An equality delete of no partition applies to the whole table.
    is_global = delete.content is FileContent.EQUALITY_DELETES and delete.spec_id in unpartitioned
    return bool(partitions) and (is_global or partition_key(delete.spec_id, delete.partition) in partitions)


def only_data_file(delete: ContentFile) -> str | None:
    """Return the single data file that a delete file covers, or None; equal bounds of the path also prove it."""
    if delete.referenced_data_file is not None or delete.content is FileContent.EQUALITY_DELETES:
        return delete.referenced_data_file
    lower, upper = delete.lower_bounds.get(FILE_PATH_ID), delete.upper_bounds.get(FILE_PATH_ID)
    return lower.decode("utf-8") if lower is not None and lower == upper else None


def vanished_data_files(changes: FileChanges, removed: Iterable[ManifestEntry]) -> frozenset[str]:
    """Return the data files of our deletes that a concurrent DELETE removed whole, which makes our deletes moot.

    Args:
        changes: The changes of the commit.
        removed: Entries that concurrent DELETEs removed.
    """
    return frozenset(referenced_paths(changes, removed))


def referenced_paths(changes: FileChanges, removed: Iterable[ManifestEntry]) -> Iterator[str]:
    for entry in removed:
        if entry.data_file.path in changes.validation.referenced_data_files:
            yield entry.data_file.path
