"""A table in the state that it has now, as a DataFrame. Driver, classic Spark only.

Input: a table. Output: a DataFrame that Spark plans as it plans `spark.table`, so that conditions and columns that are
chosen later leave out files, fixed to a snapshot: Spark loads a table anew for each action where it knows the table's
catalog, and here it does not.
"""

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame

from dml.catalog.registry import ResolvedTable
from dml.connector.changes import reference_of
from dml.connector.java import java_class, none
from dml.connector.state import TableState
from dml.connector.table import SparkTable
from dml.connector.workers import has_python_readers
from dml.engine.engine import Engine, is_connect
from dml.spark.jvm import classic_session, take_callbacks
from dml.sqlparse.names import name_parts
from dml.views import StatementTables

__all__ = ["table_frame"]

CATALYST = "org.apache.spark.sql.catalyst."


def table_frame(engine: Engine, name: str) -> DataFrame | None:
    """A table as it is now, or the part of it that its name says.

    Args:
        engine: The session and its catalogs.
        name: The table's name, as in a statement.

    Returns:
        Its rows; None where a statement has to find it: on Spark Connect, of metadata tables, of views, of no table.

    Raises:
        NotFoundError: it has no such branch, tag or snapshot.
    """
    parts = name_parts(name)
    if not parts or is_connect(engine.spark) or not has_python_readers():
        return None
    tables = StatementTables(statement=name, spark=engine.spark, registry=engine.registry)
    resolved = tables.resolve(reference_of(parts))
    if resolved is None or resolved.metadata_table is not None:
        return None
    take_callbacks()
    state = TableState.of(engine, resolved, None, None).fixed()
    relations = java_class("org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation")
    relation = relations.create(SparkTable(lambda: engine, state), none(), none())
    plan = java_class(CATALYST + "plans.logical.SubqueryAlias")(name_of(resolved), relation)
    session = classic_session(engine.spark)
    return DataFrame(java_class("org.apache.spark.sql.classic.Dataset").ofRows(session, plan), engine.spark)


def name_of(resolved: ResolvedTable) -> JavaObject:
    """The name that columns may be qualified with, or its end."""
    qualifier = java_class("java.util.ArrayList")()
    for part in (resolved.catalog_name, *resolved.identifier[:-1]):
        qualifier.add(part)
    sequence = java_class("org.apache.spark.api.python.PythonUtils").toSeq(qualifier)
    return java_class(CATALYST + "AliasIdentifier")(resolved.identifier[-1], sequence)
