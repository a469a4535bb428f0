"""The entries of a manifest as columns, without an object for each entry. Worker-safe.

Input: a manifest's line in a manifest list, and the field ids that are wanted. Output: lists of values, by field id;
what is not wanted is passed over. What a file lets its entries inherit is filled in. Spec: "Manifests",
"Sequence Number Inheritance", "First Row ID Inheritance".

Bytes are looked at as `dml.manifests.read` does: every length before it is used, and damage is an error that names the
file.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from pyiceberg.avro.decoder import BinaryDecoder
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO
from pyiceberg.types import (
    BinaryType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from dml.errors import CorruptFileError
from dml.manifests.avro_decoder import CheckedDecoder
from dml.manifests.read import blocks_of, damage_named
from dml.model.manifest import EntryStatus, FileContent, ManifestContent, ManifestFile

__all__ = [
    "BOUND_MAPS",
    "CONTENT",
    "COUNT_MAPS",
    "DATA_FILE",
    "FILE_PATH",
    "FILE_SIZE",
    "FIRST_ROW_ID",
    "KNOWN",
    "NUMBERS",
    "NUMBER_LISTS",
    "PARTITION",
    "RECORD_COUNT",
    "SNAPSHOT_ID",
    "STATUS",
    "EntryColumns",
    "FlatMaps",
    "check_required",
    "check_type",
    "columns_of",
    "partition_of",
    "partition_tuple",
    "read_columns",
]

STATUS: Final = 0
SNAPSHOT_ID: Final = 1
DATA_FILE: Final = 2
SEQUENCE_NUMBERS: Final = (3, 4)
CONTENT: Final = 134
FILE_PATH: Final = 100
PARTITION: Final = 102
RECORD_COUNT: Final = 103
FILE_SIZE: Final = 104
FIRST_ROW_ID: Final = 142

COUNT_MAPS: Final = frozenset({108, 109, 110, 137})
BOUND_MAPS: Final = frozenset({125, 128})
MAPS: Final = COUNT_MAPS | BOUND_MAPS
TEXTS: Final = frozenset({FILE_PATH, 101, 143})
BYTES: Final = frozenset({131})
NUMBER_LISTS: Final = frozenset({132, 135})
NUMBERS: Final = frozenset(
    {STATUS, SNAPSHOT_ID, *SEQUENCE_NUMBERS, CONTENT, RECORD_COUNT, FILE_SIZE, 140, 142, 144, 145}
)
KNOWN: Final = NUMBERS | TEXTS | BYTES | MAPS | NUMBER_LISTS | {PARTITION}

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class FlatMaps:
    """Maps by field id, end to end.

    Attributes:
        sizes: How many pairs each has; None for a map that is not there.
        keys: Field ids, of all of them.
        values: Counts or bounds, of all of them.
    """

    sizes: list[int | None] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryColumns:
    """The entries of a manifest.

    Attributes:
        rows: How many.
        values: By the field id of the entry's or the file's field; a map is a `FlatMaps`, a partition a list of values.
        partition: The partition tuple as the manifest's own schema has it.
    """

    rows: int
    values: dict[int, Any]
    partition: StructType


def read_columns(manifest: ManifestFile, io: FileIO, wanted: Iterable[int]) -> EntryColumns:
    """The entries of a committed manifest.

    Args:
        manifest: A line of a snapshot's manifest list.
        io: The FileIO of the manifest.
        wanted: Field ids of the entry and of its file. Status and content are always read.

    Raises:
        CorruptFileError: the manifest is missing, is no manifest, or breaks the rules of sequence numbers.
        ExecutionError: the storage failed.
    """
    with damage_named(manifest.manifest_path):
        file_schema, blocks = blocks_of(io, manifest.manifest_path, manifest.manifest_length)
        check_required(file_schema)
        return columns_of(file_schema, blocks, manifest, wanted)


def columns_of(
    file_schema: StructType, blocks: Iterable[tuple[int, bytes]], manifest: ManifestFile, wanted: Iterable[int]
) -> EntryColumns:
    """The entries of a manifest that was read.

    Args:
        file_schema: The type of its entries, which `check_required` has looked at.
        blocks: For each block the number of entries, and their bytes.
        manifest: Its line in a manifest list.
        wanted: As for `read_columns`.

    Raises:
        Exception: it breaks the rules; `damage_named` makes a CorruptFileError of it.
    """
    needed = {STATUS, CONTENT, *wanted} & KNOWN
    if FIRST_ROW_ID in needed:
        needed.add(RECORD_COUNT)
    values: dict[int, Any] = {field_id: FlatMaps() if field_id in MAPS else [] for field_id in needed}
    rows = 0
    for count, block in blocks:
        decoder = CheckedDecoder(block)
        steps = tuple(steps_of(file_schema.fields, decoder, values))
        for _ in range(count):
            for step in steps:
                step()
        decoder.finish()
        rows += count
    fill_absent(values, rows)
    inherit(values, manifest)
    check(values, manifest)
    return EntryColumns(rows=rows, values=values, partition=partition_of(file_schema))


def steps_of(fields: Iterable[NestedField], decoder: CheckedDecoder, values: dict[int, Any]) -> Iterable[Step]:
    """What is done for each entry, in the order of the file."""
    for found in fields:
        if found.field_id == DATA_FILE:
            if not found.required or not isinstance(found.field_type, StructType):
                raise ValueError("its entries have no file")
            yield from steps_of(found.field_type.fields, decoder, values)
        else:
            yield step_of(found, decoder, values.get(found.field_id) if found.field_id in KNOWN else None)


def step_of(found: NestedField, decoder: CheckedDecoder, into: Any) -> Step:
    """How one field is read, or passed over where it is not wanted."""
    kind = found.field_type
    check_type(found.field_id, kind)
    match found.field_id:
        case field_id if field_id in COUNT_MAPS:
            return map_step(found, decoder, into, decoder.read_ints, lambda count: decoder.read_ints(2 * count))
        case field_id if field_id in BOUND_MAPS:
            return map_step(found, decoder, into, None, decoder.skip_int_bytes)
        case field_id if field_id in NUMBER_LISTS:
            read: Callable[[], Any] = partial(number_list, decoder)
        case field_id if field_id in NUMBERS:
            read = decoder.read_int
        case field_id if field_id in TEXTS:
            read = decoder.read_utf8 if into is not None else decoder.skip_utf8
        case field_id if field_id in BYTES:
            read = decoder.read_bytes if into is not None else decoder.skip_bytes
        case field_id if field_id == PARTITION and isinstance(kind, StructType):
            # Read even if it is not wanted: PyIceberg passes over a decimal as if it were bytes with a length.
            read = partial(tuple_of, tuple(partition_steps(kind, decoder)))
        case _:
            reader = construct_reader(kind, {found.field_id: row})
            binary = cast("BinaryDecoder", decoder)
            read = partial(reader.read, binary)
    return value_step(read, decoder.read_int, None if into is None else into.append, required=found.required)


def partition_steps(kind: StructType, decoder: CheckedDecoder) -> Iterable[Callable[[], Any]]:
    """How the fields of a partition are read."""
    binary, read_int = cast("BinaryDecoder", decoder), decoder.read_int

    def optional(read: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: read() if read_int() > 0 else None

    for found in kind.fields:
        read = partial(construct_reader(found.field_type, {found.field_id: row}).read, binary)
        yield read if found.required else optional(read)


def partition_tuple(kind: StructType, data: bytes) -> tuple[Any, ...]:
    """The partition tuple that some bytes are.

    Raises:
        Exception: they are none.
    """
    decoder = CheckedDecoder(data)
    found = tuple_of(tuple(partition_steps(kind, decoder)))
    decoder.finish()
    return found


def tuple_of(steps: tuple[Callable[[], Any], ...]) -> tuple[Any, ...]:
    """A struct, field by field."""
    return tuple([step() for step in steps])


def value_step(
    read: Callable[[], Any], read_int: Callable[[], int], append: Callable[[Any], None] | None, *, required: bool
) -> Step:
    """A field that is one value."""
    if append is None:

        def pass_over() -> None:
            if read_int() > 0:
                read()

        return read if required else pass_over

    def add() -> None:
        append(read())

    def add_optional() -> None:
        append(read() if read_int() > 0 else None)

    return add if required else add_optional


def map_step(
    found: NestedField,
    decoder: CheckedDecoder,
    into: FlatMaps | None,
    read_numbers: Callable[[int], tuple[int, ...]] | None,
    pass_over: Callable[[int], Any],
) -> Step:
    """A field that is a map from field ids to counts (where `read_numbers` is given) or to bounds."""
    read_int, skip, optional = decoder.read_int, decoder.skip, not found.required

    def skip_map() -> None:
        if optional and read_int() <= 0:
            return
        while count := read_int():
            if count < 0:
                skip(read_int())
            else:
                pass_over(count)

    if into is None:
        return skip_map
    sizes, keys, values = into.sizes, into.keys, into.values

    def read_map() -> None:
        if optional and read_int() <= 0:
            sizes.append(None)
            return
        size = 0
        while count := read_int():
            if count < 0:
                count = -count
                read_int()
            if read_numbers is None:
                decoder.read_int_bytes(count, keys, values)
            else:
                numbers = read_numbers(2 * count)
                keys.extend(numbers[::2])
                values.extend(numbers[1::2])
            size += count
        sizes.append(size)

    return read_map


def number_list(decoder: CheckedDecoder) -> list[int]:
    """A list of numbers."""
    numbers: list[int] = []
    while count := decoder.read_int():
        if count < 0:
            count = -count
            decoder.read_int()
        numbers.extend(decoder.read_ints(count))
    return numbers


def row(*values: Any) -> list[Any]:
    """A struct as the decoder fills it, by position."""
    return list(values)


def check_type(field_id: int, kind: IcebergType) -> None:
    """Refuse a field of another type than the specification gives it: it would be read as something else."""
    match field_id:
        case _ if field_id in NUMBERS:
            fits = isinstance(kind, IntegerType | LongType)
        case _ if field_id in TEXTS:
            fits = isinstance(kind, StringType)
        case _ if field_id in BYTES:
            fits = isinstance(kind, BinaryType)
        case _ if field_id in NUMBER_LISTS:
            fits = isinstance(kind, ListType) and isinstance(kind.element_type, IntegerType | LongType)
            fits = fits and cast("ListType", kind).element_required
        case _ if field_id in MAPS:
            types = (LongType, IntegerType) if field_id in COUNT_MAPS else (BinaryType,)
            fits = isinstance(kind, MapType) and isinstance(kind.key_type, IntegerType)
            fits = fits and isinstance(cast("MapType", kind).value_type, types) and cast("MapType", kind).value_required
        case _ if field_id == PARTITION:
            fits = isinstance(kind, StructType)
        case _:
            return
    if not fits:
        raise ValueError(f"the field with the id {field_id} is of the type {kind}")


def partition_of(file_schema: StructType) -> StructType:
    """The type of the partition tuples of a manifest."""
    for found in file_schema.fields:
        if found.field_id == DATA_FILE and isinstance(found.field_type, StructType):
            for inner in found.field_type.fields:
                if inner.field_id == PARTITION and isinstance(inner.field_type, StructType):
                    return inner.field_type
    return StructType()


def check_required(file_schema: StructType) -> None:
    """Refuse a schema without what every entry has: such entries could take no bytes, and there could be any number."""
    files = [found.field_type for found in file_schema.fields if found.field_id == DATA_FILE]
    inner = [found for kind in files if isinstance(kind, StructType) for found in kind.fields]
    present = {found.field_id for found in (*file_schema.fields, *inner) if found.required}
    if missing := {STATUS, FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE} - present:
        raise ValueError(f"its entries lack the fields with the ids {sorted(missing)}")


def fill_absent(values: dict[int, Any], rows: int) -> None:
    """Columns that a version's manifests do not have: null, and content 0 for version 1."""
    for field_id, column in values.items():
        plain = column.sizes if isinstance(column, FlatMaps) else column
        if len(plain) == 0:
            plain.extend([None] * rows)
        elif len(plain) != rows:
            raise ValueError(f"it has the field with the id {field_id} twice")
    values[CONTENT] = [content or 0 for content in values[CONTENT]]


def inherit(values: dict[int, Any], manifest: ManifestFile) -> None:
    """Fill in what an entry takes from its manifest's line in the manifest list."""
    statuses = values[STATUS]
    if SNAPSHOT_ID in values:
        added = manifest.added_snapshot_id
        values[SNAPSHOT_ID] = [added if found is None else found for found in values[SNAPSHOT_ID]]
    for field_id in SEQUENCE_NUMBERS:
        if field_id in values and None in values[field_id]:
            values[field_id] = [
                sequence_number(status, manifest) if number is None else number
                for status, number in zip(statuses, values[field_id], strict=True)
            ]
    if FIRST_ROW_ID in values:
        values[FIRST_ROW_ID] = first_row_ids(statuses, values[FIRST_ROW_ID], values[RECORD_COUNT], manifest)


def sequence_number(status: int, manifest: ManifestFile) -> int | None:
    """The number of an entry without one: the manifest's for a file that it added, 0 for all of version 1."""
    if status == EntryStatus.ADDED or manifest.sequence_number == 0:
        return manifest.sequence_number
    raise CorruptFileError(
        f"The manifest '{manifest.manifest_path}' has an entry with status {status} and no sequence number",
        file=manifest.manifest_path,
    )


def first_row_ids(
    statuses: list[int], stored: list[int | None], record_counts: list[int], manifest: ManifestFile
) -> list[int | None]:
    """Row ids of the first rows: stored, or counted from the manifest's own."""
    if manifest.first_row_id is None:
        return [None] * len(statuses)
    if manifest.content is not ManifestContent.DATA:
        return stored
    following, found = manifest.first_row_id, list(stored)
    for place, (status, first, rows) in enumerate(zip(statuses, stored, record_counts, strict=True)):
        if first is None and status != EntryStatus.DELETED:
            found[place] = following
            following += rows
    return found


def check(values: dict[int, Any], manifest: ManifestFile) -> None:
    """Refuse what no manifest can say."""
    contents = set(values[CONTENT])
    data = manifest.content is ManifestContent.DATA
    allowed = {FileContent.DATA} if data else {FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES}
    if not contents <= allowed:
        raise ValueError(f"it is a manifest of {manifest.content.name}, and has files of content {sorted(contents)}")
    if not set(values[STATUS]) <= {status.value for status in EntryStatus}:
        raise ValueError(f"it has entries of status {sorted(set(values[STATUS]))}")
    for field_id, what in ((RECORD_COUNT, "rows"), (FILE_SIZE, "bytes")):
        if values.get(field_id) and (None in values[field_id] or min(values[field_id]) < 0):
            raise ValueError(f"it has a file without a number of {what}, or with one below 0")
