"""Errors of Spark about names, with their place in the user's statement. Driver.

Spark sees generated SQL, so its own places mean nothing to the user; the name that it complains of stands in the
statement as written.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from dml.errors import AnalysisError, DmlError, ErrorKind
from dml.model.columns import INTERNAL_PREFIX, METADATA_COLUMNS
from dml.sqlparse.statements import ColumnReference, Fragment, Span, Statement, TableReference
from dml.suggestions import did_you_mean

__all__ = ["located", "tables_named"]

INTERNAL = frozenset(METADATA_COLUMNS)
NAME_KINDS = (ErrorKind.UNRESOLVED_COLUMN, ErrorKind.AMBIGUOUS_COLUMN)


def located(error: DmlError, statement: Statement, text: str, columns: Callable[[], Sequence[str]]) -> DmlError:
    """The error, pointing at the statement where that can be told.

    Args:
        error: A translated error of Spark.
        statement: The statement.
        text: Its text.
        columns: Gives the columns of the tables that the statement names.
    """
    span = error.context.get("span")
    if isinstance(error, AnalysisError):
        error.sql = text
        if isinstance(span, Span):
            error.position, error.length = span.start, span.end - span.start
        elif error.kind in NAME_KINDS:
            point_at_name(error, statement, columns())
    return error


def point_at_name(error: AnalysisError, statement: Statement, columns: Sequence[str]) -> None:
    """Give an error about a name the place of that name, and proposals without columns of our own."""
    wanted = tuple(part.lower() for part in error.context.get("parts", ()))
    for reference in references(statement):
        written = tuple(part.lower() for part in reference.parts)
        if written == wanted or written[-len(wanted) :] == wanted:
            error.position, error.length = reference.span.start, reference.span.end - reference.span.start
            break
    # Spark knows only the columns that the statement reads, so its own proposals are few.
    proposals = [name for name in error.context.get("proposals", ()) if not is_internal(name.rpartition(".")[2])]
    known = list(dict.fromkeys([*columns, *proposals]))
    if error.kind is ErrorKind.UNRESOLVED_COLUMN and known:
        error.hint = did_you_mean(error.context["parts"][-1], known)


def is_internal(name: str) -> bool:
    """Whether a column is none of the user's."""
    return name in INTERNAL or name.startswith(INTERNAL_PREFIX)


def references(node: Any) -> Iterator[ColumnReference]:
    """All column references of a statement, in the order of its parts."""
    if isinstance(node, Fragment):
        yield from node.columns
    elif isinstance(node, tuple):
        for item in node:
            yield from references(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from references(getattr(node, field.name))


def tables_named(node: Any) -> Iterator[TableReference]:
    """All table references of a statement."""
    if isinstance(node, TableReference):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from tables_named(item)
    elif is_dataclass(node) and not isinstance(node, type):
        for field in fields(node):
            yield from tables_named(getattr(node, field.name))
