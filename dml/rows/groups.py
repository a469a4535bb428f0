"""Run the `Groups` program: partial aggregation.

Input: the record batches of a scan. Output: one row per group, with its grouping columns and partial aggregates. A
group may occur several times, because Spark combines partial aggregates anyway. That bounds memory for any number of
groups: where groups are hardly fewer than rows, rows are passed on as groups of one.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar

import pyarrow as pa

from dml import limits
from dml.rows.program import Aggregate, AggregateFunction, Groups

__all__ = ["partial_groups"]


FUNCTIONS: Final = {
    AggregateFunction.COUNT_ROWS: "count_all",
    AggregateFunction.COUNT: "count",
    AggregateFunction.MIN: "min",
    AggregateFunction.MAX: "max",
    AggregateFunction.SUM: "sum",
}
"""Arrow's functions over rows."""

COMBINING: Final = {**FUNCTIONS, AggregateFunction.COUNT_ROWS: "sum", AggregateFunction.COUNT: "sum"}
"""Arrow's functions over partial aggregates."""

Part = TypeVar("Part", pa.RecordBatch, pa.Table)


def partial_groups(batches: Iterable[pa.RecordBatch], schema: pa.Schema, groups: Groups) -> Iterator[pa.Table]:
    """Aggregate rows in bounded memory.

    Args:
        batches: The rows.
        schema: Their columns.
        groups: The program.

    Yields:
        Columns `group0`, ... and `value0`, ...; a group may be in several tables. Without grouping columns, one row of
        values.
    """
    kept: Parts[pa.Table] = Parts()
    rest = iter(batches)
    for rows in in_large_tables(rest):
        found = groups_of_rows(rows, groups)
        if groups.by and Parts(rows).is_full and found.num_rows > limits.MAX_GROUP_SHARE * rows.num_rows:
            yield from (*kept.parts, found)
            yield from (rows_as_groups(batch, groups) for batch in rest)
            return
        kept.add(found)
        if kept.is_full:
            kept = Parts(combine(kept.parts, groups))
            if groups.by and kept.is_full:
                yield from kept.parts
                kept = Parts()
    if not kept.parts and not groups.by:
        kept.add(groups_of_rows(schema.empty_table(), groups))
    if kept.parts:
        yield combine(kept.parts, groups)


def in_large_tables(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Concatenate batches into tables that are worth a call of `group_by`."""
    waiting: Parts[pa.RecordBatch] = Parts()
    for batch in batches:
        waiting.add(batch)
        if waiting.is_full:
            yield pa.Table.from_batches(waiting.parts)
            waiting = Parts()
    if waiting.parts:
        yield pa.Table.from_batches(waiting.parts)


class Parts(Generic[Part]):
    """Parts of a table and their size, which is measured once per part: there may be thousands of parts."""

    def __init__(self, *parts: Part) -> None:
        self.parts: list[Part] = []
        self._rows = self._nbytes = 0
        for part in parts:
            self.add(part)

    def add(self, part: Part) -> None:
        self.parts.append(part)
        self._rows += part.num_rows
        self._nbytes += part.nbytes

    @property
    def is_full(self) -> bool:
        """Whether the parts fill a call of `group_by`."""
        return self._rows >= limits.GROUP_BATCH_ROWS or self._nbytes >= limits.GROUP_BATCH_BYTES


def groups_of_rows(rows: pa.Table, groups: Groups) -> pa.Table:
    keys = [f"group{number}" for number in range(len(groups.by))]
    read = sorted({each.place for each in groups.aggregates if each.place is not None})
    columns = [rows.column(place) for place in (*groups.by, *read)]
    named = pa.table(columns, [*keys, *(f"column{place}" for place in read)]) if columns else rows
    asked = [
        ("" if each.place is None else f"column{each.place}", FUNCTIONS[each.function]) for each in groups.aggregates
    ]
    return aggregate(named, keys, asked)


def rows_as_groups(batch: pa.RecordBatch, groups: Groups) -> pa.Table:
    columns = {f"group{number}": batch.column(place) for number, place in enumerate(groups.by)}
    for number, each in enumerate(groups.aggregates):
        columns[f"value{number}"] = value_of_row(batch, each)
    return pa.table(columns)


def value_of_row(batch: pa.RecordBatch, each: Aggregate) -> pa.Array:
    """Return the partial aggregate of each row as a group of one."""
    if each.place is None:
        return pa.repeat(1, batch.num_rows)
    column = batch.column(each.place)
    match each.function:
        case AggregateFunction.COUNT:
            return column.is_valid().cast(pa.int64())
        case AggregateFunction.SUM if pa.types.is_integer(column.type):
            return column.cast(pa.int64())
        case _:
            return column


def combine(parts: list[pa.Table], groups: Groups) -> pa.Table:
    """Combine the partial aggregates of several tables."""
    if len(parts) == 1:
        return parts[0]
    keys = [f"group{number}" for number in range(len(groups.by))]
    asked = [(f"value{number}", COMBINING[each.function]) for number, each in enumerate(groups.aggregates)]
    return aggregate(pa.concat_tables(parts), keys, asked)


def aggregate(table: pa.Table, keys: list[str], asked: list[tuple[str, str]]) -> pa.Table:
    """Group a table and aggregate each group.

    Args:
        table: The rows.
        keys: Names of columns.
        asked: The column of each value, empty for a row count, and Arrow's name of the function.
    """
    calls: list[tuple[str | list[str], str]] = [(name or [], function) for name, function in dict.fromkeys(asked)]
    found = table.group_by(keys, use_threads=False).aggregate(calls)
    values = [found.column(f"{name}_{function}" if name else function) for name, function in asked]
    names = [*keys, *(f"value{number}" for number in range(len(values)))]
    return pa.table([*(found.column(key) for key in keys), *values], names)
