"""The SQL text of a call in Python, and errors that name the call's arguments instead of that text. Driver.

Input: pieces of SQL, some of them given as arguments. Output: the statement; an error in it points into the argument.
`lake.update("db.t", {"n": 1}, "idd = 2")` reports column 1 of its argument `where`, not column 28 of an UPDATE.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dml.errors import DmlError

__all__ = ["Argument", "CallText"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A piece of a statement that the caller gave.

    Attributes:
        label: How an error names it: `the argument 'where'`.
        text: Its SQL text.
    """

    label: str
    text: str


class CallText:
    """The statement of a call.

    Args:
        *pieces: Its text: generated pieces, and the caller's arguments.
    """

    def __init__(self, *pieces: str | Argument) -> None:
        self._pieces = pieces
        self.text = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)

    @contextmanager
    def report_arguments(self) -> Iterator[None]:
        """Let errors raised in the block point into the argument that they are about, if there is one."""
        try:
            yield
        except DmlError as error:
            if error.sql == self.text:
                self._report(error)
            raise

    def _report(self, error: DmlError) -> None:
        start, length = error.position, error.length
        error.sql, error.position = "", None
        offset = 0
        for piece in self._pieces:
            text = piece if isinstance(piece, str) else piece.text
            place = -1 if start is None else start - offset
            if isinstance(piece, Argument) and 0 <= place < len(text):
                error.context["argument"] = piece.label
                if length < len(text.strip()):
                    error.message += f" in {piece.label}"
                    error.point_at(text, place, min(place + length, len(text)))
                return
            offset += len(text)
