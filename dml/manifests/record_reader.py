"""Read records of manifests and of manifest lists one by one. Worker-safe.

Input: the type of a file's records, the type to read them as, and a decoder of a block. Output: records as lists, in
the order of the second type. Spec: Avro 1.11, "Schema Resolution"; Iceberg "Manifests", "Manifest Lists".

PyIceberg 0.12 takes each branch of a union except the first for a value, reads texts where bytes are expected and the
reverse, and cannot skip decimals. So structs, optional fields and the types that manifests use are read here; the other
types, which only partition values have, by its readers.
"""

from collections.abc import Callable, Collection, Mapping
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

__all__ = ["NO_READERS", "Bind", "RecordReader", "fits"]

Bind = Callable[[CheckedDecoder], Callable[[], Any]]
"""Returns a function that reads the next value of a decoder. Binding a block once saves a call for each value."""

NO_READERS: Final[Mapping[int, Bind]] = {}


class FieldStep(NamedTuple):
    """A field of a file's record.

    Attributes:
        field_id: Its id.
        place: Its index in the result; the last one, which is no field's, if it is skipped.
        required: True if the file stores no union.
        bind: Makes the function that reads it.
        nested: The reader that `bind` belongs to, if the field is a struct.
    """

    field_id: int
    place: int
    required: bool
    bind: Bind
    nested: "RecordReader | None"


class RecordReader:
    """Reads records of one type as those of another. It has no state, so threads may share it.

    Args:
        file_type: The type of the file's records.
        read_type: The type to read them as. A struct without fields is read as the file has it.
        skipped: Ids of fields whose values are None in the result.

    Raises:
        ValueError: A required field is missing, a field occurs twice, or it has another type.
    """

    def __init__(self, file_type: StructType, read_type: StructType, skipped: Collection[int] = ()) -> None:
        self._projects = bool(read_type.fields)
        if self._projects:
            expected = read_type.fields
            places = places_of(file_type, expected)
        else:
            # Partition tuples, by position: their ids have another meaning, and need not differ.
            expected, places, skipped = file_type.fields, list(range(len(file_type.fields))), ()
        self._steps = tuple(
            step_of(found, expected, place, skipped) for found, place in zip(file_type.fields, places, strict=True)
        )
        # The last one takes what skipping returns; partition tuples skip nothing and must not be longer.
        self._empty = [field.initial_default for field in expected]
        if any(step.place == len(expected) for step in self._steps):
            self._empty.append(None)

    def bind(self, decoder: CheckedDecoder, readers: Mapping[int, Bind] = NO_READERS) -> Callable[[], list[Any]]:
        """Return a function that reads the next record.

        Args:
            decoder: The decoder of a block.
            readers: Readers of some fields to use instead of the usual ones, by field id.
        """
        if not self._steps:
            return self._empty.copy  # the partition of an unpartitioned table
        steps = []
        for field_id, place, required, bind, nested in self._steps:
            if nested is not None:
                value = nested.bind(decoder, readers)
            elif field_id in readers and self._projects:
                value = readers[field_id](decoder)
            else:
                value = bind(decoder)
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
    """Return for each field of a file its index among those that are expected."""
    places = {field.field_id: place for place, field in enumerate(expected)}
    found = [field.field_id for field in file_type.fields]
    for field in expected:
        if field.required and field.field_id not in found:
            raise ValueError(f"its records lack the field '{field.name}' with the id {field.field_id}")
        if found.count(field.field_id) > 1:
            raise ValueError(f"its records have the field '{field.name}' with the id {field.field_id} twice")
    return [places.get(field_id) for field_id in found]


def step_of(
    found: NestedField, expected: tuple[NestedField, ...], place: int | None, skipped: Collection[int]
) -> FieldStep:
    kind = found.field_type
    if place is None:
        bind, place = by_pyiceberg(kind), len(expected)
    elif not fits(kind, expected[place].field_type):
        name = expected[place].name
        raise ValueError(f"the field '{name}' with the id {found.field_id} is of the type {kind}")
    elif found.field_id in skipped:
        bind, place = skip_of(kind), len(expected)
    else:
        bind = reader_of_values(kind, expected[place].field_type, skipped)
    nested = getattr(bind, "__self__", None)
    return FieldStep(found.field_id, place, found.required, bind, nested if isinstance(nested, RecordReader) else None)


def fits(kind: IcebergType, specified: IcebergType) -> bool:
    """Return True if a type is encoded as another one is: int and long are the same in Avro."""
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


def reader_of_values(kind: IcebergType, specified: IcebergType, skipped: Collection[int] = ()) -> Bind:
    match kind:
        case IntegerType() | LongType():
            return attrgetter("read_int")
        case StringType():
            return attrgetter("read_utf8")
        case BinaryType():
            return attrgetter("read_bytes")
        case BooleanType():
            return attrgetter("read_boolean")
        case StructType():
            return RecordReader(kind, specified if isinstance(specified, StructType) else kind, skipped).bind
        case ListType(element_type=StructType()) if isinstance(specified, ListType):
            return list_of(reader_of_values(kind.element_type, specified.element_type))
        case _:
            return by_pyiceberg(kind)


def by_pyiceberg(kind: IcebergType) -> Bind:
    reader = construct_reader(kind)
    return lambda decoder: partial(reader.read, cast("BinaryDecoder", decoder))


def list_of(bind: Bind) -> Bind:
    def bind_list(decoder: CheckedDecoder) -> Callable[[], list[Any]]:
        read_int, element = decoder.read_int, bind(decoder)

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


def skip_of(kind: IcebergType) -> Bind:
    """Pass over a value at less cost than reading it, where its type allows that."""
    match kind:
        case StringType() | BinaryType():
            return attrgetter("skip_bytes")
        case MapType(value_type=BinaryType()):
            return skip_pairs(lambda decoder: decoder.skip_int_bytes)
        case MapType(value_type=IntegerType() | LongType()):
            return skip_pairs(lambda decoder: lambda count: decoder.skip_ints(2 * count))
        case ListType(element_type=IntegerType() | LongType()):
            return skip_pairs(attrgetter("skip_ints"))
        case StructType():
            return RecordReader(kind, StructType()).bind
        case _:
            return by_pyiceberg(kind)


def skip_pairs(pass_over: Callable[[CheckedDecoder], Callable[[int], Any]]) -> Bind:
    def bind_skip(decoder: CheckedDecoder) -> Callable[[], None]:
        read_int, skip, pass_items = decoder.read_int, decoder.skip, pass_over(decoder)

        def pass_all() -> None:
            while count := read_int():
                if count < 0:
                    # The number of bytes follows, so that readers can skip them at once.
                    skip(read_int())
                else:
                    pass_items(count)

        return pass_all

    return bind_skip
