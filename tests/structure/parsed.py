"""The modules of the package, parsed once for all tests of the folder."""

import ast
from functools import cache
from pathlib import Path

__all__ = ["ROOT", "nodes", "trees"]

ROOT = Path(__file__).resolve().parents[2]


@cache
def trees() -> tuple[tuple[str, ast.Module], ...]:
    """Return the syntax tree of each module, by its path in the repository."""
    paths = [path for folder in ("dml", "sqlparse", "deletes") for path in sorted((ROOT / folder).rglob("*.py"))]
    return tuple((path.relative_to(ROOT).as_posix(), ast.parse(path.read_text(encoding="utf-8"))) for path in paths)


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a tree."""
    return tuple(ast.walk(tree))
