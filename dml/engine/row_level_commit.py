"""The commit of a row-level statement: what its tasks did, as an action on the table. Driver.

If other commits added data files, their rows decide whether the statement would have matched one of them
(`StatementProbe`). It finds out in three steps, each for what the one before it leaves open: the files' metrics; the
rows of small files, read here with the scan's own filters; the statement's own condition, run by Spark over these files
alone, on the columns that it names, for a MERGE joined with the source that was read (if that cannot be read again, a
row with one of its keys counts as a match). A commit is held up meanwhile, and most files that others add are small and
hold other keys: they take milliseconds, where a Spark job takes some tenths of a second.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml import limits
from dml.commit import (
    Action,
    AppendFiles,
    OverwriteFiles,
    RowDelta,
    RowLevelChanges,
    check_changed_files,
    check_rows_added,
    conservation_summary,
)
from dml.commit.changes import RowProbe
from dml.deletes.deletion_vector import decode
from dml.engine.engine import Engine
from dml.engine.merge_source import SourceKeys
from dml.engine.publish import merge_summary
from dml.engine.row_level_plan import PlannedStatement
from dml.engine.writes import WriteOutcome
from dml.errors import DmlError, RowConservationError
from dml.model.columns import POS, RowOperation
from dml.model.manifest import ContentFile
from dml.model.scan_task import KeyFilter, ScanTask
from dml.model.summary_keys import DATA_FILES_MARKED, DATA_FILES_REWRITTEN, DATA_FILES_SPLICED
from dml.model.write_task import WriteContext
from dml.options import (
    Command,
    IsolationLevel,
    RowLevelOperationMode,
    isolation_level,
    row_level_concurrency,
    row_probe_bytes,
)
from dml.plan.row_delta_plan import ALWAYS
from dml.pruning.pruner import Pruner
from dml.read.applied_deletes import DeleteLoader
from dml.read.reader import TaskReader
from dml.scan.planner import ScanPlan
from dml.scan.table_scan import TableScan, dataframe
from dml.write.delete_files import write_late_deletes

__all__ = ["check_rows", "compares_rows", "rests_on_rows", "row_level_action", "row_level_summary", "statement_probe"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementProbe:
    """Asks files for rows that a statement matches.

    Attributes:
        spark: The session.
        planned: The statement.
        matching: SQL over the target's view that has a row where the statement matches one.
        row_filter: Rows for which it is not true match nothing.
        key_filter: Rows with other keys match nothing; None where that is not known.
        keys_decide: Whether all rows with these keys count, as the statement's condition cannot be asked again.
        max_bytes: Of the files, all in all.
    """

    spark: SparkSession = field(repr=False)
    planned: PlannedStatement
    matching: str
    row_filter: BooleanExpression = field(repr=False)
    key_filter: KeyFilter | None = field(repr=False)
    keys_decide: bool
    max_bytes: int

    def matches(self, metadata: TableMetadata, snapshot_id: int, files: Sequence[ContentFile]) -> bool:
        """Whether some live row of the files is one that the statement would have matched; True if it is not known."""
        if sum(file.file_size_in_bytes for file in files) > self.max_bytes:
            return True
        try:
            table = self._table(metadata)
            possible = self._by_metrics(table, files)
            if sum(file.file_size_in_bytes for file in possible) <= limits.MAX_DRIVER_PROBE_BYTES:
                possible = self._by_filters(table, possible)
                if self.keys_decide:
                    return bool(possible)
            return bool(possible) and self._by_condition(table, snapshot_id, {file.path for file in possible})
        except (DmlError, PySparkException) as error:
            # The rule for whole files decides then, and it is the stricter one.
            LOG.info("Rows of concurrent commits could not be compared: %s", error)
            return True

    def _table(self, metadata: TableMetadata) -> Table:
        """The table as it is now; the statement's condition goes on having the schema that it was planned with."""
        table = self.planned.target.table
        return Table(
            identifier=table.name(),
            metadata=metadata,
            metadata_location=table.metadata_location,
            io=table.io,
            catalog=table.catalog,
        )

    def _scan(self, table: Table, snapshot_id: int | None) -> TableScan:
        return TableScan(
            table=table,
            snapshot_id=snapshot_id,
            schema=self.planned.target.table.schema(),
            columns=self.planned.plan.target_ids,
            row_filter=self.row_filter,
            key_filter=self.key_filter,
            case_sensitive=self.planned.settings.case_sensitive,
        )

    def _by_metrics(self, table: Table, files: Sequence[ContentFile]) -> list[ContentFile]:
        schema, case_sensitive = self.planned.target.table.schema(), self.planned.settings.case_sensitive
        pruner = Pruner(
            table.specs(), schema, self.row_filter, case_sensitive=case_sensitive, older_schemas=table.metadata.schemas
        )
        return [file for file in files if pruner.may_match(file)]

    def _by_filters(self, table: Table, files: Sequence[ContentFile]) -> list[ContentFile]:
        """The files with a row that the filters of a scan let through, be it deleted or not."""
        tasks = {file.path: whole_file(file) for file in files}
        scan = replace(self._scan(table, None), columns=(), metadata_columns=(POS,))
        reader = TaskReader(scan.context(tasks.values()), spark_types=False)
        return [file for file in files if any(batch.num_rows for batch in reader.read(tasks[file.path]))]

    def _by_condition(self, table: Table, snapshot_id: int, paths: set[str]) -> bool:
        scan = self._scan(table, snapshot_id)
        found = (task for task in scan.plan().tasks if task.path in paths)
        tasks = tuple(replace(task, file_ordinal=place) for place, task in enumerate(found))
        if not tasks:
            return False
        groups = scan.groups(tasks, self.planned.settings.parallelism)
        rows = dataframe(self.spark, groups, scan.context(tasks))
        if self.keys_decide:
            return bool(rows.limit(1).collect())
        views = self.planned.views.with_frame(self.planned.target_view, rows)
        return bool(views.sql(f"{self.matching} LIMIT 1").collect())


def whole_file(file: ContentFile) -> ScanTask:
    """A data file as a task without its deletes: what they leave is not more than what there is."""
    return ScanTask(
        file_ordinal=0,
        path=file.path,
        file_format=file.file_format,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        start=0,
        length=file.file_size_in_bytes,
        spec_id=file.spec_id,
        partition=file.partition,
        # Only deletes and lineage depend on it.
        data_sequence_number=0,
    )


def statement_probe(
    spark: SparkSession,
    planned: PlannedStatement,
    source_keys: SourceKeys | None = None,
    *,
    keys_decide: bool = False,
) -> RowProbe | None:
    """The probe of a statement; None where rows do not decide, or may not be asked.

    A source that is not kept could give other rows when it is read again.

    Args:
        spark: The session.
        planned: The statement.
        source_keys: The join keys of a MERGE's source, where they are known.
        keys_decide: Whether all rows with such a key count, as nobody can ask the source again.
    """
    properties: Mapping[str, str] = planned.target.table.properties
    matching, source = planned.plan.matching, planned.source
    known = keys_decide or source is None or source.stays
    if matching is None or planned.reads_itself or not known or not row_level_concurrency(properties):
        return None
    conflicts = planned.plan.condition.pruning
    return StatementProbe(
        spark=spark,
        planned=planned,
        matching=matching,
        row_filter=conflicts if source_keys is None else And(conflicts, source_keys.row_filter),
        key_filter=None if source_keys is None else source_keys.key_filter,
        keys_decide=keys_decide,
        max_bytes=row_probe_bytes(properties),
    ).matches


def check_rows(outcome: WriteOutcome, tasks: Sequence[ScanTask] = ()) -> None:
    """Refuse to publish rows that do not add up.

    Args:
        outcome: What the tasks did.
        tasks: The data files that the statement read.

    Raises:
        RowConservationError: they do not; the context names the files that were written, which are kept.
    """
    try:
        by_path = {task.path: task for task in tasks}
        check_changed_files(outcome.changed_files, by_path, outcome.delete_files, outcome.row_counts)
        check_rows_added(outcome.data_files, outcome.row_counts)
    except RowConservationError as error:
        error.context["staged_files"] = tuple(sorted(outcome.paths))
        raise


def row_level_summary(planned: PlannedStatement, outcome: WriteOutcome) -> dict[str, str]:
    """What the snapshot of a statement says of its rows."""
    counts = conservation_summary(outcome.row_counts)
    if outcome.spliced_files:
        counts[DATA_FILES_SPLICED] = str(len(outcome.spliced_files))
    if planned.mode is RowLevelOperationMode.AUTO:
        marked = [file for file in outcome.changed_files if file.rows_before is None]
        # What is left of a file that was written anew: rows as they were, and new versions of others.
        rewritten = [
            file for file in outcome.changed_files if file.rows_before and file.rows_before > file.rows_deleted
        ]
        counts[DATA_FILES_MARKED] = str(len(marked))
        counts[DATA_FILES_REWRITTEN] = str(len(rewritten))
    return counts | merge_summary(outcome.metrics) if planned.plan.command is Command.MERGE else counts


def row_level_action(
    engine: Engine,
    planned: PlannedStatement,
    scan: ScanPlan,
    context: WriteContext,
    outcome: WriteOutcome,
    source_keys: SourceKeys | None = None,
    *,
    keys_decide: bool = False,
) -> Action:
    """What the tasks wrote, as an action on the table.

    Args:
        engine: The session and its catalogs.
        planned: The statement.
        scan: What was read of the target.
        context: The write.
        outcome: What the tasks did.
        source_keys: The join keys of a MERGE's source, where they are known.
        keys_decide: Whether a row with such a key is one that the statement matches: its source cannot be asked again.
    """
    plan, target, settings = planned.plan, planned.target, planned.settings
    listing = scan.listing(outcome.removed_data_files, outcome.rewritten_delete_files)
    level = isolation_level(target.table.properties, plan.command)
    shared: dict[str, Any] = {
        # What a subquery read of the target is not in the filter.
        "conflict_detection_filter": ALWAYS if planned.reads_itself else plan.condition.pruning,
        "rests_on_rows": rests_on_rows(planned, outcome),
        "starting_snapshot_id": target.snapshot_id,
        "case_sensitive": settings.case_sensitive,
        "row_probe": statement_probe(engine.spark, planned, source_keys, keys_decide=keys_decide),
    }
    rows = row_level_changes(planned, scan.tasks, context, outcome)
    if plan.inserts_only:
        return AppendFiles(
            data_files=outcome.data_files, validate_new_data_files=level is IsolationLevel.SERIALIZABLE, **shared
        )
    # Where a statement chose by file and marked no row, what it did is copy-on-write.
    rewrites_all = planned.mode is RowLevelOperationMode.AUTO and not outcome.delete_files
    if planned.mode is RowLevelOperationMode.COPY_ON_WRITE or rewrites_all:
        return OverwriteFiles(
            data_files=outcome.data_files,
            removed_data_files=outcome.removed_data_files,
            listing=listing,
            isolation_level=level,
            row_level=rows,
            **shared,
        )
    return RowDelta(
        command=plan.command,
        data_files=outcome.data_files,
        delete_files=outcome.delete_files,
        rewritten_delete_files=outcome.rewritten_delete_files,
        removed_data_files=outcome.removed_data_files,
        listing=listing,
        referenced_data_files=outcome.referenced_data_files,
        isolation_level=level,
        rows_deleted={file.path: file.rows_deleted for file in outcome.changed_files if file.rows_before is None},
        row_level=rows,
        **shared,
    )


def row_level_changes(
    planned: PlannedStatement, tasks: Sequence[ScanTask], context: WriteContext, outcome: WriteOutcome
) -> RowLevelChanges | None:
    """The single rows that a statement is about; None where whole files have to be compared.

    That is so where the table's property says it, and for a statement that reads its target a second time: what becomes
    of a row then depends on other rows, which nobody has noted. And for one that matched rows, left them alone and may
    insert, in files that it does not change: those rows are counted, and their positions are not reported.
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
        loader=DeleteLoader(schema, context.io_properties),
        write_deletes=partial(write_late_deletes, context),
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
