"""What users may rely on: a change of it is a change that users notice."""

import importlib
import importlib.metadata
import inspect
from pathlib import Path

import pytest

import dml
from tests.structure.public_api import public_api

LISTED = Path(__file__).with_name("public_api.txt")


def test_the_public_api_is_what_is_listed():
    """Every name, signature, field, kind and base class; what changes here, changes for users."""
    assert public_api() == LISTED.read_text(), (
        "The public API is another one than listed. If that is meant: "
        "python -m tests.structure.public_api > tests/structure/public_api.txt, and a line in CHANGELOG.md"
    )


def test_the_listing_sees_every_change():
    """A name, a parameter, a field with its default, a kind, a base class: each has its line."""
    lines = LISTED.read_text().splitlines()
    for line in (
        "class dml.SqlError(DmlError)",
        "    CommitConflictError.retryable = True",
        "    ErrorKind.CONFLICT = 'conflict'",
        "    Result.rows_inserted: int = 0",
        "    Session.table(self, name: str) -> DataFrame",
        "def dml.disable(spark: SparkSession) -> None",
    ):
        assert line in lines


@pytest.mark.parametrize("name", dml.__all__)
def test_every_public_name_says_what_it_is(name):
    """And can be had."""
    assert inspect.getdoc(getattr(dml, name))


@pytest.mark.parametrize("name", ["Session", "connect", "extend", "Result"])
def test_lazy_names_are_listed_by_dir(name):
    """Completion in a notebook finds them before they are loaded."""
    assert name in dir(dml)


def test_the_version_is_that_of_the_installed_package():
    """Looked up when it is asked for."""
    assert dml.__version__ == importlib.metadata.version("rowdelta")


def test_an_unknown_name_is_an_attribute_error():
    """As in any module."""
    with pytest.raises(AttributeError, match="nope"):
        dml.nope  # noqa: B018


def test_no_module_hides_a_public_name() -> None:
    """An imported submodule becomes an attribute of the package, in place of a function of its name."""
    importlib.import_module("dml.active_session")
    assert [name for name in dml.__all__ if inspect.ismodule(getattr(dml, name))] == []
