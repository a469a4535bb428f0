"""The procedures that compute statistics: `compute_table_stats` and `compute_partition_stats`. Driver.

Source: Iceberg's `ComputeTableStatsProcedure` and `ComputePartitionStatsProcedure`. For a table without snapshots both
return no row.
"""

from collections.abc import Mapping
from typing import Any, Final

from dml.engine.column_statistics import compute_table_statistics
from dml.engine.engine import Engine
from dml.engine.procedures.declaration import BIGINT, STRING_ARRAY, TABLE, Parameter, Procedure, whole_table

__all__ = ["STATISTICS"]


def table_statistics(engine: Engine, parts: tuple[str, ...], values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Compute the sketches of a table's columns."""
    resolved = whole_table(engine, parts, "name a snapshot by its id to compute its statistics")
    return rows_of(compute_table_statistics(engine, resolved, **values))


def rows_of(location: str | None) -> list[tuple[Any, ...]]:
    return [] if location is None else [(location,)]


STATISTICS: Final = (
    Procedure(
        name="compute_table_stats",
        summary="Estimate the number of distinct values of columns, and add it to the table's metadata.",
        parameters=(
            TABLE,
            Parameter(name="snapshot_id", type=BIGINT),
            Parameter(name="columns", type=STRING_ARRAY),
        ),
        columns="statistics_file string",
        run=table_statistics,
        changes_table=True,
    ),
)
