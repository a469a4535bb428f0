r"""Quote and unquote names and strings in SQL text as Spark does. Pure; driver.

    a name     ->  quoted: `a name`          `a name`  ->  unquoted: a name
    it's       ->  quote_string: 'it\'s'     'it\'s', "it's", r'it', 'it''s'  ->  string_value

Spark applies these escapes wherever the grammar requires a string (comments, properties, locations). In expressions
`spark.sql.parser.escapedStringLiterals` may turn them off; then conditions are not analyzed
(`StatementSettings.trees`). Source: Spark's `SparkParserUtils.unescapeSQLString`.
"""

import re
from collections.abc import Iterable

__all__ = ["quote_identifier", "quote_name", "quote_string", "quoted", "quoted_parts", "string_value", "unquoted"]

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
# Words that Spark does not accept as an alias, and words that would begin the next clause.
RESERVED_WORDS = """
ALL AND ANTI ANY AS ASC BETWEEN BOTH BY CASE CAST CHECK COLLATE COLUMN CONSTRAINT CREATE CROSS
CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DELETE DESC DISTINCT ELSE END ESCAPE EXCEPT
EXISTS FALSE FETCH FILTER FOR FOREIGN FROM FULL FUNCTION GRANT GROUP HAVING IN INNER INSERT
INTERSECT INTERVAL INTO IS JOIN LATERAL LEADING LEFT LIKE LIMIT MERGE MINUS NATURAL NOT NULL OFFSET
ON ONLY OR ORDER OUTER OVERLAPS PIVOT PRIMARY QUALIFY REFERENCES RIGHT SELECT SEMI SESSION_USER SET
SETMINUS SOME SORT TABLE TABLESAMPLE THEN TIME TO TRAILING TRUE UNION UNIQUE UNKNOWN UNPIVOT UPDATE
USER USING VALUES WHEN WHERE WINDOW WITH WITHIN
"""
RESERVED = frozenset(RESERVED_WORDS.split())
NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")
ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[01][0-7]{2}|.)", re.DOTALL)
HALF = re.compile("([\ud800-\udbff])([\udc00-\udfff])|[\ud800-\udfff]")
ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def quoted(name: str) -> str:
    """Return a name in backquotes, which is valid in any position, even if it is a reserved word."""
    return "`" + name.replace("`", "``") + "`"


def quote_identifier(name: str) -> str:
    """Return a name in backquotes if it needs them: if it is not plain, or is a reserved word."""
    return name if PLAIN.match(name) and name.upper() not in RESERVED else quoted(name)


def quote_name(parts: Iterable[str]) -> str:
    """Return a dotted name, each part in backquotes if it needs them."""
    return ".".join(quote_identifier(part) for part in parts)


def unquoted(text: str) -> str:
    """Return a name without the backquotes that it may have."""
    return text[1:-1].replace("``", "`") if text[:1] == "`" else text


def quoted_parts(text: str) -> tuple[str, ...]:
    """Split a dotted name that Spark quoted: "`t`.`a.b`" is `("t", "a.b")`."""
    return tuple(inner.replace("``", "`") or bare for inner, bare in NAME_PART.findall(text))


def quote_string(text: str) -> str:
    """Return a text as a string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def string_value(literal: str) -> str:
    r"""Return the value that Spark reads from a string literal.

    Args:
        literal: The literal with its quotes: `'it''s'`, `"a\n"`, `r'\d'`, `$tag$...$tag$`.
    """
    if literal[0] in "rR":
        return literal[2:-1]
    if literal[0] == "$":
        tag = literal.index("$", 1) + 1
        return literal[tag:-tag]
    value = ESCAPE.sub(unescape, undouble(literal))
    return HALF.sub(join_halves, value) if HALF.search(value) else value


def undouble(literal: str) -> str:
    # A doubled quote counts as one, unless the first of the two is itself escaped.
    quote = literal[0]
    return re.sub(rf"(\\.)|{quote}{quote}", lambda match: match[1] or quote, literal[1:-1], flags=re.DOTALL)


def unescape(match: re.Match[str]) -> str:
    body = match[1]
    if body[0] in "uU" and len(body) > 1:
        code = int(body[1:], 16)
        if code <= 0xFFFF:
            return chr(code)
        # The two UTF-16 surrogates as Java computes them, even if there is no such character.
        high, low = divmod(code - 0x10000, 0x400)
        return chr((high + 0xD800) & 0xFFFF) + chr(low + 0xDC00)
    if len(body) == 3:
        return chr(int(body, 8))
    return ESCAPES.get(body, body)


def join_halves(match: re.Match[str]) -> str:
    # Two escapes may be the surrogates of one character. Java encodes a lone surrogate as a question mark.
    if match[1] is None:
        return "?"
    return chr(0x10000 + (ord(match[1]) - 0xD800) * 0x400 + ord(match[2]) - 0xDC00)
