"""Find the delete files that apply to a data file. Driver (pure: no file is read).

Input: one `DeleteEntry` for each live delete file of a snapshot. Output: for a data file, its deletion vector, its
position delete files and its equality delete files. Source: Iceberg specification, "Scan Planning".

A delete file applies to a data file when

- deletion vector: it names the data file, and is not older than it;
- position delete file: no deletion vector applies, it names the data file or none, has the same partition, and is not
  older;
- equality delete file: it has the same partition or belongs to an unpartitioned spec, and is newer.
"""

import math
import struct
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from dml.errors import CorruptFileError

__all__ = ["AppliedDeletes", "DeleteEntry", "DeleteFileIndex", "DeleteKind", "partition_key"]


class DeleteKind(StrEnum):
    """The kinds of delete files."""

    DELETION_VECTOR = "deletion-vector"
    POSITION_DELETES = "position-deletes"
    EQUALITY_DELETES = "equality-deletes"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteEntry:
    """A live delete file.

    Attributes:
        payload: An opaque value of the caller, often its manifest entry.
        kind: Its kind.
        spec_id: Its partition spec.
        partition: Its partition tuple, in Iceberg's internal form and spec field order.
        data_sequence_number: Its data sequence number, inherited values filled in.
        referenced_data_file: The data file that it names; required for a deletion vector.
        equality_ids: Field ids of an equality delete file.
        lower_file_path: Lower bound of `file_path` of a position delete file, as in the manifest.
        upper_file_path: Upper bound of `file_path` of a position delete file, as in the manifest.
    """

    payload: Any
    kind: DeleteKind
    spec_id: int
    partition: tuple[Any, ...]
    data_sequence_number: int
    referenced_data_file: str | None = None
    equality_ids: tuple[int, ...] = ()
    lower_file_path: bytes | None = None
    upper_file_path: bytes | None = None

    @property
    def data_file(self) -> str | None:
        """The only data file that it applies to, named or implied by equal bounds; None if there may be several."""
        if self.referenced_data_file is not None:
            return self.referenced_data_file
        if self.lower_file_path is None or self.lower_file_path != self.upper_file_path:
            return None
        return self.lower_file_path.decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedDeletes:
    """The delete files that apply to one data file, each kind by ascending sequence number."""

    deletion_vector: DeleteEntry | None = None
    position_deletes: tuple[DeleteEntry, ...] = ()
    equality_deletes: tuple[DeleteEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.deletion_vector or self.position_deletes or self.equality_deletes)


NO_DELETES = AppliedDeletes()
SEQUENCE_NUMBER = attrgetter("data_sequence_number")


@dataclass(slots=True)
class SortedDeletes:
    """Delete files of one data file or partition, by sequence number."""

    entries: list[DeleteEntry] = field(default_factory=list)

    def sort(self) -> None:
        """Sort by sequence number, after all entries were added; the sort is stable."""
        self.entries.sort(key=SEQUENCE_NUMBER)

    def since(self, sequence_number: int) -> list[DeleteEntry]:
        """Return the entries with this sequence number or a greater one."""
        return self.entries[bisect_left(self.entries, sequence_number, key=SEQUENCE_NUMBER) :]

    def after(self, sequence_number: int) -> list[DeleteEntry]:
        """Return the entries with a greater sequence number."""
        return self.entries[bisect_right(self.entries, sequence_number, key=SEQUENCE_NUMBER) :]


class DeleteFileIndex:
    """Finds the delete files of a data file with a few dictionary look-ups.

    Args:
        entries: All live delete files of the snapshot.
        unpartitioned_spec_ids: Specs without fields or with void ones only, whose equality deletes apply to all data
            files. An entry with an empty partition tuple always counts as unpartitioned.

    Attributes:
        is_empty: True if the snapshot has no delete files.

    Raises:
        CorruptFileError: two deletion vectors name one data file, or one names none.
    """

    def __init__(self, entries: Iterable[DeleteEntry], unpartitioned_spec_ids: Collection[int] = ()) -> None:
        self._vectors: dict[str, DeleteEntry] = {}
        self._positions_by_file: defaultdict[str, SortedDeletes] = defaultdict(SortedDeletes)
        self._positions_by_partition: defaultdict[Hashable, SortedDeletes] = defaultdict(SortedDeletes)
        self._equality_by_partition: defaultdict[Hashable, SortedDeletes] = defaultdict(SortedDeletes)
        self._global_equality = SortedDeletes()
        unpartitioned = frozenset(unpartitioned_spec_ids)
        for entry in entries:
            self._add(entry, unpartitioned)
        for by_key in (self._positions_by_file, self._positions_by_partition, self._equality_by_partition):
            for deletes in by_key.values():
                deletes.sort()
        self._global_equality.sort()
        self.is_empty = not (
            self._vectors
            or self._positions_by_file
            or self._positions_by_partition
            or self._equality_by_partition
            or self._global_equality.entries
        )

    def for_data_file(
        self, path: str, spec_id: int, partition: tuple[Any, ...], data_sequence_number: int
    ) -> AppliedDeletes:
        """Return the delete files that apply to a data file.

        Args:
            path: Its location, byte for byte as in its manifest.
            spec_id: Its partition spec.
            partition: Its partition tuple, in Iceberg's internal form and spec field order.
            data_sequence_number: Its data sequence number, inherited values filled in.

        Raises:
            CorruptFileError: a delete file names the data file, but has another spec or partition or, for a
                deletion vector, is older.
        """
        if self.is_empty:
            return NO_DELETES
        key = partition_key(spec_id, partition)
        equality = sorted_merge(
            self._global_equality.after(data_sequence_number),
            deletes_of(self._equality_by_partition, key).after(data_sequence_number),
        )
        vector = self._vectors.get(path)
        if vector is not None:
            self._check_vector(vector, path, key, data_sequence_number)
            return AppliedDeletes(deletion_vector=vector, equality_deletes=equality)
        of_file = deletes_of(self._positions_by_file, path).since(data_sequence_number)
        for entry in of_file:
            check_partition(entry, path, key)
        of_partition = deletes_of(self._positions_by_partition, key).since(data_sequence_number)
        return AppliedDeletes(position_deletes=sorted_merge(of_partition, of_file), equality_deletes=equality)

    def _add(self, entry: DeleteEntry, unpartitioned: frozenset[int]) -> None:
        match entry.kind:
            case DeleteKind.DELETION_VECTOR:
                self._add_vector(entry)
            case DeleteKind.POSITION_DELETES:
                if (path := entry.data_file) is not None:
                    self._positions_by_file[path].entries.append(entry)
                else:
                    self._positions_by_partition[partition_key(entry.spec_id, entry.partition)].entries.append(entry)
            case DeleteKind.EQUALITY_DELETES:
                if not entry.partition or entry.spec_id in unpartitioned:
                    self._global_equality.entries.append(entry)
                else:
                    self._equality_by_partition[partition_key(entry.spec_id, entry.partition)].entries.append(entry)

    def _add_vector(self, entry: DeleteEntry) -> None:
        path = entry.referenced_data_file
        if path is None:
            raise corrupt_metadata("A deletion vector of the table does not name its data file")
        if path in self._vectors:
            raise corrupt_metadata(f"Two deletion vectors name the data file {path}; one at most is allowed", path)
        self._vectors[path] = entry

    @staticmethod
    def _check_vector(vector: DeleteEntry, path: str, key: Hashable, data_sequence_number: int) -> None:
        if vector.data_sequence_number < data_sequence_number:
            raise corrupt_metadata(
                f"The deletion vector of {path} has sequence number {vector.data_sequence_number}, "
                f"older than the data file's {data_sequence_number}",
                path,
            )
        check_partition(vector, path, key)


def partition_key(spec_id: int, partition: tuple[Any, ...]) -> Hashable:
    """Return the key of a partition. Floats are compared by their bits, and all NaNs are equal."""
    return spec_id, tuple([float_key(value) if isinstance(value, float) else value for value in partition])


def float_key(value: float) -> bytes:
    return b"NaN" if math.isnan(value) else struct.pack("<d", value)


def deletes_of(by_key: dict[Any, SortedDeletes], key: Hashable) -> SortedDeletes:
    return by_key.get(key, NOTHING)


NOTHING = SortedDeletes()


def sorted_merge(first: list[DeleteEntry], second: list[DeleteEntry]) -> tuple[DeleteEntry, ...]:
    if first and second:
        return tuple(sorted(first + second, key=SEQUENCE_NUMBER))
    return tuple(first or second)


def check_partition(entry: DeleteEntry, path: str, key: Hashable) -> None:
    if partition_key(entry.spec_id, entry.partition) != key:
        raise corrupt_metadata(
            f"The {entry.kind} file of {path} has spec {entry.spec_id} and partition {entry.partition}, "
            "which are not the data file's",
            path,
        )


def corrupt_metadata(message: str, path: str | None = None) -> CorruptFileError:
    return CorruptFileError(
        message,
        hint="The table's metadata is corrupt: go back to an earlier snapshot",
        file=path,
    )
