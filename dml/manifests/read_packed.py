"""Manifests as `EntryArrays`. Worker-safe.

Input: a manifest's line in a manifest list. Output: its entries as arrays, with what they inherit. Spec: "Manifests",
"Sequence Number Inheritance", "First Row ID Inheritance".

Entries are decoded in lockstep, which takes a tenth of the time that one after the other takes. Where that is not sure
of anything (a field that it does not know, a value that may not be), they are decoded one by one, and that says what is
wrong: of a damaged manifest both ways say the same.
"""

import threading
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import StructType

from dml.deletes.delete_file_index import partition_key
from dml.manifests.entries import (
    COLUMN_TYPES,
    FILE_FORMAT,
    FILE_SEQUENCE_NUMBER,
    MAP_TYPES,
    SEQUENCE_NUMBER,
    EntryArrays,
    EvenMaps,
    RaggedMaps,
    metric_maps,
)
from dml.manifests.entry_columns import (
    CONTENT,
    FILE_SIZE,
    FIRST_ROW_ID,
    KNOWN,
    PARTITION,
    RECORD_COUNT,
    SNAPSHOT_ID,
    STATUS,
    EntryColumns,
    FlatMaps,
    check_required,
    columns_of,
    partition_of,
    partition_tuple,
)
from dml.manifests.lockstep_decoder import Column, Items, Numbers, Pieces, UnsureError
from dml.manifests.lockstep_entries import LockstepEntries, lockstep_entries
from dml.manifests.lockstep_search import together
from dml.manifests.read import damage_named
from dml.model.manifest import EntryStatus, FileContent, ManifestContent, ManifestFile

__all__ = ["packed", "packed_entries_in", "packed_in_lockstep"]

ALLOWED: Final = {
    ManifestContent.DATA: (FileContent.DATA,),
    ManifestContent.DELETES: (FileContent.POSITION_DELETES, FileContent.EQUALITY_DELETES),
}

DECODING: Final = threading.Lock()
"""One thread decodes while others wait for storage: two wait for each other at Python's lock, and take no less time."""

MAX_ROW_ID: Final = 1 << 62
"""Numbers of rows that are larger, all together, are not added as arrays."""


def packed_entries_in(
    file_schema: StructType, found: Iterable[tuple[int, bytes]], manifest: ManifestFile
) -> EntryArrays:
    """The entries of a committed manifest whose blocks were read.

    Args:
        file_schema: The type of the entries.
        found: For each block the number of entries, and their bytes.
        manifest: A line of a snapshot's manifest list.

    Raises:
        CorruptFileError: the manifest is no manifest, or breaks the rules of sequence numbers.
    """
    with damage_named(manifest.manifest_path):
        check_required(file_schema)
        blocks = [(count, block) for count, block in found if count or block]
        with DECODING:
            try:
                return packed_in_lockstep(file_schema, blocks, manifest)
            except UnsureError:
                return packed(columns_of(file_schema, blocks, manifest, KNOWN), manifest.partition_spec_id)


# ---- one by one -----------------------------------------------------------------------------------------------


def packed(entries: EntryColumns, spec_id: int) -> EntryArrays:
    """Entries as arrays."""
    values = entries.values
    values[FILE_FORMAT] = [found.lower() for found in values[FILE_FORMAT]]
    partitions, codes = distinct(values[PARTITION], spec_id)
    return EntryArrays(
        size=entries.rows,
        spec_id=spec_id,
        columns={field_id: array(values[field_id], kind) for field_id, kind in COLUMN_TYPES.items()},
        maps={field_id: flat(values[field_id], kind) for field_id, kind in MAP_TYPES.items()},
        partitions=partitions,
        partition_of=codes,
    )


def flat(maps: FlatMaps, kind: pa.DataType) -> RaggedMaps | EvenMaps:
    """The metrics of one kind; an entry without them has none."""
    sizes = np.array([size or 0 for size in maps.sizes], np.int64)
    return metric_maps(sizes, np.array(maps.keys, np.int32), pa.array(maps.values, kind))


def array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """A column."""
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return pa.array(values, kind)


def distinct(
    tuples: Iterable[tuple[Any, ...]], spec_id: int
) -> tuple[tuple[tuple[Any, ...], ...], npt.NDArray[np.int32]]:
    """The partitions of files, and which of them each file has: files are many and partitions few."""
    places: dict[Any, int] = {}
    partitions: list[tuple[Any, ...]] = []
    codes = []
    for partition in tuples:
        place = places.setdefault(partition_key(spec_id, partition), len(partitions))
        if place == len(partitions):
            partitions.append(partition)
        codes.append(place)
    return tuple(partitions), np.array(codes, np.int32)


# ---- in lockstep ----------------------------------------------------------------------------------------------


def packed_in_lockstep(
    file_schema: StructType, blocks: Sequence[tuple[int, bytes]], manifest: ManifestFile
) -> EntryArrays:
    """The same, decoded in lockstep.

    Args:
        file_schema: The type of the entries.
        blocks: For each block the number of entries, and their bytes.
        manifest: The manifest's line in a manifest list.

    Raises:
        UnsureError: only to decode them one by one is sure.
        ValueError: a field is of another type than the specification gives it.
    """
    parts = [lockstep_entries(file_schema, group) for group in together(blocks)]
    try:
        columns = {
            field_id: joined(column_of(part, field_id, kind) for part in parts)
            for field_id, kind in COLUMN_TYPES.items()
        }
        encoded = joined(map(encoded_partitions, parts))
        partitions, partition_of_file = partitions_of(encoded, partition_of(file_schema), manifest.partition_spec_id)
        return EntryArrays(
            size=len(encoded),
            spec_id=manifest.partition_spec_id,
            columns=inherited(columns, manifest),
            maps={field_id: maps_of(parts, field_id, kind) for field_id, kind in MAP_TYPES.items()},
            partitions=partitions,
            partition_of=partition_of_file,
        )
    except (pa.ArrowInvalid, ValueError, EOFError) as error:
        raise UnsureError from error


def joined(arrays: Iterable[pa.Array]) -> pa.Array:
    """Arrays end to end.

    Raises:
        UnsureError: there is none.
    """
    found = list(arrays)
    if not found:
        raise UnsureError
    if len(found) > 1 and pa.types.is_dictionary(found[0].type):
        return pa.chunked_array(found).unify_dictionaries().combine_chunks()
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def column_of(entries: LockstepEntries, field_id: int, kind: pa.DataType) -> pa.Array:
    """A column; null where an entry has none.

    Raises:
        ArrowInvalid: a value is none of its type.
    """
    column = entries.columns.get(field_id)
    if column is None:
        return pa.nulls(entries.rows, kind)
    match column.read:
        case Numbers(values):
            found = pa.array(values).cast(kind)
        case Pieces():
            # A text is looked at here: whether it is UTF-8.
            found = column.read.array(entries.data).cast(pa.large_string() if pa.types.is_dictionary(kind) else kind)
        case Items():
            ends = np.append(0, np.cumsum(column.read.sizes))
            found = pa.LargeListArray.from_arrays(pa.array(ends), pa.array(column.read.keys))
    if pa.types.is_dictionary(kind):
        found = lower_case(found.dictionary_encode())
    return spread(found, column, entries.rows)


def lower_case(formats: pa.DictionaryArray) -> pa.DictionaryArray:
    """The formats of files, which writers spell as they like."""
    names = pa.array([name.lower() for name in formats.dictionary.to_pylist()], pa.string())
    return pa.DictionaryArray.from_arrays(formats.indices, names)


def spread(found: pa.Array, column: Column, rows: int) -> pa.Array:
    """A column of all entries, of one of those that have it."""
    if column.present is None:
        return found
    places = np.full(rows, -1, np.int64)
    places[column.present] = np.arange(len(found))
    return found.take(pa.array(places, mask=places < 0))


def maps_of(parts: Sequence[LockstepEntries], field_id: int, kind: pa.DataType) -> RaggedMaps | EvenMaps:
    """The metrics of one kind; an entry without them has none.

    Raises:
        UnsureError: a key is no field id.
    """
    sizes, keys, values = zip(*(map_parts(part, field_id, kind) for part in parts), strict=True)
    return metric_maps(np.concatenate(sizes), np.concatenate(keys), joined(values))


def map_parts(
    entries: LockstepEntries, field_id: int, kind: pa.DataType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], pa.Array]:
    """How many pairs each entry has, their keys, and their values."""
    column = entries.columns.get(field_id)
    sizes = np.zeros(entries.rows, np.int64)
    if column is None:
        return sizes, np.empty(0, np.int32), pa.array([], kind)
    items = column.read
    if not isinstance(items, Items) or items.values is None:
        raise UnsureError
    sizes[slice(None) if column.present is None else column.present] = items.sizes
    keys = items.keys.astype(np.int32)
    if (keys != items.keys).any():
        raise UnsureError
    if isinstance(items.values, Pieces):
        return sizes, keys, items.values.array(entries.data)
    return sizes, keys, pa.array(items.values.values)


def encoded_partitions(entries: LockstepEntries) -> pa.LargeBinaryArray:
    """The bytes of the partition tuples.

    Raises:
        UnsureError: the manifest has none.
    """
    column = entries.columns.get(PARTITION)
    if column is None or column.present is not None or not isinstance(column.read, Pieces):
        raise UnsureError
    return column.read.array(entries.data)


def partitions_of(
    tuples: pa.LargeBinaryArray, kind: StructType, spec_id: int
) -> tuple[tuple[tuple[Any, ...], ...], npt.NDArray[np.int32]]:
    """The partitions of the files, and which of them each has: each is decoded once."""
    encoded = tuples.dictionary_encode()
    partitions, codes = distinct((partition_tuple(kind, data) for data in encoded.dictionary.to_pylist()), spec_id)
    return partitions, codes[encoded.indices.to_numpy()]


def inherited(columns: dict[int, pa.Array], manifest: ManifestFile) -> dict[int, pa.Array]:
    """Columns with what entries take from their manifest's line in the manifest list.

    Raises:
        UnsureError: there is something that no manifest can say.
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
    """See that the columns say what a manifest can say.

    Raises:
        UnsureError: they do not.
    """
    allowed = pa.array([int(content) for content in ALLOWED[manifest.content]], pa.int8())
    statuses = pa.array([int(status) for status in EntryStatus], pa.int8())
    contents_fit = pc.all(pc.is_in(columns[CONTENT], allowed)).as_py()
    statuses_fit = pc.all(pc.is_in(columns[STATUS], statuses)).as_py()
    counts = (columns[RECORD_COUNT], columns[FILE_SIZE])
    if not contents_fit or not statuses_fit or any(found.null_count or pc.min(found).as_py() < 0 for found in counts):
        raise UnsureError


def first_row_ids(columns: dict[int, pa.Array], manifest: ManifestFile) -> pa.Array:
    """Row ids of the first rows: stored, or counted from the manifest's own."""
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
