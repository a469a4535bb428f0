"""Shred variants: store values, and fields of objects, of one type in columns of their own. Worker.

Input: the first rows of a file, and each of its row groups. Output: the columns of the file, and the rows in its form.
Spec: Parquet's `VariantShredding.md`; the table property `write.parquet.shred-variants`.

The first rows of each file determine how it is shredded, by the rules of Java's `VariantShreddingAnalyzer`: a field
gets a column if all of its values have one type, where integers (and decimals) of all widths count as one, and if at
least a tenth of the rows have it. A value goes to the column only if it has exactly that type. Reconstruction is then
byte for byte the same, except for the order of an object's values. Other values stay unshredded, and so do variants
that break the format, which readers may report.
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from dml.model.arrow_types import METADATA, TYPED_VALUE, VALUE, is_variant
from dml.read.variant_values import (
    OBJECT,
    PRIMITIVE,
    SHORT_STRING,
    Dictionary,
    dictionary_of,
    elements_of,
    fields_of,
    object_of,
    size_of,
)

__all__ = ["infer_shreddings", "physical_columns", "shred_table"]

MIN_SHARE: Final = 0.1
MAX_FIELDS: Final = 300
MAX_KNOWN_FIELDS: Final = 1000
MAX_DEPTH: Final = 20
"""The nesting limit of shredded objects and arrays: not all readers accept footers of deeper files."""

INTEGERS: Final = (3, 4, 5, 6)
DECIMALS: Final = (8, 9, 10)
TRUE, FALSE, STRING, BINARY = 1, 2, 16, 15
OBJECT_KIND, ARRAY_KIND = -1, -2

PLAIN: Final[Mapping[int, tuple[pa.DataType, str]]] = {
    3: (pa.int8(), "<b"),
    4: (pa.int16(), "<h"),
    5: (pa.int32(), "<i"),
    6: (pa.int64(), "<q"),
    7: (pa.float64(), "<d"),
    11: (pa.date32(), "<i"),
    12: (pa.timestamp("us", "UTC"), "<q"),
    13: (pa.timestamp("us"), "<q"),
    14: (pa.float32(), "<f"),
}
"""Fixed-size primitive types that get columns. Times, nanoseconds and uuids are missing, as in Spark's variants."""

WIDTHS: Final = {8: (4, 9), 9: (8, 18), 10: (16, 38)}
"""The bytes and maximum digits of decimals, by primitive type."""

MISSING: Final = {VALUE: None, TYPED_VALUE: None}

Shreddings = dict[int, pa.DataType]
"""The type of `typed_value`, by column index."""


def infer_shreddings(table: pa.Table, rows: int) -> Shreddings:
    """Return how a file's variants are shredded.

    Args:
        table: The file's first rows.
        rows: The number of rows to examine.
    """
    found = {}
    for place, kind in enumerate(table.schema.types):
        if is_variant(kind):
            typed = infer_type(table.column(place).slice(0, rows).combine_chunks())
            if typed is not None:
                found[place] = typed
    return found


def shred_table(table: pa.Table, chosen: Shreddings) -> pa.Table:
    """Shred the variants of some rows.

    Args:
        table: The rows.
        chosen: The shredding of its columns.
    """
    for place, typed in chosen.items():
        known = table.schema.field(place)
        parts = [shred_group(chunk, typed) for chunk in table.column(place).chunks]
        column = pa.chunked_array(parts, group_type(typed))
        table = table.set_column(place, known.with_type(column.type), column)
    return table


def physical_columns(typed: pa.DataType) -> int:
    """Return the number of physical columns of a `typed_value`."""
    if pa.types.is_list(typed):
        return physical_columns(typed.value_type)
    if pa.types.is_struct(typed):
        return sum(physical_columns(typed.field(place).type) for place in range(typed.num_fields))
    return 1


def group_type(typed: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a shredded variant."""
    return pa.struct(
        [pa.field(METADATA, pa.binary(), nullable=False), pa.field(VALUE, pa.binary()), pa.field(TYPED_VALUE, typed)]
    )


def inner_type(typed: pa.DataType) -> pa.DataType:
    """Return the Arrow type of a shredded field or element."""
    return pa.struct([pa.field(VALUE, pa.binary()), pa.field(TYPED_VALUE, typed)])


# ---- inference ------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """The values seen at one path of variants.

    Attributes:
        count: The number of values that are not null.
        kinds: Their types.
        scale: The maximum number of fractional digits of decimals.
        digits: The maximum number of integer digits of decimals.
        fields: The fields of objects, by name.
        element: The elements of arrays.
    """

    count: int = 0
    kinds: set[int] = field(default_factory=set)
    scale: int = 0
    digits: int = 0
    fields: "dict[bytes, Seen]" = field(default_factory=dict)
    element: "Seen | None" = None

    def add(self, value: bytes, dictionary: Dictionary, depth: int) -> None:
        """Add a value."""
        kind = kind_of(value)
        if kind == 0:
            return
        self.count += 1
        self.kinds.add(kind)
        if kind in DECIMALS:
            scale, unscaled = decimal_parts(value, kind)
            self.scale = max(self.scale, scale)
            self.digits = max(self.digits, len(str(abs(unscaled))) - scale)
        elif kind == OBJECT_KIND and depth < MAX_DEPTH:
            for name, inner in fields_of(value, dictionary):
                if name in self.fields or len(self.fields) < MAX_KNOWN_FIELDS:
                    self.fields.setdefault(name, Seen()).add(inner, dictionary, depth + 1)
        elif kind == ARRAY_KIND and depth < MAX_DEPTH:
            self.element = self.element or Seen()
            for inner in elements_of(value):
                self.element.add(inner, dictionary, depth + 1)

    def typed(self, rows: int) -> pa.DataType | None:
        """Return the type of the column; None if there is to be none."""
        kind = self.kind()
        if kind is None:
            return None
        if kind == OBJECT_KIND:
            fields = [
                pa.field(name, inner_type(typed), nullable=False)
                for name, seen in self.frequent(rows)
                if (typed := seen.typed(rows)) is not None
            ]
            return pa.struct(fields) if fields else None
        if kind == ARRAY_KIND:
            typed = None if self.element is None else self.element.typed(rows)
            return None if typed is None else pa.list_(pa.field("element", inner_type(typed), nullable=False))
        if kind in DECIMALS:
            precision = self.scale + max(self.digits, 0)
            return pa.decimal128(max(precision, 1), self.scale) if precision <= WIDTHS[kind][1] else None
        return ARROW_TYPES.get(kind)

    def kind(self) -> int | None:
        """Return the one type of all values, which is the widest if they are all integers or all decimals."""
        if len(self.kinds) == 1 or any(self.kinds <= {*family} for family in (INTEGERS, DECIMALS)):
            return max(self.kinds, default=None)
        return None

    def frequent(self, rows: int) -> list[tuple[str, "Seen"]]:
        """Return the fields that get a column, ordered by name.

        Names that differ only by case get none, because some readers treat them as one.
        """
        known = {name: seen for name, seen in self.fields.items() if name and seen.count >= MIN_SHARE * rows}
        kept = sorted(sorted(known), key=lambda name: -known[name].count)[:MAX_FIELDS]
        texts = {text: known[name] for name in kept if (text := readable(name)) is not None}
        folded = [text.lower() for text in map(str, (readable(name) for name in self.fields))]
        return sorted((text, seen) for text, seen in texts.items() if folded.count(text.lower()) == 1)


def readable(name: bytes) -> str | None:
    """Decode a name; None if it is not UTF-8."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        return None


ARROW_TYPES: Final = {
    **{kind: arrow for kind, (arrow, _) in PLAIN.items()},
    TRUE: pa.bool_(),
    STRING: pa.string(),
    BINARY: pa.binary(),
}


def kind_of(value: bytes) -> int:
    """Return the type of a value: the number of its primitive type, `OBJECT_KIND` or `ARRAY_KIND`."""
    match value[0] & 3:
        case basic if basic == PRIMITIVE:
            primitive = value[0] >> 2
            return TRUE if primitive == FALSE else primitive
        case basic if basic == SHORT_STRING:
            return STRING
        case basic if basic == OBJECT:
            return OBJECT_KIND
    return ARRAY_KIND


def infer_type(group: pa.StructArray) -> pa.DataType | None:
    """Infer the type of `typed_value` from some variants; None if they are not shredded."""
    seen = Seen()
    known: dict[bytes, Dictionary] = {}
    for metadata, value in pairs(group):
        with suppress(ValueError):
            check_size(value)
            seen.add(value, dictionary_of(known, metadata), 0)
    return seen.typed(seen.count)


def check_size(value: bytes) -> None:
    """Check that the bytes are exactly one value; nested values are delimited by their own sizes.

    Raises:
        ValueError: There is no value, or there are more bytes.
    """
    if not value or size_of(value, 0) != len(value):
        raise ValueError("a variant is not exactly one value")


def pairs(group: pa.StructArray) -> Iterator[tuple[bytes, bytes]]:
    """Yield metadata and value of the variants that are not NULL."""
    live = group.filter(group.is_valid()) if group.null_count else group
    yield from zip(live.field(METADATA).to_pylist(), live.field(VALUE).to_pylist(), strict=True)


# ---- shredding ------------------------------------------------------------------------------------------------

Split = Callable[[bytes, Dictionary], dict[str, Any]]
Take = Callable[[bytes], Any]


def shred_group(group: pa.StructArray, typed: pa.DataType) -> pa.StructArray:
    """Move values of variants to `typed_value`."""
    split = splitter(typed)
    known: dict[bytes, Dictionary] = {}
    parts = []
    for metadata, value in pairs(group):
        try:
            check_size(value)
            parts.append(split(value, dictionary_of(known, metadata)))
        except ValueError:
            parts.append({VALUE: value, TYPED_VALUE: None})
    live = group.filter(group.is_valid()) if group.null_count else group
    inner = pa.array(parts, inner_type(typed))
    fields = list(group_type(typed))
    whole = pa.StructArray.from_arrays(
        [live.field(METADATA), inner.field(VALUE), inner.field(TYPED_VALUE)], fields=fields
    )
    if not group.null_count:
        return whole
    # NULL rows take a filler row with empty metadata: the parts of a NULL variant must not be NULL themselves.
    filler = pa.array([{METADATA: b"", VALUE: None, TYPED_VALUE: None}], whole.type)
    valid = group.is_valid()
    places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), len(whole))
    filled = pa.concat_arrays([whole, filler]).take(places)
    return pa.StructArray.from_arrays(
        [filled.field(place) for place in range(len(fields))], fields=fields, mask=group.is_null()
    )


def splitter(typed: pa.DataType) -> Split:
    """Return the function that splits a value into `value` and `typed_value`."""
    if pa.types.is_struct(typed):
        return object_splitter(typed)
    if pa.types.is_list(typed):
        return array_splitter(typed)
    take = extractor(typed)

    def split(value: bytes, _: Dictionary) -> dict[str, Any]:
        taken = take(value)
        return {VALUE: value if taken is None else None, TYPED_VALUE: taken}

    return split


def object_splitter(typed: pa.StructType) -> Split:
    fields = [typed.field(place) for place in range(typed.num_fields)]
    splits = {part.name.encode(): (part.name, splitter(part.type.field(TYPED_VALUE).type)) for part in fields}

    def split(value: bytes, dictionary: Dictionary) -> dict[str, Any]:
        if kind_of(value) != OBJECT_KIND:
            return {VALUE: value, TYPED_VALUE: None}
        taken: dict[str, Any] = {part.name: MISSING for part in fields}
        rest: dict[bytes, bytes] = {}
        for name, inner in fields_of(value, dictionary):
            if name in splits:
                text, inside = splits[name]
                taken[text] = inside(inner, dictionary)
            else:
                rest[name] = inner
        return {VALUE: object_of(rest, dictionary) if rest else None, TYPED_VALUE: taken}

    return split


def array_splitter(typed: pa.ListType) -> Split:
    inside = splitter(typed.value_type.field(TYPED_VALUE).type)

    def split(value: bytes, dictionary: Dictionary) -> dict[str, Any]:
        if kind_of(value) != ARRAY_KIND:
            return {VALUE: value, TYPED_VALUE: None}
        return {VALUE: None, TYPED_VALUE: [inside(element, dictionary) for element in elements_of(value)]}

    return split


def extractor(typed: pa.DataType) -> Take:
    """Return the function that extracts a value of exactly this type as Arrow takes it; None for other values."""
    if pa.types.is_decimal(typed):
        return decimal_extractor(typed)
    if pa.types.is_boolean(typed):
        return {b"\x04": True, b"\x08": False}.get
    if pa.types.is_string(typed):
        return text
    if pa.types.is_binary(typed):
        return lambda value: value[5:] if kind_of(value) == BINARY else None
    (kind, layout) = next((kind, layout) for kind, (arrow, layout) in PLAIN.items() if arrow == typed)
    unpack = struct.Struct(layout).unpack_from
    return lambda value: unpack(value, 1)[0] if kind_of(value) == kind else None


def text(value: bytes) -> str | None:
    """Return the text of a string value; None for other values and for strings that are not UTF-8."""
    if kind_of(value) != STRING:
        return None
    return readable(value[1:] if value[0] & 3 == SHORT_STRING else value[5:])


def decimal_extractor(typed: pa.Decimal128Type) -> Take:
    kind = next(kind for kind, (_, digits) in WIDTHS.items() if typed.precision <= digits)
    limit = 10**typed.precision

    def take(value: bytes) -> Decimal | None:
        if kind_of(value) != kind:
            return None
        scale, unscaled = decimal_parts(value, kind)
        if scale != typed.scale or abs(unscaled) >= limit:
            return None
        return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))

    return take


def decimal_parts(value: bytes, kind: int) -> tuple[int, int]:
    """Return scale and unscaled value of a decimal."""
    return value[1], int.from_bytes(value[2 : 2 + WIDTHS[kind][0]], "little", signed=True)
