"""The entries of a manifest as arrays: what thousands of files are kept as, and pruned by. Driver.

Of `PackedEntries` any entry can be had, the same that `entries_of` gives; `packed_entries_in` makes them. A file of six
columns takes some 570 bytes instead of 2,800, or 4,200 once its metrics were read.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dml.manifests.entry_columns import (
    CONTENT,
    FILE_PATH,
    FILE_SIZE,
    FIRST_ROW_ID,
    RECORD_COUNT,
    SNAPSHOT_ID,
    STATUS,
)
from dml.manifests.read import CONTENTS, STATUSES
from dml.manifests.weights import NUMBER_BYTES, bytes_of_values
from dml.model.manifest import ContentFile, EntryStatus, ManifestEntry

__all__ = [
    "COLUMN_TYPES",
    "FILE_FORMAT",
    "FILE_SEQUENCE_NUMBER",
    "LOWER_BOUNDS",
    "MAP_TYPES",
    "NAN_VALUE_COUNTS",
    "NULL_VALUE_COUNTS",
    "REFERENCED_DATA_FILE",
    "SEQUENCE_NUMBER",
    "SPLIT_OFFSETS",
    "UPPER_BOUNDS",
    "VALUE_COUNTS",
    "EvenMaps",
    "PackedEntries",
    "PackedMaps",
    "packed_maps",
]

SEQUENCE_NUMBER: Final = 3
FILE_SEQUENCE_NUMBER: Final = 4
FILE_FORMAT: Final = 101
COLUMN_SIZES: Final = 108
VALUE_COUNTS: Final = 109
NULL_VALUE_COUNTS: Final = 110
NAN_VALUE_COUNTS: Final = 137
LOWER_BOUNDS: Final = 125
UPPER_BOUNDS: Final = 128
KEY_METADATA: Final = 131
SPLIT_OFFSETS: Final = 132
EQUALITY_IDS: Final = 135
SORT_ORDER_ID: Final = 140
REFERENCED_DATA_FILE: Final = 143
CONTENT_OFFSET: Final = 144
CONTENT_SIZE: Final = 145

TUPLE_BYTES: Final = 60
"""So much takes a partition tuple beside its values."""

MAP_TYPES: Final = {
    COLUMN_SIZES: pa.int64(),
    VALUE_COUNTS: pa.int64(),
    NULL_VALUE_COUNTS: pa.int64(),
    NAN_VALUE_COUNTS: pa.int64(),
    LOWER_BOUNDS: pa.large_binary(),
    UPPER_BOUNDS: pa.large_binary(),
}
COLUMN_TYPES: Final = {
    STATUS: pa.int8(),
    SNAPSHOT_ID: pa.int64(),
    SEQUENCE_NUMBER: pa.int64(),
    FILE_SEQUENCE_NUMBER: pa.int64(),
    CONTENT: pa.int8(),
    FILE_PATH: pa.large_string(),
    FILE_FORMAT: pa.dictionary(pa.int32(), pa.string()),
    RECORD_COUNT: pa.int64(),
    FILE_SIZE: pa.int64(),
    KEY_METADATA: pa.large_binary(),
    SPLIT_OFFSETS: pa.large_list(pa.int64()),
    EQUALITY_IDS: pa.large_list(pa.int64()),
    SORT_ORDER_ID: pa.int32(),
    FIRST_ROW_ID: pa.int64(),
    REFERENCED_DATA_FILE: pa.large_string(),
    CONTENT_OFFSET: pa.int64(),
    CONTENT_SIZE: pa.int64(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedMaps:
    """The metrics of one kind of all files, end to end.

    Attributes:
        ends: Where the map of each file starts, and the end of the last.
        keys: Field ids.
        values: Counts, or serialised bounds.
    """

    ends: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int32]
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return int(self.ends.nbytes + self.keys.nbytes + self.values.nbytes)

    def of_file(self, place: int) -> dict[int, Any]:
        """The metrics of one file, by field id."""
        start, end = int(self.ends[place]), int(self.ends[place + 1])
        return dict(zip(self.keys[start:end].tolist(), self.values[start:end].to_pylist(), strict=True))

    def of_column(self, field_id: int) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """The metrics of one column: the files that have one, and what it is there."""
        found = np.flatnonzero(self.keys == field_id)
        files = np.searchsorted(self.ends, found, side="right") - 1
        if len(files) > 1 and (files[1:] == files[:-1]).any():
            # A key that stands twice in one map: the last counts, as in a dict.
            last = np.append(files[1:] != files[:-1], True)
            files, found = files[last], found[last]
        return files, self.values.take(pa.array(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvenMaps:
    """The same, of files that all have metrics of the same columns in the same order: where each is need not be kept.

    Attributes:
        rows: How many files.
        keys: The field ids of each; none twice.
        values: Counts, or serialised bounds, of all of them.
    """

    rows: int
    keys: tuple[int, ...]
    values: pa.Array

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return int(self.values.nbytes) + NUMBER_BYTES * len(self.keys)

    def of_file(self, place: int) -> dict[int, Any]:
        """The metrics of one file, by field id."""
        width = len(self.keys)
        return dict(zip(self.keys, self.values[place * width : (place + 1) * width].to_pylist(), strict=True))

    def of_column(self, field_id: int) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """The metrics of one column: the files that have one, and what it is there."""
        if field_id not in self.keys:
            return np.empty(0, np.int64), self.values[:0]
        files = np.arange(self.rows)
        return files, self.values.take(pa.array(files * len(self.keys) + self.keys.index(field_id)))


def packed_maps(sizes: npt.NDArray[np.int64], keys: npt.NDArray[np.int32], values: pa.Array) -> PackedMaps | EvenMaps:
    """The metrics of one kind.

    Args:
        sizes: How many each file has.
        keys: Field ids, of all of them end to end.
        values: What they are of, in the same order.
    """
    rows, width = len(sizes), int(sizes[0]) if len(sizes) else 0
    first = tuple(keys[:width].tolist())
    is_even = len(keys) == rows * width and bool((sizes == width).all()) and len(set(first)) == width
    if is_even and (keys.reshape(rows, width) == keys[:width]).all():
        return EvenMaps(rows=rows, keys=first, values=values)
    return PackedMaps(ends=np.append(0, np.cumsum(sizes)), keys=keys, values=values)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedEntries:
    """The entries of a manifest, deleted ones included, in the order of the file.

    Attributes:
        rows: How many.
        spec_id: The partition spec of all of them.
        columns: By the field id of the entry's or the file's field, with what they inherit.
        maps: The metrics, by field id.
        partitions: The partition tuples that there are.
        partition_of: Which of them each file has.
    """

    rows: int
    spec_id: int
    columns: dict[int, pa.Array]
    maps: dict[int, PackedMaps | EvenMaps]
    partitions: tuple[tuple[Any, ...], ...]
    partition_of: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        arrays = sum(column.nbytes for column in self.columns.values()) + self.partition_of.nbytes
        held = sum(TUPLE_BYTES + bytes_of_values(partition) for partition in self.partitions)
        return int(arrays) + sum(maps.nbytes for maps in self.maps.values()) + held

    def live(self) -> npt.NDArray[np.bool_]:
        """Which entries are not DELETED."""
        return np.asarray(self.columns[STATUS].to_numpy() != EntryStatus.DELETED)

    def numbers(self, field_id: int) -> npt.NDArray[np.int64]:
        """A column of numbers that no entry lacks."""
        return np.asarray(self.columns[field_id].to_numpy())

    def values(self, field_id: int, places: npt.NDArray[np.int64]) -> list[Any]:
        """A column of some entries."""
        column = self.columns[field_id]
        chosen = column if len(places) == self.rows else column.take(pa.array(places))
        return list(chosen.to_pylist())

    def partitions_of(self, places: npt.NDArray[np.int64]) -> list[tuple[Any, ...]]:
        """The partition tuples of some entries."""
        return [self.partitions[code] for code in self.partition_of[places].tolist()]

    def file(self, place: int) -> ContentFile:
        """A file."""

        def value(field_id: int) -> Any:
            return self.columns[field_id][place].as_py()

        maps = {field_id: found.of_file(place) for field_id, found in self.maps.items()}
        return ContentFile(
            content=CONTENTS[value(CONTENT)],
            path=value(FILE_PATH),
            file_format=value(FILE_FORMAT),
            spec_id=self.spec_id,
            partition=self.partitions[int(self.partition_of[place])],
            record_count=value(RECORD_COUNT),
            file_size_in_bytes=value(FILE_SIZE),
            column_sizes=maps[COLUMN_SIZES],
            value_counts=maps[VALUE_COUNTS],
            null_value_counts=maps[NULL_VALUE_COUNTS],
            nan_value_counts=maps[NAN_VALUE_COUNTS],
            lower_bounds=maps[LOWER_BOUNDS],
            upper_bounds=maps[UPPER_BOUNDS],
            key_metadata=value(KEY_METADATA),
            split_offsets=tuple(value(SPLIT_OFFSETS) or ()),
            equality_ids=tuple(value(EQUALITY_IDS) or ()),
            sort_order_id=value(SORT_ORDER_ID),
            referenced_data_file=value(REFERENCED_DATA_FILE),
            content_offset=value(CONTENT_OFFSET),
            content_size_in_bytes=value(CONTENT_SIZE),
        )

    def entry(self, place: int) -> ManifestEntry:
        """An entry."""

        def value(field_id: int) -> Any:
            return self.columns[field_id][place].as_py()

        return ManifestEntry(
            status=STATUSES[value(STATUS)],
            snapshot_id=value(SNAPSHOT_ID),
            data_sequence_number=value(SEQUENCE_NUMBER),
            file_sequence_number=value(FILE_SEQUENCE_NUMBER),
            first_row_id=value(FIRST_ROW_ID),
            data_file=self.file(place),
        )
