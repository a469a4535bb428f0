"""The place of an error in the user's statement, and what could have been meant there. Driver.

Whoever raises an error knows what is wrong, and seldom where it was written: Spark sees generated SQL, so its own
places mean nothing to the user, and code on tables and columns never sees the text. What is complained of stands in the
statement as written, though: a name, a function's call, a condition, a data type, a property. Every error of a
statement passes here once, on its way out; the first of `FINDERS` that knows its place decides.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, TypeVar

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.engine.engine import Engine
from dml.errors import AnalysisError, Clues, DataError, DmlError, ErrorKind, NotFoundError, clues_of
from dml.hints import did_you_mean, nearest
from dml.model.columns import INTERNAL_PREFIX, METADATA_COLUMNS
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

__all__ = ["located"]

Node = TypeVar("Node")

INTERNAL: Final = frozenset(METADATA_COLUMNS)
EXPLAIN: Final = "EXPLAIN "
ORDINALS: Final = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")
# A view of PySpark's or ours, with the alias that rendering may have given it; in the statement a table stands there.
VIEW: Final = re.compile(r"_(?:pyspark|_rowdelta)_\w*?[0-9a-f]{32}(?: AS (?:\w+|`(?:[^`]|``)+`))?")
TABLE_THERE: Final = r"[^\s()]+(?:\s+(?:AS\s+)?\w+)?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A statement that failed.

    Attributes:
        error: Its error, without a place.
        statement: The statement.
        sql: Its text.
        engine: The session and its catalogs, to look names up with.
    """

    error: DmlError
    statement: Statement
    sql: str
    engine: Engine

    @property
    def clues(self) -> Clues:
        """What the error says of its place."""
        return clues_of(self.error)

    @property
    def parts(self) -> tuple[str, ...]:
        """The name that the error is about."""
        return self.clues.parts

    @property
    def fragments(self) -> tuple[Fragment, ...]:
        """The pieces of the statement that Spark evaluates, in the order in which they stand."""
        if isinstance(self.statement, UnknownStatement):
            return (Fragment(text=self.sql, span=Span(0, len(self.sql))),)
        return tuple(sorted(parts_of(self.statement, Fragment), key=lambda fragment: fragment.span))


def located(error: DmlError, statement: Statement, sql: str, engine: Engine) -> DmlError:
    """The error, pointing at the statement where the place is known, and naming what is near a name that is not there.

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
    with suppress(PySparkException, Py4JError):  # looking names up must not hide what went wrong
        advise(failed)
    place = next((span for find in FINDERS if (span := find(failed)) is not None), None)
    if place is not None:
        error.point_at(sql, place.start, place.end)
    elif isinstance(error, AnalysisError):
        error.sql = sql
    return error


# ---- where ----------------------------------------------------------------------------------------------------


def unread_text(failed: Failed) -> Span | None:
    """Where Spark's parser stopped; what was expected there becomes part of the error."""
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
    """The offset in the statement at which Spark stops to read it.

    What Spark refused was generated, so it is asked to read the statement itself. Of the order of MERGE's clauses more
    is allowed here than there, so for MERGE it is asked to read the conditions and values, one by one.
    """
    if isinstance(failed.statement, UnknownStatement):
        return None if failed.clues.place is None else offset_of(failed.sql, *failed.clues.place)
    if not isinstance(failed.statement, MergeStatement):
        return stopped_at(failed, "" if isinstance(failed.statement, Explain) else EXPLAIN, failed.sql, "")
    for fragment in failed.fragments:
        query = fragment.span in {part.span for part in (failed.statement.source, failed.statement.ctes) if part}
        before, after = ("SELECT * FROM ", "") if query else ("SELECT (", ")")
        offset = stopped_at(failed, EXPLAIN + before, fragment.text, after)
        if offset is not None:
            return fragment.span.start + offset
    return None


def stopped_at(failed: Failed, before: str, text: str, after: str) -> int | None:
    """The offset in a text at which Spark stops to read it between two others; EXPLAIN runs nothing."""
    try:
        failed.engine.spark.sql(before + text + after)
    except (PySparkException, Py4JError) as error:
        again = failure_of(error)
        if again.place is not None and again.condition.startswith("PARSE_"):
            return min(len(text), offset_of(before + text + after, *again.place) - len(before))
    return None


def offset_of(sql: str, line: int, column: int) -> int:
    """The offset of a line, from 1, and a column, from 0."""
    return sum(len(text) for text in sql.splitlines(keepends=True)[: line - 1]) + column


def part_at_hand(failed: Failed) -> Span | None:
    """The part of the statement that was worked on, or the words in it that the error names."""
    if failed.error.span is None:
        return None
    span = Span(*failed.error.span)
    return subject_in(failed, span) or span


def named_column(failed: Failed) -> Span | None:
    """The column of an error about a column's name."""
    if failed.error.kind not in {ErrorKind.UNRESOLVED_COLUMN, ErrorKind.AMBIGUOUS_COLUMN}:
        return None
    wanted = folded(failed.parts)
    for reference in parts_of(failed.statement, ColumnReference):
        written = folded(reference.parts)
        if wanted and written[-len(wanted) :] == wanted:
            return reference.span
    return in_fragments(failed, failed.parts)


def named_table(failed: Failed) -> Span | None:
    """The table of an error about a table's name."""
    if not isinstance(failed.error, NotFoundError):
        return None
    tables = parts_of(failed.statement, TableReference)
    found = next((table.span for table in tables if folded(table.parts) == folded(failed.parts)), None)
    return found or in_fragments(failed, failed.parts)


def named_function(failed: Failed) -> Span | None:
    """The function of an error about a function's name."""
    if failed.error.kind is not ErrorKind.UNRESOLVED_FUNCTION:
        return None
    return in_fragments(failed, failed.parts)


def quoted_by_spark(failed: Failed) -> Span | None:
    """The expression that Spark points at: it stands in the statement as it stands in the generated SQL."""
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
    """The condition of a query that is no condition: Spark points at the whole query, and quotes the condition."""
    condition = failed.clues.parameters.get("filter", "").strip('"')
    if not condition or not isinstance(failed.statement, Query | InsertStatement | CreateTable | Explain):
        return None
    source = read_source(failed.sql)
    wheres = (token.end for token in source.tokens if token.key in {"WHERE", "HAVING"})
    bare = condition.removeprefix("(").removesuffix(")") if condition.startswith("(") else condition
    places = (words_at(failed.sql, bare, Span(start, len(failed.sql))) for start in wheres)
    return next((place for place in places if place is not None), None)


def inside_of_quoted(failed: Failed) -> Span | None:
    """The condition inside of the generated SQL that Spark points at: a WHEN of it by its number, else its end."""
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
    """The subquery of an error about one that does not say which: found only where there is no other."""
    if not failed.clues.condition.startswith(("SCALAR_SUBQUERY", "INVALID_SUBQUERY_EXPRESSION.SCALAR_SUBQUERY")):
        return None
    found = [fragment.span for fragment in failed.fragments if fragment.has_subquery]
    return found[0] if len(found) == 1 else None


def assigned_value(failed: Failed) -> Span | None:
    """The value of the column that an error about a row names."""
    column = failed.clues.column
    if not isinstance(failed.error, DataError) or column is None:
        return None
    names = column.lower().split(".")
    for assignment in parts_of(failed.statement, Assignment):
        if folded(assignment.key)[-len(names) :] == tuple(names) or folded(assignment.key)[-1] == names[0]:
            return assignment.value_span
    if isinstance(failed.statement, InsertStatement):
        listed = zip(failed.statement.columns, failed.statement.column_spans, strict=True)
        return next((span for name, span in listed if name.lower() == names[0]), None)
    return None


def named_after_head(failed: Failed) -> Span | None:
    """The words that the error names, after the name of the table that the statement is about."""
    about = head(failed.statement)
    return subject_in(failed, Span(0 if about is None else about.end, len(failed.sql)))


def about_head(failed: Failed) -> Span | None:
    """The table or namespace that the statement is about: what is wrong there has to do with it."""
    about = head(failed.statement)
    if about is None or not isinstance(failed.error, AnalysisError):
        return None
    return subject_in(failed, about) or about


FINDERS: Final[tuple[Callable[[Failed], Span | None], ...]] = (
    unread_text,
    part_at_hand,
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
    """The first place in a part of the statement where words of the error stand."""
    places = (words_at(failed.sql, subject, within) for subject in failed.clues.subjects)
    return next((place for place in places if place is not None), None)


def in_fragments(failed: Failed, parts: tuple[str, ...]) -> Span | None:
    """The first place of a name in what Spark evaluates."""
    places = (words_at(failed.sql, ".".join(parts), fragment.span) for fragment in failed.fragments if parts)
    return next((place for place in places if place is not None), None)


def head(statement: Any) -> Span | None:
    """The name of the table or namespace that a statement is about."""
    if isinstance(statement, Explain):
        return head(statement.statement)
    about = getattr(statement, "target", None) or getattr(statement, "table", None)
    span = about.span if isinstance(about, TableReference) else getattr(statement, "span", None)
    return span if isinstance(span, Span) else None


# ---- what was meant -------------------------------------------------------------------------------------------


def advise(failed: Failed) -> None:
    """Name what is near to the name that is not there."""
    error = failed.error
    if not failed.parts:
        return
    if error.kind is ErrorKind.UNRESOLVED_COLUMN:
        # Spark knows only the columns that the statement reads, so its own proposals are few.
        proposals = [name for name in failed.clues.proposals if not is_internal(name.rpartition(".")[2])]
        error.hint = columns_hint(failed, proposals) or error.hint
    elif error.kind is ErrorKind.UNRESOLVED_FUNCTION:
        error.hint = nearest(failed.parts[-1], functions_of(failed.engine.spark))
    elif isinstance(error, NotFoundError) and error.hint is None:
        others = names_without_namespace(failed.engine.spark) if len(failed.parts) == 1 else []
        error.hint = failed.engine.registry.proposal(failed.parts, others)


def columns_hint(failed: Failed, proposals: Sequence[str]) -> str | None:
    """The columns that are near to one that is not there; for a field of a struct, the struct's fields."""
    name, known = failed.parts[-1], list(columns_of(failed))
    if name.upper() in CLAUSES:
        return f"{name.upper()} was read as the name of a column: something is missing before it"
    if failed.clues.condition.startswith("FIELD_NOT_FOUND"):
        return nearest(name, [*proposals, *known]) or did_you_mean(name, proposals)
    return did_you_mean(name, [*known, *proposals]) if known or proposals else None


def columns_of(failed: Failed) -> Iterator[str]:
    """The columns of our tables that the statement names."""
    for reference in parts_of(failed.statement, TableReference):
        resolved = failed.engine.registry.resolve(reference.parts)
        if resolved is not None:
            yield from (field.name for field in resolved.table.schema().fields)


def functions_of(spark: SparkSession) -> list[str]:
    """The names of all functions; those that are written as operators left out."""
    names = (str(row[0]).rpartition(".")[2] for row in spark.sql("SHOW FUNCTIONS").collect())
    return [name for name in names if name.isidentifier()]


def is_internal(name: str) -> bool:
    """Whether a column is none of the user's."""
    return name in INTERNAL or name.startswith(INTERNAL_PREFIX)


def folded(parts: tuple[str, ...]) -> tuple[str, ...]:
    """A name as it is compared."""
    return tuple(part.lower() for part in parts)


def parts_of(node: Any, kind: type[Node]) -> Iterator[Node]:
    """All parts of a kind in a statement, in the order of its fields."""
    if isinstance(node, kind):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from parts_of(item, kind)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from parts_of(getattr(node, field.name), kind)
