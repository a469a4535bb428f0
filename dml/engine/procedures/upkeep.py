"""The procedures on the files of a table, which change no row: rewrites, expiry, orphans, reports. Driver.

Source: Iceberg's Spark procedures of the same names, which define the names and order of parameters and columns;
`maintain`, `health`, `verify`, and `dry_run` of all but `remove_orphan_files` and its decisions, are RowDelta's own.
"""

import time
from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, Final

from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from dml.catalog.registry import ResolvedTable
from dml.catalog.translation import translate_errors
from dml.engine.engine import Engine
from dml.engine.maintain import MaintenanceStep, maintain, parse_budget, plan_maintenance
from dml.engine.procedures.declaration import (
    BIGINT,
    BIGINT_ARRAY,
    BOOLEAN,
    BRANCH,
    DRY_RUN,
    STRING,
    STRING_MAP,
    TABLE,
    TIMESTAMP,
    Parameter,
    Procedure,
    dry_run_rows,
    whole_table,
)
from dml.engine.rewrite_data_files import RewriteDataFiles, rewrite_data_files
from dml.errors import NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.maintenance import (
    ExpireSnapshots,
    FileKind,
    OrphanRemoval,
    RemoveOrphanFiles,
    RewriteTablePath,
    expire_snapshots,
    remove_orphan_files,
    rewrite_table_path,
)
from dml.table_health import Advice, TableHealth, measure_health
from dml.verification import Verification, verify

__all__ = ["UPKEEP", "remove_orphans", "table_health", "verify_table"]

STREAM_RESULTS: Final = Parameter(
    name="stream_results", type=BOOLEAN, doc="Has no effect; accepted for compatibility with Iceberg"
)

ADVISED: Final = frozenset(MaintenanceStep) - {MaintenanceStep.EXPIRE_ROWS, MaintenanceStep.REMOVE_ORPHAN_FILES}
"""The steps that `health` plans. To plan the expiry of rows runs a query; orphan files are only due by time."""


def remove_orphans(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> OrphanRemoval:
    """Remove the orphan files of a table.

    Args:
        engine: The session and its catalogs.
        parts: The table's name.
        values: The options of the removal, as keyword arguments of `RemoveOrphanFiles.of`.

    Raises:
        NotFoundError: no such table.
        DmlError: an error of `dml.maintenance.remove_orphan_files`.
    """
    call = RemoveOrphanFiles.of(**values)
    resolved = whole_table(engine, parts, "orphan files are those of the whole table")
    return remove_orphan_files(resolved.catalog, resolved.identifier, call)


def verify_table(
    engine: Engine, parts: tuple[str, ...], snapshot_id: int | None = None, *, every_file: bool = False
) -> Verification:
    """Recount a snapshot of a table from its files.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, with a branch or tag at its end to select that one's snapshot.
        snapshot_id: The snapshot; None for the current one of the table, branch or tag.
        every_file: Open all data files, not only those that the snapshot touched.

    Raises:
        NotFoundError: no such table, branch, tag or snapshot.
        DmlError: an error of `dml.verification.verify`.
    """
    resolved, snapshot = named_snapshot(engine, parts, snapshot_id=snapshot_id)
    with translate_errors(f"Verifying the table '{resolved.name}'", resolved.catalog):
        return verify(resolved.table, snapshot, resolved.name, every_file=every_file)


def table_health(engine: Engine, parts: tuple[str, ...], branch: str | None = None) -> TableHealth:
    """Measure the health of a table from its metadata. The advice is what `maintain` plans for the head of a branch.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, with a branch or tag at its end to select that one's snapshot.
        branch: The branch or tag; None for that of the name, or else the current snapshot.

    Raises:
        NotFoundError: no such table, branch or tag.
        DmlError: an error of `plan_maintenance` or `dml.table_health.measure_health`.
    """
    resolved, snapshot = named_snapshot(engine, parts, reference=branch)
    reference = branch or resolved.branch or resolved.tag
    compaction, advice = None, None
    ref = resolved.table.metadata.refs.get(reference or MAIN_BRANCH)
    if (reference or resolved.snapshot_id is None) and (ref is None or ref.snapshot_ref_type is SnapshotRefType.BRANCH):
        head = replace(resolved, branch=reference, tag=None, snapshot_id=None)
        plan = plan_maintenance(engine, parts, ADVISED, head)
        compaction = next((one.compaction for one in plan.steps if one.compaction), None)
        advice = [Advice(action=one.step.value, reason=one.reason) for one in plan.needed]
    with translate_errors(f"Measuring the table '{resolved.name}'", resolved.catalog):
        return measure_health(
            resolved.table,
            snapshot,
            resolved.name,
            now_ms=time.time_ns() // 1_000_000,
            reference=reference,
            compaction=compaction,
            advice=advice,
        )


def named_snapshot(
    engine: Engine, parts: tuple[str, ...], *, snapshot_id: int | None = None, reference: str | None = None
) -> tuple[ResolvedTable, Snapshot | None]:
    """Resolve a table and a snapshot; the snapshot is None if the table has none.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, with a branch or tag at its end to select that one's snapshot.
        snapshot_id: The snapshot; None for the one that the name selects.
        reference: The branch or tag; None for that of the name.

    Raises:
        NotFoundError: no such table, branch, tag or snapshot.
        NotSupportedError: the name is that of a metadata table, or of the table at a time.
    """
    name = ".".join(parts)
    resolved = engine.registry.find(parts)
    if resolved.metadata_table or resolved.timestamp_ms is not None:
        what = "a metadata table" if resolved.metadata_table else "the table at a time"
        raise NotSupportedError(f"'{name}' is {what}", hint=f"Name the table: '{resolved.name}'", table=name)
    if reference is None:
        snapshot_id = resolved.snapshot_id if snapshot_id is None else snapshot_id
        reference = resolved.branch or resolved.tag
    table = resolved.table
    if snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
    else:
        snapshot = table.current_snapshot() if reference is None else table.snapshot_by_name(reference)
    if snapshot is None and (snapshot_id is not None or reference is not None):
        missing = f"branch or tag '{reference}'" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise NotFoundError(
            f"The table '{resolved.name}' has no {missing}",
            hint=did_you_mean(reference, table.metadata.refs) if reference else "A snapshot may have been expired",
            table=resolved.name,
        )
    return resolved, snapshot


def expiry_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the counts of deleted files, and the decisions of a dry run."""
    resolved = whole_table(engine, parts, "snapshots belong to the whole table")
    options = {name: value for name, value in values.items() if name != STREAM_RESULTS.name}
    expiry = expire_snapshots(resolved.catalog, resolved.identifier, ExpireSnapshots(**options))
    counts = tuple(expiry.deleted[kind] for kind in FileKind)
    return dry_run_rows(counts, expiry.decisions) if values.get("dry_run") else [counts]


def orphan_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return one row for each orphan file with its location; for a dry run, one for each decision."""
    removal = remove_orphans(
        engine, parts, {name: value for name, value in values.items() if name != STREAM_RESULTS.name}
    )
    if not values.get("dry_run"):
        return [(location,) for location in removal.orphans]
    locations = chain(removal.orphans, repeat(None))
    return [
        (location, one.decision, one.object, one.reason)
        for location, one in zip(locations, removal.decisions, strict=False)
    ]


def path_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the row about the staged copy of a table's metadata, and the decisions of a dry run."""
    call = RewriteTablePath(**values)
    staged = rewrite_table_path(whole_table(engine, parts, "the files of the whole table move").table, call)
    result = (
        staged.latest_version,
        staged.file_list_location,
        staged.rewritten_manifest_file_paths_count,
        staged.rewritten_delete_file_paths_count,
    )
    return dry_run_rows(result, staged.decisions) if call.dry_run else [result]


def verification_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return one row for each number of the snapshot's summary, and one for each problem."""
    found = verify_table(engine, parts, **values)
    counts = [(count.name, count.recorded, count.counted, None) for count in found.counts]
    return [*counts, *((None, None, None, problem) for problem in found.problems)]


def health_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return one row for each recommendation, then one for each figure of the report."""
    found = table_health(engine, parts, **values)
    advice = [("advice", one.action, one.reason, None) for one in found.advice]
    return [
        *advice,
        *((part.title, fact.name, fact.value, fact.note or None) for part in found.parts for fact in part.facts),
    ]


def rewrite_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return one row with the counters, and the decisions of a dry run."""
    return rewrite_data_files(engine, parts, RewriteDataFiles(**values))


def maintenance_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Maintain a table, or plan that, and return one row for each decision."""
    budget = None if values.get("budget") is None else parse_budget(values["budget"])
    plans = values.get("plan")
    decisions = (plan_maintenance(engine, parts) if plans else maintain(engine, parts, budget=budget)).decisions
    return [(one.step, one.decision, one.object, one.reason) for one in decisions]


UPKEEP: Final = (
    Procedure(
        name="expire_snapshots",
        summary="Remove old snapshots, and the files that only they need.",
        parameters=(
            TABLE,
            Parameter(
                name="older_than",
                type=TIMESTAMP,
                doc="Expire snapshots before this time, such as '2026-01-31 12:00:00'; 5 days ago by default",
            ),
            Parameter(
                name="retain_last", type=BIGINT, doc="The number of snapshots that each branch keeps; 1 by default"
            ),
            Parameter(name="max_concurrent_deletes", type=BIGINT, doc="The number of files to delete at once"),
            STREAM_RESULTS,
            Parameter(name="snapshot_ids", type=BIGINT_ARRAY, doc="Another snapshot to expire"),
            Parameter(
                name="clean_expired_metadata",
                type=BOOLEAN,
                doc="Also remove partition specs and schemas that no remaining snapshot uses",
            ),
            DRY_RUN,
        ),
        columns="deleted_data_files_count bigint, deleted_position_delete_files_count bigint, "
        "deleted_equality_delete_files_count bigint, deleted_manifest_files_count bigint, "
        "deleted_manifest_lists_count bigint, deleted_statistics_files_count bigint",
        run=expiry_rows,
        changes_table=True,
        has_decisions=True,
    ),
    Procedure(
        name="maintain",
        summary="Do the maintenance that a table needs: expire, compact, clean up.",
        parameters=(
            TABLE,
            Parameter(name="plan", type=BOOLEAN, doc="Return the plan, and change nothing"),
            Parameter(name="budget", type=STRING, doc="Start no new work after this time, such as 5m"),
        ),
        columns="step string, decision string, object string, reason string",
        run=maintenance_rows,
        changes_table=True,
    ),
    Procedure(
        name="health",
        summary="Measure the health of a table from its metadata, and recommend maintenance.",
        parameters=(TABLE, BRANCH),
        columns="part string, name string, value string, note string",
        run=health_rows,
    ),
    Procedure(
        name="remove_orphan_files",
        summary="Remove the files below a table's folders that its metadata does not need.",
        parameters=(
            TABLE,
            Parameter(
                name="older_than",
                type=TIMESTAMP,
                doc="Delete files that were written before this time; 3 days ago by default",
            ),
            Parameter(name="location", type=STRING, doc="Delete files below this folder of the table only"),
            DRY_RUN,
            Parameter(name="max_concurrent_deletes", type=BIGINT, doc="The number of files to delete at once"),
            Parameter(
                name="file_list_view",
                type=STRING,
                rejection="RowDelta always lists the files itself, so that it never deletes files of an outdated list",
            ),
            Parameter(name="equal_schemes", type=STRING_MAP, doc="Schemes that mean one storage, such as gs,gcs=gs"),
            Parameter(
                name="equal_authorities",
                type=STRING_MAP,
                doc="Buckets or hosts that mean one storage, such as b1,b2=b1",
            ),
            Parameter(
                name="prefix_mismatch_mode",
                type=STRING,
                doc="ERROR, IGNORE or DELETE files that metadata names with another scheme or bucket",
            ),
            Parameter(
                name="prefix_listing",
                type=BOOLEAN,
                rejection="RowDelta always selects the way to list files by their storage",
            ),
            STREAM_RESULTS,
        ),
        columns="orphan_file_location string",
        run=orphan_rows,
        has_decisions=True,
    ),
    Procedure(
        name="rewrite_data_files",
        summary="Rewrite small files, and files with deleted rows, into files of the target size.",
        parameters=(
            TABLE,
            Parameter(name="strategy", type=STRING, doc="binpack (default) or sort"),
            Parameter(
                name="sort_order",
                type=STRING,
                doc="The order of the rows, such as 'a DESC NULLS LAST, b'; that of the table by default",
            ),
            Parameter(name="options", type=STRING_MAP, doc="An option of the compaction, such as min-input-files=2"),
            Parameter(name="where", type=STRING, doc="Rewrite files that may have rows of this condition only"),
            Parameter(name="branch", type=STRING, doc="The branch to change; main by default"),
            DRY_RUN,
        ),
        columns="rewritten_data_files_count int NOT NULL, added_data_files_count int NOT NULL, "
        "rewritten_bytes_count bigint NOT NULL, failed_data_files_count int NOT NULL, "
        "removed_delete_files_count int NOT NULL",
        run=rewrite_rows,
        changes_table=True,
        has_decisions=True,
    ),
    Procedure(
        name="rewrite_table_path",
        summary="Stage copies of a table's metadata for another location, and list the files to copy there.",
        parameters=(
            TABLE,
            Parameter(name="source_prefix", type=STRING, required=True, doc="The location that paths begin with now"),
            Parameter(
                name="target_prefix", type=STRING, required=True, doc="The location that they begin with in the copies"
            ),
            Parameter(
                name="start_version",
                type=STRING,
                doc="A metadata file that was copied before: only later files are staged",
            ),
            Parameter(
                name="end_version", type=STRING, doc="The last metadata file to copy; the current one by default"
            ),
            Parameter(
                name="staging_location",
                type=STRING,
                doc="The folder of the staged copies; one in the table's metadata folder by default",
            ),
            Parameter(
                name="create_file_list",
                type=BOOLEAN,
                is_on=True,
                doc="Write the list of files to copy; true by default",
            ),
            DRY_RUN,
        ),
        columns="latest_version string, file_list_location string, rewritten_manifest_file_paths_count int, "
        "rewritten_delete_file_paths_count int",
        run=path_rows,
        has_decisions=True,
    ),
    Procedure(
        name="verify",
        summary="Recount a snapshot from its files; problems are rows of the result.",
        parameters=(
            TABLE,
            Parameter(name="snapshot_id", type=BIGINT, doc="The snapshot; the current one by default"),
            Parameter(
                name="every_file", type=BOOLEAN, doc="Open all data files, not only those that the snapshot touched"
            ),
        ),
        columns="name string, recorded bigint, counted bigint, problem string",
        run=verification_rows,
    ),
)
