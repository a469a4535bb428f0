"""Plan and run the maintenance of a table: `maintain`. Driver.

Input: a table, its properties `maintenance.*` and `history.expire.*`, a budget. Output: a plan, which has a step for
each procedure and its reason in numbers; or a report of the work done. The steps run in the order of `PLANNERS`, each
by the functions of its own procedure. After a step has changed the table, the later ones are planned again, because a
compaction changes manifests and delete files. The data files of a snapshot are listed once for all steps.

A run ends after a pass in which no step finds work. By the rules of `dml.maintenance.worthwhile`, a step finds no work
in its own results. So a second run changes nothing: no snapshot and no metadata file. The lease is taken only if there
is work (decision 053).
"""

import logging
import re
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue, LessThan
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, TimestampType, TimestamptzType
from pyspark.errors import PySparkException

from dml import limits
from dml.catalog.registry import ResolvedTable
from dml.catalog.translation import translate_errors
from dml.commit import ancestors
from dml.ddl.commit import MetadataChange, commit_change
from dml.deletes.delete_file_index import partition_key
from dml.engine.column_statistics import compute_table_statistics, find_path, is_primitive
from dml.engine.engine import Engine
from dml.engine.query import run_query
from dml.engine.rewrite_data_files import (
    Rewrite,
    RewriteDataFiles,
    counters,
    prepare_rewrite,
    rewritable,
)
from dml.engine.row_level import run_row_level
from dml.engine.writes import write_context
from dml.errors import (
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotSupportedError,
    ValidationFailedError,
)
from dml.hook_options import HookOptions
from dml.hooks import in_maintenance
from dml.maintenance import (
    ExpireSnapshots,
    FileGroup,
    FileKind,
    Lease,
    PositionDeleteOptions,
    RemoveOrphanFiles,
    RetentionRules,
    WorthwhileGroups,
    average_depth,
    compute_partition_statistics,
    expire_snapshots,
    find_dangling_deletes,
    manifest_reason,
    merges_delete_files,
    plan_manifest_rewrite,
    plan_position_delete_rewrite,
    plan_retention,
    remove_dangling_deletes,
    remove_orphan_files,
    rewrite_manifests,
    rewrite_position_deletes,
    worthwhile_groups,
)
from dml.maintenance.retention import duration
from dml.maintenance.rewrite_plan import group_reason
from dml.maintenance.sorted_files import sorting_column
from dml.manifests.cache import cache_of
from dml.manifests.read import read_each
from dml.manifests.write import partition_type
from dml.model.manifest import ManifestContent, is_unpartitioned
from dml.model.scan_task import ScanTask
from dml.model.transforms import partition_path
from dml.options import (
    GC_ENABLED,
    MAINTENANCE_ORPHANS_INTERVAL,
    MAINTENANCE_ORPHANS_LAST_RUN,
    MAINTENANCE_TTL_COLUMN,
    MAINTENANCE_TTL_MAX_AGE,
    CommitOptions,
    DeleteGranularity,
    MaintenanceOptions,
    StatisticsUpkeep,
    WriteOptions,
    boolean,
)
from dml.progress import progress_bar
from dml.pruning.file_bounds import metric_columns
from dml.result import Decision, MaintenanceDecision, MaintenanceReport
from dml.scan.planner import ScanPlan
from dml.scan.table_scan import TableScan
from dml.spark.errors import translate
from dml.sqlparse import parse
from dml.sqlparse.quoting import quote_name
from dml.sqlparse.statements import DeleteStatement, Query
from dml.write.partitioning import row_order

__all__ = [
    "MaintainedTable",
    "MaintenancePlan",
    "MaintenanceStep",
    "PlannedStep",
    "compact_after_commit",
    "maintain",
    "parse_budget",
    "plan_maintenance",
]

LOG = logging.getLogger(__name__)

DAY: Final = timedelta(days=1)
FINAL_VERSION_OF_POSITION_DELETES: Final = 2
"""The last format version whose writers add position delete files instead of deletion vectors."""


class MaintenanceStep(StrEnum):
    """A step, by the name of the procedure or statement that does the same."""

    EXPIRE_SNAPSHOTS = "expire_snapshots"
    EXPIRE_ROWS = "delete_expired_rows"
    REWRITE_MANIFESTS = "rewrite_manifests"
    REWRITE_DATA_FILES = "rewrite_data_files"
    SORT_DATA_FILES = "sort_data_files"
    REMOVE_DANGLING_DELETES = "remove_dangling_deletes"
    REWRITE_DELETE_FILES = "rewrite_position_delete_files"
    COMPUTE_TABLE_STATS = "compute_table_stats"
    COMPUTE_PARTITION_STATS = "compute_partition_stats"
    REMOVE_ORPHAN_FILES = "remove_orphan_files"


ONCE: Final = frozenset({MaintenanceStep.EXPIRE_ROWS, MaintenanceStep.REMOVE_ORPHAN_FILES})
"""Steps that a run does not repeat."""

STATISTICS: Final = frozenset({MaintenanceStep.COMPUTE_TABLE_STATS, MaintenanceStep.COMPUTE_PARTITION_STATS})

NO_STATISTICS: Final = StatisticsUpkeep.NONE

DELETE_RATIO_OPTION: Final = "delete-ratio-threshold"

DELETE_RATIO: Final = 0.3
"""Its default."""

PARTIAL_PROGRESS: Final = "partial-progress."

MAX_FILES: Final = "max-files-to-rewrite"
"""The option that leaves groups for a later run. A partition is sorted as a whole or not at all."""

COMPACTION: Final = frozenset({MaintenanceStep.REWRITE_DATA_FILES, MaintenanceStep.REMOVE_DANGLING_DELETES})
"""The steps of a compaction after a commit."""


# ---- plans ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutcome:
    """The outcome of a step.

    Attributes:
        done: What was done, in numbers.
        left: The work that did not start within the budget; empty if there is none.
    """

    done: str
    left: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStep:
    """A step of a plan.

    Attributes:
        step: The step.
        reason: Why it is needed or not, in numbers.
        run: Runs it; None if it is not needed. The argument is called between commits, and returns True if the budget
            has run out.
        decisions: Decisions about parts of it, such as groups of files and partitions.
        compaction: The groups of data files of the compaction; None for other steps.
        error: Why the step cannot be planned; None if it is.
    """

    step: MaintenanceStep
    reason: str
    run: Callable[[Callable[[], bool]], StepOutcome] | None = field(default=None, repr=False)
    decisions: tuple[Decision, ...] = ()
    compaction: WorthwhileGroups | None = field(default=None, repr=False)
    error: DmlError | None = None

    @property
    def is_needed(self) -> bool:
        """True if there is work."""
        return self.run is not None

    def rows(self, table: str) -> Iterator[MaintenanceDecision]:
        """Yield the decision about the step, then those about its parts."""
        decision = "run" if self.is_needed else "keep"
        yield MaintenanceDecision(step=self.step, decision=decision, object=table, reason=self.reason)
        for one in self.decisions:
            yield MaintenanceDecision(step=self.step, decision=one.decision, object=one.object, reason=one.reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePlan:
    """What maintenance would do with a table now.

    Attributes:
        table: The name of the table.
        branch: The branch whose files are maintained.
        steps: All steps, in order. The later ones may change after the earlier ones have run.
    """

    table: str
    branch: str
    steps: tuple[PlannedStep, ...]

    def check(self) -> None:
        """Raise the first error of a step that cannot be planned."""
        for one in self.steps:
            if one.error is not None:
                raise one.error

    @property
    def needed(self) -> tuple[PlannedStep, ...]:
        """The steps that have work."""
        return tuple(one for one in self.steps if one.is_needed)

    @property
    def decisions(self) -> tuple[MaintenanceDecision, ...]:
        """The decisions of all steps."""
        return tuple(row for one in self.steps for row in one.rows(self.table))


def plan_maintenance(
    engine: Engine,
    parts: tuple[str, ...],
    steps: Iterable[MaintenanceStep] = MaintenanceStep,
    resolved: ResolvedTable | None = None,
) -> MaintenancePlan:
    """Plan the maintenance of a table. Changes nothing.

    Args:
        engine: The session and its catalogs.
        parts: The table's name. A branch at its end is the one whose files are maintained, instead of main.
        steps: The steps to plan.
        resolved: The table, if it is loaded already.

    Raises:
        NotFoundError: There is no such table or branch.
        AnalysisError: A property of the table is invalid.
        DmlError: Metadata is damaged, or the storage failed.
    """
    plan = MaintainedTable(engine, parts, resolved=resolved).plan(frozenset(steps))
    plan.check()
    return plan


class MaintainedTable:
    """A state of a table, and the results that several steps share.

    Args:
        engine: The session and its catalogs.
        parts: The table's name.
        before: An earlier state in the same run, whose results for the same snapshot are reused.
        deleted_ratio: The fraction of deleted rows at which a file is rewritten, unless the table's option is lower;
            None for the table's.
        commit_bytes: The bytes of old files in each commit of a compaction, and the default size of its groups; None
            for the usual ones.
        resolved: The table, if it is loaded already.
    """

    def __init__(
        self,
        engine: Engine,
        parts: tuple[str, ...],
        before: "MaintainedTable | None" = None,
        deleted_ratio: float | None = None,
        commit_bytes: int | None = None,
        resolved: ResolvedTable | None = None,
    ) -> None:
        self.engine, self.parts = engine, parts
        self.resolved = resolved or rewritable(engine, parts)
        self.options = MaintenanceOptions.from_properties(self.table.properties)
        self.deleted_ratio, self.commit_bytes = deleted_ratio, commit_bytes
        self.memo: dict[Hashable, Any] = {}
        self.now_ms = time.time_ns() // 1_000_000
        if before is None:
            self.sketched, self.counts_partitions = known_statistics(self.table.metadata)
        else:
            # Statistics expire with their snapshots, so the first state determines which kinds to keep.
            self.sketched, self.counts_partitions = before.sketched, before.counts_partitions
            self.deleted_ratio, self.commit_bytes = before.deleted_ratio, before.commit_bytes
            if self.facts == before.facts:
                self.memo = before.memo

    @property
    def table(self) -> Table:
        """The table."""
        return self.resolved.table

    @property
    def metadata(self) -> TableMetadata:
        """Its metadata."""
        return self.resolved.table.metadata

    @property
    def name(self) -> str:
        """Its name."""
        return self.resolved.name

    @property
    def branch(self) -> str:
        """The branch whose files are maintained."""
        return self.resolved.branch or MAIN_BRANCH

    @cached_property
    def snapshot(self) -> Snapshot | None:
        """The head of the branch; None if there is none."""
        return self.table.snapshot_by_name(self.branch)

    @property
    def facts(self) -> Hashable:
        """The state that the remembered results depend on."""
        metadata, snapshot = self.metadata, self.snapshot
        head = None if snapshot is None else snapshot.snapshot_id
        return metadata.table_uuid, head, metadata.current_schema_id, metadata.default_sort_order_id

    def remember(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return a result for the snapshot, computed once."""
        if key not in self.memo:
            self.memo[key] = compute()
        return self.memo[key]

    @property
    def files(self) -> ScanPlan:
        """The live data files of the branch, with the deletes that apply to them."""
        found: ScanPlan = self.remember("files", self._scan)
        return found

    def _scan(self) -> ScanPlan:
        first = sorting_column(self.table)
        return self.scan().plan(bounded_id=None if first is None else first[0])

    def scan(self, row_filter: Any = None) -> TableScan:
        """Return the scan of the head, without columns."""
        return TableScan(
            table=self.table,
            snapshot_id=None if self.snapshot is None else self.snapshot.snapshot_id,
            schema=self.table.schema(),
            columns=(),
            row_filter=AlwaysTrue() if row_filter is None else row_filter,
            case_sensitive=True,
        )

    def total(self, key: str) -> int | None:
        """Return a total of the head's summary; None if it is unknown."""
        summary = None if self.snapshot is None else self.snapshot.summary
        text = "" if summary is None else summary.additional_properties.get(key, "")
        return int(text) if text.isdecimal() else None

    @cached_property
    def expiring(self) -> frozenset[int]:
        """The snapshots with statistics that expire."""
        files = (*self.metadata.statistics, *self.metadata.partition_statistics)
        if not files or not self.deletes_files:
            return frozenset()
        retention = plan_retention(self.metadata, RetentionRules.of(self.table.properties, self.now_ms))
        return retention.expired & {file.snapshot_id for file in files}

    @property
    def deletes_files(self) -> bool:
        """True if files of the table may be deleted: `gc.enabled`."""
        return boolean(self.table.properties, GC_ENABLED, default=True)

    def after(self) -> "MaintainedTable":
        """Load the newest state of the table."""
        return MaintainedTable(self.engine, self.parts, self)

    def plan(self, steps: frozenset[MaintenanceStep]) -> MaintenancePlan:
        """Plan some steps."""
        planned = tuple(self.planned(step) for step in PLANNERS if step in steps)
        return MaintenancePlan(table=self.name, branch=self.branch, steps=planned)

    def planned(self, step: MaintenanceStep) -> PlannedStep:
        """Plan one step. A step that the table does not support is not needed; other errors belong to the step."""
        try:
            with translate_errors(f"Planning the maintenance of the table '{self.name}'", self.resolved.catalog):
                return PLANNERS[step](self)
        except (NotSupportedError, ValidationFailedError) as error:
            return PlannedStep(step=step, reason=f"not possible: {error.message}")
        except DmlError as error:
            return PlannedStep(step=step, reason=error.message, error=error)


# ---- steps ----------------------------------------------------------------------------------------------------------


def plan_snapshots(state: MaintainedTable) -> PlannedStep:
    """Expire snapshots, branches and tags by the table's properties `history.expire.*`."""
    step = MaintenanceStep.EXPIRE_SNAPSHOTS
    if not state.deletes_files:
        return PlannedStep(step=step, reason=f"{GC_ENABLED} is false")
    retention = plan_retention(state.metadata, RetentionRules.of(state.table.properties, state.now_ms))
    expired, refs, known = len(retention.expired), retention.removed_refs, len(state.metadata.snapshots)
    if not expired and not refs:
        return PlannedStep(step=step, reason=f"none of {count(known, 'snapshot')} is expired")

    def run(_: Callable[[], bool]) -> StepOutcome:
        done = expire_snapshots(state.resolved.catalog, state.resolved.identifier, ExpireSnapshots())
        found = [count(done.deleted[kind], kind.value.removesuffix("s")) for kind in FileKind if done.deleted[kind]]
        files = ", ".join(found) or "no file"
        return StepOutcome(done=f"deleted {files}")

    return PlannedStep(
        step=step,
        reason=f"{expired} of {count(known, 'snapshot')} and {len(refs)} of {count(len(state.metadata.refs), 'ref')} "
        "are expired",
        run=run,
        decisions=tuple(one for one in retention.decisions if one.decision == "remove"),
    )


def plan_rows(state: MaintainedTable) -> PlannedStep:
    """Delete rows whose age is above `maintenance.ttl.max-age-ms`, by a DELETE statement."""
    step = MaintenanceStep.EXPIRE_ROWS
    column, age_ms = state.options.ttl_column, state.options.ttl_max_age_ms
    if column is None or age_ms is None:
        if column is None and age_ms is None:
            return PlannedStep(step=step, reason=f"{MAINTENANCE_TTL_COLUMN} is not set")
        unset, given = (MAINTENANCE_TTL_COLUMN, MAINTENANCE_TTL_MAX_AGE)[:: 1 if column is None else -1]
        raise AnalysisError(
            f"The table '{state.name}' has the property '{given}' without '{unset}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="Set both, or none to keep all rows",
            property=unset,
        )
    expiry = RowExpiry.of(state, column, age_ms)
    found = state.remember(("rows", expiry.condition), lambda: expiry.count(state))
    if not found:
        return PlannedStep(step=step, reason=f"no row with {expiry.condition}")

    def run(_: Callable[[], bool]) -> StepOutcome:
        text = f"DELETE FROM {expiry.target} WHERE {expiry.condition}"
        statement = parse(text)
        assert isinstance(statement, DeleteStatement)
        result = run_row_level(state.engine, statement, text, may_stage=False)
        deleted = "all rows of" if result.rows_deleted is None else f"{count(result.rows_deleted, 'row')} in"
        return StepOutcome(
            done=f"deleted {deleted} {count(result.data_files_removed, 'removed data file')} ({result.mode})"
        )

    return PlannedStep(step=step, reason=f"{count(found, 'row')} with {expiry.condition}", run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowExpiry:
    """The rows that are too old.

    Attributes:
        target: The name of the table and branch, quoted.
        condition: The SQL condition of the rows.
        column: The name of the column.
        bound: The time before which rows have expired, in Iceberg's text form.
    """

    target: str
    condition: str
    column: str
    bound: str

    @staticmethod
    def of(state: MaintainedTable, column: str, age_ms: int) -> "RowExpiry":
        """Return the rows of a table that are older than an age.

        The age is counted from the start of the day in UTC, or of the hour for an age below one day. So a second run
        soon after finds no more rows, and DELETE removes whole files of tables that are partitioned by time.

        Raises:
            AnalysisError: The table has no such column, or it is not a date or a timestamp.
        """
        path = find_path(state.table.schema().fields, column, str)
        kind: Any = path[-1].field_type if path else None
        try:
            cutoff = datetime.fromtimestamp(state.now_ms / 1000, UTC) - timedelta(milliseconds=age_ms)
        except OverflowError:
            cutoff = datetime(1, 1, 1, tzinfo=UTC)
        cutoff = cutoff.replace(minute=0, second=0, microsecond=0)
        if age_ms >= DAY / timedelta(milliseconds=1):
            cutoff = cutoff.replace(hour=0)
        match kind:
            case DateType():
                sql, bound = "DATE", cutoff.date().isoformat()
            case TimestampType():
                sql, bound = "TIMESTAMP_NTZ", cutoff.replace(tzinfo=None).isoformat()
            case TimestamptzType():
                sql, bound = "TIMESTAMP", cutoff.isoformat()
            case _:
                raise AnalysisError(
                    f"'{MAINTENANCE_TTL_COLUMN}' of '{state.name}' is '{column}', which is "
                    + (f"of type {kind}" if path else "no column or field of structs"),
                    kind=ErrorKind.INVALID_PROPERTY,
                    hint="It must be a column of type date, timestamp or timestamp_ntz",
                    property=MAINTENANCE_TTL_COLUMN,
                )
        is_column = any(one.name == column for one in state.table.schema().fields)  # also one named `a.b`
        quoted = quote_name((column,) if is_column else column.split("."))
        # Also for main: a table's name alone is that of `spark.wap.branch`.
        named = (state.resolved.catalog_name, *state.resolved.identifier, f"branch_{state.branch}")
        return RowExpiry(
            target=quote_name(named),
            condition=f"{quoted} < {sql} '{bound}'",
            column=column,
            bound=bound,
        )

    def count(self, state: MaintainedTable) -> int:
        """Count the rows: from metadata if they fill whole files, otherwise by a query on files that may have some."""
        plan = state.scan(LessThan(term=self.column, value=self.bound)).plan(find_whole_files=True)
        if not plan.tasks:
            return 0
        if plan.covers_whole_files and not any(task.has_deletes for task in plan.tasks):
            return sum(task.record_count for task in plan.tasks)
        text = f"SELECT count(*) FROM {self.target} WHERE {self.condition}"
        statement = parse(text)
        assert isinstance(statement, Query)
        row = run_query(state.engine, statement, text).first()
        assert row is not None
        return int(row[0])


def plan_manifests(state: MaintainedTable) -> PlannedStep:
    """Rewrite manifests that slow down planning: many small manifests, or several that list the same partitions."""
    step, table = MaintenanceStep.REWRITE_MANIFESTS, state.table
    manifests = () if state.snapshot is None else cache_of(table).manifests(table.io, state.snapshot)
    target = CommitOptions.from_properties(table.properties).manifest_target_size
    reason = manifest_reason(manifests, table.spec(), state.metadata, target)
    if not reason:
        return PlannedStep(step=step, reason=f"{count(len(manifests), 'manifest')}: not enough to slow down planning")

    def run(_: Callable[[], bool]) -> StepOutcome:
        plan = plan_manifest_rewrite(table, branch=state.branch)
        done = rewrite_manifests(plan, state.engine.commit_summary())
        return StepOutcome(done=f"{count(len(done.removed), 'manifest')} became {len(done.added)}")

    return PlannedStep(step=step, reason=reason, run=run)


def plan_compaction(state: MaintainedTable) -> PlannedStep:
    """Rewrite files with many deleted rows, and small files, by partition."""
    step = MaintenanceStep.REWRITE_DATA_FILES
    rewrite, hot = binpack(state), hot_partitions(state)
    if rewrite is None:
        return PlannedStep(step=step, reason="no snapshot")
    found = worthwhile_groups(rewrite.plan.groups, rewrite.options)
    rows = (*left_decisions(rewrite, found.left), *hot_decisions(state, hot))
    fitting = len(rewrite.files.tasks) - sum(len(group.tasks) for group in found.groups)
    if not found.groups:
        reason = f"none of {count(len(rewrite.files.tasks), 'data file')} is worth a rewrite"
        return PlannedStep(step=step, reason=reason, decisions=rows, compaction=found)
    chosen = rewrite_decisions(rewrite, found.groups)
    return PlannedStep(
        step=step,
        reason=f"{rewrite_text(rewrite, found.groups)}; {fitting} are left",
        run=lambda is_over: run_rewrite(rewrite, found.groups, is_over, state.commit_bytes),
        decisions=(*chosen, *rows),
        compaction=found,
    )


def plan_clustering(state: MaintainedTable) -> PlannedStep:
    """Sort partitions of a sorted table whose files overlap on the first column of the sort order.

    Files that the compaction rewrites are left out, because it sorts them anyway. Bounds of text are truncated, so only
    columns of numbers, dates and times are considered.
    """
    step, order = MaintenanceStep.SORT_DATA_FILES, state.table.sort_order()
    if row_order(order, state.table.schema().fields) is None:
        return PlannedStep(step=step, reason="the table has no sort order to apply")
    first = order.fields[0]
    column = metric_columns(state.table.schema()).get(first.source_id)
    if not isinstance(first.transform, IdentityTransform) or column is None or column.fixed is None:
        return PlannedStep(step=step, reason="the first sort column is not a number, date or time: not judged")
    packed, name = binpack(state), state.table.schema().find_column_name(first.source_id)
    if packed is None:
        return PlannedStep(step=step, reason="no snapshot")
    depths = overlap_depths(state, packed, first.source_id, column.decode)
    deep = {key for key, depth in depths.items() if depth >= limits.MAINTENANCE_OVERLAP_DEPTH}
    most = max(depths.values(), default=0.0)
    reason = f"of its files, at most {most:.1f} on average have the same {name} in a partition"
    options = {name: value for name, value in compaction_options(state).items() if name != MAX_FILES}
    rewrite = prepare_rewrite(
        state.engine,
        state.resolved,
        RewriteDataFiles(strategy="sort", options={**options, "rewrite-all": "true"}),
        files=state.files,
        selects=lambda task: partition_key(task.spec_id, task.partition) in deep,
    )
    groups = () if rewrite is None or not deep else clustering_groups(rewrite.plan.groups, depths)
    if rewrite is None or not groups:
        return PlannedStep(step=step, reason=f"{reason}, below {limits.MAINTENANCE_OVERLAP_DEPTH}")
    return PlannedStep(
        step=step,
        reason=f"{reason}: {rewrite_text(rewrite, groups)}",
        run=lambda is_over: run_rewrite(rewrite, groups, is_over, state.commit_bytes),
        decisions=rewrite_decisions(rewrite, groups, depths),
    )


def plan_dangling(state: MaintainedTable) -> PlannedStep:
    """Remove delete files that apply to no data file."""
    step, known = MaintenanceStep.REMOVE_DANGLING_DELETES, state.total("total-delete-files")
    snapshot = state.snapshot
    if snapshot is None or known == 0:
        return PlannedStep(step=step, reason="no delete files")
    found = len(state.remember("dangling", lambda: find_dangling_deletes(state.table, snapshot)))
    if not found:
        return PlannedStep(step=step, reason=f"all {known or ''} delete files apply to data files".replace("  ", " "))

    def run(_: Callable[[], bool]) -> StepOutcome:
        removed = remove_dangling_deletes(state.table, state.branch, state.engine.commit_summary())
        return StepOutcome(done=f"removed {count(removed, 'delete file')}")

    return PlannedStep(step=step, reason=f"{count(found, 'delete file')} without a data file", run=run)


def plan_delete_files(state: MaintainedTable) -> PlannedStep:
    """Merge small position delete files of version 2; convert those of version 3 to deletion vectors."""
    step, table = MaintenanceStep.REWRITE_DELETE_FILES, state.table
    if state.total("total-delete-files") == 0 or not any(task.position_deletes for task in state.files.tasks):
        return PlannedStep(step=step, reason="no position delete files apply to data files")
    options = WriteOptions.from_properties(table.properties)
    converts = table.format_version > FINAL_VERSION_OF_POSITION_DELETES
    call = PositionDeleteOptions.of({"rewrite-all": "true"} if converts else {}, options.delete_target_file_size)
    plan = plan_position_delete_rewrite(table, call, AlwaysTrue(), branch=state.branch)
    by_file = options.delete_granularity is DeleteGranularity.FILE
    groups = tuple(group for group in plan.groups if converts or merges_delete_files(group, call, by_file=by_file))
    files = sum(len(group.files) for group in groups)
    if not files:
        return PlannedStep(step=step, reason=f"merging does not halve the {count(len(plan.files), 'delete file')}")

    def run(_: Callable[[], bool]) -> StepOutcome:
        context = write_context(table, str(uuid.uuid4()))
        done = rewrite_position_deletes(replace(plan, groups=groups), context, state.engine.commit_summary())
        old, new = (sum(one.counts[place] for one in done) for place in (0, 1))
        return StepOutcome(done=f"{count(old, 'delete file')} became {new}")

    what = "become deletion vectors" if converts else f"in {count(len(groups), 'partition')} are merged"
    return PlannedStep(step=step, reason=f"{files} of {count(len(plan.files), 'delete file')} {what}", run=run)


def plan_table_statistics(state: MaintainedTable) -> PlannedStep:
    """Refresh the column statistics if the table has some, and many rows have changed since."""
    names = [state.table.schema().find_column_name(one) for one in sorted(state.sketched)]
    columns = [name for name in names if name is not None]
    if not columns and not any(map(is_primitive, state.table.schema().fields)):
        return PlannedStep(step=MaintenanceStep.COMPUTE_TABLE_STATS, reason="no column of a primitive type")
    ids = [one.snapshot_id for one in state.metadata.statistics]

    def run(_: Callable[[], bool]) -> StepOutcome:
        location = compute_table_statistics(state.engine, state.resolved, None, columns or None)
        return StepOutcome(done=f"wrote {location}")

    return statistics_step(state, MaintenanceStep.COMPUTE_TABLE_STATS, ids, bool(columns), run)


def plan_partition_statistics(state: MaintainedTable) -> PlannedStep:
    """Refresh the counts of partitions if the table has some, and many rows have changed since."""
    step = MaintenanceStep.COMPUTE_PARTITION_STATS
    if all(spec.is_unpartitioned() for spec in state.table.specs().values()):
        return PlannedStep(step=step, reason="the table is not partitioned")
    ids = [one.snapshot_id for one in state.metadata.partition_statistics]

    def run(_: Callable[[], bool]) -> StepOutcome:
        location = compute_partition_statistics(state.resolved.catalog, state.table, None, state.name)
        return StepOutcome(done=f"wrote {location}")

    return statistics_step(state, step, ids, state.counts_partitions, run)


def statistics_step(
    state: MaintainedTable,
    step: MaintenanceStep,
    snapshot_ids: Sequence[int],
    had: bool,
    run: Callable[[Callable[[], bool]], StepOutcome],
) -> PlannedStep:
    """Plan statistics of one kind.

    Args:
        state: The table.
        step: The step.
        snapshot_ids: The snapshots that have such statistics.
        had: Whether the table had such statistics when the run began.
        run: Computes those of the current snapshot.
    """
    wanted, snapshot = state.options.statistics, state.table.current_snapshot()
    if wanted is NO_STATISTICS or (wanted is StatisticsUpkeep.EXISTING and not had):
        return PlannedStep(
            step=step, reason="there are none to refresh" if wanted is not NO_STATISTICS else "switched off"
        )
    if snapshot is None or not numbers_of(snapshot)("total-records"):
        return PlannedStep(step=step, reason="the table has no rows")
    changed = changed_share(state.metadata, snapshot, frozenset(snapshot_ids) - state.expiring)
    if changed is not None and changed < limits.MAINTENANCE_STALE_STATISTICS:
        return PlannedStep(step=step, reason=f"{changed:.1%} of the rows changed since")
    none = "the snapshot that has them expires" if state.expiring.intersection(snapshot_ids) else "there are none"
    since = none if changed is None else f"{changed:.1%} of the rows changed since"
    return PlannedStep(step=step, reason=since, run=run)


def plan_orphans(state: MaintainedTable) -> PlannedStep:
    """Remove orphan files, including old metadata files, if the last removal is long enough ago."""
    step, last_ms = MaintenanceStep.REMOVE_ORPHAN_FILES, state.options.orphans_last_run_ms
    interval_ms = state.options.orphans_interval_ms
    if not state.deletes_files:
        return PlannedStep(step=step, reason=f"{GC_ENABLED} is false")
    if not interval_ms:
        return PlannedStep(step=step, reason=f"{MAINTENANCE_ORPHANS_INTERVAL} is 0")
    age_ms = state.now_ms - last_ms
    if last_ms and 0 <= age_ms < interval_ms:
        return PlannedStep(step=step, reason=f"done {duration(age_ms)} ago, due after {duration(interval_ms)}")

    def run(_: Callable[[], bool]) -> StepOutcome:
        catalog, identifier = state.resolved.catalog, state.resolved.identifier
        try:
            removal = remove_orphan_files(catalog, identifier, RemoveOrphanFiles())
            done = f"deleted {count(len(removal.orphans), 'orphan file')}"
        except AnalysisError as error:  # such as a location of two schemes
            done = f"not possible: {error.message}"  # the next attempt is due after the interval, too
        values = {MAINTENANCE_ORPHANS_LAST_RUN: str(state.now_ms)}
        commit_change(catalog, identifier, lambda _: MetadataChange(updates=(SetPropertiesUpdate(updates=values),)))
        return StepOutcome(done=done)

    reason = f"not done for {duration(age_ms)}, due after {duration(interval_ms)}" if last_ms else "never done"
    if age_ms < 0:
        reason = f"{MAINTENANCE_ORPHANS_LAST_RUN} is in the future"
    return PlannedStep(step=step, reason=reason, run=run)


PLANNERS: Final[Mapping[MaintenanceStep, Callable[[MaintainedTable], PlannedStep]]] = {
    MaintenanceStep.EXPIRE_SNAPSHOTS: plan_snapshots,
    MaintenanceStep.EXPIRE_ROWS: plan_rows,
    MaintenanceStep.REWRITE_MANIFESTS: plan_manifests,
    MaintenanceStep.REWRITE_DATA_FILES: plan_compaction,
    MaintenanceStep.SORT_DATA_FILES: plan_clustering,
    MaintenanceStep.REMOVE_DANGLING_DELETES: plan_dangling,
    MaintenanceStep.REWRITE_DELETE_FILES: plan_delete_files,
    MaintenanceStep.COMPUTE_TABLE_STATS: plan_table_statistics,
    MaintenanceStep.COMPUTE_PARTITION_STATS: plan_partition_statistics,
    MaintenanceStep.REMOVE_ORPHAN_FILES: plan_orphans,
}
"""The steps in their order."""


def run_order(state: MaintainedTable) -> Sequence[MaintenanceStep]:
    """Return the steps in the order in which they run: statistics are first if the snapshot that has them expires.

    Otherwise a run that ends after the expiry would leave a table that no longer tells which statistics it had.
    """
    try:
        is_urgent = bool(state.expiring)
    except DmlError:  # an invalid property, which the steps report
        is_urgent = False
    return sorted(PLANNERS, key=lambda step: step not in STATISTICS) if is_urgent else tuple(PLANNERS)


# ---- rewrites -------------------------------------------------------------------------------------------------------


def compaction_options(state: MaintainedTable) -> dict[str, str]:
    """Return the options of the compaction: the table's, but with a trigger's fraction of deleted rows if it is lower.

    Those of partial progress do not apply: each batch of groups is a commit of its own.
    """
    options = {name: value for name, value in state.options.rewrite.items() if not name.startswith(PARTIAL_PROGRESS)}
    if state.deleted_ratio is not None:
        with suppress(ValueError):  # an invalid option, which the rewrite reports
            lowest = min(state.deleted_ratio, float(options.get(DELETE_RATIO_OPTION, DELETE_RATIO)))
            options[DELETE_RATIO_OPTION] = str(lowest)
    if state.commit_bytes is not None:
        options.setdefault("max-file-group-size-bytes", str(state.commit_bytes))
    if state.total("total-equality-deletes"):
        options.setdefault("delete-file-threshold", str(limits.MAINTENANCE_EQUALITY_DELETE_FILES))
    return options


def binpack(state: MaintainedTable) -> Rewrite | None:
    """Return the rewrite by sizes and deletes, without hot partitions; None for a table without snapshots."""

    def prepare() -> Rewrite | None:
        hot = hot_partitions(state)
        return prepare_rewrite(
            state.engine,
            state.resolved,
            RewriteDataFiles(options=compaction_options(state)),
            files=None if state.snapshot is None else state.files,
            selects=lambda task: partition_key(task.spec_id, task.partition) not in hot,
        )

    found: Rewrite | None = state.remember("binpack", prepare)
    return found


def hot_partitions(state: MaintainedTable) -> dict[Hashable, tuple[ScanTask, int]]:
    """Return the partitions with a new file, by key: one file of each, and the time of the newest in milliseconds.

    An unpartitioned table is never hot, because it would never be compacted.
    """
    idle_ms, since_ms = state.options.partition_idle_ms, state.now_ms - state.options.partition_idle_ms
    if not idle_ms or state.snapshot is None:
        return {}
    recent = [one for one in state.metadata.snapshots if one.timestamp_ms > since_ms]
    times = {one.sequence_number: one.timestamp_ms for one in recent if one.sequence_number}  # version 1 has none
    specs = state.table.specs()
    hot: dict[Hashable, tuple[ScanTask, int]] = {}
    for task in state.files.tasks:
        added_ms = times.get(task.data_sequence_number)
        if added_ms is not None and not is_unpartitioned(specs[task.spec_id]):
            key = partition_key(task.spec_id, task.partition)
            hot[key] = (task, max(added_ms, hot[key][1] if key in hot else 0))
    return hot


def hot_decisions(state: MaintainedTable, hot: Mapping[Hashable, tuple[ScanTask, int]]) -> Iterator[Decision]:
    idle = duration(state.options.partition_idle_ms)
    for task, added_ms in hot.values():
        reason = f"its newest file was added {duration(state.now_ms - added_ms)} ago, idle after {idle}"
        name = partition_name(state.table, task.spec_id, task.partition)
        yield Decision(decision="keep", object=f"partition {name}", reason=reason)


def partition_name(table: Table, spec_id: int, partition: tuple[Any, ...]) -> str:
    spec: PartitionSpec = table.specs()[spec_id]
    return partition_path(spec, partition_type(spec, table.metadata), partition)


def overlap_depths(
    state: MaintainedTable, packed: Rewrite, field_id: int, decode: Callable[[bytes | None], Any]
) -> dict[Hashable, float]:
    """Return the average overlap depth of each partition, for the files that the compaction does not rewrite."""
    hot = hot_partitions(state)
    groups = worthwhile_groups(packed.plan.groups, packed.options).groups
    taken = {task.path for group in groups for task in group.tasks}
    ranges: dict[Hashable, list[tuple[Any, Any]]] = {}
    spec_id = state.table.spec().spec_id
    for task, lower, upper in state.remember("ranges", lambda: key_ranges(state, field_id)):
        key = partition_key(task.spec_id, task.partition)
        ends = decode(lower), decode(upper)
        if task.path not in taken and key not in hot and task.spec_id == spec_id and None not in ends:
            ranges.setdefault(key, []).append(ends)
    return {key: average_depth(found) for key, found in ranges.items()}


def key_ranges(state: MaintainedTable, field_id: int) -> list[tuple[ScanTask, bytes | None, bytes | None]]:
    """Return each data file with both bounds of a column."""
    table, snapshot = state.table, state.snapshot
    if snapshot is None:
        return []
    listed = [one for one in cache_of(table).manifests(table.io, snapshot) if one.has_live_files]
    manifests = [one for one in listed if one.content is ManifestContent.DATA]
    entries_of = cache_of(table).entries(manifests, table.io, len(table.schema().field_ids))
    tasks = {task.path: task for task in state.files.tasks}
    found = []
    for _, entries in read_each(manifests, entries_of):
        places = entries.select(lambda _: True)
        files = entries.planned_files(places, with_metrics=False)
        bounds = entries.lower_bounds(places, field_id), entries.upper_bounds(places, field_id)
        # A file without rows is in no scan.
        found += [(tasks[one.path], low, up) for one, low, up in zip(files, *bounds, strict=True) if one.path in tasks]
    return found


def clustering_groups(groups: Sequence[FileGroup], depths: Mapping[Hashable, float]) -> tuple[FileGroup, ...]:
    """Return the groups of partitions whose depth would at least be halved: groups of one partition overlap again."""

    def key(group: FileGroup) -> Hashable:
        return partition_key(group.tasks[0].spec_id, group.tasks[0].partition)

    numbers = Counter(key(group) for group in groups)
    return tuple(
        group for group in groups if numbers[key(group)] * limits.MAINTENANCE_MIN_GAIN <= depths.get(key(group), 0.0)
    )


def run_rewrite(
    rewrite: Rewrite, groups: Sequence[FileGroup], is_over: Callable[[], bool], commit_bytes: int | None = None
) -> StepOutcome:
    """Rewrite groups, a few in each commit, until the budget is over.

    The groups of a commit that fails are tried again one by one, so that one of them does not stop the others.

    Args:
        rewrite: The rewrite.
        groups: The groups.
        is_over: Returns whether the budget is over.
        commit_bytes: The bytes of old files in each commit, but at least one group; None for the usual ones.

    Raises:
        ExecutionError: Groups failed; the others are rewritten.
        CommitStateUnknownError: A commit may have landed.
    """
    most = limits.MAINTENANCE_COMMIT_BYTES if commit_bytes is None else commit_bytes
    done: list[Any] = []
    failures: list[tuple[str, DmlError]] = []
    alone: set[int] = set()
    failed = started = 0
    todo = list(groups)
    with progress_bar(rewrite.engine.lazy_session, f"REWRITE {rewrite.resolved.name}", enabled=rewrite.engine.progress):
        while todo:
            try:
                if started and is_over():
                    break
            except DmlError as lost:  # the lease
                failures.append((f"the last {count(len(todo), 'group')}", lost))
                break
            batch = [todo.pop(0)]
            while todo and alone.isdisjoint({batch[0].number, todo[0].number}):
                if sum(one.size for one in batch) + todo[0].size > most:
                    break
                batch.append(todo.pop(0))
            started += 1
            try:
                rewritten, left_out = rewrite.run(tuple(batch))
            except CommitStateUnknownError:
                raise
            except (DmlError, PySparkException) as failure:
                error = failure if isinstance(failure, DmlError) else translate(failure)
                if len(batch) == 1:
                    failures.append((group_name(rewrite, batch[0]), error))
                else:
                    LOG.warning(
                        "%s of '%s' failed together: %s", count(len(batch), "group"), rewrite.resolved.name, error
                    )
                    alone.update(one.number for one in batch)
                    todo[:0] = batch
                continue
            done += rewritten
            failed += left_out
    old, new, size, _, _ = counters(done)
    text = f"{count(old, 'data file')} of {size} bytes became {new}"
    if failed:
        text += f"; {failed} of other groups were replaced by other commits"
    left = f"{len(todo)} of {count(len(groups), 'group')}, {sum(one.size for one in todo)} bytes" if todo else ""
    if failures:
        texts = "; ".join(f"{name}: {error.message}" for name, error in failures)
        first = failures[0][1]
        raise ExecutionError(
            f"{text}, but of {count(len(groups), 'group')} failed {texts}", hint=first.hint, table=rewrite.resolved.name
        ) from first
    return StepOutcome(done=text, left=left)


def rewrite_text(rewrite: Rewrite, groups: Sequence[FileGroup]) -> str:
    files, size = sum(len(group.tasks) for group in groups), sum(group.size for group in groups)
    new = sum(rewrite.options.expected_files(group.size) for group in groups)
    return f"{count(files, 'data file')} of {size} bytes in {count(len(groups), 'group')} become {new}"


def rewrite_decisions(
    rewrite: Rewrite, groups: Sequence[FileGroup], depths: Mapping[Hashable, float] | None = None
) -> tuple[Decision, ...]:
    """Return a decision for each group to rewrite."""
    found = []
    for group in groups:
        depth = None if depths is None else depths.get(partition_key(group.tasks[0].spec_id, group.tasks[0].partition))
        why = group_reason(group.tasks, rewrite.options) if depth is None else f"overlap depth {depth:.1f}"
        reason = f"{why}: {rewrite_text(rewrite, (group,))}"
        found.append(Decision(decision="rewrite", object=group_name(rewrite, group), reason=reason))
    return tuple(found)


def left_decisions(rewrite: Rewrite, groups: Sequence[FileGroup]) -> Iterator[Decision]:
    """Yield a decision for each group whose rewrite does not pay."""
    for group in groups:
        files, new = len(group.tasks), rewrite.options.expected_files(group.size)
        reason = f"{count(files, 'file')} of {group.size} bytes would become {new}, not half as many"
        yield Decision(decision="keep", object=group_name(rewrite, group), reason=reason)


def group_name(rewrite: Rewrite, group: FileGroup) -> str:
    partition = "" if group.partition is None else rewrite.partition_text(group.partition)
    return f"group {group.number} of {partition}" if partition else f"group {group.number}"


# ---- statistics -----------------------------------------------------------------------------------------------------


def known_statistics(metadata: TableMetadata) -> tuple[frozenset[int], bool]:
    """Return the columns that have statistics, and whether the table has partition statistics."""
    fields = {one for file in metadata.statistics for blob in file.blob_metadata for one in blob.fields}
    return frozenset(fields), bool(metadata.partition_statistics)


def changed_share(metadata: TableMetadata, snapshot: Snapshot, computed: frozenset[int]) -> float | None:
    """Return the fraction of rows that changed since a snapshot with statistics; None if the history has no such one.

    Compactions change no row. For a change that rewrote files, all of their rows count.
    """
    changed = 0
    for one in ancestors(metadata, snapshot.snapshot_id):
        if one.snapshot_id in computed:
            rows = numbers_of(snapshot)("total-records")
            return changed / rows if rows else 0.0
        if one.summary is None or one.summary.operation is not Operation.REPLACE:
            number = numbers_of(one)
            changed += number("added-records") + number("deleted-records")
            changed += number("added-position-deletes") + number("added-equality-deletes")
    return None


def numbers_of(snapshot: Snapshot) -> Callable[[str], int]:
    """Return a function that returns a number of a snapshot's summary; 0 if it is missing."""
    values = {} if snapshot.summary is None else snapshot.summary.additional_properties

    def number(key: str) -> int:
        text = values.get(key, "")
        return int(text) if text.isdecimal() else 0

    return number


# ---- the run --------------------------------------------------------------------------------------------------------

BUDGET: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)", re.IGNORECASE)
BEFORE: Final = "the budget ended before"
SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_budget(text: str) -> float:
    """Parse a budget such as `90s`, `5m` or `1.5h` into seconds.

    Raises:
        AnalysisError: It is not a number with a unit.
    """
    found = BUDGET.fullmatch(text.strip())
    if found is None:
        raise AnalysisError(
            f"The budget is '{text}'", kind=ErrorKind.INVALID_VALUE, hint="Write a number and ms, s, m or h, such as 5m"
        )
    return float(found[1]) * SECONDS[found[2].lower()]


def maintain(
    engine: Engine,
    parts: tuple[str, ...],
    *,
    budget: float | None = None,
    steps: Iterable[MaintenanceStep] = MaintenanceStep,
    deleted_ratio: float | None = None,
    commit_bytes: int | None = None,
) -> MaintenanceReport:
    """Maintain a table: run each step that has work, in the order of `PLANNERS`.

    Args:
        engine: The session and its catalogs.
        parts: The table's name. A branch at its end is the one whose files are maintained, instead of main.
        budget: The seconds after which no new work starts; None for no limit.
        steps: The steps to consider.
        deleted_ratio: The fraction of deleted rows at which a file is rewritten, unless the table's option is lower;
            None for the table's.
        commit_bytes: The bytes of old files in each commit of a compaction, and the default size of its groups; None
            for the usual ones.

    Raises:
        NotFoundError: There is no such table or branch.
        AnalysisError: A property of the table is invalid.
        CommitConflictError: Another maintainer holds the lease of the table.
        ExecutionError: A step failed; the other steps ran.
        CommitStateUnknownError: A commit may have landed; the later steps did not run.
        DmlError: Metadata is damaged, or the storage failed.
    """
    deadline = None if budget is None else time.monotonic() + budget
    wanted = frozenset(steps)
    state = MaintainedTable(engine, parts, deleted_ratio=deleted_ratio, commit_bytes=commit_bytes)
    plan = state.plan(wanted)
    if not plan.needed:
        plan.check()
        return MaintenanceReport(table=plan.table, decisions=plan.decisions)
    if deadline is not None and time.monotonic() >= deadline:
        plan.check()
        return MaintenanceReport(table=plan.table, decisions=tuple(map(left_by_budget, plan.decisions)))
    with in_maintenance(), lease_of_table(state) as lease:
        return MaintenanceRun(wanted, deadline, lease, plan.table).run(plan, state.after())


def left_by_budget(row: MaintenanceDecision) -> MaintenanceDecision:
    return replace(row, decision="left", reason=f"{BEFORE}: {row.reason}") if row.decision == "run" else row


def lease_of_table(state: MaintainedTable) -> Lease:
    resolved: ResolvedTable = state.resolved
    return Lease(catalog=resolved.catalog, identifier=resolved.identifier, duration_ms=state.options.lease_duration_ms)


@dataclass(slots=True)
class MaintenanceRun:
    """A run under a lease.

    Attributes:
        steps: The steps to consider.
        deadline: The monotonic time after which no new work starts; None for no limit.
        lease: The lease.
        table: The name of the table.
        rows: The decisions about work that was done or left.
        unneeded: The newest decisions about steps without work.
        errors: The errors of failed steps.
        is_cut: True if the budget ran out before all work was done.
    """

    steps: frozenset[MaintenanceStep]
    deadline: float | None
    lease: Lease
    table: str
    rows: dict[MaintenanceStep, list[MaintenanceDecision]] = field(default_factory=dict)
    unneeded: dict[MaintenanceStep, tuple[MaintenanceDecision, ...]] = field(default_factory=dict)
    errors: dict[MaintenanceStep, DmlError] = field(default_factory=dict)
    is_cut: bool = False

    def is_over(self) -> bool:
        """Return True if the budget has run out; otherwise confirm the lease for the next work."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            return True
        self.lease.confirm()
        return False

    def run(self, plan: MaintenancePlan, state: MaintainedTable) -> MaintenanceReport:
        """Run passes over the steps until a pass finds no work, and return the report.

        Args:
            plan: The plan, whose decisions are reported for the steps that have no work.
            state: The table after the lease was taken.
        """
        for _ in range(limits.MAINTENANCE_PASSES):
            state, worked = self._pass(state)
            if not worked or self.is_cut or self.errors:
                break
        if self.errors:
            raise self._failure(plan.table)
        rows = (self.rows.get(one.step) or self.unneeded.get(one.step) or one.rows(plan.table) for one in plan.steps)
        return MaintenanceReport(table=plan.table, decisions=tuple(row for some in rows for row in some))

    def _pass(self, state: MaintainedTable) -> tuple[MaintainedTable, bool]:
        """Run each step that has work, and return the newest state, and whether a step ran."""
        worked = False
        for step in run_order(state):
            if step not in self.steps:
                continue
            planned = state.planned(step)
            if planned.error is not None:
                self._fail(planned, planned.error)
            elif planned.run is None:
                self.unneeded[step] = tuple(planned.rows(state.name))
            elif self._ends_before(planned):
                self.is_cut = True
            else:
                worked = True
                self._run(planned, state)
                state = state.after()
        return state, worked

    def _ends_before(self, planned: PlannedStep) -> bool:
        """Return whether a step cannot start: the budget is over or the lease is lost, which is the step's error."""
        try:
            is_over = self.is_over()
        except CommitStateUnknownError:
            raise
        except DmlError as error:
            self._fail(planned, error)
            return True
        if is_over:
            self._add(planned, "left", f"{BEFORE}: {planned.reason}")
        return is_over

    def _run(self, planned: PlannedStep, state: MaintainedTable) -> None:
        """Run a step; its error does not stop the other steps, unless a commit may have landed."""
        assert planned.run is not None
        try:
            with translate_errors(f"Maintaining the table '{state.name}'", state.resolved.catalog):
                outcome = planned.run(self.is_over)
        except CommitStateUnknownError:
            raise
        except (DmlError, PySparkException) as failure:
            error = failure if isinstance(failure, DmlError) else translate(failure)
            self._fail(planned, error)
            return
        if planned.step in ONCE:
            self.steps -= {planned.step}
        self._add(planned, "done", f"{outcome.done} ({planned.reason})")
        if outcome.left:
            self._add(planned, "left", f"{BEFORE}: {outcome.left}")
            self.is_cut = True

    def _fail(self, planned: PlannedStep, error: DmlError) -> None:
        LOG.warning("The step %s of maintaining '%s' failed: %s", planned.step, self.table, error)
        self.errors[planned.step] = error
        self.steps -= {planned.step}

    def _add(self, planned: PlannedStep, decision: str, reason: str) -> None:
        row = MaintenanceDecision(step=planned.step, decision=decision, object=self.table, reason=reason)
        self.rows.setdefault(planned.step, []).append(row)

    def _failure(self, name: str) -> ExecutionError:
        rows = [row for step in PLANNERS for row in self.rows.get(step, ()) if row.decision == "done"]
        first = next(iter(self.errors.values()))
        texts = "; ".join(f"{step}: {error.message}" for step, error in self.errors.items())
        failure = ExecutionError(
            f"Of the maintenance of '{name}', {count(len(self.errors), 'step')} failed: {texts}",
            hint=f"Done: {'; '.join(f'{row.step}: {row.reason}' for row in rows) or 'nothing'}. "
            f"{first.hint or 'Run it again'}",
            table=name,
            steps=tuple(self.errors),
        )
        failure.__cause__ = first
        return failure


def compact_after_commit(engine: Engine, parts: tuple[str, ...], options: HookOptions) -> None:
    """Compact a table because a trigger is due, unless another maintainer holds the lease: it compacts the table, too.

    Args:
        engine: The session and its catalogs.
        parts: The table's name.
        options: The budget, and the trigger's fraction of deleted rows: files with as many are rewritten.

    Raises:
        DmlError: As `maintain`, but the lease of another maintainer is no error.
    """
    budget = options.trigger_budget_ms / 1000
    try:
        report = maintain(
            engine,
            parts,
            budget=budget,
            steps=COMPACTION,
            deleted_ratio=options.trigger_deleted_ratio,
            commit_bytes=limits.TRIGGERED_COMMIT_BYTES,
        )
    except CommitConflictError as error:
        if "holder" not in error.context:
            raise
        LOG.info("No compaction after the commit: %s", error.message)
        return
    for row in report.decisions:
        LOG.info("After a commit, %s of '%s': %s, %s", row.step, row.object, row.decision, row.reason)


def count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
