"""Who may import whom, and what workers must not load."""

import ast
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {"dml": ROOT / "dml", "dml.sqlparse": ROOT / "sqlparse", "dml.deletes": ROOT / "deletes"}
FORBIDDEN_ON_WORKERS = ("pyspark", "py4j", "sqlglot", "dml.sqlparse", "dml.spark", "dml.session")


def modules():
    """Every module of the package with its file."""
    for package, folder in FOLDERS.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join([package, *(part for part in parts if part != "__init__")]), path


def first_paragraph(path):
    """The module docstring up to its first blank line, on one line."""
    return " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())


def worker_modules():
    """The modules whose docstring says that they run on workers."""
    return [name for name, path in modules() if first_paragraph(path).endswith(("Worker.", "Worker-safe.", "workers."))]


def test_the_import_contract_is_kept(tmp_path):
    """The contract of pyproject.toml, checked on the package as it is when installed."""
    for package, folder in FOLDERS.items():
        target = tmp_path.joinpath(*package.split("."))
        shutil.copytree(folder, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        "--config",
        str(ROOT / "pyproject.toml"),
        "--no-cache",
    ]
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    outcome = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_worker_modules_load_neither_spark_nor_sql():
    """Each worker module, imported in a fresh interpreter that knows what was loaded before it."""
    names = worker_modules()
    assert len(names) > 10
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        f"    bad = [m for m in sys.modules for f in {FORBIDDEN_ON_WORKERS!r} if m == f or m.startswith(f + '.')]\n"
        "    assert not bad, f'{name} loads {bad[:3]}'\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd="/", capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr


@pytest.mark.parametrize("package", ["dml.model", "dml.write", "dml.deletes", "dml.read", "dml.scan"])
def test_every_module_of_a_package_that_workers_use_says_where_it_runs(package):
    """Driver or worker: in the first paragraph of the docstring, so that the test above knows."""
    silent = [
        name
        for name, path in modules()
        if name.startswith(package + ".")
        and not any(word in first_paragraph(path).lower() for word in ("driver", "worker", "pure"))
    ]
    assert silent == []


def test_only_one_module_touches_the_jvm():
    """`_jvm` is py4j: it does not exist on Spark Connect."""
    users = [name for name, path in modules() if re.search(r"(?<!\w)_jvm(?!\w)", path.read_text())]
    assert users == ["dml.spark.bridge.gateway"]


def test_every_module_lists_its_names():
    """`__all__` is what a module offers, and every name in it exists."""
    for name, path in modules():
        if path.name == "__main__.py":
            continue
        module = importlib.import_module(name)
        assert path.name == "__init__.py" or hasattr(module, "__all__"), name
        assert [public for public in getattr(module, "__all__", ()) if not hasattr(module, public)] == [], name
