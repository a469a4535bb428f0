"""What a statement that is no row-level DML returns: a small table of values. Driver.

The session turns it into a DataFrame; nothing here knows Spark.
"""

from dataclasses import dataclass
from typing import Any

__all__ = ["NO_ROWS", "DdlResult"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DdlResult:
    """Rows with named, typed columns.

    Attributes:
        columns: Name and Spark type text of each column, `("col_name", "string")`.
        rows: The rows, one value for each column.
    """

    columns: tuple[tuple[str, str], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)


NO_ROWS = DdlResult()
