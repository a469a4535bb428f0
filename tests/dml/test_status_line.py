"""The line that a terminal shows while Spark starts."""

import io
import sys

import pytest

from dml.errors import SetupError
from dml.status_line import status_line


class Screen(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_the_outermost_text_and_loses_it_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr(sys, "stderr", screen)

    def start() -> None:
        with status_line("Starting ..."), status_line("Loading ..."):
            assert screen.getvalue() == "Starting ..."
            raise SetupError("Spark does not start")

    with pytest.raises(SetupError):
        start()
    assert screen.getvalue() == "Starting ..." + "\r" + " " * 12 + "\r"
    with status_line("Again"):
        assert screen.getvalue().endswith("Again")


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_a_file_shows_nothing(stream: io.StringIO | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    with status_line("Starting ..."):
        pass
    assert stream is None or stream.getvalue() == ""
