"""Table maintenance that changes no rows. Driver.

`remove_orphan_files` combines the other modules: `storage` lists and deletes files, `reachable_files` determines the
files that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.
`import_files` finds and examines files of other programs, whose partitions `partition_folders` types.
"""

from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files

__all__ = ["PrefixMismatchMode", "RemoveOrphanFiles", "remove_orphan_files"]
