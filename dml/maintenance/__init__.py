"""Maintenance of tables: what changes no row. Driver.

`remove_orphan_files` combines what its neighbours do, each in one module: `storage` (where files are, and
listing them), `reachable_files` (what the table needs), `other_tables` (what other tables need) and `orphan_choice`
(which files are orphans: no I/O there).
"""

from dml.maintenance.orphan_choice import PrefixMismatchMode
from dml.maintenance.remove_orphan_files import RemoveOrphanFiles, remove_orphan_files

__all__ = ["PrefixMismatchMode", "RemoveOrphanFiles", "remove_orphan_files"]
