"""Rewrite position delete files into fewer ones, or after an upgrade to version 3 into deletion vectors. Driver.

Input: a table, a branch, options and a filter. Output: snapshots with operation `replace` that delete the same rows.

Positions of data files that are no longer live are dropped. New files have the greatest data sequence number of the
files that they replace, so a position is only kept if its old file applied to the data file. Readers ignore position
delete files of a data file with a deletion vector, so a new vector gets the positions of all of them, including those
that are not rewritten. A data file that already has a vector needs no new one.

Spec: "Position Delete Files", "Deletion Vectors". Source: Iceberg's `RewritePositionDeleteFilesSparkAction`.
"""

import uuid
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from dml.commit import RewriteFiles, commit
from dml.commit.attempt import TargetBranch, parent_of
from dml.deletes.delete_file_index import DeleteFileIndex, partition_key
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CommitConflictError, CommitStateUnknownError, ValidationFailedError
from dml.files.file_io import delete_files
from dml.maintenance.position_delete_groups import (
    UNLIMITED,
    PositionDeleteGroup,
    PositionDeleteOptions,
    group_reasons,
    position_delete_groups,
)
from dml.manifests.read import entries_of, manifests_of, read_each
from dml.model.manifest import (
    ContentFile,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
    unpartitioned_specs,
)
from dml.model.scan_task import DeleteFileRef, FileDeletes
from dml.model.write_task import WriteContext
from dml.options import DeleteGranularity
from dml.pruning.pruner import PartitionSet, Pruner
from dml.read.applied_deletes import DeleteLoader
from dml.scan.planner import delete_entry
from dml.write.delete_files import VectorFile, delete_file_options, write_partition_deletes
from dml.write.output_files import OutputFileFactory, TaskIdentity
from dml.write.writer_spec import DELETION_VECTOR_VERSION

__all__ = [
    "PositionDeleteRewrite",
    "RewrittenPositionDeletes",
    "content_size",
    "group_limits",
    "plan_position_delete_rewrite",
    "rewrite_position_deletes",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionDeleteRewrite:
    """The plan of a rewrite.

    Attributes:
        table: The table.
        branch: The branch.
        snapshot: Its head; None if there is none.
        options: The options.
        files: The position delete files that the filter selects, without deletion vectors.
        deletes: All delete files of the snapshot.
        groups: The groups to rewrite.
    """

    table: Table = field(repr=False)
    branch: str
    snapshot: Snapshot | None
    options: PositionDeleteOptions
    files: tuple[ManifestEntry, ...] = field(default=(), repr=False)
    deletes: tuple[ManifestEntry, ...] = field(default=(), repr=False)
    groups: tuple[PositionDeleteGroup, ...] = ()

    def decisions(self) -> Iterator[tuple[ManifestEntry, bool, str]]:
        """Yield each file, whether it is rewritten, and the reason."""
        return group_reasons(self.files, self.groups, self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenPositionDeletes:
    """The outcome of a group.

    Attributes:
        group: The files that were replaced.
        added: The files that replace them.
    """

    group: PositionDeleteGroup
    added: tuple[ContentFile, ...]

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The number of replaced and of new files, and the bytes of both."""
        return len(self.group.files), len(self.added), self.group.size, sum(map(content_size, self.added))


def content_size(file: ContentFile) -> int:
    """Return the bytes of a delete file; of a deletion vector, those of its blob."""
    return file.file_size_in_bytes if file.content_size_in_bytes is None else file.content_size_in_bytes


def plan_position_delete_rewrite(
    table: Table,
    options: PositionDeleteOptions,
    row_filter: BooleanExpression,
    *,
    branch: str | None = None,
    case_sensitive: bool = False,
) -> PositionDeleteRewrite:
    """Read the delete manifests and select the files to rewrite.

    Args:
        table: The table, newly loaded.
        options: The options.
        row_filter: Only files of partitions that may contain matching rows are selected.
        branch: The branch; None for main.
        case_sensitive: Whether the case of names in the filter matters.

    Raises:
        NotFoundError: The branch does not exist.
        CorruptFileError: A metadata file is missing or damaged.
        ExecutionError: The storage failed.
    """
    branch = MAIN_BRANCH if branch is None else branch
    snapshot = parent_of(table.metadata, TargetBranch(branch=branch))
    metadata = table.metadata
    pruner = Pruner(
        metadata.specs(), metadata.schema(), row_filter, case_sensitive=case_sensitive, older_schemas=metadata.schemas
    )
    manifests = [one for one in manifests_of(table.io, snapshot) if one.content is ManifestContent.DELETES]
    deletes = tuple(live_files(table, manifests))
    files = tuple(
        entry
        for entry in deletes
        if entry.data_file.content is FileContent.POSITION_DELETES
        and not entry.data_file.is_deletion_vector
        and pruner.may_match(entry.data_file)
    )
    return PositionDeleteRewrite(
        table=table,
        branch=branch,
        snapshot=snapshot,
        options=options,
        files=files,
        deletes=deletes,
        groups=position_delete_groups(files, group_limits(options, table)),
    )


def group_limits(options: PositionDeleteOptions, table: Table) -> PositionDeleteOptions:
    """Return the options, without group limits in version 3: two groups must not write vectors of one data file."""
    if table.format_version < DELETION_VECTOR_VERSION:
        return options
    return replace(options, group_size=UNLIMITED, group_files=UNLIMITED)


def live_files(table: Table, manifests: Sequence[ManifestFile]) -> Iterator[ManifestEntry]:
    for _, entries in read_each(manifests, lambda one: tuple(entries_of(one, table.io, live_only=True))):
        yield from entries


def rewrite_position_deletes(
    plan: PositionDeleteRewrite, context: WriteContext, summary: Mapping[str, str] | None = None
) -> tuple[RewrittenPositionDeletes, ...]:
    """Write the new delete files and commit them.

    Args:
        plan: The plan.
        context: The context of the writes.
        summary: Keys of the engine and of the user for the summaries of the snapshots.

    Returns:
        The committed groups. With partial progress, the groups of failed commits are missing.

    Raises:
        CommitConflictError: Another commit removed one of the files meanwhile; the new files are deleted.
        CommitStateUnknownError: A commit may have landed; its files are not deleted.
        ValidationFailedError: The table lists a data file twice, and a delete file applies to only one entry; the new
            files are deleted.
        CorruptFileError: A delete file is damaged; the new files are deleted.
        ExecutionError: The storage failed; the new files are deleted.
    """
    if not plan.groups:
        return ()
    options = plan.options
    writer = GroupWriter.of(plan, context)
    size = -(-len(plan.groups) // options.max_commits) if options.partial_progress else len(plan.groups)
    done: list[RewrittenPositionDeletes] = []
    errors: list[Exception] = []
    for start in range(0, len(plan.groups), size):
        try:
            done += rewrite_groups(plan, plan.groups[start : start + size], writer, summary)
        except CommitStateUnknownError:
            raise
        except Exception as error:
            if not options.partial_progress:
                raise
            errors.append(error)
    if errors and not done:
        raise errors[0]
    return tuple(done)


def rewrite_groups(
    plan: PositionDeleteRewrite,
    groups: Sequence[PositionDeleteGroup],
    writer: "GroupWriter",
    summary: Mapping[str, str] | None,
) -> list[RewrittenPositionDeletes]:
    """Write the new files of some groups, and commit them together."""
    with ThreadPoolExecutor(plan.options.concurrent_groups, thread_name_prefix="rowdelta-deletes") as pool:
        futures = [pool.submit(writer.write, group) for group in groups]
        try:
            done = [future.result() for future in futures]
        except BaseException:
            for future in futures:
                future.cancel()
            pool.shutdown()
            remove(plan.table, written_by(futures))
            raise
    added = tuple(file for one in done for file in one.added)
    action = RewriteFiles(
        delete_files=added,
        removed_delete_files=frozenset(entry.data_file.key for group in groups for entry in group.files),
        delete_sequence_numbers={file.key: one.group.data_sequence_number for one in done for file in one.added},
        starting_snapshot_id=None if plan.snapshot is None else plan.snapshot.snapshot_id,
    )
    try:
        commit(plan.table, action, branch=plan.branch, summary=summary)
    except CommitStateUnknownError:
        raise
    except Exception as error:  # not on an interrupt: the commit may have landed
        remove(plan.table, added)
        if isinstance(error, CommitConflictError) and not plan.options.partial_progress:
            error.hint = "Call it again; partial-progress.enabled commits in smaller steps"
        raise
    return done


def applies_to_one_entry(delete: str, path: str) -> ValidationFailedError:
    return ValidationFailedError(
        f"The position delete file '{delete}' cannot be rewritten: the table lists the data file '{path}' several "
        "times, and its positions are deleted in the older entry alone",
        hint="It was added twice: remove the file from the table and add it once, or go back to an earlier snapshot",
        file=path,
    )


def written_by(futures: Iterable[Future[RewrittenPositionDeletes]]) -> Iterator[ContentFile]:
    for future in futures:
        if future.done() and not future.cancelled() and future.exception() is None:
            yield from future.result().added


def remove(table: Table, files: Iterable[ContentFile]) -> None:
    delete_files(table.io, sorted({file.path for file in files}))


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWriter:
    """Writes the new delete files of groups.

    Attributes:
        context: The context of the writes.
        options: The options.
        data_files: The newest entry of each live data file in the groups' partitions, by path.
        oldest: The data sequence number of the oldest entry of each file that is listed several times, by path.
        index: The delete files of the snapshot.
        table: The table.
    """

    context: WriteContext = field(repr=False)
    options: PositionDeleteOptions
    data_files: Mapping[str, ManifestEntry] = field(repr=False)
    oldest: Mapping[str, int] = field(repr=False)
    index: DeleteFileIndex = field(repr=False)
    table: Table = field(repr=False)

    @staticmethod
    def of(plan: PositionDeleteRewrite, context: WriteContext) -> "GroupWriter":
        """Read the data manifests that may list files of the groups' partitions."""
        table = plan.table
        wanted = PartitionSet((group.partition for group in plan.groups), table.metadata)
        manifests = [
            manifest
            for manifest in manifests_of(table.io, plan.snapshot)
            if manifest.content is ManifestContent.DATA and wanted.may_list_matches(manifest)
        ]
        data_files: dict[str, ManifestEntry] = {}
        oldest: dict[str, int] = {}
        for entry in live_files(table, manifests):
            path, number = entry.data_file.path, entry.data_sequence_number or 0
            if not wanted.may_match(entry.data_file):
                continue
            if path in data_files:
                known = data_files[path].data_sequence_number or 0
                oldest[path] = min(oldest.get(path, known), number)
                if number <= known:
                    continue
            data_files[path] = entry
        return GroupWriter(
            context=context,
            options=plan.options,
            data_files=data_files,
            oldest=oldest,
            index=DeleteFileIndex(map(delete_entry, plan.deletes), unpartitioned_specs(table.metadata.specs())),
            table=table,
        )

    def write(self, group: PositionDeleteGroup) -> RewrittenPositionDeletes:
        """Write the new files of a group; none if no position is needed."""
        loader = DeleteLoader(self.table.schema(), self.context.io_properties)
        output = OutputFileFactory(replace(self.context, query_id=str(uuid.uuid4())), TaskIdentity())
        try:
            if self.context.format_version >= DELETION_VECTOR_VERSION:
                added = self._write_vectors(group, loader, output)
            else:
                added = self._write_files(group, loader, output)
        except BaseException:
            output.abort()
            raise
        return RewrittenPositionDeletes(group=group, added=added)

    def _write_files(
        self, group: PositionDeleteGroup, loader: DeleteLoader, output: OutputFileFactory
    ) -> tuple[ContentFile, ...]:
        options = replace(delete_file_options(self.context), delete_target_file_size=self.options.max_output_size)
        deletes = [
            FileDeletes(path=path, spec_id=group.partition[0], partition=group.partition[1], positions=positions)
            for path, positions in sorted(self._positions(group, loader).items())
        ]
        by_file = options.delete_granularity is DeleteGranularity.FILE
        parts = [[one] for one in deletes] if by_file else [deletes]
        return tuple(file for part in parts for file in write_partition_deletes(part, options, output))

    def _write_vectors(
        self, group: PositionDeleteGroup, loader: DeleteLoader, output: OutputFileFactory
    ) -> tuple[ContentFile, ...]:
        vectors = VectorFile(output)
        for path in sorted(self._positions(group, loader)):
            entry = self.data_files[path]
            file = entry.data_file
            applied = self.index.for_data_file(path, file.spec_id, file.partition, entry.data_sequence_number or 0)
            if applied.deletion_vector is None:
                refs = [
                    DeleteFileRef.of(
                        delete.payload.data_file,
                        referenced_data_file=delete.data_file,
                        data_sequence_number=delete.data_sequence_number,
                    )
                    for delete in applied.position_deletes
                ]
                positions = loader.positions_in(path, refs)
                vectors.add(FileDeletes(path=path, spec_id=file.spec_id, partition=file.partition, positions=positions))
        return vectors.close()

    def _positions(self, group: PositionDeleteGroup, loader: DeleteLoader) -> dict[str, PositionDeleteIndex]:
        """Return the positions of a group that still delete rows, by data file."""
        found: dict[str, PositionDeleteIndex] = {}
        key: Hashable = partition_key(*group.partition)
        for delete in group.files:
            number = delete.data_sequence_number or 0
            ref = DeleteFileRef.of(delete.data_file, referenced_data_file=None, data_sequence_number=number)
            for path, positions in loader.position_rows(ref):
                entry = self.data_files.get(path)
                if entry is None:
                    continue
                if number < (entry.data_sequence_number or 0):
                    if number >= self.oldest.get(path, number + 1):
                        raise applies_to_one_entry(delete.data_file.path, path)
                    continue
                if partition_key(entry.data_file.spec_id, entry.data_file.partition) == key:
                    found.setdefault(path, PositionDeleteIndex()).add_many(positions)
        return found
