"""Metadata tables as queries read them: whether they know time travel, which columns, which rows. Driver.

Input: a reference to a metadata table in a fragment, and the snapshot that it means. Output: its DataFrame.
"""

from pyiceberg.table.snapshots import Snapshot
from pyspark.sql import DataFrame, SparkSession

from dml.catalog.registry import ResolvedTable
from dml.engine.engine import StatementSettings
from dml.errors import NotSupportedError
from dml.metadata_tables.frames import MetadataRead, metadata_frame
from dml.metadata_tables.tables import MetadataTable, table_schema
from dml.plan.table_read import table_read
from dml.sqlparse.statements import Fragment, TableReference

__all__ = ["check_time_travel", "metadata_table_frame", "travels"]


def travels(resolved: ResolvedTable, reference: TableReference) -> bool:
    """Whether a reference names a snapshot, a time, a branch or a tag."""
    in_name = (resolved.branch, resolved.tag, resolved.snapshot_id, resolved.timestamp_ms)
    return any(part is not None for part in (reference.version, reference.timestamp, *in_name))


def check_time_travel(name: MetadataTable, reference: TableReference, statement: str) -> None:
    """Refuse time travel where a metadata table shows all snapshots, or the table as it is.

    Raises:
        NotSupportedError: it does.
    """
    if not name.is_of_one_snapshot:
        shows = "what all snapshots have" if name.of_all_snapshots else "the table's metadata as it is now"
        raise NotSupportedError(
            f"The metadata table '{name}' shows {shows}: there is no time travel in it",
            sql=statement,
            position=reference.span.start,
            length=reference.span.end - reference.span.start,
            hint="Name it without a version, a time, a branch or a tag",
        )


def metadata_table_frame(
    spark: SparkSession,
    settings: StatementSettings,
    resolved: ResolvedTable,
    name: MetadataTable,
    snapshot: Snapshot | None,
    reference: TableReference,
    fragment: Fragment,
) -> DataFrame:
    """A metadata table as a fragment reads it.

    Args:
        spark: The session.
        settings: Its settings.
        resolved: The table.
        name: Which of its metadata tables.
        snapshot: The snapshot that is shown.
        reference: The reference in the fragment.
        fragment: The query, or an expression with subqueries.

    Raises:
        CorruptFileError: a metadata file is missing or damaged.
        ExecutionError: the storage failed.
    """
    schema = table_schema(name, resolved.table.metadata)
    read = table_read(
        fragment,
        reference,
        schema,
        case_sensitive=settings.case_sensitive,
        time_zone=settings.time_zone,
        trees_hold=settings.trees_hold,
        every_column=settings.quoted_regex,
    )
    needed = MetadataRead(
        columns=tuple(found.name for found in schema.fields if found.field_id in set(read.field_ids)),
        row_filter=read.row_filter,
        case_sensitive=settings.case_sensitive,
        parallelism=settings.parallelism,
    )
    return metadata_frame(spark, name, resolved.table, snapshot, needed)
