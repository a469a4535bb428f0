"""Plans of DataFrames on Spark Connect: tables of ours in them, and what a DataFrame is called. Driver, Spark Connect.

Input: something that finds a table as it is now. Output: a DataFrame that asks it again for each action, as Spark loads
a table of a catalog anew: PySpark keeps a plan and turns it into a message to the server whenever that is asked for
something. In the message stands a scan of ours, not a table's name.
"""
# ruff: noqa: SLF001  plans and sessions of PySpark's client have no public names

import functools
import importlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from pyspark.sql import DataFrame, SparkSession

from dml.spark.column_text import attribute, name_parts
from dml.spark.handlers import running

__all__ = ["CurrentRows", "following_frame", "frame_of_plan", "named_plans", "tables_of"]

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
    """A table as it is now.

    Attributes:
        state: What tells this state from others; of equal states the rows are the same.
        frame: Makes a DataFrame of its rows.
    """

    state: Hashable
    frame: Callable[[], DataFrame]


def following_frame(
    spark: SparkSession, name: tuple[str, ...], alias: str, current: Callable[[], CurrentRows]
) -> DataFrame:
    """A DataFrame of a table, which follows it.

    Args:
        spark: A session of Spark Connect.
        name: The table's full name.
        alias: What columns may be qualified with.
        current: The table as it is now.
    """
    return frame_of_plan(table_plan()(name, current), spark).alias(alias)


def frame_of_plan(plan: Any, spark: SparkSession) -> DataFrame:
    """The DataFrame of a plan of PySpark's client."""
    return cast("DataFrame", importlib.import_module(f"{CONNECT}.dataframe").DataFrame(plan, spark))


@functools.cache
def table_plan() -> Any:
    """The class of the plans of our tables: without Spark Connect there is none to derive it from."""
    base = importlib.import_module(f"{CONNECT}.plan").LogicalPlan

    class RowDeltaTable(base):  # type: ignore[misc,valid-type]
        """A table of ours."""

        def __init__(self, table_name: tuple[str, ...], current: Callable[[], CurrentRows]) -> None:
            super().__init__(None)
            self.table_name = table_name
            self.current = current
            self.made: tuple[Hashable, Any] | None = None

        def plan(self, session: Any) -> Any:
            """The message to the server: the scan of the table as it is now, made once for each state."""
            with running():
                found = self.current()
                made = self.made
                if made is None or made[0] != found.state:
                    made = (found.state, cast("Any", found.frame())._plan.plan(session))
                    self.made = made
            relation = self._create_proto_relation()
            plan_id = relation.common.plan_id
            relation.CopyFrom(made[1])
            relation.common.plan_id = plan_id
            return relation

    return RowDeltaTable


def tables_of(frame: DataFrame) -> frozenset[tuple[str, ...]]:
    """The tables of ours that a DataFrame follows, by their full names."""
    return frozenset(plan.table_name for plan in plans_in(cast("Any", frame)._plan) if isinstance(plan, table_plan()))


def plans_in(plan: Any) -> Iterator[Any]:
    """A plan, and all that it is made of."""
    kind = importlib.import_module(f"{CONNECT}.plan").LogicalPlan
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        yield found
        for value in vars(found).values():
            parts = value if isinstance(value, list | tuple) else (value,)
            waiting.extend(part for part in parts if isinstance(part, kind))


def named_plans(frame: DataFrame, default: str) -> tuple[str, Mapping[int, tuple[str, ...]]]:
    """What a DataFrame is called in SQL text, and the plans whose columns are its columns, by PySpark's ids of them.

    Args:
        frame: The DataFrame.
        default: What it is called where it has no alias, and is not one table or view.

    Returns:
        The name; for the id of each plan that columns may be bound to, what stands before the columns' names.
    """
    name, plans, plan = "", [], cast("Any", frame)._plan
    while True:
        plans.append(plan._plan_id)
        kind = type(plan).__name__
        if not name and kind == "SubqueryAlias":
            name = attribute(plan, "alias")
        elif not name and kind == "Read":
            name = name_parts(plan.table_name)[-1]
        if kind not in SAME_COLUMNS:
            break
        plan = plan._child
    name = name or default
    return name, dict.fromkeys(plans, (name,))
