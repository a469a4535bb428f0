"""The entries of a manifest for planning and pruning, in either of two forms. Driver.

Input: decoded entries. Output: `Entries`, the interface of both forms.

`EntryList` holds the objects and suits few files; `EntryArrays` holds Arrow and numpy columns and suits thousands. A
file of six columns takes about 570 bytes as arrays and 2,800 as an object, or 4,200 after its metrics were read, and
pruning is vectorized on arrays. `dml.manifests.cache` selects the form.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.types import StructType

from dml.manifests.entry_fields import (
    CONTENT,
    ENTRY_FIELDS,
    FILE_FIELDS,
    FILE_FORMAT,
    FILE_PATH,
    FILE_SIZE,
    FIRST_ROW_ID,
    LOWER_BOUNDS,
    PARTITION,
    RECORD_COUNT,
    REFERENCED_DATA_FILE,
    SEQUENCE_NUMBER,
    SPLIT_OFFSETS,
    STATUS,
    UPPER_BOUNDS,
)
from dml.manifests.read import content_file, manifest_entry
from dml.manifests.weights import NUMBER_BYTES, bytes_of_values
from dml.model.manifest import ContentFile, EntryStatus, ManifestEntry

__all__ = [
    "Entries",
    "EntryArrays",
    "EntryList",
    "EvenMaps",
    "Flags",
    "Places",
    "PlannedFile",
    "RaggedMaps",
    "metric_maps",
]

TUPLE_BYTES: Final = 60
"""Memory of a partition tuple without its values."""

Places = npt.NDArray[np.int64]
"""Indexes of entries, in the order of the file."""

Flags = npt.NDArray[np.bool_]
"""A flag for each entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFile:
    """A data file for a scan: its entry, usually without the metrics.

    Attributes:
        path: Location as in the manifest.
        file_format: Lower case.
        record_count: Physical rows.
        file_size_in_bytes: Size of the whole file.
        data_sequence_number: Inherited if the entry has none.
        first_row_id: Version 3: the row id of the first row.
        split_offsets: Start of each row group or stripe.
        metrics: The file with its metrics if the plan needs them, else None.
    """

    path: str
    file_format: str
    record_count: int
    file_size_in_bytes: int
    spec_id: int
    partition: tuple[Any, ...]
    data_sequence_number: int
    first_row_id: int | None
    split_offsets: tuple[int, ...]
    metrics: ContentFile | None

    @staticmethod
    def of(entry: ManifestEntry, *, with_metrics: bool) -> "PlannedFile":
        """Convert the file of an entry."""
        file = entry.data_file
        return PlannedFile(
            path=file.path,
            file_format=file.file_format,
            record_count=file.record_count,
            file_size_in_bytes=file.file_size_in_bytes,
            spec_id=file.spec_id,
            partition=file.partition,
            data_sequence_number=entry.data_sequence_number or 0,
            first_row_id=entry.first_row_id,
            split_offsets=file.split_offsets,
            metrics=file if with_metrics else None,
        )


PLANNED: Final = (
    FILE_PATH,
    FILE_FORMAT,
    RECORD_COUNT,
    FILE_SIZE,
    PARTITION,
    SEQUENCE_NUMBER,
    FIRST_ROW_ID,
    SPLIT_OFFSETS,
)
"""The columns of a `PlannedFile`."""


class Entries(Protocol):
    """The entries of a manifest, deleted ones included. A place is the index of an entry in the file."""

    @property
    def spec_id(self) -> int:
        """The partition spec of all entries."""

    @property
    def live_count(self) -> int:
        """The number of entries that are not DELETED."""

    def select(
        self,
        in_partition: Callable[[tuple[Any, ...]], bool],
        of_file: Callable[[ContentFile], bool] | None = None,
        of_arrays: Callable[["EntryArrays", Flags], Flags] | None = None,
    ) -> list[int]:
        """Return the places of live entries that pass tests of their partitions, and then of their files.

        Args:
            in_partition: Called at least once for each partition that has a live entry.
            of_file: The test of one file; None to test partitions only.
            of_arrays: The same test of many files at once: returns those of the flagged files that pass.
        """

    def planned_files(self, places: Sequence[int], *, with_metrics: bool) -> tuple[PlannedFile, ...]:
        """Return some data files for a scan."""

    def delete_targets(self, places: Sequence[int]) -> Iterable[tuple[int, str | None]]:
        """Return for some delete files the content, and the referenced data file or None."""

    def lower_bounds(self, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        """Return for some files the serialized lower bound of a column, or None."""

    def upper_bounds(self, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        """Return for some files the serialized upper bound of a column, or None."""

    def file(self, place: int) -> ContentFile:
        """Return the file of an entry, metrics included."""

    def entry(self, place: int) -> ManifestEntry:
        """Return an entry, inherited values filled in."""


@dataclass(frozen=True)
class EntryList:
    """Few entries, as objects. A manifest of one file is the common case, so nothing here creates an array."""

    entries: tuple[ManifestEntry, ...]
    spec_id: int

    @cached_property
    def live(self) -> tuple[int, ...]:
        """The places of the live entries."""
        return tuple(place for place, entry in enumerate(self.entries) if entry.is_live)

    @property
    def live_count(self) -> int:
        """The number of entries that are not DELETED."""
        return len(self.live)

    def select(
        self,
        in_partition: Callable[[tuple[Any, ...]], bool],
        of_file: Callable[[ContentFile], bool] | None = None,
        of_arrays: Callable[["EntryArrays", Flags], Flags] | None = None,  # noqa: ARG002 - the other form's
    ) -> list[int]:
        """Test entry by entry."""
        entries = self.entries
        found = [place for place in self.live if in_partition(entries[place].data_file.partition)]
        return found if of_file is None else [place for place in found if of_file(entries[place].data_file)]

    def planned_files(self, places: Sequence[int], *, with_metrics: bool) -> tuple[PlannedFile, ...]:
        """Read attributes directly: a table may have thousands of manifests of one file."""
        return tuple([PlannedFile.of(self.entries[place], with_metrics=with_metrics) for place in places])

    def delete_targets(self, places: Sequence[int]) -> Iterable[tuple[int, str | None]]:
        """Read attributes directly."""
        files = [self.entries[place].data_file for place in places]
        return [(file.content, file.referenced_data_file) for file in files]

    def lower_bounds(self, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        """Look up file by file."""
        return [self.entries[place].data_file.lower_bounds.get(field_id) for place in places]

    def upper_bounds(self, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        """Look up file by file."""
        return [self.entries[place].data_file.upper_bounds.get(field_id) for place in places]

    def file(self, place: int) -> ContentFile:
        """Return the file of an entry; its metrics become dicts when they are first read."""
        return self.entries[place].data_file

    def entry(self, place: int) -> ManifestEntry:
        """Return the entry itself."""
        return self.entries[place]


# ---- many entries as arrays -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedMaps:
    """The metrics of one kind of all files, concatenated.

    Attributes:
        ends: The start of each file's map, and the end of the last one.
        keys: Field ids.
        values: Counts, or serialized bounds.
        absent: The files without a map, as opposed to an empty one.
    """

    ends: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int32]
    values: pa.Array
    absent: Flags

    def sizes_and_keys(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the number of metrics of each file, and the field ids of all of them."""
        return np.diff(self.ends), self.keys

    @property
    def nbytes(self) -> int:
        """The memory that keys and values take."""
        return int(self.ends.nbytes + self.keys.nbytes + self.values.nbytes + self.absent.nbytes)

    def of_file(self, place: int) -> dict[int, Any]:
        """Return the metrics of one file by field id."""
        start, end = int(self.ends[place]), int(self.ends[place + 1])
        return dict(zip(self.keys[start:end].tolist(), self.values[start:end].to_pylist(), strict=True))

    def of_column(self, field_id: int) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """Return the files that have a metric of a column, and its values."""
        found = np.flatnonzero(self.keys == field_id)
        files = np.searchsorted(self.ends, found, side="right") - 1
        if len(files) > 1 and (files[1:] == files[:-1]).any():
            # If a key occurs twice in one map, the last value applies, as in a dict.
            last = np.append(files[1:] != files[:-1], True)
            files, found = files[last], found[last]
        return files, self.values.take(pa.array(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class EvenMaps:
    """Metrics of one kind of files that all have the same columns in the same order, so that keys are stored once.

    Attributes:
        rows: The number of files.
        keys: The distinct field ids of each file.
        values: Counts, or serialized bounds, of all files.
        absent: As in `RaggedMaps`.
    """

    rows: int
    keys: tuple[int, ...]
    values: pa.Array
    absent: Flags

    def sizes_and_keys(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """Return the number of metrics of each file, and the field ids of all of them."""
        sizes = np.full(self.rows, len(self.keys), np.int64)
        return sizes, np.tile(np.array(self.keys, np.int32), self.rows)

    @property
    def nbytes(self) -> int:
        """The memory that keys and values take."""
        return int(self.values.nbytes) + NUMBER_BYTES * len(self.keys) + self.absent.nbytes

    def of_file(self, place: int) -> dict[int, Any]:
        """Return the metrics of one file by field id."""
        width = len(self.keys)
        return dict(zip(self.keys, self.values[place * width : (place + 1) * width].to_pylist(), strict=True))

    def of_column(self, field_id: int) -> tuple[npt.NDArray[np.int64], pa.Array]:
        """Return the files that have a metric of a column, and its values."""
        if field_id not in self.keys:
            return np.empty(0, np.int64), self.values[:0]
        files = np.arange(self.rows)
        return files, self.values.take(pa.array(files * len(self.keys) + self.keys.index(field_id)))


def metric_maps(
    sizes: npt.NDArray[np.int64], keys: npt.NDArray[np.int32], values: pa.Array, absent: Flags
) -> RaggedMaps | EvenMaps:
    """Store the metrics of one kind in the smaller form that holds them.

    Args:
        sizes: The number of metrics of each file.
        keys: Field ids of all metrics, file by file.
        values: Values of all metrics, in the same order.
        absent: The files without a map.
    """
    rows, width = len(sizes), int(sizes[0]) if len(sizes) else 0
    first = tuple(keys[:width].tolist())
    is_even = len(keys) == rows * width and bool((sizes == width).all()) and len(set(first)) == width
    if is_even and (keys.reshape(rows, width) == keys[:width]).all():
        return EvenMaps(rows=rows, keys=first, values=values, absent=absent)
    return RaggedMaps(ends=np.append(0, np.cumsum(sizes)), keys=keys, values=values, absent=absent)


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryArrays:
    """Many entries, as columns.

    Attributes:
        size: The number of entries.
        spec_id: The partition spec of all entries.
        columns: By field id, inherited values filled in; all of them, or those that the reader requested.
        maps: The metrics, by field id.
        partition_type: The type of the partition tuples.
        partitions: The distinct partition tuples.
        partition_of: For each entry the index of its partition in `partitions`.
    """

    size: int
    spec_id: int
    columns: dict[int, pa.Array]
    maps: dict[int, RaggedMaps | EvenMaps]
    partition_type: StructType
    partitions: tuple[tuple[Any, ...], ...]
    partition_of: npt.NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """The approximate memory of the entries."""
        arrays = sum(column.nbytes for column in self.columns.values()) + self.partition_of.nbytes
        held = sum(TUPLE_BYTES + bytes_of_values(partition) for partition in self.partitions)
        return int(arrays) + sum(maps.nbytes for maps in self.maps.values()) + held

    @property
    def live_count(self) -> int:
        """The number of entries that are not DELETED."""
        return int(self._live().sum())

    def select(
        self,
        in_partition: Callable[[tuple[Any, ...]], bool],
        of_file: Callable[[ContentFile], bool] | None = None,  # noqa: ARG002 - the other form's
        of_arrays: Callable[["EntryArrays", Flags], Flags] | None = None,
    ) -> list[int]:
        """Test each distinct partition once, and then all files at once."""
        live = self._live()
        may = np.zeros(len(self.partitions), np.bool_)
        # Partitions of deleted entries only are not tested: the table may have lost their spec.
        for code in np.unique(self.partition_of[live]).tolist():
            may[code] = in_partition(self.partitions[code])
        chosen: Flags = live & may[self.partition_of]
        return list(np.flatnonzero(chosen if of_arrays is None else of_arrays(self, chosen)).tolist())

    def partition_counts(self) -> dict[tuple[Any, ...], int]:
        """Return the number of live files of each partition that has any."""
        counts = np.bincount(self.partition_of[self._live()], minlength=len(self.partitions)).tolist()
        return {partition: count for partition, count in zip(self.partitions, counts, strict=True) if count}

    def numbers(self, field_id: int) -> npt.NDArray[np.int64]:
        """Return a column of numbers without nulls, of all entries."""
        return np.asarray(self.columns[field_id].to_numpy())

    def values(self, field_id: int, places: Places | None = None) -> list[Any]:
        """Return a column, of all entries or of some; the partition tuples are a column too."""
        if field_id == PARTITION:
            codes = self.partition_of if places is None else self.partition_of[places]
            return [self.partitions[code] for code in codes.tolist()]
        column = self.columns[field_id]
        chosen = column if places is None else column.take(pa.array(places))
        if pa.types.is_integer(chosen.type) and not chosen.null_count:
            return list(chosen.to_numpy().tolist())  # `to_pylist` takes ten times as long
        return list(chosen.to_pylist())

    def planned_files(self, places: Sequence[int], *, with_metrics: bool) -> tuple[PlannedFile, ...]:
        """Convert each column as a whole."""
        if not places:
            return ()
        chosen = None if len(places) == self.size else np.array(places, np.int64)
        rows = zip(places, *(self.values(field_id, chosen) for field_id in PLANNED), strict=True)
        return tuple(
            PlannedFile(
                path=path,
                file_format=file_format,
                record_count=record_count,
                file_size_in_bytes=size,
                spec_id=self.spec_id,
                partition=partition,
                data_sequence_number=sequence_number or 0,
                first_row_id=first_row_id,
                split_offsets=tuple(offsets or ()),
                metrics=self.file(place) if with_metrics else None,
            )
            for place, path, file_format, record_count, size, partition, sequence_number, first_row_id, offsets in rows
        )

    def delete_targets(self, places: Sequence[int]) -> Iterable[tuple[int, str | None]]:
        """Convert each column as a whole."""
        chosen = np.array(places, np.int64)
        return zip(self.values(CONTENT, chosen), self.values(REFERENCED_DATA_FILE, chosen), strict=True)

    def lower_bounds(self, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        """Convert the bounds of the one column."""
        return self._bounds(LOWER_BOUNDS, places, field_id)

    def upper_bounds(self, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        """Convert the bounds of the one column."""
        return self._bounds(UPPER_BOUNDS, places, field_id)

    def _bounds(self, kind: int, places: Sequence[int], field_id: int) -> Sequence[bytes | None]:
        files, values = self.maps[kind].of_column(field_id)
        found = dict(zip(files.tolist(), values.to_pylist(), strict=True))
        return [found.get(place) for place in places]

    def file(self, place: int) -> ContentFile:
        """Build the file of an entry."""
        return content_file(self._record(FILE_FIELDS, place), self.spec_id)

    def entry(self, place: int) -> ManifestEntry:
        """Build an entry."""
        record = [*self._record(ENTRY_FIELDS, place), self._record(FILE_FIELDS, place)]
        return manifest_entry(record, self.spec_id)

    def _record(self, field_ids: Sequence[int], place: int) -> list[Any]:
        def value(field_id: int) -> Any:
            if field_id == PARTITION:
                return self.partitions[int(self.partition_of[place])]
            found = self.maps.get(field_id)
            return self.columns[field_id][place].as_py() if found is None else found.of_file(place)

        return list(map(value, field_ids))

    def _live(self) -> Flags:
        return np.asarray(self.columns[STATUS].to_numpy() != EntryStatus.DELETED)
