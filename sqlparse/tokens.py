"""Split a statement into tokens by the rules of Spark's lexer. Pure; driver.

Input: the text of a statement. Output: `Source`, its tokens with exact offsets, matched brackets and CASE ... END.
Reading never fails: an error is stored in `Source.problem`, because a statement that RowDelta does not execute goes to
Spark even if it is invalid. Spark's lexer is small and its keywords are plain words, so this module follows it exactly
(nested comments, doubled quotes, raw and dollar strings, `1L`, identifiers that start with a digit). The tokenizer of
sqlglot joins words, splits numbers and has no exact offsets.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from dml.errors import SqlError
from dml.sqlparse.quoting import unquoted

__all__ = [
    "Source",
    "Token",
    "TokenKind",
    "canonical_text",
    "dotted_names",
    "first_keyword",
    "first_offset",
    "read_source",
    "tokenize",
    "words",
]


def words(text: str) -> frozenset[str]:
    """Split a text into a set of upper-case words."""
    return frozenset(text.upper().split())


class TokenKind(Enum):
    """The kinds of tokens."""

    WORD = "word"
    QUOTED = "quoted identifier"
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end of the statement"


class Token(NamedTuple):
    """One token.

    Attributes:
        kind: Its kind.
        key: The text that the grammar compares: of a word in upper case, of a symbol; empty for all others.
        start: Offset of its first character.
        end: Offset after its last character.
    """

    kind: TokenKind
    key: str
    start: int
    end: int


TOKEN = re.compile(
    r"""
      (?P<space>\s+ | --(?:\\\r?\n|[^\r\n])*+)
    | (?P<block>/\*)
    | (?P<string>[rR]'[^']*' | [rR]"[^"]*" | '(?:[^'\\]|\\.|'')*+' | "(?:[^"\\]|\\.|"")*+"
        | \$(?P<tag>(?:[A-Za-z_]\w*)?)\$.*?\$(?P=tag)\$)
    | (?P<quoted>`(?:[^`]|``)*+`)
    | (?P<number>(?:(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)(?:BD|[FD])?(?!\w)
        | \d+(?:BD|[LSYFD])?(?!\w))
    | (?P<word>\w+)
    | (?P<symbol><=>|<>|!=|==|<=|>=|\|\||->|=>|::|\|>|.)
    """,
    re.VERBOSE | re.DOTALL | re.IGNORECASE,
)
COMMENT_MARK = re.compile(r"/\*|\*/")
QUICK_KEYWORD = re.compile(r"[\s(]*([A-Za-z_]\w*)")
LINE_COMMENT = re.compile(r"--(?:\\\r?\n|[^\r\n])*")
BLANKS = re.compile(r"[\s(]+")
PADDING = 4
KINDS = {"string": TokenKind.STRING, "quoted": TokenKind.QUOTED, "number": TokenKind.NUMBER, "word": TokenKind.WORD}
UNTERMINATED = {"'": "string", '"': "string", "`": "quoted identifier"}
CLOSERS = {")": "(", "]": "["}

# An operand follows these words, so the next word is a name and not the keyword of a clause.
BEFORE_OPERAND = words(
    "SELECT WHERE HAVING ON WHEN THEN ELSE CASE AND OR NOT IN IS LIKE ILIKE RLIKE REGEXP BETWEEN DIV ESCAPE "
    "AS DISTINCT FROM BY SET"
)
# Before these, `case` is a column and not the keyword.
AFTER_CASE_COLUMN = words(". , ) ] = == < > <= >= <> != <=> * / % || ; :: IS IN AND OR THEN END")


# Operators after a column, so that `(table IS NULL)` is not read as a query.
OPERATORS = words("IS IN LIKE ILIKE RLIKE REGEXP BETWEEN NOT AND OR DIV AS COLLATE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The tokens of a statement's text.

    Attributes:
        sql: The text.
        tokens: Its tokens up to the final semicolon, padded with END tokens, so that look-ahead needs no bounds check.
        partner: Maps the index of `(`, `[` and CASE to the index of the closing token.
        operator_next: For each token, True if it ends an operand, so that an operator or a clause may follow.
        query_start: For each token, True if a query begins there, perhaps inside further parentheses.
        open_case: Index of the first CASE without END.
        problem: The error of the text as a whole: an unterminated string, unbalanced parentheses, several statements.
    """

    sql: str
    tokens: tuple[Token, ...]
    partner: dict[int, int]
    operator_next: tuple[bool, ...]
    query_start: tuple[bool, ...]
    open_case: int | None
    problem: SqlError | None

    @property
    def end(self) -> int:
        """Index of the first END token."""
        return len(self.tokens) - PADDING

    def text(self, index: int) -> str:
        """Return the text of a token."""
        token = self.tokens[index]
        return self.sql[token.start : token.end]

    def is_name(self, index: int) -> bool:
        """Return whether the token can be an identifier: a word or a quoted name."""
        return self.tokens[index].kind in {TokenKind.WORD, TokenKind.QUOTED}

    def name(self, index: int) -> str:
        """Return the identifier in a token, without quotes."""
        return unquoted(self.text(index))

    def word(self, index: int) -> str:
        """Return the key of a token if it may be a keyword; empty for a field after a dot and out of range."""
        if not 0 <= index < self.end or (index and self.tokens[index - 1].key == "."):
            return ""
        return self.tokens[index].key

    def is_operator(self, index: int) -> bool:
        """Return whether a word is an operator, so that an operand precedes it."""
        return self.tokens[index].key in OPERATORS

    def clause_at(self, index: int) -> bool:
        """Return whether an operator or a clause may begin at the token, rather than an operand."""
        return index > 0 and self.operator_next[index - 1]


def first_keyword(sql: str) -> str:
    """Return the first word of a statement in upper case, after blanks, comments and parentheses, or an empty string.

    The word is enough to pass a statement to Spark without tokenizing it.
    """
    quick = QUICK_KEYWORD.match(sql)
    if quick:
        return quick[1].upper()
    word = QUICK_KEYWORD.match(sql, first_offset(sql))
    return word[1].upper() if word else ""


def first_offset(sql: str) -> int:
    """Return the offset of the first character after blanks, comments and parentheses; the end for an open comment."""
    place = 0
    while place < len(sql):
        if skipped := BLANKS.match(sql, place) or LINE_COMMENT.match(sql, place):
            place = skipped.end()
        elif sql.startswith("/*", place):
            end = comment_end(sql, place)
            place = len(sql) if end is None else end
        else:
            return place
    return place


def dotted_names(sql: str) -> list[tuple[str, ...]]:
    """Return all names of two or more parts in a text, in order, including those in strings (`CALL f('db.t')`)."""
    source = read_source(sql)
    found: list[tuple[str, ...]] = []
    index = 0
    while index < source.end:
        if source.tokens[index].kind is TokenKind.STRING:
            parts = tuple(source.text(index)[1:-1].split("."))
            found.extend([parts] if len(parts) > 1 and all(parts) else [])
        elif source.is_name(index):
            names = [source.name(index)]
            while source.tokens[index + 1].key == "." and source.is_name(index + 2):
                index += 2
                names.append(source.name(index))
            found.extend([tuple(names)] if len(names) > 1 else [])
        index += 1
    return found


def read_source(sql: str) -> Source:
    """Tokenize any text; `problem` is set if it cannot be one statement."""
    tokens, problem = tokenize(sql)
    tokens, second = cut_semicolons(tokens)
    if second is not None and problem is None:
        problem = SqlError(
            "There are several statements in one text",
            sql=sql,
            position=second.start,
            length=second.end - second.start,
            expected="the end of the statement",
            hint="Run them one at a time, or with lake.sql or dml sql without parameters or an idempotency key",
        )
    matcher = Matcher(sql, tokens)
    matcher.run()
    end = tokens[-1].end if tokens else 0
    tokens.extend([Token(TokenKind.END, "", end, end)] * PADDING)
    return Source(
        sql=sql,
        tokens=tuple(tokens),
        partner=matcher.partner,
        operator_next=(*matcher.operator_next, *([False] * PADDING)),
        query_start=query_starts(tokens),
        open_case=min(matcher.open_cases, default=None),
        problem=problem or matcher.problem,
    )


def comment_end(sql: str, start: int) -> int | None:
    # Comments nest; a hint (`/*+`) does not.
    if sql.startswith("/*+", start):
        close = sql.find("*/", start + 3)
        return None if close < 0 else close + 2
    depth = 0
    for mark in COMMENT_MARK.finditer(sql, start):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None


def tokenize(sql: str) -> tuple[list[Token], SqlError | None]:
    """Return the tokens of a text, up to the first unterminated string, quoted name or comment, and its error."""
    tokens: list[Token] = []
    place = 0
    while place < len(sql):
        match = TOKEN.match(sql, place)
        assert match is not None
        group = match.lastgroup or ""
        start, place = place, match.end()
        if group == "space":
            continue
        text = match[0]
        if group == "block":
            end = comment_end(sql, start)
            if end is None:
                return tokens, unterminated_error(sql, start, "comment", "*/")
            place = end
        elif group == "symbol":
            if text in UNTERMINATED:
                return tokens, unterminated_error(sql, start, UNTERMINATED[text], text)
            tokens.append(Token(TokenKind.SYMBOL, text, start, place))
        else:
            key = text.upper() if group == "word" else ""
            tokens.append(Token(KINDS[group], key, start, place))
    return tokens, None


def unterminated_error(sql: str, start: int, what: str, closer: str) -> SqlError:
    newline = sql.find("\n", start)
    length = (len(sql) if newline < 0 else newline) - start
    return SqlError(
        f"The {what} is not terminated", sql=sql, position=start, length=length, expected=f"{closer} after it"
    )


def cut_semicolons(tokens: list[Token]) -> tuple[list[Token], Token | None]:
    end = len(tokens)
    while end and tokens[end - 1].key == ";":
        end -= 1
    kept = tokens[:end]
    first = next((index for index, token in enumerate(kept) if token.key == ";"), None)
    second = None if first is None else next(token for token in kept[first:] if token.key != ";")
    return kept, second


class Matcher:
    """Matches brackets and CASE ... END, and finds the ends of operands, in one pass over the tokens."""

    def __init__(self, sql: str, tokens: list[Token]) -> None:
        self.sql = sql
        self.tokens = tokens
        self.partner: dict[int, int] = {}
        self.operator_next: list[bool] = []
        self.opened: list[int] = []
        self.open_cases: list[int] = []
        self.problem: SqlError | None = None

    def run(self) -> None:
        for index, token in enumerate(self.tokens):
            after_operand = index > 0 and self.operator_next[index - 1]
            after_dot = index > 0 and self.tokens[index - 1].key == "."
            if token.kind is TokenKind.SYMBOL:
                self.operator_next.append(self.read_symbol(index, after_operand))
            elif token.kind is TokenKind.WORD and not after_dot:
                self.operator_next.append(self.read_word(index, after_operand))
            else:
                self.operator_next.append(True)
        for index in self.opened:
            if self.tokens[index].key == "CASE":
                self.note_open_case(index)
            else:
                self.problem = self.problem or unbalanced_error(self.sql, self.tokens[index])

    def note_open_case(self, index: int) -> None:
        # Without WHEN, `case` may be a column (`case + 1`).
        if self.tokens[index + 1].key == "WHEN":
            self.open_cases.append(index)

    def read_symbol(self, index: int, after_operand: bool) -> bool:
        key = self.tokens[index].key
        if key in {"(", "["}:
            self.opened.append(index)
        elif key in CLOSERS:
            while self.opened and self.tokens[self.opened[-1]].key == "CASE":
                self.note_open_case(self.opened.pop())
            if self.opened and self.tokens[self.opened[-1]].key == CLOSERS[key]:
                self.partner[self.opened.pop()] = index
            else:
                self.problem = self.problem or unbalanced_error(self.sql, self.tokens[index])
            return True
        return key == "?" or (key == "*" and not after_operand)

    def read_word(self, index: int, after_operand: bool) -> bool:
        key = self.tokens[index].key
        if key == "CASE" and not after_operand:
            following = self.tokens[index + 1].key if index + 1 < len(self.tokens) else ")"
            if following not in AFTER_CASE_COLUMN:
                self.opened.append(index)
                return False
            return True
        if key == "END" and after_operand and self.opened and self.tokens[self.opened[-1]].key == "CASE":
            self.partner[self.opened.pop()] = index
            return True
        return key not in BEFORE_OPERAND


def unbalanced_error(sql: str, token: Token) -> SqlError:
    counterpart = {"(": ")", "[": "]", ")": "(", "]": "["}[token.key]
    opens = token.key in {"(", "["}
    return SqlError(
        f"The parentheses are not balanced: '{token.key}' has no '{counterpart}'",
        sql=sql,
        position=token.start,
        expected=f"'{counterpart}' after it" if opens else None,
        hint=None if opens else f"Remove it, or add '{counterpart}' where it begins.",
    )


def query_starts(tokens: list[Token]) -> tuple[bool, ...]:
    starts = [False] * len(tokens)
    for index in range(len(tokens) - 2, -1, -1):
        key, following = tokens[index].key, tokens[index + 1]
        if key == "(":
            starts[index] = starts[index + 1]
        elif key == "SELECT":
            starts[index] = following.key not in {".", "="}
        elif key in {"FROM", "TABLE", "WITH", "VALUES"} and following.key in OPERATORS:
            continue
        elif key in {"FROM", "TABLE", "WITH"}:
            starts[index] = following.kind in {TokenKind.WORD, TokenKind.QUOTED} or (
                key == "FROM" and following.key == "("
            )
        elif key == "VALUES":
            starts[index] = following.kind in {TokenKind.NUMBER, TokenKind.STRING, TokenKind.WORD} or following.key in {
                "(",
                "-",
            }
    return tuple(starts)


def canonical_text(sql: str) -> str:
    r"""Return the tokens of a statement, separated by blanks, up to its final semicolon.

    >>> canonical_text("DELETE  FROM db.t -- all\n;")
    'DELETE FROM db . t'
    """
    source = read_source(sql)
    return " ".join(source.text(index) for index in range(source.end))
