"""Run queries over RowDelta tables: SELECT, temporary views and the subqueries of other statements. Driver.

Input: a fragment and the tables that it names, metadata tables too. Output: a DataFrame, analyzed and not run, whose
scans read only the columns and files that the query can need: its own conditions prune files, and Spark's optimizer
prunes further where Spark plans the scans.

Spark's temporary view would keep the text and look the tables up again; here the view is a DataFrame, so it continues
reading the snapshots that were current when it was created. Spark creates views that name no RowDelta table.
"""

import datetime
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

import dml.metadata_tables
import dml.spark_scan
from dml.catalog.registry import ResolvedTable
from dml.engine.engine import Engine, StatementSettings
from dml.engine.target import StatementStart, wap_enabled
from dml.errors import AlreadyExistsError, DataError, DmlError, ErrorKind, NotFoundError, NotSupportedError
from dml.hints import did_you_mean
from dml.model.columns import FILE_ORDINAL, METADATA_COLUMNS
from dml.plan.table_read import table_read
from dml.scan.split import MIN_PARALLEL_QUERY_BYTES
from dml.spark.bridge.gateway import Py4JError
from dml.spark.bridge.sessions import empty_frame
from dml.spark.errors import translate
from dml.sqlparse import exclude_from_stars, parse
from dml.sqlparse.quoting import quoted, unquoted
from dml.sqlparse.statements import Fragment, Query, TableReference
from dml.sqlparse.tokens import first_offset
from dml.views import StatementTables, StatementViews, TableFrame, views_of

if TYPE_CHECKING:
    from dml.metadata_tables.tables import MetadataTable

__all__ = [
    "TemporaryView",
    "as_of_instant",
    "as_of_version",
    "check_time_travel",
    "create_view",
    "has_time_travel",
    "query_frame",
    "query_views",
    "run_query",
    "snapshot_to_read",
    "statement_views",
    "temporary_view",
]


def statement_views(
    engine: Engine,
    start: StatementStart,
    fragments: Iterable[Fragment | None],
    *,
    reads: TableReference | None = None,
    is_lazy: bool = False,
) -> StatementViews:
    """Make the views of the tables that a statement's fragments read.

    Args:
        engine: The session and its catalogs.
        start: The statement's settings and tables, and its target.
        fragments: The fragments that Spark evaluates; None for an absent one.
        reads: The reference to the target, if the statement reads its rows too.
        is_lazy: Make the DataFrames on first use, because the statement may need none.

    Raises:
        DmlError: a name is unknown, or time travel finds no snapshot.
    """
    target = None if reads is None else (reads, start.target.resolved)
    make = frames_of(engine, start.settings, start.tables.statement, is_joined=reads is not None)
    return views_of(start.tables, fragments, make, target, is_lazy=is_lazy)


def query_views(
    engine: Engine,
    fragment: Fragment,
    tables: StatementTables,
    settings: StatementSettings,
    descriptions: list[str] | None = None,
    *,
    is_joined: bool = False,
) -> StatementViews:
    """Make the views of a query, which has no target.

    Args:
        engine: The session and its catalogs.
        fragment: The query.
        tables: The tables that it names.
        settings: The session's settings.
        descriptions: Receives the EXPLAIN text of each scan that Spark does not plan.
        is_joined: Whether other queries will name the result, so that their conditions should prune it.
    """
    make = frames_of(engine, settings, tables.statement, descriptions, is_joined=is_joined)
    return views_of(tables, [fragment], make)


def frames_of(
    engine: Engine,
    settings: StatementSettings,
    statement: str,
    descriptions: list[str] | None = None,
    *,
    is_joined: bool,
) -> TableFrame:
    """Return a function that makes the scans of a statement's views. Its arguments are those of `query_views`."""
    shown: list[str] = [] if descriptions is None else descriptions

    def frame(resolved: ResolvedTable, reference: TableReference, fragment: Fragment) -> DataFrame:
        return table_frame(engine, settings, statement, resolved, reference, fragment, shown, is_joined=is_joined)

    return frame


def run_query(engine: Engine, query: Query, statement: str, *, is_joined: bool = False) -> DataFrame:
    """Return the DataFrame of a query; `is_joined` if other queries will name it.

    Raises:
        DmlError: a name is unknown, or time travel finds no snapshot.
    """
    settings = StatementSettings.of(engine, statement)
    tables = StatementTables(statement=statement, lazy_session=engine.lazy_session, registry=engine.registry)
    return query_frame(query_views(engine, query.fragment, tables, settings, is_joined=is_joined), query.fragment)


def query_frame(views: StatementViews, fragment: Fragment) -> DataFrame:
    """Return the DataFrame of a query that reads `views`."""
    text = views.text(fragment)
    return views.sql(exclude_from_stars(text, hidden_columns(views)) if fragment.has_star else text)


def hidden_columns(views: StatementViews) -> list[str]:
    """Return the metadata columns that the query names: a star does not include them."""
    if len(views.frames) != 1:
        return []
    (frame,) = (make() for make in views.frames.values())
    return [name for name in frame.columns if name in METADATA_COLUMNS]


def table_frame(
    engine: Engine,
    settings: StatementSettings,
    statement: str,
    resolved: ResolvedTable,
    reference: TableReference,
    fragment: Fragment,
    descriptions: list[str],
    *,
    is_joined: bool,
) -> DataFrame:
    if resolved.metadata_table is not None:
        name = dml.metadata_tables.tables.MetadataTable(resolved.metadata_table)
        descriptions.append(f"RowDelta {resolved.name}.{name}, {dml.metadata_tables.frames.METADATA_ROWS}")
        return metadata_table_frame(engine, settings, statement, resolved, name, reference, fragment)
    table = resolved.table
    snapshot_id, schema = snapshot_to_read(engine, settings, statement, resolved, reference)
    read = table_read(
        fragment,
        reference,
        schema,
        settings.rules,
        row_lineage=table.format_version >= 3,
        every_column=settings.quoted_regex,
    )
    scan = dml.spark_scan.read.SparkRead(
        name=resolved.name,
        # Pinned to its snapshot, so that Spark does not confuse it with the table, whose state changes.
        version=(
            *resolved.identity,
            f"snapshot {snapshot_id}",
            str(table.metadata.table_uuid),
            snapshot_id,
            schema.schema_id,
        ),
        table=table,
        snapshot_id=snapshot_id,
        schema=schema,
        columns=read.field_ids,
        metadata_columns=read.metadata_columns,
        row_filter=read.row_filter,
        row_predicate=read.row_predicate,
        rules=settings.rules,
        parallelism=settings.parallelism,
    )
    readers, frames = dml.spark_scan.readers, dml.spark_scan.frames
    capabilities = readers.ReaderCapabilities.of(engine.spark, frames.unplanned_reason(engine.spark, schema))
    if capabilities.unplanned_reason is None and (is_joined or not read.is_row_select or not read.field_ids):
        return frames.read_frame(engine.spark, scan)
    # Rows without any column are lost on the way to Spark: `count(*)` reads the cheapest one.
    metadata_columns = read.metadata_columns or (() if read.field_ids else (FILE_ORDINAL,))
    own = replace(scan, metadata_columns=metadata_columns).plan_for(engine.lazy_session)
    reader = readers.choose_reader(scan, own.plan, capabilities)
    if not isinstance(reader, readers.PythonRead):
        return frames.read_frame(engine.spark, scan)
    # The query receives the Arrow batches of the Python workers: the connector API would copy each row once more.
    descriptions.append(f"{scan.description(own.plan)}, {readers.reader_text(reader)}")
    return own.frame(engine.spark, scan.groups(own.plan.tasks, settings.parallelism, MIN_PARALLEL_QUERY_BYTES))


def metadata_table_frame(
    engine: Engine,
    settings: StatementSettings,
    statement: str,
    resolved: ResolvedTable,
    name: "MetadataTable",
    reference: TableReference,
    fragment: Fragment,
) -> DataFrame:
    """Return a metadata table as a fragment reads it; of the current snapshot, whatever `spark.wap.branch` is.

    Raises:
        CorruptFileError: a metadata file is missing or damaged.
        ExecutionError: the storage failed.
    """
    snapshot = resolved.table.current_snapshot()
    if has_time_travel(resolved, reference):
        check_time_travel(name, reference, statement)
        snapshot_id, _ = snapshot_to_read(engine, settings, statement, resolved, reference)
        snapshot = None if snapshot_id is None else resolved.table.snapshot_by_id(snapshot_id)
    schema = dml.metadata_tables.tables.table_schema(name, resolved.table.metadata)
    read = table_read(fragment, reference, schema, settings.rules, every_column=settings.quoted_regex)
    needed = dml.metadata_tables.frames.MetadataRead(
        columns=tuple(found.name for found in schema.fields if found.field_id in set(read.field_ids)),
        row_filter=read.row_filter,
        case_sensitive=settings.case_sensitive,
        parallelism=settings.parallelism,
    )
    return dml.metadata_tables.frames.metadata_frame(engine.spark, name, resolved.table, snapshot, needed)


def has_time_travel(resolved: ResolvedTable, reference: TableReference) -> bool:
    """Return whether a reference names a snapshot, a time, a branch or a tag."""
    in_name = (resolved.branch, resolved.tag, resolved.snapshot_id, resolved.timestamp_ms)
    return any(part is not None for part in (reference.version, reference.timestamp, *in_name))


def check_time_travel(name: "MetadataTable", reference: TableReference, statement: str) -> None:
    """Reject time travel in a metadata table that shows all snapshots, or only current metadata.

    Raises:
        NotSupportedError: the metadata table does.
    """
    if not name.is_of_one_snapshot:
        shows = "all snapshots" if name.of_all_snapshots else "the table's current metadata"
        raise NotSupportedError(
            f"The metadata table '{name}' shows {shows}: it does not support time travel",
            sql=statement,
            position=reference.span.start,
            length=reference.span.end - reference.span.start,
            hint="Name it without a version, a time, a branch or a tag",
        )


def snapshot_to_read(
    engine: Engine,
    settings: StatementSettings,
    statement: str,
    resolved: ResolvedTable,
    reference: TableReference,
) -> tuple[int | None, Schema]:
    """Return the id of the snapshot that a reference selects, and the schema to read it with.

    A branch is read with the table's current schema, a tag or an older snapshot with its own.
    """
    table = resolved.table
    if reference.timestamp is not None:
        return as_of_timestamp(engine, statement, table, reference)
    if reference.version is not None:
        return as_of_version(table, reference.version, reference, statement)
    if resolved.tag is not None:
        return as_of_version(table, resolved.tag, reference, statement)
    if resolved.snapshot_id is not None:
        return as_of_version(table, str(resolved.snapshot_id), reference, statement)
    if resolved.timestamp_ms is not None:
        return as_of_instant(statement, table, reference, resolved.timestamp_ms, reference.parts[-1])
    branch = resolved.branch or (settings.wap_branch if wap_enabled(table) else None) or MAIN_BRANCH
    snapshot = table.snapshot_by_name(branch)
    if snapshot is None:
        if resolved.branch not in {None, MAIN_BRANCH}:
            raise unknown_ref(table, branch, reference, statement)
        snapshot = table.current_snapshot()
    return (None if snapshot is None else snapshot.snapshot_id), table.schema()


def as_of_version(table: Table, version: str, reference: TableReference, statement: str) -> tuple[int | None, Schema]:
    """Find a snapshot by its id, or by a branch or tag; the id is None for `main` before its first snapshot."""
    snapshot = table.snapshot_by_name(version)
    if snapshot is None and version == MAIN_BRANCH:
        return None, table.schema()
    if snapshot is None and version.isdigit():
        snapshot = table.snapshot_by_id(int(version))
    if snapshot is None:
        raise unknown_ref(table, version, reference, statement)
    return snapshot.snapshot_id, schema_of(table, snapshot.schema_id)


def as_of_timestamp(engine: Engine, statement: str, table: Table, reference: TableReference) -> tuple[int, Schema]:
    """Find the snapshot that was current at the time of TIMESTAMP AS OF."""
    row = engine.spark.range(1).drop("id")  # no column: the time must be a constant, and must not resolve `id`
    failure: DmlError | None = None
    try:
        micros = row.selectExpr(f"unix_micros(CAST({reference.timestamp} AS TIMESTAMP))").collect()[0][0]
        if micros is None:
            failure = DataError(f"{reference.timestamp} is not a time", kind=ErrorKind.INVALID_VALUE)
    except (PySparkException, Py4JError) as error:
        failure = translate(error)
        failure.__cause__ = error
    if failure is not None:
        failure.hint = "TIMESTAMP AS OF takes a constant time, such as TIMESTAMP '2026-01-31 12:00:00'"
        failure.point_at(statement, reference.span.start, reference.span.end)
        raise failure
    return as_of_instant(statement, table, reference, micros // 1000, reference.timestamp)


def as_of_instant(
    statement: str, table: Table, reference: TableReference, timestamp_ms: int, written: str | None
) -> tuple[int, Schema]:
    """Find the snapshot that was current at a time; `written` is the time as the user wrote it, for the error."""
    snapshot = table.snapshot_as_of_timestamp(timestamp_ms)
    if snapshot is None:
        first = table.history()[:1]
        since = datetime.datetime.fromtimestamp(first[0].timestamp_ms / 1000, datetime.UTC) if first else None
        raise NotFoundError(
            f"The table had no snapshot at {written}",
            sql=statement,
            position=reference.span.start,
            length=reference.span.end - reference.span.start,
            hint="It has no snapshot yet" if since is None else f"Its history begins at {since.isoformat()}",
        )
    return snapshot.snapshot_id, schema_of(table, snapshot.schema_id)


def schema_of(table: Table, schema_id: int | None) -> Schema:
    """Return the schema of a snapshot; the current one if the snapshot does not name one."""
    return table.schema() if schema_id is None else table.schemas().get(schema_id, table.schema())


def unknown_ref(table: Table, name: str, reference: TableReference, statement: str) -> NotFoundError:
    return NotFoundError(
        f"There is no branch, tag or snapshot '{name}'",
        sql=statement,
        position=reference.span.start,
        length=reference.span.end - reference.span.start,
        hint=did_you_mean(name, table.refs()),
    )


FORM: Final = re.compile(
    r"\s*CREATE\s+(?P<replace>OR\s+REPLACE\s+)?TEMP(?:ORARY)?\s+VIEW\s+(?P<name>\w+|`(?:[^`]|``)+`)\s+AS\s+(?P<query>.+)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryView:
    """A CREATE TEMPORARY VIEW statement.

    Attributes:
        name: The view's name, without quotes.
        replace: Whether a view of the name may exist.
        query: The view's query; places are offsets in `text`.
        text: The text of the query.
    """

    name: str
    replace: bool
    query: Query
    text: str


def temporary_view(text: str) -> TemporaryView | None:
    """Parse CREATE TEMPORARY VIEW; None for any other statement."""
    found = FORM.fullmatch(text, first_offset(text))
    if found is None:
        return None
    query = parse(found["query"])
    if not isinstance(query, Query):
        return None
    name = found["name"]
    return TemporaryView(
        name=unquoted(name),
        replace=found["replace"] is not None,
        query=query,
        text=found["query"],
    )


def create_view(engine: Engine, view: TemporaryView) -> DataFrame:
    """Create a temporary view.

    Raises:
        AlreadyExistsError: a view of the name exists, and the statement lacks OR REPLACE.
    """
    catalog = engine.spark.catalog
    name = quoted(view.name)
    if not view.replace and catalog.tableExists(name) and catalog.getTable(name).isTemporary:
        raise AlreadyExistsError(
            f"The temporary view '{view.name}' already exists", hint="Use CREATE OR REPLACE TEMPORARY VIEW"
        )
    run_query(engine, view.query, view.text, is_joined=True).createOrReplaceTempView(view.name)
    return empty_frame(engine.spark, StructType([]))
