"""What users may rely on, as text: every public name with its signature, fields, kinds and base classes. A program.

    python -m tests.structure.public_api > tests/structure/public_api.txt

Signatures are taken from the source, so that the text is the same on every version of Python.
"""

import ast
import dataclasses
import inspect
import sys
import textwrap
from collections.abc import Iterator
from enum import Enum
from typing import Any

import dml
from dml.merge_builder import MatchedAction, MergeBuilder, MergeClauses, NotMatchedAction
from dml.merge_stream import StreamMerge
from dml.result import (
    AddedFiles,
    Ancestor,
    BranchMove,
    CurrentSnapshot,
    Decision,
    ExpiredSnapshots,
    ImportedFiles,
    PublishedSnapshot,
    RegisteredTable,
    RewrittenDataFiles,
    RewrittenTablePath,
)

__all__ = ["public_api"]

RETURNED = (
    AddedFiles,
    Ancestor,
    BranchMove,
    CurrentSnapshot,
    Decision,
    ExpiredSnapshots,
    ImportedFiles,
    MatchedAction,
    MergeBuilder,
    MergeClauses,
    NotMatchedAction,
    PublishedSnapshot,
    RegisteredTable,
    RewrittenDataFiles,
    RewrittenTablePath,
    StreamMerge,
)
"""Classes that users hold without naming them, so that their `__init__` is not for users."""


def public_api() -> str:
    """One line for each thing that users may rely on, by name."""
    named = {name: getattr(dml, name) for name in dml.__all__}
    returned = {one.__name__: one for one in RETURNED}
    lines = [line for name, value in sorted({**named, **returned}.items()) for line in described(name, value)]
    return "\n".join(lines) + "\n"


def described(name: str, value: Any) -> Iterator[str]:
    """A function, a class with what is in it, or a value."""
    if not inspect.isclass(value):
        yield f"def dml.{name}{signature(value)}" if callable(value) else f"dml.{name}"
        return
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    yield f"class dml.{name}({bases})" if bases else f"class dml.{name}"
    if issubclass(value, Enum):
        yield from (f"    {name}.{one.name} = {one.value!r}" for one in value)
    elif dataclasses.is_dataclass(value):
        yield from (f"    {name}.{one.name}: {annotation(value, one.name)}" for one in dataclasses.fields(value))
    for member, what in sorted(vars(value).items()):
        if member.startswith("_") and (member not in {"__init__", "__enter__", "__exit__"} or value in RETURNED):
            continue
        inner = what.__func__ if isinstance(what, staticmethod | classmethod) else what
        if isinstance(inner, property):
            yield f"    {name}.{member}: {returns(inner.fget)}"
        elif inspect.isfunction(inner) and inspect.getsourcefile(inner) is not None and not is_generated(inner):
            yield f"    {name}.{member}{signature(inner)}"
        elif isinstance(value, type) and issubclass(value, dml.DmlError) and not inspect.isroutine(inner):
            yield f"    {name}.{member} = {inner!r}"


def is_generated(function: Any) -> bool:
    """Whether `dataclass` wrote it: there is no source."""
    return function.__code__.co_filename == "<string>"


def definition(function: Any) -> ast.FunctionDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def signature(function: Any) -> str:
    node = definition(function)
    return f"({ast.unparse(node.args)})" + (f" -> {ast.unparse(node.returns)}" if node.returns else "")


def returns(function: Any) -> str:
    node = definition(function)
    return ast.unparse(node.returns) if node.returns else "Any"


def annotation(owner: type, field: str) -> str:
    """The type of a dataclass's field, as it is written, and whether it has a default."""
    for node in ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body:  # type: ignore[attr-defined]
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == field:
            return ast.unparse(node.annotation) + ("" if node.value is None else f" = {ast.unparse(node.value)}")
    raise LookupError(f"{owner.__name__} has no field {field}")


if __name__ == "__main__":
    sys.stdout.write(public_api())
