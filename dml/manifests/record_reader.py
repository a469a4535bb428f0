"""Read records of manifests and of manifest lists one by one. Worker-safe.

Input: the type of a file's records, the type to read them as, and a decoder of a block. Output: records as lists, in
the order of the second type. Spec: Avro 1.11, "Schema Resolution"; Iceberg "Manifests", "Manifest Lists".

PyIceberg 0.12 reads each branch of a union except the first as a value, reads texts where bytes are expected and vice
versa, and cannot skip decimals. So this module reads structs, optional fields and the types that manifests use.
PyIceberg's readers read the other types, which only partition values have.
"""

from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, Final, NamedTuple, cast

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from dml.manifests.avro_decoder import CheckedDecoder

__all__ = ["NO_READERS", "Bind", "RecordReader"]

Bind = Callable[[CheckedDecoder], Callable[[], Any]]
"""Returns a function that reads the next value of a decoder. Binding a block once saves a call for each value."""

NO_READERS: Final[Mapping[int, Bind]] = {}


class FieldStep(NamedTuple):
    """A field of a file's record.

    Attributes:
        field_id: Its id.
        place: Its index in the result; for an unknown field that of the last element, which no known field uses.
        required: True if the file stores no union.
        reader: Reads its value.
    """

    field_id: int
    place: int
    required: bool
    reader: "Bind | RecordReader"


class RecordReader:
    """Reads records of one type as those of another. It has no state, so threads may share it.

    Args:
        file_type: The type of the file's records.
        read_type: The type to read them as. A struct without fields is read with the fields of the file.

    Raises:
        ValueError: A required field is missing, a field occurs twice, or it has another type.
    """

    def __init__(self, file_type: StructType, read_type: StructType) -> None:
        found, expected = file_type.fields, read_type.fields
        self._projects = bool(expected)
        if self._projects:
            self._steps = tuple(map(step_of, found, places_of(file_type, expected), [expected] * len(found)))
            # Unknown fields are written to the last element.
            self._empty = [*(field.initial_default for field in expected), None]
        else:
            # Partition tuples are read by position: the ids of their fields need not be unique.
            self._steps = tuple(step_of(field, place, found) for place, field in enumerate(found))
            self._empty = [None] * len(found)

    def bind(self, decoder: CheckedDecoder, readers: Mapping[int, Bind] = NO_READERS) -> Callable[[], list[Any]]:
        """Return a function that reads the next record.

        Args:
            decoder: The decoder of a block.
            readers: Readers of some fields to use instead of the usual ones, by field id.
        """
        if not self._steps:
            return self._empty.copy  # the partition of an unpartitioned table
        steps = []
        for field_id, place, required, reader in self._steps:
            if self._projects and field_id in readers:
                value = readers[field_id](decoder)
            elif isinstance(reader, RecordReader):
                value = reader.bind(decoder, readers)
            else:
                value = reader(decoder)
            steps.append((place, required, value))
        empty, read_int = self._empty, decoder.read_int

        def read() -> list[Any]:
            record = empty.copy()
            for place, required, value in steps:
                if not required:
                    branch = read_int()
                    if branch != 1:
                        if branch:
                            raise ValueError(f"a union of two has no branch {branch}")
                        continue
                record[place] = value()
            return record

        return read


def places_of(file_type: StructType, expected: tuple[NestedField, ...]) -> list[int | None]:
    """Return for each field of a file its index among the expected fields, or None."""
    places = {field.field_id: place for place, field in enumerate(expected)}
    found = [field.field_id for field in file_type.fields]
    for field in expected:
        if field.required and field.field_id not in found:
            raise ValueError(f"its records lack the field '{field.name}' with the id {field.field_id}")
        if found.count(field.field_id) > 1:
            raise ValueError(f"its records have the field '{field.name}' with the id {field.field_id} twice")
    return [places.get(field_id) for field_id in found]


def step_of(found: NestedField, place: int | None, expected: tuple[NestedField, ...]) -> FieldStep:
    kind = found.field_type
    if place is None:
        return FieldStep(found.field_id, len(expected), found.required, by_pyiceberg(kind))
    specified = expected[place]
    if not fits(kind, specified.field_type):
        raise ValueError(f"the field '{specified.name}' with the id {found.field_id} is of the type {kind}")
    return FieldStep(found.field_id, place, found.required, reader_of_values(kind, specified.field_type))


def fits(kind: IcebergType, specified: IcebergType) -> bool:
    """Return True if two types have the same encoding: int and long are the same in Avro."""
    match specified:
        case IntegerType() | LongType():
            return isinstance(kind, IntegerType | LongType)
        case ListType():
            is_list = isinstance(kind, ListType) and kind.element_required
            return is_list and isinstance(kind, ListType) and fits(kind.element_type, specified.element_type)
        case MapType():
            is_map = isinstance(kind, MapType) and isinstance(kind.key_type, IntegerType) and kind.value_required
            return is_map and isinstance(kind, MapType) and fits(kind.value_type, specified.value_type)
        case _:
            return isinstance(kind, type(specified))


def reader_of_values(kind: IcebergType, specified: IcebergType) -> Bind | RecordReader:
    match kind:
        case IntegerType() | LongType():
            return attrgetter("read_int")
        case StringType():
            return attrgetter("read_utf8")
        case BinaryType():
            return attrgetter("read_bytes")
        case BooleanType():
            return attrgetter("read_boolean")
        case StructType() if isinstance(specified, StructType):
            return RecordReader(kind, specified)
        case ListType(element_type=StructType() as element) if isinstance(specified, ListType):
            return list_of(RecordReader(element, cast("StructType", specified.element_type)))
        case _:
            return by_pyiceberg(kind)


def by_pyiceberg(kind: IcebergType) -> Bind:
    reader = construct_reader(kind)
    return lambda decoder: partial(reader.read, cast("BinaryDecoder", decoder))


def list_of(reader: RecordReader) -> Bind:
    def bind_list(decoder: CheckedDecoder) -> Callable[[], list[Any]]:
        read_int, element = decoder.read_int, reader.bind(decoder)

        def read() -> list[Any]:
            found: list[Any] = []
            while count := read_int():
                if count < 0:
                    count = -count
                    read_int()
                found.extend([element() for _ in range(count)])
            return found

        return read

    return bind_list
