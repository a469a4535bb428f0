"""The tree of errors: drawn, pickled, known to Spark's workers."""

import pickle
import re
from pathlib import Path

import pytest

from dml import errors
from dml.errors import DmlError, ErrorKind


def error_classes(root=DmlError):
    """The root and all below it."""
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from error_classes(child)


@pytest.mark.parametrize("error_class", list(error_classes()), ids=lambda c: c.__name__)
def test_errors_survive_pickling_with_everything_they_know(error_class):
    """Exceptions with keyword arguments do not unpickle by themselves, and ours cross Spark's workers."""
    error = error_class(
        "What happened",
        kind=ErrorKind.OVERFLOW,
        hint="Do this",
        sql="SELECT x\nFROM t",
        position=14,
        length=1,
        expected="a table",
        table="db.t",
        files=("a", "b"),
    )
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is error_class
    assert str(copy) == str(error)
    assert copy.args == error.args
    assert vars(copy) == vars(error)
    assert copy.retryable is error_class.retryable


PAGE = (Path(__file__).parents[2] / "docs/errors.md").read_text(encoding="utf-8")


def drawing(text):
    """The drawn tree in a text, without the indentation of the whole."""
    tree = re.search(r"^ *DmlError\n(?: *[├│└].*\n)+", text, re.MULTILINE)
    assert tree is not None
    lines = tree[0].splitlines()
    margin = len(lines[0]) - len(lines[0].lstrip())
    return [line[margin:] for line in lines]


def drawn_parents(lines):
    """For each class of a drawing, the one that it hangs on."""
    above, parents = {}, {}
    for line in lines:
        name = re.search(r"\w+", line)
        assert name is not None
        depth = name.start() // 4
        above[depth] = name[0]
        parents[name[0]] = above.get(depth - 1)
    return parents


def test_the_tree_is_drawn_as_it_is_in_the_module_and_on_the_page():
    """A class that is not in the drawing, or hangs elsewhere, is not caught by its users."""
    tree = {c.__name__: None if c is DmlError else c.__base__.__name__ for c in error_classes()}
    assert drawn_parents(drawing(errors.__doc__)) == tree
    assert drawing(PAGE) == drawing(errors.__doc__)
    assert sorted(c.__name__ for c in error_classes()) == sorted(n for n in errors.__all__ if n.endswith("Error"))


def test_kinds_are_unique_words():
    """Programs compare them."""
    assert len({kind.value for kind in ErrorKind}) == len(list(ErrorKind))
    assert all(kind.value == kind.value.lower() and " " not in kind.value for kind in ErrorKind)


def test_the_page_has_a_row_for_each_class_and_says_of_each_kind_which_class_has_it():
    """And of no kind that there is not; a class has its default kind in its own row."""
    rows = {cells[1].strip(" `"): cells for line in PAGE.splitlines() if len(cells := line.split("|")) == 6}
    kinds = {name: set(re.findall(r"`([a-z-]+)`", cells[2])) for name, cells in rows.items() if name.endswith("Error")}
    assert kinds.keys() == {c.__name__ for c in error_classes()}
    assert set().union(*kinds.values()) == {kind.value for kind in ErrorKind}
    assert [c.__name__ for c in error_classes() if c is not DmlError and c.default_kind not in kinds[c.__name__]] == []
