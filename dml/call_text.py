"""The SQL text of a Python call, and errors that point into the call's arguments instead of that text. Driver.

Input: pieces of SQL, some of which are arguments of the call. Output: the statement; its errors point into an argument.
`lake.update("db.t", {"n": 1}, "idd = 2")` reports column 1 of its argument `where`, not column 28 of an UPDATE.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dml.errors import DmlError

__all__ = ["Argument", "CallText"]


@dataclass(frozen=True, slots=True)
class Argument:
    """A piece of a statement that is an argument of the call.

    Attributes:
        label: Its name in errors: `the argument 'where'`.
        text: Its SQL text.
    """

    label: str
    text: str


class CallText:
    """The statement of a call.

    Args:
        *pieces: Its text in order: generated pieces, and arguments.
    """

    def __init__(self, *pieces: str | Argument) -> None:
        self._pieces = pieces
        self.text = "".join(piece if isinstance(piece, str) else piece.text for piece in pieces)

    @contextmanager
    def locate_errors(self) -> Iterator[None]:
        """Make errors raised in the block point into the argument that contains their position.

        Errors about generated text or a whole argument show no text.
        """
        try:
            yield
        except DmlError as error:
            if error.sql == self.text:
                self._relocate(error)
            raise

    def _relocate(self, error: DmlError) -> None:
        start, length = error.position, error.length
        error.sql, error.position = "", None
        offset = 0
        for piece in self._pieces:
            text = piece if isinstance(piece, str) else piece.text
            place = -1 if start is None else start - offset
            if isinstance(piece, Argument) and 0 <= place < len(text):
                error.context["argument"] = piece.label
                if length < len(text.strip()):
                    error.message = f"{error.message.removesuffix(' here')} in {piece.label}"
                    error.point_at(text, place, min(place + length, len(text)))
                return
            offset += len(text)
