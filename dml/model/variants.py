"""Variants in Arrow: the types of their values, in files and for Spark. Worker-safe.

Spec: "Semi-structured Types"; Parquet's `VariantEncoding.md`. The Iceberg type is in `dml.pyiceberg_patch`.
"""

from typing import Final

import pyarrow as pa

__all__ = ["METADATA", "TYPED_VALUE", "VALUE", "VARIANT_ARROW", "VARIANT_FOR_SPARK", "is_variant"]

METADATA: Final = "metadata"
VALUE: Final = "value"
TYPED_VALUE: Final = "typed_value"
"""What the parts of a variant are called wherever it is a group: they have no field ids, and any order."""

MARK: Final = {b"variant": b"true"}
"""By this metadata of the part `metadata` Spark, in Python and in the JVM, tells a variant from a struct."""

METADATA_FIELD: Final = pa.field(METADATA, pa.binary(), nullable=False, metadata=MARK)
VALUE_FIELD: Final = pa.field(VALUE, pa.binary(), nullable=False)

VARIANT_ARROW: Final = pa.struct([METADATA_FIELD, VALUE_FIELD])
"""As files have it, not shredded."""

VARIANT_FOR_SPARK: Final = pa.struct([VALUE_FIELD, METADATA_FIELD])
"""As Spark has it, which takes the parts by their places."""


def is_variant(kind: pa.DataType) -> bool:
    """Whether an Arrow type is one of the two, and not a struct whose fields are called so."""
    if not pa.types.is_struct(kind) or kind.num_fields != 2:
        return False
    return any(kind.field(place).name == METADATA and (kind.field(place).metadata or {}) == MARK for place in (0, 1))
