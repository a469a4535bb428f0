"""Stars in the select list of a query. Pure; driver.

SELECT *, _pos FROM t      with `_pos` a column of the view that stands for t      ->      SELECT * EXCEPT (_pos), _pos
"""

from collections.abc import Sequence

from dml.sqlparse.tokens import read_source

__all__ = ["stars_without"]

BEFORE = frozenset({"SELECT", "DISTINCT", "ALL", ",", "."})
AFTER = frozenset({",", "FROM", ")", "WHERE", "", "EXCEPT"})


def stars_without(query: str, names: Sequence[str]) -> str:
    """A query with one SELECT, its stars not standing for certain columns.

    Args:
        query: The query; one with several SELECTs comes back as it is, for a star may not see the columns there.
        names: The columns, as they may stand in SQL.
    """
    source = read_source(query)
    if not names or sum(source.tokens[index].key == "SELECT" for index in range(source.end)) != 1:
        return query
    listed = ", ".join(names)
    edits: list[tuple[int, str]] = []
    for index in range(1, source.end):
        token, following = source.tokens[index], source.tokens[index + 1]
        if token.key != "*" or source.tokens[index - 1].key not in BEFORE or following.key not in AFTER:
            continue
        if following.key == "EXCEPT" and source.tokens[index + 2].key == "(":
            edits.append((source.tokens[index + 2].end, f"{listed}, "))
        elif following.key != "EXCEPT":
            edits.append((token.end, f" EXCEPT ({listed})"))
    for place, text in reversed(edits):
        query = query[:place] + text + query[place:]
    return query
