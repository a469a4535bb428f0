"""`merge_into(...)`: a MERGE put together in Python, with the builder names of PySpark's `DataFrame.mergeInto`. Driver.

Input: names, SQL text, PySpark Columns. Output: the text of a MERGE statement, run like any other, so that the two ways
of saying it cannot mean different things.
"""

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Number

from pyspark.sql import Column, DataFrame

from dml.commit import CommitKey, IdempotencyKey
from dml.errors import AnalysisError, ErrorKind
from dml.result import Result
from dml.spark.columns import column_sql
from dml.spark.jvm import named_frames
from dml.sqlparse import canonical_text
from dml.sqlparse.quoting import quote_string, quoted

__all__ = [
    "Condition",
    "MergeBuilder",
    "Value",
    "WhenMatchedBuilder",
    "WhenNotMatchedBuilder",
    "alias_of",
    "assignments_text",
    "condition_text",
    "name_text",
    "source_of",
    "where_clause",
]

Condition = str | Column
Value = str | int | float | bool | None | Column


def condition_text(condition: object) -> str:
    """A condition as SQL text.

    Raises:
        AnalysisError: it is neither SQL text nor a Column.
    """
    if isinstance(condition, Column):
        return column_sql(condition)
    if isinstance(condition, bool):
        return "TRUE" if condition else "FALSE"
    if isinstance(condition, str):
        return condition
    raise AnalysisError(
        f"A condition is SQL text or a PySpark Column, not {type(condition).__name__}",
        kind=ErrorKind.INVALID_CONDITION,
        hint="Write it as \"id = 5\" or col('id') == 5",
    )


def name_text(table: object) -> str:
    """The name of a table, which a caller may have mistaken.

    Raises:
        AnalysisError: it is no text.
    """
    if not isinstance(table, str):
        raise AnalysisError(
            f"The name of a table is a text, not {type(table).__name__}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Write it as 'db.t'",
        )
    return table


def source_of(source: object) -> DataFrame | str:
    """The source of a MERGE, which a caller may have mistaken.

    Raises:
        AnalysisError: it is neither a DataFrame nor a text.
    """
    if isinstance(source, DataFrame | str):
        return source
    raise AnalysisError(
        f"The source of a MERGE is a DataFrame, a table's name or a query in parentheses, not {type(source).__name__}",
        kind=ErrorKind.INVALID_VALUE,
        hint="spark.createDataFrame(...) makes a DataFrame of rows",
    )


def alias_of(alias: object) -> str:
    """The alias of a source, which a caller may have mistaken.

    Raises:
        AnalysisError: it is no text, or an empty one.
    """
    if isinstance(alias, str) and alias:
        return alias
    given = "empty" if alias == "" else f"a text, not {type(alias).__name__}"
    raise AnalysisError(
        f"source_alias is {given}", kind=ErrorKind.INVALID_VALUE, hint="Give the name that the conditions use"
    )


def where_clause(condition: Condition | None) -> str:
    """A WHERE clause, or nothing."""
    if condition is None:
        return ""
    return f" WHERE {condition_text(condition)}"


def value_sql_text(value: object) -> str:
    """A value as SQL text: a string is an expression, a number, a truth value or None is itself.

    Raises:
        AnalysisError: it is another kind of value, whose text could mean something else (2020-01-31 is a difference).
    """
    if isinstance(value, Column):
        return column_sql(value)
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        return f"CAST({quote_string(repr(float(value)))} AS DOUBLE)"
    if isinstance(value, str | Number):
        return str(value)
    raise AnalysisError(
        f"A value is SQL text, a PySpark Column, a number, a truth value or None, not {type(value).__name__}",
        kind=ErrorKind.INVALID_ASSIGNMENT,
        hint="Give it as a Column, lit(value), or as SQL text such as \"DATE '2020-01-31'\"",
    )


def key_text(key: object) -> str:
    """A column or nested field as SQL text; what is not a plain dotted name must be quoted by the caller.

    Raises:
        AnalysisError: it is no text.
    """
    if not isinstance(key, str):
        raise AnalysisError(
            f"The name of a column is a text, not {type(key).__name__}",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            hint="Write it as 'column', or 'column.field' for a nested field",
        )
    return ".".join(quoted(part) for part in key.split(".")) if "`" not in key else key


def assignments_text(assignments: object) -> str:
    """A SET list.

    Raises:
        AnalysisError: there is no assignment, or it is none that can be written.
    """
    if not isinstance(assignments, Mapping):
        raise AnalysisError(
            f"The assignments are a mapping of columns to values, not {type(assignments).__name__}",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            hint="Give them as {'column': value}",
        )
    if not assignments:
        raise AnalysisError(
            "There is no assignment",
            kind=ErrorKind.INVALID_ASSIGNMENT,
            hint="Give at least one, as {'column': value}, or use updateAll() / insertAll()",
        )
    return ", ".join(f"{key_text(key)} = {value_sql_text(value)}" for key, value in assignments.items())


@dataclass(slots=True, kw_only=True)
class MergeBuilder:
    """A MERGE in the making; nothing runs before `merge()`.

    Attributes:
        run: Runs the statement's text.
        target: The table, as SQL text.
        source: A DataFrame, or SQL text of a table or of a query in parentheses.
        source_alias: How the conditions call the source.
        on: The ON condition.
        clauses: SQL text of the WHEN clauses so far.
        schema_evolution: Whether new columns of the source are added to the table.
    """

    run: Callable[[str, CommitKey | None], Result]
    target: str
    source: DataFrame | str
    source_alias: str
    on: Condition
    clauses: tuple[str, ...] = field(default=())
    schema_evolution: bool = False

    def whenMatched(self, condition: Condition | None = None) -> "WhenMatchedBuilder":  # noqa: N802 - PySpark's name
        """`WHEN MATCHED [AND condition] THEN` what is called next."""
        return WhenMatchedBuilder(builder=self, head=when_text("MATCHED", condition))

    def whenNotMatched(self, condition: Condition | None = None) -> "WhenNotMatchedBuilder":  # noqa: N802
        """`WHEN NOT MATCHED [AND condition] THEN` what is called next."""
        return WhenNotMatchedBuilder(builder=self, head=when_text("NOT MATCHED", condition))

    def whenNotMatchedBySource(  # noqa: N802
        self, condition: Condition | None = None
    ) -> "WhenMatchedBuilder":
        """`WHEN NOT MATCHED BY SOURCE [AND condition] THEN` what is called next."""
        return WhenMatchedBuilder(builder=self, head=when_text("NOT MATCHED BY SOURCE", condition))

    def withSchemaEvolution(self) -> "MergeBuilder":  # noqa: N802
        """Add columns of the source that the table lacks."""
        return self.replaced(schema_evolution=True)

    def replaced(self, *, clause: str | None = None, schema_evolution: bool | None = None) -> "MergeBuilder":
        """A builder with one more clause, or another setting."""
        return MergeBuilder(
            run=self.run,
            target=self.target,
            source=self.source,
            source_alias=self.source_alias,
            on=self.on,
            clauses=self.clauses if clause is None else (*self.clauses, clause),
            schema_evolution=self.schema_evolution if schema_evolution is None else schema_evolution,
        )

    def text(self, source: str) -> str:
        """The statement, over a source given as SQL text."""
        evolution = " WITH SCHEMA EVOLUTION" if self.schema_evolution else ""
        head = f"MERGE{evolution} INTO {self.target} USING {source} AS {quoted(self.source_alias)}"
        return "\n".join((head, f"ON {condition_text(self.on)}", *self.clauses))

    def merge(self, *, idempotency_key: str | None = None) -> Result:
        """Run it.

        Args:
            idempotency_key: Run it once only under this key; see `Session.sql`. A DataFrame counts by the names and
                types of its columns: which rows it has is not looked at.

        Raises:
            DmlError: as the SQL statement would.
        """
        key = None if idempotency_key is None else IdempotencyKey.of(idempotency_key, self.meaning())
        if isinstance(self.source, str):
            return self.run(self.text(self.source), key)
        return self.merge_rows(self.source, key)

    def merge_rows(self, rows: DataFrame, key: CommitKey | None) -> Result:
        """Run it over the rows of a DataFrame, whatever its source is.

        Args:
            rows: The rows.
            key: What keeps it from being applied twice.

        Raises:
            DmlError: as the SQL statement would.
        """
        view = f"__rowdelta_source_{uuid.uuid4().hex}"
        with named_frames(rows.sparkSession, {view: rows}):
            return self.run(self.text(view), key)

    def meaning(self) -> str:
        """What counts as the same statement: its text, with the columns of a DataFrame in the place of its name."""
        if isinstance(self.source, str):
            return canonical_text(self.text(self.source))
        return canonical_text(self.text("?")) + f" DataFrame {self.source.schema.simpleString()}"


def when_text(kind: str, condition: Condition | None) -> str:
    """The head of a WHEN clause."""
    return f"WHEN {kind}" + ("" if condition is None else f" AND ({condition_text(condition)})") + " THEN "


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenMatchedBuilder:
    """What is done with target rows: of WHEN MATCHED, and of WHEN NOT MATCHED BY SOURCE."""

    builder: MergeBuilder
    head: str

    def update(self, assignments: Mapping[str, Value]) -> MergeBuilder:
        """`UPDATE SET ...`: values are SQL text, Columns, numbers, truth values or None."""
        return self.builder.replaced(clause=f"{self.head}UPDATE SET {assignments_text(assignments)}")

    def updateAll(self) -> MergeBuilder:  # noqa: N802
        """`UPDATE SET *`."""
        return self.builder.replaced(clause=f"{self.head}UPDATE SET *")

    def delete(self) -> MergeBuilder:
        """`DELETE`."""
        return self.builder.replaced(clause=f"{self.head}DELETE")


@dataclass(frozen=True, slots=True, kw_only=True)
class WhenNotMatchedBuilder:
    """What is done with source rows that match no target row."""

    builder: MergeBuilder
    head: str

    def insert(self, assignments: Mapping[str, Value]) -> MergeBuilder:
        """`INSERT (...) VALUES (...)`: values are SQL text, Columns, numbers, truth values or None."""
        assignments_text(assignments)
        columns = ", ".join(key_text(key) for key in assignments)
        values = ", ".join(value_sql_text(value) for value in assignments.values())
        return self.builder.replaced(clause=f"{self.head}INSERT ({columns}) VALUES ({values})")

    def insertAll(self) -> MergeBuilder:  # noqa: N802
        """`INSERT *`."""
        return self.builder.replaced(clause=f"{self.head}INSERT *")
