"""Whether data files that other commits added hold rows that a statement matches: the rows themselves decide. Driver.

Input: a planned statement, new data files. Output: yes or no, found in three steps, each for what the one before it
leaves open: the files' metrics; the rows of small files, read here with the scan's own filters; the statement's own
condition, run by Spark over these files alone, on the columns that it names, for a MERGE joined with the source that
was read (where that is gone, a row with one of its keys is taken for one that matches). A commit is held up
meanwhile, and most files that others add are small and hold other keys: they take milliseconds, where a Spark job
takes some tenths of a second.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyiceberg.expressions import And, BooleanExpression
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml import limits
from dml.commit.changes import RowProbe
from dml.engine.merge_source import SourceKeys
from dml.engine.row_level_plan import PlannedStatement
from dml.errors import DmlError
from dml.model.columns import POS
from dml.model.manifest import ContentFile
from dml.model.scan_task import KeyFilter, ScanTask
from dml.options import row_level_concurrency, row_probe_bytes
from dml.pruning.pruner import Pruner
from dml.read.reader import TaskReader
from dml.scan.table_scan import TableScan, dataframe

__all__ = ["StatementProbe", "statement_probe"]

LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementProbe:
    """Asks files for rows that a statement matches.

    Attributes:
        spark: The session.
        planned: The statement.
        matching: SQL over the target's view that has a row where the statement matches one.
        row_filter: Rows for which it is not true match nothing.
        key_filter: Rows with other keys match nothing; None where that is not known.
        keys_decide: Whether all rows with these keys count, as the statement's condition cannot be asked again.
        max_bytes: Of the files, all in all.
    """

    spark: SparkSession = field(repr=False)
    planned: PlannedStatement
    matching: str
    row_filter: BooleanExpression = field(repr=False)
    key_filter: KeyFilter | None = field(repr=False)
    keys_decide: bool
    max_bytes: int

    def matches(self, metadata: TableMetadata, snapshot_id: int, files: Sequence[ContentFile]) -> bool:
        """Whether some live row of the files is one that the statement would have matched; True if it is not known."""
        if sum(file.file_size_in_bytes for file in files) > self.max_bytes:
            return True
        try:
            table = self._table(metadata)
            possible = self._by_metrics(table, files)
            if sum(file.file_size_in_bytes for file in possible) <= limits.MAX_DRIVER_PROBE_BYTES:
                possible = self._by_filters(table, possible)
                if self.keys_decide:
                    return bool(possible)
            return bool(possible) and self._by_condition(table, snapshot_id, {file.path for file in possible})
        except (DmlError, PySparkException) as error:
            # The rule for whole files decides then, and it is the stricter one.
            LOG.info("Rows of concurrent commits could not be compared: %s", error)
            return True

    def _table(self, metadata: TableMetadata) -> Table:
        """The table as it is now; the statement's condition goes on having the schema that it was planned with."""
        table = self.planned.target.table
        return Table(
            identifier=table.name(),
            metadata=metadata,
            metadata_location=table.metadata_location,
            io=table.io,
            catalog=table.catalog,
        )

    def _scan(self, table: Table, snapshot_id: int | None) -> TableScan:
        return TableScan(
            table=table,
            snapshot_id=snapshot_id,
            schema=self.planned.target.table.schema(),
            columns=self.planned.plan.target_ids,
            row_filter=self.row_filter,
            key_filter=self.key_filter,
            case_sensitive=self.planned.settings.case_sensitive,
        )

    def _by_metrics(self, table: Table, files: Sequence[ContentFile]) -> list[ContentFile]:
        schema, case_sensitive = self.planned.target.table.schema(), self.planned.settings.case_sensitive
        pruner = Pruner(
            table.specs(), schema, self.row_filter, case_sensitive=case_sensitive, older_schemas=table.metadata.schemas
        )
        return [file for file in files if pruner.may_match(file)]

    def _by_filters(self, table: Table, files: Sequence[ContentFile]) -> list[ContentFile]:
        """The files with a row that the filters of a scan let through, be it deleted or not."""
        tasks = {file.path: whole_file(file) for file in files}
        scan = replace(self._scan(table, None), columns=(), metadata_columns=(POS,))
        reader = TaskReader(scan.context(tasks.values()), spark_types=False)
        return [file for file in files if any(batch.num_rows for batch in reader.read(tasks[file.path]))]

    def _by_condition(self, table: Table, snapshot_id: int, paths: set[str]) -> bool:
        scan = self._scan(table, snapshot_id)
        found = (task for task in scan.plan().tasks if task.path in paths)
        tasks = tuple(replace(task, file_ordinal=place) for place, task in enumerate(found))
        if not tasks:
            return False
        groups = scan.groups(tasks, self.planned.settings.parallelism)
        rows = dataframe(self.spark, groups, scan.context(tasks))
        if self.keys_decide:
            return bool(rows.limit(1).collect())
        views = self.planned.views.with_frame(self.planned.target_view, rows)
        return bool(views.sql(f"{self.matching} LIMIT 1").collect())


def whole_file(file: ContentFile) -> ScanTask:
    """A data file as a task without its deletes: what they leave is not more than what there is."""
    return ScanTask(
        file_ordinal=0,
        path=file.path,
        file_format=file.file_format,
        record_count=file.record_count,
        file_size_in_bytes=file.file_size_in_bytes,
        start=0,
        length=file.file_size_in_bytes,
        spec_id=file.spec_id,
        partition=file.partition,
        # Only deletes and lineage depend on it.
        data_sequence_number=0,
    )


def statement_probe(
    spark: SparkSession,
    planned: PlannedStatement,
    source_keys: SourceKeys | None = None,
    *,
    keys_decide: bool = False,
) -> RowProbe | None:
    """The probe of a statement; None where rows do not decide, or may not be asked.

    A source that is not kept could give other rows when it is read again.

    Args:
        spark: The session.
        planned: The statement.
        source_keys: The join keys of a MERGE's source, where they are known.
        keys_decide: Whether all rows with such a key count, as nobody can ask the source again.
    """
    properties: Mapping[str, str] = planned.target.table.properties
    matching, source = planned.plan.matching, planned.source
    known = keys_decide or source is None or source.stays
    if matching is None or planned.reads_itself or not known or not row_level_concurrency(properties):
        return None
    conflicts = planned.plan.condition.pruning
    return StatementProbe(
        spark=spark,
        planned=planned,
        matching=matching,
        row_filter=conflicts if source_keys is None else And(conflicts, source_keys.row_filter),
        key_filter=None if source_keys is None else source_keys.key_filter,
        keys_decide=keys_decide,
        max_bytes=row_probe_bytes(properties),
    ).matches
