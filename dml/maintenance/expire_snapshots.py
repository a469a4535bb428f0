"""Remove old snapshots, branches and tags of a table, and the files that only they need. Driver.

Input: a table and the options. Output: the counts of deleted files, and with `dry_run` the decisions. The expiration is
committed first; if another commit lands before it, it is planned again. Then the files are deleted in batches. The
newest metadata is read before each batch, and files that a commit made reachable again are kept. All files are found
before the commit, so a damaged table is not changed. If the process ends between the commit and the last batch,
`remove_orphan_files` deletes the rest.

Source: Iceberg's `ExpireSnapshotsProcedure`, `ExpireSnapshotsSparkAction`, `RemoveSnapshots`.
"""

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.statistics import PartitionStatisticsFile, StatisticsFile
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    RemovePartitionSpecsUpdate,
    RemovePartitionStatisticsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    RemoveStatisticsUpdate,
    TableRequirement,
    TableUpdate,
)

from dml import limits
from dml.catalog.tables import load_table
from dml.catalog.translation import translate_errors
from dml.ddl.commit import MetadataChange, commit_change
from dml.errors import (
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    CorruptFileError,
    DmlError,
    ErrorKind,
    ExecutionError,
)
from dml.files.schemes import check_location
from dml.files.table_metadata import read_table_metadata
from dml.maintenance.deletion import SHOWN_FILES, check_max_concurrent_deletes, delete_all, refuse_shared_files
from dml.maintenance.expired_files import ExpiredFile, ExpiredFiles, FileKind, FilesOfSnapshots
from dml.maintenance.retention import RetentionPlan, RetentionRules, plan_retention
from dml.maintenance.storage import delete_file
from dml.result import Decision

__all__ = ["ExpireSnapshots", "SnapshotExpiry", "expire_snapshots"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ACTION: Final = "expire snapshots"
LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSnapshots:
    """The options of a call.

    Attributes:
        older_than: Snapshots that were committed before this time expire; None for the table property
            `history.expire.max-snapshot-age-ms`.
        retain_last: The number of snapshots that each branch keeps; None for the table property
            `history.expire.min-snapshots-to-keep`.
        max_concurrent_deletes: The number of files to delete at once.
        snapshot_ids: Further snapshots to expire.
        clean_expired_metadata: Also remove partition specs and schemas that no remaining snapshot uses.
        dry_run: Return the decisions, and change nothing.
    """

    older_than: datetime | None = None
    retain_last: int | None = None
    max_concurrent_deletes: int = limits.DELETE_THREADS
    snapshot_ids: tuple[int, ...] = ()
    clean_expired_metadata: bool = False
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_max_concurrent_deletes(self.max_concurrent_deletes)
        if self.retain_last is not None and self.retain_last < 1:
            raise AnalysisError(
                f"Number of snapshots to retain must be at least 1, cannot be: {self.retain_last}",
                kind=ErrorKind.INVALID_VALUE,
                option="retain_last",
            )

    def rules(self, metadata: TableMetadata, now_ms: int) -> RetentionRules:
        """Return the rules for a table."""
        older_than_ms = None if self.older_than is None else (self.older_than - EPOCH) // timedelta(milliseconds=1)
        return RetentionRules.of(metadata.properties, now_ms, older_than_ms, self.retain_last, self.snapshot_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotExpiry:
    """The outcome of a call.

    Attributes:
        deleted: The number of deleted files by kind; for a dry run, of files to delete.
        decisions: The decisions of a dry run.
    """

    deleted: Counter[FileKind]
    decisions: tuple[Decision, ...] = ()


@dataclass(slots=True)
class Plan:
    """The plan of one attempt.

    Attributes:
        metadata: The table metadata that the plan is based on.
        retention: What expires.
        files: The files to delete.
        specs: The partition specs to remove.
        schemas: The schemas to remove.
    """

    metadata: TableMetadata
    retention: RetentionPlan
    files: ExpiredFiles
    specs: tuple[int, ...] = ()
    schemas: tuple[int, ...] = ()

    @property
    def change(self) -> MetadataChange:
        """The change to commit; empty if nothing expires."""
        metadata, expired = self.metadata, self.retention.expired
        if not (expired or self.retention.removed_refs or self.specs or self.schemas):
            return MetadataChange()
        updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=name) for name in self.retention.removed_refs]
        requirements: list[TableRequirement] = []
        if expired:
            updates += statistics_updates(metadata, expired)
            # One update each, as Java sends them: servers on Iceberg before 1.9 refuse an update of several snapshots.
            updates += (
                RemoveSnapshotsUpdate(snapshot_ids=[one.snapshot_id])
                for one in metadata.snapshots
                if one.snapshot_id in expired
            )
        if self.specs:
            updates.append(RemovePartitionSpecsUpdate(spec_ids=list(self.specs)))
            requirements.append(AssertDefaultSpecId(default_spec_id=metadata.default_spec_id))
        if self.schemas:
            updates.append(RemoveSchemasUpdate(schema_ids=list(self.schemas)))
            requirements.append(AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id))
        heads = {MAIN_BRANCH: None} | {name: ref.snapshot_id for name, ref in metadata.refs.items()}
        requirements += [AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in heads.items()]
        return MetadataChange(updates=tuple(updates), requirements=tuple(requirements))

    @property
    def decisions(self) -> Iterator[Decision]:
        """The decisions about refs, snapshots, metadata and files."""
        yield from self.retention.decisions
        for what, ids in (("partition spec", self.specs), ("schema", self.schemas)):
            for one in ids:
                reason = "no remaining snapshot uses it"
                yield Decision(decision="remove", object=f"{what} {one}", reason=reason)
        counts = Counter(file.kind for file in self.files.files)
        for kind in FileKind:
            number = counts[kind]
            reason = (
                f"{number} that only expired snapshots reach" if number else "none that only expired snapshots reach"
            )
            yield Decision(decision="delete" if number else "keep", object=kind.value, reason=reason)
        for location, reason in self.files.unreadable:
            yield Decision(
                decision="keep",
                object=location,
                reason=f"{reason}; remove_orphan_files deletes it and the files that only it names",
            )


def expire_snapshots(catalog: Catalog, identifier: tuple[str, ...], call: ExpireSnapshots) -> SnapshotExpiry:
    """Expire snapshots of a table, and delete the files that only they need.

    Args:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        call: The options.

    Raises:
        NotFoundError: The table does not exist.
        AnalysisError: `snapshot_ids` has the head of a branch or tag that stays, or a property is invalid.
        NotSupportedError: The table's property `gc.enabled` is false, or a file is at a location that is not allowed.
        CorruptFileError: A manifest or manifest list of a remaining snapshot is missing or damaged; nothing changed.
        CommitConflictError: Other commits landed first on every attempt, and nothing changed; or a server dropped a new
            branch or tag, and no file was deleted.
        CommitStateUnknownError: The commit may have landed; no file was deleted.
        ExecutionError: The storage failed. If the snapshots have expired already, the message has the deleted files.
    """
    with translate_errors(f"Expiring snapshots of the table '{'.'.join(identifier)}'", catalog):
        table = load_table(catalog, identifier)
        expiration = Expiration(catalog, identifier, call, table)
        if call.dry_run:
            plan = expiration.plan(table.metadata)
            counts = Counter(file.kind for file in plan.files.files)
            return SnapshotExpiry(deleted=counts, decisions=tuple(plan.decisions))
        try:
            newest = commit_change(catalog, identifier, expiration.change)
        except (CorruptFileError, ExecutionError) as error:  # file-based catalogs read the table again
            landed = expiration.find_landed(error)
            if landed is None:
                raise
            newest = landed
        return SnapshotExpiry(deleted=expiration.delete_files(newest))


@dataclass(slots=True)
class Expiration:
    """An expiration of one table.

    Attributes:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        call: The options.
        table: The table at the start of the call.
        now_ms: The time of the call.
        search: Reads the files of snapshots.
        planned: The plan of the last attempt.
    """

    catalog: Catalog
    identifier: tuple[str, ...]
    call: ExpireSnapshots
    table: Table
    now_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)
    search: FilesOfSnapshots = field(init=False)
    planned: Plan | None = None

    def __post_init__(self) -> None:
        self.search = FilesOfSnapshots(self.table.io)

    @property
    def name(self) -> str:
        """The name of the table."""
        return ".".join(self.identifier)

    def change(self, metadata: TableMetadata) -> MetadataChange:
        """Plan an attempt on the newest metadata."""
        self.planned = None  # an error while planning is not an answer to a commit
        self.planned = self.plan(metadata)
        return self.planned.change

    def plan(self, metadata: TableMetadata) -> Plan:
        """Plan the expiration on some metadata, and find the files to delete."""
        refuse_shared_files(self.name, metadata.properties, ACTION)
        if metadata.table_uuid != self.table.metadata.table_uuid:
            raise replaced_error(self.name)
        retention = plan_retention(metadata, self.call.rules(metadata, self.now_ms))
        files = self.search.expired(metadata, retention.expired)
        for file in files.files:
            check_location(self.table.io, file.location)
        plan = Plan(metadata=metadata, retention=retention, files=files)
        if self.call.clean_expired_metadata:
            kept = [one for one in metadata.snapshots if one.snapshot_id not in retention.expired]
            manifests = self.search.manifests(kept).values()
            used_specs = {metadata.default_spec_id, *(manifest.partition_spec_id for manifest in manifests)}
            plan.specs = tuple(one.spec_id for one in metadata.partition_specs if one.spec_id not in used_specs)
            used_schemas = {metadata.current_schema_id, *(snapshot.schema_id for snapshot in kept)}
            if any(not one.field_ids <= metadata.schema().field_ids for one in metadata.schemas):
                columns = self.search.equality_columns(manifests)
                specs = [spec for spec in metadata.partition_specs if spec.spec_id in used_specs]
                columns |= {field.source_id for spec in specs for field in spec.fields}
                used_schemas |= schemas_of_dropped_columns(metadata, columns)
            plan.schemas = tuple(one.schema_id for one in metadata.schemas if one.schema_id not in used_schemas)
        return plan

    def find_landed(self, error: DmlError) -> Table | None:
        """Return the table if the planned expiration landed although its commit raised an error, else None.

        Args:
            error: The failure.

        Raises:
            CommitStateUnknownError: The table cannot be loaded.
        """
        if self.planned is None or not self.planned.retention.expired:
            return None
        try:
            table = load_table(self.catalog, self.identifier)
        except DmlError:
            raise CommitStateUnknownError(
                f"{error.message}; the expiration may have been committed",
                hint="Look at the table's snapshots: if they have expired, remove_orphan_files removes the files",
            ) from error
        left = {snapshot.snapshot_id for snapshot in table.metadata.snapshots}
        is_same = table.metadata.table_uuid == self.table.metadata.table_uuid
        return table if is_same and left.isdisjoint(self.planned.retention.expired) else None

    def delete_files(self, newest: Table) -> Counter[FileKind]:
        """Delete the files of the committed plan, and return their numbers.

        Args:
            newest: The table after the commit.
        """
        assert self.planned is not None
        files = self.planned.files.files
        for location, reason in self.planned.files.unreadable:
            LOG.warning("Files of an expired snapshot are left to remove_orphan_files: %s (%s)", location, reason)
        deleted: Counter[FileKind] = Counter()
        failed: list[tuple[ExpiredFile, Exception]] = []
        try:
            self.refuse_lost_refs(newest)
            for start in range(0, len(files), limits.ORPHAN_BATCH_FILES):
                table = load_table(self.catalog, self.identifier)
                refuse_shared_files(self.name, table.metadata.properties, ACTION)
                if table.metadata.table_uuid != self.table.metadata.table_uuid:
                    raise replaced_error(self.name)
                batch = self.search.still_unneeded(files[start : start + limits.ORPHAN_BATCH_FILES], table)
                errors = delete_all(batch, self.delete, self.call.max_concurrent_deletes)
                deleted.update(file.kind for file in batch)
                deleted.subtract(file.kind for file, _ in errors)
                failed += errors
        except DmlError as error:
            raise ExecutionError(
                f"The snapshots of '{self.name}' have expired, but not all of their files are deleted: {error.message}",
                hint=f"{deleted_text(deleted, len(files))}. {error.hint or 'remove_orphan_files removes the rest'}",
                deleted=dict(deleted),
            ) from error
        if failed:
            reasons = "; ".join(f"'{file.location}' ({error})" for file, error in failed[:SHOWN_FILES])
            raise ExecutionError(
                f"The snapshots of '{self.name}' have expired, but {len(failed)} files could not be deleted: {reasons}",
                hint=f"{deleted_text(deleted, len(files))}. remove_orphan_files removes the rest",
                files=tuple(file.location for file, _ in failed),
                deleted=dict(deleted),
            ) from failed[0][1]
        return deleted

    def delete(self, file: ExpiredFile) -> None:
        """Delete a file."""
        delete_file(self.table.io, file.location)

    def refuse_lost_refs(self, newest: Table) -> None:
        """Check that the server dropped no ref together with an expired snapshot.

        A requirement cannot exclude refs of unknown names. If another commit created one between the plan and the
        commit, a server may remove it together with its snapshot; catalogs without a server reject the commit. Each
        metadata file between the plan's and the newest is checked.
        """
        assert self.planned is not None
        expired = self.planned.retention.expired
        base = self.planned.metadata
        known = {entry.metadata_file for entry in base.metadata_log}
        new = [entry for entry in newest.metadata.metadata_log if entry.metadata_file not in known]
        if new and new[0].timestamp_ms == base.last_updated_ms:
            del new[0]  # the metadata that the plan is based on
        for entry in new:
            try:
                refs = read_table_metadata(newest.io, entry.metadata_file).refs
            except CorruptFileError:
                continue  # deleted after a later commit
            lost = [
                f"{ref.snapshot_ref_type.value} {name} (snapshot {ref.snapshot_id})"
                for name, ref in refs.items()
                if ref.snapshot_id in expired and name not in base.refs
            ]
            if lost:
                raise CommitConflictError(
                    f"The catalog's server dropped {', '.join(lost)}, created while the snapshots were expiring",
                    hint=f"Their files are still there: register the metadata file '{entry.metadata_file}' as a table",
                    file=entry.metadata_file,
                )


def statistics_updates(metadata: TableMetadata, expired: frozenset[int]) -> Iterator[TableUpdate]:
    """Yield updates that remove the statistics of expired snapshots: not all servers remove them themselves."""
    for snapshot_id in ids_in(metadata.statistics, expired):
        yield RemoveStatisticsUpdate(snapshot_id=snapshot_id)
    for snapshot_id in ids_in(metadata.partition_statistics, expired):
        yield RemovePartitionStatisticsUpdate(snapshot_id=snapshot_id)


def schemas_of_dropped_columns(metadata: TableMetadata, columns: Iterable[int]) -> set[int]:
    """Return the ids of the newest schemas with the given columns that the current schema lacks.

    Partitions and equality deletes of remaining snapshots cannot be read or rewritten without the types of their
    columns. Java removes these schemas.
    """
    dropped = set(columns) - metadata.schema().field_ids
    found = (next((one for one in reversed(metadata.schemas) if column in one.field_ids), None) for column in dropped)
    return {schema.schema_id for schema in found if schema is not None}


def ids_in(statistics: Iterable[StatisticsFile | PartitionStatisticsFile], expired: frozenset[int]) -> Iterable[int]:
    return dict.fromkeys(one.snapshot_id for one in statistics if one.snapshot_id in expired)


def replaced_error(name: str) -> CommitConflictError:
    return CommitConflictError(f"The table '{name}' was replaced by another one meanwhile")


def deleted_text(deleted: Counter[FileKind], planned: int) -> str:
    found = ", ".join(f"{number} {kind}" for kind, number in deleted.items() if number)
    return f"Of {planned} files, these are deleted: {found or 'none'}"
