"""Table maintenance that changes no rows. Driver.

`remove_orphan_files` combines the other modules: `storage` lists and deletes files, `reachable_files` determines the
files that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.
`rewrite_manifests` clusters the entries of manifests by partition.
"""

from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files
from dml.maintenance.rewrite_manifests import plan_manifest_rewrite, rewrite_manifests

__all__ = [
    "PrefixMismatchMode",
    "RemoveOrphanFiles",
    "plan_manifest_rewrite",
    "remove_orphan_files",
    "rewrite_manifests",
]
