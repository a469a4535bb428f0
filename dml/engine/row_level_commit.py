"""Turn what the tasks of a row-level statement did into an action on the table, for the commit. Driver.

If other commits added data files, the statement may have matched their rows (`StatementProbe`). The probe has three
steps, each for what the one before leaves open: the files' metrics; the rows of small files, read here with the scan's
own filters; the statement's own condition, run by Spark over these files alone, on the columns that it names, for a
MERGE joined with the source that was read (if the source cannot be read again, a row with one of its keys counts as a
match). The commit waits meanwhile. Most files that others add are small and hold other keys: the first two steps take
milliseconds, a Spark job takes some tenths of a second.
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
from dml.spark.lazy_session import LazySession
from dml.write.delete_files import write_late_deletes

__all__ = ["check_rows", "compares_rows", "depends_on_rows", "row_level_action", "row_level_summary", "statement_probe"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementProbe:
    """Searches files for rows that a statement matches.

    Attributes:
        lazy_session: The Spark session, which starts on first use.
        planned: The statement.
        matching: SQL over the target's view that returns a row if the statement matches one.
        row_filter: Rows for which it is not true match nothing.
        key_filter: Rows with other keys match nothing; None if the keys are unknown.
        keys_decide: Whether all rows with these keys count as matches, because the condition cannot be evaluated again.
        max_bytes: The maximum total size of the files to search.
    """

    lazy_session: LazySession = field(repr=False)
    planned: PlannedStatement
    matching: str
    row_filter: BooleanExpression = field(repr=False)
    key_filter: KeyFilter | None = field(repr=False)
    keys_decide: bool
    max_bytes: int

    def matches(self, metadata: TableMetadata, snapshot_id: int, files: Sequence[ContentFile]) -> bool:
        """Return True if the statement would have matched a live row of the files, or if that is unknown."""
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
            # The commit then compares whole files, which is stricter.
            LOG.info("Rows of concurrent commits could not be compared: %s", error)
            return True

    def _table(self, metadata: TableMetadata) -> Table:
        """Return the table with new metadata; the condition keeps the schema that it was planned with."""
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
        """Return the files with a row that passes the scan's filters, deleted or not."""
        # Ignoring deletes never hides a match.
        tasks = {file.path: ScanTask.of_file(file) for file in files}
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
        rows = dataframe(self.lazy_session.spark, groups, scan.context(tasks))
        if self.keys_decide:
            return bool(rows.limit(1).collect())
        views = self.planned.views.with_frame(self.planned.target_view, lambda: rows)
        return bool(views.sql(f"{self.matching} LIMIT 1").collect())


def statement_probe(
    lazy_session: LazySession,
    planned: PlannedStatement,
    source_keys: SourceKeys | None = None,
    *,
    keys_decide: bool = False,
) -> RowProbe | None:
    """Return the probe of a statement, or None if commits compare whole files.

    A source that is not kept could return other rows when it is read again.

    Args:
        lazy_session: The Spark session, which starts on first use.
        planned: The statement.
        source_keys: The join keys of a MERGE's source, if known.
        keys_decide: Whether all rows with such a key count as matches, because the source cannot be read again.
    """
    properties: Mapping[str, str] = planned.target.table.properties
    matching, source = planned.plan.matching, planned.source
    known = keys_decide or source is None or source.is_repeatable
    if matching is None or planned.reads_itself or not known or not row_level_concurrency(properties):
        return None
    conflicts = planned.plan.condition.pruning
    return StatementProbe(
        lazy_session=lazy_session,
        planned=planned,
        matching=matching,
        row_filter=conflicts if source_keys is None else And(conflicts, source_keys.row_filter),
        key_filter=None if source_keys is None else source_keys.key_filter,
        keys_decide=keys_decide,
        max_bytes=row_probe_bytes(properties),
    ).matches


def check_rows(outcome: WriteOutcome, tasks: Sequence[ScanTask] = ()) -> None:
    """Check row conservation before publishing.

    Args:
        outcome: What the tasks did.
        tasks: The data files that the statement read.

    Raises:
        RowConservationError: rows do not add up; the context names the files that were written, which are kept.
    """
    try:
        by_path = {task.path: task for task in tasks}
        check_changed_files(outcome.changed_files, by_path, outcome.delete_files, outcome.row_counts)
        check_rows_added(outcome.data_files, outcome.row_counts)
    except RowConservationError as error:
        error.context["staged_files"] = tuple(sorted(outcome.paths))
        raise


def row_level_summary(planned: PlannedStatement, outcome: WriteOutcome) -> dict[str, str]:
    """Return the snapshot's summary entries about the statement's rows and files."""
    counts = conservation_summary(outcome.row_counts)
    if outcome.spliced_files:
        counts[DATA_FILES_SPLICED] = str(len(outcome.spliced_files))
    if planned.mode is RowLevelOperationMode.AUTO:
        marked = [file for file in outcome.changed_files if file.rows_before is None]
        # A file that lost all its rows was removed, not rewritten.
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
    """Return what the tasks wrote, as an action on the table.

    Args:
        engine: The session and its catalogs.
        planned: The statement.
        scan: The scan of the target.
        context: The write.
        outcome: What the tasks did.
        source_keys: The join keys of a MERGE's source, if known.
        keys_decide: Whether a row with such a key counts as a match, because the source cannot be read again.
    """
    plan, target, settings = planned.plan, planned.target, planned.settings
    listing = scan.listing(outcome.removed_data_files, outcome.rewritten_delete_files)
    level = isolation_level(target.table.properties, plan.command)
    shared: dict[str, Any] = {
        # The filter does not cover what a subquery read of the target.
        "conflict_detection_filter": ALWAYS if planned.reads_itself else plan.condition.pruning,
        "depends_on_rows": depends_on_rows(planned, outcome),
        "starting_snapshot_id": target.snapshot_id,
        "case_sensitive": settings.case_sensitive,
        "row_probe": statement_probe(engine.lazy_session, planned, source_keys, keys_decide=keys_decide),
    }
    rows = row_level_changes(planned, scan.tasks, context, outcome)
    if plan.inserts_only:
        return AppendFiles(
            data_files=outcome.data_files, validate_new_data_files=level is IsolationLevel.SERIALIZABLE, **shared
        )
    # In adaptive mode, a statement that marked no row is a copy-on-write.
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
    """Return the statement's changes row by row, or None if the commit must compare whole files.

    It must if the table's property disables row-level concurrency, or if the statement reads its target a second time:
    its result then depends on rows that are not recorded. If serializable, it also must for a statement that may insert
    and matched rows without changing them, in files that it does not change: their positions are not recorded.
    """
    target = planned.target
    if not compares_rows(planned):
        return None
    serializable = isolation_level(target.table.properties, planned.plan.command) is IsolationLevel.SERIALIZABLE
    if serializable and depends_on_rows(planned, outcome):
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
    """Return whether the statement's commit compares rows with concurrent commits."""
    return not planned.reads_itself and row_level_concurrency(planned.target.table.properties)


def depends_on_rows(planned: PlannedStatement, outcome: WriteOutcome) -> bool:
    """Return whether the result depends on rows that the statement leaves unchanged, in files that it does not change.

    Such rows are those that it read of its own target beside the rows to change, and those that a MERGE matched:
    without them, it would have inserted. Without a MATCHED clause matches are not counted, so there may be some.
    (A MERGE that only inserts would conflict with any delete then; instead, it is ordered before the delete.)
    """
    plan = planned.plan
    if planned.reads_itself or not plan.inserts or plan.inserts_only:
        return planned.reads_itself
    counted = any(clause.operation is not RowOperation.INSERT and not clause.by_source for clause in plan.query.clauses)
    return not counted or count_unchanged_matches(outcome) > count_positioned_matches(outcome)


def count_unchanged_matches(outcome: WriteOutcome) -> int:
    """Return the number of rows that were matched and not changed."""
    metrics = outcome.metrics
    by_source = metrics.rows_deleted_by_source + metrics.rows_updated_by_source
    return metrics.rows_matched - (metrics.rows_deleted + metrics.rows_updated - by_source)


def count_positioned_matches(outcome: WriteOutcome) -> int:
    """Return the number of matched, unchanged rows whose positions are known."""
    vectors = (file.observed for file in outcome.changed_files if file.observed is not None)
    return sum(len(decode(vector, file="the task's report", cardinality=None)) for vector in vectors)
