"""Table maintenance that changes no rows. Driver.

`remove_orphan_files` combines the other modules: `storage` lists and deletes files, `reachable_files` determines the
files that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.
`rewrite_table_path` stages copies of a table's metadata for another location; `moved_paths` replaces prefixes, without
I/O.
"""

from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files
from dml.maintenance.rewrite_table_path import RewriteTablePath, rewrite_table_path

__all__ = [
    "PrefixMismatchMode",
    "RemoveOrphanFiles",
    "RewriteTablePath",
    "remove_orphan_files",
    "rewrite_table_path",
]
