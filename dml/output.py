"""Standard output that says itself what went wrong with it: a closed pipe, a full disk, a narrow encoding. Driver.

Input: what the command line prints. Output: the same on standard output. Its errors must not travel as `OSError`:
Spark's own connections raise the same ones, and typer and rich end the program on them in ways of their own.
"""

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any, Final, TextIO, cast

from dml.errors import ExecutionError

__all__ = ["BROKEN_PIPE", "GuardedOutput", "guarded_stdout"]

BROKEN_PIPE: Final = 141
"""The exit code that shells give a program which SIGPIPE ended, 128 + 13."""


class GuardedOutput:
    """A text stream whose failed writes end the program quietly (nobody reads any more) or are an error of ours.

    Args:
        stream: Where the text goes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write text.

        Raises:
            SystemExit: the reader has closed the pipe.
            ExecutionError: the text cannot be written.
        """
        if text == "":  # so typer tries what a stream takes, and would swallow the error
            return 0
        with self._explained():
            return self._stream.write(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write texts; raises as `write` does, and what making them raises passes as it is."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Write what is buffered; raises as `write` does."""
        with self._explained():
            self._stream.flush()

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            discard(self._stream)
            raise SystemExit(BROKEN_PIPE) from error
        except OSError as error:
            discard(self._stream)
            raise ExecutionError(
                f"Standard output cannot be written: {error.strerror or error}",
                hint="A statement that changes rows has been committed all the same",
            ) from error
        except UnicodeEncodeError as error:
            raise ExecutionError(
                f"Standard output is in {error.encoding}, which has no {error.object[error.start : error.end]!a}",
                hint="Set PYTHONIOENCODING=utf-8. A statement that changes rows has been committed all the same",
            ) from error


def discard(stream: TextIO) -> None:
    """Send what is still buffered nowhere: Python tries it once more when it ends, and would complain again."""
    with suppress(OSError):  # not every stream is a file
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


@contextmanager
def guarded_stdout() -> Iterator[GuardedOutput]:
    """Guard what the enclosed code prints."""
    guarded = GuardedOutput(sys.stdout)
    with redirect_stdout(cast("TextIO", guarded)):
        yield guarded
