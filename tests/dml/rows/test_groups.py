"""Groups of rows: whatever is put together when, what Spark makes of them is what all rows say."""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import limits
from dml.rows import groups
from dml.rows.groups import partial_groups
from dml.rows.program import Aggregate, AggregateFunction, Groups

SCHEMA = pa.schema([("s", pa.string()), ("i", pa.int32()), ("x", pa.binary())])
ROW = st.tuples(
    st.none() | st.sampled_from(["", "a", "é"]), st.none() | st.integers(-3, 3), st.none() | st.binary(max_size=2)
)
AGGREGATES = (
    Aggregate(function=AggregateFunction.COUNT_ROWS),
    Aggregate(function=AggregateFunction.COUNT, place=1),
    Aggregate(function=AggregateFunction.SUM, place=1),
    Aggregate(function=AggregateFunction.MIN, place=2),
    Aggregate(function=AggregateFunction.MAX, place=0),
)


def batch_of(rows):
    return pa.RecordBatch.from_arrays(
        [pa.array([row[place] for row in rows], field.type) for place, field in enumerate(SCHEMA)], schema=SCHEMA
    )


def computed(rows):
    """What the aggregates are of some rows."""
    filled = [[row[place] for row in rows if row[place] is not None] for place in range(3)]
    return (
        len(rows),
        len(filled[1]),
        sum(filled[1]) if filled[1] else None,
        min(filled[2], default=None),
        max(filled[0], key=str.encode, default=None),
    )


def together(parts):
    """What Spark makes of parts of a group."""
    columns = [[value for value in column if value is not None] for column in zip(*parts, strict=True)]
    combine: tuple[Any, ...] = (sum, sum, sum, min, max)
    return tuple(one(column) if column else None for one, column in zip(combine, columns, strict=True))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(ROW, max_size=5), max_size=6), st.sampled_from([(), (0,), (1,), (0, 1), (2,)]), st.data())
def test_groups_put_together_are_those_of_all_rows(batches, by, data):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "GROUP_BATCH_ROWS", data.draw(st.integers(1, 12)))
        program = Groups(by=by, aggregates=AGGREGATES)
        tables = list(partial_groups(map(batch_of, batches), SCHEMA, program))
    expected, found = defaultdict(list), defaultdict(list)
    for row in (row for rows in batches for row in rows):
        expected[tuple(row[place] for place in by)].append(row)
    for table in tables:
        names = [*(f"group{number}" for number in range(len(by))), *(f"value{number}" for number in range(5))]
        assert table.column_names == names
        for row in table.to_pylist():
            values = tuple(row.values())
            found[values[: len(by)]].append(values[len(by) :])
    if not by and not expected:
        assert found == {(): [(0, 0, None, None, None)]}
        return
    assert {key: together(parts) for key, parts in found.items()} == {
        key: computed(rows) for key, rows in expected.items()
    }


def test_where_groups_are_hardly_fewer_than_rows_the_rows_go_as_groups(monkeypatch):
    monkeypatch.setattr(limits, "GROUP_BATCH_ROWS", 10)
    program = Groups(by=(1,), aggregates=AGGREGATES)
    given_so_far = []

    def batches():
        for start in range(0, 100, 10):
            yield batch_of([("a", number, b"") for number in range(start, start + 10)])
            given_so_far.append(start)

    taken = partial_groups(batches(), SCHEMA, program)
    assert next(taken).num_rows == 10
    assert given_so_far == []
    rest = list(taken)
    assert [table.num_rows for table in rest] == [10] * 9
    assert rest[-1].to_pylist()[-1] == {
        "group0": 99,
        "value0": 1,
        "value1": 1,
        "value2": 99,
        "value3": b"",
        "value4": "a",
    }


def test_few_groups_stay_until_the_end(monkeypatch):
    monkeypatch.setattr(limits, "GROUP_BATCH_BYTES", 100)
    program = Groups(by=(0,), aggregates=AGGREGATES[:2])
    (found,) = partial_groups((batch_of([("a", 1, b"x" * 50), ("é", 1, b"")]) for _ in range(50)), SCHEMA, program)
    assert sorted(found.to_pydict()["value0"]) == [50, 50]


def test_each_batch_is_measured_once(monkeypatch):
    """Row groups may be of one row each: to measure all that wait with each would take longer than to read them."""
    measured = []

    class Batch:
        num_rows = 1

        @property
        def nbytes(self):
            measured.append(self)
            return 10

    monkeypatch.setattr(limits, "GROUP_BATCH_BYTES", 10_000)
    monkeypatch.setattr(groups, "pa", SimpleNamespace(Table=SimpleNamespace(from_batches=len)))
    assert list(groups.in_large_tables(Batch() for _ in range(2_500))) == [1_000, 1_000, 500]
    assert len(measured) == 2_500
