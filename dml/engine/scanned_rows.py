"""INSERT of rows that are in a table of ours as they are: tasks read and write them, and Spark sees none. Driver.

    INSERT INTO archive SELECT id, amount FROM lake.db.orders WHERE day < DATE '2026-01-01'

Spark analyses the statement as it does every other; the rows alone do not go through it. Whatever Arrow might do
otherwise than Spark (an expression, a cast, a condition that Iceberg cannot decide) goes Spark's way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table
from pyiceberg.types import NestedField
from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from dml.engine.by_tasks import write_by_tasks
from dml.engine.distribution import groups_in_place
from dml.engine.engine import Engine, StatementSettings
from dml.engine.query import snapshot_to_read
from dml.engine.writes import WriteOutcome
from dml.model.columns import DeltaLayout
from dml.model.scan_task import ScanContext, ScanTask
from dml.plan.insert import InsertPlan
from dml.plan.plain_scan import plain_scan
from dml.plan.row_delta_plan import DefaultValue, RawValue, raw_place
from dml.read.projection import arrow_type
from dml.rows.expressions import Column
from dml.rows.program import Projection
from dml.scan.planner import plan_scan
from dml.scan.source import scan_context
from dml.spark.store_assignment import same_type
from dml.spark.types import spark_field, spark_type
from dml.sqlparse.statements import Fragment
from dml.views import StatementTables
from dml.write.writer_spec import WriterSpec

__all__ = ["ScannedRows", "Targets", "plain_targets", "scanned_rows", "write_scanned_rows"]


Targets = Sequence[tuple[NestedField, int]]
"""Columns of the table that rows go to, each with the place of the query's column that it takes as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedRows:
    """Rows of one snapshot of a table, and the table's columns that they go to.

    Attributes:
        context: What all groups share.
        groups: The scan tasks that each task reads.
        value_ids: Field ids of the columns that they go to; the others get NULL.
        program: The values of these columns.
    """

    context: ScanContext
    groups: Sequence[Sequence[ScanTask]]
    value_ids: tuple[int, ...]
    program: Projection


def scanned_rows(
    engine: Engine,
    settings: StatementSettings,
    tables: StatementTables,
    query: Fragment,
    found: StructType,
    targets: Targets,
    target: Table,
    properties: Mapping[str, str],
) -> ScannedRows | None:
    """The rows of a query, if they are those of a table of ours and the tasks that read them may write them.

    Args:
        engine: The session and its catalogs.
        settings: The session's settings.
        tables: Finds the table, which the statement has loaded.
        query: The query.
        found: The columns that Spark says it has.
        targets: Where they go.
        target: The table that they go to.
        properties: Its properties, the statement's own options over them.
    """
    if len(query.tables) != 1 or settings.quoted_regex:
        return None
    (reference,) = query.tables
    resolved = tables.resolve(reference)
    if resolved is None or resolved.metadata_table is not None:
        return None
    source = resolved.table
    snapshot_id, schema = snapshot_to_read(engine, settings, tables.statement, resolved, reference)
    scan = plain_scan(
        query,
        reference,
        schema,
        case_sensitive=settings.case_sensitive,
        time_zone=settings.time_zone,
        trees=settings.trees,
        catalogs=engine.registry.catalogs,
    )
    if scan is None:
        return None
    kinds = [column.dataType for column in found.fields]
    if not same_types([spark_field(schema.find_field(field_id)).dataType for field_id in scan.field_ids], kinds):
        return None
    if not same_types([kinds[place] for _, place in targets], [spark_type(to.field_type) for to, _ in targets]):
        return None
    case_sensitive, row_filter = settings.case_sensitive, scan.row_filter
    tasks: Sequence[ScanTask] = ()
    if snapshot_id is not None:
        tasks = plan_scan(source, snapshot_id, row_filter, case_sensitive=case_sensitive, schema=schema).tasks
    value_ids = {column.field_id: scan.field_ids[place] for column, place in targets}
    groups = groups_in_place(tasks, source, settings, value_ids, target, properties)
    if groups is None:
        return None
    read = tuple(dict.fromkeys(value_ids.values()))
    context = scan_context(
        source,
        tasks,
        read,
        row_filter=None if isinstance(row_filter, AlwaysTrue) else row_filter,
        case_sensitive=case_sensitive,
        schema=schema,
    )
    return ScannedRows(
        context=context,
        groups=groups,
        value_ids=tuple(value_ids),
        program=Projection(
            values=tuple(
                Column(field_id=field_id, type=arrow_type(schema.find_field(field_id).field_type, spark=True))
                for field_id in value_ids.values()
            )
        ),
    )


def same_types(some: Sequence[DataType], others: Sequence[DataType]) -> bool:
    """Whether values of some columns need no change to be in others."""
    return len(some) == len(others) and all(map(same_type, some, others))


def plain_targets(plan: InsertPlan) -> Targets | None:
    """The table's columns that take columns of the query; None where others are not NULL."""
    targets: list[tuple[NestedField, int]] = []
    for column, source in plan.columns:
        match source:
            case RawValue(raw=raw, fills=False) if not plan.statics:
                targets.append((column, raw_place(raw)))
            case DefaultValue() if column.write_default is None:
                pass
            case _:
                return None
    return targets


def write_scanned_rows(spark: SparkSession, rows: ScannedRows, target: Table, spec: WriterSpec) -> WriteOutcome:
    """Write the rows.

    Args:
        spark: The session.
        rows: The rows.
        target: The table that they go to.
        spec: The write.

    Raises:
        SetupError: the workers run a Python without this package.
        DmlError: reading or writing failed; no file is left then.
        PySparkException: Spark failed; no file is left then.
    """
    spec = replace(spec, layout=DeltaLayout(value_ids=rows.value_ids))
    return write_by_tasks(spark, rows.program, rows.context, rows.groups, target, spec)
