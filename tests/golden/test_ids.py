"""docs/semantics.md and the golden scripts agree: every behaviour has a script, every script names known behaviours."""

import re
from pathlib import Path

import pytest

from tests.golden.script import parse_script

FOLDER = Path(__file__).parent
SEMANTICS = FOLDER.parent.parent / "docs" / "semantics.md"
BEHAVIOUR = re.compile(r'<a id="(?P<id>[CDUMI]\d+)"></a>')
EXPECTED_COUNTS = {"C": 37, "D": 24, "U": 18, "M": 31, "I": 11}

# Behaviours that no golden script can show: why, and the test that does.
WITHOUT_SCRIPT = {
    "I9": "streaming comes in a later release",
    "I10": "streaming comes in a later release",
    "C24": "SQL cannot make such a table: test_an_unknown_transform_of_the_current_spec_is_refused",
    "M26": "it is about Python calls: test_merge_in_python_means_the_same_as_in_sql",
}


def documented() -> list[str]:
    return BEHAVIOUR.findall(SEMANTICS.read_text(encoding="utf-8"))


def named_by_scripts() -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for path in sorted(FOLDER.rglob("*.sql")):
        for behaviour in parse_script(path).ids:
            names.setdefault(behaviour, []).append(str(path.relative_to(FOLDER)))
    return names


@pytest.mark.parametrize(("letter", "count"), EXPECTED_COUNTS.items())
def test_the_document_states_each_behaviour_once(letter: str, count: int) -> None:
    found = [behaviour for behaviour in documented() if behaviour[0] == letter]
    assert found == [f"{letter}{number}" for number in range(1, count + 1)]


def test_every_behaviour_has_a_script() -> None:
    missing = set(documented()) - named_by_scripts().keys() - WITHOUT_SCRIPT.keys()
    assert not missing, sorted(missing)


def test_no_script_names_an_unknown_behaviour() -> None:
    unknown = {name: paths for name, paths in named_by_scripts().items() if name not in documented()}
    assert not unknown


def test_behaviours_of_a_later_release_are_documented_as_such() -> None:
    lines = SEMANTICS.read_text(encoding="utf-8").splitlines()
    later = {behaviour for line in lines if "comes in a later release" in line for behaviour in BEHAVIOUR.findall(line)}
    assert later == {behaviour for behaviour, reason in WITHOUT_SCRIPT.items() if "a later release" in reason}


def test_the_tests_that_stand_for_scripts_are_there() -> None:
    written = (FOLDER / "test_beyond_sql.py").read_text(encoding="utf-8")
    named = [reason.rpartition(": ")[2] for reason in WITHOUT_SCRIPT.values() if ": test_" in reason]
    assert named
    assert not [name for name in named if f"def {name}(" not in written]


def test_behaviours_without_a_script_are_documented_and_have_none() -> None:
    assert set(WITHOUT_SCRIPT) <= set(documented())
    assert not WITHOUT_SCRIPT.keys() & named_by_scripts().keys()
