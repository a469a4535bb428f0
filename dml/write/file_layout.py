"""What data files of one write hold, worked out once per task. Worker.

Input: the write's context: the table's Iceberg schema and properties. Output: columns, Arrow schema with field ids and
requiredness, checks, metrics modes and bloom filters of new data files. Spec: "Reserved Field IDs", "Appendix A:
Parquet"; `write.parquet.bloom-filter-*` in Iceberg's documentation.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.types import BooleanType, GeographyType, GeometryType, IcebergType, LongType, NestedField, UnknownType

from dml.errors import AnalysisError, ErrorKind, NotSupportedError
from dml.model import columns
from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, primitive_arrow_type
from dml.model.type_names import primitive_name
from dml.model.write_task import WriteContext
from dml.options import BLOOM_FILTER_ENABLED_PREFIX, BLOOM_FILTER_FPP_PREFIX
from dml.pyiceberg_patch import VariantType
from dml.write.column_metrics import Leaf, MetricsMode, leaves, metrics_modes
from dml.write.conversion import NullCheck, converted, null_check

__all__ = [
    "LINEAGE_FIELDS",
    "FileLayout",
    "arrow_field",
    "arrow_type",
    "bloom_filters",
    "file_layout",
    "lineage_columns",
    "stored_columns",
]

LINEAGE_FIELDS = (
    NestedField(columns.ROW_ID_ID, columns.ROW_ID, LongType(), required=False),
    NestedField(
        columns.LAST_UPDATED_SEQUENCE_NUMBER_ID, columns.LAST_UPDATED_SEQUENCE_NUMBER, LongType(), required=False
    ),
)
"""The columns of row lineage in files of updated or carried rows."""


def arrow_type(iceberg_type: IcebergType, column: str) -> pa.DataType:
    """The Arrow type that holds a column without loss.

    Raises:
        NotSupportedError: values of the type cannot be written.
    """
    return arrow_type_of(iceberg_type, partial(writable, column=column), partial(arrow_field, column=column))


def writable(primitive: IcebergType, column: str) -> pa.DataType:
    found = primitive_arrow_type(primitive)
    if found is None:
        raise NotSupportedError(
            f"Rows cannot be written into the column '{column}': "
            f"it holds values of the type {primitive_name(primitive)}",
            hint="DELETE in merge-on-read mode works, as it writes no rows",
            column=column,
        )
    return found


def arrow_field(field: NestedField, column: str | None = None) -> pa.Field:
    """The Arrow field of a column or of a field inside one.

    Args:
        field: The field.
        column: The column that it is in, for messages; None for a column itself.

    Raises:
        NotSupportedError: values of its type cannot be written.
    """
    metadata = {PARQUET_FIELD_ID: str(field.field_id).encode()}
    target = arrow_type(field.field_type, column or field.name)
    return pa.field(field.name, target, nullable=not field.required, metadata=metadata)


def stored_columns(schema: Schema) -> tuple[NestedField, ...]:
    """The columns that data files hold: columns of the type `unknown` hold nothing but NULL and are left out."""
    return tuple(field for field in schema.fields if not isinstance(field.field_type, UnknownType))


def lineage_columns(*, row_lineage: bool) -> tuple[NestedField, ...]:
    """The columns of row lineage, where a file has them."""
    return LINEAGE_FIELDS if row_lineage else ()


DEFAULT_PROBABILITY: Final = 0.01


def bloom_filters(properties: Mapping[str, str], columns: frozenset[str]) -> dict[str, float]:
    """The false-positive probability of each physical column that is to have a bloom filter.

    Args:
        properties: The table's properties.
        columns: Dotted names of the physical columns; properties that outlived their column do nothing.

    Raises:
        AnalysisError: a probability is none.
    """
    return {
        column: probability(properties, BLOOM_FILTER_FPP_PREFIX + column)
        for key, text in properties.items()
        if key.startswith(BLOOM_FILTER_ENABLED_PREFIX)
        and text.strip().lower() == "true"
        and (column := key.removeprefix(BLOOM_FILTER_ENABLED_PREFIX)) in columns
    }


def probability(properties: Mapping[str, str], key: str) -> float:
    """A probability between 0 and 1.

    Raises:
        AnalysisError: it is none.
    """
    text = properties.get(key)
    if text is None:
        return DEFAULT_PROBABILITY
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be a number between 0 and 1, both excluded",
            property=key,
        )
    return value


def variant_ids(physical: Iterable[Leaf]) -> frozenset[int]:
    """The field ids of the variants among physical columns."""
    return frozenset(leaf.field.field_id for leaf in physical if isinstance(leaf.field.field_type, VariantType))


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
        has_geometries: Whether a physical column has values of the type geometry or geography.
        variant_ids: The field ids of variants, also of those inside other types.
    """

    columns: tuple[NestedField, ...]
    arrow: pa.Schema
    checks: tuple[NullCheck | None, ...]
    leaves: tuple[Leaf, ...]
    modes: dict[int, MetricsMode] = field(repr=False)
    schema_json: str = field(repr=False)
    sort_order_id: int = UNSORTED
    bloom_filters: dict[str, float] = field(default_factory=dict)
    has_geometries: bool = False
    variant_ids: frozenset[int] = frozenset()

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
        if not leaf.repeated and not isinstance(leaf.field.field_type, BooleanType | VariantType)
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
        has_geometries=any(isinstance(leaf.field.field_type, GeometryType | GeographyType) for leaf in physical),
        variant_ids=variant_ids(physical),
    )
