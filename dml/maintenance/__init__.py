"""Table maintenance that changes no rows. Driver.

`partition_statistics` counts the files of partitions; `statistics_files` writes statistics and registers them.

`remove_orphan_files` combines the other modules: `storage` lists and deletes files, `reachable_files` determines the
files that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.
"""

from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.partition_statistics import compute_partition_statistics
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files

__all__ = ["PrefixMismatchMode", "RemoveOrphanFiles", "compute_partition_statistics", "remove_orphan_files"]
