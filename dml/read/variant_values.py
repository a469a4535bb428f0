"""Convert variants as a Parquet file holds them, shredded or not, to whole values. Pure, worker-safe.

Input: the group of a variant column: `metadata`, `value`, and `typed_value` if it is shredded. Output: the same
variants as `metadata` and `value` alone. Spec: Parquet's `VariantEncoding.md` and `VariantShredding.md`,
"Reconstructing a Shredded Variant".

Shredding moves values, or fields of objects, into columns of their own types, and each file may do so differently. All
field names stay in `metadata`, so that this module never changes it. A violation of the format raises `ValueError`,
which the caller reports with the file's name.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dml.model.arrow_types import METADATA, TYPED_VALUE, VALUE

__all__ = [
    "ARRAY",
    "OBJECT",
    "PRIMITIVE",
    "SHORT_STRING",
    "Dictionary",
    "dictionary_of",
    "elements_of",
    "fields_of",
    "object_of",
    "size_of",
    "whole_variants",
]

PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
"""The basic types: the lowest two bits of a value."""

NULL: Final = b"\x00"
TRUE: Final = b"\x04"
FALSE: Final = b"\x08"
MAX_SHORT: Final = 63
MAX_SMALL: Final = 255
VERSION: Final = 1

FIXED_SIZES: Final = {
    0: 0,
    1: 0,
    2: 0,
    3: 1,
    4: 2,
    5: 4,
    6: 8,
    7: 8,
    8: 5,
    9: 9,
    10: 17,
    11: 4,
    12: 8,
    13: 8,
    14: 4,
    17: 8,
    18: 8,
    19: 8,
    20: 16,
}
"""The bytes after the header, by primitive type."""

EXACT: Final = Context(prec=76)
"""Enough digits for every Arrow decimal."""

WITH_LENGTH: Final = (15, 16)
"""The primitive types binary and string, which store their length."""

Encode = Callable[[Any], bytes]
Values = list[bytes | None]


def whole_variants(group: pa.StructArray) -> tuple[pa.Array, pa.Array]:
    """Return the `metadata` and the `value` of each variant; NULL where the variant is NULL.

    Args:
        group: The column as the file holds it.

    Raises:
        ValueError: The group is not a variant, or a value breaks the format.
    """
    parts = parts_of(group)
    if METADATA not in parts or not pa.types.is_binary(parts[METADATA].type):
        raise ValueError("it has a variant without metadata")
    metadata = parts[METADATA]
    live = group.is_valid()
    if TYPED_VALUE not in parts and VALUE in parts and not pc.any(pc.and_(live, parts[VALUE].is_null())).as_py():
        check_binary(parts[VALUE])
        return metadata, parts[VALUE]
    valid = live.to_numpy(zero_copy_only=False)
    known: dict[bytes, Dictionary] = {}
    dictionaries = [
        dictionary_of(known, text) if is_there else EMPTY
        for is_there, text in zip(valid, metadata.to_pylist(), strict=True)
    ]
    values = encode_group(group, dictionaries)
    # A non-NULL variant without a value is the variant null.
    found = [(NULL if value is None else value) if live else None for live, value in zip(valid, values, strict=True)]
    return metadata, pa.array(found, pa.binary())


def parts_of(group: pa.StructArray) -> dict[str, pa.Array]:
    """Return the parts of a group by name; NULL where the group is."""
    kind = group.type
    if not pa.types.is_struct(kind):
        raise ValueError(f"it has {kind} where a variant should be")
    return dict(zip((kind.field(place).name for place in range(kind.num_fields)), group.flatten(), strict=True))


def check_binary(values: pa.Array) -> None:
    """Raise ValueError if values are not bytes."""
    if not pa.types.is_binary(values.type):
        raise ValueError(f"it has a variant whose value is {values.type}")


class Dictionary:
    """The field names of a variant.

    Args:
        metadata: The variant's metadata.
    """

    __slots__ = ("ids", "names")

    def __init__(self, metadata: bytes) -> None:
        if not metadata or metadata[0] & 15 != VERSION:
            raise ValueError("it has a variant of an unknown version")
        width = (metadata[0] >> 6) + 1
        size = number(metadata, 1, width)
        start = 1 + width
        if start + (size + 1) * width > len(metadata):
            raise ValueError("the metadata of a variant breaks off")
        ends = [number(metadata, start + place * width, width) for place in range(size + 1)]
        data = metadata[start + (size + 1) * width :]
        if ends != sorted(ends) or ends[-1] > len(data):
            raise ValueError("the metadata of a variant breaks off")
        self.names: list[bytes] = [data[ends[place] : ends[place + 1]] for place in range(size)]
        self.ids: dict[bytes, int] = {name: place for place, name in reversed(list(enumerate(self.names)))}


def dictionary_of(known: dict[bytes, Dictionary], metadata: bytes) -> Dictionary:
    """Return the dictionary of some metadata, cached because most rows of a file share it."""
    found = known.get(metadata)
    if found is None:
        found = known[metadata] = Dictionary(metadata)
    return found


def number(data: bytes, start: int, width: int) -> int:
    """Decode an unsigned little-endian number."""
    return int.from_bytes(data[start : start + width], "little")


EMPTY: Final = Dictionary(b"\x01\x00\x00")


def encode_group(group: pa.StructArray, dictionaries: Sequence[Dictionary]) -> Values:
    """Return the encoded values of a group with `value`, `typed_value` or both; None where a row has neither.

    Args:
        group: The group of the column, of an object's field or of array elements.
        dictionaries: The field names of each row.
    """
    parts = parts_of(group)
    plain: Values = [None] * len(group)
    if VALUE in parts:
        check_binary(parts[VALUE])
        plain = parts[VALUE].to_pylist()
    typed = parts.get(TYPED_VALUE)
    if typed is None:
        return plain
    if pa.types.is_struct(typed.type):
        return objects(typed, plain, dictionaries)
    shredded = arrays(typed, dictionaries) if is_list(typed.type) else primitives(typed)
    return [exclusive(value, other) for value, other in zip(plain, shredded, strict=True)]


def is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def exclusive(value: bytes | None, shredded: bytes | None) -> bytes | None:
    """Return the one value that is present; None if neither is."""
    if value is not None and shredded is not None:
        raise ValueError("it has a variant with two values")
    return shredded if value is None else value


def objects(typed: pa.StructArray, plain: Values, dictionaries: Sequence[Dictionary]) -> Values:
    """Build objects from their shredded fields and the remaining ones."""
    names = [typed.type.field(place).name.encode() for place in range(typed.type.num_fields)]
    columns = [encode_group(part, dictionaries) for part in typed.flatten()]
    present = typed.is_valid().to_numpy(zero_copy_only=False)
    result: Values = []
    for row, (is_object, value, dictionary) in enumerate(zip(present, plain, dictionaries, strict=True)):
        if not is_object:
            result.append(value)
            continue
        fields = {
            name: found for name, column in zip(names, columns, strict=True) if (found := column[row]) is not None
        }
        if value is not None:
            for name, found in fields_of(value, dictionary):
                if name in fields or name in names:
                    raise ValueError("it has a variant with a field twice")
                fields[name] = found
        result.append(object_of(fields, dictionary))
    return result


def arrays(typed: pa.Array, dictionaries: Sequence[Dictionary]) -> Values:
    """Build arrays from their shredded elements."""
    present = typed.is_valid().to_numpy(zero_copy_only=False)
    lengths = [length or 0 for length in pc.list_value_length(typed).to_pylist()]
    owners = [dictionary for dictionary, length in zip(dictionaries, lengths, strict=True) for _ in range(length)]
    elements = iter(encode_group(typed.flatten(), owners))
    result: Values = []
    for is_array, length in zip(present, lengths, strict=True):
        # The format forbids a missing element; readers treat it as a variant null.
        found = [element if (element := next(elements)) is not None else NULL for _ in range(length)]
        result.append(array_of(found) if is_array else None)
    return result


def primitives(typed: pa.Array) -> Values:
    storage = typed.storage if isinstance(typed, pa.ExtensionArray) else typed
    kind = typed.type
    if is_stored_as_integer(kind):
        storage = storage.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
    encode = encoder(kind)
    return [None if value is None else encode(value) for value in storage.to_pylist()]


def is_stored_as_integer(kind: pa.DataType) -> bool:
    """Return True if values are encoded as a count of days, microseconds or nanoseconds."""
    return bool(pa.types.is_date32(kind) or pa.types.is_time64(kind) or pa.types.is_timestamp(kind))


PACKED: Final[tuple[tuple[Callable[[pa.DataType], bool], int, str], ...]] = (
    (pa.types.is_int8, 3, "<Bb"),
    (pa.types.is_int16, 4, "<Bh"),
    (pa.types.is_int32, 5, "<Bi"),
    (pa.types.is_int64, 6, "<Bq"),
    (pa.types.is_float64, 7, "<Bd"),
    (pa.types.is_date32, 11, "<Bi"),
    (lambda kind: kind == pa.timestamp("us", "UTC"), 12, "<Bq"),
    (lambda kind: kind == pa.timestamp("us"), 13, "<Bq"),
    (pa.types.is_float32, 14, "<Bf"),
    (lambda kind: kind == pa.time64("us"), 17, "<Bq"),
    (lambda kind: kind == pa.timestamp("ns", "UTC"), 18, "<Bq"),
    (lambda kind: kind == pa.timestamp("ns"), 19, "<Bq"),
)
"""Arrow types with values of a fixed size: the variant's primitive type, and the struct layout of header and value."""


def encoder(kind: pa.DataType) -> Encode:
    """Return the function that encodes values of a type.

    Raises:
        ValueError: Variants have no values of the type.
    """
    for is_kind, primitive, layout in PACKED:
        if is_kind(kind):
            packed = struct.Struct(layout)
            return lambda value: packed.pack(primitive << 2, value)
    if pa.types.is_boolean(kind):
        return lambda value: TRUE if value else FALSE
    if pa.types.is_decimal(kind):
        return lambda value: decimal_of(value, kind.precision, kind.scale)
    if kind == pa.uuid() or kind == pa.binary(16):
        return lambda value: bytes([20 << 2]) + bytes(value)
    if pa.types.is_binary(kind):
        return lambda value: bytes([15 << 2]) + len(value).to_bytes(4, "little") + value
    if pa.types.is_string(kind):
        return string_of
    raise ValueError(f"it has variants that are shredded as {kind}")


def string_of(value: str) -> bytes:
    data = value.encode()
    if len(data) <= MAX_SHORT:
        return bytes([len(data) << 2 | SHORT_STRING]) + data
    return bytes([16 << 2]) + len(data).to_bytes(4, "little") + data


def decimal_of(value: Decimal, precision: int, scale: int) -> bytes:
    """Encode a decimal in the width of its type, from which readers derive the precision."""
    primitive, width = (8, 4) if precision <= 9 else (9, 8) if precision <= 18 else (10, 16)
    unscaled = int(value.scaleb(scale, context=EXACT))
    return bytes([primitive << 2, scale]) + unscaled.to_bytes(width, "little", signed=True)


def fields_of(value: bytes, dictionary: Dictionary) -> Iterator[tuple[bytes, bytes]]:
    """Yield the fields of an object.

    Raises:
        ValueError: The value is not an object, or breaks the format.
    """
    if not value or value[0] & 3 != OBJECT:
        raise ValueError("it has a variant that is shredded as an object and is not one")
    header = value[0] >> 2
    offset_width, id_width, count_width = (header & 3) + 1, (header >> 2 & 3) + 1, 4 if header >> 4 & 1 else 1
    count = number(value, 1, count_width)
    ids = 1 + count_width
    offsets = ids + count * id_width
    start = offsets + (count + 1) * offset_width
    if start > len(value):
        raise ValueError("a variant breaks off")
    for place in range(count):
        field_id = number(value, ids + place * id_width, id_width)
        if field_id >= len(dictionary.names):
            raise ValueError("it has a variant with a field without a name")
        at = start + number(value, offsets + place * offset_width, offset_width)
        yield dictionary.names[field_id], value[at : at + size_of(value, at)]


def elements_of(value: bytes) -> Iterator[bytes]:
    """Yield the elements of an array.

    Raises:
        ValueError: The value is not an array, or breaks the format.
    """
    if not value or value[0] & 3 != ARRAY:
        raise ValueError("it has a variant that is shredded as an array and is not one")
    header = value[0] >> 2
    width, count_width = (header & 3) + 1, 4 if header >> 2 & 1 else 1
    count = number(value, 1, count_width)
    offsets = 1 + count_width
    start = offsets + (count + 1) * width
    if start > len(value):
        raise ValueError("a variant breaks off")
    for place in range(count):
        at = start + number(value, offsets + place * width, width)
        yield value[at : at + size_of(value, at)]


def size_of(value: bytes, at: int) -> int:
    """Return the size in bytes of the value at an offset.

    Raises:
        ValueError: The value breaks the format or is cut off.
    """
    size = announced_size(value, at) if at < len(value) else 1
    if at + size > len(value):
        raise ValueError("a variant breaks off")
    return size


def announced_size(value: bytes, at: int) -> int:
    basic, header = value[at] & 3, value[at] >> 2
    if basic == SHORT_STRING:
        return 1 + header
    if basic == PRIMITIVE:
        if header in WITH_LENGTH:
            return 5 + number(value, at + 1, 4)
        if header not in FIXED_SIZES:
            raise ValueError(f"it has a variant of the unknown type {header}")
        return 1 + FIXED_SIZES[header]
    width = (header & 3) + 1
    is_large, id_width = (header >> 4 & 1, (header >> 2 & 3) + 1) if basic == OBJECT else (header >> 2 & 1, 0)
    count_width = 4 if is_large else 1
    count = number(value, at + 1, count_width)
    start = 1 + count_width + count * id_width
    return start + (count + 1) * width + number(value, at + start + count * width, width)


def object_of(fields: dict[bytes, bytes], dictionary: Dictionary) -> bytes:
    """Encode an object, with its fields ordered by name.

    Raises:
        ValueError: The metadata lacks a field name.
    """
    names = sorted(fields)
    try:
        ids = [dictionary.ids[name] for name in names]
    except KeyError:
        raise ValueError("it has a variant with a field that its metadata does not name") from None
    values = [fields[name] for name in names]
    id_width = width_of(max(ids, default=0))
    head, offsets = pack_offsets(values)
    is_large = len(values) > MAX_SMALL
    header = (is_large << 4 | (id_width - 1) << 2 | (head - 1)) << 2 | OBJECT
    numbers = b"".join(field_id.to_bytes(id_width, "little") for field_id in ids)
    return b"".join([bytes([header]), pack_count(values), numbers, offsets, *values])


def array_of(values: list[bytes]) -> bytes:
    """Encode an array."""
    width, offsets = pack_offsets(values)
    header = ((len(values) > MAX_SMALL) << 2 | (width - 1)) << 2 | ARRAY
    return b"".join([bytes([header]), pack_count(values), offsets, *values])


def pack_count(values: Sequence[bytes]) -> bytes:
    """Encode the number of values."""
    return len(values).to_bytes(4 if len(values) > MAX_SMALL else 1, "little")


def pack_offsets(values: Sequence[bytes]) -> tuple[int, bytes]:
    """Return the width of one offset, and the encoded start offsets of the values followed by the end of the last."""
    ends = np.concatenate([[0], np.cumsum([len(value) for value in values], dtype=np.int64)])
    width = width_of(int(ends[-1]))
    return width, b"".join(int(end).to_bytes(width, "little") for end in ends)


def width_of(greatest: int) -> int:
    """Return the number of bytes of an unsigned number.

    Raises:
        ValueError: The number takes more than four bytes.
    """
    width = max(1, (greatest.bit_length() + 7) // 8)
    if width > 4:
        raise ValueError("it has a variant of more than 4 GiB")
    return width
