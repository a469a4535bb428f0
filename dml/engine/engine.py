"""What every statement of a session is run with. Driver."""

import re
from dataclasses import dataclass
from importlib.metadata import version
from typing import Final

from pyspark.sql import SparkSession

from dml.catalog.registry import CatalogRegistry
from dml.engine.settings import is_connect
from dml.model import summary_keys

__all__ = ["Engine"]

VERSION: Final = version("rowdelta")
LOCAL_MASTER: Final = re.compile(r"local(\[[\d*]+(,\s*(?P<failures>\d+))?\])?")
DEFAULT_MAX_FAILURES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A session's means.

    Attributes:
        spark: The Spark session.
        registry: The catalogs.
        progress: Whether long statements show their progress.
    """

    spark: SparkSession
    registry: CatalogRegistry
    progress: bool = False

    def commit_summary(self) -> dict[str, str]:
        """What every snapshot says of the engine that made it."""
        conf = self.spark.conf
        app_id = conf.get("spark.app.id", None)
        if not app_id and not is_connect(self.spark):
            app_id = self.spark.sparkContext.applicationId
        facts = {
            "engine-name": "spark",
            "engine-version": self.spark.version,
            "spark.app.id": app_id,
            "app-id": app_id,
            "app-name": conf.get("spark.app.name", None) or "",
            summary_keys.VERSION: VERSION,
        }
        return {key: value for key, value in facts.items() if value}

    def max_failures(self) -> int:
        """How often Spark tries a task before the job fails: once in local mode, unless the master says otherwise."""
        master = self.spark.conf.get("spark.master", None) or ""
        local = LOCAL_MASTER.fullmatch(master)
        if local is not None:
            return int(local["failures"] or 1)
        return int(self.spark.conf.get("spark.task.maxFailures", None) or DEFAULT_MAX_FAILURES)
