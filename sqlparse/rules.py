"""Rules of syntax that are about a statement as a whole. Pure; driver.

Input: parts of a statement that were read. Output: nothing, or a `SqlError` at the part that breaks a rule. What
needs the table's schema (is this column there?) is decided later.
"""

from dml.errors import ErrorKind
from dml.sqlparse.cursor import Cursor
from dml.sqlparse.statements import (
    Assignment,
    Span,
    TableReference,
    WhenMatched,
    WhenNotMatched,
    WhenNotMatchedBySource,
)

__all__ = ["check_assignments", "check_last_without_condition", "check_some_clause"]


def check_assignments(cursor: Cursor, target: TableReference, assignments: tuple[Assignment, ...]) -> None:
    """No column is assigned twice, and no field together with the struct that holds it.

    Names are compared without regard to case, unless the cursor says that case counts.

    Raises:
        SqlError: At the second of the two keys.
    """
    seen: dict[tuple[str, ...], Assignment] = {}
    for assignment in assignments:
        path = _unqualified(target, assignment.key)
        if not cursor.case_sensitive:
            path = tuple(part.lower() for part in path)
        if path in seen:
            _fail(cursor, assignment.key_span, f"Multiple assignments for '{_shown(target, assignment.key)}'")
        for other, before in seen.items():
            shared = min(len(other), len(path))
            if other[:shared] == path[:shared]:
                shorter = before.key if len(other) < len(path) else assignment.key
                _fail(cursor, assignment.key_span, f"Conflicting assignments for '{_shown(target, shorter)}'")
        seen[path] = assignment


def check_last_without_condition(
    cursor: Cursor, kind: str, clauses: tuple[WhenMatched | WhenNotMatched | WhenNotMatchedBySource, ...]
) -> None:
    """Only the last WHEN clause of a kind may do without a condition: those after it would never apply.

    Raises:
        SqlError: At the clause without a condition that is not the last one.
    """
    for clause in clauses[:-1]:
        if clause.condition is None:
            cursor.fail_at(
                clause.span,
                f"Only the last WHEN {kind} clause may omit its condition",
                hint="Give this clause a condition (AND ...) or put it after the others of its kind.",
            )


def check_some_clause(cursor: Cursor, count: int) -> None:
    """MERGE has at least one WHEN clause.

    Raises:
        SqlError: At the end of the statement.
    """
    if count == 0:
        cursor.fail("There must be at least one WHEN clause in a MERGE statement", expected="WHEN")


def _unqualified(target: TableReference, key: tuple[str, ...]) -> tuple[str, ...]:
    lowered = tuple(part.lower() for part in key)
    names = tuple(part.lower() for part in ((target.alias,) if target.alias else target.parts))
    for length in range(min(len(names), len(key) - 1), 0, -1):
        if lowered[:length] == names[-length:]:
            return key[length:]
    return key


def _shown(target: TableReference, key: tuple[str, ...]) -> str:
    return ".".join(_unqualified(target, key))


def _fail(cursor: Cursor, span: Span, message: str) -> None:
    cursor.fail_at(span, message, kind=ErrorKind.INVALID_ASSIGNMENT, hint="Assign each column once.")
