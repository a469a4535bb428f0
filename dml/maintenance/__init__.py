"""Table maintenance that changes no rows. Driver.

`partition_statistics` counts the files of partitions; `statistics_files` writes statistics and registers them.

`remove_orphan_files` combines the other modules: `storage` lists and deletes files, `reachable_files` determines the
files that the table needs and the folders of other tables, and `orphan_choice` selects the orphans, without I/O.

`expire_snapshots` removes old snapshots and their files: `retention` plans, without I/O, and `expired_files` finds the
files that only expired snapshots reach.
"""

from dml.maintenance.expire_snapshots import ExpireSnapshots, SnapshotExpiry, expire_snapshots
from dml.maintenance.expired_files import FileKind
from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.partition_statistics import compute_partition_statistics
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files

__all__ = [
    "ExpireSnapshots",
    "FileKind",
    "PrefixMismatchMode",
    "RemoveOrphanFiles",
    "SnapshotExpiry",
    "compute_partition_statistics",
    "expire_snapshots",
    "remove_orphan_files",
]
