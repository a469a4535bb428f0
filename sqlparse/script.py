"""Split a text into its statements. Pure; driver.

Input: a text. Output: its statements in order, split at the semicolons outside of strings, quoted names and comments. A
compound statement (`BEGIN ... END`) contains semicolons: it is one statement, and the last one of its text.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from dml.errors import DmlError
from dml.sqlparse.parser import parse
from dml.sqlparse.tokens import Token, tokenize

__all__ = ["ScriptStatement", "split_statements"]

SENTENCE_ENDS: Final = (".", "?", "!")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptStatement:
    """One statement of a text.

    Attributes:
        text: The statement, without its semicolon; the whole text if it is the only one.
        start: Offset of the statement in the script.
        number: Its number in the script, from 1.
        count: Statements in the script.
        script: The whole text.
    """

    text: str
    start: int
    number: int
    count: int
    script: str

    @contextmanager
    def reported(self, *, ran: int | None = None) -> Iterator[None]:
        """Add to errors of the block which statement of the script failed, and how many ran before it.

        Args:
            ran: Number of statements that have run; None for all before this one.
        """
        try:
            yield
        except DmlError as error:
            if self.count > 1:
                self._report(error, self.number - 1 if ran is None else ran)
            raise

    def _report(self, error: DmlError, ran: int) -> None:
        if error.sql == self.text:
            error.sql = self.script
            if error.position is not None:
                error.position += self.start
        before = "no statement ran" if ran == 0 else f"{ran} statement{'' if ran == 1 else 's'} ran before it"
        place = f"Statement {self.number} of {self.count} failed; {before}"
        end = "" if error.hint is None or error.hint.endswith(SENTENCE_ENDS) else "."
        error.hint = place if error.hint is None else f"{error.hint}{end} {place}"
        error.context |= {"statement": self.number, "statements_run": ran}


def split_statements(script: str) -> tuple[ScriptStatement, ...]:
    """Split a text into its statements, and check the syntax of each if there are several.

    A single statement is returned unchanged and unchecked.

    Raises:
        SqlError: the text has several statements, and one of them is wrong.
    """
    pieces: list[list[Token]] = []
    if ";" in script.rstrip("; \t\r\n"):  # most texts are one statement, some of megabytes
        tokens, problem = tokenize(script)
        pieces.extend(statement_tokens(tokens))
        if len(pieces) > 1 and problem is not None:
            raise problem
    if len(pieces) < 2:
        return (ScriptStatement(text=script, start=0, number=1, count=1, script=script),)
    statements = tuple(
        ScriptStatement(
            text=script[piece[0].start : piece[-1].end],
            start=piece[0].start,
            number=number,
            count=len(pieces),
            script=script,
        )
        for number, piece in enumerate(pieces, 1)
    )
    for statement in statements:
        with statement.reported(ran=0):
            parse(statement.text)
    return statements


def statement_tokens(tokens: list[Token]) -> Iterator[list[Token]]:
    """Yield the tokens of each statement, without semicolons; empty statements are skipped."""
    piece: list[Token] = []
    for token in tokens:
        if token.key == ";" and not is_compound(piece):
            if piece:
                yield piece
            piece = []
        else:
            piece.append(token)
    if piece:
        yield piece


def is_compound(piece: list[Token]) -> bool:
    """Return whether a statement begins with `BEGIN` or `label: BEGIN`."""
    keys = [token.key for token in piece[:3]]
    return keys[:1] == ["BEGIN"] or keys[1:] == [":", "BEGIN"]
