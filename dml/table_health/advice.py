"""Turn the figures of a table into recommendations. Pure; driver.

Input: figures and the plans of procedures. Output: `Advice`, at most one for each procedure. What a procedure would do
comes from its own planner, so the advice agrees with its dry run. Where a procedure can always run, a threshold of
`dml.limits` decides if it is worth it.
"""

from collections.abc import Iterator, Sequence

from dml import limits
from dml.maintenance import RewritePlan
from dml.maintenance.position_delete_groups import PositionDeleteGroup
from dml.maintenance.rewrite_plan import has_high_ratio
from dml.model.scan_task import ScanTask
from dml.table_health.figures import (
    Advice,
    FileFigures,
    GainFigures,
    ManifestFigures,
    MetadataFigures,
    OverlapFigures,
    PartitionFigures,
    SnapshotFigures,
    StatisticsAge,
)
from dml.table_health.view import bytes_text, plural

__all__ = [
    "advise_clustering",
    "advise_compaction",
    "advise_dangling",
    "advise_expiry",
    "advise_manifests",
    "advise_metadata",
    "advise_position_deletes",
    "advise_statistics",
]


def advise_expiry(snapshots: SnapshotFigures, *, shares_files: bool) -> Iterator[Advice]:
    """Recommend to expire snapshots and refs that the table's properties no longer keep.

    Args:
        snapshots: The figures.
        shares_files: Whether `gc.enabled` is false, so that the procedure is refused.
    """
    if shares_files or not (snapshots.expiring or snapshots.expiring_refs):
        return
    reason = (
        f"the table's properties no longer keep {snapshots.expiring:,} of {plural(snapshots.snapshots, 'snapshot')}"
    )
    if snapshots.expiring_refs:
        reason += f", nor {plural(snapshots.expiring_refs, 'branch or tag', 'branches and tags')}"
    yield Advice(action="expire_snapshots", number=snapshots.expiring, subject="snapshots", reason=reason)


def advise_manifests(
    sizes: Sequence[int], target_size: int, manifests: ManifestFigures, partitions: PartitionFigures
) -> Iterator[Advice]:
    """Recommend to rewrite manifests if there are too many, or if each partition is listed in too many.

    Args:
        sizes: The sizes of the manifests of the current partition spec, which the procedure rewrites.
        target_size: The target size of manifests.
        manifests: The figures of all manifests.
        partitions: The figures of partitions.
    """
    if len(sizes) < limits.MIN_ADVISED_MANIFESTS:
        return
    total = sum(sizes)
    needed = -(-total // target_size)
    per_partition = max(1.0, needed / max(1, partitions.partitions))
    if len(sizes) >= limits.MANIFEST_EXCESS * needed:
        reason = f"{bytes_text(total)} in {len(sizes):,} manifests, where {needed:,} would hold them"
    elif partitions.partitions > 1 and manifests.mean_spread >= limits.MANIFEST_EXCESS * per_partition:
        reason = f"the files of a partition are in {manifests.mean_spread:,.1f} manifests on average"
    else:
        return
    yield Advice(action="rewrite_manifests", number=len(sizes), subject="manifests", reason=reason)


def advise_compaction(plan: RewritePlan, files: FileFigures, gain: GainFigures) -> Iterator[Advice]:
    """Recommend to rewrite data files if `rewrite_data_files` would rewrite any."""
    if not plan.groups:
        return
    options = plan.options
    counts = {"small": 0, "large": 0, "with many deleted rows": 0}
    for task in (task for group in plan.groups for task in group.tasks):
        counts[why_rewritten(task, plan)] += 1
    causes = ", ".join(f"{number:,} {cause}" for cause, number in counts.items() if number)
    size = f"{bytes_text(options.min_file_size_bytes)} to {bytes_text(options.max_file_size_bytes)}"
    yield Advice(
        action="rewrite_data_files",
        number=gain.rewritten_files,
        subject="data files",
        reason=f"{causes} (sizes should be {size}): {gain.rewritten_files:,} of {plural(files.files, 'file')}, "
        f"{bytes_text(gain.rewritten_bytes)}, become about {gain.new_files:,}",
    )


def why_rewritten(task: ScanTask, plan: RewritePlan) -> str:
    if has_high_ratio(task, plan.options):
        return "with many deleted rows"
    return "small" if task.length < plan.options.min_file_size_bytes else "large"


def advise_clustering(overlap: OverlapFigures) -> Iterator[Advice]:
    """Recommend to sort data files if too many have to be read for one value of the sort column."""
    if overlap.column is None or overlap.mean_depth < limits.MIN_ADVISED_OVERLAP:
        return
    yield Advice(
        action="rewrite_data_files, strategy sort, rewrite-all",
        number=overlap.overlapping_partitions,
        subject="partitions",
        reason=f"{overlap.mean_depth:,.1f} files overlap at a bound of {overlap.column} on average, at most "
        f"{overlap.max_depth:,}",
    )


def advise_position_deletes(groups: Sequence[PositionDeleteGroup]) -> Iterator[Advice]:
    """Recommend to rewrite position delete files if `rewrite_position_delete_files` would rewrite any."""
    files = sum(len(group.files) for group in groups)
    if files:
        size = bytes_text(sum(group.size for group in groups))
        yield Advice(
            action="rewrite_position_delete_files",
            number=files,
            subject="position delete files",
            reason=f"{plural(files, 'file')} of {size} in {plural(len(groups), 'group')} can be merged",
        )


def advise_dangling(files: int) -> Iterator[Advice]:
    """Recommend to remove delete files that apply to no data file."""
    if files:
        yield Advice(
            action="rewrite_data_files, remove-dangling-deletes",
            number=files,
            subject="delete files",
            reason=f"{plural(files, 'delete file')} {'applies' if files == 1 else 'apply'} to no data file",
        )


def advise_statistics(statistics: Sequence[StatisticsAge]) -> Iterator[Advice]:
    """Recommend to compute statistics again that exist and describe an older snapshot."""
    for one in statistics:
        if one.snapshots_behind is not None and one.snapshots_behind >= limits.MIN_ADVISED_STATISTICS_AGE:
            procedure = "compute_table_stats" if one.kind == "table" else "compute_partition_stats"
            reason = f"the {one.kind} statistics are {plural(one.snapshots_behind, 'snapshot')} behind"
            yield Advice(action=procedure, number=one.snapshots_behind, subject="snapshots", reason=reason)


def advise_metadata(metadata: MetadataFigures) -> Iterator[Advice]:
    """Recommend to delete old metadata files after commits, once the metadata file lists as many as it keeps."""
    if not metadata.deletes_old_files and metadata.old_files >= max(1, metadata.previous_versions_max):
        yield Advice(
            action="set write.metadata.delete-after-commit.enabled",
            number=metadata.old_files,
            subject="metadata files",
            reason=f"{plural(metadata.old_files, 'old metadata file')} listed, and each commit leaves another one in "
            "the storage",
        )
