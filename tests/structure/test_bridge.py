"""Only the bridge touches py4j, Spark's private classes and PySpark's private attributes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dml.spark.bridge import names
from tests.structure.internals import internals, users
from tests.structure.parsed import nodes, trees

LISTED = Path(__file__).with_name("internals.txt")
BRIDGE = "dml/spark/bridge/"
PUBLIC = r"hadoop\.fs\.|iceberg\b|spark\.sql\.(connector|types|sources|util)\."
"""Packages of Spark's public API: sources and catalogs, types; and those of others."""
PRIVATE_CLASS = re.compile(rf"org\.apache\.(?!{PUBLIC})[\w.$]*")
REACHED = frozenset(
    {"apache", "getDeclaredConstructors", "getDeclaredFields", "getDeclaredMethods", "queryExecution", "sessionState"}
    | {"setAccessible", "sharedState"}
)
"""Attributes that lead to private classes: of Java's packages, of reflection, of Spark's sessions and DataFrames."""
PRIVATE_MODULES = ("py4j", "pyspark.java_gateway")
OUTSIDE = {
    "dml/spark/column_text.py": {"the attribute that is computed"},  # trees of Connect's Columns have 30 classes
    "dml/spark/extension.py": {"_lock"},  # of the base class of a builder
    "dml/spark/settings.py": {"org.apache.spark.sql.catalyst."},  # compared with the class of a function
    "dml/spark/versions.py": {
        "_cause",  # of PySpark's exceptions, each read where it exists
        "_collect_as_arrow",  # PySpark 3.5, which does not change any more
        "_desc",
        "_origin",
        "org.apache.spark.sql",  # where sessions are, by version
        "org.apache.spark.sql.classic",
    },
    "dml/spark_connect/plans.py": {"_create_proto_relation"},  # of the base class of a plan
}
"""What is still outside, to be taken away: nothing may be added."""


def private_uses(tree: ast.Module) -> Iterator[str]:
    """Yield what a module uses of the insides of Spark, PySpark and py4j."""
    for node in nodes(tree):
        match node:
            case ast.Import(names=imported) if any(name.name.startswith(PRIVATE_MODULES) for name in imported):
                yield from (name.name for name in imported)
            case ast.ImportFrom(module=str(module)) if module.startswith(PRIVATE_MODULES):
                yield module
            case ast.Constant(value=str(text)) if "\n" not in text and PRIVATE_CLASS.fullmatch(text):
                yield text
            case ast.Attribute(attr=name) if name in REACHED:
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.JoinedStr(), *_]):
                yield "the attribute that is computed"
            case ast.ImportFrom(module="dml.spark.bridge.gateway", names=imported):
                if "field_of" in {name.name for name in imported}:
                    yield "field_of"


def uses_outside() -> dict[str, set[str]]:
    """Return what modules outside the bridge use, with PySpark's private attributes in `dml/spark`."""
    found = {}
    for path, tree in trees():
        if not path.startswith(BRIDGE):
            uses = set(private_uses(tree))
            if "pyspark" in {name.split(".")[0] for name in imported_modules(tree)}:
                uses |= set(private_attributes(tree))
            if uses:
                found[path] = uses
    return found


def imported_modules(tree: ast.Module) -> Iterator[str]:
    """Yield the modules that a module imports."""
    for node in tree.body:
        match node:
            case ast.Import(names=imported):
                yield from (name.name for name in imported)
            case ast.ImportFrom(module=str(module)):
                yield module


def private_attributes(tree: ast.Module) -> Iterator[str]:
    """Yield private attributes that no class of the module has."""
    own = {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    own |= {node.name for node in nodes(tree) if isinstance(node, ast.FunctionDef)}
    own |= {node.id for node in nodes(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes(tree):
        match node:
            case ast.Attribute(attr=name) if is_private(name) and name not in own:
                yield name
            case ast.Call(
                func=ast.Name(id="getattr" | "hasattr" | "setattr"), args=[_, ast.Constant(value=str(name)), *_]
            ):
                if is_private(name):
                    yield name


def is_private(name: str) -> bool:
    """Return whether a name has one leading underscore."""
    return name.startswith("_") and not name.startswith("__")


def test_only_the_bridge_uses_what_is_private():
    """What another release of Spark may change is in one place, with its fallback."""
    assert uses_outside() == OUTSIDE


@pytest.mark.parametrize(
    "text",
    [
        "import py4j.protocol",
        "from py4j.java_gateway import JavaObject",
        "from pyspark.java_gateway import launch_gateway",
        "KIND = 'org.apache.spark.sql.execution.LogicalRDD'",
        "KIND = f'org.apache.spark.sql.catalyst.{name}'",
        "view.org.apache.spark.sql.execution",
        "frame.queryExecution()",
        "constructor.setAccessible(True)",
        "getattr(frame, f'_{name}')",
        "from dml.spark.bridge.gateway import field_of",
    ],
)
def test_private_uses_are_found(text):
    """So that the test above can fail."""
    assert list(private_uses(ast.parse(text)))


@pytest.mark.parametrize("text", ["frame._jdf", "getattr(frame, '_jdf')", "def load(self): return self._spark"])
def test_private_attributes_are_found(text):
    assert list(private_attributes(ast.parse(text)))


def test_what_is_public_may_be_used():
    text = "KIND = 'org.apache.spark.sql.connector.read.Scan'\nPATH = 'org.apache.hadoop.fs.Path'"
    assert not list(private_uses(ast.parse(text)))


def test_the_list_of_internals_is_what_the_bridge_has():
    """Every class, member, user and fallback: what changes here, may break with the next PySpark."""
    assert internals() == LISTED.read_text(), (
        "RowDelta uses other internals than listed: python -m tests.structure.internals > tests/structure/internals.txt"
    )


def test_every_internal_is_used():
    used = users()
    assert [name for name in names.INTERNALS if not used[name]] == []
