"""Run `rewrite_data_files`: plan groups of data files, rewrite them in tasks, commit them. Driver.

Rows never enter the JVM. Without partial progress, all groups share one Spark job and one commit. With partial
progress, each group is a job of its own, so a failed group does not affect the others, and finished groups are
committed a few at a time. Source: Iceberg's `RewriteDataFilesSparkAction` and `RewriteDataFilesCommitManager`.

A rewrite changes no row. Before each commit it is checked that tasks read as many rows as the manifests count, and that
the new files have as many rows as were live, and that those of copied row groups that were deleted still are.
"""

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Final

from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import SortOrder
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp

from dml import limits
from dml.catalog.registry import ResolvedTable
from dml.catalog.tables import load_table
from dml.commit import RewriteFiles, RowCounts, RowLevelChanges, commit, conservation_summary
from dml.ddl.terms import new_sort_order, sort_order_text
from dml.deletes.deletion_vector import encode
from dml.deletes.position_index import PositionDeleteIndex
from dml.engine.by_tasks import copy_by_tasks
from dml.engine.clustering import curve_of
from dml.engine.distribution import sorts
from dml.engine.engine import Engine, StatementSettings
from dml.engine.range_sort import RangeSort, sort_by_ranges
from dml.engine.target import properties_of_block
from dml.engine.writes import (
    UncommittedFiles,
    WriteOutcome,
    delete_uncommitted,
    with_live_storage,
    write_context,
    write_properties,
)
from dml.errors import (
    AnalysisError,
    CommitConflictError,
    CommitStateUnknownError,
    DmlError,
    ErrorKind,
    ExecutionError,
    NotFoundError,
    NotSupportedError,
    RowConservationError,
    SqlError,
)
from dml.hints import did_you_mean
from dml.maintenance import (
    BINPACK,
    FileGroup,
    RewriteOptions,
    RewritePlan,
    copied_text,
    plan_rewrite,
    remove_dangling_deletes,
)
from dml.maintenance.sorted_files import sort_places, sorting_column
from dml.manifests.write import partition_type
from dml.model.columns import DeltaLayout
from dml.model.scan_task import ScanTask
from dml.model.transforms import partition_path
from dml.model.write_task import ChangedFile, WriteContext
from dml.options import DEFAULT_FILE_FORMAT, row_level_concurrency
from dml.plan.names import TargetNames
from dml.plan.predicates import pushable
from dml.progress import progress_bar
from dml.read.applied_deletes import DeleteLoader
from dml.result import Decision, dry_run_rows
from dml.rows.space_filling_curves import Curve
from dml.scan.planner import ScanPlan
from dml.scan.table_scan import TableScan
from dml.spark.jobs import cancel_tagged_jobs, inherit_job_properties, new_tag, tag_jobs
from dml.spark.workers import check_reads
from dml.sqlparse import parse, parse_sort_order
from dml.sqlparse.statements import Query, TransformTerm
from dml.write.carried_rows import RewriteRun, copied_columns
from dml.write.copied_row_groups import with_joined_metrics
from dml.write.delete_files import write_late_deletes
from dml.write.partitioning import row_order
from dml.write.writer_spec import WriteJob, WriterSpec, check_writable

__all__ = [
    "Rewrite",
    "RewriteDataFiles",
    "counters",
    "prepare_rewrite",
    "rewrite_data_files",
    "where_filter",
]

LOG = logging.getLogger(__name__)

SORT: Final = "sort"
PARQUET: Final = "parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class RewriteDataFiles:
    """The arguments of a call.

    Attributes:
        strategy: `binpack` or `sort`, in any case; None for `binpack`, or for `sort` with a sort order.
        sort_order: The order of rows for `sort`: columns and transforms, or a curve such as `zorder(a, b)`.
        options: The options by name.
        where: A condition. Only files that may contain matching rows are considered.
        branch: The branch; None for the branch in the table's name, or else main.
        dry_run: Plan only.
    """

    strategy: str | None = None
    sort_order: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    where: str | None = None
    branch: str | None = None
    dry_run: bool = False


def rewrite_data_files(engine: Engine, parts: tuple[str, ...], call: RewriteDataFiles) -> list[tuple[Any, ...]]:
    """Rewrite data files of a table into files of the target size without deleted rows.

    Args:
        engine: The session and its catalogs.
        parts: The table's name, optionally followed by a branch.
        call: The arguments.

    Returns:
        One row with the counters. For a dry run, the rows of `dry_run_rows` with a decision for each group and file.

    Raises:
        NotFoundError: There is no such table or branch.
        AnalysisError: An argument is invalid.
        CommitConflictError: Another commit changed the files meanwhile, and the change cannot be taken over. New files
            that are not committed are deleted.
        DmlError: Reading, writing or the commit failed. New files that are not committed are deleted.
    """
    rewrite = prepare_rewrite(engine, rewritable(engine, parts), call)
    if rewrite is None:
        return dry_run_rows(counters(()), ()) if call.dry_run else [counters(())]
    table, options = rewrite.table, rewrite.options
    if call.dry_run:
        return dry_run_rows(rewrite.expected_counters(), rewrite.decisions())
    with progress_bar(engine.lazy_session, f"REWRITE {rewrite.resolved.name}", enabled=engine.progress):
        rewritten, failed = rewrite.run()
    dangling = 0
    if options.remove_dangling_deletes:
        dangling = remove_dangling_deletes(load_table(table.catalog, table.name()), rewrite.branch, rewrite.summary())
    return [counters(rewritten, failed=failed, dangling=dangling)]


def prepare_rewrite(
    engine: Engine,
    resolved: ResolvedTable,
    call: RewriteDataFiles,
    *,
    files: ScanPlan | None = None,
    selects: Callable[[ScanTask], bool] | None = None,
) -> "Rewrite | None":
    """Check the arguments of a call, and return the rewrite, which plans when it is first asked for its plan.

    Args:
        engine: The session and its catalogs.
        resolved: The table.
        call: The arguments.
        files: The data files of the branch's head, with the bounds of `sorting_column`, if they are known already.
        selects: Returns whether a data file is considered; None for all.

    Returns:
        None for a table without snapshots.

    Raises:
        NotFoundError: There is no such branch.
        AnalysisError: An argument is invalid.
    """
    table, branch = resolved.table, call.branch or resolved.branch or MAIN_BRANCH
    order = sort_order_of(call, table)
    spec_id, spec_ids = table.spec().spec_id, table.specs().keys()
    options = RewriteOptions.of(call.options, table.properties, spec_id, spec_ids, strategy=strategy_of(order))
    settings = StatementSettings.of(engine)
    names = TargetNames(schema=table.schema(), qualifiers=((resolved.identifier[-1],),), rules=settings.rules)
    row_filter = AlwaysTrue() if call.where is None else where_filter(call.where, names)
    snapshot = head_of(table, branch)
    if snapshot is None:
        return None
    return Rewrite(
        engine=engine,
        settings=settings,
        resolved=resolved,
        branch=branch,
        snapshot=snapshot,
        row_filter=row_filter,
        options=options,
        order=order,
        known_files=files,
        selects=selects,
    )


# ---- arguments ------------------------------------------------------------------------------------------------------


def sort_order_of(call: RewriteDataFiles, table: Table) -> SortOrder | Curve | None:
    """Return the order by which the strategy of a call sorts rows; None for binpack.

    Raises:
        SqlError: The order cannot be parsed.
        AnalysisError: The strategy does not exist or takes no sort order, or the order does not fit the table.
    """
    default = BINPACK if call.sort_order is None else SORT
    strategy = default if call.strategy is None else call.strategy.lower()
    if strategy not in {BINPACK, SORT}:
        raise AnalysisError(
            f"unsupported strategy: {call.strategy}. Only binpack or sort is supported",
            kind=ErrorKind.INVALID_VALUE,
            hint="Leave it out for binpack",
            option="strategy",
        )
    if strategy == BINPACK:
        if call.sort_order is None:
            return None
        raise AnalysisError(
            "Cannot set rewrite mode, it has already been set to BIN-PACK: the strategy binpack takes no sort_order",
            kind=ErrorKind.INVALID_VALUE,
            hint="Leave out strategy or sort_order",
        )
    if call.sort_order is None:
        if table.sort_order().is_unsorted:
            raise AnalysisError(
                f"Cannot sort data without a valid sort order, table '{'.'.join(table.name())}' is unsorted and no "
                "sort order is provided",
                kind=ErrorKind.INVALID_VALUE,
                hint="Give sort_order => 'day, id DESC NULLS LAST', or the table an order with WRITE ORDERED BY",
            )
        return sortable(table.sort_order(), table)
    try:
        terms = parse_sort_order(call.sort_order)
    except SqlError as error:
        error.hint = (
            error.hint or "Write sort_order => 'day, bucket(4, id) DESC NULLS LAST', 'zorder(a, b)' or 'hilbert(a, b)'"
        )
        raise
    columns = tuple(term for term in terms if isinstance(term, TransformTerm))
    if len(columns) < len(terms):
        return curve_of(terms, table, call.sort_order)
    return sortable(new_sort_order(table.metadata, columns), table)


def strategy_of(order: SortOrder | Curve | None) -> str:
    """Return the name of the strategy whose options apply."""
    if isinstance(order, Curve):
        return order.kind
    return BINPACK if order is None else SORT


def sortable(order: SortOrder, table: Table) -> SortOrder:
    """Return the sort order if rows can be sorted by it.

    Raises:
        AnalysisError: A column of it was dropped, or its transforms are all void.
    """
    if row_order(order, table.schema().fields) is None:
        raise AnalysisError(
            "Cannot sort data without a valid sort order: a column of the order is no longer in the table",
            kind=ErrorKind.INVALID_VALUE,
            hint="Give another sort_order, or the table another order with WRITE ORDERED BY",
        )
    return order


def rewritable(engine: Engine, parts: tuple[str, ...]) -> ResolvedTable:
    """Resolve the table, whose name may end with a branch.

    Raises:
        NotFoundError: There is no such table.
        NotSupportedError: The name is that of a tag, a snapshot or a metadata table, which cannot be rewritten.
    """
    name = ".".join(parts)
    resolved = engine.registry.find(parts)
    if resolved.is_part and resolved.branch is None:
        raise NotSupportedError(
            f"'{name}' is a part of the table '{resolved.name}' that cannot be written to",
            hint=f"Name the table or a branch: '{resolved.name}'",
            table=name,
        )
    return resolved


def head_of(table: Table, branch: str) -> Snapshot | None:
    """Return the snapshot to rewrite; None for a table without snapshots.

    Raises:
        NotFoundError: There is no such branch.
        AnalysisError: The name is that of a tag.
    """
    ref = table.metadata.refs.get(branch)
    if ref is None:
        if table.current_snapshot() is None:
            return None
        raise NotFoundError(
            f"Cannot rewrite data files for branch {branch}: branch does not exist",
            hint="It has " + ", ".join(f"'{name}'" for name in sorted(table.metadata.refs)),
            branch=branch,
        )
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        raise AnalysisError(
            f"Cannot rewrite data files for branch {branch}: it is a tag, not a branch",
            hint="Tags cannot be written to",
            branch=branch,
        )
    return table.snapshot_by_id(ref.snapshot_id)


def where_filter(where: str, names: TargetNames) -> BooleanExpression:
    """Return the condition of a call as an Iceberg expression.

    Raises:
        SqlError: It cannot be parsed, or a column does not exist.
        NotSupportedError: It is more than comparisons of columns with constants.
    """
    statement = parse(f"SELECT (\n{where}\n)")
    fragment = statement.fragment if isinstance(statement, Query) else None
    tree = None if fragment is None else fragment.ast
    if isinstance(tree, exp.Select) and [*map(type, tree.expressions)] == [exp.Paren]:
        condition = pushable(tree.expressions[0], names)
        if condition.pruning_is_exact:
            return condition.pruning
    is_one = tree is not None and len(list(tree.find_all(exp.Query))) == 1
    for column in tree.find_all(exp.Column) if tree is not None and is_one else ():
        key = tuple(part.name for part in column.parts)
        if names.column(names.unqualified(key)[0]) is None:
            raise AnalysisError(
                f"There is no column '{'.'.join(key)}'",
                kind=ErrorKind.UNRESOLVED_COLUMN,
                hint=did_you_mean(key[-1], (known.name for known in names.schema.fields)),
                option="where",
            )
    raise NotSupportedError(
        f"Cannot translate the condition to an Iceberg expression: {where}",
        kind=ErrorKind.INVALID_CONDITION,
        hint="Compare columns of the table with constants: where => \"day >= DATE '2026-01-01'\"",
        option="where",
        condition=where,
    )


# ---- the run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """Groups whose new files are written.

    Attributes:
        groups: The groups.
        outcome: The new files.
        spec: The write that created them.
    """

    groups: tuple[FileGroup, ...]
    outcome: WriteOutcome
    spec: WriterSpec

    @property
    def tasks(self) -> Iterator[ScanTask]:
        """The old files."""
        return (task for group in self.groups for task in group.tasks)

    def without(self, paths: Collection[str]) -> "Rewritten | None":
        """Return the groups without the given old files. The caller deletes the new files of the other groups.

        Returns:
            None if the origins of the rows in the new files are unknown.
        """
        kept = tuple(group for group in self.groups if group.paths.isdisjoint(paths))
        if len(kept) == len(self.groups):
            return self
        ordinals = {task.file_ordinal for group in kept for task in group.tasks}
        origins = {found.data_file: found for found in self.outcome.row_origins}
        if kept and any(file.path not in origins for file in self.outcome.data_files):
            return None
        files = tuple(
            file for file in self.outcome.data_files if kept and origins[file.path].ordinals().issubset(ordinals)
        )
        paths_left = {file.path for file in files}
        deletes = tuple(file for file in self.outcome.delete_files if file.referenced_data_file in paths_left)
        return replace(
            self,
            groups=kept,
            outcome=replace(
                self.outcome,
                data_files=files,
                delete_files=deletes,
                row_origins=tuple(origins[file.path] for file in files),
                metrics=replace(
                    self.outcome.metrics,
                    rows_carried=sum(file.record_count for file in files),
                    rows_marked=sum(file.record_count for file in deletes),
                ),
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A rewrite of the files of one snapshot.

    Attributes:
        engine: The session and its catalogs.
        settings: The session's settings.
        resolved: The table.
        branch: The branch.
        snapshot: Its head, whose files are rewritten.
        row_filter: Only files that may contain matching rows are considered.
        options: The options.
        order: The order, or the curve, of the strategy `sort`; None for binpack.
        known_files: The files of the snapshot, if the caller has planned the scan already.
        selects: Returns whether a file is considered; None for all.
    """

    engine: Engine
    settings: StatementSettings
    resolved: ResolvedTable
    branch: str
    snapshot: Snapshot
    row_filter: BooleanExpression = field(default_factory=AlwaysTrue)
    options: RewriteOptions
    order: SortOrder | Curve | None = None
    known_files: ScanPlan | None = field(default=None, repr=False)
    selects: Callable[[ScanTask], bool] | None = None

    @property
    def table(self) -> Table:
        """The table at the start of the call."""
        return self.resolved.table

    @property
    def scan(self) -> TableScan:
        """The scan of the snapshot, without columns."""
        return TableScan(
            table=self.table,
            snapshot_id=self.snapshot.snapshot_id,
            schema=self.table.schema(),
            columns=(),
            row_filter=self.row_filter,
            case_sensitive=self.settings.case_sensitive,
        )

    @cached_property
    def files(self) -> ScanPlan:
        """The data files, with the deletes that apply to them."""
        if self.known_files is not None:
            return self.known_files
        first = sorting_column(self.table)
        return self.scan.plan(bounded_id=None if first is None else first[0])

    @cached_property
    def plan(self) -> RewritePlan:
        """The groups to rewrite, and the files to leave."""
        places = sort_places(self.table, self.files.lower_bounds)
        tasks = self.files.tasks if self.selects is None else [*filter(self.selects, self.files.tasks)]
        keeps_order = self.order is None and not sorts(self.table)
        copies = keeps_order and self.table.properties.get(DEFAULT_FILE_FORMAT, PARQUET).lower() == PARQUET
        return plan_rewrite(tasks, self.options, self.table.spec().spec_id, places, copies=copies)

    def partition_text(self, partition: tuple[Any, ...]) -> str:
        """Return the path of a partition under the output spec, such as `day=2026-01-01`."""
        spec = self.table.specs()[self.options.output_spec_id]
        return partition_path(spec, partition_type(spec, self.table.metadata), partition)

    @property
    def order_text(self) -> str:
        """The order in which new files are sorted, as SQL; empty if rows keep their order."""
        if isinstance(self.order, Curve):
            return str(self.order)
        order = self.order or (self.table.sort_order() if sorts(self.table) else None)
        return "" if order is None else sort_order_text(order, self.table.schema())

    def decisions(self) -> Iterator[Decision]:
        """Yield a decision for each group to rewrite and for each file."""
        return self.plan.decisions(self.partition_text, self.way_text)

    def way_text(self, group: FileGroup) -> str:
        """Return how the files of a group are rewritten, if their rows are not just encoded again."""
        order = self.order_text
        return f"sorted by {order}" if order else copied_text(self.runs(group))

    def run(self, groups: tuple[FileGroup, ...] | None = None) -> tuple[Sequence[Rewritten], int]:
        """Rewrite and commit the groups of the plan.

        Args:
            groups: Some of these groups; None for all.

        Returns:
            The committed groups, and the number of data files in the other groups.

        Raises:
            SetupError: Tasks cannot read the table's files.
            DmlError: The rewrite failed. New files that are not committed are deleted.
        """
        groups = self.plan.groups if groups is None else groups
        if not groups:
            return (), 0
        check_reads(self.engine.spark, self.table)
        if self.options.partial_progress_enabled:
            return self._run_partially(groups)
        return self._commit((self._write(groups),))

    def _write(self, groups: tuple[FileGroup, ...]) -> Rewritten:
        """Write the new files of groups in one job."""
        ranged = tuple(group for group in groups if self.is_ranged(group))
        runs = [run for group in groups if not self.is_ranged(group) for run in self.runs(group)]
        spec = self._spec(len(runs) + sum(self.options.expected_files(group.size) for group in ranged))
        check_writable(spec)
        columns, metadata = copied_columns(spec)
        scan = replace(self.scan, columns=columns, metadata_columns=metadata, row_filter=AlwaysTrue())
        context = scan.context(task for group in groups for task in group.tasks)
        reads_ahead = len(runs) < self.settings.parallelism
        more = None
        if ranged:
            sort = RangeSort(
                groups=ranged, options=self.options, scan=scan, spec=spec, parallelism=self.settings.parallelism
            )
            more = partial(sort_by_ranges, self.engine.spark, sort)
        outcome = copy_by_tasks(
            self.engine.lazy_session, context, runs, self.table, spec, reads_ahead=reads_ahead, more=more
        )
        with UncommittedFiles(self.table, spec.context, outcome):
            data_files = with_joined_metrics(
                outcome.data_files,
                outcome.joined_files,
                self.table,
                self.snapshot.snapshot_id,
                self.files.data_manifests,
                spec.context,
            )
            rewritten = Rewritten(groups=groups, outcome=replace(outcome, data_files=data_files), spec=spec)
            check_rows(rewritten)
        return rewritten

    def is_ranged(self, group: FileGroup) -> bool:
        """Return whether several tasks sort a group: it becomes several files, and its rows are of one partition."""
        is_large = group.size >= limits.MIN_RANGED_BYTES and self.options.expected_files(group.size) > 1
        return self.order is not None and is_large and group.partition is not None

    def runs(self, group: FileGroup) -> tuple[RewriteRun, ...]:
        """Return the runs that tasks copy for a group."""
        if self.order is not None:
            return (group.sorted_run(self.options),)
        return group.runs(self.options, self.settings.parallelism)

    def expected_counters(self) -> tuple[int, ...]:
        """Return the counters that `run` is expected to have."""
        groups = self.plan.groups
        new = sum(
            self.options.expected_files(group.size) if self.order is not None else len(self.runs(group))
            for group in groups
        )
        files, size = sum(len(group.tasks) for group in groups), sum(group.size for group in groups)
        return files, new, size, 0, sum(group.deletion_vectors for group in groups)

    def _spec(self, tasks: int) -> WriterSpec:
        table, order = self.table, self.order or self.table.sort_order()
        curve: Curve | None = None
        if isinstance(order, Curve):
            prefix, size = self.options.var_length_contribution, self.options.max_output_size
            curve = replace(order, prefix_bytes=prefix, max_key_bytes=size)
            order = table.sort_order()
        in_order = self.order is not None or sorts(table)
        is_known = curve is None and table.metadata.sort_order_by_id(order.order_id) is not None
        context = write_context(
            table,
            str(uuid.uuid4()),
            sorted_by_table_order=in_order and is_known,
            overriding=write_properties({}, self.settings.iceberg, table.properties),
            output_spec_id=self.options.output_spec_id,
        )
        context = replace(context, sort_order_json=order.model_dump_json())
        return WriterSpec(
            job=WriteJob.CARRIED_ROWS,
            context=context,
            layout=DeltaLayout(),
            max_failures=self.engine.max_failures(),
            sorts_rows=in_order,
            curve=curve,
            tracks_origins=context.format_version > 1 and row_level_concurrency(table.properties),
            tasks=tasks,
        )

    def _commit(self, rewritten: Sequence[Rewritten]) -> tuple[Sequence[Rewritten], int]:
        """Commit finished groups; their new files are deleted if the commit certainly failed.

        Groups with files that another commit has replaced or removed meanwhile are left out.

        Returns:
            The committed groups, and the number of data files in the other groups.
        """
        before = rewritten
        table, spec = with_live_storage(self.table, rewritten[0].spec)
        with ExitStack() as stack:
            for one in rewritten:
                stack.enter_context(UncommittedFiles(table, one.spec.context, one.outcome))
            while rewritten:
                carried = sum(one.outcome.metrics.rows_carried for one in rewritten)
                summary = {**self.summary(), **conservation_summary(RowCounts(carried=carried))}
                try:
                    commit(table, self._action(rewritten, spec.context), branch=self.branch, summary=summary)
                    break
                except CommitConflictError as error:
                    conflicts = error.context.get("conflicts", ())
                    gone = {conflict.path for conflict in conflicts if conflict.label == "V3"}
                    if not gone or len(gone) < len(conflicts):
                        raise
                    LOG.warning("Files of '%s' have been replaced meanwhile: %s", self.resolved.name, error)
                    kept = [one.without(gone) for one in rewritten]
                    if None in kept:  # without origins, the new files of a group are unknown
                        raise
                    rewritten = [one for one in kept if one is not None and one.groups]
        committed = {path for one in rewritten for path in one.outcome.paths}
        for one in before:
            delete_uncommitted(table, one.spec.context, one.outcome.paths - committed)
        left_out = len(list(tasks_of(before))) - len(list(tasks_of(rewritten)))
        return rewritten, left_out

    def _action(self, rewritten: Sequence[Rewritten], context: WriteContext) -> RewriteFiles:
        tasks = {task.path: task for task in tasks_of(rewritten)}
        origins = tuple(found for one in rewritten for found in one.outcome.row_origins)
        removed = frozenset(tasks)
        return RewriteFiles(
            data_files=tuple(file for one in rewritten for file in one.outcome.data_files),
            delete_files=tuple(file for one in rewritten for file in one.outcome.delete_files),
            removed_data_files=removed,
            listing=self.files.listing(removed, ()),
            data_sequence_number=self._data_sequence_number(),
            starting_snapshot_id=self.snapshot.snapshot_id,
            row_level=RowLevelChanges(
                changed={path: unchanged_file(path) for path in tasks},
                tasks=tasks,
                loader=DeleteLoader(self.table.schema(), context.io_properties),
                write_deletes=partial(write_late_deletes, context),
                row_origins=origins,
            )
            # Without origins, the rows of format version 3 are found by their row ids.
            if row_level_concurrency(self.table.properties) and (origins or context.row_lineage)
            else None,
            has_row_maps=bool(origins) and context.options.file_format == "parquet",
        )

    def _data_sequence_number(self) -> int | None:
        """Return the data sequence number that new files keep; None for a new one. Version 1 has none."""
        keeps = self.options.use_starting_sequence_number and self.table.format_version > 1
        return self.snapshot.sequence_number or 0 if keeps else None

    def summary(self) -> dict[str, str]:
        """Return the summary keys of the engine and the user."""
        return {**self.engine.commit_summary(), **properties_of_block()}

    # ---- partial progress

    def _run_partially(self, groups: Sequence[FileGroup]) -> tuple[Sequence[Rewritten], int]:
        """Rewrite each group in a job of its own, and commit finished groups a few at a time.

        Raises:
            ExecutionError: More commits failed than the call allows. The other groups are committed.
            CommitStateUnknownError: A commit may or may not have landed; the call ends.
        """
        per_commit = -(-len(groups) // self.options.partial_progress_max_commits)
        committed: list[Rewritten] = []
        ready: list[Rewritten] = []
        failures: list[DmlError] = []
        failed_files = 0
        with RunningGroups(self.engine.spark, self.table, groups, self._write, self.options) as running:
            for group, future in running.finished():
                error = future.exception()
                if error is None:
                    ready.append(future.result())
                elif isinstance(error, DmlError | PySparkException):
                    LOG.warning("Rewriting group %s of '%s' failed: %s", group.number, self.resolved.name, error)
                    failed_files += len(group.tasks)
                else:
                    raise error
                if ready and (len(ready) == per_commit or running.is_done):
                    batch, ready = ready, []
                    running.keep_files(batch)
                    try:
                        done, left_out = self._commit(batch)
                        committed += done
                        failed_files += left_out
                    except CommitStateUnknownError:
                        raise
                    except DmlError as failure:
                        LOG.warning("A commit of groups of '%s' failed: %s", self.resolved.name, failure)
                        failures.append(failure)
                        failed_files += sum(len(group.tasks) for one in batch for group in one.groups)
        most = self.options.partial_progress_max_failed_commits
        if len(failures) > most:
            raise ExecutionError(
                f"partial-progress.enabled is true but {len(failures)} rewrite commits failed. This is more than the "
                f"maximum allowed failures of {most}. The first failure: {failures[0].message}",
                hint="The other groups are committed. Run it again for the rest; a larger partial-progress.max-commits "
                "makes smaller commits",
                failed_commits=len(failures),
            ) from failures[0]
        return committed, failed_files


class RunningGroups:
    """Write groups in threads. When the `with` block ends, no job is running and no unused file is left.

    Args:
        spark: The session.
        table: The table.
        groups: The groups.
        write: Writes the new files of some groups.
        options: The options of the rewrite.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        groups: Sequence[FileGroup],
        write: Callable[[tuple[FileGroup, ...]], Rewritten],
        options: RewriteOptions,
    ) -> None:
        self._spark, self._table, self._write = spark, table, write
        self._tag = new_tag()
        self._kept: set[int] = set()
        self._pool = ThreadPoolExecutor(
            min(options.max_concurrent_file_group_rewrites, len(groups)), thread_name_prefix="rowdelta-rewrite"
        )
        run = inherit_job_properties(spark, self._run)
        self._groups: dict[Future[Rewritten], FileGroup] = {self._pool.submit(run, group): group for group in groups}
        self._pending = set(self._groups)

    def _run(self, group: FileGroup) -> Rewritten:
        with tag_jobs(self._spark, self._tag, interrupts=False):
            return self._write((group,))

    @property
    def is_done(self) -> bool:
        """True if `finished` has returned every group."""
        return not self._pending

    def finished(self) -> Iterator[tuple[FileGroup, Future[Rewritten]]]:
        """Yield each group and its future once the future is done."""
        while self._pending:
            done, _ = wait(self._pending, return_when=FIRST_COMPLETED)
            for future in done:
                self._pending.discard(future)
                yield self._groups[future], future

    def keep_files(self, rewritten: Sequence[Rewritten]) -> None:
        """Exclude the files of these groups from the cleanup: their commit deletes them unless it may have landed."""
        self._kept.update(map(id, rewritten))

    def __enter__(self) -> "RunningGroups":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._pending:
            cancel_tagged_jobs(self._spark, self._tag)
        self._pool.shutdown(wait=True)
        for future in self._groups:
            if future.cancelled() or future.exception() is not None or id(future.result()) in self._kept:
                continue
            rewritten = future.result()
            delete_uncommitted(self._table, rewritten.spec.context, rewritten.outcome.paths)


def tasks_of(rewritten: Iterable[Rewritten]) -> Iterator[ScanTask]:
    return (task for one in rewritten for task in one.tasks)


def unchanged_file(path: str) -> ChangedFile:
    """Return the entry of a data file whose rows are moved without a change."""
    none = encode(PositionDeleteIndex())
    return ChangedFile(path=path, rows_deleted=0, rows_updated=0, deleted=none, updated=none, observed=none)


def check_rows(rewritten: Rewritten) -> None:
    """Check that the new files have as many rows as the old ones have live rows, and deleted ones that were copied.

    Raises:
        RowConservationError: They have more or fewer, or tasks read another number of rows than the manifests count.
    """
    metrics, tasks = rewritten.outcome.metrics, tuple(rewritten.tasks)
    written = sum(file.record_count for file in rewritten.outcome.data_files)
    expected = sum(task.record_count for task in tasks)
    if metrics.rows_carried + metrics.rows_deleted != expected or metrics.rows_carried != written:
        raise not_conserved(
            f"{expected} rows by the manifests, {metrics.rows_carried} live and {metrics.rows_deleted} deleted rows "
            f"read, {written} written"
        )
    marked = sum(task.deletion_vector.record_count for task in tasks if task.deletion_vector is not None)
    is_exact = not any(task.position_deletes or task.equality_deletes for task in tasks)
    deleted = metrics.rows_deleted + metrics.rows_marked
    if deleted < marked or (is_exact and deleted != marked):
        raise not_conserved(
            f"deletion vectors mark {marked} rows, {metrics.rows_deleted} were left out and {metrics.rows_marked} "
            "marked again"
        )
    again = sum(file.record_count for file in rewritten.outcome.delete_files)
    if again != metrics.rows_marked:
        raise not_conserved(f"{metrics.rows_marked} rows were to be marked again, and {again} are")


def not_conserved(message: str) -> RowConservationError:
    return RowConservationError(
        f"Rows do not add up: {message}", hint="Nothing was published, the table is unchanged. Please report this"
    )


def counters(rewritten: Sequence[Rewritten], *, failed: int = 0, dangling: int = 0) -> tuple[int, ...]:
    """Return the counters of committed groups, in the order of the procedure's columns.

    Args:
        rewritten: The groups.
        failed: The number of data files in the other groups.
        dangling: The number of dangling delete files that were removed.
    """
    groups = [group for one in rewritten for group in one.groups]
    return (
        sum(len(group.tasks) for group in groups),
        sum(len(one.outcome.data_files) for one in rewritten),
        sum(group.size for group in groups),
        failed,
        sum(group.deletion_vectors for group in groups) + dangling,
    )
