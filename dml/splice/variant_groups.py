"""The name of variants in a Parquet file's schema, which Arrow cannot write. Pure, worker-safe.

Input: the footer that Arrow wrote, where a variant is a group of two byte columns. Output: the footer that calls these
groups VARIANT. Spec: `parquet.thrift`, `VariantType`; Parquet's `VariantEncoding.md`, "Variant in Parquet".
"""

from collections.abc import Collection
from typing import Final

from dml.splice.footer import FIELD_ID, LOGICAL_TYPE, NUM_CHILDREN, SCHEMA, TRAILER_BYTES, VARIANT, footer_length
from dml.splice.thrift_compact import BYTE, I32, LIST, STRUCT, Fields, decode_struct, encode_struct, list_of, value_of

__all__ = ["annotated", "with_annotated_footer"]

SPECIFICATION_VERSION: Final = 1
"""The field, and the version, of Parquet's `VariantType`."""

ANNOTATION: Final = (STRUCT, {VARIANT: (STRUCT, {SPECIFICATION_VERSION: (BYTE, 1)})})


def annotated(footer: bytes, ids: Collection[int]) -> bytes:
    """A footer whose variants are called so.

    Args:
        footer: Without length and magic.
        ids: The field ids of the variants.

    Raises:
        ValueError: it is no footer.
    """
    if not ids:
        return footer
    fields, _ = decode_struct(footer)
    elements = [named(element, ids) for element in list_of(fields, SCHEMA, STRUCT) or []]
    return encode_struct({**fields, SCHEMA: (LIST, (STRUCT, elements))})


def named(element: Fields, ids: Collection[int]) -> Fields:
    is_variant = value_of(element, FIELD_ID, I32) in ids and value_of(element, NUM_CHILDREN, I32) is not None
    return {**element, LOGICAL_TYPE: ANNOTATION} if is_variant else element


def with_annotated_footer(tail: bytes, ids: Collection[int]) -> bytes:
    """The end of a file, from anywhere before its footer on, with the variants called so.

    Args:
        tail: Up to the file's last byte.
        ids: The field ids of the variants.

    Raises:
        ValueError: it does not end as a Parquet file does.
    """
    trailer = tail[-TRAILER_BYTES:]
    length = footer_length(trailer, 2**63)
    start = len(tail) - TRAILER_BYTES - length
    if start < 0:
        raise ValueError("the footer breaks off")
    footer = annotated(tail[start:-TRAILER_BYTES], ids)
    return tail[:start] + footer + len(footer).to_bytes(4, "little") + trailer[4:]
