"""A statement's text without what does not count: two texts that differ in white space and comments alone are one.

Input: a statement. Output: its tokens with one blank between them. Pure; driver.

Hints are comments too: they say how a statement runs, not what it does. Nothing else is taken away: words keep their
case, because it may count.
"""

from dml.sqlparse.tokens import read_source

__all__ = ["canonical_text"]


def canonical_text(sql: str) -> str:
    r"""The tokens of a statement, up to its final semicolon.

    >>> canonical_text("DELETE  FROM db.t -- all\n;")
    'DELETE FROM db . t'
    """
    source = read_source(sql)
    return " ".join(source.text(index) for index in range(source.end))
