"""The tree of errors: drawn, pickled, known to Spark's workers."""

import pickle

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


def test_the_docstring_draws_every_class():
    """A class that is not in the drawing is not found by its users."""
    drawn = errors.__doc__
    assert [c.__name__ for c in error_classes() if c.__name__ not in drawn] == []
    assert sorted(c.__name__ for c in error_classes()) == sorted(n for n in errors.__all__ if n.endswith("Error"))


def test_kinds_are_unique_words():
    """Programs compare them."""
    assert len({kind.value for kind in ErrorKind}) == len(list(ErrorKind))
    assert all(kind.value == kind.value.lower() and " " not in kind.value for kind in ErrorKind)
