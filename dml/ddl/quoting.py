"""Names and strings in SQL text, as Spark writes and reads them. Pure; driver."""

import re
from collections.abc import Iterable

__all__ = ["quote_identifier", "quote_name", "quote_string", "unquote_string"]

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
ESCAPE = re.compile(r"""\\(u[0-9a-fA-F]{4}|[0-3][0-7]{2}|.)|''|\"\"""", re.DOTALL)
ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def quote_identifier(name: str) -> str:
    """One name, in backquotes where it needs them."""
    return name if PLAIN.match(name) else "`" + name.replace("`", "``") + "`"


def quote_name(parts: Iterable[str]) -> str:
    """A dotted name, each part in backquotes where it needs them."""
    return ".".join(quote_identifier(part) for part in parts)


def quote_string(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def unquote_string(literal: str) -> str:
    """The value of a string literal with its quotes: backslash escapes, and the quote written twice."""
    twice = literal[0] * 2

    def value(match: re.Match[str]) -> str:
        if match[0] == twice:
            return literal[0]
        code = match[1]
        if code is None:
            return match[0]
        if len(code) == 5:
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if len(code) == 3 else ESCAPED.get(code, code)

    return ESCAPE.sub(value, literal[1:-1])
