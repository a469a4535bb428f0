"""What users may rely on: a change of this list is a change that users notice."""

import importlib.metadata
import inspect

import pytest

import dml
from dml.session import Session

NAMES = {
    "AlreadyExistsError",
    "AnalysisError",
    "CommitConflictError",
    "CommitStateUnknownError",
    "CorruptFileError",
    "DataError",
    "DmlError",
    "ErrorKind",
    "ExecutionError",
    "NotFoundError",
    "NotSupportedError",
    "Result",
    "Session",
    "SetupError",
    "SqlError",
    "ValidationFailedError",
    "Verification",
    "connect",
    "delete",
    "disable",
    "enable",
    "extend",
    "merge_into",
    "remove_orphan_files",
    "sql",
    "table",
    "update",
    "verify",
}
SESSION = {
    "add_catalog",
    "delete",
    "disable",
    "enable",
    "merge_into",
    "remove_orphan_files",
    "sql",
    "table",
    "update",
    "verify",
}


def test_the_package_offers_these_names():
    """Each is listed, can be had, and says what it is."""
    assert set(dml.__all__) >= NAMES
    for name in NAMES:
        assert inspect.getdoc(getattr(dml, name)), name


def test_a_session_offers_these_methods():
    """The methods that the documentation names."""
    assert {name for name in vars(Session) if not name.startswith("_")} >= SESSION


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
