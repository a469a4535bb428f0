"""Values in Iceberg's internal form as Arrow arrays of the form that Spark takes. Worker-safe."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.types import DecimalType, IcebergType, TimeType, UUIDType

from dml.read.projection import arrow_type

__all__ = ["value_array"]


def value_array(values: Sequence[Any], kind: IcebergType) -> pa.Array:
    """Return an array of values of a primitive type, with None as null.

    Args:
        values: In Iceberg's internal form: days for a date, microseconds for a time.
        kind: The type of the values.
    """
    target = arrow_type(kind, spark=True)
    match kind:
        case UUIDType():
            texts = [value and str(UUID(bytes=value) if isinstance(value, bytes) else value) for value in values]
            return pa.array(texts, target)
        case TimeType():
            return pa.array(values, pa.time64("us")).cast(target)
        case DecimalType(precision=precision):
            # Truncated decimals of other writers may have one digit more than the type. Spark cannot represent them.
            fits = (value is not None and len(value.as_tuple().digits) <= precision for value in values)
            return pa.array([value if known else None for value, known in zip(values, fits, strict=True)], target)
    return pa.array(values, target)
