"""Assignments of UPDATE and MERGE bound to columns: names resolved, nested keys gathered into trees. Driver.

Input: `Assignment`s of a statement and the table's schema. Output: for each assigned column a tree that says where each
part of its new value comes from: an expression of the statement, the column's default, or the old row.

    SET s.a = x, s.c.m = y      ->  s: {a: x, b: old, c: {m: y, n: old}}
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.schema import Schema
from pyiceberg.types import ListType, MapType, NestedField, StructType

from dml.errors import AnalysisError, ErrorKind
from dml.sqlparse.statements import Assignment, Fragment, Span
from dml.suggestions import did_you_mean

__all__ = [
    "AssignedDefault",
    "AssignedExpression",
    "AssignedStruct",
    "AssignedValue",
    "TargetNames",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetNames:
    """How a statement may name its target's columns.

    Attributes:
        sql: The whole statement, for errors.
        schema: The table's schema.
        qualifiers: The ways to qualify a column: `(("t",),)` for an alias, or the table's own name and its tails.
        case_sensitive: `spark.sql.caseSensitive`.
    """

    sql: str
    schema: Schema
    qualifiers: tuple[tuple[str, ...], ...]
    case_sensitive: bool = False
    fields_by_name: Mapping[str, NestedField] = field(init=False)

    def __post_init__(self) -> None:
        names = {self.folded(column.name): column for column in self.schema.fields}
        object.__setattr__(self, "fields_by_name", names)

    def folded(self, name: str) -> str:
        """A name as it is compared."""
        return name if self.case_sensitive else name.lower()

    def column(self, name: str) -> NestedField | None:
        """The column of a name, if there is one."""
        return self.fields_by_name.get(self.folded(name))

    def unqualified(self, key: tuple[str, ...]) -> tuple[str, ...]:
        """A key without the table's name or alias in front; a column wins over a qualifier of the same name."""
        folded = tuple(self.folded(part) for part in key)
        for qualifier in sorted(self.qualifiers, key=len, reverse=True):
            head = tuple(self.folded(part) for part in qualifier)
            if len(key) > len(head) and folded[: len(head)] == head:
                rest = key[len(head) :]
                if self.column(rest[0]) is not None or self.column(key[0]) is None:
                    return rest
        return key

    def resolve(self, key: tuple[str, ...], span: Span) -> tuple[NestedField, ...]:
        """The fields along a key, from the column down.

        Raises:
            AnalysisError: a name is not there, or the key goes into an array or a map.
        """
        parts = self.unqualified(key)
        column = self.column(parts[0])
        if column is None:
            raise self.error(
                f"There is no column '{'.'.join(key)}'",
                span,
                did_you_mean(parts[-1], (known.name for known in self.schema.fields)),
            )
        path = [column]
        for part in parts[1:]:
            path.append(self.child(path[-1], part, span))
        return tuple(path)

    def child(self, parent: NestedField, name: str, span: Span) -> NestedField:
        """A field of a struct."""
        kind = parent.field_type
        if isinstance(kind, ListType | MapType):
            what = "an array" if isinstance(kind, ListType) else "a map"
            raise self.error(
                f"'{parent.name}' is {what}: only fields of structs can be assigned one by one",
                span,
                "Assign the whole column",
                ErrorKind.INVALID_ASSIGNMENT,
            )
        if isinstance(kind, StructType):
            for nested in kind.fields:
                if self.folded(nested.name) == self.folded(name):
                    return nested
            raise self.error(
                f"The struct '{parent.name}' has no field '{name}'",
                span,
                did_you_mean(name, (nested.name for nested in kind.fields)),
            )
        raise self.error(f"'{parent.name}' is no struct and has no field '{name}'", span, "Assign the column")

    def error(
        self, message: str, span: Span, hint: str, kind: ErrorKind = ErrorKind.UNRESOLVED_COLUMN
    ) -> AnalysisError:
        """An error that points at a place of the statement."""
        return AnalysisError(
            message, sql=self.sql, position=span.start, length=span.end - span.start, kind=kind, hint=hint
        )


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
