"""What a manifest tells of files, as bounds: partition summaries, partition tuples, column metrics. Driver.

Input: a manifest's line, a partition tuple, a data file's entry. Output: `Bounds` by field id.
Spec: "Manifest Lists", "Manifests", "Appendix D" on serialised values.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    PrimitiveType,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
)

from dml.model.content_file import ContentFile
from dml.model.manifest import PartitionSummary
from dml.pruning.row_tests import Bounds, BoundsOf

__all__ = ["file_bounds", "partition_bounds", "primitive_types", "summary_bounds"]

UNKNOWN = Bounds()

# UUIDs are left out: Java orders them as two signed numbers, others by their bytes.
ORDERED = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimeType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)


def primitive_types(schema: Schema) -> dict[int, PrimitiveType]:
    """The types of a schema's columns and nested fields, by field id."""
    types = {field_id: schema.find_type(field_id) for field_id in schema.field_ids}
    return {field_id: found for field_id, found in types.items() if isinstance(found, PrimitiveType)}


def is_floating(field_type: PrimitiveType) -> bool:
    """Whether a type has NaN."""
    return isinstance(field_type, (FloatType, DoubleType))


def decoded(field_type: PrimitiveType, data: bytes | None) -> Any:
    """A serialised bound; None if it is missing, NaN, or not of this type (that of an older schema, say)."""
    if data is None or not isinstance(field_type, ORDERED):
        return None
    try:
        value: Any = from_bytes(field_type, data)
    except (struct.error, ValueError):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def file_bounds(file: ContentFile, types: Mapping[int, PrimitiveType]) -> BoundsOf:
    """What a data file's metrics tell of its columns.

    Args:
        file: The data file.
        types: Types by field id.
    """

    def bounds_of(field_id: int) -> Bounds:
        field_type = types.get(field_id)
        if field_type is None:
            return UNKNOWN
        count, nulls = file.value_counts.get(field_id), file.null_value_counts.get(field_id)
        floating = is_floating(field_type)
        nans = file.nan_value_counts.get(field_id) if floating else 0
        only_nulls = bool(count) and count == nulls
        return Bounds(
            lower=decoded(field_type, file.lower_bounds.get(field_id)),
            upper=decoded(field_type, file.upper_bounds.get(field_id)),
            nulls=nulls != 0,
            nans=floating and nans != 0 and not only_nulls,
            values=not (bool(count) and count == (nulls or 0) + (nans or 0)),
        )

    return bounds_of


def partition_bounds(partition: Sequence[Any], fields: StructType) -> BoundsOf:
    """What a partition tuple tells: each field has this one value.

    Args:
        partition: Values in Iceberg's internal form.
        fields: The spec's partition type.
    """
    known = {field.field_id: value_bounds(value) for field, value in zip(fields.fields, partition, strict=False)}
    return lambda field_id: known.get(field_id, UNKNOWN)


def value_bounds(value: Any) -> Bounds:
    """The bounds of rows that all have one value."""
    if value is None:
        return Bounds(nans=False, values=False)
    if isinstance(value, float) and math.isnan(value):
        return Bounds(nulls=False, values=False)
    plain = value.bytes if isinstance(value, UUID) else value
    return Bounds(lower=plain, upper=plain, nulls=False, nans=False)


def summary_bounds(summaries: Sequence[PartitionSummary], fields: StructType) -> BoundsOf:
    """What a manifest's line tells of the partition values of its files.

    Args:
        summaries: One for each field of the spec.
        fields: The spec's partition type.
    """
    known = {
        field.field_id: summarised(summary, field.field_type)
        for field, summary in zip(fields.fields, summaries, strict=False)
        if isinstance(field.field_type, PrimitiveType)
    }
    return lambda field_id: known.get(field_id, UNKNOWN)


def summarised(summary: PartitionSummary, field_type: PrimitiveType) -> Bounds:
    """The bounds of one partition field in a manifest."""
    nans = is_floating(field_type) and summary.contains_nan is not False
    bounded = summary.lower_bound is not None or summary.upper_bound is not None
    return Bounds(
        lower=decoded(field_type, summary.lower_bound),
        upper=decoded(field_type, summary.upper_bound),
        nulls=summary.contains_null is not False,
        nans=nans,
        values=bounded or not (summary.contains_null or nans),
    )
