"""Read and write Thrift's compact protocol without a schema, so that unknown fields survive. Pure, worker-safe.

Input: bytes of any origin. Output: a struct as a dict from field id to its type and value; and bytes again. Spec:
"Thrift compact protocol encoding".

Every length and count is checked against the available bytes before it is used. A violation of the protocol raises
`ValueError`, which the caller reports with the file's name.
"""

from collections.abc import Callable
from typing import Any, Final

from dml import limits

__all__ = [
    "BINARY",
    "BOOL",
    "BYTE",
    "I16",
    "I32",
    "I64",
    "LIST",
    "STRUCT",
    "Fields",
    "decode_struct",
    "encode_struct",
    "list_of",
    "value_of",
]

BOOL: Final = 1
FALSE: Final = 2
BYTE: Final = 3
I16: Final = 4
I32: Final = 5
I64: Final = 6
DOUBLE: Final = 7
BINARY: Final = 8
LIST: Final = 9
SET: Final = 10
MAP: Final = 11
STRUCT: Final = 12
UUID: Final = 13

MAX_VARINT_BITS: Final = 64
LONG_LIST: Final = 15
UUID_BYTES: Final = 16
BOOLEANS: Final = (BOOL, FALSE)
INTEGER_BITS: Final = {I16: 16, I32: 32, I64: 64}

Fields = dict[int, tuple[int, Any]]
"""A struct: type and value by field id.

A boolean has the type `BOOL` whatever its value; in lists and maps it is the raw byte. A double is its raw bytes. The
value of a list or set is the element type and a list of elements; that of a map is the types of keys and values and a
list of pairs.
"""


def value_of(fields: Fields, field_id: int, kind: int) -> Any:
    """Return the value of a field, or None if it is missing.

    Raises:
        ValueError: The field has another type.
    """
    found = fields.get(field_id)
    if found is None:
        return None
    if found[0] != kind:
        raise ValueError(f"a field {field_id} of its metadata has the type {found[0]}, not {kind}")
    return found[1]


def list_of(fields: Fields, field_id: int, kind: int) -> list[Any] | None:
    """Return the elements of a list, or None if it is missing.

    Raises:
        ValueError: The field is not a list, or has elements of another type.
    """
    found = value_of(fields, field_id, LIST)
    if found is None:
        return None
    element, values = found
    if element != kind and values:
        raise ValueError(f"a list {field_id} of its metadata has elements of the type {element}, not {kind}")
    return list(values)


def decode_struct(data: bytes, start: int = 0) -> tuple[Fields, int]:
    """Decode a struct.

    Args:
        data: The bytes.
        start: The index of its first byte.

    Returns:
        The struct, and the index after its last byte.

    Raises:
        ValueError: The bytes break the protocol, or end too early.
    """
    reader = ThriftReader(data, start)
    return reader.struct(0), reader.place


class ThriftReader:
    """Read values one after another.

    Args:
        data: The bytes.
        place: The index of the first value.

    Attributes:
        place: The index of the next value.
    """

    __slots__ = ("_data", "place")

    def __init__(self, data: bytes, place: int) -> None:
        self._data = data
        self.place = place

    def struct(self, depth: int) -> Fields:
        """Read all fields up to the stop field."""
        if depth > limits.MAX_THRIFT_DEPTH:
            raise ValueError(f"its metadata is nested more than {limits.MAX_THRIFT_DEPTH} levels deep")
        fields: Fields = {}
        field_id = 0
        while True:
            head = self._byte()
            if head == 0:
                return fields
            kind = head & 15
            field_id = field_id + (head >> 4) if head >> 4 else self._signed(I16)
            if field_id in fields:
                raise ValueError(f"its metadata has the field {field_id} twice")
            if kind in BOOLEANS:
                fields[field_id] = (BOOL, kind == BOOL)
            else:
                fields[field_id] = (kind, self._value(kind, depth))

    def _value(self, kind: int, depth: int) -> Any:
        if kind in INTEGER_BITS:
            return self._signed(kind)
        if kind == BINARY:
            return self._take(self._varint())
        if kind == STRUCT:
            return self.struct(depth + 1)
        if kind in (LIST, SET):
            return self._list(depth + 1)
        if kind == BYTE:
            return self._byte()
        if kind == DOUBLE:
            return self._take(8)  # kept as raw bytes, because no field that is read has this type
        if kind == MAP:
            return self._map(depth + 1)
        if kind == UUID:
            return self._take(UUID_BYTES)
        raise ValueError(f"its metadata has a value of the unknown type {kind}")

    def _list(self, depth: int) -> tuple[int, list[Any]]:
        head = self._byte()
        kind, size = head & 15, head >> 4
        if size == LONG_LIST:
            size = self._varint()
        self._check_count(size, depth)
        return kind, [self._element(kind, depth) for _ in range(size)]

    def _map(self, depth: int) -> tuple[int, int, list[tuple[Any, Any]]]:
        size = self._varint()
        if not size:
            return 0, 0, []
        kinds = self._byte()
        self._check_count(size, depth)
        key, value = kinds >> 4, kinds & 15
        return key, value, [(self._element(key, depth), self._element(value, depth)) for _ in range(size)]

    def _element(self, kind: int, depth: int) -> Any:
        return self._byte() if kind in BOOLEANS else self._value(kind, depth)

    def _check_count(self, count: int, depth: int) -> None:
        """Check a count against the remaining bytes: an element takes at least one."""
        if count > len(self._data) - self.place or depth > limits.MAX_THRIFT_DEPTH:
            raise ValueError(f"its metadata has a list of {count} elements, more than it has bytes")

    def _byte(self) -> int:
        try:
            found = self._data[self.place]
        except IndexError:
            raise ValueError("its metadata breaks off") from None
        self.place += 1
        return found

    def _take(self, length: int) -> bytes:
        end = self.place + length
        if end > len(self._data):
            raise ValueError(f"its metadata has a value of {length} bytes, more than are left")
        found = self._data[self.place : end]
        self.place = end
        return found

    def _varint(self) -> int:
        result = shift = 0
        while True:
            byte = self._byte()
            result |= (byte & 127) << shift
            if byte < 128:
                break
            shift += 7
            if shift >= MAX_VARINT_BITS:
                raise ValueError("its metadata has a number of more than 64 bits")
        if result >> MAX_VARINT_BITS:
            raise ValueError("its metadata has a number of more than 64 bits")
        return result

    def _signed(self, kind: int) -> int:
        number = self._varint()
        if number >> INTEGER_BITS[kind]:
            raise ValueError(f"its metadata has a number of more than {INTEGER_BITS[kind]} bits")
        return (number >> 1) ^ -(number & 1)


def encode_struct(fields: Fields) -> bytes:
    """Encode a struct: the inverse of `decode_struct`."""
    output = bytearray()
    write_struct(output, fields)
    return bytes(output)


def write_struct(output: bytearray, fields: Fields) -> None:
    last = 0
    for field_id, (kind, value) in sorted(fields.items()):
        shown = FALSE if kind == BOOL and not value else kind
        if 0 < field_id - last <= 15:
            output.append((field_id - last) << 4 | shown)
        else:
            output.append(shown)
            write_signed(output, field_id)
        if kind != BOOL:
            WRITERS[kind](output, value)
        last = field_id
    output.append(0)


def write_varint(output: bytearray, number: int) -> None:
    while number > 127:
        output.append(number & 127 | 128)
        number >>= 7
    output.append(number)


def write_signed(output: bytearray, number: int) -> None:
    write_varint(output, number << 1 if number >= 0 else (-number << 1) - 1)


def write_binary(output: bytearray, value: bytes) -> None:
    write_varint(output, len(value))
    output += value


def write_list(output: bytearray, value: tuple[int, list[Any]]) -> None:
    kind, elements = value
    if len(elements) < LONG_LIST:
        output.append(len(elements) << 4 | kind)
    else:
        output.append(LONG_LIST << 4 | kind)
        write_varint(output, len(elements))
    write = WRITERS[kind] if elements else write_byte
    for element in elements:
        write(output, element)


def write_map(output: bytearray, value: tuple[int, int, list[tuple[Any, Any]]]) -> None:
    key, item, pairs = value
    write_varint(output, len(pairs))
    if not pairs:
        return
    output.append(key << 4 | item)
    for left, right in pairs:
        WRITERS[key](output, left)
        WRITERS[item](output, right)


def write_byte(output: bytearray, value: int) -> None:
    output.append(value)


def write_raw(output: bytearray, value: bytes) -> None:
    output += value


WRITERS: Final[dict[int, Callable[[bytearray, Any], None]]] = {
    BOOL: write_byte,
    FALSE: write_byte,
    BYTE: write_byte,
    I16: write_signed,
    I32: write_signed,
    I64: write_signed,
    DOUBLE: write_raw,
    BINARY: write_binary,
    LIST: write_list,
    SET: write_list,
    MAP: write_map,
    STRUCT: write_struct,
    UUID: write_raw,
}
