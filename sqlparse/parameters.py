"""Parameter markers of a statement and their values. Pure; driver.

    ("SELECT * FROM t WHERE k = :k AND s = ?", ...)     ->     the same text with literals in the place of the markers

Markers are bound before the statement is read, so that a value prunes files like a literal does.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dml.errors import ErrorKind, SqlError
from dml.sqlparse.tokens import Kind, read_source

__all__ = ["bind_parameters"]


def bind_parameters(sql: str, args: Mapping[str, Any] | Sequence[Any] | None, literal: Callable[[Any], str]) -> str:
    """The statement with its markers replaced.

    Args:
        sql: The statement.
        args: Values by name, for `:name`, or in order, for `?`.
        literal: A value as SQL text.

    Raises:
        SqlError: a marker has no value, or there are more values than markers.
    """
    if not args:
        return sql
    source = read_source(sql)
    edits: list[tuple[int, int, str]] = []
    given = list(args) if not isinstance(args, Mapping) else []
    used = 0
    for index in range(source.end):
        token = source.tokens[index]
        if isinstance(args, Mapping):
            following = source.tokens[index + 1]
            if token.key == ":" and following.kind is Kind.WORD and token.end == following.start:
                name = source.text(index + 1)
                if name in args:
                    edits.append((token.start, following.end, literal(args[name])))
        elif token.key == "?":
            if used == len(given):
                raise SqlError(
                    f"The statement has more '?' than the {len(given)} values given",
                    sql=sql,
                    position=token.start,
                    kind=ErrorKind.ANALYSIS,
                    hint="Give one value for each '?'",
                )
            edits.append((token.start, token.end, literal(given[used])))
            used += 1
    if given and used < len(given):
        raise SqlError(
            f"{len(given)} values are given for {used} '?'",
            sql=sql,
            kind=ErrorKind.ANALYSIS,
            hint="Give one value for each '?'",
        )
    for start, end, text in reversed(edits):
        sql = sql[:start] + text + sql[end:]
    return sql
