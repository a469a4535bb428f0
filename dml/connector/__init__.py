"""RowDelta's catalogs and tables behind Spark's connector API (DataSource V2), in Python. Driver, classic Spark only.

Input: calls of Spark's planner, through py4j. Output: tables, scans and lists of names, built by the modules that also
run RowDelta's statements; this package only translates. `install` registers a session's catalogs with Spark. What only
Spark calls is imported on first use, because statements may run without Spark.
"""

from typing import TYPE_CHECKING

from dml.connector.caches import execute_and_refresh, run_and_refresh
from dml.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from dml.connector import install, state, table

__all__ = ["execute_and_refresh", "install", "run_and_refresh", "state", "table"]

__getattr__ = lazy_modules(__name__, ("install", "state", "table"))
