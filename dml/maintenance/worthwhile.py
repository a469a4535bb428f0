"""Select the rewrites that are worth their cost. Rewriting their results never is, so maintenance ends. Pure; driver.

Input: the plans of the rewrites. Output: the groups worth their cost, and reasons. `rewrite_data_files` itself follows
Iceberg, where each call rewrites two files of 70 % of the target size into two such files.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pyiceberg.conversions import from_bytes
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import PrimitiveType

from dml import limits
from dml.maintenance.overlap import average_depth
from dml.maintenance.position_delete_groups import PositionDeleteGroup, PositionDeleteOptions
from dml.maintenance.rewrite_options import RewriteOptions
from dml.maintenance.rewrite_plan import FileGroup, deletes_of, has_high_ratio, has_many_deletes
from dml.manifests.write import partition_type
from dml.model.manifest import ManifestContent, ManifestFile
from dml.scan.planner import delete_entry

__all__ = ["WorthwhileGroups", "manifest_reason", "merges_delete_files", "worthwhile_groups"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorthwhileGroups:
    """The groups of a plan, divided by whether their rewrite is worth its cost.

    Attributes:
        groups: The groups to rewrite: first those with many deleted rows, then those that save the most files per
            byte.
        left: The others.
        new_files: An estimate of the files that `groups` become.
    """

    groups: tuple[FileGroup, ...] = ()
    left: tuple[FileGroup, ...] = ()
    new_files: int = 0


def worthwhile_groups(groups: Sequence[FileGroup], options: RewriteOptions) -> WorthwhileGroups:
    """Select the groups whose rewrite removes deleted rows, splits files that are too large, or halves the files."""
    kept = [group for group in groups if has_deletes(group, options) or is_smaller(group, options)]
    chosen = {group.number for group in kept}

    def rank(group: FileGroup) -> tuple[bool, float]:
        fewer = len(group.tasks) - options.expected_files(group.size)
        return not has_deletes(group, options), -fewer / max(1, group.size)

    return WorthwhileGroups(
        groups=tuple(sorted(kept, key=rank)),
        left=tuple(group for group in groups if group.number not in chosen),
        new_files=sum(options.expected_files(group.size) for group in kept),
    )


def has_deletes(group: FileGroup, options: RewriteOptions) -> bool:
    """Return True if a file of the group has many deleted rows or delete files.

    Files without deletes do not count, even if the threshold is 0: they would be rewritten in every run.
    """
    with_deletes = filter(deletes_of, group.tasks)
    return any(has_high_ratio(task, options) or has_many_deletes(task, options) for task in with_deletes)


def is_smaller(group: FileGroup, options: RewriteOptions) -> bool:
    if any(task.length > options.max_file_size_bytes for task in group.tasks):
        return True
    return options.expected_files(group.size) * limits.MAINTENANCE_MIN_GAIN <= len(group.tasks)


def merges_delete_files(group: PositionDeleteGroup, options: PositionDeleteOptions, *, by_file: bool) -> bool:
    """Return True if a rewrite of position delete files of version 2 at least halves their number.

    Args:
        group: The files.
        options: The options.
        by_file: True if each new file has the deletes of one data file (`write.delete.granularity`).
    """
    if by_file:
        data_files = {delete_entry(entry).data_file for entry in group.files}
        if None in data_files:
            return False  # a file for several data files would be split
        expected = len(data_files)
    else:
        expected = max(1, ceil(group.size / options.target_size))
    return expected * limits.MAINTENANCE_MIN_GAIN <= len(group.files)


def manifest_reason(
    manifests: Sequence[ManifestFile], spec: PartitionSpec, metadata: TableMetadata, target: int
) -> str:
    """Return the reason why manifests slow down the planning of queries; empty if they do not.

    Args:
        manifests: All manifests of a snapshot.
        spec: The partition spec whose manifests may be rewritten.
        metadata: The table.
        target: The target size of manifests in bytes.
    """
    for content in ManifestContent:
        found = [one for one in manifests if one.content is content and one.partition_spec_id == spec.spec_id]
        if len(found) < limits.MAINTENANCE_MIN_MANIFESTS:
            continue
        needed = max(1, -(-sum(one.manifest_length for one in found) // target))
        kind = "data" if content is ManifestContent.DATA else "delete"
        if len(found) >= needed * limits.MAINTENANCE_MANIFEST_RATIO:
            return f"{len(found)} {kind} manifests, where {needed} of the target size would do"
        depth = average_depth(manifest_ranges(found, spec, metadata))
        if depth >= limits.MAINTENANCE_OVERLAP_DEPTH:
            field = spec.fields[0].name
            return f"{len(found)} {kind} manifests, of which {depth:.1f} on average list the same value of {field}"
    return ""


def manifest_ranges(
    manifests: Sequence[ManifestFile], spec: PartitionSpec, metadata: TableMetadata
) -> list[tuple[object, object]]:
    """Return the range of the first partition field in each manifest; empty for an unpartitioned table."""
    if not spec.fields:
        return []
    kind = partition_type(spec, metadata).fields[0].field_type
    assert isinstance(kind, PrimitiveType)
    found = [one.partitions[0] for one in manifests if one.partitions]
    bounds = [(one.lower_bound, one.upper_bound) for one in found]
    return [
        (from_bytes(kind, lower), from_bytes(kind, upper))
        for lower, upper in bounds
        if lower is not None and upper is not None
    ]
