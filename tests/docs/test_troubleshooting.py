"""The error messages of the troubleshooting page are those of the code."""

import re
from itertools import chain
from pathlib import Path

import pytest

import dml
from tests.docs.examples import FENCE
from tests.docs.wording import code_texts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"
QUOTED = [
    line
    for block in FENCE.finditer(PAGE.read_text(encoding="utf-8"))
    if block["info"] == "text"
    for line in block["body"].splitlines()
]
MODULES = list(chain.from_iterable((ROOT / package).rglob("*.py") for package in ("dml", "sqlparse", "deletes")))


def pattern_of(message: str) -> re.Pattern[str]:
    """Return a pattern for a message of the page, in which `...` is any text."""
    return re.compile(re.escape(message).replace(r"\.\.\.", ".*"), re.DOTALL)


def test_the_page_quotes_messages() -> None:
    assert len(QUOTED) > 20


def test_each_quoted_message_is_raised_by_the_code() -> None:
    """With values as `...`, and its class is public."""
    texts = {text for path in MODULES for _, text in code_texts(path)}
    missing = []
    for line in QUOTED:
        name, _, message = line.partition(": ")
        assert issubclass(getattr(dml, name), dml.DmlError), line
        words, pattern = re.sub(r"\.\.\.", "", message), pattern_of(message)
        if words.strip() and not any(map(pattern.match, texts)):
            missing.append(line)
    assert missing == []


@pytest.mark.parametrize(
    ("message", "text", "matches"),
    [
        ("There is no table '...'", "There is no table '...'", True),
        ("Found conflicting files...", "Found conflicting files that can contain records", True),
        ("There is no table '...'", "No such table '...'", False),
        ("Java is too old", "Java ... is too old", False),
    ],
)
def test_dots_of_a_message_are_any_text(message: str, text: str, *, matches: bool) -> None:
    assert bool(pattern_of(message).match(text)) is matches
