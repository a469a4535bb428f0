"""The ways of a DELETE, UPDATE or MERGE, and which one a statement takes. Driver.

| way            | what runs                                                                     |
| ---            | ---                                                                           |
| `Unchanged`    | nothing                                                                       |
| `WholeFiles`   | a commit: data files leave the table, and none is opened                      |
| `InTasks`      | tasks read rows, compute the delta and write it; a MERGE may need two jobs    |
| `ThroughSpark` | Spark's query over the rows, a shuffle where it needs one, tasks that write   |
"""

from dataclasses import dataclass

from dml.engine.sent_source import SentSource
from dml.model.scan_task import ScanTask
from dml.plan.row_delta_plan import RowDeltaPlan, ThroughSpark
from dml.rows.program import Changes
from dml.scan.planner import ScanPlan

__all__ = ["InTasks", "Unchanged", "Way", "WholeFiles", "select_way"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchanged:
    """The statement changes no row.

    Attributes:
        reason: Why: a clause for "because", for EXPLAIN.
    """

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFiles:
    """The statement deletes every row of the data files that it meets.

    Attributes:
        tasks: The data files.
    """

    tasks: tuple[ScanTask, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class InTasks:
    """The tasks that read the rows compute the delta.

    Attributes:
        program: What they compute.
        source: The source of a MERGE, which each task receives.
    """

    program: Changes
    source: SentSource | None = None


Way = Unchanged | WholeFiles | InTasks | ThroughSpark


def select_way(plan: RowDeltaPlan, scan: ScanPlan, computed: InTasks | ThroughSpark) -> Way:
    """Select the way of a statement.

    Args:
        plan: The statement.
        scan: The scan of the table.
        computed: How the delta is computed, if it has to be.
    """
    if plan.condition.never and not plan.inserts:
        return Unchanged(reason="the condition is true for no row")
    if scan.snapshot_id is None and not plan.inserts:
        return Unchanged(reason="the table has no snapshot")
    if scan.covers_whole_files:
        return WholeFiles(tasks=tuple(scan.tasks))
    return computed
