"""Table maintenance that changes no rows. Driver.

`remove_orphan_files` combines three modules: `storage` lists and deletes files, `reachable_files` determines the files
that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O. A compaction
is planned here, without I/O, by `rewrite_options` and `rewrite_plan`; the engine runs it. `dangling_deletes` removes
delete files that apply to no data file.
"""

from dml.maintenance.dangling_deletes import remove_dangling_deletes
from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files
from dml.maintenance.rewrite_options import RewriteOptions
from dml.maintenance.rewrite_plan import FileGroup, RewriteDecision, RewritePlan, plan_rewrite

__all__ = [
    "FileGroup",
    "PrefixMismatchMode",
    "RemoveOrphanFiles",
    "RewriteDecision",
    "RewriteOptions",
    "RewritePlan",
    "plan_rewrite",
    "remove_dangling_deletes",
    "remove_orphan_files",
]
