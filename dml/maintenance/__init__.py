"""Table maintenance that changes no rows. Driver.

`remove_orphan_files` combines the other modules: `storage` lists and deletes files, `reachable_files` determines the
files that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.
`rewrite_manifests` clusters the entries of manifests by partition. `rewrite_position_deletes` merges the delete files
that `position_delete_groups` chooses.
"""

from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.position_delete_groups import PositionDeleteOptions
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files
from dml.maintenance.rewrite_manifests import plan_manifest_rewrite, rewrite_manifests
from dml.maintenance.rewrite_position_deletes import plan_position_delete_rewrite, rewrite_position_deletes

__all__ = [
    "PositionDeleteOptions",
    "PrefixMismatchMode",
    "RemoveOrphanFiles",
    "plan_manifest_rewrite",
    "plan_position_delete_rewrite",
    "remove_orphan_files",
    "rewrite_manifests",
    "rewrite_position_deletes",
]
