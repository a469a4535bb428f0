"""Table maintenance that changes no rows. Driver.

`remove_orphan_files` combines other modules: `storage` lists and deletes files, `reachable_files` determines the files
that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.

`expire_snapshots` removes old snapshots and their files: `retention` plans, without I/O, and `expired_files` finds the
files that only expired snapshots reach. `deletion` has what it shares with `remove_orphan_files`.

`rewrite_options` and `rewrite_plan` plan a compaction, without I/O; `sorted_files` ranks the files of a sorted table.
The engine runs it. `dangling_deletes` removes
delete files that apply to no data file. `rewrite_manifests` clusters the entries of manifests by partition.
`rewrite_position_deletes` merges position delete files, which `position_delete_groups` selects.

The engine's `maintain` combines them: `worthwhile` selects the rewrites that pay, `overlap` measures how much files
overlap on a sort key, `triggers` decides after a commit whether to compact, and `lease` keeps two maintainers from the
same work.

`partition_statistics` counts the files and rows of partitions; `statistics_files` writes and registers statistics.
`import_files` finds and examines files of other programs; `partition_folders` reads partition values from folder names.
`rewrite_table_path` stages copies of metadata for another location; `moved_paths` replaces prefixes, without I/O.
"""

from dml.maintenance.dangling_deletes import find_dangling_deletes, remove_dangling_deletes
from dml.maintenance.expire_snapshots import ExpireSnapshots, SnapshotExpiry, expire_snapshots
from dml.maintenance.expired_files import FileKind
from dml.maintenance.lease import Lease, LeaseHolder, lease_of
from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.overlap import average_depth
from dml.maintenance.partition_statistics import compute_partition_statistics
from dml.maintenance.position_delete_groups import PositionDeleteOptions
from dml.maintenance.remove_orphan_files import OrphanRemoval, RemoveOrphanFiles, remove_orphan_files
from dml.maintenance.retention import RetentionRules, plan_retention
from dml.maintenance.rewrite_manifests import plan_manifest_rewrite, rewrite_manifests
from dml.maintenance.rewrite_options import BINPACK, RewriteOptions
from dml.maintenance.rewrite_plan import FileGroup, RewritePlan, copied_text, plan_rewrite
from dml.maintenance.rewrite_position_deletes import plan_position_delete_rewrite, rewrite_position_deletes
from dml.maintenance.rewrite_table_path import RewriteTablePath, rewrite_table_path
from dml.maintenance.triggers import due_trigger
from dml.maintenance.worthwhile import WorthwhileGroups, manifest_reason, merges_delete_files, worthwhile_groups

__all__ = [
    "BINPACK",
    "ExpireSnapshots",
    "FileGroup",
    "FileKind",
    "Lease",
    "LeaseHolder",
    "OrphanRemoval",
    "PositionDeleteOptions",
    "PrefixMismatchMode",
    "RemoveOrphanFiles",
    "RetentionRules",
    "RewriteOptions",
    "RewritePlan",
    "RewriteTablePath",
    "SnapshotExpiry",
    "WorthwhileGroups",
    "average_depth",
    "compute_partition_statistics",
    "copied_text",
    "due_trigger",
    "expire_snapshots",
    "find_dangling_deletes",
    "lease_of",
    "manifest_reason",
    "merges_delete_files",
    "plan_manifest_rewrite",
    "plan_position_delete_rewrite",
    "plan_retention",
    "plan_rewrite",
    "remove_dangling_deletes",
    "remove_orphan_files",
    "rewrite_manifests",
    "rewrite_position_deletes",
    "rewrite_table_path",
    "worthwhile_groups",
]
