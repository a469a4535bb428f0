"""The ways of a DELETE, UPDATE or MERGE, which one a statement takes, and what runs if tasks cannot finish. Driver.

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
        return Unchanged(reason="no data file can have a row that it changes")
    return computed


def run_or_fall_back(run: Callable[[ThroughSpark | None], Result]) -> Result:
    """Run a statement; if tasks meet a value that only Spark can compute, run it again through Spark.

    An overflow is such a value: Spark reports it, or wraps it around if the session is not ANSI. Nothing is left of the
    first attempt.

    Args:
        run: Runs the statement; through Spark if it is called with a reason to.

    Raises:
        DmlError: The statement failed; nothing is changed then, and no file is left.
    """
    try:
        return run(None)
    except UncomputableValueError as error:
        through_spark = ThroughSpark(reason=str(error))
    return run(through_spark)  # not in the handler: the first error would be told as the cause of one of Spark's
