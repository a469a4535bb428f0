"""Manifests as `EntryArrays`. Worker-safe.

Input: a manifest's line in a manifest list, or its blocks. Output: its entries as arrays, inherited values filled in.
Spec: "Manifests", "Sequence Number Inheritance", "First Row ID Inheritance".

Many entries are decoded in lockstep, which takes a quarter of the time that decoding one by one takes. Where that is
not sure of anything (a field that it does not know, a value that may not be), they are decoded one by one, and that
says what is wrong: both accept the same manifests and return the same entries.
"""

import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.types import NestedField, StructType

from dml.deletes.delete_file_index import partition_key
from dml.manifests.entries import EntryArrays, EvenMaps, RaggedMaps, metric_maps
from dml.manifests.entry_fields import (
    BOUND_MAPS,
    COLUMN_SIZES,
    COLUMN_TYPES,
    CONTENT,
    COUNT_MAPS,
    DATA_FILE,
    FILE_FIELDS,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SEQUENCE_NUMBER,
    FILE_SIZE,
    FIRST_ROW_ID,
    KNOWN,
    MAP_TYPES,
    NUMBER_LISTS,
    PARTITION,
    RECORD_COUNT,
    SEQUENCE_NUMBER,
    SNAPSHOT_ID,
    STATUS,
    UPPER_BOUNDS,
    check_entry_type,
    check_type,
    partition_of,
)
from dml.manifests.lockstep_decoder import Items, Numbers, Pieces, RecordColumn, Step, UnsureError
from dml.manifests.lockstep_search import ReadFrom, Search, scalar, together, whole
from dml.manifests.read import blocks_of, damage_named, decoders_of, partition_tuple, records_in
from dml.model.manifest import EntryStatus, FileContent, ManifestContent, ManifestFile

__all__ = ["decode_in_lockstep", "decode_one_by_one", "entry_arrays", "read_arrays"]

FEW: Final = 100
"""Up to this many entries are decoded one by one, in 14 to 24 us each. Lockstep takes 2 us, and 1.7 ms a manifest."""

NEEDED: Final = frozenset(
    {
        STATUS,
        SNAPSHOT_ID,
        SEQUENCE_NUMBER,
        FILE_SEQUENCE_NUMBER,
        CONTENT,
        RECORD_COUNT,
        FILE_SIZE,
        FIRST_ROW_ID,
    }
)
"""The columns that inheritance and checks go by, where all entries are decoded together."""

ALLOWED: Final = {
    ManifestContent.DATA: (FileContent.DATA,),
    ManifestContent.DELETES: (FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES),
}

DECODING: Final = threading.Lock()
"""One thread decodes while others wait for storage: two would wait for each other at Python's lock."""

MAX_ROW_ID: Final = 1 << 62
"""Above this sum, row ids are added one by one, as Python integers: arrays overflow."""


def read_arrays(manifest: ManifestFile, io: FileIO, wanted: Collection[int] = KNOWN) -> EntryArrays:
    """Read the entries of a committed manifest.

    Args:
        manifest: A line of a snapshot's manifest list.
        io: The FileIO of the manifest.
        wanted: Field ids of the columns and metrics that the result must have; it may have others.

    Raises:
        CorruptFileError: The manifest is missing, is no manifest, or breaks the rules of sequence numbers.
        ExecutionError: The storage failed.
    """
    with damage_named(manifest.manifest_path):
        file_type, found = blocks_of(io, manifest.manifest_path, manifest.manifest_length)
        return entry_arrays(file_type, list(found), manifest, wanted)


def entry_arrays(
    file_type: StructType,
    blocks: Sequence[tuple[int, bytes]],
    manifest: ManifestFile,
    wanted: Collection[int] = KNOWN,
    *,
    few: int = FEW,
) -> EntryArrays:
    """Decode the entries of a committed manifest whose blocks were read.

    Args:
        file_type: The type of the entries.
        blocks: For each block the number of entries, and their bytes.
        manifest: The manifest's line in a manifest list.
        wanted: As for `read_arrays`.
        few: Up to this many entries are decoded one by one.

    Raises:
        CorruptFileError: The manifest is no manifest, or breaks the rules of sequence numbers.
    """
    with damage_named(manifest.manifest_path):
        found = [(count, block) for count, block in blocks if count or block]
        if sum(count for count, _ in found) <= few:
            return decode_one_by_one(file_type, found, manifest, wanted)
        check_entry_type(file_type)
        with DECODING:
            try:
                return decode_in_lockstep(file_type, found, manifest, wanted)
            except UnsureError:
                return decode_one_by_one(file_type, found, manifest, wanted)


def distinct(
    tuples: Iterable[tuple[Any, ...]], spec_id: int
) -> tuple[tuple[tuple[Any, ...], ...], npt.NDArray[np.int32]]:
    """Return the distinct partitions, and for each file the index of its own: files are many and partitions few."""
    places: dict[Any, int] = {}
    partitions: list[tuple[Any, ...]] = []
    codes = []
    for partition in tuples:
        place = places.setdefault(partition_key(spec_id, partition), len(partitions))
        if place == len(partitions):
            partitions.append(partition)
        codes.append(place)
    return tuple(partitions), np.array(codes, np.int32)


# ---- one by one -----------------------------------------------------------------------------------------------

RECORD_FIELDS: Final = (STATUS, SNAPSHOT_ID, SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER, *FILE_FIELDS)
METRICS: Final = slice(FILE_FIELDS.index(COLUMN_SIZES), FILE_FIELDS.index(UPPER_BOUNDS) + 1)
NO_METRICS: Final = (None,) * len(MAP_TYPES)
KEPT: Final = frozenset({STATUS, CONTENT})
"""Every result has these columns."""


@dataclass(frozen=True, slots=True)
class FlatMaps:
    """The metrics of one kind, end to end: the number of each entry's pairs, None for no map, and all pairs."""

    sizes: list[int | None] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)

    def add(self, found: dict[int, Any] | None) -> None:
        """Append the map of the next entry."""
        self.sizes.append(None if found is None else len(found))
        if found:
            self.keys.extend(found)
            self.values.extend(found.values())

    def arrays(self, kind: pa.DataType) -> RaggedMaps | EvenMaps:
        """Return them as arrays."""
        sizes = np.array([size or 0 for size in self.sizes], np.int64)
        absent = np.array([size is None for size in self.sizes], np.bool_)
        return metric_maps(sizes, np.array(self.keys, np.int32), pa.array(self.values, kind), absent)


def decode_one_by_one(
    file_type: StructType,
    blocks: Iterable[tuple[int, bytes]],
    manifest: ManifestFile,
    wanted: Collection[int] = KNOWN,
) -> EntryArrays:
    """Decode entries record by record, with PyIceberg's reader.

    Raises:
        Exception: The manifest breaks the rules; `damage_named` makes a CorruptFileError of it.
    """
    maps = {field_id: FlatMaps() for field_id in MAP_TYPES if field_id in wanted}
    adders = [(FILE_FIELDS.index(field_id), flat.add) for field_id, flat in maps.items()]
    rows = []
    for record in records_in(file_type, decoders_of(blocks), manifest):
        data = record.pop()
        for place, add in adders:
            add(data[place])
        # A dict takes many times the bytes of a hostile file, so only those of one entry exist at a time.
        data[METRICS] = NO_METRICS
        rows.append(record + data)
    columns: dict[int, Sequence[Any]] = dict(
        zip(RECORD_FIELDS, zip(*rows, strict=True) if rows else [()] * len(RECORD_FIELDS), strict=True)
    )
    columns[FILE_FORMAT] = [name.lower() for name in columns[FILE_FORMAT]]
    partitions, codes = distinct(columns[PARTITION], manifest.partition_spec_id)
    return EntryArrays(
        size=len(rows),
        spec_id=manifest.partition_spec_id,
        columns={
            field_id: pa.array(columns[field_id], kind)
            for field_id, kind in COLUMN_TYPES.items()
            if field_id in wanted or field_id in KEPT
        },
        maps={field_id: flat.arrays(MAP_TYPES[field_id]) for field_id, flat in maps.items()},
        partition_type=partition_of(file_type),
        partitions=partitions,
        partition_of=codes,
    )


# ---- in lockstep ----------------------------------------------------------------------------------------------


def decode_in_lockstep(
    file_type: StructType,
    blocks: Sequence[tuple[int, bytes]],
    manifest: ManifestFile,
    wanted: Collection[int] = KNOWN,
) -> EntryArrays:
    """Decode entries side by side.

    Raises:
        UnsureError: Only decoding them one by one is sure.
        ValueError: A field is of another type than the specification gives it.
    """
    parts = [lockstep_entries(file_type, group) for group in together(blocks)]
    try:
        columns = {
            field_id: concatenate(column_of(part, field_id, kind) for part in parts)
            for field_id, kind in COLUMN_TYPES.items()
            if field_id in wanted or field_id in NEEDED
        }
        encoded = concatenate(map(encoded_partitions, parts))
        own_type = partition_of(file_type)
        partitions, partition_of_file = partitions_of(encoded, own_type, manifest.partition_spec_id)
        return EntryArrays(
            size=len(encoded),
            spec_id=manifest.partition_spec_id,
            columns=inherit(columns, manifest),
            maps={
                field_id: maps_of(parts, field_id, kind) for field_id, kind in MAP_TYPES.items() if field_id in wanted
            },
            partition_type=own_type,
            partitions=partitions,
            partition_of=partition_of_file,
        )
    except (pa.ArrowInvalid, ValueError, EOFError) as error:
        raise UnsureError from error


@dataclass(frozen=True, slots=True, kw_only=True)
class LockstepEntries:
    """The entries of some blocks as the file has them, nothing inherited yet.

    Attributes:
        rows: The number of entries.
        columns: By field id: the known fields that the manifest has.
        data: The bytes into which the columns point.
    """

    rows: int
    columns: dict[int, RecordColumn]
    data: pa.Buffer


def lockstep_entries(file_schema: StructType, blocks: Sequence[tuple[int, bytes]]) -> LockstepEntries:
    """Find and decode the entries of some blocks.

    Raises:
        UnsureError: Only decoding them one by one is sure.
        ValueError: A field is of another type than the specification gives it.
    """
    steps = tuple(steps_of(file_schema.fields))
    known = [step.field_id for step in steps if step.field_id in KNOWN]
    if len(known) != len(set(known)):
        raise UnsureError
    found = Search(steps, FILE_PATH, blocks).records()
    named = zip(steps, found.columns, strict=True)
    columns = {step.field_id: column for step, column in named if step.field_id in KNOWN}
    return LockstepEntries(rows=len(found.starts), columns=columns, data=pa.py_buffer(found.data))


def steps_of(fields: Iterable[NestedField]) -> Iterator[Step]:
    """Yield the fields of an entry and of its file, in the order of the bytes.

    Raises:
        UnsureError: A field is of a kind that lockstep does not read.
    """
    for found in fields:
        if found.field_id == DATA_FILE and found.required and isinstance(found.field_type, StructType):
            yield from steps_of(found.field_type.fields)
        else:
            check_type(found.field_id, found.field_type)
            yield Step(found.field_id, found.required, read_of(found))


def read_of(found: NestedField) -> ReadFrom:
    """Return the function that reads a field."""
    match found.field_id:
        case field_id if field_id in COUNT_MAPS:
            return lambda lanes, places: lanes.items(places, Numbers)
        case field_id if field_id in BOUND_MAPS:
            return lambda lanes, places: lanes.items(places, Pieces)
        case field_id if field_id in NUMBER_LISTS:
            return lambda lanes, places: lanes.items(places, None)
        case field_id if field_id == PARTITION and isinstance(found.field_type, StructType):
            return whole(
                tuple(Step(part.field_id, part.required, scalar(part.field_type)) for part in found.field_type.fields)
            )
        case _:
            return scalar(found.field_type)


def concatenate(arrays: Iterable[pa.Array]) -> pa.Array:
    """Concatenate arrays.

    Raises:
        UnsureError: There is none.
    """
    found = list(arrays)
    if not found:
        raise UnsureError
    if len(found) > 1 and pa.types.is_dictionary(found[0].type):
        return pa.chunked_array(found).unify_dictionaries().combine_chunks()
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def column_of(entries: LockstepEntries, field_id: int, kind: pa.DataType) -> pa.Array:
    """Return a column; null where an entry has no value.

    Raises:
        ArrowInvalid: A value does not fit the type.
    """
    column = entries.columns.get(field_id)
    if column is None:
        return pa.nulls(entries.rows, kind)
    match column.read:
        case Numbers(values):
            found = pa.array(values).cast(kind)
        case Pieces():
            # The cast checks that texts are UTF-8.
            found = column.read.array(entries.data).cast(pa.large_string() if pa.types.is_dictionary(kind) else kind)
        case Items():
            ends = np.append(0, np.cumsum(column.read.sizes))
            found = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(column.read.keys))
    if pa.types.is_dictionary(kind):
        found = lower_case(found.dictionary_encode())
    return scatter(found, column, entries.rows)


def lower_case(formats: pa.DictionaryArray) -> pa.DictionaryArray:
    """Convert file formats to lower case: writers differ."""
    names = pa.array([name.lower() for name in formats.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(formats.indices, names)


def scatter(found: pa.Array, column: RecordColumn, rows: int) -> pa.Array:
    """Return a column of all entries, made of the values of those that have one."""
    if column.present is None:
        return found
    places = np.full(rows, -1, np.int64)
    places[column.present] = np.arange(len(found))
    return found.take(pa.array(places, mask=places < 0))


def maps_of(parts: Sequence[LockstepEntries], field_id: int, kind: pa.DataType) -> RaggedMaps | EvenMaps:
    """Return the metrics of one kind.

    Raises:
        UnsureError: A key is no field id.
    """
    sizes, absent, keys, values = zip(*(map_parts(part, field_id, kind) for part in parts), strict=True)
    return metric_maps(np.concatenate(sizes), np.concatenate(keys), concatenate(values), np.concatenate(absent))


def map_parts(
    entries: LockstepEntries, field_id: int, kind: pa.DataType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int32], pa.Array]:
    """Return the number of each entry's pairs, where there is no map, and all keys and values."""
    column = entries.columns.get(field_id)
    sizes, absent = np.zeros(entries.rows, np.int64), np.ones(entries.rows, np.bool_)
    if column is None:
        return sizes, absent, np.empty(0, np.int32), pa.array([], kind)
    items = column.read
    if not isinstance(items, Items) or items.values is None:
        raise UnsureError
    present = slice(None) if column.present is None else column.present
    sizes[present], absent[present] = items.sizes, False
    keys = items.keys.astype(np.int32)
    if (keys != items.keys).any():
        raise UnsureError
    if isinstance(items.values, Pieces):
        return sizes, absent, keys, items.values.array(entries.data)
    return sizes, absent, keys, pa.array(items.values.values)


def encoded_partitions(entries: LockstepEntries) -> pa.LargeBinaryArray:
    """Return the bytes of the partition tuples.

    Raises:
        UnsureError: The manifest has none.
    """
    column = entries.columns.get(PARTITION)
    if column is None or column.present is not None or not isinstance(column.read, Pieces):
        raise UnsureError
    return column.read.array(entries.data)


def partitions_of(
    tuples: pa.LargeBinaryArray, kind: StructType, spec_id: int
) -> tuple[tuple[tuple[Any, ...], ...], npt.NDArray[np.int32]]:
    """Decode each distinct partition once; return them, and for each file the index of its own."""
    encoded = tuples.dictionary_encode()
    partitions, codes = distinct((partition_tuple(kind, data) for data in encoded.dictionary.to_pylist()), spec_id)
    return partitions, codes[encoded.indices.to_numpy()]


def inherit(columns: dict[int, pa.Array], manifest: ManifestFile) -> dict[int, pa.Array]:
    """Fill in the values that entries inherit from their manifest's line in the manifest list.

    Raises:
        UnsureError: A value is one that no manifest may have.
    """
    filled = {
        **columns,
        CONTENT: columns[CONTENT].fill_null(FileContent.DATA),
        SNAPSHOT_ID: columns[SNAPSHOT_ID],
    }
    if manifest.added_snapshot_id is not None:
        filled[SNAPSHOT_ID] = columns[SNAPSHOT_ID].fill_null(manifest.added_snapshot_id)
    check_entries(filled, manifest)
    added = pc.equal(columns[STATUS], int(EntryStatus.ADDED))
    for field_id in (SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER):
        numbers = columns[field_id]
        if numbers.null_count:
            if manifest.sequence_number and not pc.all(pc.or_(added, numbers.is_valid())).as_py():
                raise UnsureError
            filled[field_id] = numbers.fill_null(manifest.sequence_number)
    filled[FIRST_ROW_ID] = first_row_ids(columns, manifest)
    return filled


def check_entries(columns: dict[int, pa.Array], manifest: ManifestFile) -> None:
    """Check statuses, contents and counts.

    Raises:
        UnsureError: One is not allowed in such a manifest.
    """
    allowed = pa.array([int(content) for content in ALLOWED[manifest.content]], pa.int8())
    statuses = pa.array([int(status) for status in EntryStatus], pa.int8())
    contents_fit = pc.all(pc.is_in(columns[CONTENT], allowed)).as_py()
    statuses_fit = pc.all(pc.is_in(columns[STATUS], statuses)).as_py()
    counts = (columns[RECORD_COUNT], columns[FILE_SIZE])
    if not contents_fit or not statuses_fit or any(found.null_count or pc.min(found).as_py() < 0 for found in counts):
        raise UnsureError


def first_row_ids(columns: dict[int, pa.Array], manifest: ManifestFile) -> pa.Array:
    """Return the row id of each file's first row: stored, or counted on from the manifest's own."""
    stored = columns[FIRST_ROW_ID]
    if manifest.first_row_id is None:
        return pa.nulls(len(stored), pa.int64())
    if manifest.content is not ManifestContent.DATA:
        return stored
    counted = stored.is_null().to_numpy(zero_copy_only=False) & (columns[STATUS].to_numpy() != EntryStatus.DELETED)
    rows = np.where(counted, columns[RECORD_COUNT].to_numpy(), 0)
    if manifest.first_row_id + rows.sum(dtype=np.float64) > MAX_ROW_ID:
        raise UnsureError
    following = manifest.first_row_id + np.cumsum(rows) - rows
    return pc.if_else(pa.array(counted), pa.array(following), stored)
