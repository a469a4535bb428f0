"""Run CREATE TABLE and CREATE TABLE ... AS SELECT: a table and its rows, in one commit. Driver.

Other sessions never see the table without its rows, and a failure changes nothing: a table that would be replaced is
kept. If the catalog's server cannot stage tables, a new table is created first, and dropped if its rows cannot be
written.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyiceberg.table import Table
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from dml import ddl
from dml.catalog import LoadState
from dml.catalog.registry import ResolvedTable
from dml.catalog.tables import drop_table, load_table
from dml.ddl import schema_from_json
from dml.engine.engine import Engine, StatementSettings
from dml.engine.insert import PLAIN, InsertOptions, plan_rows_write, run_write
from dml.engine.query import query_views
from dml.engine.scanned_rows import ScannedRows, Targets, scanned_rows
from dml.engine.target import target_of
from dml.errors import AlreadyExistsError, CommitStateUnknownError, DmlError
from dml.model.columns import value_name
from dml.plan.row_delta_plan import ThroughSpark
from dml.result import Result
from dml.spark.bridge.gateway import Py4JError
from dml.sqlparse.statements import CreateTable
from dml.views import StatementTables

__all__ = ["CreateAsSelect", "create_table", "drop_empty", "run_create"]


def create_table(engine: Engine, statement: CreateTable, sql: str) -> ddl.DdlResult | Result:
    """Create or replace a table; with AS SELECT together with its rows.

    Raises:
        DmlError: the table exists already or does not fit, or the query failed.
    """
    settings = StatementSettings.of(engine, sql)
    if statement.query is None:
        case_sensitive = settings.case_sensitive
        ddl.execute(statement, engine.registry, time_zone=settings.time_zone, case_sensitive=case_sensitive)
        return ddl.NO_ROWS
    started = time.perf_counter()
    tables = StatementTables(statement=sql, lazy_session=engine.lazy_session, registry=engine.registry)
    views = query_views(engine, statement.query, tables, settings)
    rows = views.sql(views.text(statement.query))
    if statement.if_not_exists and engine.registry.resolve(statement.table.parts) is not None:
        return ddl.NO_ROWS
    try:
        return run_create(CreateAsSelect(engine, statement, sql, rows, settings, started, tables=tables))
    except AlreadyExistsError:
        if not statement.if_not_exists:
            raise
        return ddl.NO_ROWS  # another writer was faster


@dataclass(frozen=True, slots=True)
class CreateAsSelect:
    """A CREATE TABLE ... AS SELECT that is being executed.

    Attributes:
        engine: The session and its catalogs.
        statement: The statement.
        sql: Its text.
        rows: The rows of its query.
        settings: The session's settings.
        started: When it started, by `time.perf_counter`.
        options: Write options for its rows.
        tables: The tables that its query names; None if the rows come from a DataFrame.
    """

    engine: Engine
    statement: CreateTable
    sql: str
    rows: DataFrame
    settings: StatementSettings
    started: float
    options: InsertOptions = PLAIN
    tables: StatementTables | None = None


def run_create(creation: CreateAsSelect) -> Result:
    """Create or replace the table together with its rows; fail if another session creates it meanwhile."""
    registry, settings = creation.engine.registry, creation.settings
    catalog_name, identifier = registry.split(creation.statement.table.parts)
    catalog = registry.catalog(catalog_name)
    schema = schema_from_json(creation.rows.schema.json(), case_sensitive=settings.case_sensitive)
    load_state = ddl.stage_table(creation.statement, catalog, identifier, schema, time_zone=settings.time_zone)
    if load_state is not None:
        result = write_query(creation, load_state().table, load_state)
        if result.snapshot_id is not None:
            return result
    # Without rows there was no commit yet; without staging the table must exist before its rows.
    statement = replace(creation.statement, if_not_exists=False)
    table = ddl.create_table(statement, catalog, identifier, schema, time_zone=settings.time_zone)
    if load_state is not None:
        return result
    with drop_on_failure(table):
        return write_query(creation, table, None)


def write_query(creation: CreateAsSelect, table: Table, load_state: LoadState | None) -> Result:
    """Write the rows of the query and commit them, together with the table if it is staged."""
    reference, settings = creation.statement.table, creation.settings
    catalog_name, identifier = creation.engine.registry.split(reference.parts)
    resolved = ResolvedTable(catalog_name=catalog_name, catalog=table.catalog, identifier=identifier, table=table)
    target = target_of(resolved, reference, creation.sql, settings)
    write = plan_rows_write(
        creation.engine,
        target,
        "CREATE TABLE AS SELECT",
        creation.started,
        options=creation.options,
        load_state=load_state,
    )
    query, found = creation.statement.query, creation.rows.schema
    rows = creation.rows.toDF(*(value_name(index) for index in range(len(found.fields))))
    scanned: ScannedRows | ThroughSpark = ThroughSpark(reason="the rows come from a DataFrame")
    if query is not None and creation.tables is not None:
        targets: Targets = [(column, place) for place, column in enumerate(table.schema().fields)]
        scanned = scanned_rows(
            creation.engine,
            settings,
            creation.tables,
            query,
            found,
            targets,
            table,
            write.context.properties,
            settings.policy,
        )
    return run_write(write, scanned, lambda: rows)


@contextmanager
def drop_on_failure(table: Table) -> Iterator[None]:
    """Drop a table that was just created, with its files, if its rows cannot be written."""
    try:
        yield
    except (DmlError, PySparkException, Py4JError) as error:
        if not isinstance(error, CommitStateUnknownError):
            drop_empty(table)
        raise
    except BaseException:  # an interrupt, perhaps in the middle of the commit
        drop_empty(table)
        raise


def drop_empty(table: Table) -> None:
    """Drop a table that has never had a snapshot."""
    metadata = load_table(table.catalog, table.name()).metadata
    if metadata.table_uuid == table.metadata.table_uuid and not metadata.snapshots:
        drop_table(table.catalog, table.name(), purge=True)
