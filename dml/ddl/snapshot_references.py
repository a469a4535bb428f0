"""ALTER TABLE ... CREATE, REPLACE and DROP BRANCH and TAG. Driver.

Input: the action and the table's metadata. Output: a `MetadataChange`, which requires that no other commit moved the
branch or tag. A branch or tag that is replaced keeps the retention that the statement does not set. A branch of a table
without a snapshot needs an empty one, which the engine commits. Source: Iceberg specification, "Snapshot References";
Iceberg's `CreateOrReplaceBranchExec`, `UpdateSnapshotReferencesOperation`.
"""

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import AssertRefSnapshotId, RemoveSnapshotRefUpdate, SetSnapshotRefUpdate

from dml.ddl.commit import MetadataChange
from dml.errors import AlreadyExistsError, AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.sqlparse.diagnosis import at
from dml.sqlparse.statements import DropReference, ReferenceKind, SetReference

__all__ = ["needs_empty_snapshot", "reference_change"]


def needs_empty_snapshot(action: SetReference, metadata: TableMetadata) -> bool:
    """Return True if the action creates a branch of a table that has no current snapshot."""
    is_new_branch = action.kind is ReferenceKind.BRANCH and action.create and action.name not in metadata.refs
    return is_new_branch and action.snapshot_id is None and metadata.current_snapshot_id is None


def reference_change(action: SetReference | DropReference, metadata: TableMetadata) -> MetadataChange:
    """Return the change of CREATE, REPLACE and DROP BRANCH and TAG.

    Args:
        action: The action.
        metadata: The table's newest metadata.

    Raises:
        AlreadyExistsError: The name is taken, and the statement neither replaces nor has IF NOT EXISTS.
        NotFoundError: There is no such branch or tag to replace or drop, or no such snapshot.
        AnalysisError: The name is that of the other kind, or the table has no snapshot.
        NotSupportedError: The statement drops `main`, or makes a tag of it.
    """
    return set_reference(action, metadata) if isinstance(action, SetReference) else drop_reference(action, metadata)


def set_reference(action: SetReference, metadata: TableMetadata) -> MetadataChange:
    with at(action.span):
        existing = metadata.refs.get(action.name)
        if existing is not None and action.if_not_exists:
            return MetadataChange()
        if existing is not None and not action.replace:
            raise AlreadyExistsError(
                f"Ref {action.name} already exists: it is a {existing.snapshot_ref_type.value}",
                hint="Use IF NOT EXISTS, CREATE OR REPLACE or another name",
                ref=action.name,
            )
        if existing is None and not action.create:
            raise missing_reference(action, metadata)
        check_kind(action, existing)
        if action.kind is ReferenceKind.TAG and action.name == MAIN_BRANCH:
            raise NotSupportedError(f"{MAIN_BRANCH} cannot be a tag: it is the branch of the table itself")
    snapshot_id = snapshot_of(action, metadata)
    given, old = action.retention, existing or action.retention
    ref = SnapshotRef(
        snapshot_id=snapshot_id,
        snapshot_ref_type=SnapshotRefType(action.kind),
        max_ref_age_ms=given.max_ref_age_ms or old.max_ref_age_ms,
        min_snapshots_to_keep=given.min_snapshots_to_keep or old.min_snapshots_to_keep,
        max_snapshot_age_ms=given.max_snapshot_age_ms or old.max_snapshot_age_ms,
    )
    if ref == existing:
        return MetadataChange()
    update = SetSnapshotRefUpdate(
        ref_name=action.name,
        type=ref.snapshot_ref_type,
        snapshot_id=ref.snapshot_id,
        max_ref_age_ms=ref.max_ref_age_ms,
        min_snapshots_to_keep=ref.min_snapshots_to_keep,
        max_snapshot_age_ms=ref.max_snapshot_age_ms,
    )
    head = None if existing is None else existing.snapshot_id
    return MetadataChange(updates=(update,), requirements=(AssertRefSnapshotId(ref=action.name, snapshot_id=head),))


def drop_reference(action: DropReference, metadata: TableMetadata) -> MetadataChange:
    with at(action.span):
        existing = metadata.refs.get(action.name)
        if existing is None and action.if_exists:
            return MetadataChange()
        if action.kind is ReferenceKind.BRANCH and action.name == MAIN_BRANCH:
            raise NotSupportedError(
                "Cannot remove main branch", hint="TRUNCATE TABLE deletes its rows, DROP TABLE the table"
            )
        if existing is None:
            raise missing_reference(action, metadata)
        check_kind(action, existing)
    return MetadataChange(
        updates=(RemoveSnapshotRefUpdate(ref_name=action.name),),
        requirements=(AssertRefSnapshotId(ref=action.name, snapshot_id=existing.snapshot_id),),
    )


def check_kind(action: SetReference | DropReference, existing: SnapshotRef | None) -> None:
    if existing is not None and existing.snapshot_ref_type.value != action.kind:
        raise AnalysisError(
            f"Ref {action.name} is a {existing.snapshot_ref_type.value} not a {action.kind}",
            hint=f"Write {existing.snapshot_ref_type.name} {action.name}",
            ref=action.name,
        )


def missing_reference(action: SetReference | DropReference, metadata: TableMetadata) -> NotFoundError:
    known = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type.value == action.kind]
    hint = did_you_mean(action.name, known) if known else f"The table has no {action.kind}"
    return NotFoundError(f"{action.kind.capitalize()} does not exist: {action.name}", hint=hint, ref=action.name)


def snapshot_of(action: SetReference, metadata: TableMetadata) -> int:
    if action.snapshot_id is not None:
        if metadata.snapshot_by_id(action.snapshot_id) is None:
            with at(action.snapshot_span):
                raise NotFoundError(
                    f"The table has no snapshot {action.snapshot_id}",
                    hint="The metadata table 'snapshots' lists those of the table; one may have expired",
                    snapshot_id=action.snapshot_id,
                )
        return action.snapshot_id
    if metadata.current_snapshot_id is None:
        with at(action.span):
            raise AnalysisError(
                f"The table has no current snapshot for the {action.kind} {action.name}",
                kind=ErrorKind.NOT_FOUND,
                hint="Insert rows first, or name a snapshot with AS OF VERSION",
                ref=action.name,
            )
    return metadata.current_snapshot_id
