"""The documentation says everything that it should, and its links lead somewhere."""

import re
from pathlib import Path

import pytest

import dml
from dml.errors import ErrorKind
from tests.docs.examples import relative_links

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
PROPERTY = re.compile(r'"((?:write|commit|read|gc|schema)\.[a-z][a-z0-9.-]*)"')
MODULE = re.compile(r"`((?:dml|sqlparse|deletes|tests|benchmarks)/[\w/.]*)`")
SETTING = re.compile(r'"(spark\.(?:sql|wap|default|app)\.[a-zA-Z.]+)"')


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_every_link_of_a_page_leads_to_a_file(path: Path) -> None:
    """Links into the repository, seen from the page."""
    missing = [target for target in relative_links(path) if not (path.parent / target).exists()]
    assert not missing, f"{path.relative_to(ROOT)} links to {missing}"


def test_every_page_can_be_reached_from_the_index() -> None:
    """By links, from page to page."""
    seen, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        left.extend(page.parent / target for target in relative_links(page))
    lost = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.resolve() not in seen]
    assert not lost


def test_every_error_class_and_kind_is_documented() -> None:
    """In errors.md."""
    text = (DOCS / "errors.md").read_text(encoding="utf-8")
    classes = [name for name in dml.__all__ if name.endswith("Error")]
    assert [name for name in [*classes, *(str(kind) for kind in ErrorKind)] if f"`{name}`" not in text] == []


def test_every_public_name_is_documented() -> None:
    """In python-reference.md, or as an error in errors.md."""
    text = (DOCS / "python-reference.md").read_text(encoding="utf-8")
    names = [name for name in dml.__all__ if not name.endswith("Error")]
    assert [name for name in names if not re.search(rf"\b{name}\b", text)] == []


@pytest.mark.parametrize(("pattern", "what"), [(PROPERTY, "property"), (SETTING, "setting")], ids=["table", "spark"])
def test_everything_that_is_read_is_in_the_configuration_page(pattern: re.Pattern[str], what: str) -> None:
    """Table properties and Spark settings that stand in the code as whole strings."""
    text = (DOCS / "configuration.md").read_text(encoding="utf-8")
    files = (ROOT / "dml").rglob("*.py")
    read = {name.rstrip(".") for path in files for name in pattern.findall(path.read_text(encoding="utf-8"))}
    assert read, f"no {what} found in the code: the pattern is wrong"
    assert sorted(name for name in read if name not in text) == []


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_modules_that_a_page_names_are_there(path: Path) -> None:
    """Paths in backquotes: a module that is renamed is renamed in its description, too."""
    named = MODULE.findall(path.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []
