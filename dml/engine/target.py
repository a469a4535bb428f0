"""The target of a statement: which table, which branch, which snapshot is read. Driver.

Source: Iceberg documentation, "Branching and Tagging" and "Write-Audit-Publish"; docs/semantics.md, C12 to C18.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from dml.catalog.registry import ResolvedTable
from dml.commit import CommitKey, StreamEpoch
from dml.ddl.commit import SchemaEvolution, table_with
from dml.engine.engine import ICEBERG_SETTINGS, Engine, StatementSettings
from dml.engine.snapshot_properties import SNAPSHOT_PROPERTY, check_snapshot_properties, properties_of_block
from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.model.columns import INTERNAL_PREFIX
from dml.options import WRITE_AUDIT_PUBLISH_ENABLED, boolean
from dml.plan.names import TargetNames
from dml.spark.handlers import is_classic
from dml.sqlparse.quoting import quoted
from dml.sqlparse.statements import TableReference
from dml.suggestions import did_you_mean
from dml.views import StatementTables

__all__ = ["StatementStart", "Target", "refuse_internal_names", "start_statement", "target_of", "writable_target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table that a statement changes.

    Attributes:
        resolved: The table, as loaded for the statement.
        branch: The branch that is committed to.
        create_branch: Whether the commit may create the branch (write-audit-publish only).
        snapshot_id: The snapshot that is read; None for an empty table.
        wap_id: The id of a staged commit.
        idempotency_key: What keeps the statement from being applied twice; None applies it each time.
        session_properties: Keys of the snapshot's summary that the session gives, unless the statement gives others.
        block_properties: Keys of the snapshot's summary that `dml.commit_properties` gives, whatever the others say.
        session: The session's settings below `spark.sql.iceberg.`, by the rest of their names.
        alias: How the statement calls it.
        names: How its columns may be named.
        evolution: A change of its schema that is committed with the statement's rows; the table has it already here.
    """

    resolved: ResolvedTable
    branch: str
    create_branch: bool = False
    snapshot_id: int | None
    wap_id: str | None = None
    idempotency_key: CommitKey | None = None
    session_properties: Mapping[str, str] = field(default_factory=dict)
    block_properties: Mapping[str, str] = field(default_factory=dict)
    session: Mapping[str, str] = field(default_factory=dict)
    alias: str
    names: TargetNames = field(repr=False)
    evolution: SchemaEvolution | None = None

    @property
    def table(self) -> Table:
        """The table."""
        return self.resolved.table

    @property
    def head(self) -> Snapshot | None:
        """The snapshot that is read."""
        return None if self.snapshot_id is None else self.table.metadata.snapshot_by_id(self.snapshot_id)

    def evolved(self, evolution: SchemaEvolution) -> "Target":
        """The target with a change of its schema."""
        table = table_with(self.table, evolution.metadata)
        names = replace(self.names, schema=evolution.metadata.schema())
        return replace(self, resolved=replace(self.resolved, table=table), names=names, evolution=evolution)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementStart:
    """What every statement that changes rows begins with.

    Attributes:
        settings: The session's settings, as they were then.
        tables: Finds the other tables that the statement names.
        target: The table that it changes.
    """

    settings: StatementSettings
    tables: StatementTables
    target: Target


def start_statement(
    engine: Engine,
    reference: TableReference,
    sql: str,
    command: str,
    *,
    branch_option: str | None = None,
    idempotency_key: CommitKey | None = None,
) -> StatementStart:
    """Read the session's settings and find the table that a statement changes.

    Args:
        engine: The session and its catalogs.
        reference: The table's name in the statement.
        sql: The whole statement.
        command: `DELETE`, `UPDATE`, ..., for errors.
        branch_option: The branch that a write option names.
        idempotency_key: What keeps the statement from being applied twice.

    Raises:
        DmlError: as `resolve_target`, or settings that contradict each other.
    """
    settings = StatementSettings.of(engine, sql)
    tables = StatementTables(statement=sql, spark=engine.spark, registry=engine.registry)
    target = resolve_target(
        reference, sql, tables, settings, command, branch_option=branch_option, idempotency_key=idempotency_key
    )
    return StatementStart(settings=settings, tables=tables, target=target)


def resolve_target(
    reference: TableReference,
    sql: str,
    tables: StatementTables,
    settings: StatementSettings,
    command: str,
    *,
    branch_option: str | None = None,
    idempotency_key: CommitKey | None = None,
) -> Target:
    """Find the table that a statement changes.

    Args:
        reference: Its name in the statement.
        sql: The whole statement, for errors.
        tables: Finds the statement's tables, and loads each once.
        settings: The session's settings.
        command: `DELETE`, `UPDATE`, ..., for errors.
        branch_option: The branch that a write option names.
        idempotency_key: What keeps the statement from being applied twice.

    Raises:
        NotFoundError: no such table or branch.
        NotSupportedError: a view, a table that is not Iceberg's, a tag, a metadata table, or time travel.
    """
    resolved = tables.resolve(reference)
    if resolved is None:
        raise missing(reference, sql, tables, command)
    return writable_target(
        resolved, reference, sql, settings, command, branch_option=branch_option, idempotency_key=idempotency_key
    )


def writable_target(
    resolved: ResolvedTable,
    reference: TableReference,
    sql: str,
    settings: StatementSettings,
    command: str,
    *,
    branch_option: str | None = None,
    idempotency_key: CommitKey | None = None,
) -> Target:
    """What a statement changes of a table that was found.

    Args:
        resolved: The table, and what its name says beside it.
        reference: Its name in the statement.
        sql: The whole statement, for errors.
        settings: The session's settings.
        command: `DELETE`, `UPDATE`, ..., for errors.
        branch_option: The branch that a write option names.
        idempotency_key: What keeps the statement from being applied twice.

    Raises:
        NotFoundError: no such branch.
        NotSupportedError: a tag, a metadata table, or time travel.
    """
    if reference.version is not None or reference.timestamp is not None:
        raise refused(reference, sql, f"{command} cannot write to a table with time travel", "Name the table alone")
    if resolved.metadata_table is not None:
        raise refused(
            reference,
            sql,
            f"{command} cannot change the metadata table '{resolved.metadata_table}'",
            f"Metadata tables are read only; the table is '{resolved.name}'",
        )
    if resolved.tag is not None:
        raise refused(reference, sql, f"'{resolved.tag}' is a tag, not a branch", "Only branches can be written to")
    if resolved.snapshot_id is not None or resolved.timestamp_ms is not None:
        raise refused(
            reference,
            sql,
            f"{command} cannot write to a snapshot: '{reference.parts[-1]}' names one that is there for ever",
            f"Only branches can be written to; the table is '{resolved.name}'",
        )
    if branch_option is not None:
        if resolved.branch not in {None, branch_option}:
            message = f"The table's name says branch '{resolved.branch}', the option 'branch' says '{branch_option}'"
            raise refused(reference, sql, message, "Name the branch once")
        resolved = replace(resolved, branch=branch_option)
    return target_of(resolved, reference, sql, settings, idempotency_key)


def target_of(
    resolved: ResolvedTable,
    reference: TableReference,
    sql: str,
    settings: StatementSettings,
    idempotency_key: CommitKey | None = None,
) -> Target:
    """The branch of a table that a statement changes, and what it reads of it.

    Args:
        resolved: The table.
        reference: Its name in the statement.
        sql: The whole statement, for errors.
        settings: The session's settings.
        idempotency_key: What keeps the statement from being applied twice.

    Raises:
        NotFoundError: no such branch.
        NotSupportedError: a tag, a column of a reserved name, or an idempotency key for a staged commit.
        AnalysisError: the session gives a property to snapshots that it cannot give.
    """
    names = [field.name for field in resolved.table.schema().fields]
    refuse_internal_names(names, resolved.name)
    if not settings.case_sensitive:
        refuse_twins(names, resolved.name)
    branch, create = target_branch(resolved, reference, sql, settings)
    table = resolved.table
    snapshot = table.snapshot_by_name(branch) or (table.current_snapshot() if create else None)
    wap = wap_enabled(table) and settings.wap_id is not None
    if wap and idempotency_key is not None:
        what = "A stream" if isinstance(idempotency_key, StreamEpoch) else "A statement with an idempotency key"
        message = f"{what} cannot be staged: a staged snapshot is in no branch's history"
        raise refused(reference, sql, message, "Unset spark.wap.id, or write to a branch with spark.wap.branch")
    return Target(
        resolved=resolved,
        branch=branch,
        create_branch=create,
        snapshot_id=None if snapshot is None else snapshot.snapshot_id,
        wap_id=settings.wap_id if wap else None,
        idempotency_key=idempotency_key,
        session_properties=session_properties(settings),
        block_properties=properties_of_block(),
        session=settings.iceberg,
        alias=reference.alias or resolved.identifier[-1],
        names=TargetNames(
            schema=table.schema(),
            qualifiers=qualifiers(reference, resolved),
            rules=settings.rules,
            sql=sql,
        ),
    )


def session_properties(settings: StatementSettings) -> dict[str, str]:
    """What the session's settings say of all snapshots.

    Raises:
        AnalysisError: a key has a meaning of its own in a summary.
    """
    found = {
        name.removeprefix(SNAPSHOT_PROPERTY): value
        for name, value in settings.iceberg.items()
        if name.startswith(SNAPSHOT_PROPERTY)
    }
    check_snapshot_properties(found, "The session has the setting", ICEBERG_SETTINGS + SNAPSHOT_PROPERTY)
    return found


def refuse_internal_names(names: Iterable[str], owner: str) -> None:
    """Refuse columns of the names that statements use inside.

    Raises:
        NotSupportedError: there is one.
    """
    for name in names:
        if name.lower().startswith(INTERNAL_PREFIX):
            raise NotSupportedError(
                f"The column '{name}' of {owner} has a name that RowDelta uses inside its queries",
                hint=f"Rename it: names that begin with '{INTERNAL_PREFIX}' are reserved",
            )


def refuse_twins(names: Iterable[str], owner: str) -> None:
    """Refuse columns whose names differ by case alone, where case does not count: a name would mean either.

    Raises:
        AnalysisError: there are two.
    """
    first: dict[str, str] = {}
    for name in names:
        twin = first.setdefault(name.lower(), name)
        if twin != name:
            raise AnalysisError(
                f"The columns '{twin}' and '{name}' of {owner} differ by case alone",
                kind=ErrorKind.AMBIGUOUS_COLUMN,
                hint="Set spark.sql.caseSensitive to true, or rename one of them",
            )


def qualifiers(reference: TableReference, resolved: ResolvedTable) -> tuple[tuple[str, ...], ...]:
    """The ways to qualify the target's columns: the alias alone, else the name and its tails."""
    if reference.alias is not None:
        return ((reference.alias,),)
    full = (resolved.catalog_name, *resolved.identifier)
    ways = tuple(full[start:] for start in range(len(full)))
    if reference.parts[-1] == resolved.identifier[-1]:
        return ways
    named = (*full, reference.parts[-1])  # with the branch
    return (*ways, *(named[start:] for start in range(len(named))))


def wap_enabled(table: Table) -> bool:
    """Whether `write.wap.enabled` is set."""
    return boolean(table.properties, WRITE_AUDIT_PUBLISH_ENABLED, default=False)


def target_branch(
    resolved: ResolvedTable, reference: TableReference, sql: str, settings: StatementSettings
) -> tuple[str, bool]:
    """The branch to commit to, and whether the commit may create it."""
    refs = resolved.table.refs()
    if resolved.branch is not None:
        ref = refs.get(resolved.branch)
        if ref is None and resolved.branch == MAIN_BRANCH:  # every table has it, also before its first snapshot
            return MAIN_BRANCH, True
        if ref is None:
            branches = [name for name, known in refs.items() if known.snapshot_ref_type == SnapshotRefType.BRANCH]
            raise NotFoundError(
                f"Cannot use branch (does not exist): {resolved.branch}",
                sql=sql,
                position=reference.span.start,
                length=reference.span.end - reference.span.start,
                hint=did_you_mean(resolved.branch, branches),
            )
        if ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise refused(
                reference, sql, f"'{resolved.branch}' is a tag, not a branch", "Only branches can be written to"
            )
        return resolved.branch, False
    if settings.wap_branch is not None and wap_enabled(resolved.table):
        ref = refs.get(settings.wap_branch)
        if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise refused(
                reference, sql, f"'{settings.wap_branch}' is a tag, not a branch", "Set spark.wap.branch to a branch"
            )
        return settings.wap_branch, ref is None
    return MAIN_BRANCH, resolved.table.current_snapshot() is None


def refused(reference: TableReference, sql: str, message: str, hint: str) -> AnalysisError:
    """An error that points at the target."""
    return NotSupportedError(
        message, sql=sql, position=reference.span.start, length=reference.span.end - reference.span.start, hint=hint
    )


def missing(reference: TableReference, sql: str, tables: StatementTables, command: str) -> AnalysisError:
    """The error for a target that none of our catalogs has."""
    name = ".".join(reference.parts)
    # A server of Spark Connect does not know our catalogs: it would fail at names of three parts.
    asks = is_classic(tables.spark) or reference.parts[0] not in tables.registry.catalogs
    if asks and tables.spark.catalog.tableExists(".".join(map(quoted, reference.parts))):
        return refused(
            reference,
            sql,
            f"'{name}' is a table or view of Spark, which does not support {command} here",
            "Row-level statements need an Iceberg table of a catalog of this session",
        )
    return tables.missing(reference)
