"""Check the conditions of row-level statements and find the target columns that they read. Driver."""

import re
from collections.abc import Iterable
from typing import Final

from pyiceberg.types import NestedField
from sqlglot import exp

from dml.errors import AnalysisError, ErrorKind
from dml.model.columns import METADATA_COLUMNS
from dml.plan.names import TargetNames
from dml.plan.row_delta_plan import PlanContext
from dml.sqlparse import quoted
from dml.sqlparse.statements import ColumnReference, Fragment, Span

__all__ = [
    "check_condition",
    "check_merge_condition",
    "check_value",
    "condition_error",
    "condition_sql",
    "non_deterministic",
    "qualifier_insertions",
    "reads_clock",
    "stays_in_place",
    "target_columns",
]

NON_DETERMINISTIC: Final = frozenset(
    [
        "rand",
        "random",
        "randn",
        "randstr",
        "uuid",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "input_file_block_start",
        "input_file_block_length",
        "uniform",
    ]
)
"""Spark's non-deterministic functions (its function registry, expressions of trait `Nondeterministic`)."""


CLOCK: Final = frozenset(
    [
        "curdate",
        "current_date",
        "current_time",
        "current_timestamp",
        "localtimestamp",
        "now",
        "to_unix_timestamp",
        "unix_timestamp",
    ]
)
CLOCK_TEXTS: Final = ("'now'", "'today'", "'tomorrow'", "'yesterday'")
"""Spark's special values of dates and timestamps."""


def reads_clock(*fragments: Fragment | None) -> bool:
    """Return whether fragments may read the clock, so that evaluating them again may give another result.

    A column named like a clock function counts too.
    """
    return any(
        fragment.names & CLOCK or any(text in fragment.text.lower() for text in CLOCK_TEXTS)
        for fragment in fragments
        if fragment is not None
    )


NULL_CONDITION: Final = re.compile(r"[(\s]*NULL[)\s]*", re.IGNORECASE)


def condition_sql(fragment: Fragment, rendered: str) -> str:
    """Return the rendered text of a condition, with a cast to BOOLEAN around a bare NULL: Spark gives it no type."""
    bare = fragment.ast.unnest() if fragment.ast is not None else None
    if isinstance(bare, exp.Null) or NULL_CONDITION.fullmatch(fragment.text):
        return f"CAST({rendered} AS BOOLEAN)"
    return rendered


def condition_error(context: PlanContext, fragment: Fragment, message: str, hint: str) -> AnalysisError:
    """Return an error that points at a condition."""
    return AnalysisError(
        message,
        sql=context.sql,
        position=fragment.span.start,
        length=fragment.span.end - fragment.span.start,
        kind=ErrorKind.INVALID_CONDITION,
        hint=hint,
    )


def function_names(fragment: Fragment) -> frozenset[str]:
    """Return the lower-case names of the functions that a fragment calls; all its names if it has no tree."""
    if fragment.ast is None:
        return fragment.names
    names = set()
    for node in fragment.ast.find_all(exp.Func):
        names.add((node.name if isinstance(node, exp.Anonymous) else node.sql_name()).lower())
        names.update(alias.lower() for alias in type(node).sql_names() if not isinstance(node, exp.Anonymous))
    return frozenset(names)


def non_deterministic(fragment: Fragment) -> list[str]:
    """Return the non-deterministic functions that a fragment calls, as written and sorted."""
    found = function_names(fragment) & NON_DETERMINISTIC
    written = found & fragment.names  # sqlglot knows one function by several names
    return sorted(written or found)


def check_condition(context: PlanContext, fragment: Fragment) -> None:
    """Reject expressions that the WHERE of DELETE and UPDATE does not allow (docs/semantics.md, C7, C26).

    Raises:
        AnalysisError: a non-deterministic function, a generator, a window function, a star or a metadata column.
    """
    found = non_deterministic(fragment)
    if found:
        raise condition_error(
            context,
            fragment,
            f"The condition calls {', '.join(found)}: a row-level statement expects a deterministic expression",
            "Compute the value first, into a column or a view, and compare with that",
        )
    if fragment.ast is not None and not fragment.has_subquery:
        if function_names(fragment) & GENERATORS:
            message, hint = "A generator makes several rows, a condition is about one", "Use exists(array, x -> ...)"
            raise condition_error(context, fragment, message, hint)
        if fragment.ast.find(exp.Window) is not None:
            message, hint = "Window functions are not allowed in a condition", "Compute them in the source of a MERGE"
            raise condition_error(context, fragment, message, hint)
    check_no_star(context, fragment)
    check_metadata_columns(context, fragment)


def check_metadata_columns(context: PlanContext, fragment: Fragment) -> None:
    """Reject `_file`, `_pos` and other metadata columns, unless the table has a column of that name."""
    for column in fragment.columns:
        name = column.parts[-1]
        if name.lower() in METADATA_COLUMNS and context.names.column(name) is None and not fragment.has_subquery:
            raise AnalysisError(
                f"The metadata column '{name}' cannot be used in a row-level statement",
                sql=context.sql,
                position=column.span.start,
                length=column.span.end - column.span.start,
                kind=ErrorKind.INVALID_CONDITION,
                hint="Metadata columns can be read with SELECT",
            )


GENERATORS: Final = frozenset(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"]
)
"""Functions that return several rows for one."""


def check_value(context: PlanContext, fragment: Fragment) -> None:
    """Reject expressions that are not one value for one row in an assignment.

    Raises:
        AnalysisError: a generator, a window function, an aggregate outside of a subquery, or a star.
    """
    if function_names(fragment) & GENERATORS:
        raise condition_error(
            context, fragment, "A generator makes several rows, a column takes one value", "Use an array"
        )
    check_no_star(context, fragment)
    if fragment.ast is not None and fragment.ast.find(exp.Window) is not None and not fragment.has_subquery:
        raise condition_error(
            context,
            fragment,
            "Window functions are not allowed in an assignment",
            "Compute them in the source of a MERGE",
        )
    if has_aggregate(fragment) and not fragment.has_subquery:
        raise condition_error(
            context,
            fragment,
            "Aggregates are not allowed in an assignment: it is computed from one row",
            "Compute them in a subquery, or in the source of a MERGE",
        )


def has_aggregate(fragment: Fragment) -> bool:
    """Return whether a fragment calls an aggregate function that is not a window function."""
    return fragment.ast is not None and any(
        not isinstance(node.parent, exp.Window) for node in fragment.ast.find_all(exp.AggFunc)
    )


def check_no_star(context: PlanContext, fragment: Fragment) -> None:
    """Reject a star outside of a subquery: it would include RowDelta's internal columns."""
    if fragment.has_star and not fragment.has_subquery:
        raise condition_error(context, fragment, "A star cannot be used here", "Name the columns")


def stays_in_place(fragment: Fragment) -> bool:
    """Return whether Spark certainly evaluates a fragment without moving or reordering rows.

    Subqueries become joins, which may shuffle. A function unknown to sqlglot may be an SQL function with a subquery.
    """
    if fragment.has_subquery or fragment.ast is None:
        return False
    return fragment.ast.find(exp.Anonymous, exp.Window) is None


def check_merge_condition(context: PlanContext, fragment: Fragment, clause: str) -> None:
    """Reject expressions that the conditions of MERGE do not allow (docs/semantics.md, M8).

    Args:
        context: The statement.
        fragment: The condition.
        clause: Spark's name of the clause: `SEARCH` (the ON condition), `UPDATE`, `DELETE` or `INSERT`.

    Raises:
        AnalysisError: a non-deterministic function, an aggregate, a subquery, a star or a metadata column.
    """
    problem = None
    if fragment.has_subquery:  # checked first, as the other problems may be inside the subquery
        problem = "Subqueries"
    elif found := non_deterministic(fragment):
        problem = f"Non-deterministic expressions ({', '.join(found)})"
    elif has_aggregate(fragment):
        problem = "Aggregates"
    if problem is not None:
        raise condition_error(
            context,
            fragment,
            f"The MERGE operation contains an unsupported {clause} condition. {problem} are not allowed",
            "Compute it in the source of the MERGE and compare with that column",
        )
    check_no_star(context, fragment)
    check_metadata_columns(context, fragment)


def target_columns(
    names: TargetNames, fragments: Iterable[Fragment], other_qualifiers: frozenset[str] = frozenset()
) -> set[int]:
    """Return the field ids of the target's columns that fragments may read; the set may include others.

    Args:
        names: The target's names.
        fragments: All expressions of the statement that may name columns of the target.
        other_qualifiers: Lower-case aliases of relations other than the target.
    """
    ids = set()
    for fragment in fragments:
        if fragment.ast is None:
            ids |= {column.field_id for column in names.schema.fields if column.name.lower() in fragment.names}
            continue
        # sqlglot reads some words as functions that Spark resolves to a column if one exists (`current_user`).
        known = {part.lower() for reference in fragment.columns for part in reference.parts}
        unknown = fragment.names - known
        ids |= {column.field_id for column in names.schema.fields if column.name.lower() in unknown}
        for reference in fragment.columns:
            head = reference.parts[0].lower()
            if head in other_qualifiers and len(reference.parts) > 1 and names.column(reference.parts[0]) is None:
                continue
            ids |= {column.field_id for column in columns_named(names, reference)}
    return ids


def columns_named(names: TargetNames, reference: ColumnReference) -> list[NestedField]:
    """Return the columns of the target that a reference may mean, whatever its qualifier."""
    found = (names.column(part) for part in reference.parts)
    return [column for column in found if column is not None]


def qualifier_insertions(fragment: Fragment, alias: str, ambiguous: frozenset[str]) -> dict[Span, str]:
    """Return the qualifiers to insert before a fragment's ambiguous bare columns, by the spans of the columns.

    Only the source is visible in `WHEN NOT MATCHED` and only the target in `WHEN NOT MATCHED BY SOURCE`, so a bare name
    that both sides have is unambiguous there, but not in the joined query.

    Args:
        fragment: The fragment.
        alias: The alias of the visible side.
        ambiguous: Lower-case column names that both sides have.
    """
    if fragment.has_subquery:
        return {}
    return {
        column.span: f"{quoted(alias)}."
        for column in fragment.columns
        if column.parts[0].lower() in ambiguous
        and not (len(column.parts) > 1 and column.parts[0].lower() == alias.lower())
    }
