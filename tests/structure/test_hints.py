"""Hints of errors name extras that install the missing package, and pages that are published."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions, requires

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from pyspark.errors.exceptions.base import PySparkImportError

from dml.cli import error_message
from dml.hints import DOCUMENTATION, EXTRAS, install_hint, page
from tests.structure.parsed import ROOT, nodes, trees

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed_by(wanted: Requirement) -> Iterator[str]:
    """Return the distributions that extras add, by the current pyproject.toml."""
    for extra in wanted.extras:
        if canonicalize_name(wanted.name) == "rowdelta":
            given = [Requirement(text) for text in PROJECT["optional-dependencies"][extra]]
        else:
            listed = [Requirement(text) for text in requires(wanted.name) or ()]
            given = [each for each in listed if each.marker and each.marker.evaluate({"extra": extra})]
        for each in given:
            yield canonicalize_name(each.name)
            yield from installed_by(each)


@pytest.fixture(scope="module")
def distributions_of() -> Mapping[str, list[str]]:
    """The installed distributions of each package."""
    return packages_distributions()


@pytest.mark.parametrize("name", sorted(EXTRAS))
def test_the_extra_of_a_hint_installs_what_is_missing(name: str, distributions_of: Mapping[str, list[str]]) -> None:
    distributions = {canonicalize_name(found) for found in distributions_of.get(name, [name])}
    distributions |= {"psycopg2-binary"} if name == "psycopg2" else set()
    added = set(installed_by(Requirement(EXTRAS[name])))
    assert distributions & added, added


def test_no_hint_sends_users_to_the_tools_of_developers() -> None:
    assert "rowdelta[dev]" not in EXTRAS.values()
    found = [path for path, text in strings() if "rowdelta[dev]" in text]
    assert found == []


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (ModuleNotFoundError("No module named 'grpc'", name="grpc"), "rowdelta[connect]"),
        (ModuleNotFoundError("No module named 'duckdb.x'", name="duckdb.x"), "rowdelta[demo]"),
        (ModuleNotFoundError("No module named 'google.rpc'", name="google.rpc"), "rowdelta[connect]"),
        (ModuleNotFoundError("No module named 'elsewhere'", name="elsewhere"), "pip install 'elsewhere'"),
    ],
)
def test_the_command_line_names_the_extra(error: ModuleNotFoundError, hint: str) -> None:
    assert hint in error_message(error)
    assert str(error.name) in error_message(error)


def test_a_package_that_pyspark_misses_is_named_with_our_extra() -> None:
    error = PySparkImportError(
        errorClass="PACKAGE_NOT_INSTALLED",
        messageParameters={"package_name": "grpcio", "minimum_version": "1.67.0"},
    )
    assert "rowdelta[connect]" in error_message(error)
    assert "grpcio >= 1.67.0 must be installed" in error_message(error)


def strings() -> Iterator[tuple[str, str]]:
    """The texts in the package's code, without docstrings."""
    for path, tree in trees():
        alone = {id(node.value) for node in nodes(tree) if isinstance(node, ast.Expr)}
        for node in nodes(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
                yield path, node.value


def test_no_message_names_a_file_of_the_repository() -> None:
    """`docs/` is not in the wheel."""
    assert [(path, text) for path, text in strings() if re.search(r"\bdocs/|\w\.md\b", text)] == []


def test_pages_that_hints_name_are_published_under_their_titles() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    titles = {
        (path.read_text().splitlines() or [""])[0].removeprefix("# "): path.name
        for path in (ROOT / "docs").glob("*.md")
    }
    calls = [
        node.args[0].value
        for path, tree in trees()
        if path.startswith("dml/")
        for node in nodes(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == page.__name__
    ]
    assert len(calls) >= 3
    assert [title for title in calls if titles.get(title, "?") not in navigation] == []
    assert DOCUMENTATION in PROJECT["urls"]["Documentation"]


def test_a_hint_is_one_command() -> None:
    assert install_hint("grpc") == "Install it with: pip install 'rowdelta[connect]'"
