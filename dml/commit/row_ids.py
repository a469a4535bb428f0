"""Find the rows of replaced data files in the files that replace them, by their row ids. Driver.

Input: positions in old data files, and new data files. Output: the positions of the same rows in the new files, in the
form of row origins. In format version 3, a rewrite by any engine and in any order keeps the row id of each row. Only
the columns of row lineage are read: from old files with wanted rows, and from the row groups of new files that may
contain a wanted id.

An update keeps the row id, too. So a row counts only if it was last updated when the statement read the table: another
version of the row may be in the same new file. Spec: "Row Lineage". A row whose id was assigned by the commit of the
rewrite has lost its lineage, so its origin is unknown.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Final

import numpy as np
import pyarrow as pa
from pyiceberg.io import FileIO
from pyiceberg.types import LongType, NestedField

from dml import limits
from dml.errors import CorruptFileError
from dml.model.columns import LAST_UPDATED_SEQUENCE_NUMBER_ID, ROW_ID, ROW_ID_ID
from dml.model.scan_task import ScanTask
from dml.model.write_task import NEW_ROWS, POSITION_BITS, Numbers, RowOrigins
from dml.read.data_file import DataFile, Piece
from dml.read.open_data_file import open_data_file

__all__ = ["FoundRows", "find_rows", "find_rows_once"]

ROW_ID_FIELD: Final = NestedField(ROW_ID_ID, ROW_ID, LongType(), required=False)
NO_ID: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """Rows of old data files in new ones.

    Attributes:
        origins: The origins of the rows that were found, by new file. All other rows count as new.
        are_complete: True if each wanted row was found or is known to be in none of the new files.
    """

    origins: Mapping[str, RowOrigins] = field(default_factory=dict)
    are_complete: bool = False


UNKNOWN: Final = FoundRows()


class TooManyRowsError(Exception):
    """More row ids would have to be read than the limit allows."""


def find_rows(
    wanted: Sequence[tuple[ScanTask, Numbers]],
    files: Sequence[ScanTask],
    io: FileIO,
    first_new_id: int | None = None,
    newest: int | None = None,
) -> FoundRows:
    """Find rows of old data files in new ones.

    Args:
        wanted: The old files, and ascending positions in them. The origins have the file ordinals of these tasks.
        files: The new files.
        io: The table's FileIO.
        first_new_id: The first row id of the snapshot that added the new files; None before it is committed, when new
            files have only their stored ids.
        newest: The sequence number of the snapshot whose rows are wanted. An update keeps the row id, so a row that was
            updated later is another version of the row, and counts as missing. None for all versions.

    Returns:
        The rows. No row is found if the old files lack row ids, a row id occurs twice, or a file cannot be read.
    """
    if not any(len(positions) for _, positions in wanted):
        return FoundRows(are_complete=True)
    try:
        with ThreadPoolExecutor(limits.READ_THREADS, thread_name_prefix="row-ids") as pool:
            old = tuple(pool.map(lambda pair: ids_at(io, *pair), wanted))
            ids = np.concatenate([np.zeros(0, np.int64), *old])
            origins = [(task.file_ordinal << POSITION_BITS) + positions for task, positions in wanted]
            order = np.argsort(ids)
            search = RowSearch(ids=ids[order], first_new_id=first_new_id, newest=newest)
            if search.is_ambiguous:
                return UNKNOWN
            found = tuple(pool.map(partial(search.find, io), files))
    except (CorruptFileError, TooManyRowsError, pa.ArrowException):
        return UNKNOWN
    places = np.concatenate([np.zeros(0, np.int64), *(one.places for one in found)])
    if len(np.unique(places)) < len(places):
        return UNKNOWN
    by_id = np.concatenate([np.zeros(0, np.int64), *origins])[order]
    return FoundRows(
        origins={
            file.path: origins_of(file, one.positions, by_id[one.places])
            for file, one in zip(files, found, strict=True)
            if len(one.positions)
        },
        are_complete=len(places) == len(ids) or all(one.keeps_ids for one in found),
    )


def find_rows_once(
    wanted: Sequence[tuple[ScanTask, Numbers]],
    files: Sequence[ScanTask],
    io: FileIO,
    cache: MutableMapping[Hashable, FoundRows],
    first_new_id: int | None = None,
    newest: int | None = None,
) -> FoundRows:
    """Find rows like `find_rows`, once for all attempts of a commit.

    Args:
        wanted: As for `find_rows`.
        files: As for `find_rows`.
        io: The table's FileIO.
        cache: The searches of the commit.
        first_new_id: As for `find_rows`.
        newest: As for `find_rows`; the same in all attempts.
    """
    rows = tuple((task.path, positions.tobytes()) for task, positions in wanted)
    key = (rows, tuple(file.path for file in files))
    if key not in cache:
        cache[key] = find_rows(wanted, files, io, first_new_id, newest)
    return cache[key]


def ids_at(io: FileIO, task: ScanTask, positions: Numbers) -> Numbers:
    """Return the row ids at ascending positions of a data file; `NO_ID` for a row without one."""
    parts = [np.zeros(0, np.int64)]

    def is_wanted(_: DataFile, piece: Piece) -> bool:
        return bool(np.searchsorted(positions, piece.first_position) < np.searchsorted(positions, end_of(piece)))

    for start, ids, _ in read_ids(io, task, is_wanted):
        here = positions[np.searchsorted(positions, start) : np.searchsorted(positions, start + len(ids))]
        parts.append(ids[here - start])
    found = np.concatenate(parts)
    return found if len(found) == len(positions) else np.full(len(positions), NO_ID)


def end_of(piece: Piece) -> int:
    return piece.first_position + piece.rows


def read_ids(
    io: FileIO, file: ScanTask, is_wanted: Callable[[DataFile, Piece], bool]
) -> Iterator[tuple[int, Numbers, Numbers]]:
    """Yield the first position of each batch of a data file, the row ids, and when the rows were last updated.

    Args:
        io: The table's FileIO.
        file: The file. A row without a stored id has the first row id plus its position, or no id if the file has none.
            A row without a stored sequence number was last updated by that of the file.
        is_wanted: Selects row groups.

    Raises:
        CorruptFileError: The file is missing or breaks its format.
    """
    with open_data_file(io, file.path, file.file_format, None, size=file.file_size_in_bytes) as opened:
        places = {column.field_id: place for place, column in enumerate(opened.fields)}
        held = [one for one in (ROW_ID_ID, LAST_UPDATED_SEQUENCE_NUMBER_ID) if one in places]
        columns = [places[one] for one in held]
        if any(not pa.types.is_int64(opened.fields[place].type) for place in columns):
            raise CorruptFileError(
                f"The columns of row lineage in '{file.path}' do not hold whole numbers", file=file.path
            )
        for piece in opened.pieces:
            if not is_wanted(opened, piece):
                continue
            start = piece.first_position
            for batch in opened.batches([piece], columns, limits.NARROW_BATCH_ROWS):
                found = dict(zip(held, batch.columns, strict=False))
                updated = np.full(batch.num_rows, file.data_sequence_number)
                if (stored := found.get(LAST_UPDATED_SEQUENCE_NUMBER_ID)) is not None:
                    updated = stored.fill_null(file.data_sequence_number).to_numpy()
                yield start, filled_ids(batch.num_rows, found.get(ROW_ID_ID), start, file.first_row_id), updated
                start += batch.num_rows


def filled_ids(rows: int, stored: pa.Array | None, start: int, first_row_id: int | None) -> Numbers:
    """Return the stored ids. Other rows get the first row id plus their position, or `NO_ID`."""
    inherited = np.full(rows, NO_ID)
    if first_row_id is not None:
        inherited = np.arange(first_row_id + start, first_row_id + start + rows)
    if stored is None:
        return inherited
    return np.where(stored.is_valid().to_numpy(zero_copy_only=False), stored.fill_null(NO_ID).to_numpy(), inherited)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundInFile:
    """Wanted rows in one new file.

    Attributes:
        positions: Their positions, ascending.
        places: Their indexes among the wanted ids.
        keeps_ids: True if no row of the file got its id when the file was committed.
    """

    positions: Numbers
    places: Numbers
    keeps_ids: bool


class RowSearch:
    """Search data files for row ids.

    Args:
        ids: The wanted ids, ascending.
        first_new_id: As for `find_rows`.
        newest: As for `find_rows`.
    """

    def __init__(self, *, ids: Numbers, first_new_id: int | None, newest: int | None) -> None:
        self._ids = ids
        self._newest = newest
        self._first_new_id = first_new_id
        self._lock = Lock()
        self._rows_left = limits.MAX_ROW_IDS_READ

    @property
    def is_ambiguous(self) -> bool:
        """True if a wanted row has no id, or two wanted rows have the same id."""
        return bool((self._ids < 0).any() or (self._ids[1:] == self._ids[:-1]).any())

    def find(self, io: FileIO, file: ScanTask) -> FoundInFile:
        """Return the wanted rows of a new file.

        Raises:
            CorruptFileError: The file is missing or breaks its format.
            TooManyRowsError: The limit of all files together is reached.
        """
        positions, places = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        keeps_ids = True

        def is_wanted(opened: DataFile, piece: Piece) -> bool:
            nonlocal keeps_ids
            bounds = opened.bounds(piece, ROW_ID_FIELD)
            if not bounds.nulls and bounds.lower is not None and bounds.upper is not None:
                keeps_ids = keeps_ids and self._is_old(bounds.upper)
                if not self._any_between(bounds.lower, bounds.upper):
                    return False
            self._count(min(piece.rows, file.record_count))
            return True

        for start, ids, updated in read_ids(io, file, is_wanted):
            found = np.searchsorted(self._ids, ids)
            hits = np.flatnonzero(np.append(self._ids, NO_ID - 1)[found] == ids)
            if self._newest is not None:
                hits = hits[updated[hits] <= self._newest]
            positions.append(hits + start)
            places.append(found[hits])
            keeps_ids = keeps_ids and bool(len(ids)) and self._is_old(int(ids.max())) and int(ids.min()) >= 0
        return FoundInFile(positions=np.concatenate(positions), places=np.concatenate(places), keeps_ids=keeps_ids)

    def _is_old(self, row_id: int) -> bool:
        return self._first_new_id is None or row_id < self._first_new_id

    def _any_between(self, lower: int, upper: int) -> bool:
        return bool(np.searchsorted(self._ids, lower) < np.searchsorted(self._ids, upper, side="right"))

    def _count(self, rows: int) -> None:
        with self._lock:
            self._rows_left -= rows
            if self._rows_left < 0:
                raise TooManyRowsError


def origins_of(file: ScanTask, positions: Numbers, firsts: Numbers) -> RowOrigins:
    """Return the origins of some rows of a data file; the rows between them count as new."""
    lengths = np.ones(2 * len(positions) + 1, np.int64)
    lengths[::2] = np.diff(np.concatenate([[-1], positions, [file.record_count]])) - 1
    runs = np.full(len(lengths), NEW_ROWS, np.int64)
    runs[1::2] = firsts
    return RowOrigins.of(file.path, runs[lengths > 0], lengths[lengths > 0])
