"""A Column as a tree of our own, whichever PySpark it came from. Driver.

Input: what the readers of classic and of Connect Columns find (`dml.spark.columns`, `dml.spark.columns`).
Output: nodes, for `dml.spark.column_text`; and the refusals that all of them share.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

from dml.errors import NotSupportedError

__all__ = [
    "DATAFRAME_HINT",
    "UDF_HINT",
    "Aliased",
    "Call",
    "Case",
    "Cast",
    "Extract",
    "Lambda",
    "LiteralText",
    "Name",
    "NamedArgument",
    "Node",
    "Text",
    "Variable",
    "attribute",
    "attribute_node",
    "flattened",
    "name_parts",
    "refusal",
    "too_deep",
    "unknown",
]

UDF_HINT: Final = "Register it with spark.udf.register(name, function) and call it by that name in SQL text"
DATAFRAME_HINT: Final = "Name the column instead: F.col('name'), or F.col('alias.name') with the alias of its table"
SUBQUERY_HINT: Final = "Give the whole condition or value as SQL text"
REFUSED: Final = {
    "InvokeInlineUserDefinedFunction": ("A user-defined function", UDF_HINT),
    "CommonInlineUserDefinedFunction": ("A user-defined function", UDF_HINT),
    "Window": ("A window (over)", "Compute it in a DataFrame first and use that as the source"),
    "WindowExpression": ("A window (over)", "Compute it in a DataFrame first and use that as the source"),
    "UpdateFields": ("withField or dropFields", "Assign to the field itself, or build the struct with F.struct"),
    "WithField": ("withField", "Assign to the field itself, or build the struct with F.struct"),
    "DropField": ("dropFields", "Build the struct with F.struct"),
    "Exists": ("A subquery in F.expr", SUBQUERY_HINT),
    "InSubquery": ("A subquery in F.expr", SUBQUERY_HINT),
    "ListQuery": ("A subquery in F.expr", SUBQUERY_HINT),
    "ScalarSubquery": ("A subquery in F.expr", SUBQUERY_HINT),
    "SubqueryExpression": ("A DataFrame as a subquery", "Make a view of it and name that in SQL text"),
    "LazyExpression": ("outer()", "Write the subquery as SQL text"),
    "SortOrder": ("A sort order", "Leave asc() or desc() out"),
    "UnresolvedStar": ("A star", "Name the columns"),
    "UnresolvedRegex": ("A regular expression for columns", "Name the columns"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Name:
    """A column, perhaps with qualifiers before it and fields after it."""

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiteralText:
    """A literal, as SQL text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function or an operator.

    Attributes:
        name: The function's name, with its catalog and schema if it has them.
        arguments: Its arguments; `and` and `or` may have more than two.
        distinct: Whether an aggregate takes each value once.
        by_user: Whether the user gave the name: then it is no operator of PySpark's.
    """

    name: tuple[str, ...]
    arguments: tuple["Node", ...]
    distinct: bool = False
    by_user: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """`CASE WHEN ... THEN ... ELSE ... END`."""

    branches: tuple[tuple["Node", "Node"], ...]
    otherwise: "Node | None"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    """`CAST(child AS type)`, or `TRY_CAST`."""

    child: "Node"
    type_text: str
    may_fail: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Aliased:
    """An expression with a name, which means something only to a struct around it."""

    child: "Node"
    names: tuple[str, ...]
    has_metadata: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """SQL text that the user gave."""

    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Lambda:
    """`(x, y) -> body`."""

    parameters: tuple[str, ...]
    body: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A parameter of a lambda around it."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Extract:
    """A field of a struct, an element of an array, a value of a map."""

    child: "Node"
    key: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedArgument:
    """`name => value`."""

    name: str
    value: "Node"


Node = Name | LiteralText | Call | Case | Cast | Aliased | Text | Lambda | Variable | Extract | NamedArgument


def refusal(what: str, hint: str = "Give the expression as SQL text") -> NotSupportedError:
    """The error for a part of a Column that SQL text cannot say."""
    return NotSupportedError(f"{what} cannot be part of a Column that becomes SQL text", hint=hint)


def attribute(node: Any, name: str) -> Any:
    """An attribute that PySpark keeps for itself: its Columns have no other access to what they are made of."""
    return getattr(node, f"_{name}")


def too_deep() -> NotSupportedError:
    """The error for a tree that Python cannot walk."""
    return NotSupportedError(
        "The Column is nested too deeply to become SQL text",
        hint="Use isin() for a list of values, or give the expression as SQL text",
    )


def unknown(kind: str) -> NotSupportedError:
    """The error for a node that is not translated."""
    what, hint = REFUSED.get(kind, (f"The Column node {kind}", "Give the expression as SQL text"))
    return refusal(what, hint)


def name_parts(text: str) -> tuple[str, ...]:
    """The parts of `a.b` or `` `a.b`.c ``.

    Raises:
        NotSupportedError: the text is no name.
    """
    parts: list[str] = []
    rest = text
    while True:
        if rest.startswith("`"):
            end = 1
            while (end := rest.find("`", end)) >= 0 and rest.startswith("``", end):
                end += 2
            part, rest = rest[1:end].replace("``", "`"), rest[end + 1 :] if end > 0 else "?"
        else:
            end = rest.find(".") if "." in rest else len(rest)
            part, rest = rest[:end], rest[end:]
            if "`" in part:
                part = ""
        parts.append(part)
        if not part or (rest and (not rest.startswith(".") or rest == ".")):
            raise refusal(f"The name {text!r}, which is no column's name,", "Put names with other signs in backquotes")
        if not rest:
            return tuple(parts)
        rest = rest[1:]


def attribute_node(parts: Iterable[str], *, bound: bool) -> Name:
    """A column by name; one that is bound to a DataFrame means that DataFrame's rows only."""
    name = Name(parts=tuple(parts))
    if bound:
        raise refusal(f"The column '{'.'.join(name.parts)}', which belongs to a DataFrame,", DATAFRAME_HINT)
    return name


def flattened(node: Any, operator: str | None, operands: Callable[[Any], tuple[str, list[Any]] | None]) -> list[Any]:
    """The operands of a chain of the same AND or OR, left to right: a chain may be longer than the stack is deep."""
    found: list[Any] = []
    waiting = [node]
    while waiting:
        current = waiting.pop()
        split = operands(current)
        if split is not None and split[0] == operator and len(split[1]) == 2:
            waiting.extend(reversed(split[1]))
        else:
            found.append(current)
    return found
