"""Variants shredded: values, and fields of objects, that are alike in columns of their own types. Worker.

Input: the first rows of a file, and each of its row groups. Output: the columns that the file gets, and the rows as it
has them. Spec: Parquet's `VariantShredding.md`; the table property `write.parquet.shred-variants`.

Each file is shredded as its own first rows suggest, by the rules of Java's `VariantShreddingAnalyzer`: a field gets a
column if all of its values are of one type, integers and decimals of several widths counting as one, and a tenth of the
rows have it. A value goes into the column if it is of exactly that type, so that it is the same, byte for byte but for
the order of an object's values, when it is put together; others stay where they were, and so do variants that break
the format: whoever reads them may say so.
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

__all__ = ["physical_columns", "shredded_table", "shreddings"]

MIN_SHARE: Final = 0.1
MAX_FIELDS: Final = 300
MAX_KNOWN_FIELDS: Final = 1000
MAX_DEPTH: Final = 20
"""Of objects and arrays inside each other: footers of deeper files are not read by all."""

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
"""Primitive types of a fixed size that get columns: not times, nanoseconds and uuids, which Spark's variants lack."""

WIDTHS: Final = {8: (4, 9), 9: (8, 18), 10: (16, 38)}
"""Bytes and digits of decimals."""

MISSING: Final = {VALUE: None, TYPED_VALUE: None}

Shreddings = dict[int, pa.DataType]
"""The type of `typed_value`, by the place of the column."""


def shreddings(table: pa.Table, rows: int) -> Shreddings:
    """How a file's variants are shredded.

    Args:
        table: Its first rows.
        rows: How many of them are looked at.
    """
    found = {}
    for place, kind in enumerate(table.schema.types):
        if is_variant(kind):
            typed = inferred(table.column(place).slice(0, rows).combine_chunks())
            if typed is not None:
                found[place] = typed
    return found


def shredded_table(table: pa.Table, chosen: Shreddings) -> pa.Table:
    """Rows as the file has them.

    Args:
        table: Some rows.
        chosen: How its columns are shredded.
    """
    for place, typed in chosen.items():
        known = table.schema.field(place)
        parts = [shredded(chunk, typed) for chunk in table.column(place).chunks]
        column = pa.chunked_array(parts, group_type(typed))
        table = table.set_column(place, known.with_type(column.type), column)
    return table


def physical_columns(typed: pa.DataType) -> int:
    """How many physical columns a `typed_value` takes."""
    if pa.types.is_list(typed):
        return physical_columns(typed.value_type)
    if pa.types.is_struct(typed):
        return sum(physical_columns(typed.field(place).type) for place in range(typed.num_fields))
    return 1


def group_type(typed: pa.DataType) -> pa.DataType:
    """The type of a shredded variant."""
    return pa.struct(
        [pa.field(METADATA, pa.binary(), nullable=False), pa.field(VALUE, pa.binary()), pa.field(TYPED_VALUE, typed)]
    )


def inner_type(typed: pa.DataType) -> pa.DataType:
    """The type of a shredded field or element."""
    return pa.struct([pa.field(VALUE, pa.binary()), pa.field(TYPED_VALUE, typed)])


# ---- which columns --------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Seen:
    """What was seen at a place of variants.

    Attributes:
        count: How many values, nulls aside.
        kinds: Their types.
        scale: The most digits behind the point of a decimal.
        digits: The most before it.
        fields: Those of objects.
        element: That of arrays.
    """

    count: int = 0
    kinds: set[int] = field(default_factory=set)
    scale: int = 0
    digits: int = 0
    fields: "dict[bytes, Seen]" = field(default_factory=dict)
    element: "Seen | None" = None

    def add(self, value: bytes, dictionary: Dictionary, depth: int) -> None:
        """Looks at a value."""
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
        """The type of the column; None where there is to be none."""
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
        """The one type of all values: the widest where they are numbers of one family."""
        if len(self.kinds) == 1 or any(self.kinds <= {*family} for family in (INTEGERS, DECIMALS)):
            return max(self.kinds, default=None)
        return None

    def frequent(self, rows: int) -> list[tuple[str, "Seen"]]:
        """The fields that are worth a column, by name.

        Names that differ by case alone are left where they are: some readers take them for one.
        """
        known = {name: seen for name, seen in self.fields.items() if name and seen.count >= MIN_SHARE * rows}
        kept = sorted(sorted(known), key=lambda name: -known[name].count)[:MAX_FIELDS]
        texts = {text: known[name] for name in kept if (text := readable(name)) is not None}
        folded = [text.lower() for text in map(str, (readable(name) for name in self.fields))]
        return sorted((text, seen) for text, seen in texts.items() if folded.count(text.lower()) == 1)


def readable(name: bytes) -> str | None:
    """A name as text."""
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
    """The type of a value: a primitive one's number, or that it is an object or an array."""
    match value[0] & 3:
        case basic if basic == PRIMITIVE:
            primitive = value[0] >> 2
            return TRUE if primitive == FALSE else primitive
        case basic if basic == SHORT_STRING:
            return STRING
        case basic if basic == OBJECT:
            return OBJECT_KIND
    return ARRAY_KIND


def inferred(group: pa.StructArray) -> pa.DataType | None:
    """The type of `typed_value` of some variants; None where they are not worth one."""
    seen = Seen()
    known: dict[bytes, Dictionary] = {}
    for metadata, value in pairs(group):
        with suppress(ValueError):
            check_size(value)
            seen.add(value, dictionary_of(known, metadata), 0)
    return seen.typed(seen.count)


def check_size(value: bytes) -> None:
    """Refuse other bytes than those of one value; those inside are taken by their sizes.

    Raises:
        ValueError: it is none, or there are more.
    """
    if not value or size_of(value, 0) != len(value):
        raise ValueError("a variant has bytes that are none of its value")


def pairs(group: pa.StructArray) -> Iterator[tuple[bytes, bytes]]:
    """Metadata and value of the variants that are not NULL."""
    live = group.filter(group.is_valid()) if group.null_count else group
    yield from zip(live.field(METADATA).to_pylist(), live.field(VALUE).to_pylist(), strict=True)


# ---- the rows -------------------------------------------------------------------------------------------------

Split = Callable[[bytes, Dictionary], dict[str, Any]]
Take = Callable[[bytes], Any]


def shredded(group: pa.StructArray, typed: pa.DataType) -> pa.StructArray:
    """Variants with some of their values in `typed_value`."""
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
    # One row of nothing more, for those that are NULL: the parts of a variant may be no NULL, wherever they stand.
    filler = pa.array([{METADATA: b"", VALUE: None, TYPED_VALUE: None}], whole.type)
    valid = group.is_valid()
    places = pc.if_else(valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), len(whole))
    filled = pa.concat_arrays([whole, filler]).take(places)
    return pa.StructArray.from_arrays(
        [filled.field(place) for place in range(len(fields))], fields=fields, mask=group.is_null()
    )


def splitter(typed: pa.DataType) -> Split:
    """How a value is split into `value` and `typed_value`."""
    if pa.types.is_struct(typed):
        return object_splitter(typed)
    if pa.types.is_list(typed):
        return array_splitter(typed)
    take = taker(typed)

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


def taker(typed: pa.DataType) -> Take:
    """Gives the value of a variant that is exactly of a type, as Arrow takes it; None of others."""
    if pa.types.is_decimal(typed):
        return decimal_taker(typed)
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
    """The text of a string; None where it is none that Parquet could hold."""
    if kind_of(value) != STRING:
        return None
    return readable(value[1:] if value[0] & 3 == SHORT_STRING else value[5:])


def decimal_taker(typed: pa.Decimal128Type) -> Take:
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
    """Scale and digits of a decimal."""
    return value[1], int.from_bytes(value[2 : 2 + WIDTHS[kind][0]], "little", signed=True)
