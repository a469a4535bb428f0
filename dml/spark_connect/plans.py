"""Plans of DataFrames on Spark Connect: RowDelta tables in them, and the names of DataFrames. Driver, Spark Connect.

Input: a function that reads the current state of a table. Output: a DataFrame that calls it for each action, as Spark
reloads a catalog's table. PySpark keeps a plan and converts it to a message for every request to the server. The
message contains a RowDelta scan, not a table name.
"""

import functools
import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from dml.spark.bridge.names import PLAN, PLAN_CHILD, PLAN_ID
from dml.spark.bridge.sessions import frame_of_plan
from dml.spark.column_text import attribute, name_parts
from dml.spark.handlers import run_as_handler

__all__ = ["CurrentRows", "following_frame", "named_plans", "tables_of"]

CONNECT: Final = "pyspark.sql.connect"
SAME_COLUMNS: Final = frozenset(
    {
        "Deduplicate",
        "Filter",
        "Hint",
        "Limit",
        "Offset",
        "Repartition",
        "RepartitionByExpression",
        "Sample",
        "Sort",
        "SubqueryAlias",
    }
)
"""Plans whose columns are those of the plan below them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentRows:
    """The current state of a table.

    Attributes:
        state: A key of the state; equal keys have equal rows.
        frame: Creates a DataFrame of its rows.
    """

    state: Hashable
    frame: Callable[[], DataFrame]


def following_frame(
    spark: SparkSession, name: tuple[str, ...], alias: str, current: Callable[[], CurrentRows]
) -> DataFrame:
    """Return a DataFrame that reads the current state of a table in each action.

    Args:
        spark: A session of Spark Connect.
        name: The table's full name.
        alias: The qualifier of its columns.
        current: Returns the current state of the table.
    """
    return frame_of_plan(table_plan()(name, current), spark).alias(alias)


@functools.cache
def table_plan() -> Any:
    """Return the class of plans of RowDelta tables, created late: its base class needs Spark Connect."""
    base = importlib.import_module(f"{CONNECT}.plan").LogicalPlan

    class RowDeltaTable(base):  # type: ignore[misc,valid-type]
        """The plan of a RowDelta table."""

        def __init__(self, table_name: tuple[str, ...], current: Callable[[], CurrentRows]) -> None:
            super().__init__(None)
            self.table_name = table_name
            self.current = current
            self.made: tuple[Hashable, Any] | None = None

        def plan(self, session: Any) -> Any:
            """Return the message to the server: the scan of the current state, converted once per state."""
            with run_as_handler():
                found = self.current()
                made = self.made
                if made is None or made[0] != found.state:
                    made = (found.state, PLAN.of(found.frame()).plan(session))
                    self.made = made
            relation = self._create_proto_relation()
            plan_id = relation.common.plan_id
            relation.CopyFrom(made[1])
            relation.common.plan_id = plan_id
            return relation

    return RowDeltaTable


def tables_of(frame: DataFrame) -> frozenset[tuple[str, ...]]:
    """Return the full names of the RowDelta tables that a DataFrame reads."""
    return frozenset(plan.table_name for plan in plans_in(PLAN.of(frame)) if isinstance(plan, table_plan()))


def plans_in(plan: Any) -> Iterator[Any]:
    """Yield a plan and all its descendants."""
    kind = importlib.import_module(f"{CONNECT}.plan").LogicalPlan
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        yield found
        for value in vars(found).values():
            parts = value if isinstance(value, list | tuple) else (value,)
            waiting.extend(part for part in parts if isinstance(part, kind))


def named_plans(frame: DataFrame, default: str) -> tuple[str, Mapping[int, tuple[str, ...]]]:
    """Return the name of a DataFrame in SQL text, and the qualifier of its columns by plan id.

    Args:
        frame: The DataFrame.
        default: The name if it has no alias and is not a single table or view.

    Returns:
        The name; the qualifier of columns, for the id of each plan that they may be bound to.
    """
    name, plans, plan = "", [], PLAN.of(frame)
    while True:
        plans.append(PLAN_ID.of(plan))
        kind = type(plan).__name__
        if not name and kind == "SubqueryAlias":
            name = attribute(plan, "alias")
        elif not name and kind == "Read":
            name = name_parts(plan.table_name)[-1]
        if kind not in SAME_COLUMNS:
            break
        plan = PLAN_CHILD.of(plan)
    name = name or default
    return name, dict.fromkeys(plans, (name,))
