r"""Names and strings in SQL text, written and read as Spark does. Pure; driver.

    a name     ->  quoted: `a name`          `a name`  ->  unquoted: a name
    it's       ->  quote_string: 'it\'s'     'it\'s', "it's", r'it', 'it''s'  ->  string_value

Spark reads the escapes of a string by these rules wherever the grammar asks for a string (comments, properties,
locations). In expressions `spark.sql.parser.escapedStringLiterals` may turn them off; then conditions are not analysed
(`StatementSettings.trees`). Source: Spark's `SparkParserUtils.unescapeSQLString`.
"""

import re
from collections.abc import Iterable

__all__ = ["quote_identifier", "quote_name", "quote_string", "quoted", "quoted_parts", "string_value", "unquoted"]

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
# Words that Spark does not take as an alias, and words that read as the next clause.
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
    """A name in backquotes: it stands anywhere, whatever words are reserved."""
    return "`" + name.replace("`", "``") + "`"


def quote_identifier(name: str) -> str:
    """A name as it may stand in a statement: in backquotes unless it is plain and no reserved word."""
    return name if PLAIN.match(name) and name.upper() not in RESERVED else quoted(name)


def quote_name(parts: Iterable[str]) -> str:
    """A dotted name, each part in backquotes where it needs them."""
    return ".".join(quote_identifier(part) for part in parts)


def unquoted(text: str) -> str:
    """The name that a text is, with or without backquotes."""
    return text[1:-1].replace("``", "`") if text[:1] == "`" else text


def quoted_parts(text: str) -> tuple[str, ...]:
    """The parts of a dotted name as Spark quotes it: "`t`.`a.b`" is `("t", "a.b")`."""
    return tuple(inner.replace("``", "`") or bare for inner, bare in NAME_PART.findall(text))


def quote_string(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def string_value(literal: str) -> str:
    r"""The value of a string literal as Spark reads it.

    Args:
        literal: The text, quotes and all: `'it''s'`, `"a\n"`, `r'\d'`, `$tag$...$tag$`.

    Returns:
        The value.
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
        # The two halves that UTF-16 has for it, as Java computes them, even where there is no such character.
        high, low = divmod(code - 0x10000, 0x400)
        return chr((high + 0xD800) & 0xFFFF) + chr(low + 0xDC00)
    if len(body) == 3:
        return chr(int(body, 8))
    return ESCAPES.get(body, body)


def join_halves(match: re.Match[str]) -> str:
    # Two escapes may be the halves of one character; a half alone is none.
    if match[1] is None:
        return "?"
    return chr(0x10000 + (ord(match[1]) - 0xD800) * 0x400 + ord(match[2]) - 0xDC00)
