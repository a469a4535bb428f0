"""What a program of PySpark's calls is: calls, the tables that they start from, and answers that can be compared.

The calls are in `reads`, `writes`, `merges`, `catalogs` and `refusals`. Each takes a `Program`, which has the session,
and gives a DataFrame, a plain value or an exception. Nothing here or there imports RowDelta: the same calls run on
Iceberg's Java library (`make_answers.py`), and on RowDelta on every kind of session.
"""

import datetime
import decimal
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

__all__ = ["Call", "Clause", "Program", "answer", "calls_of", "kind_of"]

PEOPLE: Final = (
    "id BIGINT, name STRING, city STRING, joined DATE, at TIMESTAMP, score DOUBLE, "
    "tags ARRAY<STRING>, home STRUCT<zip: STRING, floor: INT>"
)
FIRST_PEOPLE: Final = """
    (1, 'Ann', 'Rome', DATE '2020-01-31', TIMESTAMP '2020-01-31 10:30:00', 1.5, array('a', 'b'), named_struct('zip', '00100', 'floor', 1)),
    (2, 'Bob', 'Rome', DATE '2021-06-01', TIMESTAMP '2021-06-01 00:00:00', NULL, array(), named_struct('zip', '00200', 'floor', NULL)),
    (3, 'Eve', 'Oslo', NULL, NULL, -2.0, NULL, NULL),
    (4, NULL, 'Oslo', DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59', 0.0, array('c'), named_struct('zip', '0150', 'floor', 4))
"""  # noqa: E501
LATER_PEOPLE: Final = """
    (5, 'Dan', 'Bonn', DATE '2024-02-29', TIMESTAMP '2024-02-29 12:00:00', 9.25, array('a'), named_struct('zip', '53111', 'floor', 2)),
    (6, 'Kim', NULL, DATE '2024-03-01', TIMESTAMP '2024-03-01 01:02:03', 7.0, array('b', 'c'), named_struct('zip', NULL, 'floor', 0)),
    (7, 'Ann', 'Rome', DATE '2024-12-31', TIMESTAMP '2024-12-31 23:00:00', 3.5, array('a', 'c'), named_struct('zip', '00100', 'floor', 9))
"""  # noqa: E501
VISITS: Final = "(1, DATE '2024-01-01', 3), (1, DATE '2024-01-02', 5), (5, DATE '2024-01-01', 1), (9, NULL, 8)"

Clause = tuple[str, str | None, str, Mapping[str, str] | None]
"""A clause of a MERGE: `matched`, `not matched` or `not matched by source`, a condition, an action, assignments."""

WHEN: Final = {
    "matched": "whenMatched",
    "not matched": "whenNotMatched",
    "not matched by source": "whenNotMatchedBySource",
}
WHOLE_ROWS: Final = {"update": "updateAll", "insert": "insertAll"}

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "not null": (
        "NOT_NULL",
        "NULLABLE_COLUMN",
        "not-null",
        "[Nn]ull value appeared in non-nullable",
        "Cannot write nullable",
    ),
    "cardinality": ("CARDINALITY_VIOLATION", "cardinality-violation", "a single row from the target table with mul"),
    "exists": ("ALREADY_EXISTS", "AlreadyExists", "already exists"),
    "missing catalog": ("CATALOG_NOT_FOUND", r"Catalog '\w+' plugin class not found", "There is no catalog"),
    "missing namespace": (
        "SCHEMA_NOT_FOUND",
        "NoSuchNamespace",
        "Namespace .* does not exist",
        "There is no namespace",
    ),
    "missing function": ("UNRESOLVED_ROUTINE", "NoSuchFunction", "unresolved-function", "ROUTINE_NOT_FOUND"),
    "missing table": ("TABLE_OR_VIEW_NOT_FOUND", "NoSuchTable", "There is no table", "VIEW_NOT_FOUND"),
    "missing column": ("UNRESOLVED_COLUMN", "unresolved-column", "FIELD_NOT_FOUND", "No such struct field"),
    "missing snapshot": (
        "Cannot find (a )?snapshot",
        "Cannot find matching snapshot",
        "no snapshot",
        "There is no (snapshot|branch|tag)",
        "Cannot (use|find) (branch|ref)",
        "older than",
    ),
    "columns": (
        "CANNOT_FIND_DATA",
        "EXTRA_COLUMNS",
        "ARITY_MISMATCH",
        "NOT_ENOUGH_DATA_COLUMNS",
        "TOO_MANY_DATA_COLUMNS",
        "too many data columns",
        "not enough data columns",
        "a value for each column",
        "Cannot find data for",
    ),
    "overflow": ("OVERFLOW", "overflow", "OUT_OF_RANGE"),
    "type": (
        "CANNOT_SAFELY_CAST",
        "DATATYPE_MISMATCH",
        "type-mismatch",
        "INCOMPATIBLE_DATA",
        "Cannot safely cast",
        "cannot process input",
    ),
    "inexact condition": ("some, but not all, rows match", "rows to replace must be chosen", "overwrite by expression"),
    "two states": ("Can(not)? (only )?(specify|set|override)", "select more than one", "both"),
    "not supported": (
        "There is no transform",
        "NOT_SUPPORTED",
        "not-supported",
        "UNSUPPORTED",
        "UnsupportedOperation",
        "not support",
    ),
}
"""Kinds of errors, the first that fits: what PySpark's and Spark's words of every version, and RowDelta's, have."""


@dataclass(frozen=True)
class Call:
    """One call: its name, which is that of its function, and the function."""

    name: str
    run: Callable[["Program"], Any]


def calls_of(module: Mapping[str, Any]) -> tuple[Call, ...]:
    """The functions that a module defines, as calls, in the order in which it does."""
    own = (each for each in module.values() if isinstance(each, FunctionType) and each.__module__ == module["__name__"])
    return tuple(Call(name=function.__name__, run=function) for function in own)


@dataclass(frozen=True)
class Program:
    """The session that a program runs in.

    Attributes:
        spark: The session.
        catalog: The name of the Iceberg catalog in it.
    """

    spark: SparkSession
    catalog: str = "lake"

    def prepare(self) -> None:
        """Make the tables that calls start from; `people` has two snapshots."""
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.db")
        self.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {self.catalog}.other")
        self.spark.sql(f"CREATE TABLE {self.people} ({PEOPLE}) USING iceberg PARTITIONED BY (city)")
        self.spark.sql(f"INSERT INTO {self.people} VALUES {FIRST_PEOPLE}")
        self.spark.sql(f"INSERT INTO {self.people} VALUES {LATER_PEOPLE}")
        self.spark.sql(f"CREATE TABLE {self.visits} (person BIGINT, day DATE, pages INT) USING iceberg")
        self.spark.sql(f"INSERT INTO {self.visits} VALUES {VISITS}")

    @property
    def people(self) -> str:
        """A partitioned table of seven rows in two snapshots, which no call changes."""
        return self.name("people")

    @property
    def visits(self) -> str:
        """A table of four rows, which no call changes."""
        return self.name("visits")

    def name(self, table: str) -> str:
        """A table's full name."""
        return f"{self.catalog}.db.{table}"

    def frame(self, rows: Sequence[tuple[Any, ...]], schema: str = "id BIGINT, name STRING") -> DataFrame:
        """Rows that are in no table, in one partition."""
        return self.spark.createDataFrame(list(rows), schema).coalesce(1)

    def snapshots(self, table: str) -> list[int]:
        """The snapshots of a table, the oldest first."""
        found = self.spark.table(f"{table}.snapshots").orderBy("committed_at").select("snapshot_id")
        return [row.snapshot_id for row in found.collect()]

    def partition_fields(self, table: str) -> DataFrame:
        """The partition values of a table's files."""
        return self.spark.table(f"{table}.files").select("partition.*")

    def merge(self, source: DataFrame, table: str, on: str, clauses: Sequence[Clause]) -> None:
        """`source.mergeInto(table, on)` with clauses; before PySpark 4.0 the MERGE that it stands for.

        Args:
            source: The source, with an alias.
            table: The target's name.
            on: The condition, in which the target has its short name.
            clauses: The clauses.
        """
        if not hasattr(source, "mergeInto"):
            source.createOrReplaceTempView("merge_source")
            self.spark.sql(merge_statement(table, on, clauses))
            return
        writer = source.mergeInto(table, expr(on))
        for kind, condition, action, assignments in clauses:
            when = getattr(writer, WHEN[kind])
            begun = when() if condition is None else when(expr(condition))
            if assignments is None:
                writer = getattr(begun, WHOLE_ROWS.get(action, action))()
            else:
                writer = getattr(begun, action)({key: expr(value) for key, value in assignments.items()})
        writer.merge()


def merge_statement(table: str, on: str, clauses: Sequence[Clause]) -> str:
    """The MERGE of a source that is a view."""
    target, parts = table.rpartition(".")[2], []
    for kind, condition, action, assignments in clauses:
        when = f"WHEN {kind.upper()}" + ("" if condition is None else f" AND {condition}")
        if action == "delete":
            then = "DELETE"
        elif action == "update":
            pairs = "*" if assignments is None else ", ".join(f"{key} = {value}" for key, value in assignments.items())
            then = f"UPDATE SET {pairs}"
        elif assignments is None:
            then = "INSERT *"
        else:
            then = f"INSERT ({', '.join(assignments)}) VALUES ({', '.join(assignments.values())})"
        parts.append(f"{when} THEN {then}")
    return f"MERGE INTO {table} AS {target} USING merge_source AS s ON {on} {' '.join(parts)}"


def answer(call: Call, program: Program) -> dict[str, Any]:
    """What a call answers, in a form that JSON has: columns and rows, a value, or the kind of an error."""
    try:
        found = call.run(program)
        if isinstance(found, DataFrame):
            rows = sorted((plain(tuple(row)) for row in found.collect()), key=json.dumps)
            return {"columns": found.columns, "rows": rows}
    except Exception as error:  # noqa: BLE001 - an error is an answer
        return {"error": kind_of(error), "text": f"{type(error).__name__}: {error}"[:600]}
    return {"value": plain(found)}


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    match value:
        case tuple() | list():
            return [plain(part) for part in value]
        case dict():
            return {str(key): plain(part) for key, part in value.items()}
        case datetime.datetime():  # PySpark gives the local time
            return value.astimezone(datetime.UTC).isoformat(" ")
        case datetime.date() | decimal.Decimal():
            return str(value)
        case bytes() | bytearray():
            return bytes(value).hex()
        case _:
            return value


def kind_of(error: Exception) -> str:
    """The kind of an error: of its condition, if Spark gave it one, else of its text."""
    condition = None
    for name in ("getCondition", "getErrorClass"):
        method = getattr(error, name, None)
        if method is not None:
            condition = condition or method()
    texts = [condition, getattr(error, "kind", None), f"{type(error).__name__}: {error}"]
    for text in texts:
        for kind, patterns in KINDS.items():
            if text and any(re.search(pattern, str(text)) for pattern in patterns):
                return kind
    return "other"
