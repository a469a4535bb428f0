"""The names of table properties stand in `dml.options` and nowhere else."""

import ast
import re
from collections.abc import Iterator

import pytest

from dml import options
from tests.structure.parsed import nodes, trees

NAME = re.compile(r"(commit|gc|history|maintenance|read|schema|write)\.[a-z{]|format-version$|option\.$")
# A manifest says its format version in Avro metadata of that name, which is no property of a table.
OTHERS = {("manifests/write.py", "format-version")}


def names(tree: ast.Module) -> Iterator[str]:
    """The literals of a module that begin as the name of a property does."""
    for node in nodes(tree):
        match node:
            case ast.JoinedStr(values=[ast.Constant(value=str(start)), *_]):
                text = start + "{"
            case ast.Constant(value=str(text)):
                pass
            case _:
                continue
        if NAME.match(text):
            yield text


def test_no_other_module_spells_the_name_of_a_property() -> None:
    found = {
        (path.removeprefix("dml/"), text) for path, tree in trees() if path != "dml/options.py" for text in names(tree)
    }
    assert found == OTHERS


@pytest.mark.parametrize("text", ["'write.format.default'", "f'write.{x}.mode'", "'format-version'", "'gc.enabled'"])
def test_a_name_is_seen(text: str) -> None:
    assert len(list(names(ast.parse(f"properties.get({text})")))) >= 1


def test_a_sentence_about_a_property_is_none() -> None:
    source = "fail('Set write.format.default first', f'{x}.mode is set', 'the format-version')"
    assert list(names(ast.parse(source))) == []


def test_the_constants_are_names() -> None:
    """Each name once."""
    constants = [value for name in options.__all__ if isinstance(value := getattr(options, name), str)]
    assert len(constants) > 20
    assert [value for value in constants if not NAME.match(value)] == []
    assert len(set(constants)) == len(constants)
