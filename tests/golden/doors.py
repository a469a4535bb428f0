"""The ways into RowDelta that golden scripts are run through, each with one interface. Driver.

All of them take a statement of SQL. `PythonDoor` expresses it by PySpark's writers, `spark.table` and RowDelta's Python
API where these can, and the other doors pass it on as text.

What a door does not transport, no script can expect of it:

- PySpark's writers return nothing. Their `Result` reaches callbacks of `after_commit`, so that there is none where
  nothing was committed. Spark checks their columns before RowDelta receives the rows, and the error is Spark's.
- A client of `dml serve` receives Spark's four counts instead of a `Result`, and an error of Spark's that names the
  class and has the message, without the kind.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr, lit

from dml.errors import DmlError, SqlError
from dml.result import Result
from dml.session import Session
from dml.spark.versions import INSTALLED_FEATURES, Feature, arrow_table, features_of, sql_failure
from dml.sqlparse import (
    Assignment,
    DeleteAction,
    DeleteStatement,
    Fragment,
    InsertMode,
    InsertStatement,
    MergeStatement,
    TableReference,
    UpdateAction,
    UpdateStatement,
    parse,
)

__all__ = [
    "LOCAL_DOORS",
    "REMOTE_DOORS",
    "Door",
    "Entrance",
    "Failure",
    "LakeSql",
    "Outcome",
    "ServeClient",
    "SparkSql",
    "entrances",
    "fits",
]

WHOLE_TABLE = re.compile(r"SELECT \* FROM (?P<table>[\w.`]+)(\s+WHERE\s+(?P<condition>.*))?", re.DOTALL)
BRANCH = re.compile(r"\.(branch|tag)_\w+$")
OVERWRITE_MODE = "spark.sql.sources.partitionOverwriteMode"


class Door(StrEnum):
    """A way to run statements."""

    LAKE_SQL = "lake.sql"
    SPARK_SQL = "spark.sql"
    PYTHON = "python"
    CONNECT = "connect"
    SERVE = "serve"


LOCAL_DOORS = (Door.LAKE_SQL, Door.SPARK_SQL, Door.PYTHON)
"""Those of a classic session, which share a process."""
REMOTE_DOORS = (Door.CONNECT, Door.SERVE)
"""Those of a Spark Connect session, which need a process of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a statement returned.

    Attributes:
        frame: The rows of a query.
        facts: The attributes of the `Result` that the door transports; None for a query, or if there is no result.
    """

    frame: DataFrame | None = None
    facts: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An error as a door shows it.

    Attributes:
        name: Its class.
        kind: RowDelta's kind or Spark's condition; None if the door loses it.
        text: Its message.
    """

    name: str
    kind: str | None
    text: str


def outcome_of(returned: DataFrame | Result | None) -> Outcome:
    """Convert what RowDelta returned in this process."""
    if isinstance(returned, Result):
        return Outcome(facts={name: str(getattr(returned, name)) for name in (*Result.__dataclass_fields__, "changed")})
    return Outcome(frame=returned)


@dataclass(slots=True, kw_only=True)
class Entrance(ABC):
    """A door that is open.

    Attributes:
        spark: The session whose settings and views the statements use.
    """

    spark: SparkSession

    @abstractmethod
    def run(self, sql: str) -> Outcome:
        """Run a statement."""

    def query(self, sql: str) -> pa.Table:
        """Return the rows of a query."""
        return arrow_table(self.spark.sql(sql))

    def failure(self, error: Exception) -> Failure:
        """Convert an error, RowDelta's or Spark's; another one is raised again."""
        if isinstance(error, PySparkException):
            return Failure(name=type(error).__name__, kind=sql_failure(error).condition, text=str(error))
        if not isinstance(error, DmlError):
            raise error
        return Failure(name=type(error).__name__, kind=str(error.kind), text=str(error))

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Surround a script."""
        yield


@dataclass(slots=True, kw_only=True)
class LakeSql(Entrance):
    """`lake.sql`."""

    lake: Session

    def run(self, sql: str) -> Outcome:
        return outcome_of(self.lake.sql(sql))

    def query(self, sql: str) -> pa.Table:
        return arrow_table(self.lake.sql(sql))


@dataclass(slots=True, kw_only=True)
class SparkSql(Entrance):
    """`spark.sql` of a session that RowDelta is enabled in."""

    def run(self, sql: str) -> Outcome:
        return outcome_of(self.spark.sql(sql))


@dataclass(slots=True, kw_only=True)
class ServeClient(Entrance):
    """`spark.sql` of a client of `dml serve`."""

    def run(self, sql: str) -> Outcome:
        frame = self.spark.sql(sql)
        if frame.columns[:1] != ["num_affected_rows"]:
            return Outcome(frame=frame)
        (row,) = frame.collect()
        names = {"rows_deleted": "num_deleted_rows", "rows_updated": "num_updated_rows"}
        names |= {"rows_inserted": "num_inserted_rows"}
        return Outcome(facts={name: str(row[column]) for name, column in names.items()})

    def failure(self, error: Exception) -> Failure:
        if not isinstance(error, PySparkException):
            raise error
        text = str(error)
        found = re.search(r"\b(?P<name>\w+Error)\b: ", text)
        return Failure(name=found["name"] if found else type(error).__name__, kind=None, text=text)


@dataclass(slots=True, kw_only=True)
class PythonDoor(Entrance):
    """PySpark's writers and `spark.table`, and RowDelta's Python API; `spark.sql` for what these cannot express."""

    lake: Session
    committed: list[Result] = field(default_factory=list)

    def run(self, sql: str) -> Outcome:
        call = python_call(sql)
        if call is None:
            return outcome_of(self.spark.sql(sql))
        self.committed.clear()
        returned = call(self.lake, sql)
        if returned is not None:
            return outcome_of(returned)
        return outcome_of(self.committed[-1]) if self.committed else Outcome(facts={})

    def query(self, sql: str) -> pa.Table:
        frame = self.run(sql).frame
        assert frame is not None
        return arrow_table(frame)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Record the results of commits: the writers return none."""
        end = self.lake.after_commit(self.committed.append)
        try:
            yield
        finally:
            end()


def entrances(lake: Session) -> dict[Door, Entrance]:
    """Return the doors of a classic session."""
    return {
        Door.LAKE_SQL: LakeSql(spark=lake.spark, lake=lake),
        Door.SPARK_SQL: SparkSql(spark=lake.spark),
        Door.PYTHON: PythonDoor(spark=lake.spark, lake=lake),
    }


# ---- statements in Python's words

Call = Callable[[Session, str], DataFrame | Result | None]


def fits(door: Door, sql: str) -> bool:
    """Return whether a door has words of its own for a statement."""
    return door is not Door.PYTHON or python_call(sql) is not None


def python_call(sql: str) -> Call | None:
    """Return what runs a statement in Python; None for one that Python cannot express."""
    whole = WHOLE_TABLE.fullmatch(sql.strip())
    if whole is not None and not re.search(r"\b(GROUP|ORDER|LIMIT|SELECT|UNION)\b", whole["condition"] or ""):
        return read_table
    try:
        statement = parse(sql)
    except SqlError:
        return None
    match statement:
        case DeleteStatement(ctes=None):
            return lambda lake, sql: delete(lake, sql, statement)
        case UpdateStatement(ctes=None) if is_mapping(statement.assignments):
            return lambda lake, sql: update(lake, sql, statement)
        case MergeStatement(ctes=None, source_alias=str()) if all(is_mapping(one) for one in lists_of(statement)):
            # A DataFrame has no full name: without an alias `db.s.id` means nothing in the conditions of `mergeInto`.
            return lambda lake, sql: merge(lake, sql, statement)
        case InsertStatement(ctes=None, partition=(), with_schema_evolution=False) if has_plain_rows(statement):
            return lambda lake, sql: insert(lake, sql, statement)
        case _:
            return None


def lists_of(statement: MergeStatement) -> Iterator[tuple[Assignment, ...]]:
    """Yield the assignments of a MERGE's clauses."""
    for clause in (*statement.matched, *statement.not_matched, *statement.not_matched_by_source):
        if not isinstance(clause.action, DeleteAction) and clause.action.assignments is not None:
            yield clause.action.assignments


def is_mapping(assignments: tuple[Assignment, ...]) -> bool:
    """Return whether a dictionary can hold assignments: no key twice."""
    keys = [".".join(one.key) for one in assignments]
    return len(set(keys)) == len(keys)


def has_plain_rows(statement: InsertStatement) -> bool:
    """Return whether the rows are those of a query that stands for itself: `DEFAULT` is a word of INSERT alone."""
    return "default" not in statement.query.names


def read_table(lake: Session, sql: str) -> DataFrame:
    """`SELECT * FROM t WHERE c`."""
    whole = WHOLE_TABLE.fullmatch(sql.strip())
    assert whole is not None
    frame = lake.spark.table(full_name(whole["table"]))
    return frame if whole["condition"] is None else frame.where(whole["condition"])


def full_name(name: str) -> str:
    """Return a table's name with its catalog: without `USE lake`, PySpark's calls look elsewhere for one without."""
    return f"lake.{name}" if name.startswith("db.") else name


def text_of(fragment: Fragment | None) -> str | None:
    """Return the text of a condition."""
    return None if fragment is None else fragment.text


def target_of(sql: str, target: TableReference) -> str:
    """Return the name of a target with its alias."""
    name = sql[target.span.start : target.span.end]
    return name if target.alias is None else f"{name} AS {target.alias}"


def mapping_of(sql: str, assignments: tuple[Assignment, ...]) -> dict[str, str]:
    """Return assignments as a dictionary of text."""
    return {
        sql[one.key_span.start : one.key_span.end]: "DEFAULT" if one.value is None else one.value.text
        for one in assignments
    }


def delete(lake: Session, sql: str, statement: DeleteStatement) -> Result:
    """`lake.delete`."""
    return lake.delete(target_of(sql, statement.target), text_of(statement.condition))


def update(lake: Session, sql: str, statement: UpdateStatement) -> Result:
    """`lake.update`."""
    assignments = mapping_of(sql, statement.assignments)
    return lake.update(target_of(sql, statement.target), assignments, text_of(statement.condition))


def merge(lake: Session, sql: str, statement: MergeStatement) -> Result:
    """`df.mergeInto`; `lake.merge_into` for a target with an alias, which PySpark's has no words for, and before 4.0.

    `expr` cannot hold a subquery or DEFAULT, so that statements with either go to `lake.merge_into` as text.
    """
    columns = f" ({', '.join(statement.source_column_aliases)})" if statement.source_column_aliases else ""
    alias = statement.source_alias
    assert alias is not None
    source = lake.spark.sql(f"SELECT * FROM {statement.source.text} {alias}{columns}")
    fragments = [statement.condition]
    fragments += [one.value for each in lists_of(statement) for one in each if one.value is not None]
    clauses = (*statement.matched, *statement.not_matched, *statement.not_matched_by_source)
    fragments += [clause.condition for clause in clauses if clause.condition is not None]
    is_default = any(one.value is None for each in lists_of(statement) for one in each)
    in_text = is_default or any(fragment.has_subquery for fragment in fragments)
    if statement.target.alias is None and not in_text and Feature.ARROW_FRAMES in INSTALLED_FEATURES:
        name = full_name(sql[statement.target.span.start : statement.target.span.end])
        return clauses_of(source.alias(alias).mergeInto(name, expr(statement.condition.text)), sql, statement, expr)
    target = target_of(sql, statement.target)
    builder = lake.merge_into(source, target, statement.condition.text, source_alias=alias)
    return clauses_of(builder, sql, statement, lambda text: text)


def clauses_of(builder: Any, sql: str, statement: MergeStatement, value: Callable[[str], Any]) -> Any:
    """Add the clauses of a MERGE to a builder, ours or PySpark's, and run it."""
    if statement.with_schema_evolution:
        builder = builder.withSchemaEvolution()
    for clauses, method in (
        (statement.matched, "whenMatched"),
        (statement.not_matched, "whenNotMatched"),
        (statement.not_matched_by_source, "whenNotMatchedBySource"),
    ):
        for clause in clauses:
            condition = () if clause.condition is None else (value(clause.condition.text),)
            begun = getattr(builder, method)(*condition)
            action = clause.action
            if isinstance(action, DeleteAction):
                builder = begun.delete()
                continue
            verb = "update" if isinstance(action, UpdateAction) else "insert"
            if action.assignments is None:
                builder = getattr(begun, f"{verb}All")()
            else:
                values = {key: value(text) for key, text in mapping_of(sql, action.assignments).items()}
                builder = getattr(begun, verb)(values)
    return builder.merge()


def insert(lake: Session, sql: str, statement: InsertStatement) -> None:
    """`df.writeTo`, or `df.write.insertInto` for rows whose columns are not as many as the table's.

    Before 4.1 PySpark writes no fewer columns than the table has.
    """
    rows = lake.spark.sql(statement.query.text)
    name = full_name(sql[statement.target.span.start : statement.target.span.end])
    known = lake.spark.table(BRANCH.sub("", name)).columns
    columns = statement.columns or known
    if features_of("4.1") > INSTALLED_FEATURES and set(rows.columns if statement.by_name else columns) < set(known):
        lake.spark.sql(sql)
        return
    dynamic = lake.spark.conf.get(OVERWRITE_MODE, "static").lower() == "dynamic"
    if not statement.by_name and len(columns) != len(rows.columns):
        rows.write.insertInto(name, overwrite=statement.mode is InsertMode.OVERWRITE)
        return
    writer = (rows if statement.by_name else rows.toDF(*columns)).writeTo(name)
    for key, value in statement.options:
        writer = writer.option(key, value)
    if statement.mode is InsertMode.APPEND:
        writer.append()
    elif statement.mode is InsertMode.REPLACE_WHERE:
        assert statement.replace_where is not None
        writer.overwrite(expr(statement.replace_where.text))
    elif dynamic:
        writer.overwritePartitions()
    else:
        writer.overwrite(lit(True))
