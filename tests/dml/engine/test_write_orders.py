"""Files in the table's write order: every transform, direction and place of NULLs, in the rows of an INSERT.

What transforms make of values is worked out by Python itself; buckets by PyIceberg.
"""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import StringType

from dml.engine import insert
from tests.lake import Lake

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, k INT, s STRING, n DECIMAL(9, 1), d DATE, ts TIMESTAMP"

ROWS = 240
SOURCE = (
    "SELECT id, nullif(CAST(id * 7 % 5 AS INT), 4) - 1 AS k, "
    "concat(chr(97 + id * 11 % 6), 'ö', nullif(id % 4, 3)) AS s, "
    "CAST(nullif(id * 13 % 41, 9) - 20.5 AS DECIMAL(9, 1)) AS n, "
    "date_add(DATE'1969-11-20', CAST(nullif(id * 17 % 83, 3) AS INT)) AS d, "
    "timestamp_seconds(nullif(id * 29 % 59, 5) * 1800 - 7200) AS ts "
    f"FROM range(0, {ROWS}, 1, 4)"
)
"""Each of its tasks has rows of the whole range of each column: also NULLs, negative numbers, times before 1970."""

TRANSFORMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "k": ("k", lambda value: value),
    "s": ("s", lambda value: value.encode()),
    "bucket(3, s)": ("s", BucketTransform(3).transform(StringType())),
    "truncate(2, s)": ("s", lambda value: value[:2].encode()),
    "truncate(100, n)": ("n", lambda value: math.floor(value / 10)),  # a hundred tenths
    "years(d)": ("d", lambda value: value.year),
    "months(d)": ("d", lambda value: (value.year, value.month)),
    "days(ts)": ("ts", lambda value: value.astimezone(UTC).date()),
    "hours(ts)": ("ts", lambda value: value.astimezone(UTC).replace(minute=0)),
    "void(k)": ("k", lambda _: None),
}
WAYS = ("ASC NULLS FIRST", "DESC NULLS LAST", "ASC NULLS LAST", "DESC NULLS FIRST")
ORDERS = [
    ((first, way), (second, other))
    for (first, second), (way, other) in itertools.product(
        zip(TRANSFORMS, [*list(TRANSFORMS)[1:], "k"], strict=True), zip(WAYS[:2], WAYS[2:], strict=True)
    )
]
"""Each transform in each way once, the first field or the second."""


@dataclass(frozen=True)
class Key:
    """What a field of an order makes of a row, as it compares."""

    value: Any
    way: str

    def __lt__(self, other: "Key") -> bool:
        if self.value is None or other.value is None:
            first, last = (self, other) if self.way.endswith("FIRST") else (other, self)
            return first.value is None and last.value is not None
        low, high = (self, other) if self.way.startswith("ASC") else (other, self)
        return bool(low.value < high.value)


def keys(row: dict[str, Any], order: tuple[tuple[str, str], ...]) -> list[Key]:
    found = []
    for text, way in order:
        column, transform = TRANSFORMS[text]
        found.append(Key(None if row[column] is None else transform(row[column]), way))
    return found


@pytest.fixture
def plain_lake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake in which neither Spark puts small tasks together nor the driver their rows."""
    monkeypatch.setattr(insert, "scatters", lambda *_, **__: False)
    conf = lake.session.spark.conf
    before = conf.get("spark.sql.adaptive.enabled")
    conf.set("spark.sql.adaptive.enabled", "false")
    yield lake
    conf.set("spark.sql.adaptive.enabled", before)


def test_the_orders_have_every_transform_in_every_way() -> None:
    assert sorted(itertools.chain(*ORDERS)) == sorted(itertools.product(TRANSFORMS, WAYS))


@pytest.mark.proves("F1", "F3")
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(order, marks=[pytest.mark.nightly] if number % 4 in {1, 2} else [])
        for number, order in enumerate(ORDERS)
    ],
    ids=lambda order: ", ".join(" ".join(field) for field in order),
)
def test_files_and_the_rows_in_them_are_in_order(plain_lake: Lake, order: tuple[tuple[str, str], ...]) -> None:
    """The rows of a file are sorted, and no two files have a range of keys, or a key, in common."""
    name = plain_lake.create(COLUMNS)
    plain_lake.session.sql(f"ALTER TABLE {name} WRITE ORDERED BY {', '.join(' '.join(field) for field in order)}")
    plain_lake.session.sql(f"INSERT INTO {name} {SOURCE}")
    sorted_by = plain_lake.table(name).sort_order().order_id
    files = plain_lake.data_files(name)
    assert {file.sort_order_id for file in files} == {sorted_by}
    rows = [pq.read_table(file.path.removeprefix("file://"), partitioning=None).to_pylist() for file in files]
    assert sorted(row["id"] for part in rows for row in part) == list(range(ROWS))
    found = sorted([keys(row, order) for row in part] for part in rows)
    assert len(found) > 1
    assert all(part == sorted(part) for part in found)
    assert all(one[-1] < other[0] for one, other in itertools.pairwise(found))
