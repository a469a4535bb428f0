"""A terminal line that shows what the program is waiting for. Pure; driver.

Input: a text. Output: a transient line on standard error; nothing if that is no terminal.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

__all__ = ["status_line"]

SHOWN: Final[list[str]] = []
"""The text that is shown now, or empty."""


@contextmanager
def status_line(text: str) -> Iterator[None]:
    """Show a text while the enclosed code runs. Of nested texts the outermost one is shown."""
    target = sys.stderr
    if SHOWN or target is None or not target.isatty():
        yield
        return
    SHOWN.append(text)
    target.write(text)
    target.flush()
    try:
        yield
    finally:
        SHOWN.clear()
        target.write(f"\r{' ' * len(text)}\r")
        target.flush()
