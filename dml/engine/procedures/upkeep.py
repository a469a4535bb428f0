"""The procedures on the files of a table, which change no row: rewrites, expiry, orphans, verification. Driver.

Source: Iceberg's Spark procedures of the same names, which define the names and order of parameters and columns;
`maintain`, `verify`, and `dry_run` of all but `remove_orphan_files`, are RowDelta's own.
"""

from collections.abc import Mapping
from typing import Any, Final

from dml.catalog.translation import translate_errors
from dml.engine.engine import Engine
from dml.engine.maintain import maintain, parse_budget, plan_maintenance
from dml.engine.procedures.declaration import (
    BIGINT,
    BIGINT_ARRAY,
    BOOLEAN,
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
from dml.maintenance import (
    ExpireSnapshots,
    FileKind,
    RemoveOrphanFiles,
    RewriteTablePath,
    expire_snapshots,
    remove_orphan_files,
    rewrite_table_path,
)
from dml.verification import Verification, verify

__all__ = ["UPKEEP", "remove_orphans", "verify_table"]


def remove_orphans(engine: Engine, parts: tuple[str, ...], call: RemoveOrphanFiles) -> tuple[str, ...]:
    """Remove the orphan files of a table.

    Args:
        engine: The session and its catalogs.
        parts: The table's name.
        call: The options of the removal.

    Returns:
        The locations of the orphans.

    Raises:
        NotFoundError: no such table.
        DmlError: an error of `dml.maintenance.remove_orphan_files`.
    """
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
    name = ".".join(parts)
    resolved = engine.registry.resolve(parts)
    if resolved is None:
        raise NotFoundError(f"There is no table '{name}'", hint=engine.registry.suggestion(parts), parts=parts)
    if resolved.metadata_table or resolved.timestamp_ms is not None:
        what = "a metadata table" if resolved.metadata_table else "the table at a time"
        raise NotSupportedError(f"'{name}' is {what}", hint=f"Name the table: '{resolved.name}'", table=name)
    snapshot_id = resolved.snapshot_id if snapshot_id is None else snapshot_id
    table, reference = resolved.table, resolved.branch or resolved.tag
    if snapshot_id is not None:
        snapshot = table.snapshot_by_id(snapshot_id)
    else:
        snapshot = table.current_snapshot() if reference is None else table.snapshot_by_name(reference)
    if snapshot is None and (snapshot_id is not None or reference is not None):
        missing = f"branch or tag '{reference}'" if snapshot_id is None else f"snapshot {snapshot_id}"
        raise NotFoundError(
            f"The table '{resolved.name}' has no {missing}",
            hint="A snapshot may have been expired",
            table=resolved.name,
        )
    with translate_errors(f"Verifying the table '{resolved.name}'", resolved.catalog):
        return verify(table, snapshot, resolved.name, every_file=every_file)


def expiry_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return the counts of deleted files, and the decisions of a dry run."""
    resolved = whole_table(engine, parts, "snapshots belong to the whole table")
    options = {name: value for name, value in values.items() if name != "stream_results"}
    expiry = expire_snapshots(resolved.catalog, resolved.identifier, ExpireSnapshots(**options))
    counts = tuple(expiry.deleted[kind] for kind in FileKind)
    return dry_run_rows(counts, expiry.decisions) if values.get("dry_run") else [counts]


def orphan_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Return one row for each orphan file, with its location."""
    return [(location,) for location in remove_orphans(engine, parts, RemoveOrphanFiles.of(**values))]


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
            Parameter(name="older_than", type=TIMESTAMP),
            Parameter(name="retain_last", type=BIGINT),
            Parameter(name="max_concurrent_deletes", type=BIGINT),
            Parameter(name="stream_results", type=BOOLEAN),
            Parameter(name="snapshot_ids", type=BIGINT_ARRAY),
            Parameter(name="clean_expired_metadata", type=BOOLEAN),
            DRY_RUN,
        ),
        columns="deleted_data_files_count bigint, deleted_position_delete_files_count bigint, "
        "deleted_equality_delete_files_count bigint, deleted_manifest_files_count bigint, "
        "deleted_manifest_lists_count bigint, deleted_statistics_files_count bigint",
        run=expiry_rows,
        changes_table=True,
        explains=True,
    ),
    Procedure(
        name="maintain",
        summary="Do the maintenance that a table needs: expire, compact, clean up.",
        parameters=(TABLE, Parameter(name="plan", type=BOOLEAN), Parameter(name="budget", type=STRING)),
        columns="step string, decision string, object string, reason string",
        run=maintenance_rows,
        changes_table=True,
    ),
    Procedure(
        name="remove_orphan_files",
        summary="Remove the files below a table's folders that its metadata does not need.",
        parameters=(
            TABLE,
            Parameter(name="older_than", type=TIMESTAMP),
            Parameter(name="location", type=STRING),
            DRY_RUN,
            Parameter(name="max_concurrent_deletes", type=BIGINT),
            Parameter(
                name="file_list_view",
                type=STRING,
                rejection="RowDelta always lists the files itself, so that it never deletes files of an outdated list",
            ),
            Parameter(name="equal_schemes", type=STRING_MAP),
            Parameter(name="equal_authorities", type=STRING_MAP),
            Parameter(name="prefix_mismatch_mode", type=STRING),
            Parameter(
                name="prefix_listing",
                type=BOOLEAN,
                rejection="RowDelta always selects the way to list files by their storage",
            ),
        ),
        columns="orphan_file_location string",
        run=orphan_rows,
    ),
    Procedure(
        name="rewrite_data_files",
        summary="Rewrite small files, and files with deleted rows, into files of the target size.",
        parameters=(
            TABLE,
            Parameter(name="strategy", type=STRING),
            Parameter(name="sort_order", type=STRING),
            Parameter(name="options", type=STRING_MAP),
            Parameter(name="where", type=STRING),
            Parameter(name="branch", type=STRING),
            DRY_RUN,
        ),
        columns="rewritten_data_files_count int NOT NULL, added_data_files_count int NOT NULL, "
        "rewritten_bytes_count bigint NOT NULL, failed_data_files_count int NOT NULL, "
        "removed_delete_files_count int NOT NULL",
        run=rewrite_rows,
        changes_table=True,
        explains=True,
    ),
    Procedure(
        name="rewrite_table_path",
        summary="Stage copies of a table's metadata for another location, and list the files to copy there.",
        parameters=(
            TABLE,
            Parameter(name="source_prefix", type=STRING, required=True),
            Parameter(name="target_prefix", type=STRING, required=True),
            Parameter(name="start_version", type=STRING),
            Parameter(name="end_version", type=STRING),
            Parameter(name="staging_location", type=STRING),
            Parameter(name="create_file_list", type=BOOLEAN),
            DRY_RUN,
        ),
        columns="latest_version string, file_list_location string, rewritten_manifest_file_paths_count int, "
        "rewritten_delete_file_paths_count int",
        run=path_rows,
        explains=True,
    ),
    Procedure(
        name="verify",
        summary="Recount a snapshot from its files; problems are rows of the result.",
        parameters=(
            TABLE,
            Parameter(name="snapshot_id", type=BIGINT),
            Parameter(name="every_file", type=BOOLEAN),
        ),
        columns="name string, recorded bigint, counted bigint, problem string",
        run=verification_rows,
    ),
)
