"""A decoder of Avro's binary encoding that never reads beyond its bytes. Worker-safe.

Input: the bytes of a block. Output: values. Spec: Avro 1.11, "Binary Encoding".

PyIceberg's decoder, written in C for speed, rarely checks the end of its bytes: a damaged length or count makes it
return memory behind them, or crash the process. So lengths and counts are checked here; a number may end at most nine
bytes behind the block, in zero padding. The decoder in C also reads numbers of more than ten bytes, Avro's maximum.
Most blocks cannot contain one and skip that check.
"""

import struct
from array import array
from collections.abc import Callable
from typing import Any, Final

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.types import FixedType, IcebergType, ListType, MapType, NestedField, StructType, UnknownType

__all__ = ["CheckedDecoder", "check_elements"]

PADDING: Final = 16

MAX_NUMBER: Final = 10
"""The bytes of the longest number. All but its last have their highest bit set."""

LONG_NUMBER: Final = f"a number has more than {MAX_NUMBER} bytes"

HIGH: Final = bytes(0x80) + b"\x80" * 0x80
"""Translates each byte to its highest bit."""

LONG: Final = b"\x80" * MAX_NUMBER
DOUBLE: Final = struct.Struct("<d")


class CheckedDecoder:
    """Decodes one block, with the interface of PyIceberg's decoder.

    Args:
        data: The bytes of the block.

    Attributes:
        numbers: The count of numbers read from lists, and from maps of numbers to numbers.
        pairs: The count of pairs of a number and bytes.
        letters: The count of letters of non-ASCII texts.
    """

    def __init__(self, data: bytes) -> None:
        self._size = len(data)
        self.numbers = self.pairs = self.letters = 0
        # A list of n numbers is decoded at once and has at least n bytes. If damage makes it run on, n more zero bytes
        # end it.
        decoder = new_decoder(data + bytes(len(data) + PADDING))
        self._decoder = decoder
        # Most values are numbers: binding the decoder's own methods saves a call for each.
        self.read_int: Callable[[], int] = decoder.read_int
        self.skip_int: Callable[[], object] = decoder.skip_int
        self.tell: Callable[[], int] = decoder.tell
        self._read: Callable[[int], bytes] = decoder.read
        # Few blocks have ten high bytes in a row, and mostly in texts and bounds, not in numbers.
        high = data.translate(HIGH)
        self._high = high if high.rfind(LONG) >= 0 else b""  # `find` takes ten times as long here
        if self._high:
            self.read_int = self.skip_int = short_number_reader(decoder.read_int, decoder.tell)

    @property
    def remaining(self) -> int:
        """The number of bytes left; negative if the last value reached beyond them."""
        return self._size - self.tell()

    def finish(self) -> None:
        """Check after the last record that exactly all bytes were read.

        Raises:
            ValueError: bytes are left, or the last record reached beyond them.
        """
        if self.remaining:
            raise ValueError(f"a block has {self._size} bytes, and its records take {self.tell()}")

    def read(self, n: int) -> bytes:
        """Read `n` bytes."""
        if not 0 <= n <= self._size - self.tell():
            self._check(n)
        return self._read(n)

    def read_boolean(self) -> bool:
        """Read a byte that is 0 or 1. PyIceberg's decoder reads every other byte as true.

        Raises:
            ValueError: It is another byte.
        """
        byte = self.read(1)[0]
        if byte > 1:
            raise ValueError(f"a boolean is the byte {byte}")
        return byte == 1

    def read_float(self) -> float:
        """Read four bytes as a float."""
        self._check(4)
        return self._decoder.read_float()

    def read_double(self) -> float:
        """Read eight bytes as a double. PyIceberg's compiled decoder rounds it to single precision (0.12.0)."""
        value: float = DOUBLE.unpack(self.read(8))[0]
        return value

    def read_bytes(self) -> bytes:
        """Read a length and that many bytes."""
        return self.read(self.read_int())

    def read_utf8(self) -> str:
        """Read a length and that many bytes of UTF-8 text."""
        text = self.read(self.read_int()).decode()
        if not text.isascii():
            self.letters += len(text)
        return text

    def read_ints(self, count: int) -> tuple[int, ...]:
        """Read `count` numbers."""
        numbers = self.skip_ints(count)
        self.numbers += count
        # PyIceberg's decoder in C returns negative numbers as unsigned ones.
        if isinstance(numbers, array):
            numbers = array("q", bytes(numbers))
        found: tuple[int, ...] = numbers
        return found

    def skip_ints(self, count: int) -> Any:
        """Skip `count` numbers; return them unconverted from PyIceberg's decoder."""
        start, size = self.tell(), self._size
        if not 0 <= count <= size - start:
            self._check(count)
        numbers = self._decoder.read_ints(count)
        if (end := self.tell()) > size:
            self._check(0)
        # A run of ten high bytes among numbers is a number that is too long.
        if self._high and self._high.rfind(LONG, start, end) >= 0:
            raise ValueError(LONG_NUMBER)
        return numbers

    def read_int_bytes_dict(self, count: int, dest: dict[int, bytes]) -> None:
        """Read `count` pairs of a number and bytes into a dict."""
        self._check(count)
        self.pairs += count
        read_int, tell, read, size = self.read_int, self.tell, self._read, self._size
        for _ in range(count):  # half of the time of decoding a manifest is spent here
            key, length = read_int(), read_int()
            if not 0 <= length <= size - tell():
                self._check(length)
            dest[key] = read(length)

    def read_int_bytes(self, count: int, keys: list[int], values: list[bytes]) -> None:
        """Read pairs of a number and bytes, and append them to two lists."""
        self._check(count)
        self.pairs += count
        read_int, tell, read, size = self.read_int, self.tell, self._read, self._size
        for _ in range(count):
            keys.append(read_int())
            length = read_int()
            if not 0 <= length <= size - tell():
                self._check(length)
            values.append(read(length))

    def skip_int_bytes(self, count: int) -> None:
        """Skip `count` pairs of a number and bytes."""
        self._check(count)
        read_int, skip_int, tell, skip, size = self.read_int, self.skip_int, self.tell, self._decoder.skip, self._size
        for _ in range(count):
            skip_int()
            length = read_int()
            if not 0 <= length <= size - tell():
                self._check(length)
            skip(length)

    def skip(self, n: int) -> None:
        """Skip `n` bytes."""
        self._check(n)
        self._decoder.skip(n)

    def skip_boolean(self) -> None:
        """Skip one byte."""
        self.skip(1)

    def skip_float(self) -> None:
        """Skip four bytes."""
        self.skip(4)

    def skip_double(self) -> None:
        """Skip eight bytes."""
        self.skip(8)

    def skip_bytes(self) -> None:
        """Skip a length and that many bytes."""
        self.skip(self.read_int())

    def skip_utf8(self) -> None:
        """Skip a length and that many bytes of text."""
        self.skip(self.read_int())

    def _check(self, count: int) -> None:
        if not 0 <= count <= self._size - self.tell():
            raise EOFError(f"a part of a block has the length {count}, and {self.remaining} bytes are left")


def short_number_reader(read_int: Callable[[], int], tell: Callable[[], int]) -> Callable[[], int]:
    """Return a function that reads a number, and raises ValueError if it is too long."""

    def read() -> int:
        start = tell()
        number = read_int()
        if tell() - start > MAX_NUMBER:
            raise ValueError(LONG_NUMBER)
        return number

    return read


def check_elements(file_type: IcebergType) -> None:
    """Reject lists and maps whose elements may take no bytes: a few bytes could claim any number of them.

    Args:
        file_type: The type of a metadata file's records.

    Raises:
        ValueError: elements of a list or map may take no bytes.
    """
    match file_type:
        case StructType():
            for field in file_type.fields:
                check_elements(field.field_type)
        case ListType():
            check_elements(file_type.element_type)
            if file_type.element_required and may_be_empty(file_type.element_type):
                raise ValueError("it has a list whose elements take no bytes")
        case MapType():
            # A key is a string or, beside its value, a field of a record.
            check_elements(file_type.value_type)
            if may_be_empty(file_type.key_type) and file_type.value_required and may_be_empty(file_type.value_type):
                raise ValueError("it has a map whose entries take no bytes")


def may_be_empty(file_type: IcebergType) -> bool:
    match file_type:
        case StructType():
            return all(is_empty_field(field) for field in file_type.fields)
        case FixedType():
            return len(file_type) == 0
        case UnknownType():
            return True
        case _:
            return False


def is_empty_field(field: NestedField) -> bool:
    return field.required and may_be_empty(field.field_type)
