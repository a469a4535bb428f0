"""The procedures that compute statistics, and ANALYZE TABLE. Driver.

Source: Iceberg's `ComputeTableStatsProcedure` and `ComputePartitionStatsProcedure`. Both return no row for a table
without snapshots. Iceberg has no ANALYZE TABLE: here, it runs the first with FOR, and the second without FOR.
"""

from collections.abc import Mapping
from typing import Any, Final

from dml.catalog.registry import ResolvedTable
from dml.catalog.translation import translate_errors
from dml.engine.column_statistics import compute_table_statistics
from dml.engine.engine import Engine, StatementSettings
from dml.engine.procedures.declaration import BIGINT, STRING_ARRAY, TABLE, Parameter, Procedure, whole_table
from dml.maintenance import compute_partition_statistics
from dml.sqlparse.statements import AnalyzeTable

__all__ = ["STATISTICS", "analyze_table"]

OF_SNAPSHOTS: Final = "name a snapshot by its id to compute its statistics"


def table_statistics(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Compute the sketches of a table's columns."""
    resolved = whole_table(engine, parts, OF_SNAPSHOTS)
    return rows_of(compute_table_statistics(engine, resolved, **values))


def partition_statistics(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Count the files and rows of a table's partitions."""
    return rows_of(of_partitions(whole_table(engine, parts, OF_SNAPSHOTS), **values))


def of_partitions(resolved: ResolvedTable, snapshot_id: int | None = None) -> str | None:
    with translate_errors(f"Computing the partition statistics of '{resolved.name}'", resolved.catalog):
        return compute_partition_statistics(resolved.catalog, resolved.table, snapshot_id, resolved.name)


def analyze_table(engine: Engine, statement: AnalyzeTable) -> None:
    """Compute the statistics of the table's columns, or of its partitions without FOR.

    The row count and size of the whole table are already in its metadata, so there is nothing to compute for an
    unpartitioned table without FOR.
    """
    resolved = whole_table(engine, statement.table.parts, "statistics are those of the whole table")
    if statement.of_columns:
        case_sensitive = StatementSettings.of(engine).case_sensitive
        compute_table_statistics(engine, resolved, columns=statement.columns, case_sensitive=case_sensitive)
    elif any(not spec.is_unpartitioned() for spec in resolved.table.specs().values()):
        of_partitions(resolved)


def rows_of(location: str | None) -> list[tuple[Any, ...]]:
    return [] if location is None else [(location,)]


STATISTICS: Final = (
    Procedure(
        name="compute_table_stats",
        summary="Estimate the number of distinct values of columns, and add it to the table's metadata.",
        parameters=(
            TABLE,
            Parameter(name="snapshot_id", type=BIGINT, doc="The snapshot; the current one by default"),
            Parameter(name="columns", type=STRING_ARRAY, doc="A column; all columns of primitive types by default"),
        ),
        columns="statistics_file string",
        run=table_statistics,
    ),
    Procedure(
        name="compute_partition_stats",
        summary="Count the files and rows of each partition, and add the counts to the table's metadata.",
        parameters=(
            TABLE,
            Parameter(name="snapshot_id", type=BIGINT, doc="The snapshot; the current one by default"),
        ),
        columns="partition_statistics_file string",
        run=partition_statistics,
    ),
)
