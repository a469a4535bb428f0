"""PySpark Columns and Python values as SQL text, with the same meaning in the same session. Driver.

Input: a Column of classic PySpark or of Spark Connect. Output: SQL text. Spark's own `Column.sql` does not round-trip:
it omits quotes (`2020-01-01` becomes a subtraction) and writes operators as functions. So a reader walks the tree of
the Column: in the JVM (`dml.spark.classic_columns`), or in the client of Connect (`dml.spark_connect.columns`).

Input: a statement with `{name}` placeholders, and their values. Output: the text with SQL literals and the names of
temporary views instead, and the rows of these views.

    SELECT * FROM {rows} WHERE day = {day}    ->    SELECT * FROM __rowdelta_source_1f.. WHERE day = DATE '2026-11-01'
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from string import Formatter
from types import MappingProxyType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql.functions import lit

from dml.errors import AnalysisError, DmlError, ErrorKind
from dml.spark.bridge.gateway import Py4JError
from dml.spark.bridge.sessions import is_connect
from dml.spark.classic_columns import classic_sql
from dml.spark.foreign_data import ForeignRows, foreign_rows, is_foreign_data
from dml.spark_connect.columns import connect_sql
from dml.sqlparse import canonical_text

__all__ = [
    "FilledStatement",
    "StatementRows",
    "column_sql",
    "fill_placeholders",
    "parameter_sql",
    "statement_identity",
    "view_name",
]

NO_COLUMNS: Final[Mapping[int, tuple[str, ...]]] = MappingProxyType({})


def column_sql(column: Column, bound: Mapping[int, tuple[str, ...]] = NO_COLUMNS) -> str:
    """Convert a Column to SQL text with exactly the same meaning in the same session; drop a top-level alias.

    Args:
        column: A Column of classic PySpark or of Spark Connect.
        bound: The columns of the DataFrames to which it may be bound: names by expression id on classic PySpark,
            qualifiers by plan id on Spark Connect.

    Returns:
        SQL text that is valid anywhere in an expression.

    Raises:
        NotSupportedError: a part of it has no SQL text (a Python function, a window, a column bound to a DataFrame,
            a DataFrame as a subquery), or this version does not know it.
    """
    return connect_sql(column, bound) if is_connect(column) else classic_sql(column, bound)


def parameter_sql(value: Any) -> str:
    """Convert the value of a parameter to SQL text."""
    return column_sql(value if isinstance(value, Column) else lit(value))


def view_name() -> str:
    """Return a new name for the temporary view of a statement's source."""
    return f"__rowdelta_source_{uuid.uuid4().hex}"


StatementRows = DataFrame | ForeignRows
"""Rows that a statement refers to by a view name."""


def statement_identity(text: str, rows: Mapping[str, StatementRows]) -> str:
    """Return the text that identifies a statement for an idempotency key. Rows count by their columns, not by values.

    Args:
        text: The statement.
        rows: The rows that it names, by view.
    """
    for name in rows:
        text = text.replace(name, "?")
    return canonical_text(text) + "".join(f" DataFrame {each.schema.simpleString()}" for each in rows.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledStatement:
    """A statement whose placeholders are filled in.

    Attributes:
        text: The statement.
        rows: The rows of the placeholders, by view.
        placeholders: The placeholder that each view replaces, in braces, by view.
    """

    text: str
    rows: Mapping[str, StatementRows]
    placeholders: Mapping[str, str]

    @contextmanager
    def restore_placeholders(self) -> Iterator[None]:
        """Replace the generated view names in errors by the placeholders that the user wrote."""
        try:
            yield
        except DmlError as error:
            error.message = self._with_placeholders(error.message)
            error.hint = error.hint and self._with_placeholders(error.hint)
            if error.position is not None:
                start, end = error.position, error.position + error.length
                before, marked = (self._with_placeholders(part) for part in (error.sql[:start], error.sql[start:end]))
                error.point_at(self._with_placeholders(error.sql), len(before), len(before) + len(marked))
            raise

    def _with_placeholders(self, text: str) -> str:
        for view, placeholder in self.placeholders.items():
            text = text.replace(view, placeholder)
        return text


def fill_placeholders(text: str, values: Mapping[str, Any]) -> FilledStatement:
    """Fill in the placeholders of a statement.

    Args:
        text: The statement. Braces that are no placeholder are doubled, as in Python's `str.format`.
        values: DataFrames, data of other libraries, Columns and constants by name.

    Raises:
        AnalysisError: A placeholder has no value, or a value no placeholder.
        NotSupportedError: A Column has no SQL text.
    """
    formatter = StatementFormatter()
    try:
        filled = formatter.vformat(text, (), values)
        return FilledStatement(text=filled, rows=formatter.rows, placeholders=formatter.placeholders)
    except (ValueError, AttributeError, TypeError) as error:
        raise AnalysisError(
            f"The placeholders of the statement cannot be read: {error}",
            kind=ErrorKind.INVALID_VALUE,
            hint="Write a placeholder as {name}, and other braces twice, as {{ and }}",
        ) from error


class StatementFormatter(Formatter):
    """Formats values as SQL; `rows` and `placeholders` collect the rows that the statement names, by view."""

    def __init__(self) -> None:
        self.rows: dict[str, StatementRows] = {}
        self.placeholders: dict[str, str] = {}
        self._views: dict[int, str] = {}
        self._values: list[object] = []  # alive, because the views are known by the ids of their values

    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[str, int | str]:
        """Return the SQL text of a placeholder's value, and the name of the value."""
        try:
            value, name = super().get_field(field_name, args, kwargs)
        except (KeyError, IndexError) as error:
            raise AnalysisError(
                f"The placeholder {{{field_name}}} has no value",
                kind=ErrorKind.INVALID_VALUE,
                hint="Pass one by name, as sql(text, name=value), and write other braces twice, as {{ and }}",
            ) from error
        sql = self._sql(value)
        if sql in self.rows:
            self.placeholders.setdefault(sql, f"{{{field_name}}}")
        return sql, name

    def check_unused_args(self, used_args: set[int | str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Reject a value without a placeholder, which may be a misspelt argument.

        Raises:
            AnalysisError: A value has no placeholder.
        """
        for name in kwargs:
            if name not in used_args:
                raise AnalysisError(
                    f"sql() got a value '{name}', but the text has no placeholder {{{name}}}",
                    kind=ErrorKind.INVALID_VALUE,
                    hint="Values of :name and ? are given as args; other arguments are idempotency_key and reruns",
                )

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """Refuse a conversion, which would change the SQL text of the value.

        Raises:
            ValueError: There is one.
        """
        if conversion is not None:
            raise ValueError(f"'!{conversion}' is not supported")
        return value

    def format_field(self, value: Any, format_spec: str) -> Any:
        """Refuse a format, which would change the SQL text of the value.

        Raises:
            ValueError: There is one.
        """
        if format_spec:
            raise ValueError(f"':{format_spec}' is not supported")
        return value

    @staticmethod
    def _constant(value: object) -> str:
        try:
            return parameter_sql(value)
        except (PySparkException, Py4JError, AttributeError, TypeError) as error:
            raise AnalysisError(
                f"{type(value).__name__} has no SQL text: {error}",
                kind=ErrorKind.INVALID_VALUE,
                hint="Pass constants, Columns, DataFrames of Spark, pandas or Polars, or Arrow data",
            ) from error

    def _sql(self, value: object) -> str:
        if not isinstance(value, DataFrame) and not is_foreign_data(value):
            return self._constant(value)
        name = self._views.setdefault(id(value), view_name())
        self._values.append(value)
        if name not in self.rows:
            self.rows[name] = value if isinstance(value, DataFrame) else foreign_rows(value)
        return name
