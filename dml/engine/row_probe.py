"""Whether data files that other commits added hold rows that a statement matches: the rows themselves tell. Driver.

Input: a planned statement, new data files. Output: yes or no. The statement's own condition runs over these files
alone, on the columns that it names; for a MERGE, joined with the source that was read.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.engine.planned_statement import PlannedStatement
from dml.engine.scans import scan_files
from dml.errors import DmlError
from dml.model.content_file import ContentFile
from dml.options import row_level_concurrency, row_probe_bytes
from dml.scan.planner import plan_scan

__all__ = ["StatementProbe", "statement_probe"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementProbe:
    """Asks files for rows that a statement matches.

    Attributes:
        spark: The session.
        planned: The statement.
        matching: SQL over the target's view that has a row where the statement matches one.
        max_bytes: Of the files, all in all.
    """

    spark: SparkSession = field(repr=False)
    planned: PlannedStatement
    matching: str
    max_bytes: int

    def matches(self, metadata: TableMetadata, snapshot_id: int, files: Sequence[ContentFile]) -> bool:
        """Whether some live row of the files is one that the statement would have matched; True if it cannot tell."""
        if sum(file.file_size_in_bytes for file in files) > self.max_bytes:
            return True
        try:
            return self._matches(metadata, snapshot_id, {file.path for file in files})
        except (DmlError, PySparkException) as error:
            # The rule for whole files decides then, and it is the stricter one.
            LOG.info("Rows of concurrent commits could not be compared: %s", error)
            return True

    def _matches(self, metadata: TableMetadata, snapshot_id: int, paths: set[str]) -> bool:
        planned, target = self.planned, self.planned.target
        table = Table(
            identifier=target.table.name(),
            metadata=metadata,
            metadata_location=target.table.metadata_location,
            io=target.table.io,
            catalog=target.table.catalog,
        )
        found = plan_scan(
            table,
            snapshot_id,
            planned.plan.conflict_detection_filter,
            case_sensitive=planned.settings.case_sensitive,
            schema=target.table.schema(),
        )
        tasks = [task for task in found.tasks if task.path in paths]
        if not tasks:
            return False
        numbered = tuple(replace(task, file_ordinal=place) for place, task in enumerate(tasks))
        rows = scan_files(
            self.spark,
            planned.settings,
            table,
            target.table.schema(),
            numbered,
            planned.plan.target_ids,
            row_filter=planned.plan.conflict_detection_filter,
        )
        planned.views.fill(planned.target_view, rows)
        return bool(planned.views.sql(f"{self.matching} LIMIT 1").collect())


def statement_probe(spark: SparkSession, planned: PlannedStatement) -> StatementProbe | None:
    """The probe of a statement; None where rows do not decide, or may not be asked.

    A source that is not kept could give other rows when it is read again.
    """
    properties = planned.target.table.properties
    matching, source = planned.plan.matching, planned.source
    again = source is None or source.persisted or source.frame.is_cached
    if matching is None or planned.reads_itself or not again or not row_level_concurrency(properties):
        return None
    return StatementProbe(spark=spark, planned=planned, matching=matching, max_bytes=row_probe_bytes(properties))
