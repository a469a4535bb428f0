"""RowDelta's catalogs and tables behind Spark's connector API (DataSource V2), in Python. Driver, classic Spark only.

Input: calls of Spark's planner, through py4j. Output: tables, scans and lists of names, built by the modules that also
run RowDelta's statements; this package only translates. `install` registers a session's catalogs with Spark.
"""

from dml.connector.caches import execute_and_refresh, run_and_refresh
from dml.connector.install import (
    check_catalog_settings,
    install,
    install_in_derived_sessions,
    register_format,
    uninstall,
)
from dml.connector.table import table_frame

__all__ = [
    "check_catalog_settings",
    "execute_and_refresh",
    "install",
    "install_in_derived_sessions",
    "register_format",
    "run_and_refresh",
    "table_frame",
    "uninstall",
]
