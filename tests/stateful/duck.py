"""What a table must hold after a statement: DuckDB runs the same statement on a table of its own."""

import re
from collections.abc import Iterable

import duckdb
import pyarrow as pa

__all__ = ["Duck", "canonical_rows"]


class Duck:
    """A DuckDB that has the functions and types by which the statements go in Spark.

    Tables are named as in the lake: `db.t1`.
    """

    def __init__(self) -> None:
        self.connection = duckdb.connect(config={"threads": "1"})
        self.connection.execute("SET timezone = 'UTC'" if self.has_icu() else "SELECT 1")
        self.connection.execute("CREATE SCHEMA db")
        self.connection.execute("CREATE TYPE timestamp_ntz AS TIMESTAMP")
        self.connection.execute("CREATE MACRO named_struct(n1, x, n2, y) AS struct_pack(a := x, b := y)")

    def has_icu(self) -> bool:
        """Whether this build knows time zones."""
        query = "SELECT loaded FROM duckdb_extensions() WHERE extension_name = 'icu'"
        return bool((self.connection.execute(query).fetchone() or (False,))[0])

    def run(self, sql: str) -> None:
        """Run a statement, written for Spark."""
        self.connection.execute(translated(sql))

    def values(self, sql: str) -> list[tuple]:
        """The rows of a query, as Python values."""
        return self.connection.execute(translated(sql)).fetchall()

    def rows(self, table: str) -> list[str]:
        """The rows of a table, in a form to compare."""
        return canonical_rows(self.connection.execute(f"SELECT * FROM {table}").to_arrow_table())


def translated(sql: str) -> str:
    """A statement of Spark's dialect in DuckDB's."""
    sql = sql.replace("<=>", "IS NOT DISTINCT FROM")
    return re.sub(r"STRUCT<a: INT, b: STRING>", "STRUCT(a INTEGER, b VARCHAR)", sql)


def canonical_rows(table: pa.Table) -> list[str]:
    """Rows as text, sorted: NaN equals NaN, -0.0 differs from 0.0, the width of an integer says nothing."""
    rows: Iterable[tuple] = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(repr(row) for row in rows)
