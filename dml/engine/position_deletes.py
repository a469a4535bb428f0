"""Deleted positions for the commit layer: read by the scan, written by the writers. Driver."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema

from dml.commit import RowLevelChanges
from dml.deletes.deletion_vector import decode
from dml.deletes.position_index import PositionDeleteIndex
from dml.engine.planned_statement import PlannedStatement
from dml.engine.results import WriteOutcome
from dml.model.columns import RowOperation
from dml.model.manifest import ContentFile
from dml.model.scan_task import DeleteFileRef, FileDeletes, ScanTask
from dml.model.write_task import WriteContext
from dml.options import IsolationLevel, isolation_level, row_level_concurrency
from dml.read.applied_deletes import DeleteLoader
from dml.write.delete_files import write_late_deletes

__all__ = ["TablePositionDeletes", "compares_rows", "rests_on_rows", "row_level_changes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePositionDeletes:
    """The deletes of one table, within one statement.

    Attributes:
        context: The write.
        loader: Reads delete files.
    """

    context: WriteContext
    loader: DeleteLoader = field(repr=False)

    def read(self, path: str, files: Sequence[DeleteFileRef]) -> PositionDeleteIndex:
        """The positions of a data file that some delete files delete."""
        return self.loader.positions_in(path, files)

    def write(self, deletes: Sequence[FileDeletes]) -> tuple[ContentFile, ...]:
        """New delete files, one for each data file."""
        return write_late_deletes(self.context, deletes)


def row_level_changes(
    planned: PlannedStatement, tasks: Sequence[ScanTask], context: WriteContext, outcome: WriteOutcome
) -> RowLevelChanges | None:
    """The single rows that a statement is about; None where whole files have to be compared.

    That is so where the table's property says it, and for a statement that reads its target a second time: what becomes
    of a row then depends on other rows, which nobody has noted. And for one that matched rows, left them alone and may
    insert, in files that it does not change: those rows are counted, and their positions are not told.
    """
    target = planned.target
    if not compares_rows(planned):
        return None
    serializable = isolation_level(target.table.properties, planned.plan.command) is IsolationLevel.SERIALIZABLE
    if serializable and rests_on_rows(planned, outcome):
        return None
    schema = Schema.model_validate_json(context.schema_json)
    return RowLevelChanges(
        changed={file.path: file for file in outcome.changed_files},
        tasks={task.path: task for task in tasks},
        deletes=TablePositionDeletes(context=context, loader=DeleteLoader(schema, context.io_properties)),
        row_origins=outcome.row_origins,
    )


def compares_rows(planned: PlannedStatement) -> bool:
    """Whether the statement's commit compares rows, if it meets others."""
    return not planned.reads_itself and row_level_concurrency(planned.target.table.properties)


def rests_on_rows(planned: PlannedStatement, outcome: WriteOutcome) -> bool:
    """Whether the result rests on rows that the statement leaves as they are, in files that it does not change.

    Those that it read of its own target beside the rows to change. And those that a MERGE matched: had they been gone,
    it would have inserted. Without a MATCHED clause nobody counts them; there may be some. (A MERGE that does nothing
    but insert would meet any delete then: it is as if it had come first.)
    """
    plan = planned.plan
    if planned.reads_itself or not plan.inserts or plan.inserts_only:
        return planned.reads_itself
    counted = any(clause.operation is not RowOperation.INSERT and not clause.by_source for clause in plan.query.clauses)
    return not counted or left_alone(outcome) > left_alone_in_changed_files(outcome)


def left_alone(outcome: WriteOutcome) -> int:
    """Rows that were matched and not changed."""
    metrics = outcome.metrics
    by_source = metrics.rows_deleted_by_source + metrics.rows_updated_by_source
    return metrics.rows_matched - (metrics.rows_deleted + metrics.rows_updated - by_source)


def left_alone_in_changed_files(outcome: WriteOutcome) -> int:
    """Those of them whose positions are known."""
    vectors = (file.observed for file in outcome.changed_files if file.observed is not None)
    return sum(len(decode(vector, file="the task's report", cardinality=None)) for vector in vectors)
