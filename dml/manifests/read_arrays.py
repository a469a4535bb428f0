"""Read manifests as `EntryArrays`. Worker-safe.

Input: lines of a manifest list, or blocks of manifests. Output: their entries as arrays, inherited values filled in.
Spec: "Manifests", "Sequence Number Inheritance", "First Row ID Inheritance".

Many entries are decoded in lockstep, in a quarter of the time of decoding one by one. If lockstep decoding is unsure
(an unknown field, an invalid value), they are decoded one by one, which reports what is wrong: both accept the same
manifests and return the same entries. Creating arrays costs more than decoding a few entries, so small manifests of one
schema are decoded together.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.io import FileIO
from pyiceberg.types import NestedField, StructType

from dml import limits
from dml.deletes.delete_file_index import partition_key
from dml.manifests.avro_decoder import CheckedDecoder
from dml.manifests.avro_schema import inner_struct
from dml.manifests.entries import EntryArrays, EvenMaps, RaggedMaps, metric_maps
from dml.manifests.entry_fields import (
    BOUND_MAPS,
    COLUMN_TYPES,
    CONTENT,
    COUNT_MAPS,
    DATA_FILE,
    ENTRY_FIELDS,
    FILE_FIELDS,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SEQUENCE_NUMBER,
    FILE_SIZE,
    FIRST_ROW_ID,
    KEY_METADATA,
    KNOWN,
    MAP_TYPES,
    NUMBER_LISTS,
    PARTITION,
    RECORD_COUNT,
    REFERENCED_DATA_FILE,
    SEQUENCE_NUMBER,
    SNAPSHOT_ID,
    STATUS,
)
from dml.manifests.lockstep_decoder import Items, Numbers, Pieces, RecordColumn, Step, UnsureError
from dml.manifests.lockstep_search import ReadFrom, Records, Search, group_blocks, scalar, struct_bytes
from dml.manifests.read import ENTRY_TYPE, blocks_of, decoders_of, partition_tuple, reader_of, records_in, report_damage
from dml.manifests.record_reader import Bind
from dml.model.manifest import EntryStatus, FileContent, ManifestContent, ManifestFile

__all__ = [
    "SKIPS",
    "ManifestBlocks",
    "decode_in_lockstep",
    "decode_one_by_one",
    "entry_arrays",
    "read_arrays",
    "read_blocks",
]

NEEDED: Final = frozenset({*ENTRY_FIELDS, CONTENT, RECORD_COUNT, FILE_SIZE, FIRST_ROW_ID})
"""The columns that inheritance and checks need in lockstep decoding."""

DECODING: Final = threading.Lock()
"""One thread decodes while others wait for storage: two would contend for the GIL."""

MAX_ROW_ID: Final = 1 << 62
"""Above this sum, row ids are added one by one, as Python integers: arrays overflow."""


@dataclass(frozen=True, slots=True)
class ManifestBlocks:
    """A committed manifest, read but not decoded.

    Attributes:
        manifest: Its line in a manifest list.
        blocks: The number of entries and the bytes of each block that is not empty.
    """

    manifest: ManifestFile
    blocks: Sequence[tuple[int, bytes]]

    @property
    def rows(self) -> int:
        """The number of entries."""
        return sum(count for count, _ in self.blocks)

    @property
    def size(self) -> int:
        """The bytes of all blocks."""
        return sum(len(block) for _, block in self.blocks)


def read_arrays(
    manifests: Iterable[ManifestFile], io_of: Callable[[str], FileIO], wanted: Collection[int] = KNOWN
) -> Iterator[EntryArrays]:
    """Read the entries of committed manifests; consecutive manifests of one schema and spec are one result.

    Args:
        manifests: Lines of a snapshot's manifest list.
        io_of: Returns the FileIO of a location.
        wanted: Field ids of the columns, metrics and partitions that the results must have; they may have others.

    Raises:
        CorruptFileError: A manifest is missing, is no manifest, or breaks the rules of sequence numbers.
        ExecutionError: The storage failed.
    """
    group: list[ManifestBlocks] = []
    group_type: StructType | None = None
    rows = size = 0
    for manifest in manifests:
        file_type, found = read_blocks(manifest, io_of(manifest.manifest_path))
        # Types are cached by their JSON, so equal types are nearly always one object.
        fits = file_type is group_type and manifest.partition_spec_id == group[0].manifest.partition_spec_id
        if group_type is not None and (
            not fits or rows >= limits.MANIFEST_GROUP_ENTRIES or size >= limits.LOCKSTEP_GROUP_BYTES
        ):
            yield entry_arrays(group_type, group, wanted)
            group, rows, size = [], 0, 0
        group_type = file_type
        group.append(found)
        rows, size = rows + found.rows, size + found.size
    if group_type is not None:
        yield entry_arrays(group_type, group, wanted)


def read_blocks(manifest: ManifestFile, io: FileIO) -> tuple[StructType, ManifestBlocks]:
    """Read a manifest; return the type of its entries, and its blocks."""
    with report_damage(manifest.manifest_path):
        file_type, blocks = blocks_of(io, manifest.manifest_path, manifest.manifest_length)
        return file_type, ManifestBlocks(manifest, [(count, block) for count, block in blocks if count or block])


def entry_arrays(
    file_type: StructType, group: Sequence[ManifestBlocks], wanted: Collection[int] = KNOWN, *, lockstep: bool = False
) -> EntryArrays:
    """Decode the entries of committed manifests of one schema and one partition spec.

    Args:
        file_type: The type of the entries.
        group: The manifests, at least one.
        wanted: As for `read_arrays`.
        lockstep: Try lockstep first, however few the entries are.

    Raises:
        CorruptFileError: A manifest is no manifest, or breaks the rules of sequence numbers.
    """
    # A wrong schema is reported for the first manifest; wrong entries are reported for their own.
    with report_damage(group[0].manifest.manifest_path):
        check_required(file_type)
        reader_of(file_type, ENTRY_TYPE)  # checks the types by which lockstep decodes
        if not lockstep and sum(found.rows for found in group) < limits.MIN_LOCKSTEP_ENTRIES:
            return decode_one_by_one(file_type, group, wanted)
        with DECODING:
            try:
                return decode_in_lockstep(file_type, group, wanted)
            except UnsureError:
                return decode_one_by_one(file_type, group, wanted)


@lru_cache(maxsize=limits.CACHED_AVRO_SCHEMAS)
def check_required(file_type: StructType) -> None:
    """Check that the fields that every entry and file needs are required.

    Raises:
        ValueError: A field is missing or optional. Such entries could take no bytes, so a file could claim any number.
    """
    fields = [*file_type.fields, *inner_struct(file_type, DATA_FILE).fields]
    required = {field.field_id for field in fields if field.required}
    if missing := {STATUS, DATA_FILE, FILE_PATH, PARTITION, RECORD_COUNT, FILE_SIZE} - required:
        raise ValueError(f"its entries lack the fields with the ids {sorted(missing)}")


def distinct_partitions(
    tuples: Iterable[tuple[Any, ...]], spec_id: int
) -> tuple[tuple[tuple[Any, ...], ...], npt.NDArray[np.int32]]:
    """Return the distinct partitions, and for each file the index of its partition."""
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


class FlatMaps:
    """Collects the metrics of one kind of all entries in lists while they are decoded, without a dict per entry."""

    def __init__(self, field_id: int) -> None:
        self.field_id = field_id
        self.keys: list[int] = []
        self.values: list[Any] = []

    def bind(self, decoder: CheckedDecoder) -> Callable[[], int]:
        """Return a function that reads the next map, and returns its size."""
        read_int, keys, values = decoder.read_int, self.keys, self.values

        def read_bounds(count: int) -> None:
            decoder.read_int_bytes(count, keys, values)

        def read_counts(count: int) -> None:
            numbers = decoder.read_ints(2 * count)
            keys.extend(numbers[::2])
            values.extend(numbers[1::2])

        read_pairs = read_bounds if self.field_id in BOUND_MAPS else read_counts

        def read() -> int:
            size = 0
            while count := read_int():
                if count < 0:
                    count = -count
                    read_int()
                read_pairs(count)
                size += count
            return size

        return read

    def arrays(self, sizes: Sequence[int | None]) -> RaggedMaps | EvenMaps:
        """Return the maps as arrays.

        Args:
            sizes: The size of each entry's map; None for no map.
        """
        return metric_maps(
            np.array([size or 0 for size in sizes], np.int64),
            np.array(self.keys, np.int32),
            pa.array(self.values, MAP_TYPES[self.field_id]),
            np.array([size is None for size in sizes], np.bool_),
        )


def skip_items(skip_of: Callable[[CheckedDecoder], Callable[[int], Any]]) -> Bind:
    """Skip the items of a map or a list, which costs less than reading them."""

    def bind_skip(decoder: CheckedDecoder) -> Callable[[], None]:
        read_int, skip_bytes, skip = decoder.read_int, decoder.skip, skip_of(decoder)

        def skip_all() -> None:
            while count := read_int():
                if count < 0:
                    # The number of bytes follows, so that readers can skip them at once.
                    skip_bytes(read_int())
                else:
                    skip(count)

        return skip_all

    return bind_skip


SKIPS: Final[Mapping[int, Bind]] = {
    **dict.fromkeys((FILE_FORMAT, KEY_METADATA, REFERENCED_DATA_FILE), attrgetter("skip_bytes")),
    **dict.fromkeys(NUMBER_LISTS, skip_items(attrgetter("skip_ints"))),
    **dict.fromkeys(COUNT_MAPS, skip_items(lambda decoder: lambda count: decoder.skip_ints(2 * count))),
    **dict.fromkeys(BOUND_MAPS, skip_items(attrgetter("skip_int_bytes"))),
}
"""How to skip fields that are slow to read and that no check depends on."""


def decode_one_by_one(
    file_type: StructType, group: Sequence[ManifestBlocks], wanted: Collection[int] = KNOWN
) -> EntryArrays:
    """Decode entries record by record.

    Raises:
        Exception: A manifest breaks the rules; `report_damage` turns it into a CorruptFileError.
    """
    wanted = {STATUS, CONTENT, *wanted}  # every result has these two
    maps = {field_id: FlatMaps(field_id) for field_id in MAP_TYPES if field_id in wanted}
    readers = {field_id: skip for field_id, skip in SKIPS.items() if field_id not in wanted}
    readers.update({field_id: flat.bind for field_id, flat in maps.items()})
    records: list[list[Any]] = []
    for found in group:
        with report_damage(found.manifest.manifest_path):
            records += records_in(file_type, decoders_of(found.blocks), found.manifest, readers=readers)
    files = [record[4] for record in records]

    def column(field_id: int) -> list[Any]:
        found, fields = (records, ENTRY_FIELDS) if field_id in ENTRY_FIELDS else (files, FILE_FIELDS)
        place = fields.index(field_id)
        return [record[place] for record in found]

    columns = {field_id: column(field_id) for field_id in COLUMN_TYPES if field_id in wanted}
    if FILE_FORMAT in columns:
        columns[FILE_FORMAT] = [name.lower() for name in columns[FILE_FORMAT]]
    spec_id = group[0].manifest.partition_spec_id
    partitions, codes = distinct_partitions(column(PARTITION) if PARTITION in wanted else (), spec_id)
    return EntryArrays(
        size=len(records),
        spec_id=spec_id,
        columns={field_id: pa.array(values, COLUMN_TYPES[field_id]) for field_id, values in columns.items()},
        maps={field_id: flat.arrays(column(field_id)) for field_id, flat in maps.items()},
        partition_type=inner_struct(file_type, DATA_FILE, PARTITION),
        partitions=partitions,
        partition_of=codes,
    )


# ---- in lockstep ----------------------------------------------------------------------------------------------


def decode_in_lockstep(
    file_type: StructType, group: Sequence[ManifestBlocks], wanted: Collection[int] = KNOWN
) -> EntryArrays:
    """Decode entries in lockstep.

    Raises:
        UnsureError: The entries must be decoded one by one.
    """
    blocks = [block for found in group for block in found.blocks]
    steps = tuple(steps_of(file_type.fields))
    parts = [Search(steps, FILE_PATH, some).records() for some in group_blocks(blocks)]
    spec_id = group[0].manifest.partition_spec_id
    try:
        columns = {
            field_id: concatenate(column_of(part, field_id, kind) for part in parts)
            for field_id, kind in COLUMN_TYPES.items()
            if field_id in wanted or field_id in NEEDED
        }
        partition_type = inner_struct(file_type, DATA_FILE, PARTITION)
        # Partitions are checked even if they are not wanted, as all other fields are.
        partitions, codes = partitions_of(concatenate(map(encoded_partitions, parts)), partition_type, spec_id)
        if PARTITION not in wanted:
            partitions, codes = distinct_partitions((), spec_id)
        return EntryArrays(
            size=sum(part.rows for part in parts),
            spec_id=spec_id,
            columns=inherit(columns, group),
            maps={
                field_id: maps_of(parts, field_id, kind) for field_id, kind in MAP_TYPES.items() if field_id in wanted
            },
            partition_type=partition_type,
            partitions=partitions,
            partition_of=codes,
        )
    except (pa.ArrowInvalid, ValueError, EOFError) as error:
        raise UnsureError from error


def steps_of(fields: Iterable[NestedField]) -> Iterator[Step]:
    """Yield the fields of an entry and of its file, in the order of the bytes.

    Raises:
        UnsureError: Lockstep does not read the type of a field.
    """
    for found in fields:
        if found.field_id == DATA_FILE and found.required and isinstance(found.field_type, StructType):
            yield from steps_of(found.field_type.fields)
        else:
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
            return struct_bytes(
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


def column_of(entries: Records, field_id: int, kind: pa.DataType) -> pa.Array:
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
    """Return a column of all entries: the found values, and null for entries without one."""
    if column.present is None:
        return found
    places = np.full(rows, -1, np.int64)
    places[column.present] = np.arange(len(found))
    return found.take(pa.array(places, mask=places < 0))


def maps_of(parts: Sequence[Records], field_id: int, kind: pa.DataType) -> RaggedMaps | EvenMaps:
    """Return the metrics of one kind.

    Raises:
        UnsureError: A key is no field id.
    """
    sizes, absent, keys, values = zip(*(map_parts(part, field_id, kind) for part in parts), strict=True)
    return metric_maps(np.concatenate(sizes), np.concatenate(keys), concatenate(values), np.concatenate(absent))


def map_parts(
    entries: Records, field_id: int, kind: pa.DataType
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_], npt.NDArray[np.int32], pa.Array]:
    """Return the number of pairs of each entry, a flag for entries without a map, and all keys and values."""
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


def encoded_partitions(entries: Records) -> pa.LargeBinaryArray:
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
    """Decode each distinct partition once; return them, and for each file the index of its partition."""
    encoded = tuples.dictionary_encode()
    partitions, codes = distinct_partitions(
        (partition_tuple(kind, data) for data in encoded.dictionary.to_pylist()), spec_id
    )
    return partitions, codes[encoded.indices.to_numpy()]


def inherit(columns: dict[int, pa.Array], group: Sequence[ManifestBlocks]) -> dict[int, pa.Array]:
    """Fill in the values that entries inherit from their manifests' lines in the manifest list.

    Raises:
        UnsureError: A value is invalid.
    """
    manifests = [found.manifest for found in group]
    owners = np.repeat(np.arange(len(group)), [found.rows for found in group])

    def of_entries(values: list[Any], kind: pa.DataType) -> pa.Array:
        return pa.array(values, kind).take(pa.array(owners))

    numbers = of_entries([manifest.sequence_number for manifest in manifests], pa.int64())
    filled = {**columns, CONTENT: columns[CONTENT].fill_null(FileContent.DATA)}
    if columns[SNAPSHOT_ID].null_count:
        added_by = of_entries([manifest.added_snapshot_id for manifest in manifests], pa.int64())
        filled[SNAPSHOT_ID] = pc.coalesce(columns[SNAPSHOT_ID], added_by)
    is_data = of_entries([manifest.content is ManifestContent.DATA for manifest in manifests], pa.bool_())
    check_entries(filled, is_data)
    may_inherit = pc.or_(pc.equal(columns[STATUS], int(EntryStatus.ADDED)), pc.equal(numbers, 0))
    for field_id in (SEQUENCE_NUMBER, FILE_SEQUENCE_NUMBER):
        found = columns[field_id]
        if found.null_count:
            if not pc.all(pc.or_(may_inherit, found.is_valid())).as_py():
                raise UnsureError
            filled[field_id] = pc.coalesce(found, numbers)
    filled[FIRST_ROW_ID] = first_row_ids(columns, manifests, owners)
    return filled


def check_entries(columns: dict[int, pa.Array], is_data: pa.Array) -> None:
    """Check statuses, contents and counts.

    Args:
        columns: The columns of all entries.
        is_data: For each entry, True if its manifest lists data files.

    Raises:
        UnsureError: A value is not allowed in the manifest.
    """
    statuses = pa.array([int(status) for status in EntryStatus], pa.int8())
    contents = pa.array([int(content) for content in FileContent], pa.int8())
    statuses_fit = pc.all(pc.is_in(columns[STATUS], statuses)).as_py()
    contents_fit = pc.all(pc.is_in(columns[CONTENT], contents)).as_py()
    contents_fit = contents_fit and pc.equal(columns[CONTENT], int(FileContent.DATA)).equals(is_data)
    counts = (columns[RECORD_COUNT], columns[FILE_SIZE])
    if not contents_fit or not statuses_fit or any(found.null_count or pc.min(found).as_py() < 0 for found in counts):
        raise UnsureError


def first_row_ids(
    columns: dict[int, pa.Array], manifests: Sequence[ManifestFile], owners: npt.NDArray[np.int64]
) -> pa.Array:
    """Return the row id of each file's first row: stored, or counted up from its manifest's first row id.

    Args:
        columns: The columns of all entries.
        manifests: Their manifests.
        owners: For each entry the index of its manifest.
    """
    stored = columns[FIRST_ROW_ID]
    has_first = np.array([manifest.first_row_id is not None for manifest in manifests])
    if not has_first.any():
        return pa.nulls(len(stored), pa.int64())
    counts_on = has_first & np.array([manifest.content is ManifestContent.DATA for manifest in manifests])
    is_counted = stored.is_null().to_numpy(zero_copy_only=False) & (columns[STATUS].to_numpy() != EntryStatus.DELETED)
    is_counted &= counts_on[owners]
    rows = np.where(is_counted, columns[RECORD_COUNT].to_numpy(), 0)
    firsts = [manifest.first_row_id or 0 for manifest in manifests]
    if max(firsts) + rows.sum(dtype=np.float64) > MAX_ROW_ID:
        raise UnsureError
    before = np.append(0, np.cumsum(rows))
    # The number of counted rows before the first entry of each manifest.
    skipped = before[np.searchsorted(owners, np.arange(len(manifests)))]
    following = (np.array(firsts, np.int64) - skipped)[owners] + before[:-1]
    known = pc.if_else(pa.array(has_first[owners]), stored, pa.scalar(None, pa.int64()))
    return pc.if_else(pa.array(is_counted), pa.array(following), known)
