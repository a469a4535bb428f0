"""Joins the target of a MERGE with a source that every task has, and writes: no row leaves Python. Worker.

Input: groups of scan tasks, of which a Spark task gets its number, each a whole data file; and the rows of the source.
Output: one `TaskCommit`, with the rows of the source that matched. `dml.engine.broadcast_merge` decides whether a task,
and which, or the driver inserts the rows without a match.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyroaring import BitMap

from dml.errors import DmlError, ExecutionError
from dml.model.broadcast_join import BroadcastClause, BroadcastJoin, source_id
from dml.model.columns import FILE_ORDINAL, POS, ROW_OPERATION, RowOperation, value_name
from dml.model.row_conditions import RowCondition, RowTerm
from dml.model.write_task import TaskCommit
from dml.read.computed_rows import computed, condition_filter
from dml.read.key_index import NOWHERE, KeyIndex, Places
from dml.read.packed_groups import PackedGroups
from dml.read.projection import arrow_type
from dml.read.reader import KeyLookup
from dml.write.output_files import current_task
from dml.write.run import TASK_COMMIT_SCHEMA, write_task
from dml.write.source_parts import SentBatch
from dml.write.writer_spec import WriterSpec

__all__ = [
    "BroadcastMergeTask",
    "BroadcastProbe",
    "BroadcastRows",
    "Joined",
    "columns_that_match",
    "matched_rows",
    "serialized",
]

Mask = npt.NDArray[np.bool_]
Columns = Mapping[int, pa.Array]
UNDECIDED = -1

BATCH_ROWS: Final = 1 << 17
"""So many new rows are made at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastRows:
    """The rows of a source, as they travel.

    Attributes:
        join: What to do with them.
        rows: The keys in the order of `join.key_ids`, then the columns with `source_id`s, in order.
        case_sensitive: How names in conditions match.
    """

    join: BroadcastJoin
    rows: SentBatch
    case_sensitive: bool


class TakenColumns(Mapping[int, pa.Array]):
    """Rows of columns, which are taken when a column is asked for: a clause reads few of them.

    Args:
        sides: The columns of each side, by field id, and which of their rows.
    """

    def __init__(self, sides: Sequence[tuple[Mapping[int, pa.Array], pa.Array]]) -> None:
        self._sides = sides
        self._taken: dict[int, pa.Array] = {}

    def __getitem__(self, field_id: int) -> pa.Array:
        """The rows of a column."""
        found = self._taken.get(field_id)
        if found is None:
            columns, rows = next(side for side in self._sides if field_id in side[0])
            found = self._taken[field_id] = columns[field_id].take(rows)
        return found

    def __iter__(self) -> Iterator[int]:
        """The field ids."""
        return (field_id for columns, _ in self._sides for field_id in columns)

    def __len__(self) -> int:
        """How many columns there are."""
        return sum(len(columns) for columns, _ in self._sides)


class Joined:
    """The source, and what has become of its rows in one task.

    Args:
        source: The rows.
        spec: The write.
        read_ids: Field ids of the target's columns, as they are read.
    """

    def __init__(self, source: BroadcastRows, spec: WriterSpec, read_ids: Sequence[int]) -> None:
        self.join, self.layout = source.join, spec.layout
        self.read_ids = tuple(read_ids)
        batch = source.rows.batch()
        keys = len(self.join.key_ids)
        self.keys: Sequence[pa.Array] = batch.columns[:keys]
        self.columns: dict[int, pa.Array] = {
            source_id(place): column for place, column in enumerate(batch.columns[keys:])
        }
        self.rows = batch.num_rows
        self.matched = np.zeros(self.rows, np.bool_)
        schema = Schema.model_validate_json(spec.context.schema_json)
        self.types = [
            arrow_type(schema.find_field(field_id).field_type, spark=True) for field_id in self.layout.value_ids
        ]
        conditions = [self.join.condition, *(clause.condition for clause in (*self.join.matched, *self.join.inserted))]
        self.filters = {
            id(condition): condition_filter(condition, schema, case_sensitive=source.case_sensitive)
            for condition in conditions
            if condition is not None
        }

    @cached_property
    def index(self) -> KeyIndex:
        """Where each key is."""
        return KeyIndex(self.keys)

    @cached_property
    def key_lookup(self) -> KeyLookup:
        """The same keys for the reader, which decodes other columns only if one of the keys occurs."""
        return KeyLookup(column_ids=self.join.key_ids, contains=self.index.contains)

    def matched_rows(self) -> bytes:
        """The rows of the source that matched, as a serialized `BitMap`."""
        return serialized(np.flatnonzero(self.matched))

    def test(self, condition: RowCondition | None, columns: Columns, rows: int) -> Mask:
        """For which rows a condition is true."""
        found = None if condition is None else self.filters[id(condition)]
        if found is None:
            return np.ones(rows, np.bool_)
        mask: Mask = found.mask(columns).to_numpy(zero_copy_only=False)
        return mask

    def delta(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows of the target as a delta (`dml.model.columns`).

        Raises:
            DataError: of kind `OVERFLOW`: a number does not fit its type.
        """
        for batch in batches:
            columns, place = self.matches(batch)
            rows = len(place[0])
            if rows and self.join.matched:
                yield self.changes(self.join.matched, columns, rows, place, RowOperation.MATCHED)

    def matches(self, batch: pa.RecordBatch) -> tuple[Columns, tuple[pa.Array, pa.Array]]:
        """The rows of a batch that match: the columns of both sides, and where the rows are."""
        places = self.index.places([batch.column(self.read_ids.index(key)) for key in self.join.key_ids])
        keep = np.flatnonzero(places != NOWHERE)
        columns = self.joined(batch, places, keep)
        if self.join.condition is not None and len(keep):
            matching = self.test(self.join.condition, columns, len(keep))
            if not matching.all():
                keep = keep[matching]
                columns = self.joined(batch, places, keep)
        self.matched[places[keep]] = True
        taken = pa.array(keep)
        return columns, (batch.column(FILE_ORDINAL).take(taken), batch.column(POS).take(taken))

    def joined(self, batch: pa.RecordBatch, places: Places, keep: Places) -> Columns:
        """The columns of both sides.

        Args:
            batch: Rows of the target.
            places: Where the row of the source is that each may match.
            keep: Which of them are wanted.
        """
        target = {field_id: batch.column(place) for place, field_id in enumerate(self.read_ids)}
        return TakenColumns(((target, pa.array(keep)), (self.columns, pa.array(places[keep]))))

    def unmatched(self, matched: BitMap) -> Places:
        """The rows of the source that match nothing.

        Args:
            matched: Those that match.
        """
        left = np.ones(self.rows, np.bool_)
        left[np.asarray(matched.to_array(), np.int64)] = False
        return np.flatnonzero(left)

    def inserts(self, places: Places) -> Iterator[tuple[pa.RecordBatch, Places]]:
        """Rows of the source, as a delta; without those that no clause inserts.

        Args:
            places: The rows, which match nothing.

        Yields:
            Batches with a row at least, and which rows of the source they are of.
        """
        for first in range(0, len(places) if self.join.inserted else 0, BATCH_ROWS):
            part = places[first : first + BATCH_ROWS]
            columns = TakenColumns(((self.columns, pa.array(part)),))
            place = [pa.nulls(len(part), pa.int32()), pa.nulls(len(part), pa.int64())]
            delta = self.changes(self.join.inserted, columns, len(part), place, RowOperation.MATCHED)
            wanted = pc.equal(delta.column(ROW_OPERATION), int(RowOperation.INSERT))
            if not pc.all(wanted).as_py():
                delta, part = delta.filter(wanted), part[wanted.to_numpy(zero_copy_only=False)]
            if len(part):
                yield delta, part

    def changes(
        self,
        clauses: Sequence[BroadcastClause],
        columns: Columns,
        rows: int,
        place: Sequence[pa.Array],
        otherwise: RowOperation,
    ) -> pa.RecordBatch:
        """What clauses make of rows.

        Args:
            clauses: The clauses, of which the first counts whose condition is true.
            columns: The columns of the rows.
            rows: How many rows there are.
            place: Their files and positions.
            otherwise: The operation of a row that no clause wants.
        """
        chosen = np.full(rows, UNDECIDED, np.int64)
        for number, clause in enumerate(clauses):
            open_rows = chosen == UNDECIDED
            chosen[open_rows & self.test(clause.condition, columns, rows)] = number
        codes = np.array([*(int(clause.operation) for clause in clauses), int(otherwise)], np.int32)
        values = [
            self.value([clause.values[index] for clause in clauses], chosen, columns, rows, index)
            for index in range(len(self.layout.value_ids))
        ]
        names = [ROW_OPERATION, FILE_ORDINAL, POS, *map(value_name, range(len(values)))]
        return pa.RecordBatch.from_arrays([pa.array(codes[chosen]), *place, *values], names=names)

    def value(
        self, terms: Sequence[RowTerm | None], chosen: npt.NDArray[np.int64], columns: Columns, rows: int, index: int
    ) -> pa.Array:
        """A value column: the term of the clause that was chosen for a row; NULL where it has none."""
        found: pa.Array | None = None
        last: RowTerm | None = None
        for number, term in enumerate(terms):
            if term is None or term == last:
                continue
            array = computed(term, columns, rows)
            found = array if found is None else pc.if_else(pa.array(chosen >= number), array, found)
            last = term
        return pa.nulls(rows, self.types[index]) if found is None else found


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastMergeTask:
    """What Spark's tasks run. It can be pickled.

    Attributes:
        groups: What they read: rows that may match, with `FILE_ORDINAL` and `POS` behind their columns.
        read_ids: Field ids of the columns that are read.
        source: The rows of the source.
        is_alone: Whether it is the only task: it inserts the rows that match nothing, as nobody else has any.
        inserted: Which rows of the source a task inserts, by the task's number, as serialized `BitMap`s.
        spec: The write.
    """

    groups: PackedGroups
    read_ids: tuple[int, ...]
    source: BroadcastRows
    is_alone: bool
    inserted: Mapping[int, bytes]
    spec: WriterSpec

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row with one binary column: the `TaskCommit` of the task whose number is in the first column."""
        joined = Joined(self.source, self.spec, self.read_ids)
        commit = write_task(self.delta(joined, list(numbers)), self.spec, current_task())
        if commit.failure is None and joined.join.inserted and not self.is_alone:
            commit = replace(commit, matched_source_rows=joined.matched_rows())
        yield pa.record_batch([pa.array([commit.to_bytes()], pa.binary())], schema=TASK_COMMIT_SCHEMA)

    def delta(self, joined: Joined, numbers: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The delta of the task."""
        yield from joined.delta(self.groups.read(numbers, joined.key_lookup))
        if self.is_alone:
            yield from (delta for delta, _ in joined.inserts(np.flatnonzero(~joined.matched)))
        for number in (number for batch in numbers for number in batch.column(0).to_pylist()):
            if number in self.inserted:
                places = BitMap.deserialize(self.inserted[number]).to_array()
                yield from (delta for delta, _ in joined.inserts(np.asarray(places, np.int64)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BroadcastProbe:
    """Finds out which rows of the source match any of the target, without changing anything. It can be pickled.

    Attributes:
        groups: What it reads: as `BroadcastMergeTask`, but no more columns than to tell which rows match.
        read_ids: Field ids of the columns that are read.
        source: The rows of the source.
        spec: The write.
    """

    groups: PackedGroups
    read_ids: tuple[int, ...]
    source: BroadcastRows
    spec: WriterSpec

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row with one binary column: a `TaskCommit` that says which rows of the source match, or why not."""
        joined = Joined(self.source, self.spec, self.read_ids)
        try:
            for batch in self.groups.read(numbers, joined.key_lookup):
                joined.matches(batch)
            commit = TaskCommit(matched_source_rows=joined.matched_rows())
        except DmlError as error:
            if isinstance(error, ExecutionError):
                raise  # another attempt may succeed
            commit = TaskCommit(failure=error)
        yield pa.record_batch([pa.array([commit.to_bytes()], pa.binary())], schema=TASK_COMMIT_SCHEMA)


def columns_that_match(source: BroadcastRows, spec: WriterSpec) -> tuple[int, ...]:
    """Field ids of the target's columns that tell whether a row matches. Driver.

    Args:
        source: The source.
        spec: The write.
    """
    schema, condition = Schema.model_validate_json(spec.context.schema_json), source.join.condition
    found = None if condition is None else condition_filter(condition, schema, case_sensitive=source.case_sensitive)
    columns = set() if found is None else {field_id for field_id in found.columns if field_id >= 0}
    return tuple(sorted(columns.union(source.join.key_ids)))


def matched_rows(commits: Sequence[TaskCommit]) -> BitMap:
    """Which rows of the source match, by all tasks. Driver.

    Args:
        commits: What the tasks reported.
    """
    return (
        BitMap.union(*(BitMap.deserialize(commit.matched_source_rows) for commit in commits)) if commits else BitMap()
    )


def serialized(places: Places) -> bytes:
    """Ascending places as a serialized `BitMap`."""
    found: bytes = BitMap(places.astype(np.uint32)).serialize()
    return found
