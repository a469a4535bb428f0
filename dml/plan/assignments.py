"""Assignments of UPDATE and MERGE bound to columns: names resolved, nested keys gathered into trees. Driver.

Input: `Assignment`s of a statement and the table's schema. Output: for each assigned column a tree that says where each
part of its new value comes from: an expression of the statement, the column's default, or the old row.

    SET s.a = x, s.c.m = y      ->  s: {a: x, b: old, c: {m: y, n: old}}
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.types import NestedField

from dml.errors import ErrorKind
from dml.plan.names import TargetNames
from dml.sqlparse.statements import Assignment, Fragment

__all__ = [
    "AssignedDefault",
    "AssignedExpression",
    "AssignedStruct",
    "AssignedValue",
    "assigned_fragments",
    "bind_assignments",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedExpression:
    """The value of an expression of the statement."""

    fragment: Fragment


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedDefault:
    """`DEFAULT`: the field's write default, or NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignedStruct:
    """A struct of which some fields are assigned; the others keep the old row's values.

    Attributes:
        fields: What is assigned, by field id.
    """

    fields: Mapping[int, "AssignedValue"]


AssignedValue = AssignedExpression | AssignedDefault | AssignedStruct


def bind_assignments(assignments: Sequence[Assignment], target: TargetNames) -> dict[int, AssignedValue]:
    """Resolve the keys of one SET list.

    Args:
        assignments: As written, in any order.
        target: The target's names.

    Returns:
        What each assigned column gets, by field id, in the table's column order.

    Raises:
        AnalysisError: an unknown key, a key into an array or map, a column assigned twice, or a field assigned beside
            its parent (docs/semantics.md, U3 to U5).
    """
    root: dict[int, AssignedValue] = {}
    for assignment in assignments:
        path = target.resolve(assignment.key, assignment.key_span)
        value: AssignedValue = (
            AssignedDefault() if assignment.value is None else AssignedExpression(fragment=assignment.value)
        )
        root = placed(root, path, value, assignment, target)
    order = [column.field_id for column in target.schema.fields]
    return {field_id: root[field_id] for field_id in order if field_id in root}


def placed(
    tree: Mapping[int, AssignedValue],
    path: tuple[NestedField, ...],
    value: AssignedValue,
    assignment: Assignment,
    target: TargetNames,
) -> dict[int, AssignedValue]:
    """The tree with one more value at the end of a path."""
    head, rest = path[0], path[1:]
    present = tree.get(head.field_id)
    if present is not None and not (rest and isinstance(present, AssignedStruct)):
        conflicting = bool(rest) or isinstance(present, AssignedStruct)
        name = ".".join(target.unqualified(assignment.key)) if not conflicting else head.name
        raise target.error(
            f"{'Conflicting' if conflicting else 'Multiple'} assignments for '{name}'",
            assignment.key_span,
            "Assign each column once, and either a struct or its fields",
            ErrorKind.INVALID_ASSIGNMENT,
        )
    if not rest:
        return {**tree, head.field_id: value}
    below = present.fields if isinstance(present, AssignedStruct) else {}
    return {**tree, head.field_id: AssignedStruct(fields=placed(below, rest, value, assignment, target))}


def assigned_fragments(values: Mapping[int, AssignedValue]) -> Iterator[Fragment]:
    """The expressions in a list of assignments."""
    for value in values.values():
        match value:
            case AssignedExpression(fragment=fragment):
                yield fragment
            case AssignedStruct(fields=fields):
                yield from assigned_fragments(fields)
            case _:
                pass
