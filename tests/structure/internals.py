"""What RowDelta uses of Spark's and PySpark's insides, as text: who uses it, and what happens without it. A program.

    python -m tests.structure.internals > tests/structure/internals.txt

The users are found in the source. Names are those of the newest PySpark.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping

from dml.spark.bridge import names
from dml.spark.bridge.internals import Internal, JavaField, PrivateField, SparkClass
from tests.structure.parsed import trees

__all__ = ["internals", "users"]

REFUSED = "the statement is refused, with an error that names it and the version of PySpark"


def users() -> Mapping[str, list[str]]:
    """The functions and classes that use each of them, by the name of its constant."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for path, tree in trees():
        if path == "dml/spark/bridge/names.py":
            continue
        module = path.removesuffix(".py").replace("/", ".")
        for scope, node in scopes(tree, ""):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id in names.INTERNALS and imports(tree, part.id):
                    user = f"{module}.{scope}" if scope else module
                    if user not in found[part.id]:
                        found[part.id].append(user)
    return found


def imports(tree: ast.Module, name: str) -> bool:
    """Whether a module has a name from the list."""
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == names.__name__
        and any(alias.name == name for alias in node.names)
        for node in tree.body
    )


def scopes(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    """The functions of a module and methods of its classes, and what is outside of them."""
    for part in ast.iter_child_nodes(node):
        match part:
            case ast.ClassDef():
                yield from scopes(part, f"{part.name}.")
            case ast.FunctionDef():
                yield f"{name}{part.name}", part
            case ast.Import() | ast.ImportFrom():
                pass
            case _:
                yield name.removesuffix("."), part


def internals() -> str:
    """Return a paragraph for each of them, by name."""
    used = users()
    described = sorted((title(one), one, used[name]) for name, one in names.INTERNALS.items())
    return "\n".join(paragraph(*each) for each in described)


def title(one: Internal) -> str:
    """The full name."""
    return f"{one.owner}.{one.name}" if isinstance(one, PrivateField | JavaField) else one.name


def paragraph(name: str, one: Internal, used_by: list[str]) -> str:
    """Describe one of them."""
    lines = [name]
    if isinstance(one, SparkClass) and one.members:
        lines.append(f"    members: {', '.join(one.members.split())}")
    if one.since is not None:
        lines.append(f"    from PySpark {version(one.since.since)} on")
    if one.until is not None:
        lines.append(f"    before PySpark {version(one.until.since)}")
    lines += [f"    used by: {user}" for user in used_by]
    lines.append(f"    without it: {one.fallback or REFUSED}")
    return "\n".join(lines) + "\n"


def version(parts: tuple[int, int]) -> str:
    """Format a version."""
    return ".".join(map(str, parts))


if __name__ == "__main__":
    sys.stdout.write(internals())
