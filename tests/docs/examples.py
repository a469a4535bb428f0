"""Run the examples of a documentation page: its fenced blocks, in order, as a reader would paste them.

A ```python block runs in the namespace that the blocks before it left, which begins empty; its last expression is shown
by its repr, as a notebook and a prompt do. A ```sql block is the text that `lake.sql` gets, `lake` being the session
that a Python block of the page has opened: rows are shown by `.show()`, a `Result` by its repr.

A block ```text right after one of them is what it shows, compared word by word:

- borders of tables (`+---+`, `|`) do not count;
- `...` stands for any words, or for any part of a word.

Words after the language: `no-run` for what needs a server or a machine that a test does not have, `error` for an
example that fails: what it shows is the error's class and text.

Commands for a shell are blocks ```sh. Those marked `run` are run in order, in one shell, by tests that have what they
need (a cluster, a server); the others are only shown.
"""

import ast
import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from dml.errors import DmlError
from dml.result import Result

__all__ = [
    "FENCE",
    "Example",
    "Page",
    "anchors_of",
    "blocks_of",
    "commands_of",
    "examples_of",
    "matches",
    "prose_of",
    "relative_anchors",
    "relative_links",
]

FENCE = re.compile(r"^(?P<indent> *)```(?P<info>[^`\n]*)\n(?P<body>.*?)^(?P=indent)```[ ]*$", re.DOTALL | re.MULTILINE)
LANGUAGES = {"sql", "python"}
FLAGS = {"no-run", "error"}
BORDER = re.compile(r"\+[-+]*\+|[|│┃╇╈┏┓┗┛└┘┡┩━─┬┴┼├┤┌┐]+")
LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)(?:#[^)\s]*)?\)")
ANCHOR = re.compile(r"\]\((?!https?://|mailto:)([^)\s#]*)#([^)\s]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One block to run.

    Attributes:
        page: The page's name.
        line: Where the block's text begins.
        language: `sql`, `python` or `sh`.
        flags: Words after the language.
        text: What to run.
        shown: What the page says it shows; None where it says nothing.
    """

    page: str
    line: int
    language: str
    flags: frozenset[str] = frozenset()
    text: str
    shown: str | None = None

    @property
    def place(self) -> str:
        """Where the example stands."""
        return f"{self.page}:{self.line}"


def examples_of(path: Path) -> list[Example]:
    """The blocks of a page that are examples, in order."""
    found = [block for block in blocks_of(path) if block.language in LANGUAGES]
    for block in found:
        unknown = block.flags - FLAGS
        assert not unknown, f"{block.place}: {set(unknown)} after ```{block.language}"
    return found


def commands_of(path: Path) -> list[Example]:
    """Return the shell blocks of a page that are marked to be run, in order."""
    return [block for block in blocks_of(path) if block.language == "sh" and "run" in block.flags]


def blocks_of(path: Path) -> Iterator[Example]:
    """Yield every fenced block of a page, with the text block right after it."""
    content = path.read_text(encoding="utf-8")
    blocks = list(FENCE.finditer(content))
    for block, following in pairwise([*blocks, None]):
        assert block is not None
        language, *flags = block["info"].split() or [""]
        shown = None
        if (
            following is not None
            and following["info"] == "text"
            and not content[block.end() : following.start()].strip()
        ):
            shown = following["body"]
        yield Example(
            page=path.name,
            line=content.count("\n", 0, block.start("body")) + 1,
            language=language,
            flags=frozenset(flags),
            text=block["body"],
            shown=shown,
        )


def prose_of(path: Path) -> str:
    """The text of a page without its blocks."""
    return FENCE.sub("", path.read_text(encoding="utf-8"))


def relative_links(path: Path) -> list[str]:
    """Targets of a page's links into the repository, without anchors."""
    return LINK.findall(prose_of(path))


def relative_anchors(path: Path) -> list[tuple[str, str]]:
    """A page's links to a place in a page: the page ("" for this one) and the anchor."""
    return ANCHOR.findall(prose_of(path))


def anchors_of(path: Path) -> set[str]:
    """Where links into a page can lead: its headings, as MkDocs and GitHub name them, and anchors of its own."""
    prose = prose_of(path)
    headings = re.findall(r"^#+ +(.*?)\s*$", prose, re.MULTILINE)
    slugs = {re.sub(r"[ ]", "-", re.sub(r"[^\w\- ]", "", heading.lower())) for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', prose))


def words(text: str) -> list[str]:
    """The words of what is shown, table borders left out."""
    return BORDER.sub(" ", text).split()


def matches(expected: str, actual: str) -> bool:
    """Whether what was shown is what the page says, `...` standing for anything."""
    pattern = r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*?") for word in words(expected))
    return re.fullmatch(pattern, " ".join(words(actual)), re.DOTALL) is not None


@dataclass(slots=True, kw_only=True)
class Page:
    """Runs the examples of one page, each with the names that earlier ones defined.

    Attributes:
        namespace: Python names; empty before the first example.
    """

    namespace: dict[str, Any] = field(default_factory=dict)

    def run(self, example: Example) -> None:
        """Run an example and compare what it shows."""
        if "no-run" in example.flags:
            compile_only(example)
            return
        shown = io.StringIO()
        failure = None
        with contextlib.redirect_stdout(shown):
            try:
                self.run_text(example)
            except DmlError as error:
                failure = error
        output = shown.getvalue()
        if "error" in example.flags:
            assert failure is not None, f"{example.place} is said to fail, and shows:\n{output}"
            output += f"{type(failure).__name__}: {failure}"
        elif failure is not None:
            raise AssertionError(f"{example.place} fails:\n{failure}") from failure
        if example.shown is not None:
            assert matches(example.shown, output), (
                f"{example.place} is said to show\n{example.shown}\nand shows\n{output}"
            )

    def run_text(self, example: Example) -> None:
        """Run the text of an example and print the result of its last part."""
        if example.language == "sql":
            assert "lake" in self.namespace, f"{example.place} needs a session, and no block before it opens `lake`"
            show_rows(self.namespace["lake"].sql(example.text))
            return
        tree = ast.parse(example.text)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, example.place, "exec"), self.namespace)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), example.place, "eval"), self.namespace)
            if value is not None:
                print(repr(value))


def compile_only(example: Example) -> None:
    """Check the syntax of an example that is not run."""
    if example.language == "python":
        compile(example.text, example.place, "exec")


def show_rows(outcome: DataFrame | Result) -> None:
    """Print the result of `lake.sql`: rows as `.show()` does, a `Result` by its repr."""
    if isinstance(outcome, Result):
        print(repr(outcome))
    elif outcome.columns:
        outcome.show(truncate=False)
