"""docs/semantics.md and the tests agree: a golden script or a test proves each behaviour, and names no unknown one.

A script names ids in its header, a test by the marker `proves`. What is marked is read from the source, not run: a test
that is left to the night proves nothing here.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.golden.script import parse_script

FOLDER = Path(__file__).parent
TESTS = FOLDER.parent
SEMANTICS = TESTS.parent / "docs" / "semantics.md"
BEHAVIOUR = re.compile(r'<a id="(?P<id>[A-Z]+\d+)"></a>')
ROW = re.compile(r"^\| .*<a id=", re.MULTILINE)
BY_NIGHT = {"nightly", "soak"}

# By letter: the last number, and those that are not there.
NUMBERS = {
    "C": (37, set()),
    "D": (24, set()),
    "U": (18, set()),
    "M": (31, set()),
    "I": (11, {9, 10}),
    "V": (10, set()),
    "R": (6, set()),
    "P": (11, set()),
    "DV": (8, set()),
    "S": (6, set()),
    "L": (12, set()),
    "A": (10, set()),
    "F": (7, set()),
    "H": (6, set()),
}

# What the page says and nothing proves yet.
OPEN: set[str] = set()


def documented() -> list[str]:
    return BEHAVIOUR.findall(SEMANTICS.read_text(encoding="utf-8"))


def marks_of(test: ast.FunctionDef) -> Iterator[tuple[str, list[str]]]:
    """The pytest markers of a test, and their arguments that are text."""
    for decorator in test.decorator_list:
        call = decorator if isinstance(decorator, ast.Call) else None
        name = ast.unparse(decorator if call is None else call.func)
        if name.startswith("pytest.mark."):
            words = [] if call is None else [argument.value for argument in call.args if is_text(argument)]
            yield name.removeprefix("pytest.mark."), words


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def named_by_tests(folder: Path = TESTS) -> dict[str, list[str]]:
    """The tests that prove a behaviour, by its id."""
    names: dict[str, list[str]] = {}
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "proves" in text else ():
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                marks = list(marks_of(node))
                if BY_NIGHT.isdisjoint(name for name, _ in marks):
                    for behaviour in (word for name, words in marks if name == "proves" for word in words):
                        names.setdefault(behaviour, []).append(f"{path.relative_to(folder)}::{node.name}")
    return names


def named_by_scripts() -> dict[str, list[str]]:
    """The golden scripts that prove a behaviour, by its id."""
    names: dict[str, list[str]] = {}
    for path in sorted(FOLDER.rglob("*.sql")):
        for behaviour in parse_script(path).ids:
            names.setdefault(behaviour, []).append(str(path.relative_to(FOLDER)))
    return names


@pytest.mark.parametrize("letter", NUMBERS)
def test_the_document_states_each_behaviour_once(letter: str) -> None:
    last, missing = NUMBERS[letter]
    found = [behaviour for behaviour in documented() if behaviour.rstrip("0123456789") == letter]
    assert found == [f"{letter}{number}" for number in range(1, last + 1) if number not in missing]


def test_every_row_of_the_document_has_an_id_of_a_known_kind() -> None:
    """Another letter, or a second id in a row, would escape the tests here."""
    found = documented()
    assert {behaviour.rstrip("0123456789") for behaviour in found} == NUMBERS.keys()
    assert len(ROW.findall(SEMANTICS.read_text(encoding="utf-8"))) == len(found)


def test_every_behaviour_is_proved() -> None:
    proved, ids = named_by_scripts().keys() | named_by_tests().keys(), documented()
    missing = {behaviour for behaviour in ids if behaviour not in proved}
    print(f"{len(ids) - len(missing)} of {len(ids)} behaviours are proved by a golden script or a test")
    assert missing == OPEN


def test_nothing_names_an_unknown_behaviour() -> None:
    known = set(documented())
    for names in (named_by_scripts(), named_by_tests()):
        assert {name: where for name, where in names.items() if name not in known} == {}


def test_behaviours_that_no_script_shows_are_proved_by_a_test() -> None:
    """SQL cannot make such a table (C24), or it is about Python calls (M26)."""
    statements = {behaviour for behaviour in documented() if behaviour[0] in "CDUMI" and behaviour[:2] != "DV"}
    without = statements - named_by_scripts().keys()
    assert without == {"C24", "M26"}
    assert without <= named_by_tests().keys()


def test_a_test_of_the_night_proves_nothing(tmp_path: Path) -> None:
    source = (
        "@pytest.mark.proves('C1', 'D2')\n@pytest.mark.parametrize('a', [1])\ndef test_it(a): pass\n"
        "@pytest.mark.nightly\n@pytest.mark.proves('C3')\ndef test_long(): pass\n"
        "@pytest.mark.proves('C4')\ndef helper(): pass\n"
        "class TestGroup:\n    @pytest.mark.proves('C5')\n    def test_in_it(self): pass\n"
    )
    (tmp_path / "test_some.py").write_text(source)
    assert set(named_by_tests(tmp_path)) == {"C1", "D2", "C5"}
