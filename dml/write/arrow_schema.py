"""The Arrow schema of new data files. Worker-safe.

Input: the table's Iceberg schema. Output: Arrow fields with field ids and requiredness, as Parquet writers take them.
Spec: "Reserved Field IDs", "Appendix A: Parquet".
"""

from functools import partial

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, LongType, NestedField, UnknownType

from dml.errors import NotSupportedError
from dml.model import columns
from dml.model.arrow_types import PARQUET_FIELD_ID, arrow_type_of, primitive_arrow_type

__all__ = ["LINEAGE_FIELDS", "arrow_field", "arrow_type", "lineage_columns", "stored_columns"]

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
    return arrow_type_of(iceberg_type, partial(_writable, column=column), partial(arrow_field, column=column))


def _writable(primitive: IcebergType, column: str) -> pa.DataType:
    found = primitive_arrow_type(primitive)
    if found is None:
        raise NotSupportedError(
            f"Rows cannot be written into the column '{column}': it holds values of the type {primitive}",
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
