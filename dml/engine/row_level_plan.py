"""DELETE, UPDATE and MERGE resolved and planned: nothing is read but metadata. Driver."""

from collections.abc import Sequence
from dataclasses import dataclass

from dml.commit import CommitKey
from dml.engine.engine import Engine, StatementSettings
from dml.engine.merge_source import MergeSourceFrame, prepared_source, source_fragments, source_frame
from dml.engine.query import statement_views
from dml.engine.schema_evolution import evolves, merged_target
from dml.engine.target import Target, start_statement
from dml.errors import ErrorKind, NotSupportedError
from dml.options import Command, RowLevelOperationMode, row_level_operation_mode
from dml.plan.delete_update import plan_delete, plan_update
from dml.plan.merge import plan_merge
from dml.plan.merge_clauses import whens
from dml.plan.row_delta_plan import PlanContext, RowDeltaPlan
from dml.sqlparse.statements import (
    Assignment,
    DeleteAction,
    DeleteStatement,
    Fragment,
    InsertAction,
    MergeStatement,
    UpdateAction,
    UpdateStatement,
)
from dml.views import StatementViews

__all__ = ["PlannedStatement", "RowLevelStatement", "plan_statement"]

RowLevelStatement = DeleteStatement | UpdateStatement | MergeStatement


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStatement:
    """A row-level statement, planned, with all that running it needs.

    Attributes:
        plan: The plan.
        target: The table.
        mode: Copy-on-write or merge-on-read.
        settings: The session's settings.
        views: The statement's views; the target has no frame in them, as a scan depends on the plan.
        target_view: Placeholder of the target's scan in the plan's query.
        source: The source of a MERGE.
    """

    plan: RowDeltaPlan
    target: Target
    mode: RowLevelOperationMode
    settings: StatementSettings
    views: StatementViews
    target_view: str
    source: MergeSourceFrame | None = None

    @property
    def reads_itself(self) -> bool:
        """Whether the target stands in the statement a second time: in a subquery, or as the source."""
        name = (self.target.resolved.catalog_name, *self.target.resolved.identifier)
        return sum(named == name for named in self.views.full_names.values()) > 1


def command_of(statement: RowLevelStatement) -> Command:
    """The command that a statement is."""
    match statement:
        case DeleteStatement():
            return Command.DELETE
        case UpdateStatement():
            return Command.UPDATE
        case MergeStatement():
            return Command.MERGE


def fragments_of(statement: RowLevelStatement, sql: str) -> tuple[Fragment | None, ...]:
    """The pieces of a statement that Spark evaluates; None stands for one that is not written."""
    match statement:
        case DeleteStatement():
            return statement.ctes, statement.condition
        case UpdateStatement():
            return statement.ctes, *assigned(statement.assignments), statement.condition
        case MergeStatement():
            clauses = [piece for when in whens(statement) for piece in (when.condition, *values_of(when.action))]
            return *source_fragments(statement, sql), *clauses, statement.condition


def values_of(action: UpdateAction | InsertAction | DeleteAction) -> tuple[Fragment | None, ...]:
    """The values that an action of a MERGE gives to columns."""
    return () if isinstance(action, DeleteAction) else assigned(action.assignments or ())


def assigned(assignments: Sequence[Assignment]) -> tuple[Fragment | None, ...]:
    """The values of assignments; None stands for DEFAULT."""
    return tuple(assignment.value for assignment in assignments)


def plan_statement(
    engine: Engine,
    statement: RowLevelStatement,
    sql: str,
    idempotency_key: CommitKey | None = None,
) -> PlannedStatement:
    """Resolve and plan a statement; nothing is read but metadata.

    Args:
        engine: The session and its catalogs.
        statement: The statement.
        sql: Its text.
        idempotency_key: What keeps the statement from being applied twice.

    Raises:
        DmlError: the statement does not fit the table.
    """
    command = command_of(statement)
    start = start_statement(engine, statement.target, sql, command.upper(), idempotency_key=idempotency_key)
    settings, target = start.settings, start.target
    check_settings(settings)
    mode = row_level_operation_mode(target.table.properties, command)
    check_mode(target, mode, command)
    views = statement_views(engine, start, fragments_of(statement, sql), reads=statement.target)
    if isinstance(statement, MergeStatement) and evolves(statement, target.table.properties):
        target = merged_target(target, source_frame(statement, views).schema, settings, statement.source.span)
    target_view = views.places[statement.target.span]
    context = PlanContext(
        target_view=target_view,
        target=views.alias(statement.target, target.alias),
        names=target.names,
        render=views.text,
    )
    source = None
    match statement:
        case DeleteStatement():
            plan = plan_delete(statement, context)
        case UpdateStatement():
            plan = plan_update(statement, context)
        case MergeStatement():
            source = prepared_source(statement, context, views, data_bytes(target))
            views = views.with_frame(source.described.view, source.frame)
            try:
                plan = plan_merge(statement, context, source.described)
            except BaseException:
                source.release()
                raise
    return PlannedStatement(
        plan=plan,
        target=target,
        mode=mode,
        settings=settings,
        views=views,
        target_view=target_view,
        source=source,
    )


def data_bytes(target: Target) -> int:
    """Return the size of a table's data files as its snapshot tells it, 0 if it does not."""
    snapshot = target.table.metadata.snapshot_by_id(target.snapshot_id) if target.snapshot_id is not None else None
    text = snapshot.summary["total-files-size"] if snapshot is not None and snapshot.summary is not None else None
    return int(text) if text is not None and text.isdecimal() else 0


def check_settings(settings: StatementSettings) -> None:
    """Refuse a setting under which the generated queries would mean something else."""
    if settings.quoted_regex:
        raise NotSupportedError(
            "spark.sql.parser.quotedRegexColumnNames is true: quoted names would stand for many columns",
            hint="Set it to false for row-level statements",
        )


def check_mode(target: Target, mode: RowLevelOperationMode, command: Command) -> None:
    """Refuse merge-on-read where the table's format has no delete files."""
    version = target.table.format_version
    if mode is RowLevelOperationMode.MERGE_ON_READ and version < 2:
        raise NotSupportedError(
            f"'write.{command}.mode' of {target.resolved.name} is 'merge-on-read', but the table has format version "
            f"{version}: delete files exist from version 2 on",
            kind=ErrorKind.NOT_SUPPORTED,
            hint="Set 'format-version' to '2' or later, or the mode to 'copy-on-write'",
        )
