"""Pages, error messages and help texts use the words of the field: `tests/docs/wording.py` has the banned phrases."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.wording import banned_phrases, code_texts, page_texts

ROOT = Path(__file__).parents[2]
PACKAGES = ("dml", "sqlparse", "deletes")
LATER = {"CHANGELOG.md", "README.md"} | {
    f"docs/{name}.md"
    for name in (
        "from-the-jar",
        "getting-started",
        "index",
        "isolation",
        "known-limits",
        "performance",
        "python-reference",
        "which-way-in",
    )
}
"""Pages that still have such phrases."""

PAGES = [
    page
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
    if (page := str(path.relative_to(ROOT))) not in LATER and not page.startswith("docs/decisions/0")
]


def test_all_pages_to_check_later_exist() -> None:
    assert [page for page in LATER if not (ROOT / page).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_pages_have_no_banned_phrase(page: str) -> None:
    assert banned_phrases(page_texts(ROOT / page)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_of_the_code_have_no_banned_phrase(package: str) -> None:
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


def test_code_of_pages_and_docstrings_of_modules_are_not_checked(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("A `gone` row.\n\n```text\ngone\n```\n\nThe file is gone.\n")
    assert len(banned_phrases(page_texts(page))) == 1
    module = tmp_path / "module.py"
    module.write_text('"""Gone."""\n\n\ndef f(x):\n    """Gone."""\n    raise ValueError(f"{x} is gone" " now")\n')
    assert list(code_texts(module)) == [(6, "... is gone now")]
