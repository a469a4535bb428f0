"""A position in a statement's tokens, with the reading methods that all statements share. Pure; driver.

Input: a `Source`. Output: keywords, names, literals and the extents of expressions, or a `SqlError` with the position
and what was expected there.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from dml.errors import ErrorKind, SqlError
from dml.sqlparse.diagnosis import diagnose
from dml.sqlparse.quoting import string_value
from dml.sqlparse.statements import Span
from dml.sqlparse.tokens import Source, TokenKind, words

__all__ = ["NO_HINTS", "Cursor", "LeftToSpark", "unexpected"]

# Words that end an expression if they are where an operator may be: no expression continues with them.
NEVER_IN_EXPRESSION = words(
    "FROM WHERE HAVING LIMIT JOIN UNION INTERSECT SET USING VALUES SELECT INSERT UPDATE DELETE MERGE RETURNING"
)
CLAUSES = frozenset({"WHEN", "THEN", "WHERE"})
NO_HINTS: Final[Mapping[str, str]] = MappingProxyType({})
WITH_BY = frozenset({"GROUP", "ORDER", "SORT", "CLUSTER", "DISTRIBUTE"})


def unexpected(source: Source, index: int) -> str:
    """Return the message for an unexpected token."""
    text = source.text(index)
    if not text:
        return "The statement ends too early"
    return f"Unexpected {text if len(text) <= 40 else text[:37] + '...'!r}"


class LeftToSpark(Exception):  # noqa: N818 - not an error: the statement goes to Spark
    """Raised for a form of a statement that this package leaves to Spark."""


class Cursor:
    """Reads a statement from left to right; `index` is the next token."""

    def __init__(self, source: Source, index: int = 0, *, case_sensitive: bool = False) -> None:
        self.source = source
        self.index = index
        self.case_sensitive = case_sensitive

    # ---- looking ----------------------------------------------------------------------------------------------

    def key(self, ahead: int = 0) -> str:
        """Return the word (upper case) or symbol `ahead`; empty for quoted names, literals and the end."""
        place = self.index + ahead
        return self.source.tokens[place].key if place < self.source.end else ""

    def at(self, *keys: str) -> bool:
        """Return whether these words or symbols come next."""
        return all(self.key(ahead) == key for ahead, key in enumerate(keys))

    def at_end(self) -> bool:
        """Return whether everything was read."""
        return self.index >= self.source.end

    def at_name(self) -> bool:
        """Return whether an identifier comes next."""
        return not self.at_end() and self.source.is_name(self.index)

    def at_string(self) -> bool:
        """Return whether a string literal comes next."""
        return self.source.tokens[self.index].kind is TokenKind.STRING

    def start(self) -> int:
        """Return the offset of the next token."""
        return self.source.tokens[self.index].start

    def span_from(self, index: int) -> Span:
        """Return the span from the token `index` up to the last one read."""
        return Span(self.source.tokens[index].start, self.source.tokens[max(index, self.index - 1)].end)

    # ---- reading ----------------------------------------------------------------------------------------------

    def accept(self, *keys: str) -> bool:
        """Read these words or symbols if they come next."""
        if not self.at(*keys):
            return False
        self.index += len(keys)
        return True

    def expect(self, *keys: str, hint: str | None = None) -> None:
        """Read these words or symbols, or raise an error."""
        for key in keys:
            if not self.accept(key):
                self.fail(expected=key if key.isalpha() else f"'{key}'", hint=hint)

    def name(self, what: str = "a name") -> str:
        """Read one identifier."""
        if not self.at_name():
            self.fail(expected=what)
        self.index += 1
        return self.source.name(self.index - 1)

    def names(self, what: str = "a name") -> tuple[str, ...]:
        """Read a dotted name."""
        parts = [self.name(what)]
        while self.accept("."):
            parts.append(self.name("a name after '.'"))
        return tuple(parts)

    def string(self, what: str) -> str:
        """Read a string literal, or several adjacent ones, and return the value."""
        if not self.at_string():
            self.fail(expected=f"{what} in quotes")
        value = ""
        while self.at_string():
            value += string_value(self.source.text(self.index))
            self.index += 1
        return value

    def open_bracket(self, what: str) -> int:
        """Read `(` and return the index of its `)`."""
        if not self.at("("):
            self.fail(expected=f"'(' before {what}")
        self.index += 1
        return self.source.partner[self.index - 1]

    def finish(self) -> None:
        """Raise an error unless everything was read."""
        if not self.at_end():
            self.fail(expected="the end of the statement")

    # ---- expressions ------------------------------------------------------------------------------------------

    def expression(
        self,
        what: str,
        *,
        stops: frozenset[str] = frozenset(),
        foreign_hints: Mapping[str, str] = NO_HINTS,
        after: str | None = None,
    ) -> int:
        """Find the end of the expression that begins here.

        Args:
            what: The kind of expression, for messages: "a condition".
            stops: Words and symbols that end it if they are where an operator may be. A closing bracket and the end of
                the statement always end it.
            foreign_hints: Hints for clauses that are not allowed there, by their first word.
            after: What must follow, for messages; by default the end of the expression.

        Returns:
            The index after its last token, which is the cursor's new position.
        """
        source, begin = self.source, self.index
        while self.index < source.end:
            key = source.word(self.index)
            if key in {")", "]"} or (key == "," and "," in stops):
                break
            if key in CLAUSES and key in stops and self._begins_clause(begin):
                self.fail(expected=what)
            if (
                key
                and source.tokens[self.index].kind is TokenKind.WORD
                and self.index > begin
                and source.clause_at(self.index)
            ):
                if key in stops:
                    break
                if key in NEVER_IN_EXPRESSION or (key in WITH_BY and self.key(1) == "BY"):
                    hint = foreign_hints.get(key)
                    self.fail(expected=after or f"the end of {what}", hint=hint, keywords=stops)
            self.index = source.partner.get(self.index, self.index) + 1
        if self.index == begin:
            self.fail(expected=what)
        if not source.operator_next[self.index - 1]:
            self.fail(expected=f"{what} to continue after '{source.text(self.index - 1)}'")
        return self.index

    def _begins_clause(self, begin: int) -> bool:
        # A clause in place of an operand: `WHEN MATCHED AND THEN DELETE`, `SET a = WHERE b`. But a column may have the
        # name of a keyword: `WHERE when IS NULL`.
        source = self.source
        due = self.index == begin or not source.clause_at(self.index)
        return due and source.is_name(self.index + 1) and not source.is_operator(self.index + 1)

    # ---- errors -----------------------------------------------------------------------------------------------

    def fail(
        self,
        message: str | None = None,
        *,
        expected: str | None = None,
        hint: str | None = None,
        keywords: frozenset[str] = frozenset(),
    ) -> NoReturn:
        """Raise a syntax error at the next token, or at an earlier one that is to blame.

        Args:
            message: The message; by default it names the unexpected token.
            expected: What was expected.
            hint: What to do about it.
            keywords: Keywords that are valid there, in addition to those in `expected`.
        """
        index = min(self.index, self.source.end)
        if message is None:
            found = diagnose(self.source, index, expected, keywords)
            index, expected, hint = found.index, found.expected or expected, found.hint or hint
            message = unexpected(self.source, index)
        token = self.source.tokens[index]
        raise SqlError(
            message,
            sql=self.source.sql,
            position=token.start,
            length=token.end - token.start,
            expected=expected,
            hint=hint,
        )

    def fail_at(
        self,
        span: Span,
        message: str,
        *,
        expected: str | None = None,
        hint: str | None = None,
        kind: ErrorKind = ErrorKind.SYNTAX,
    ) -> NoReturn:
        """Raise an error at a span."""
        raise SqlError(
            message,
            sql=self.source.sql,
            position=span.start,
            length=span.end - span.start,
            expected=expected,
            hint=hint,
            kind=kind,
        )
