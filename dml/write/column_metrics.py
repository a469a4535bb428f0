"""Compute the column metrics of a new file, with bounds as manifests store them. Worker.

Input: the table's properties, and the footer of a Parquet file that was just written or, for other formats, the rows.
Output: the metrics of a `ContentFile`. Spec: "Manifests" (fields 108 to 128; bounds may be truncated, as long as they
stay bounds), "Appendix D: Single-value serialization".

A Parquet footer has everything except NaN counts: Arrow excludes NaN from a column's minimum and maximum. Arrow
does not expose the footers of other formats, so `BatchMetrics` counts and compares the rows as they are written.
Fields inside lists and maps have at most sizes, as in Iceberg's Java library, because their values do not correspond
to rows. A field of a NULL struct is NULL.

`write.metadata.metrics.*` selects the metrics of each column: see Iceberg's documentation, and `MetricsConfig`.
"""

import math
import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.conversions import to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    GeographyType,
    GeometryType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    UUIDType,
)
from pyiceberg.utils.decimal import decimal_to_unscaled

from dml.errors import AnalysisError, ErrorKind
from dml.model.arrow_types import METADATA, VARIANT_ARROW
from dml.options import DEFAULT_METRICS_MODE, METRICS_MAX_INFERRED_COLUMNS, METRICS_MODE_COLUMN_PREFIX, integer
from dml.pyiceberg_patch import VariantType

__all__ = [
    "BatchMetrics",
    "ColumnMetrics",
    "Leaf",
    "MetricsMode",
    "NanCounter",
    "comparable",
    "float_value",
    "leaves",
    "lower_bound",
    "metrics_modes",
    "parquet_metrics",
    "truncate_bytes_above",
    "truncate_text_above",
    "upper_bound",
]

FLOATS = {FloatType: struct.Struct("<f"), DoubleType: struct.Struct("<d")}
MAX_CODE_POINT = 0x10FFFF
SURROGATES = range(0xD800, 0xE000)


def lower_bound(value: Any, field_type: PrimitiveType, length: int | None) -> bytes | None:
    """Return the serialized lower bound.

    Args:
        value: The minimum: an int for every type that Parquet stores in one, including decimals, and bytes for
            strings and binary types.
        field_type: The column's type.
        length: Truncate the bound to this number of characters or bytes; None does not truncate it.

    Returns:
        The bound; None if there is none (NaN, or a string that is not UTF-8).
    """
    match field_type:
        case StringType():
            text = decode_text(value)
            return None if text is None else truncate_text(text, length).encode("utf-8")
        case BinaryType() | FixedType():
            return bytes(value) if length is None else bytes(value)[:length]
        case FloatType() | DoubleType():
            # -0.0 equals 0.0, but a reader may compare bits.
            return float_bound(-0.0 if value == 0 else value, field_type)
    return serialize(value, field_type)


def upper_bound(value: Any, field_type: PrimitiveType, length: int | None) -> bytes | None:
    """Return the serialized upper bound.

    Args:
        value: The maximum; see `lower_bound`.
        field_type: The column's type.
        length: Truncate the bound to this number of characters or bytes; None does not truncate it.

    Returns:
        The bound; None if there is none (NaN, a string that is not UTF-8, or no greater value of this length).
    """
    match field_type:
        case StringType():
            text = decode_text(value)
            above = None if text is None else truncate_text_above(text, length)
            return None if above is None else above.encode("utf-8")
        case BinaryType() | FixedType():
            return truncate_bytes_above(bytes(value), length)
        case FloatType() | DoubleType():
            return float_bound(0.0 if value == 0 else value, field_type)
    return serialize(value, field_type)


def truncate_text(text: str, length: int | None) -> str:
    """Return the first characters (code points) of a text, which sort at or below it."""
    return text if length is None else text[:length]


def truncate_text_above(text: str, length: int | None) -> str | None:
    """Return a text of at most `length` characters that is not less, or None if there is none.

    Increments the last character that has a successor, and drops the rest. Surrogates are not characters.
    """
    if length is None or len(text) <= length:
        return text
    for end in range(length, 0, -1):
        successor = ord(text[end - 1]) + 1
        if successor in SURROGATES:
            successor = SURROGATES.stop
        if successor <= MAX_CODE_POINT:
            return text[: end - 1] + chr(successor)
    return None


def truncate_bytes_above(value: bytes, length: int | None) -> bytes | None:
    """Return at most `length` bytes that are not less in unsigned order, or None if there are none."""
    if length is None or len(value) <= length:
        return value
    kept = value[:length].rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def decode_text(value: bytes) -> str | None:
    try:
        return bytes(value).decode("utf-8")
    except UnicodeDecodeError:
        return None  # a Spark string may hold bytes that are not UTF-8


def float_value(bound: bytes, field_type: PrimitiveType) -> float:
    """Decode the bound of a floating-point column.

    Raises:
        struct.error: It has another length.
    """
    return float(FLOATS[type(field_type)].unpack(bound)[0])


def float_bound(value: float, field_type: PrimitiveType) -> bytes | None:
    return None if math.isnan(value) else FLOATS[type(field_type)].pack(value)


def serialize(value: Any, field_type: PrimitiveType) -> bytes:
    match field_type:
        case UUIDType():
            return bytes(value)
        case DecimalType():
            return minimal_bytes(value)
    return to_bytes(field_type, value)


def minimal_bytes(unscaled: int) -> bytes:
    """Encode a number as big-endian two's complement, in as few bytes as possible."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


MAX_COLUMNS = 100
UNBOUNDED = (GeometryType, GeographyType, VariantType)
TRUNCATE = re.compile(r"truncate\((\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsMode:
    """The metrics that a column gets.

    Attributes:
        counts: True to count values, NULLs and NaNs.
        bounds: True to store bounds.
        length: Maximum characters or bytes of bounds; None does not truncate them.
    """

    counts: bool = True
    bounds: bool = True
    length: int | None = 16


NONE = MetricsMode(counts=False, bounds=False)
COUNTS = MetricsMode(bounds=False)
FULL = MetricsMode(length=None)
TRUNCATE_16 = MetricsMode()


def parse_mode(key: str, text: str) -> MetricsMode:
    """Parse the value of a metrics property.

    Raises:
        AnalysisError: The value is not a metrics mode.
    """
    word = text.strip().lower()
    match word:
        case "none":
            return NONE
        case "counts":
            return COUNTS
        case "full":
            return FULL
    truncate = TRUNCATE.fullmatch(word)
    if truncate is None or int(truncate[1]) == 0:
        raise AnalysisError(
            f"The table property '{key}' is '{text}'",
            kind=ErrorKind.INVALID_PROPERTY,
            hint="It must be 'none', 'counts', 'truncate(n)' with n above 0, or 'full'",
            property=key,
        )
    return MetricsMode(length=int(truncate[1]))


def metrics_modes(
    schema: Schema, properties: Mapping[str, str], sorted_ids: Iterable[int] = ()
) -> dict[int, MetricsMode]:
    """Return the mode of every primitive or variant field.

    Args:
        schema: The table's schema.
        properties: The table's properties.
        sorted_ids: Fields of the sort order: they have bounds by default, because bounds of sorted columns prune best.

    Raises:
        AnalysisError: A property has an invalid value.
    """
    ids = list(ids_with_metrics(schema.as_struct()))
    if DEFAULT_METRICS_MODE in properties:
        modes = dict.fromkeys(ids, parse_mode(DEFAULT_METRICS_MODE, properties[DEFAULT_METRICS_MODE]))
    else:
        limit = integer(properties, METRICS_MAX_INFERRED_COLUMNS, MAX_COLUMNS)
        modes = {field_id: TRUNCATE_16 if place < limit else NONE for place, field_id in enumerate(ids)}
    for field_id in sorted_ids:
        if field_id in modes and not modes[field_id].bounds:
            modes[field_id] = TRUNCATE_16
    for key, text in properties.items():
        if key.startswith(METRICS_MODE_COLUMN_PREFIX):
            mode = parse_mode(key, text)
            field = find(schema, key.removeprefix(METRICS_MODE_COLUMN_PREFIX))
            if field is not None and field.field_id in modes:
                modes[field.field_id] = mode
    for field_id in ids:
        # The bounds of geometries are points, and those of variants are bounds of the fields inside. RowDelta computes
        # neither, and bounds of the raw bytes would be wrong.
        if modes[field_id].bounds and isinstance(schema.find_type(field_id), UNBOUNDED):
            modes[field_id] = COUNTS
    return modes


def find(schema: Schema, name: str) -> NestedField | None:
    try:
        return schema.find_field(name)
    except ValueError:
        return None  # the property outlived its column


def ids_with_metrics(struct: StructType) -> Iterator[int]:
    """Yield primitive and variant fields level by level, so that a wide struct does not crowd out later columns."""
    level: list[NestedField] = list(struct.fields)
    while level:
        yield from (field.field_id for field in level if isinstance(field.field_type, PrimitiveType))
        level = [child for field in level for child in children_of(field.field_type)]


def children_of(field_type: IcebergType) -> tuple[NestedField, ...]:
    match field_type:
        case StructType():
            return field_type.fields
        case ListType():
            return (field_type.element_field,)
        case MapType():
            return field_type.key_field, field_type.value_field
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Leaf:
    """A physical column of a file.

    Attributes:
        field: The primitive field, or the variant.
        path: The index of the column, then the indexes of fields in structs.
        repeated: True inside a list or map.
        counts: True if the physical column's values and NULLs are those of the field. A variant is NULL where its
            `metadata` is NULL; NULLs in its other parts have no such meaning.
    """

    field: NestedField
    path: tuple[int, ...]
    repeated: bool = False
    counts: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMetrics:
    """The metrics of a file's columns, by field id; see `ContentFile`."""

    column_sizes: dict[int, int] = field(default_factory=dict)
    value_counts: dict[int, int] = field(default_factory=dict)
    null_value_counts: dict[int, int] = field(default_factory=dict)
    nan_value_counts: dict[int, int] = field(default_factory=dict)
    lower_bounds: dict[int, bytes] = field(default_factory=dict)
    upper_bounds: dict[int, bytes] = field(default_factory=dict)


def leaves(columns: tuple[NestedField, ...]) -> tuple[Leaf, ...]:
    """Return the physical columns of a file, in its order."""
    return tuple(leaf for place, column in enumerate(columns) for leaf in leaves_of(column, (place,), repeated=False))


VARIANT_PARTS = tuple(part.name for part in VARIANT_ARROW)


def leaves_of(column: NestedField, path: tuple[int, ...], *, repeated: bool) -> tuple[Leaf, ...]:
    if isinstance(column.field_type, VariantType):
        return tuple(
            Leaf(field=column, path=path, repeated=repeated, counts=part == METADATA) for part in VARIANT_PARTS
        )
    children = children_of(column.field_type)
    if not children:
        return () if isinstance(column.field_type, StructType) else (Leaf(field=column, path=path, repeated=repeated),)
    repeated = repeated or not isinstance(column.field_type, StructType)
    return tuple(
        leaf for place, child in enumerate(children) for leaf in leaves_of(child, (*path, place), repeated=repeated)
    )


class NanCounter:
    """Count the NaNs of floating-point columns, batch by batch.

    Args:
        leaves: The file's physical columns.
        modes: The modes of the file's fields.
    """

    def __init__(self, leaves: tuple[Leaf, ...], modes: Mapping[int, MetricsMode]) -> None:
        self._leaves = tuple(
            leaf
            for leaf in leaves
            if isinstance(leaf.field.field_type, FloatType | DoubleType)
            and not leaf.repeated
            and leaf.field.field_id in modes
            and modes[leaf.field.field_id].counts
        )
        self.counts: dict[int, int] = dict.fromkeys((leaf.field.field_id for leaf in self._leaves), 0)

    def add(self, columns: list[pa.Array]) -> None:
        """Count one batch."""
        for leaf in self._leaves:
            values = columns[leaf.path[0]]
            for place in leaf.path[1:]:
                values = pc.struct_field(values, [place])  # NULL where the struct is NULL
            nans = pc.sum(pc.is_nan(values)).as_py()
            self.counts[leaf.field.field_id] += nans or 0


def parquet_metrics(
    footer: Any, leaves: tuple[Leaf, ...], modes: Mapping[int, MetricsMode], nan_counts: Mapping[int, int]
) -> ColumnMetrics:
    """Return the metrics of a Parquet file.

    Args:
        footer: The file's `pyarrow.parquet.FileMetaData`.
        leaves: The file's physical columns, in the footer's order.
        modes: The modes of the file's fields; a field without one has no metrics.
        nan_counts: NaNs by field id.
    """
    result = ColumnMetrics(nan_value_counts=dict(nan_counts))
    groups = [footer.row_group(place) for place in range(footer.num_row_groups)]
    for place, leaf in enumerate(leaves):
        field_id = leaf.field.field_id
        mode = modes.get(field_id)
        if mode is None or not mode.counts:
            continue
        chunks = [group.column(place) for group in groups]
        size = sum(chunk.total_compressed_size for chunk in chunks)
        result.column_sizes[field_id] = result.column_sizes.get(field_id, 0) + size
        if leaf.counts and not leaf.repeated:
            add_chunks(result, leaf, mode, chunks)
    return result


def add_chunks(result: ColumnMetrics, leaf: Leaf, mode: MetricsMode, chunks: list[Any]) -> None:
    field_id, field_type = leaf.field.field_id, leaf.field.field_type
    values = sum(chunk.num_values for chunk in chunks)
    result.value_counts[field_id] = values
    statistics = [chunk.statistics for chunk in chunks]
    if any(part is None or not part.has_null_count for part in statistics):
        return
    result.null_value_counts[field_id] = sum(part.null_count for part in statistics)
    filled = [part for part, chunk in zip(statistics, chunks, strict=True) if part.null_count < chunk.num_values]
    # A chunk has no bounds if its values are too long for the footer, or if it holds only NaN. The footer does not tell
    # the two apart, but only floating-point chunks can hold NaN, and their values are never too long.
    bounded = [part for part in filled if part.has_min_max]
    if not mode.bounds or not bounded or not complete(filled, bounded, leaf):
        return
    assert isinstance(field_type, PrimitiveType)
    low = lower_bound(min(comparable(part.min_raw, field_type) for part in bounded), field_type, mode.length)
    high = upper_bound(max(comparable(part.max_raw, field_type) for part in bounded), field_type, mode.length)
    if low is not None:
        result.lower_bounds[field_id] = low
    if high is not None:
        result.upper_bounds[field_id] = high


def complete(filled: list[Any], bounded: list[Any], leaf: Leaf) -> bool:
    return len(filled) == len(bounded) or isinstance(leaf.field.field_type, FloatType | DoubleType)


def comparable(raw: Any, field_type: PrimitiveType) -> Any:
    """Convert a footer value to a form that compares as the column does: decimals may be signed bytes."""
    if isinstance(field_type, DecimalType) and isinstance(raw, bytes):
        return int.from_bytes(raw, "big", signed=True)
    return raw


class BatchMetrics:
    """Collect counts, minima and maxima from the rows of a file.

    Args:
        leaves: The file's physical columns.
        modes: The modes of the file's fields; a field without one has no metrics.
    """

    def __init__(self, leaves: tuple[Leaf, ...], modes: Mapping[int, MetricsMode]) -> None:
        self._counted = tuple(
            (leaf, modes[leaf.field.field_id])
            for leaf in leaves
            if not leaf.repeated and leaf.field.field_id in modes and modes[leaf.field.field_id].counts
        )
        self._rows = 0
        self._nulls = {leaf.field.field_id: 0 for leaf, _ in self._counted}
        self._nans: dict[int, int] = {}
        self._least: dict[int, Any] = {}
        self._greatest: dict[int, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        self._rows += batch.num_rows
        for leaf, mode in self._counted:
            values = batch.column(leaf.path[0])
            for place in leaf.path[1:]:
                values = pc.struct_field(values, [place])  # NULL where the struct is NULL
            self._add(leaf.field.field_id, mode, plain(values))

    def _add(self, field_id: int, mode: MetricsMode, values: pa.Array) -> None:
        self._nulls[field_id] += values.null_count
        if pa.types.is_floating(values.type):
            nans = pc.is_nan(values)
            found = pc.sum(nans).as_py() or 0
            self._nans[field_id] = self._nans.get(field_id, 0) + found
            if found:
                values = values.filter(pc.invert(nans))
        if not mode.bounds or values.null_count == len(values):
            return
        extremes = pc.min_max(values)
        least, greatest = ordinal_value(extremes["min"]), ordinal_value(extremes["max"])
        self._least[field_id] = min(self._least.get(field_id, least), least)
        self._greatest[field_id] = max(self._greatest.get(field_id, greatest), greatest)

    def metrics(self) -> ColumnMetrics:
        """Return the metrics of all rows; column sizes are unknown."""
        result = ColumnMetrics(nan_value_counts=dict(self._nans))
        for leaf, mode in self._counted:
            field_id, kind = leaf.field.field_id, leaf.field.field_type
            assert isinstance(kind, PrimitiveType)
            result.value_counts[field_id] = self._rows
            result.null_value_counts[field_id] = self._nulls[field_id]
            if field_id not in self._least:
                continue
            low = lower_bound(self._least[field_id], kind, mode.length)
            high = upper_bound(self._greatest[field_id], kind, mode.length)
            if low is not None:
                result.lower_bounds[field_id] = low
            if high is not None:
                result.upper_bounds[field_id] = high
        return result


def plain(values: pa.Array) -> pa.Array:
    """Convert values to a type that Arrow compares as bounds do: integers for times, bytes for strings."""
    if isinstance(values, pa.ExtensionArray):
        return values.storage
    kind = values.type
    if pa.types.is_date32(kind):
        return values.view(pa.int32())
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return values.view(pa.int64())
    return values.view(pa.binary()) if pa.types.is_string(kind) else values


def ordinal_value(value: pa.Scalar) -> Any:
    """Convert a minimum or maximum to the form that `lower_bound` takes: decimals are unscaled integers."""
    found = value.as_py()
    # Not `scaleb`: it rounds to the 28 digits of the default context.
    return decimal_to_unscaled(found) if pa.types.is_decimal(value.type) else found
