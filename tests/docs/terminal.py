"""The picture of the shell: `python -m tests.docs.terminal` draws it from the session in docs/shell.md.

`test_examples.py` runs that session and compares what the shell prints, so the picture shows what the shell prints too.
"""

import io
import re
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax
from rich.terminal_theme import DEFAULT_TERMINAL_THEME
from rich.text import Text

from tests.docs.examples import blocks_of

__all__ = ["PICTURE", "draw", "recorded_session"]

DOCS = Path(__file__).parents[2] / "docs"
PICTURE = DOCS / "pictures" / "shell.svg"
PROMPT = re.compile(r"(lake>|  \.\.\.) ")


def recorded_session() -> str:
    """Return the command and the session at the prompt that docs/shell.md shows."""
    block = next(blocks_of(DOCS / "shell.md"))
    assert block.shown
    return f"$ {block.text}{block.shown}"


def draw(session: str) -> str:
    """Return a session as SVG, with the colors of a terminal."""
    lines = session.splitlines()
    console = Console(record=True, width=max(map(len, lines)), file=io.StringIO(), highlight=False)
    sql = Syntax("", "sql", theme="default", background_color="default")
    for line in lines:
        if typed := PROMPT.match(line):
            text = Text(typed[0]) + sql.highlight(line.removeprefix(typed[0]))
            text.rstrip()
        else:
            text = Text(line)
            text.highlight_regex("^Error:", "bold red")
            text.highlight_regex("(?<=┃).+(?=┃)", "bold")
        console.print(text)
    drawn = console.export_svg(title="dml shell", theme=DEFAULT_TERMINAL_THEME, unique_id="shell")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # a page loads nothing from other sites


if __name__ == "__main__":
    PICTURE.write_text(draw(recorded_session()), encoding="utf-8")
