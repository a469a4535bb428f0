"""Run the `Changes` program on Arrow arrays: join with the source, select clauses, compute new values."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dml import limits
from dml.rows.evaluate import Columns, CompiledPredicate, evaluate
from dml.rows.lookup import NOWHERE, KeyLookup, Mask, Places
from dml.rows.program import TRUE, Changes, Clause, Column, Value, source_id

__all__ = ["ChangedRows", "ChangesRun"]

UNDECIDED: Final = -1


class TakenColumns(Mapping[int, pa.Array]):
    """Columns with only the selected rows, which are taken on first access: a clause reads few columns.

    Args:
        sides: The columns of each side, by field id, and the places of the rows to take.
    """

    def __init__(self, *sides: tuple[Mapping[int, pa.Array], pa.Array]) -> None:
        self._sides = sides
        self._taken: dict[int, pa.Array] = {}

    def __getitem__(self, field_id: int) -> pa.Array:
        """Return the selected rows of a column."""
        found = self._taken.get(field_id)
        if found is None:
            columns, rows = next(side for side in self._sides if field_id in side[0])
            found = self._taken[field_id] = columns[field_id].take(rows)
        return found

    def __iter__(self) -> Iterator[int]:
        return (field_id for columns, _ in self._sides for field_id in columns)

    def __len__(self) -> int:
        return sum(len(columns) for columns, _ in self._sides)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedRows:
    """A row delta: changes to a batch of the target, or inserts from the source.

    Attributes:
        places: Indices of these rows in the batch or in the source; None for all rows of the batch.
        operations: The operation of each row, int32; 0 if no clause applies.
        values: The new values.
    """

    places: Places | None
    operations: pa.Array
    values: list[pa.Array]


class ChangesRun:
    """A `Changes` program in one task.

    Args:
        program: The program.
        source: The source's rows: the keys, then the columns with `source_id`s, in order. None without a join.

    Attributes:
        matched: The mask of the source's rows that have matched so far.
    """

    def __init__(self, program: Changes, source: pa.RecordBatch | None = None) -> None:
        self.program, self.join = program, program.join
        keys = 0 if self.join is None else len(self.join.key_ids)
        columns = [] if source is None else source.columns
        self._keys: Sequence[pa.Array] = columns[:keys]
        self._source = {source_id(place): column for place, column in enumerate(columns[keys:])}
        self.matched: Mask = np.zeros(0 if source is None else source.num_rows, np.bool_)
        self._matched = compile_clauses(program.matched)
        self._not_matched = compile_clauses(program.not_matched)
        self._not_matched_by_source = compile_clauses(program.not_matched_by_source)
        self._residual = (
            None if self.join is None or self.join.residual == TRUE else CompiledPredicate(self.join.residual)
        )

    @cached_property
    def lookup(self) -> KeyLookup:
        """The source's keys."""
        return KeyLookup(self._keys, () if self.join is None else self.join.null_safe)

    def change(self, columns: Columns, rows: int) -> ChangedRows:
        """Probe a batch, and apply the clauses of `matched` or `not_matched_by_source`.

        Returns all matched rows, and the unmatched rows to which a clause applies.

        Args:
            columns: The columns of the batch.
            rows: Their length.

        Raises:
            UncomputableValueError: Only Spark can compute a value.
        """
        if self.join is None:
            operations, values = self._apply(self._matched, columns, rows)
            return ChangedRows(places=None, operations=operations, values=values)
        found = self.lookup.places([columns[field_id] for field_id in self.join.key_ids])
        keep = np.flatnonzero(found != NOWHERE)
        matching = self._joined(columns, found, keep)
        if self._residual is not None and len(keep):
            mask = self._residual.mask(matching, len(keep))
            if not mask.all():
                keep = keep[mask]
                matching = self._joined(columns, found, keep)
        self.matched[found[keep]] = True
        others = np.delete(np.arange(rows), keep) if self._not_matched_by_source else keep[:0]
        if not self.program.matched:
            keep, matching = keep[:0], {}
        operations, values = self._apply(self._matched, matching, len(keep))
        changed = ChangedRows(places=keep, operations=operations, values=values)
        if not len(others):
            return changed
        unmatched = columns if len(others) == rows else TakenColumns((columns, pa.array(others)))
        return merge_in_row_order(changed, self._taken(self._not_matched_by_source, unmatched, others))

    def _joined(self, columns: Columns, found: Places, keep: Places) -> Columns:
        return TakenColumns((columns, pa.array(keep)), (self._source, pa.array(found[keep])))

    def insert(self, places: Places) -> Iterator[ChangedRows]:
        """Apply the clauses of `not_matched` to rows of the source, and return the rows that a clause takes.

        Args:
            places: The places of the source's rows, which match nothing.

        Raises:
            UncomputableValueError: Only Spark can compute a value.
        """
        for first in range(0, len(places) if self._not_matched else 0, limits.INSERT_BATCH_ROWS):
            part = places[first : first + limits.INSERT_BATCH_ROWS]
            found = self._taken(self._not_matched, TakenColumns((self._source, pa.array(part))), part)
            if len(found.operations):
                yield found

    def _taken(
        self, clauses: Sequence[tuple[Clause, CompiledPredicate]], columns: Columns, places: Places
    ) -> ChangedRows:
        """Return the rows at some places to which a clause applies."""
        operations, values = self._apply(clauses, columns, len(places))
        taken = np.asarray(operations) != 0
        if not taken.all():
            mask = pa.array(taken)
            places, operations, values = places[taken], operations.filter(mask), [v.filter(mask) for v in values]
        return ChangedRows(places=places, operations=operations, values=values)

    def _apply(
        self, clauses: Sequence[tuple[Clause, CompiledPredicate]], columns: Columns, rows: int
    ) -> tuple[pa.Array, list[pa.Array]]:
        """Return the operation and the new values of each row, from the first clause that takes it."""
        chosen = np.full(rows, UNDECIDED, np.int64)
        for number, (_, test) in enumerate(clauses):
            chosen[(chosen == UNDECIDED) & test.mask(columns, rows)] = number
        codes = np.array([*(clause.operation for clause, _ in clauses), 0], np.int32)
        values = [
            self._value([clause.values[index] for clause, _ in clauses], chosen, columns, kind)
            for index, kind in enumerate(self.program.value_types)
        ]
        return pa.array(codes[chosen]), values

    @staticmethod
    def _value(
        values: Sequence[Value | None], chosen: npt.NDArray[np.int64], columns: Columns, kind: pa.DataType
    ) -> pa.Array:
        """Return a column of new values: for each row the value of its clause.

        Each value is computed for all rows, because Arrow evaluates whole columns. An overflow in a row that another
        clause takes therefore sends the statement to Spark as well. A row whose clause has no value for the column
        (a DELETE) gets that of another clause: the writers never read it.
        """
        found: pa.Array | None = None
        last: Value | None = None
        for number, value in enumerate(values):
            if value is None or (isinstance(value, Column) and value == last):  # the literals 0.0 and -0.0 are equal
                continue
            array = evaluate(value, columns, len(chosen))
            found = array if found is None else pc.if_else(pa.array(chosen >= number), array, found)
            last = value
        return pa.nulls(len(chosen), kind) if found is None else found


def compile_clauses(clauses: Sequence[Clause]) -> list[tuple[Clause, CompiledPredicate]]:
    """Return clauses with conditions compiled for many batches."""
    return [(clause, CompiledPredicate(clause.condition)) for clause in clauses]


def merge_in_row_order(matched: ChangedRows, unmatched: ChangedRows) -> ChangedRows:
    """Merge two sets of changes to one batch in row order."""
    assert matched.places is not None
    assert unmatched.places is not None
    places = np.concatenate([matched.places, unmatched.places])
    order = np.argsort(places, kind="stable")

    def merged(one: pa.Array, other: pa.Array) -> pa.Array:
        # A NULL column may name nested fields differently than the source; all batches need the source's type.
        assert other.type == one.type or other.null_count == len(other)
        both = pa.concat_arrays([one, other if other.type == one.type else pa.nulls(len(other), one.type)])
        return both.take(order) if len(one) else both

    return ChangedRows(
        places=places[order],
        operations=merged(matched.operations, unmatched.operations),
        values=list(map(merged, matched.values, unmatched.values)),
    )
