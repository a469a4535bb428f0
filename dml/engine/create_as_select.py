"""CREATE TABLE, and CREATE TABLE ... AS SELECT: a table, then its rows. Driver."""

import time

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dml import ddl
from dml.catalog.tables import drop_table, load_table
from dml.ddl import schema_from_json
from dml.engine.engine import Engine
from dml.engine.environment import SessionEnvironment
from dml.engine.insert import write_rows
from dml.engine.query import statement_views
from dml.engine.settings import StatementSettings
from dml.engine.target import resolve_target
from dml.errors import CommitStateUnknownError, DmlError
from dml.model.delta_layout import value_name
from dml.result import Result
from dml.sqlparse.statements import CreateTable

__all__ = ["create_table"]


def create_table(engine: Engine, statement: CreateTable, sql: str) -> DataFrame | Result:
    """Create a table; with AS SELECT write its rows too.

    A new table whose rows cannot be written is dropped again; a replaced one keeps its snapshots.

    Raises:
        DmlError: the table is there already, or does not fit; or the query failed.
    """
    settings = StatementSettings.of(engine.spark)
    environment = SessionEnvironment(engine=engine, time_zone_name=settings.time_zone)
    if statement.query is None:
        ddl.execute(statement, environment)
        return engine.spark.createDataFrame([], StructType([]))
    started = time.perf_counter()
    views = statement_views(engine, sql, settings)
    rows = views.sql(views.text(statement.query))
    _, catalog, identifier = environment.catalog_of(statement.table.parts)
    existed = engine.registry.resolve(statement.table.parts) is not None
    if existed and statement.if_not_exists:
        return engine.spark.createDataFrame([], StructType([]))
    schema = schema_from_json(rows.schema.json())
    ddl.create_table(statement, catalog, identifier, schema, time_zone=settings.time_zone)
    try:
        views.loaded.clear()
        target = resolve_target(statement.table, sql, views, settings, "CREATE TABLE")
        named = rows.toDF(*(value_name(index) for index in range(len(rows.columns))))
        return write_rows(engine, target, named, "CREATE TABLE AS SELECT", started)
    except (DmlError, PySparkException, Py4JError) as error:
        if not existed and not isinstance(error, CommitStateUnknownError):
            drop_table(catalog, identifier)
        raise
    except BaseException:  # an interrupt, perhaps in the middle of the commit
        if not existed and load_table(catalog, identifier).current_snapshot() is None:
            drop_table(catalog, identifier)
        raise
