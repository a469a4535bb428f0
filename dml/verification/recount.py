"""Counts the files and rows of a snapshot, from its manifests, file footers and delete files. Driver.

Input: a table and a snapshot. Output: counts, and the problem of each file that cannot be counted. Row counts in
manifests are never trusted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping, parse_mapping_from_json
from pyiceberg.table.snapshots import Snapshot

from dml import limits
from dml.catalog.credentials import storage_properties
from dml.deletes.position_delete_file import positions_by_file
from dml.deletes.position_index import PositionDeleteIndex
from dml.errors import CorruptFileError, DmlError, ExecutionError
from dml.files.file_io import file_errors
from dml.manifests.entries import PlannedFile
from dml.manifests.read import entries_of, manifests_of
from dml.model.columns import POS
from dml.model.manifest import FileContent, ManifestEntry
from dml.model.scan_task import DeleteFileRef, ScanTask
from dml.options import DEFAULT_NAME_MAPPING
from dml.read.applied_deletes import DELETE_COLUMNS, DeleteLoader, place_of
from dml.read.open_data_file import open_data_file
from dml.read.reader import TaskReader
from dml.scan.planner import delete_index, scan_task
from dml.scan.table_scan import TableScan

__all__ = ["FileKey", "OpenedFile", "Recounter", "SnapshotFiles", "deletes_of", "files_of"]

FileKey = tuple[str, int | None, int | None]
"""Path, content offset and content size: several deletion vectors may share a Puffin file."""

Item = TypeVar("Item")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFiles:
    """The files of a snapshot.

    Attributes:
        entries: The live entries of all manifests, in order, duplicates included.
        tasks: The data files with their delete files, by path; without files whose delete files are ambiguous.
        inherits: True if entries or removals in the manifests prove an earlier snapshot.
        problems: The reasons why delete files are ambiguous.
    """

    entries: tuple[ManifestEntry, ...] = ()
    tasks: Mapping[str, ScanTask] = field(default_factory=dict, repr=False)
    inherits: bool = False
    problems: tuple[str, ...] = ()

    @property
    def data_files(self) -> dict[str, ManifestEntry]:
        """The data files by path."""
        return {entry.data_file.path: entry for entry in self.entries if is_data(entry)}

    @property
    def delete_files(self) -> dict[FileKey, ManifestEntry]:
        """The delete files by key."""
        return {entry.data_file.key: entry for entry in self.entries if not is_data(entry)}

    @property
    def listed_twice(self) -> tuple[str, ...]:
        """The files with more than one live entry."""
        counted = Counter(entry.data_file.key for entry in self.entries)
        return tuple(key[0] for key, number in counted.items() if number > 1)


def is_data(entry: ManifestEntry) -> bool:
    return entry.data_file.content is FileContent.DATA


def deletes_of(task: ScanTask) -> tuple[DeleteFileRef, ...]:
    """Return all delete files that apply to a data file."""
    vector = () if task.deletion_vector is None else (task.deletion_vector,)
    return (*vector, *task.position_deletes, *task.equality_deletes)


def files_of(table: Table, snapshot: Snapshot | None) -> SnapshotFiles:
    """Return the files of a snapshot; none without a snapshot.

    Raises:
        CorruptFileError: A manifest is missing or damaged.
        ExecutionError: The storage failed.
    """
    if snapshot is None:
        return SnapshotFiles()
    manifests = manifests_of(table.io, snapshot)
    read = in_threads(manifests, lambda manifest: tuple(entries_of(manifest, table.io, live_only=True)))
    entries = tuple(entry for of_manifest in read for entry in of_manifest)
    inherits = any(manifest.deleted_files_count != 0 for manifest in manifests) or any(
        entry.snapshot_id != snapshot.snapshot_id for entry in entries
    )
    tasks: dict[str, ScanTask] = {}
    problems: list[str] = []
    try:
        index = delete_index((entry for entry in entries if not is_data(entry)), table.specs())
    except CorruptFileError as error:
        return SnapshotFiles(entries=entries, inherits=inherits, problems=(error.message,))
    for ordinal, entry in enumerate(filter(is_data, entries)):
        try:
            tasks[entry.data_file.path] = scan_task(ordinal, PlannedFile.of(entry, with_metrics=False), index, {})
        except CorruptFileError as error:
            problems.append(error.message)
    return SnapshotFiles(entries=entries, tasks=tasks, inherits=inherits, problems=tuple(problems))


def in_threads(items: Iterable[Item], work: Callable[[Item], Found]) -> list[Found]:
    """Apply a function to items in threads, and return the results in order."""
    with ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="verify") as pool:
        return list(pool.map(work, items))


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedFile:
    """The counts of a file.

    Attributes:
        rows: The number of rows, or of positions in a deletion vector; None if it cannot be read.
        size: The size in bytes; None if the file does not exist.
        positions: The positions in a position delete file or deletion vector, by data file.
        problem: The problem with the file, if any.
    """

    rows: int | None = None
    size: int | None = None
    positions: Mapping[str, PositionDeleteIndex] = field(default_factory=dict, repr=False)
    problem: str | None = None


class Recounter:
    """Opens and counts each file once.

    Args:
        table: The table.
    """

    def __init__(self, table: Table) -> None:
        self._table = table
        mapping = table.metadata.properties.get(DEFAULT_NAME_MAPPING)
        self._name_mapping: NameMapping | None = None if mapping is None else parse_mapping_from_json(mapping)
        self.data_files: dict[str, OpenedFile] = {}
        self.delete_files: dict[FileKey, OpenedFile] = {}

    def open_data_files(self, entries: Iterable[ManifestEntry]) -> None:
        """Count the rows of data files in the files themselves."""
        files = {entry.data_file.path: entry.data_file.file_format for entry in entries}
        counted = in_threads(files.items(), lambda named: self._count_rows(*named))
        self.data_files.update(zip(files, counted, strict=True))

    def open_delete_files(self, refs: Iterable[DeleteFileRef]) -> None:
        """Read delete files: count the keys of equality deletes, and collect the positions of others."""
        files = {ref.key: ref for ref in refs}
        self.delete_files.update(zip(files, in_threads(files.values(), self._read_deletes), strict=True))

    def live_rows(self, task: ScanTask) -> int | None:
        """Return the number of rows of a data file that are not deleted, or None if a file cannot be read.

        The data file and its delete files must be opened before. With equality deletes, this reads the rows.
        """
        opened = self.data_files[task.path]
        if opened.rows is None:
            return None
        if any(self.delete_files[ref.key].rows is None for ref in deletes_of(task)):
            return None
        if task.equality_deletes:
            return self._read_live_rows(task)
        return opened.rows - len(self.positions(task))

    def positions(self, task: ScanTask) -> PositionDeleteIndex:
        """Return the deleted positions of a data file, from all readable delete files."""
        index = PositionDeleteIndex()
        for ref in deletes_of(task):
            index.update(self.delete_files[ref.key].positions.get(task.path, PositionDeleteIndex()))
        return index

    def _read_live_rows(self, task: ScanTask) -> int | None:
        table = self._table
        # A batch without columns would not have the number of its rows.
        scan = TableScan(table=table, snapshot_id=None, schema=table.schema(), columns=(), metadata_columns=(POS,))
        reader = TaskReader(scan.context([task]), spark_types=False)
        try:
            return sum(
                found.batch.num_rows if found.live is None else int(found.live.sum())
                for found in reader.scan_file(task)
            )
        except CorruptFileError:
            return None  # `data_files` and `delete_files` already report it

    def _count_rows(self, path: str, file_format: str) -> OpenedFile:
        size = None
        try:
            size = self._size(path)
            with open_data_file(self._table.io, path, file_format, self._name_mapping, size=size) as file:
                if file.columnar:
                    return OpenedFile(rows=sum(piece.rows for piece in file.pieces), size=size)
                batches = file.batches(file.pieces, (), limits.NARROW_BATCH_ROWS)
                return OpenedFile(rows=sum(batch.num_rows for batch in batches), size=size)
        except DmlError as error:
            return unreadable_file(error, size)

    def _size(self, path: str) -> int:
        with file_errors(path):
            return len(self._table.io.new_input(path))

    def _read_deletes(self, ref: DeleteFileRef) -> OpenedFile:
        if ref.equality_ids:
            return self._count_rows(ref.path, ref.file_format)
        size = None
        try:
            size = self._size(ref.path)
            if ref.is_deletion_vector:
                return self._read_vector(ref, size)
            rows, positions = 0, dict[str, PositionDeleteIndex]()
            for path, some in self._position_rows(ref, size):
                rows += len(some)
                positions.setdefault(path, PositionDeleteIndex()).add_many(some)
            return OpenedFile(
                rows=rows, size=size, positions=positions, problem=duplicate_rows_problem(ref, rows, positions)
            )
        except DmlError as error:
            return unreadable_file(error, size)

    def _position_rows(self, ref: DeleteFileRef, size: int) -> Iterator[tuple[str, npt.NDArray[np.int64]]]:
        with open_data_file(self._table.io, ref.path, ref.file_format, None, size=size) as file:
            places = [place_of(file, field_id, name, ref.path) for field_id, name in DELETE_COLUMNS]
            for batch in file.batches(file.pieces, places, limits.NARROW_BATCH_ROWS):
                renamed = pa.RecordBatch.from_arrays(batch.columns, names=[name for _, name in DELETE_COLUMNS])
                yield from positions_by_file(renamed, file=ref.path)

    def _read_vector(self, ref: DeleteFileRef, size: int) -> OpenedFile:
        assert ref.referenced_data_file is not None, "the index of delete files refuses others"
        loader = DeleteLoader(self._table.schema(), storage_properties(self._table.io.properties))
        found = loader.positions_in(ref.referenced_data_file, [ref])
        return OpenedFile(rows=len(found), size=size, positions={ref.referenced_data_file: found})


def unreadable_file(error: DmlError, size: int | None) -> OpenedFile:
    """Return a missing or invalid file; a storage failure is raised, because it is not a problem of the table.

    Raises:
        DmlError: The storage failed.
    """
    if isinstance(error, ExecutionError):
        raise error
    return OpenedFile(size=size, problem=error.message)


def duplicate_rows_problem(ref: DeleteFileRef, rows: int, positions: Mapping[str, PositionDeleteIndex]) -> str | None:
    """Return the problem of a position delete file that names a row twice, else None."""
    distinct = sum(map(len, positions.values()))
    return (
        None if distinct == rows else f"The delete file '{ref.path}' has {rows} rows, and only {distinct} are distinct"
    )
