"""Table scans that Spark plans (DataSource V2), for queries and for catalogs. Driver, classic Spark only."""

from typing import TYPE_CHECKING

from dml.lazy_imports import lazy_modules

if TYPE_CHECKING:
    from dml.spark_scan import frames, read, readers

__all__ = ["frames", "read", "readers"]

__getattr__ = lazy_modules(__name__, __all__)
