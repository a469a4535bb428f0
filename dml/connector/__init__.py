"""Our catalogs and tables as Spark's connector API (DataSource V2) has them, in Python. Driver, classic Spark only.

Input: calls of Spark's planner, through py4j. Output: tables, scans and lists of names, made by the parts that run our
statements too; nothing is decided here. `install` puts the catalogs of a session where Spark looks for catalogs.
"""

from dml.connector.caches import execute_and_refresh
from dml.connector.iceberg_format import register_format
from dml.connector.install import check_catalog_settings, inheriting, install, uninstall
from dml.connector.table import table_frame

__all__ = [
    "check_catalog_settings",
    "execute_and_refresh",
    "inheriting",
    "install",
    "register_format",
    "table_frame",
    "uninstall",
]
