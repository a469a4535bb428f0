"""Groups of rows instead of the rows. Worker.

Input: the record batches of a scan. Output: record batches with a row for a group: its columns, then what was computed
of its rows. A group may come several times: Spark puts together what tasks give, and so what one task gives twice.
So little memory is enough, however many groups there are: where they are hardly fewer than the rows, no more are made.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import pyarrow as pa

from dml.model.aggregation import PartialAggregate, PartialAggregation, PartialFunction
from dml.model.scan_task import ScanContext, ScanTask
from dml.read.packed_groups import settle, unpack
from dml.read.reader import TaskReader

__all__ = ["AggregatingReader", "partial_groups"]

ROWS_AT_ONCE: Final = 1 << 18
"""So many rows, or groups, are put together in one call."""

BYTES_AT_ONCE: Final = 64 << 20
"""Or so many bytes, where rows are long."""

WORTH_MAKING: Final = 0.5
"""Where groups are more of the rows than that, the rows go as groups of one: Spark has to make the groups anyway."""

FUNCTIONS: Final = {
    PartialFunction.ROWS: "count_all",
    PartialFunction.FILLED: "count",
    PartialFunction.LEAST: "min",
    PartialFunction.GREATEST: "max",
    PartialFunction.SUM: "sum",
}
"""Arrow's names of them, for rows."""

TOGETHER: Final = {**FUNCTIONS, PartialFunction.ROWS: "sum", PartialFunction.FILLED: "sum"}
"""The same, for what was computed of parts of a group."""

Part = TypeVar("Part", pa.RecordBatch, pa.Table)


@dataclass(frozen=True, slots=True, kw_only=True)
class AggregatingReader:
    """Reads packed groups of scan tasks, as `GroupReader` does, and gives groups of their rows.

    Attributes:
        context: The packed `ScanContext`.
        aggregation: What is computed of the rows.
    """

    context: bytes
    aggregation: PartialAggregation

    def __call__(self, groups: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Reads the packed groups that stand in the first column."""
        settle()
        context: ScanContext = unpack(self.context)
        reader = TaskReader(context)
        for batch in groups:
            for group in batch.column(0).to_pylist():
                tasks: tuple[ScanTask, ...] = unpack(group)
                rows = (found for task in tasks for found in reader.read(task))
                for found in partial_groups(rows, reader.output_schema, self.aggregation):
                    yield from found.to_batches(max_chunksize=context.batch_rows)


def partial_groups(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, aggregation: PartialAggregation
) -> Iterator[pa.Table]:
    """The groups of rows.

    Args:
        batches: The rows.
        schema: Their columns.
        aggregation: What is computed of them.

    Yields:
        Columns `group0`, ... and `value0`, ...; a group may be in several tables. One row, of nothing but the values,
        where there is one group.
    """
    kept: Pile[pa.Table] = Pile()
    rest = iter(batches)
    for rows in gathered(rest):
        found = groups_of_rows(rows, aggregation)
        if aggregation.groups and Pile(rows).is_much and found.num_rows > WORTH_MAKING * rows.num_rows:
            yield from (*kept.parts, found)
            yield from (rows_as_groups(batch, aggregation) for batch in rest)
            return
        kept.add(found)
        if kept.is_much:
            kept = Pile(put_together(kept.parts, aggregation))
            if aggregation.groups and kept.is_much:
                yield from kept.parts
                kept = Pile()
    if not kept.parts and not aggregation.groups:
        kept.add(groups_of_rows(schema.empty_table(), aggregation))
    if kept.parts:
        yield put_together(kept.parts, aggregation)


def gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Batches end to end, until they are worth a call."""
    waiting: Pile[pa.RecordBatch] = Pile()
    for batch in batches:
        waiting.add(batch)
        if waiting.is_much:
            yield pa.Table.from_batches(waiting.parts)
            waiting = Pile()
    if waiting.parts:
        yield pa.Table.from_batches(waiting.parts)


class Pile(Generic[Part]):
    """Rows in parts. Each is measured once, when it is added: there may be thousands of them.

    Args:
        parts: The first ones.

    Attributes:
        parts: All that were added.
    """

    def __init__(self, *parts: Part) -> None:
        self.parts: list[Part] = []
        self._rows = self._nbytes = 0
        for part in parts:
            self.add(part)

    def add(self, part: Part) -> None:
        """One more."""
        self.parts.append(part)
        self._rows += part.num_rows
        self._nbytes += part.nbytes

    @property
    def is_much(self) -> bool:
        """Whether the rows are as many, or as long, as are put together at once."""
        return self._rows >= ROWS_AT_ONCE or self._nbytes >= BYTES_AT_ONCE


def groups_of_rows(rows: pa.Table, aggregation: PartialAggregation) -> pa.Table:
    """The groups of some rows."""
    keys = [f"group{number}" for number in range(len(aggregation.groups))]
    read = sorted({each.place for each in aggregation.aggregates if each.place is not None})
    columns = [rows.column(place) for place in (*aggregation.groups, *read)]
    named = pa.table(columns, [*keys, *(f"column{place}" for place in read)]) if columns else rows
    asked = [
        ("" if each.place is None else f"column{each.place}", FUNCTIONS[each.function])
        for each in aggregation.aggregates
    ]
    return aggregated(named, keys, asked)


def rows_as_groups(batch: pa.RecordBatch, aggregation: PartialAggregation) -> pa.Table:
    """Rows as groups of one."""
    columns = {f"group{number}": batch.column(place) for number, place in enumerate(aggregation.groups)}
    for number, each in enumerate(aggregation.aggregates):
        columns[f"value{number}"] = value_of_row(batch, each)
    return pa.table(columns)


def value_of_row(batch: pa.RecordBatch, aggregate: PartialAggregate) -> pa.Array:
    """What is computed of groups of one row."""
    if aggregate.place is None:
        return pa.repeat(1, batch.num_rows)
    column = batch.column(aggregate.place)
    match aggregate.function:
        case PartialFunction.FILLED:
            return column.is_valid().cast(pa.int64())
        case PartialFunction.SUM if pa.types.is_integer(column.type):
            return column.cast(pa.int64())
        case _:
            return column


def put_together(parts: list[pa.Table], aggregation: PartialAggregation) -> pa.Table:
    """The groups of tables that may each have some of the same."""
    if len(parts) == 1:
        return parts[0]
    keys = [f"group{number}" for number in range(len(aggregation.groups))]
    asked = [(f"value{number}", TOGETHER[each.function]) for number, each in enumerate(aggregation.aggregates)]
    return aggregated(pa.concat_tables(parts), keys, asked)


def aggregated(table: pa.Table, keys: list[str], asked: list[tuple[str, str]]) -> pa.Table:
    """The keys of a table, and what is asked of the rows of each: a function of a column, or of rows.

    Args:
        table: The rows.
        keys: Names of columns.
        asked: For each value the name of a column, or nothing, and Arrow's name of the function.
    """
    calls: list[tuple[str | list[str], str]] = [(name or [], function) for name, function in dict.fromkeys(asked)]
    found = table.group_by(keys, use_threads=False).aggregate(calls)
    values = [found.column(f"{name}_{function}" if name else function) for name, function in asked]
    names = [*keys, *(f"value{number}" for number in range(len(values)))]
    return pa.table([*(found.column(key) for key in keys), *values], names)
