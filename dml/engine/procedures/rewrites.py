"""The procedures that rewrite metadata and delete files: `rewrite_manifests`. Driver.

Source: Iceberg's Spark procedures (`RewriteManifestsProcedure`), which define the names and order of the parameters. The
parameters `branch` and `dry_run` are RowDelta's own.
"""

from collections.abc import Mapping
from typing import Any, Final

from dml.catalog.translation import translate_errors
from dml.engine.engine import Engine
from dml.engine.procedures.declaration import (
    BIGINT,
    BOOLEAN,
    BRANCH,
    DRY_RUN,
    STRING_LIST,
    TABLE,
    Parameter,
    Procedure,
    table_of_branch,
)
from dml.maintenance import plan_manifest_rewrite, rewrite_manifests

__all__ = ["REWRITES"]

Row = tuple[Any, ...]


def manifest_rows(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[Row]:
    """Rewrite manifests; in a dry run return a row for each manifest, with the counts of the whole rewrite."""
    resolved, branch = table_of_branch(engine, parts, values.get("branch"))
    with translate_errors(f"Rewriting the manifests of the table '{resolved.name}'", resolved.catalog):
        plan = plan_manifest_rewrite(
            resolved.table, branch=branch, spec_id=values.get("spec_id"), sort_by=values.get("sort_by")
        )
        if not values.get("dry_run"):
            done = rewrite_manifests(plan, engine.commit_summary())
            return [(len(done.removed), len(done.added))]
        counts = (len(plan.removed), plan.estimate_added())
    return [
        (*counts, "rewrite" if one.is_rewritten else "keep", one.manifest.manifest_path, one.reason)
        for one in plan.decisions
    ] or [(*counts, None, None, None)]


REWRITES: Final = (
    Procedure(
        name="rewrite_manifests",
        summary="Replace manifests by ones of the target size that list each partition together.",
        parameters=(
            TABLE,
            Parameter(name="use_caching", type=BOOLEAN),
            Parameter(name="spec_id", type=BIGINT),
            Parameter(name="sort_by", type=STRING_LIST),
            BRANCH,
            DRY_RUN,
        ),
        columns="rewritten_manifests_count int, added_manifests_count int",
        run=manifest_rows,
        changes_table=True,
        explains=True,
    ),
)
