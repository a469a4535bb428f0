"""What the tasks of a scan share, from a table. Driver.

Input: a table, its scan tasks, what to read. Output: a `ScanContext`.
"""

from collections.abc import Iterable, Sequence

from pyiceberg.expressions import BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from dml.catalog.credentials import storage_properties
from dml.model.scan_task import KeyFilter, ScanContext, ScanTask

__all__ = ["scan_context"]

BATCH_ROWS = 32_768
"""Half of Spark's usual size, for half the memory; which is faster has not been settled on a quiet machine."""


def scan_context(
    table: Table,
    tasks: Iterable[ScanTask],
    projected_ids: Sequence[int],
    *,
    metadata_columns: Sequence[str] = (),
    row_filter: BooleanExpression | None = None,
    key_filter: KeyFilter | None = None,
    case_sensitive: bool = False,
    schema: Schema | None = None,
    batch_rows: int = BATCH_ROWS,
) -> ScanContext:
    """The context of a scan.

    Args:
        table: The table.
        tasks: The tasks that will be read: their equality deletes may compare columns that the table has dropped.
        projected_ids: Field ids of the top-level columns to return, in output order.
        metadata_columns: Metadata columns to return after them.
        row_filter: An unbound expression; None for all rows.
        key_filter: The join keys that matter; None for all.
        case_sensitive: How the filter's names match.
        schema: The schema to read with; None for the table's current one.
        batch_rows: Greatest number of rows of a batch.
    """
    read_schema = schema or table.schema()
    compared = {field_id for task in tasks for ref in task.equality_deletes for field_id in ref.equality_ids}
    return ScanContext(
        schema_json=with_dropped(table, read_schema, compared).model_dump_json(),
        projected_ids=tuple(projected_ids),
        metadata_columns=tuple(metadata_columns),
        specs_json=tuple((spec_id, spec.model_dump_json()) for spec_id, spec in sorted(table.specs().items())),
        name_mapping_json=table.metadata.properties.get("schema.name-mapping.default"),
        io_properties=storage_properties(table.io.properties),
        row_filter=row_filter,
        key_filter=key_filter,
        batch_rows=batch_rows,
        case_sensitive=case_sensitive,
    )


def with_dropped(table: Table, schema: Schema, field_ids: Iterable[int]) -> Schema:
    """The schema, and after its columns those of older schemas that deletes still compare."""
    missing = set(field_ids) - {field.field_id for field in schema.fields}
    added = [
        NestedField(field.field_id, f"__dropped_{field.field_id}", field.field_type, required=False)
        for field_id in sorted(missing)
        for field in latest(table, field_id)
    ]
    return Schema(*schema.fields, *added, schema_id=schema.schema_id) if added else schema


def latest(table: Table, field_id: int) -> list[NestedField]:
    """A column as the latest schema that had it says; empty if none had."""
    schemas = sorted(table.schemas().values(), key=lambda schema: schema.schema_id, reverse=True)
    return [field for schema in schemas for field in schema.fields if field.field_id == field_id][:1]
