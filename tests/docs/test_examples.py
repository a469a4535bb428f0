"""The examples of the documentation do what the documentation says."""

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from xml.etree import ElementTree

import pytest
from pyspark.sql import SparkSession

import dml
from dml import prompt
from dml.cli import print_error
from dml.completion import CatalogNames
from dml.shell import run_sql
from tests.docs import terminal
from tests.docs.examples import Example, Page, blocks_of, commands_of, examples_of, matches

ROOT = Path(__file__).parents[2]
ELSEWHERE = {"server": "tests/serve/test_page.py", "tools": "tests/tools"}
"""Pages whose examples need clients or tools in separate environments, and the tests that run them."""

PAGES = [
    path
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs" / "how-to").glob("*.md")),
    )
    if path.stem not in ELSEWHERE and examples_of(path)
]


@pytest.fixture
def clean_session(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SparkSession]:
    """The shared session in a folder of its own; settings, views and interception are undone."""
    monkeypatch.chdir(tmp_path)
    before = spark.conf.getAll
    yield spark
    spark.catalog.setCurrentCatalog("spark_catalog")
    dml.disable(spark)
    for key in spark.conf.getAll.keys() - before.keys():
        spark.conf.unset(key)
    for key, value in before.items():
        if spark.conf.get(key, None) != value:
            spark.conf.set(key, value)
    for view in spark.catalog.listTables():
        if view.isTemporary:
            spark.catalog.dropTempView(view.name)


@pytest.mark.spark
@pytest.mark.parametrize("path", PAGES, ids=[path.stem for path in PAGES])
def test_the_examples_of_a_page_do_what_it_says(path: Path, clean_session: SparkSession) -> None:
    """From the first block to the last, in one session and an empty folder, with the names that the page defines."""
    page = Page()
    for example in examples_of(path):
        page.run(example)


TYPED = re.compile(r"^lake> .*\n(?:  \.\.\. .*\n)*", re.MULTILINE)
PROMPT = re.compile(r"^(?:lake>|  \.\.\.) ", re.MULTILINE)
VARYING_LINE = re.compile(r"│ (bytes added|seconds|snapshot) +│[^│\n]*│")
"""Lines of a result whose values differ between runs."""


@pytest.mark.spark
def test_the_shell_prints_what_its_page_shows(clean_session: SparkSession) -> None:
    """Compare a session at the prompt, and a script that stops at an error."""
    page = ROOT / "docs" / "shell.md"
    at_prompt, script, from_file = (block for block in blocks_of(page) if block.language != "text")
    assert at_prompt.shown
    assert from_file.shown
    session = dml.connect("./warehouse")
    screen = io.StringIO()
    with redirect_stdout(screen), redirect_stderr(screen):
        shell = prompt.Shell(session, CatalogNames(session.registry), limit=100, report=print_error)
        print(prompt.GREETING)
        for lines in TYPED.findall(at_prompt.shown):
            print(lines, end="")
            shell.run(PROMPT.sub("", lines))
    shown, printed = (VARYING_LINE.sub(r"\1", text) for text in (at_prompt.shown, screen.getvalue()))
    assert matches(shown, printed), printed
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        try:
            run_sql(session, script.text, output="table", limit=100)
        except dml.DmlError as error:
            print_error(error)
    shown, printed = (VARYING_LINE.sub(r"\1", text) for text in (from_file.shown, output.getvalue()))
    assert matches(shown, printed), printed


def test_the_picture_of_the_shell_shows_the_session_of_its_page() -> None:
    """`python -m tests.docs.terminal` draws it again."""
    elements = ElementTree.fromstring(terminal.PICTURE.read_text(encoding="utf-8")).iter(
        "{http://www.w3.org/2000/svg}text"
    )
    drawn = "".join(element.text or "" for element in elements if "title" not in element.attrib["class"])
    assert "".join(drawn.split()) == "".join(terminal.recorded_session().split())


def test_a_page_gets_no_name_that_it_does_not_make() -> None:
    """A reader has no other names either; SQL runs in the session that the page has opened."""
    python = Example(page="p.md", line=1, language="python", text="spark.table('t')\n")
    with pytest.raises(NameError, match="spark"):
        Page().run(python)
    with pytest.raises(AssertionError, match="no block before it opens `lake`"):
        Page().run(Example(page="p.md", line=1, language="sql", text="SELECT 1"))


def test_a_dataframe_that_is_not_shown_shows_no_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """Its repr, as at a prompt."""

    class Frame:
        def __repr__(self) -> str:
            return "DataFrame[id: bigint]"

    example = Example(page="p.md", line=1, language="python", text="frame\n", shown="id\n1\n")
    with pytest.raises(AssertionError, match=r"and shows\nDataFrame\[id: bigint\]"):
        Page(namespace={"frame": Frame()}).run(example)


def test_the_pages_that_others_run_are_there() -> None:
    """With tests."""
    for name, tests in ELSEWHERE.items():
        assert (ROOT / "docs" / f"{name}.md").exists()
        assert (ROOT / tests).exists()


def test_what_is_shown_is_compared_word_by_word() -> None:
    """Borders and blanks do not count; every word does."""
    table = "+--+-----+\n|id|name |\n+--+-----+\n|1 |NULL |\n+--+-----+\n"
    assert matches("id name\n1  NULL", table)
    assert not matches("id name\n2  NULL", table)
    assert not matches("id name", table)


def test_three_dots_stand_for_anything() -> None:
    """Inside a word and for several words."""
    assert matches("seconds: ... snapshot: ...", "seconds: 1.2 (plan 1) snapshot: 77")
    assert matches("/tmp/...parquet", "/tmp/a/b.parquet")
    assert not matches("seconds: ... rows: ...", "seconds: 1.2")


def test_blocks_are_found_with_what_they_show(tmp_path: Path) -> None:
    """Only a text block right after an example is what it shows."""
    page = tmp_path / "page.md"
    page.write_text(
        "A.\n\n```sql\nSELECT 1\n```\n\n```text\n1\n```\n\n```python no-run\nx = 1\n```\n\nB.\n\n```text\nno\n```\n"
    )
    first, second = examples_of(page)
    assert (first.language, first.line, first.text, first.shown) == ("sql", 4, "SELECT 1\n", "1\n")
    assert (second.language, second.flags, second.shown) == ("python", frozenset({"no-run"}), None)


def test_commands_are_the_shell_blocks_that_are_marked(tmp_path: Path) -> None:
    """With what they show; examples are other blocks."""
    page = tmp_path / "page.md"
    page.write_text("```sh\npip install x\n```\n\n```sh run\necho 1\n```\n\n```text\n1\n```\n\n```sql\nSELECT 1\n```\n")
    (command,) = commands_of(page)
    assert (command.line, command.text, command.shown) == (6, "echo 1\n", "1\n")
    assert [example.language for example in examples_of(page)] == ["sql"]
