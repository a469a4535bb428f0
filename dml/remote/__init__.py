"""PySpark's calls on RowDelta tables without a JVM: Spark Connect to a server without RowDelta. Driver.

Input: calls of readers, writers and `spark.catalog`, as values (`dml.spark.table_calls`). Output: DataFrames, written
rows and results, by the modules that also run RowDelta's statements; missing and existing objects raise Spark's
exceptions. On classic Spark `dml.connector` does the same for Spark's own planner.
"""

from dml.engine.engine import Engine
from dml.remote.catalog import CurrentCatalog, catalog_calls, whole_namespace_name, whole_table_name
from dml.remote.reads import read_table
from dml.remote.streams import start_stream
from dml.remote.writes import write_rows_of
from dml.spark.table_calls import TableCalls

__all__ = ["table_calls"]


def table_calls(engine: Engine) -> TableCalls:
    """Return the handlers of a session's calls.

    Args:
        engine: The session and its catalogs.
    """
    return TableCalls(
        table_name=lambda parts: whole_table_name(engine, parts),
        namespace_name=lambda parts: whole_namespace_name(engine, parts),
        read=lambda parts, options: read_table(engine, parts, options),
        write=lambda call: write_rows_of(engine, call),
        stream=lambda call: start_stream(engine, call),
        catalog=catalog_calls(engine),
        current=CurrentCatalog(engine).methods(),
    )
