"""Statements on tables and namespaces: CREATE, ALTER, DROP, SHOW, DESCRIBE. Driver; no Spark.

`execute` runs a statement of `dml.sqlparse` with the session's catalogs and time zone, and returns a small table of
values. `stage_table` prepares the table of CREATE TABLE ... AS SELECT; the engine writes its rows and commits both.
"""

from dml.ddl.create_table import create_table, stage_table
from dml.ddl.namespaces import match_names
from dml.ddl.new_schema import schema_from_json
from dml.ddl.run_ddl import DdlStatement, execute
from dml.ddl.snapshot_references import needs_empty_snapshot
from dml.ddl.tables import NO_ROWS, DdlResult
from dml.ddl.types import parse_type, type_text

__all__ = [
    "NO_ROWS",
    "DdlResult",
    "DdlStatement",
    "create_table",
    "execute",
    "match_names",
    "needs_empty_snapshot",
    "parse_type",
    "schema_from_json",
    "stage_table",
    "type_text",
]
