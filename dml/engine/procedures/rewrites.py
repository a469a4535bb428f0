"""The procedures `rewrite_manifests`, `rewrite_position_delete_files` and `convert_equality_deletes`. Driver.

Source: Iceberg's Spark procedures (`RewriteManifestsProcedure`, `RewritePositionDeleteFilesProcedure`), which define
the names and order of the parameters; `branch` and `dry_run` are RowDelta's own. Iceberg has no procedure for its
interface `ConvertEqualityDeleteFiles`, which defines the columns of the third.
"""

import uuid
from collections.abc import Mapping
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table.refs import MAIN_BRANCH

from dml.catalog.registry import ResolvedTable
from dml.catalog.translation import translate_errors
from dml.engine.convert_equality_deletes import EqualityDeleteConversion
from dml.engine.engine import Engine, StatementSettings
from dml.engine.procedures.declaration import (
    BIGINT,
    BOOLEAN,
    BRANCH,
    DRY_RUN,
    STRING,
    STRING_ARRAY,
    STRING_MAP,
    TABLE,
    Parameter,
    Procedure,
    dry_run_rows,
    table_of_branch,
)
from dml.engine.rewrite_data_files import where_filter
from dml.engine.writes import write_context
from dml.maintenance import (
    PositionDeleteOptions,
    plan_manifest_rewrite,
    plan_position_delete_rewrite,
    rewrite_manifests,
    rewrite_position_deletes,
)
from dml.options import WriteOptions
from dml.plan.names import TargetNames
from dml.progress import progress_bar
from dml.result import Decision
from dml.spark.workers import check_reads

__all__ = ["REWRITES"]

Row = tuple[Any, ...]


def manifest_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[Row]:
    """Rewrite manifests; for a dry run, return a decision about each."""
    resolved, branch = table_of_branch(engine, parts, values.get("branch"))
    with translate_errors(f"Rewriting the manifests of the table '{resolved.name}'", resolved.catalog):
        plan = plan_manifest_rewrite(
            resolved.table, branch=branch, spec_id=values.get("spec_id"), sort_by=values.get("sort_by")
        )
        if not values.get("dry_run"):
            done = rewrite_manifests(plan, engine.commit_summary())
            return [(len(done.removed), len(done.added))]
        counts = (len(plan.removed), plan.estimate_added())
    return dry_run_rows(
        counts,
        (
            Decision(
                decision="rewrite" if one.is_rewritten else "keep",
                object=one.manifest.manifest_path,
                reason=one.reason,
            )
            for one in plan.decisions
        ),
    )


def position_delete_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[Row]:
    """Rewrite position delete files; for a dry run, return a decision about each."""
    resolved, branch = table_of_branch(engine, parts, values.get("branch"))
    table, where = resolved.table, values.get("where")
    with translate_errors(f"Rewriting the position delete files of the table '{resolved.name}'", resolved.catalog):
        target = WriteOptions.from_properties(table.properties).delete_target_file_size
        plan = plan_position_delete_rewrite(
            table,
            PositionDeleteOptions.of(values.get("options", {}), target),
            AlwaysTrue() if where is None else file_filter(engine, resolved, where),
            branch=branch,
        )
        if not values.get("dry_run"):
            context = write_context(table, str(uuid.uuid4()))
            done = rewrite_position_deletes(plan, context, engine.commit_summary())
            return [tuple(map(sum, zip((0, 0, 0, 0), *(one.counts for one in done), strict=True)))]
    counts = (sum(len(group.files) for group in plan.groups), None, sum(group.size for group in plan.groups), None)
    return dry_run_rows(
        counts,
        (
            Decision(decision="rewrite" if is_rewritten else "keep", object=entry.data_file.path, reason=reason)
            for entry, is_rewritten, reason in plan.decisions()
        ),
    )


def conversion_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[Row]:
    """Convert equality delete files; for a dry run, return a decision about each."""
    resolved, branch = table_of_branch(engine, parts, values.get("branch"))
    where = values.get("where")
    with translate_errors(f"Converting the equality deletes of the table '{resolved.name}'", resolved.catalog):
        conversion = EqualityDeleteConversion(
            engine=engine,
            settings=StatementSettings.of(engine),
            table=resolved.table,
            branch=MAIN_BRANCH if branch is None else branch,
            row_filter=AlwaysTrue() if where is None else file_filter(engine, resolved, where),
        )
        if values.get("dry_run"):
            return dry_run_rows((len(conversion.chosen), None), conversion.decisions())
        check_reads(engine.spark, resolved.table)
        with progress_bar(engine.lazy_session, f"CONVERT {resolved.name}", enabled=engine.progress):
            done = conversion.run()
    return [(done.converted, done.added)]


def file_filter(engine: Engine, resolved: ResolvedTable, where: str) -> BooleanExpression:
    """Return the condition of a call as an Iceberg expression, which selects files that may contain matching rows."""
    rules = StatementSettings.of(engine).rules
    names = TargetNames(schema=resolved.table.schema(), qualifiers=((resolved.identifier[-1],),), rules=rules)
    return where_filter(where, names)


REWRITES: Final = (
    Procedure(
        name="rewrite_manifests",
        summary="Replace manifests by ones of the target size that list each partition together.",
        parameters=(
            TABLE,
            Parameter(name="use_caching", type=BOOLEAN, doc="Has no effect; accepted for compatibility with Iceberg"),
            Parameter(
                name="spec_id",
                type=BIGINT,
                doc="The partition spec whose manifests are rewritten; the current one by default",
            ),
            Parameter(name="sort_by", type=STRING_ARRAY, doc="A partition field to sort by first"),
            BRANCH,
            DRY_RUN,
        ),
        columns="rewritten_manifests_count int NOT NULL, added_manifests_count int NOT NULL",
        run=manifest_rows,
        changes_table=True,
        has_decisions=True,
    ),
    Procedure(
        name="rewrite_position_delete_files",
        summary="Merge small position delete files, and drop positions of removed data files.",
        parameters=(
            TABLE,
            Parameter(name="options", type=STRING_MAP, doc="An option of the rewrite, such as min-input-files=2"),
            Parameter(
                name="where",
                type=STRING,
                doc="Rewrite delete files of data files that may have rows of this condition only",
            ),
            BRANCH,
            DRY_RUN,
        ),
        columns="rewritten_delete_files_count int, added_delete_files_count int, rewritten_bytes_count bigint, "
        "added_bytes_count bigint",
        run=position_delete_rows,
        changes_table=True,
        has_decisions=True,
    ),
    Procedure(
        name="convert_equality_deletes",
        summary="Replace the equality deletes of other engines by deletion vectors or position deletes.",
        parameters=(
            TABLE,
            Parameter(
                name="where",
                type=STRING,
                doc="Convert delete files that may delete rows of this condition only",
            ),
            BRANCH,
            DRY_RUN,
        ),
        columns="converted_equality_delete_files_count int, added_position_delete_files_count int",
        run=conversion_rows,
        changes_table=True,
        has_decisions=True,
    ),
)
