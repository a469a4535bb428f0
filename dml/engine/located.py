"""Point an error at its place in the user's statement, and suggest what the user may have meant. Driver.

The code that raises an error rarely has the place: Spark's places refer to generated SQL, and code on tables and
columns never sees the text. The error's subject, however, is in the statement as written: a name, a function call, a
condition, a data type, a property. Every error of a statement passes here once, on its way out; the first of `FINDERS`
that finds a place decides.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.engine.engine import Engine
from dml.errors import AnalysisError, Clues, DataError, DmlError, ErrorKind, NotFoundError, clues_of
from dml.hints import did_you_mean, nearest
from dml.model.columns import INTERNAL_PREFIX, METADATA_COLUMNS
from dml.spark.bridge.gateway import Py4JError
from dml.spark.errors import failure_of
from dml.spark.handlers import names_without_namespace
from dml.sqlparse.cursor import unexpected
from dml.sqlparse.diagnosis import CLAUSES, diagnose_syntax, words_at
from dml.sqlparse.statements import (
    Assignment,
    ColumnReference,
    CreateTable,
    Explain,
    Fragment,
    InsertStatement,
    MergeStatement,
    Query,
    Span,
    Statement,
    TableReference,
    UnknownStatement,
)
from dml.sqlparse.tokens import read_source

__all__ = ["locate_error"]

Node = TypeVar("Node")

INTERNAL: Final = frozenset(METADATA_COLUMNS)
EXPLAIN: Final = "EXPLAIN "
ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
# A view of PySpark or RowDelta, with the alias that rendering may add; the statement has a table in its place.
VIEW: Final = re.compile(r"_(?:pyspark|_rowdelta)_\w*?[0-9a-f]{32}(?: AS (?:\w+|`(?:[^`]|``)+`))?")
TABLE_THERE: Final = r"[^\s()]+(?:\s+(?:AS\s+)?\w+)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A statement that failed.

    Attributes:
        error: Its error, without a place.
        statement: The statement.
        sql: Its text.
        engine: The session and its catalogs, for name lookup.
    """

    error: DmlError
    statement: Statement
    sql: str
    engine: Engine

    @property
    def clues(self) -> Clues:
        """The error's hints at its place."""
        return clues_of(self.error)

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the name that the error is about."""
        return self.clues.parts

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The fragments of the statement that Spark evaluates, in the order of the text."""
        if isinstance(self.statement, UnknownStatement):
            return (Fragment(text=self.sql, span=Span(0, len(self.sql))),)
        return tuple(sorted(parts_of(self.statement, Fragment), key=lambda fragment: fragment.span))


def locate_error(error: DmlError, statement: Statement, sql: str, engine: Engine) -> DmlError:
    """Point an error at its place in the statement if it is found, add suggestions for an unknown name, and return it.

    Args:
        error: Any error of the statement; Spark's are translated.
        statement: The statement.
        sql: Its text.
        engine: The session and its catalogs.
    """
    if error.position is not None:
        error.sql = error.sql or sql
        return error
    failed = Failed(error=error, statement=statement, sql=sql, engine=engine)
    with suppress(PySparkException, Py4JError):  # a failed lookup of names must not hide the error
        suggest_names(failed)
    place = next((span for find in FINDERS if (span := find(failed)) is not None), None)
    if place is not None:
        error.point_at(sql, place.start, place.end)
    elif isinstance(error, AnalysisError):
        error.sql = sql
    return error


# ---- places ---------------------------------------------------------------------------------------------------


def syntax_error_place(failed: Failed) -> Span | None:
    """Find where Spark's parser stopped, and add to the error what was expected there."""
    error = failed.error
    if error.kind is not ErrorKind.SYNTAX or failed.clues.place is None:
        return None
    offset = place_of_spark(failed)
    if offset is None:
        return None
    source = read_source(failed.sql)
    index = next((index for index in range(source.end) if source.tokens[index].end > offset), source.end)
    found = diagnose_syntax(source, index)
    error.message = unexpected(source, found.index)
    error.expected = found.expected
    error.hint = found.hint or error.hint
    token = source.tokens[found.index]
    return Span(token.start, token.end)


def place_of_spark(failed: Failed) -> int | None:
    """Return the offset in the statement at which Spark's parser stops.

    Spark rejected generated SQL, so it parses the statement itself again. RowDelta accepts MERGE clauses in more orders
    than Spark does, so of a MERGE only the conditions and values are parsed, one by one.
    """
    if isinstance(failed.statement, UnknownStatement):
        return None if failed.clues.place is None else offset_of(failed.sql, *failed.clues.place)
    if not isinstance(failed.statement, MergeStatement):
        return parser_stop(failed, "" if isinstance(failed.statement, Explain) else EXPLAIN, failed.sql, "")
    for fragment in failed.fragments:
        query = fragment.span in {part.span for part in (failed.statement.source, failed.statement.ctes) if part}
        before, after = ("SELECT * FROM ", "") if query else ("SELECT (", ")")
        offset = parser_stop(failed, EXPLAIN + before, fragment.text, after)
        if offset is not None:
            return fragment.span.start + offset
    return None


def parser_stop(failed: Failed, before: str, text: str, after: str) -> int | None:
    """Return the offset in a text at which Spark's parser stops when it reads the text between `before` and `after`.

    The SQL starts with EXPLAIN, so nothing runs.
    """
    try:
        failed.engine.spark.sql(before + text + after)
    except (PySparkException, Py4JError) as error:
        again = failure_of(error)
        if again.place is not None and again.condition.startswith("PARSE_"):
            return min(len(text), offset_of(before + text + after, *again.place) - len(before))
    return None


def offset_of(sql: str, line: int, column: int) -> int:
    """Return the offset of a line (from 1) and a column (from 0)."""
    return sum(len(text) for text in sql.splitlines(keepends=True)[: line - 1]) + column


def error_span(failed: Failed) -> Span | None:
    """Find the error's own span, or words in it that the error names."""
    if failed.error.span is None:
        return None
    span = Span(*failed.error.span)
    return subject_in(failed, span) or span


def named_column(failed: Failed) -> Span | None:
    """Find the column that an unresolved or ambiguous column error names."""
    if failed.error.kind not in {ErrorKind.UNRESOLVED_COLUMN, ErrorKind.AMBIGUOUS_COLUMN}:
        return None
    wanted = fold_case(failed.parts)
    for reference in parts_of(failed.statement, ColumnReference):
        written = fold_case(reference.parts)
        if wanted and written[-len(wanted) :] == wanted:
            return reference.span
    return in_fragments(failed, failed.parts)


def named_table(failed: Failed) -> Span | None:
    """Find the table that a not-found error names."""
    if not isinstance(failed.error, NotFoundError):
        return None
    tables = parts_of(failed.statement, TableReference)
    found = next((table.span for table in tables if fold_case(table.parts) == fold_case(failed.parts)), None)
    return found or in_fragments(failed, failed.parts)


def named_function(failed: Failed) -> Span | None:
    """Find the function that an unresolved function error names."""
    if failed.error.kind is not ErrorKind.UNRESOLVED_FUNCTION:
        return None
    return in_fragments(failed, failed.parts)


def quoted_by_spark(failed: Failed) -> Span | None:
    """Find the expression that Spark quotes: its text is the same in the statement and in the generated SQL."""
    quoted = failed.clues.fragment
    if not quoted:
        return None
    pattern = TABLE_THERE.join(re.escape(piece) for piece in VIEW.split(quoted))
    for fragment in failed.fragments:
        found = re.search(rf"(?<!\w){pattern}(?!\w)", fragment.text)
        if found is not None:
            return Span(fragment.span.start + found.start(), fragment.span.start + found.end())
    return None


def filter_of_query(failed: Failed) -> Span | None:
    """Find a query's condition that is not boolean: Spark points at the whole query, and quotes the condition."""
    condition = failed.clues.parameters.get("filter", "").strip('"')
    if not condition or not isinstance(failed.statement, Query | InsertStatement | CreateTable | Explain):
        return None
    source = read_source(failed.sql)
    wheres = (token.end for token in source.tokens if token.key in {"WHERE", "HAVING"})
    bare = condition.removeprefix("(").removesuffix(")") if condition.startswith("(") else condition
    places = (words_at(failed.sql, bare, Span(start, len(failed.sql))) for start in wheres)
    return next((place for place in places if place is not None), None)


def inside_of_quoted(failed: Failed) -> Span | None:
    """Find the condition inside the generated SQL that Spark quotes: a WHEN by its number, else the one at the end."""
    quoted, ordinal = failed.clues.fragment, failed.clues.parameters.get("paramIndex")
    branches = sorted(
        (quoted.index(branch), fragment.span)
        for fragment in failed.fragments
        if (branch := f"WHEN ({fragment.text}) THEN") in quoted
    )
    if ordinal in ORDINALS[: len(branches)]:
        return branches[ORDINALS.index(ordinal)][1]
    return next((fragment.span for fragment in failed.fragments if quoted.endswith(f" {fragment.text}")), None)


def only_subquery(failed: Failed) -> Span | None:
    """Find the subquery for an error that does not identify one, if the statement has only one."""
    if not failed.clues.condition.startswith(("SCALAR_SUBQUERY", "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY")):
        return None
    found = [fragment.span for fragment in failed.fragments if fragment.has_subquery]
    return found[0] if len(found) == 1 else None


def assigned_value(failed: Failed) -> Span | None:
    """Find the value assigned to the column that a row's error names."""
    column = failed.clues.column
    if not isinstance(failed.error, DataError) or column is None:
        return None
    names = column.lower().split(".")
    for assignment in parts_of(failed.statement, Assignment):
        if fold_case(assignment.key)[-len(names) :] == tuple(names) or fold_case(assignment.key)[-1] == names[0]:
            return assignment.value_span
    if isinstance(failed.statement, InsertStatement):
        listed = zip(failed.statement.columns, failed.statement.column_spans, strict=True)
        return next((span for name, span in listed if name.lower() == names[0]), None)
    return None


def named_after_head(failed: Failed) -> Span | None:
    """Find the words that the error names, after the name of the statement's table."""
    about = head(failed.statement)
    return subject_in(failed, Span(0 if about is None else about.end, len(failed.sql)))


def about_head(failed: Failed) -> Span | None:
    """Return the table or namespace that the statement is about, as the last resort."""
    about = head(failed.statement)
    if about is None or not isinstance(failed.error, AnalysisError):
        return None
    return subject_in(failed, about) or about


FINDERS: Final[tuple[Callable[[Failed], Span | None], ...]] = (
    syntax_error_place,
    error_span,
    named_column,
    named_table,
    named_function,
    filter_of_query,
    quoted_by_spark,
    inside_of_quoted,
    only_subquery,
    assigned_value,
    named_after_head,
    about_head,
)


def subject_in(failed: Failed, within: Span) -> Span | None:
    """Return the first place in a part of the statement that has words of the error."""
    places = (words_at(failed.sql, subject, within) for subject in failed.clues.subjects)
    return next((place for place in places if place is not None), None)


def in_fragments(failed: Failed, parts: tuple[str, ...]) -> Span | None:
    """Return the first place of a name in the fragments that Spark evaluates."""
    places = (words_at(failed.sql, ".".join(parts), fragment.span) for fragment in failed.fragments if parts)
    return next((place for place in places if place is not None), None)


def head(statement: Any) -> Span | None:
    """Return the place of the name of the table or namespace that a statement is about."""
    if isinstance(statement, Explain):
        return head(statement.statement)
    about = getattr(statement, "target", None) or getattr(statement, "table", None)
    span = about.span if isinstance(about, TableReference) else getattr(statement, "span", None)
    return span if isinstance(span, Span) else None


# ---- suggestions ----------------------------------------------------------------------------------------------


def suggest_names(failed: Failed) -> None:
    """Add suggestions for the unknown name to the error."""
    error = failed.error
    if not failed.parts:
        return
    if error.kind is ErrorKind.UNRESOLVED_COLUMN:
        # Spark proposes only columns that the statement reads.
        proposals = [name for name in failed.clues.proposals if not is_internal(name.rpartition(".")[2])]
        error.hint = columns_hint(failed, proposals) or error.hint
    elif error.kind is ErrorKind.UNRESOLVED_FUNCTION:
        error.hint = nearest(failed.parts[-1], functions_of(failed.engine.spark))
    elif isinstance(error, NotFoundError) and error.hint is None:
        others = names_without_namespace(failed.engine.spark) if len(failed.parts) == 1 else []
        error.hint = failed.engine.registry.suggestion(failed.parts, [name for name in others if not is_internal(name)])


def columns_hint(failed: Failed, proposals: Sequence[str]) -> str | None:
    """Suggest similar columns for an unknown one; for an unknown field of a struct, similar fields."""
    name, known = failed.parts[-1], list(columns_of(failed))
    if name.upper() in CLAUSES:
        return f"{name.upper()} was read as the name of a column: something is missing before it"
    if failed.clues.condition.startswith("FIELD_NOT_FOUND"):
        return nearest(name, [*proposals, *known]) or did_you_mean(name, proposals)
    return did_you_mean(name, [*known, *proposals]) if known or proposals else None


def columns_of(failed: Failed) -> Iterator[str]:
    """Yield the columns of the RowDelta tables that the statement names."""
    for reference in parts_of(failed.statement, TableReference):
        resolved = failed.engine.registry.resolve(reference.parts)
        if resolved is not None:
            yield from (field.name for field in resolved.table.schema().fields)


def functions_of(spark: SparkSession) -> list[str]:
    """Return the names of all functions except operators."""
    names = (str(row[0]).rpartition(".")[2] for row in spark.sql("SHOW FUNCTIONS").collect())
    return [name for name in names if name.isidentifier()]


def is_internal(name: str) -> bool:
    """Return whether a column is RowDelta's, not the user's."""
    return name in INTERNAL or name.startswith(INTERNAL_PREFIX)


def fold_case(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(part.lower() for part in parts)


def parts_of(node: Any, kind: type[Node]) -> Iterator[Node]:
    """Yield all nodes of a type in a statement, in the order of its fields."""
    if isinstance(node, kind):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from parts_of(item, kind)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from parts_of(getattr(node, field.name), kind)
