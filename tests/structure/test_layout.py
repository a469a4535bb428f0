"""The package as it installs, beside other packages, and how long its modules are."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAX_LINES = 500
DATA_ONLY = {"sqlparse/statements.py"}  # one small dataclass for each statement, no logic


def test_nothing_installs_outside_our_package():
    """A top-level `sqlparse` would overwrite the library of that name."""
    packages = PROJECT["tool"]["setuptools"]["packages"]
    assert all(package == "dml" or package.startswith("dml.") for package in packages)


def test_every_folder_with_modules_is_installed():
    """The list of packages is written by hand."""
    mapping = PROJECT["tool"]["setuptools"]["package-dir"]
    found = set()
    for package in ("dml", "dml.sqlparse", "dml.deletes"):
        folder = ROOT / mapping[package]
        for path in folder.rglob("__init__.py"):
            found.add(".".join([package, *path.parent.relative_to(folder).parts]))
    assert found == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_sqlparse_of_pypi_and_ours_stand_side_by_side():
    """Both import in one interpreter, and each is itself."""
    program = (
        "import sqlparse, dml.sqlparse\n"
        "assert sqlparse.format('select 1', keyword_case='upper') == 'SELECT 1'\n"
        "assert sqlparse is not dml.sqlparse\n"
        "assert dml.sqlparse.__name__ == 'dml.sqlparse'\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd="/", capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.spark
def test_a_spark_task_sees_both(spark):
    """Workers have a path of their own: it begins with the driver's folder, which may be this checkout."""

    def seen(batches):
        before = sys.path
        sys.path = [folder for folder in before if not Path(folder, "sqlparse", "statements.py").exists()]
        ours, theirs = importlib.import_module("dml.sqlparse"), importlib.import_module("sqlparse")
        sys.path = before
        for batch in batches:
            yield batch.from_pydict({"ours": [ours.__name__], "theirs": [theirs.__version__]})

    row = spark.range(1).mapInArrow(seen, "ours STRING, theirs STRING").first()
    assert row.ours == "dml.sqlparse"
    assert row.theirs


def test_ci_runs_every_test():
    """Its parts are written by hand."""
    script = (ROOT / ".ci" / "run").read_text()
    parts = {word for line in re.findall(r'^ *"[^"]+: ([^"$]+)"$', script, re.MULTILINE) for word in line.split()}
    tests = ROOT / "tests"
    found = {path.relative_to(tests) for path in tests.rglob("test_*.py")}
    assert all((tests / part).exists() for part in parts)
    assert [str(path) for path in found if not any(path.is_relative_to(part) for part in parts)] == []


def test_modules_are_short():
    """A module that outgrows the limit has a second job that wants its own name."""
    long = {
        str(path.relative_to(ROOT)): length
        for folder in ("dml", "sqlparse", "deletes")
        for path in (ROOT / folder).rglob("*.py")
        if (length := len(path.read_text().splitlines())) > MAX_LINES
    }
    assert set(long) - DATA_ONLY == set(), long
