"""Names: no leading underscores in modules, no class defined twice, and who may use private names of libraries."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

import pytest

from tests.structure.parsed import ROOT, nodes, trees

PRIVATE = re.compile(r"_(?!_)\w+")
PRIVATE_NAMES_OF_LIBRARIES = {
    "dml/catalog/file_access.py": "PyIceberg",
    "dml/catalog/rest.py": "PyIceberg",
    "dml/catalog/views.py": "PyIceberg",
    "dml/iceberg.py": "PyIceberg",
    "dml/maintenance/storage.py": "fsspec",
    "dml/spark/extension.py": "PySpark",
    "dml/spark/bridge/gateway.py": "PySpark",
    "dml/spark/bridge/sessions.py": "PySpark",
    "dml/spark/versions.py": "PySpark",
    "dml/spark_connect/plans.py": "PySpark",
    "dml/write/avro.py": "fastavro",
    "sqlparse/dialect.py": "SQLGlot",
}
"""Whoever adds a module here says in decision 009 or CONTRIBUTING.md why there is no other way."""

ATTRIBUTE_FUNCTIONS = frozenset({"delattr", "getattr", "hasattr", "setattr"})


def module_names(tree: ast.Module) -> Iterator[str]:
    """What a module defines or imports, also under a condition; not what its functions and classes hold."""
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (part for alias in names for part in (alias.asname or alias.name).split("."))
                yield from (alias.name.rpartition(".")[2] for alias in names)
                if isinstance(node, ast.ImportFrom):
                    yield from (node.module or "").split(".")
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                pass  # what it binds is its own
            case _:
                todo.extend(ast.iter_child_nodes(node))


def own_private_names(tree: ast.Module) -> set[str]:
    """Private methods and attributes of the module's own classes, those that override a library's left out."""
    found = set()
    for node in nodes(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def foreign_private_names(tree: ast.Module) -> Iterator[str]:
    """Private attributes that are read, set, called or overridden and are none of the module's own classes'."""
    own = own_private_names(tree)
    for node in nodes(tree):
        match node:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super")), attr=name) if PRIVATE.fullmatch(name):
                yield name
            case ast.Attribute(attr=name) if PRIVATE.fullmatch(name) and name not in own:
                yield name
            case ast.Call(func=ast.Name(id=function), args=[_, ast.Constant(value=str(name)), *_]) if (
                function in ATTRIBUTE_FUNCTIONS and PRIVATE.fullmatch(name)
            ):
                yield name


def test_no_name_of_a_module_has_a_leading_underscore() -> None:
    """`__all__` says what is public; an underscore is for what is private to a class."""
    found = {path: names for path, tree in trees() if (names := sorted(filter(PRIVATE.fullmatch, module_names(tree))))}
    assert found == {}


def repeated_classes(modules: Iterable[tuple[str, ast.Module]]) -> dict[str, list[str]]:
    """Return the class names that several modules define, with these modules."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in modules:
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(path)
    return {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_two_modules_define_a_class_of_the_same_name() -> None:
    """A reader who finds a class by its name finds the right one."""
    assert repeated_classes(trees()) == {}


def test_repeated_classes_are_found() -> None:
    """So that the test above can fail; a class inside another one, such as py4j's `Java`, has no name of its own."""
    modules = {"a.py": "class Scan: ...", "b.py": "class Scan:\n    class Java: ...", "c.py": "class Java: ..."}
    assert repeated_classes((path, ast.parse(text)) for path, text in modules.items()) == {"Scan": ["a.py", "b.py"]}


def referenced_names(node: ast.AST) -> Iterator[str]:
    """Return the names that a piece of code uses, including attributes and strings that may be names."""
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name, ctx=ast.Load()) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                yield name


def names_all(node: ast.stmt) -> bool:
    """Return whether a statement assigns `__all__`, or is a function that returns it, as `__dir__` does."""
    if isinstance(node, ast.ClassDef):
        return False
    parts = (
        ast.walk(node)
        if isinstance(node, ast.FunctionDef)
        else getattr(node, "targets", [getattr(node, "target", None)])
    )
    return any(isinstance(part, ast.Name) and part.id == "__all__" for part in parts)


def test_every_function_and_class_is_used_by_the_package() -> None:
    """Code that only tests call is not part of the product; decorators register what they decorate."""
    defined: list[tuple[str, ast.FunctionDef | ast.ClassDef]] = []
    used: Counter[str] = Counter()
    for path, tree in trees():
        statements = [node for node in tree.body if not names_all(node)]
        used.update(name for node in statements for name in referenced_names(node))
        defined += [(path, node) for node in statements if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    for _, node in defined:
        used.subtract(name for name in referenced_names(node) if name == node.name)
    functions = [(path, node) for path, node in defined if not node.decorator_list or isinstance(node, ast.ClassDef)]
    assert [f"{path}: {node.name}" for path, node in functions if used[node.name] < 1] == []


def test_private_names_of_libraries_are_used_in_few_modules() -> None:
    """They may change with any release: then these are the places to look at, and no others."""
    found = {path for path, tree in trees() if any(foreign_private_names(tree))}
    assert found == set(PRIVATE_NAMES_OF_LIBRARIES)


def test_the_pages_name_the_modules_with_private_names_of_pyiceberg() -> None:
    """Decision 009 says why it is these."""
    (decision,) = (ROOT / "docs" / "decisions").glob("009-*.md")
    text = decision.read_text()
    mine = [path for path, library in PRIVATE_NAMES_OF_LIBRARIES.items() if library == "PyIceberg"]
    assert [path for path in mine if f"`{path}`" not in text] == []


def test_the_rules_name_the_modules_with_private_names() -> None:
    """CONTRIBUTING.md says where they may be used: in single modules, or in a folder."""
    (rule,) = re.findall(r"Private names of\n? *(.*?)\n- ", (ROOT / "CONTRIBUTING.md").read_text("utf-8"), re.DOTALL)
    allowed = tuple(re.findall(r"`((?:dml|sqlparse|deletes)/[\w/.]+)`", rule))
    assert [path for path in PRIVATE_NAMES_OF_LIBRARIES if not path.startswith(allowed)] == []
    assert [place for place in allowed if not any(path.startswith(place) for path in PRIVATE_NAMES_OF_LIBRARIES)] == []


@pytest.mark.parametrize(
    "source",
    [
        "_LIMIT = 3",
        "_LIMIT: int = 3",
        "def _helper(): ...",
        "class _Helper: ...",
        "if True:\n    _x = 1",
        "try:\n    import a as _a\nexcept ImportError:\n    pass",
        "from a import _b",
        "from a import _b as b",
        "from a._b import c",
        "_x, y = 1, 2",
    ],
)
def test_names_of_modules_are_found(source: str) -> None:
    """So that the test above can fail."""
    assert any(map(PRIVATE.fullmatch, module_names(ast.parse(source))))


@pytest.mark.parametrize(
    ("source", "is_foreign"),
    [
        ("table._io", True),
        ("catalog._load_file_io()", True),
        ("setattr(catalog, '_load_file_io', 1)", True),
        ("getattr(catalog, '_load_file_io', None)", True),
        ("class A(B):\n    def _f(self):\n        return super()._f()", True),
        (
            "class A:\n    def __init__(self):\n        self._x = 1\n    def x(self, other):\n        return other._x",
            False,
        ),
        ("class A:\n    _x: int\n    def x(self):\n        return self._x", False),
        ("module.__name__", False),
    ],
)
def test_private_names_of_others_are_found(source: str, *, is_foreign: bool) -> None:
    """So that the test above can fail."""
    assert any(foreign_private_names(ast.parse(source))) is is_foreign
