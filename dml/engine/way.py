"""Execution strategies of DELETE, UPDATE and MERGE, their selection, and the fallback to Spark. Driver.

| way            | what runs                                                                     |
| ---            | ---                                                                           |
| `Unchanged`    | nothing                                                                       |
| `WholeFiles`   | a commit: data files leave the table, and none is opened                      |
| `InTasks`      | tasks read rows, compute the delta and write it; a MERGE may need two jobs    |
| `ThroughSpark` | Spark's query over the rows, a shuffle where it needs one, tasks that write   |
"""

from collections.abc import Callable
from dataclasses import dataclass

from dml.engine.sent_source import SentSource
from dml.model.scan_task import ScanTask
from dml.plan.row_delta_plan import RowDeltaPlan, ThroughSpark
from dml.result import Result
from dml.rows.evaluate import UncomputableValueError
from dml.rows.program import Changes
from dml.scan.planner import ScanPlan

__all__ = ["InTasks", "Unchanged", "Way", "WholeFiles", "run_or_fall_back", "select_way"]


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
    if not scan.tasks and not plan.inserts:
        return Unchanged(reason="no data file can contain matching rows")
    return computed


def run_or_fall_back(run: Callable[[ThroughSpark | None], Result]) -> Result:
    """Run a statement in tasks, and fall back to Spark if tasks meet a value that only Spark can compute.

    An overflow is such a value: Spark reports an error, or wraps around if the session is not ANSI. The first attempt
    leaves no files behind.

    Args:
        run: Runs the statement; through Spark if it is called with a reason.

    Raises:
        DmlError: The statement failed. The table is unchanged, and no files are left behind.
    """
    try:
        return run(None)
    except UncomputableValueError as error:
        through_spark = ThroughSpark(reason=str(error))
    return run(through_spark)  # outside the handler: the first error would be chained to one of Spark's
