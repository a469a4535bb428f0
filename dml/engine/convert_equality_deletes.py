"""Run `convert_equality_deletes`: replace the equality deletes of other engines with position deletes. Driver.

Input: a table, a branch, a condition. Output: a commit that replaces equality delete files by deletion vectors (format
version 3) or position delete files (version 2), which delete the same rows. Tasks read the key columns of the data
files to which the equality deletes apply. No data file changes, so rows keep their ids.

An equality delete file is removed only if all of its deletes are converted: the plan covers every data file of the
snapshot to which it applies, in all partitions if its spec is unpartitioned. It does not apply to data files that other
writers add meanwhile, because they are younger, unless they come from a rewrite. The commit follows a rewrite of a data
file with converted rows, as for a DELETE, or reports a conflict. A rewrite of any other data file is harmless: the file
has no row with a deleted key.

Spec: "Scan Planning", "Equality Delete Files". Source: Iceberg's interface `ConvertEqualityDeleteFiles`, of which its
Spark module has no implementation.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.catalog.tables import load_table
from dml.commit import RewriteFiles, RowLevelChanges, commit
from dml.commit.attempt import TargetBranch, parent_of
from dml.commit.changes import Operation
from dml.engine.by_tasks import convert_by_tasks
from dml.engine.engine import Engine, StatementSettings
from dml.engine.target import properties_of_block
from dml.engine.writes import UncommittedFiles, WriteOutcome, with_live_storage, write_context
from dml.errors import CommitConflictError
from dml.manifests.read import entries_of, manifests_of, read_each
from dml.model.columns import DeltaLayout
from dml.model.manifest import FileContent, ManifestContent, ManifestEntry
from dml.model.scan_task import ScanTask
from dml.options import row_level_concurrency
from dml.pruning.pruner import Pruner
from dml.read.applied_deletes import DeleteLoader
from dml.read.reader import TargetFiles
from dml.result import Decision
from dml.scan.split import ChangeDistribution
from dml.scan.table_scan import TableScan
from dml.write.delete_files import write_late_deletes
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable

__all__ = ["ConvertedDeletes", "EqualityDeleteConversion"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertedDeletes:
    """The outcome of a conversion.

    Attributes:
        converted: The number of equality delete files that were removed.
        added: The number of new position delete files and deletion vectors.
    """

    converted: int = 0
    added: int = 0


@dataclass(frozen=True, kw_only=True)
class EqualityDeleteConversion:
    """The conversion of the equality deletes of one snapshot.

    Attributes:
        engine: The session and its catalogs.
        settings: The session's settings.
        table: The table, newly loaded.
        branch: The branch.
        row_filter: Only delete files that may delete matching rows are converted.
    """

    engine: Engine
    settings: StatementSettings
    table: Table
    branch: str = MAIN_BRANCH
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """The head of the branch."""
        return parent_of(self.table.metadata, TargetBranch(branch=self.branch))

    @cached_property
    def deletes(self) -> tuple[ManifestEntry, ...]:
        """The live equality delete files."""
        io = self.table.io
        manifests = [one for one in manifests_of(io, self.snapshot) if one.content is ManifestContent.DELETES]
        return tuple(
            entry
            for _, entries in read_each(manifests, lambda one: tuple(entries_of(one, io, live_only=True)))
            for entry in entries
            if entry.data_file.content is FileContent.EQUALITY_DELETES
        )

    @cached_property
    def chosen(self) -> tuple[ManifestEntry, ...]:
        """The files to convert."""
        metadata, case_sensitive = self.table.metadata, self.settings.case_sensitive
        pruner = Pruner(
            metadata.specs(),
            metadata.schema(),
            self.row_filter,
            case_sensitive=case_sensitive,
            older_schemas=metadata.schemas,
        )
        return tuple(entry for entry in self.deletes if pruner.may_match(entry.data_file))

    @cached_property
    def scan(self) -> TableScan:
        """The scan of all data files of the snapshot, without columns."""
        return TableScan(
            table=self.table,
            snapshot_id=None if self.snapshot is None else self.snapshot.snapshot_id,
            schema=self.table.schema(),
            columns=(),
            case_sensitive=self.settings.case_sensitive,
        )

    @cached_property
    def tasks(self) -> tuple[ScanTask, ...]:
        """The data files to which the chosen files apply. Their tasks contain no other equality deletes."""
        wanted = {entry.data_file.path for entry in self.chosen}
        if not wanted:
            return ()
        found = (
            replace(task, equality_deletes=tuple(ref for ref in task.equality_deletes if ref.path in wanted))
            for task in self.scan.plan().tasks
        )
        applied = (task for task in found if task.equality_deletes)
        return tuple(replace(task, file_ordinal=place) for place, task in enumerate(applied))

    def decisions(self) -> Iterator[Decision]:
        """Yield a decision about each equality delete file."""
        chosen = {entry.data_file.path for entry in self.chosen}
        uses = Counter(ref.path for task in self.tasks for ref in task.equality_deletes)
        for entry in self.deletes:
            path, keys = entry.data_file.path, entry.data_file.record_count
            if path not in chosen:
                yield Decision(decision="keep", object=path, reason="it cannot delete rows of the condition")
            elif not uses[path]:
                yield Decision(decision="remove", object=path, reason=f"{keys} keys, in no older data file: removed")
            else:
                reason = f"{keys} keys, in {uses[path]} data files perhaps: converted"
                yield Decision(decision="convert", object=path, reason=reason)

    def run(self) -> ConvertedDeletes:
        """Write the new delete files and commit them. After a conflict, plan again on the newest snapshot, a few times.

        Raises:
            CommitConflictError: Other commits changed the files meanwhile, each time. The new files are deleted.
            CommitStateUnknownError: The commit may have landed; no file is deleted.
            DmlError: A file cannot be read or written. The new files are deleted.
        """
        conversion = self
        for _ in range(limits.CONVERSION_ATTEMPTS - 1):
            try:
                return conversion.commit_once()
            except CommitConflictError as error:
                LOG.info("The equality deletes are converted again: %s", error.message)
                conversion = replace(self, table=load_table(self.table.catalog, self.table.name()))
        return conversion.commit_once()

    def commit_once(self) -> ConvertedDeletes:
        """Write the new delete files and commit them. Errors are those of `run`."""
        if not self.chosen or self.snapshot is None:
            return ConvertedDeletes()
        spec, outcome = self._write()
        table, spec = with_live_storage(self.table, spec)
        context = spec.context
        rows = RowLevelChanges(
            changed={file.path: file for file in outcome.changed_files},
            tasks={task.path: task for task in self.tasks},
            loader=DeleteLoader(Schema.model_validate_json(context.schema_json), context.io_properties),
            write_deletes=partial(write_late_deletes, context),
        )
        action = RewriteFiles(
            delete_files=outcome.delete_files,
            removed_delete_files=outcome.rewritten_delete_files | {entry.data_file.key for entry in self.chosen},
            referenced_data_files=outcome.referenced_data_files,
            starting_snapshot_id=self.snapshot.snapshot_id,
            operation=Operation.DELETE if outcome.delete_files else Operation.REPLACE,
            row_level=rows if row_level_concurrency(table.properties) else None,
        )
        summary = {**self.engine.commit_summary(), **properties_of_block()}
        with UncommittedFiles(table, context, outcome):
            commit(table, action, branch=self.branch, summary=summary)
        return ConvertedDeletes(converted=len(self.chosen), added=len(outcome.delete_files))

    def _write(self) -> tuple[WriterSpec, WriteOutcome]:
        """Write the new delete files in one job; without tasks there is nothing to write."""
        tasks = self.tasks
        groups = self.scan.whole_file_groups(tasks, self.settings.parallelism, ChangeDistribution())
        context = self.scan.context(tasks)
        spec = WriterSpec(
            job=WriteJob.MERGE_ON_READ,
            context=write_context(self.table, str(uuid.uuid4())),
            layout=DeltaLayout(),
            files=TargetFiles.of(tasks, context),
            max_failures=self.engine.max_failures(),
            deletes=True,
            tasks=len(groups),
            joins_tasks=True,
        )
        check_writable(spec)
        return spec, convert_by_tasks(self.engine.lazy_session, context, groups, self.table, spec)
