"""What the plan of a write's rows reads. Driver, classic Spark only.

Input: a plan of Spark's, the write. Output: the write, which knows whether its rows are made of rows of its own table,
and of which snapshot: what others add meanwhile would be gone otherwise, and nobody would have seen it.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from py4j.java_gateway import JavaObject
from pyspark.sql import SparkSession

from dml.connector.java import java_class, simple_name
from dml.engine.insert import RowsWrite

__all__ = ["reading_itself", "running_plan"]

EXECUTIONS: Final = "org.apache.spark.sql.execution.SQLExecution"
VERSIONED: Final = (4, 1)
"""From this Spark on a table says in which version it is."""


def reading_itself(write: RowsWrite, plan: JavaObject | None) -> RowsWrite:
    """A write that knows whether its rows are made of rows of its own table, as far as their plan shows.

    Args:
        write: The write.
        plan: The analysed plan of its rows; None where it is not known.
    """
    if write.replaced is None or plan is None:
        return write
    target = write.target
    own = [relation for relation in relations(plan) if str(relation.table().name()) == target.resolved.name]
    if not own:
        return write
    snapshots = {snapshot_id(relation.table().version()) for relation in own} if is_versioned(write) else set()
    older = next((found for found in snapshots if found != target.snapshot_id), target.snapshot_id)
    return replace(write, replaced=replace(write.replaced, reads_table=True), target=replace(target, snapshot_id=older))


def relations(plan: JavaObject) -> Iterator[JavaObject]:
    """The tables of catalogs that a plan reads."""
    leaves = plan.collectLeaves().iterator()
    while leaves.hasNext():
        leaf = leaves.next()
        match simple_name(leaf):
            case "DataSourceV2Relation":
                yield leaf
            case "DataSourceV2ScanRelation":
                yield leaf.relation()


def is_versioned(write: RowsWrite) -> bool:
    """Whether Spark asks tables for their version."""
    return tuple(map(int, write.engine.spark.version.split(".")[:2])) >= VERSIONED


def snapshot_id(version: str | None) -> int | None:
    """The snapshot that a version of a table of ours names."""
    return None if version is None else int(version)


def running_plan(spark: SparkSession) -> JavaObject | None:
    """The plan of the command that Spark runs in this thread; None where that is not known."""
    executions = java_class(EXECUTIONS)
    number = spark.sparkContext.getLocalProperty(executions.EXECUTION_ID_KEY())
    if number is None:
        return None
    execution = executions.getQueryExecution(int(number))
    return None if execution is None else execution.analyzed()
