"""Pages, error messages and help texts use the words of the field: `tests/docs/wording.py` has the banned phrases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.examples import prose_of
from tests.docs.wording import MOST_WORDS, banned_phrases, code_texts, long_sentences

ROOT = Path(__file__).parents[2]
PACKAGES = ("dml", "sqlparse", "deletes")
PAGES = [
    page
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if not (page := str(path.relative_to(ROOT))).startswith("docs/decisions/0")
]


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_banned_phrase(page: str) -> None:
    assert banned_phrases(prose_of(ROOT / page)) == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.startswith("docs/") and "/architecture/" not in page])
def test_sentences_of_user_pages_are_short(page: str) -> None:
    assert long_sentences(ROOT / page) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_messages_helps_and_docstrings_have_no_banned_phrase(package: str) -> None:
    def found() -> Iterator[str]:
        for path in sorted((ROOT / package).rglob("*.py")):
            for line, text in code_texts(path):
                yield from (f"{path.relative_to(ROOT)}:{line} {phrase}" for phrase in banned_phrases(text))

    assert list(found()) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("Nobody reads\nit anew", 2),
        ("Columns that the table has not; the file is not there", 2),
        ("The statement has not been run and has not finished; NULL stands for a missing value", 0),
        ("The sort stands", 1),
        ("Each file that a commit removed", 0),
    ],
)
def test_phrases_are_found_as_words(text: str, count: int) -> None:
    assert len(banned_phrases(text)) == count


def test_long_sentences_are_found_in_paragraphs_and_tables(tmp_path: Path) -> None:
    short, long = "word " * MOST_WORDS, "word " * MOST_WORDS + "more"
    page = tmp_path / "page.md"
    page.write_text(f"{short.strip()}. {long}.\n\n| a | b |\n| --- | --- |\n| {short} | {long} |\n")
    assert long_sentences(page) == [f"{long}.", long]


def test_code_in_a_text_is_not_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A `gone` row.\n\n```text\ngone\n```\n\nThe file is gone.\n")
    assert len(banned_phrases(prose_of(page))) == 1


def test_texts_of_a_module_are_its_docstrings_and_strings(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text('"""One."""\n\n\ndef f(x):\n    """Two."""\n    raise ValueError(f"{x} is gone" " now")\n')
    assert code_texts(module) == ((1, "One."), (5, "Two."), (6, "... is gone now"))
