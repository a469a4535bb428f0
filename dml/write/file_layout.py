"""What data files of one write hold, worked out once per task. Worker.

Input: the write's context. Output: columns, Arrow schema, checks and metrics modes of new data files.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import BooleanType, NestedField

from dml.model.write_context import WriteContext
from dml.write.arrow_schema import arrow_field, lineage_columns, stored_columns
from dml.write.bloom_filters import bloom_filters
from dml.write.column_metrics import Leaf, leaves
from dml.write.conversion import converted
from dml.write.metrics_modes import MetricsMode, metrics_modes
from dml.write.not_null import NullCheck, null_check

__all__ = ["FileLayout", "file_layout"]

UNSORTED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The columns of new data files.

    Attributes:
        columns: The table's stored columns in schema order, then those of row lineage.
        arrow: Their Arrow schema.
        checks: For each column, its check for NULLs.
        leaves: The physical columns of a file.
        modes: Metrics modes by field id.
        schema_json: The Iceberg schema of the file, for its footer.
        sort_order_id: The sort order that rows follow.
        bloom_filters: False-positive probabilities of the physical columns that have a bloom filter.
    """

    columns: tuple[NestedField, ...]
    arrow: pa.Schema
    checks: tuple[NullCheck | None, ...]
    leaves: tuple[Leaf, ...]
    modes: dict[int, MetricsMode] = field(repr=False)
    schema_json: str = field(repr=False)
    sort_order_id: int = UNSORTED
    bloom_filters: dict[str, float] = field(default_factory=dict)

    def batch(self, arrays: Sequence[pa.Array]) -> pa.RecordBatch:
        """Rows as files hold them.

        Args:
            arrays: A value for each of `columns`, of types that can be converted.

        Raises:
            DataError: a value does not fit its column, or is NULL where one is required.
        """
        fitting = [converted(array, target.type, target.name) for array, target in zip(arrays, self.arrow, strict=True)]
        for check, array in zip(self.checks, fitting, strict=True):
            if check is not None:
                check(array)
        return pa.RecordBatch.from_arrays(fitting, schema=self.arrow)


def file_layout(context: WriteContext, *, row_lineage: bool) -> FileLayout:
    """The layout of a write's data files.

    Args:
        context: The write.
        row_lineage: Whether files hold the columns of row lineage.

    Raises:
        NotSupportedError: a column's values cannot be written.
        AnalysisError: a table property has a value that it cannot have.
    """
    schema = Schema.model_validate_json(context.schema_json)
    columns = (*stored_columns(schema), *lineage_columns(row_lineage=row_lineage))
    order = SortOrder.model_validate_json(context.sort_order_json)
    file_schema = Schema(*columns, schema_id=schema.schema_id, identifier_field_ids=schema.identifier_field_ids)
    physical = leaves(columns)
    filterable = frozenset(
        file_schema.find_column_name(leaf.field.field_id) or ""
        for leaf in physical
        if not leaf.repeated and not isinstance(leaf.field.field_type, BooleanType)
    )
    return FileLayout(
        columns=columns,
        arrow=pa.schema([arrow_field(column) for column in columns]),
        checks=tuple(null_check(column) for column in columns),
        leaves=physical,
        modes=metrics_modes(schema, context.properties, [field.source_id for field in order.fields]),
        schema_json=file_schema.model_dump_json(),
        sort_order_id=order.order_id if context.sorted_by_table_order else UNSORTED,
        bloom_filters=bloom_filters(context.properties, filterable),
    )
