"""Find the target of a statement: its table, branch and snapshot, and the properties of the new snapshot. Driver.

Source: Iceberg documentation, "Branching and Tagging" and "Write-Audit-Publish"; docs/semantics.md, C12 to C18.

Users give properties to the snapshots of their statements by session, by write option, or for a block. If a key is
given in several places, the block overrides the write option, which overrides the session's setting, as in the
reference (`CommitMetadata.withCommitProperties`, `snapshot-property.*`). Reserved keys of a summary are rejected before
the statement begins.
"""

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Final

from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from dml.catalog.registry import ResolvedTable
from dml.commit import CommitKey, StreamEpoch, is_reserved
from dml.ddl.commit import SchemaEvolution, table_with
from dml.engine.engine import ICEBERG_SETTINGS, Engine, StatementSettings
from dml.errors import AnalysisError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.model.columns import INTERNAL_PREFIX
from dml.options import WRITE_AUDIT_PUBLISH_ENABLED, boolean
from dml.plan.names import TargetNames
from dml.spark.jobs import local_property, set_local_property
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.statements import Span, TableReference
from dml.views import StatementTables

__all__ = [
    "SNAPSHOT_PROPERTY",
    "StatementStart",
    "Target",
    "check_snapshot_properties",
    "commit_properties",
    "properties_of_block",
    "refuse_internal_names",
    "start_statement",
    "target_of",
    "writable_target",
    "write_target",
]

SNAPSHOT_PROPERTY: Final = "snapshot-property."
"""The prefix of a write option for a property; below `spark.sql.iceberg.` also of a setting."""

QUERY_ID: Final = "sql.streaming.queryId"
"""Spark's local property with the id of the streaming query, in its threads."""

# A new thread starts without properties, as in the reference; an asyncio task inherits those of its creator.
GIVEN: Final[ContextVar[Mapping[str, str]]] = ContextVar("commit_properties", default=MappingProxyType({}))


@contextmanager
def commit_properties(properties: Mapping[str, str]) -> Iterator[None]:
    """Put keys into the summary of every snapshot that statements of this thread make while the block runs.

    Blocks nest: an inner block adds its keys and overrides those of outer blocks. Other threads are not affected. A
    stream commits in its own threads, so use the write option `snapshot-property.KEY`, the session's setting
    `spark.sql.iceberg.snapshot-property.KEY`, or a block inside the function of `foreachBatch`.

    Args:
        properties: Values by key; the prefix `snapshot-property.` of a key is removed.

    Raises:
        AnalysisError: `properties` is not a dictionary, a key or a value is not a string, or a key is reserved.
    """
    if not isinstance(properties, Mapping):
        raise AnalysisError(
            f"commit_properties takes a dictionary, not {type(properties).__name__}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Write dml.commit_properties({'job': 'nightly'})",
        )
    given = {without_prefix(key): value for key, value in properties.items()}
    check_snapshot_properties(given, "commit_properties has the key")
    name, before, inside = str(uuid.uuid4()), local_property(BLOCK), properties_of_block()
    block = PropertiesBlock(properties=MappingProxyType({**inside, **given}), query_id=local_property(QUERY_ID))
    token = GIVEN.set(block.properties)
    OPEN[name] = block
    set_local_property(BLOCK, name)
    try:
        yield
    finally:
        set_local_property(BLOCK, before)
        del OPEN[name]
        GIVEN.reset(token)


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertiesBlock:
    """A `with dml.commit_properties(...)` block that is being executed.

    Attributes:
        properties: Its properties, merged with those of the enclosing blocks.
        query_id: The streaming query in whose thread it runs; None outside of one.
    """

    properties: Mapping[str, str]
    query_id: str | None


BLOCK: Final = "spark.rowdelta.commit-properties"
"""Spark's local property with the id of the innermost block.

Spark calls a DataFrame's write back in another Python thread, which has no context variables of the caller."""

OPEN: Final[dict[str, PropertiesBlock]] = {}
"""The running blocks, by the value of the local property."""


def properties_of_block() -> Mapping[str, str]:
    """Return the properties of the blocks around this thread, or around the thread for which the JVM calls it."""
    given = GIVEN.get()
    if given or not OPEN:
        return given
    # A stream that was started in a block inherits the local property, but the block does not apply to it.
    found = OPEN.get(local_property(BLOCK) or "")
    return given if found is None or found.query_id != local_property(QUERY_ID) else found.properties


def without_prefix(key: str) -> str:
    """Remove the prefix of a key; values that are not strings are left to `check_snapshot_properties`."""
    return key.removeprefix(SNAPSHOT_PROPERTY) if isinstance(key, str) else key


def check_snapshot_properties(properties: Mapping[str, str], where: str, prefix: str = "") -> None:
    """Reject keys that users cannot set.

    Args:
        properties: Values by key.
        where: The source of the properties: the beginning of the error.
        prefix: The prefix that keys have in that source.

    Raises:
        AnalysisError: a key or a value is not a string, or a key is reserved.
    """
    for key, value in properties.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise AnalysisError(
                f"{where} {key!r} with the value {value!r}: keys and values of a snapshot's summary must be strings",
                kind=ErrorKind.INVALID_VALUE,
                hint="Write numbers and dates as strings: {'run': str(run)}",
            )
        if not key:
            raise AnalysisError(
                f"{where} '{prefix}', which names no property", kind=ErrorKind.INVALID_PROPERTY, option=prefix
            )
        if is_reserved(key):
            raise AnalysisError(
                f"{where} '{prefix}{key}', but the key '{key}' is reserved in a snapshot's summary",
                kind=ErrorKind.INVALID_PROPERTY,
                hint="Use another name: counts and totals of files and rows, keys of write-audit-publish and streams, "
                "and keys that begin with 'rowdelta.', 'partitions.' or 'spark.merge-into.' are reserved",
                option=prefix + key,
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table that a statement changes.

    Attributes:
        resolved: The table, as loaded for the statement.
        branch: The branch to commit to.
        create_branch: Whether the commit may create the branch (write-audit-publish only).
        snapshot_id: The snapshot to read; None for an empty table.
        wap_id: The id of a staged commit.
        idempotency_key: The key that keeps the statement from being applied twice; None applies it each time.
        session_properties: Keys of the snapshot's summary from the session, unless the statement overrides them.
        block_properties: Keys of the snapshot's summary from `dml.commit_properties`, which override all others.
        session: The session's settings below `spark.sql.iceberg.`, without this prefix.
        alias: The name of the table in the statement.
        names: The valid names of its columns.
        evolution: A schema change that is committed with the statement's rows; `resolved` has it already.
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
        """The snapshot to read; None for an empty table."""
        return None if self.snapshot_id is None else self.table.metadata.snapshot_by_id(self.snapshot_id)

    def with_evolution(self, evolution: SchemaEvolution) -> "Target":
        """Return the target with a change of its schema."""
        table = table_with(self.table, evolution.metadata)
        names = replace(self.names, schema=evolution.metadata.schema())
        return replace(self, resolved=replace(self.resolved, table=table), names=names, evolution=evolution)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementStart:
    """The state that every statement which changes rows starts from.

    Attributes:
        settings: The session's settings at the start.
        tables: The lookup of the other tables that the statement names.
        target: The table to change.
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
    may_stage: bool = True,
) -> StatementStart:
    """Read the session's settings and find the table that a statement changes.

    Args:
        engine: The session and its catalogs.
        reference: The table's name in the statement.
        sql: The whole statement.
        command: `DELETE`, `UPDATE`, ..., for errors.
        branch_option: The branch that a write option names.
        idempotency_key: The key that keeps the statement from being applied twice.
        may_stage: Whether `spark.wap.id` and `spark.wap.branch` apply.

    Raises:
        DmlError: as `resolve_target`, or settings that contradict each other.
    """
    settings = StatementSettings.of(engine, sql)
    if not may_stage:
        settings = replace(settings, wap_id=None, wap_branch=None)
    tables = StatementTables(
        statement=sql, lazy_session=engine.lazy_session, registry=engine.registry, foreign_rows=engine.foreign_rows
    )
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
        tables: The lookup of the statement's tables, which loads each once.
        settings: The session's settings.
        command: `DELETE`, `UPDATE`, ..., for errors.
        branch_option: The branch that a write option names.
        idempotency_key: The key that keeps the statement from being applied twice.

    Raises:
        NotFoundError: no such table or branch.
        NotSupportedError: a view, a table that is not an Iceberg table, a tag, a metadata table, or time travel.
    """
    resolved = tables.resolve(reference)
    if resolved is None:
        raise missing_target(reference, sql, tables, command)
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
    """Make the target of a statement from a resolved table.

    Args:
        resolved: The table, with the branch, tag or snapshot in its name.
        reference: Its name in the statement.
        sql: The whole statement, for errors.
        settings: The session's settings.
        command: `DELETE`, `UPDATE`, ..., for errors.
        branch_option: The branch that a write option names.
        idempotency_key: The key that keeps the statement from being applied twice.

    Raises:
        NotFoundError: no such branch.
        NotSupportedError: a tag, a metadata table, or time travel.
    """
    if reference.version is not None or reference.timestamp is not None:
        raise rejection(reference, sql, f"{command} cannot write to a table with time travel", "Name the table alone")
    if resolved.metadata_table is not None:
        raise rejection(
            reference,
            sql,
            f"{command} cannot change the metadata table '{resolved.metadata_table}'",
            f"Metadata tables are read only; the table is '{resolved.name}'",
        )
    if resolved.tag is not None:
        raise rejection(reference, sql, f"'{resolved.tag}' is a tag, not a branch", "Only branches can be written to")
    if resolved.snapshot_id is not None or resolved.timestamp_ms is not None:
        raise rejection(
            reference,
            sql,
            f"{command} cannot write to a snapshot: '{reference.parts[-1]}' names an immutable one",
            f"Only branches can be written to; the table is '{resolved.name}'",
        )
    if branch_option is not None:
        if resolved.branch not in {None, branch_option}:
            message = f"The table's name has branch '{resolved.branch}', but the option 'branch' is '{branch_option}'"
            raise rejection(reference, sql, message, "Name the branch once")
        resolved = replace(resolved, branch=branch_option)
    return target_of(resolved, reference, sql, settings, idempotency_key)


def write_target(
    resolved: ResolvedTable,
    settings: StatementSettings,
    command: str,
    *,
    branch_option: str | None = None,
    idempotency_key: CommitKey | None = None,
) -> Target:
    """Make the target of a write without SQL text. The arguments are those of `writable_target`.

    Raises:
        NotFoundError: no such branch.
        NotSupportedError: a tag, a metadata table, or time travel.
    """
    text = quote_name(resolved.branch_parts)
    reference = TableReference(parts=resolved.branch_parts, span=Span(0, len(text)))
    return writable_target(
        resolved, reference, text, settings, command, branch_option=branch_option, idempotency_key=idempotency_key
    )


def target_of(
    resolved: ResolvedTable,
    reference: TableReference,
    sql: str,
    settings: StatementSettings,
    idempotency_key: CommitKey | None = None,
) -> Target:
    """Select the branch of a table to change and the snapshot to read.

    Args:
        resolved: The table.
        reference: Its name in the statement.
        sql: The whole statement, for errors.
        settings: The session's settings.
        idempotency_key: The key that keeps the statement from being applied twice.

    Raises:
        NotFoundError: no such branch.
        NotSupportedError: a tag, a column with a reserved name, or an idempotency key for a staged commit.
        AnalysisError: the session sets a reserved snapshot property.
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
        raise rejection(reference, sql, message, "Unset spark.wap.id, or write to a branch with spark.wap.branch")
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
    """Return the snapshot properties from the session's settings.

    Raises:
        AnalysisError: a key is reserved.
    """
    found = {
        name.removeprefix(SNAPSHOT_PROPERTY): value
        for name, value in settings.iceberg.items()
        if name.startswith(SNAPSHOT_PROPERTY)
    }
    check_snapshot_properties(found, "The session has the setting", ICEBERG_SETTINGS + SNAPSHOT_PROPERTY)
    return found


def refuse_internal_names(names: Iterable[str], owner: str) -> None:
    """Reject columns whose names RowDelta uses inside its queries.

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
    """Reject columns whose names differ by case alone; call it if names are case-insensitive.

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
    """Return the ways to qualify the target's columns: the alias alone, else all suffixes of the full name."""
    if reference.alias is not None:
        return ((reference.alias,),)
    full = (resolved.catalog_name, *resolved.identifier)
    ways = tuple(full[start:] for start in range(len(full)))
    if reference.parts[-1] == resolved.identifier[-1]:
        return ways
    named = (*full, reference.parts[-1])  # with the branch
    return (*ways, *(named[start:] for start in range(len(named))))


def wap_enabled(table: Table) -> bool:
    """Return whether `write.wap.enabled` is set."""
    return boolean(table.properties, WRITE_AUDIT_PUBLISH_ENABLED, default=False)


def target_branch(
    resolved: ResolvedTable, reference: TableReference, sql: str, settings: StatementSettings
) -> tuple[str, bool]:
    """Return the branch to commit to, and whether the commit may create it."""
    refs = resolved.table.refs()
    if resolved.branch is not None:
        ref = refs.get(resolved.branch)
        if ref is None and resolved.branch == MAIN_BRANCH:  # every table has `main`, even before its first snapshot
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
            raise rejection(
                reference, sql, f"'{resolved.branch}' is a tag, not a branch", "Only branches can be written to"
            )
        return resolved.branch, False
    if settings.wap_branch is not None and wap_enabled(resolved.table):
        ref = refs.get(settings.wap_branch)
        if ref is not None and ref.snapshot_ref_type != SnapshotRefType.BRANCH:
            raise rejection(
                reference, sql, f"'{settings.wap_branch}' is a tag, not a branch", "Set spark.wap.branch to a branch"
            )
        return settings.wap_branch, ref is None
    return MAIN_BRANCH, resolved.table.current_snapshot() is None


def rejection(reference: TableReference, sql: str, message: str, hint: str) -> AnalysisError:
    """Return an error that points at the target."""
    return NotSupportedError(
        message, sql=sql, position=reference.span.start, length=reference.span.end - reference.span.start, hint=hint
    )


def missing_target(reference: TableReference, sql: str, tables: StatementTables, command: str) -> AnalysisError:
    """Return the error for a target that no RowDelta catalog has."""
    name = ".".join(reference.parts)
    # A Spark Connect server does not have RowDelta's catalogs: it would fail on names of three parts.
    asks = not tables.lazy_session.runtime.is_connect or reference.parts[0] not in tables.registry.catalogs
    if asks and tables.lazy_session.spark.catalog.tableExists(".".join(map(quoted, reference.parts))):
        return rejection(
            reference,
            sql,
            f"'{name}' is a table or view of Spark, which does not support {command} here",
            "Row-level statements need an Iceberg table of a catalog of this session",
        )
    return tables.missing(reference)
