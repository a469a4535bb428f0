"""Row maps: found is what was written, and a damaged map is none."""

import json

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dml.deletes.position_index import PositionDeleteIndex
from dml.model.row_map import RowMap
from dml.model.write_task import RowOrigins, origins

ROWS = st.lists(st.tuples(st.integers(3, 5), st.integers(0, 40)), min_size=1, max_size=40, unique=True)
PATHS = {3: "s3://b/three.parquet", 4: "s3://b/four.parquet", 5: "s3://b/five.parquet"}
NEW = "s3://b/new.parquet"


def row_map(rows: list[tuple[int, int]]) -> RowMap:
    """The map of a file with these rows, as ordinals and positions, each a run of its own."""
    firsts = np.concatenate([origins(ordinal, position, 1) for ordinal, position in rows])
    return RowMap.of(RowOrigins.of(NEW, firsts, np.ones(len(rows), np.int64)), PATHS)


@given(rows=ROWS, wanted=st.sets(st.integers(0, 40)))
def test_rows_are_found_where_they_went(rows: list[tuple[int, int]], wanted: set[int]) -> None:
    read = RowMap.from_text(row_map(rows).to_text().encode(), NEW, len(rows))
    assert read is not None
    assert set(read.sources) == {PATHS[ordinal] for ordinal, _ in rows}
    for ordinal, path in PATHS.items():
        there, others = read.find(path, PositionDeleteIndex.from_positions(wanted))
        expected = {place for place, (of, position) in enumerate(rows) if of == ordinal and position in wanted}
        assert set(there.to_numpy().tolist()) == expected
        missing = wanted - {position for of, position in rows if of == ordinal}
        assert set(others.to_numpy().tolist()) == missing


def test_long_runs_are_one() -> None:
    two = RowOrigins.of(NEW, np.array([3 << 40, 4 << 40]), np.array([1_000_000, 2_000_000]))
    text = RowMap.of(two, PATHS).to_text()
    assert len(text) < 300
    read = RowMap.from_text(text.encode(), NEW, 3_000_000)
    assert read is not None
    there, _ = read.find(PATHS[4], PositionDeleteIndex.from_positions([0, 1_999_999]))
    assert there.to_numpy().tolist() == [1_000_000, 2_999_999]


WRONG = {
    "another format": {"format": 2},
    "another file": {"data-file": "s3://b/other.parquet"},
    "too many runs": {"runs": 5},
    "runs below zero": {"runs": -1},
    "runs in words": {"runs": "two"},
    "fewer sources": {"sources": [PATHS[3]]},
    "no sources": {"sources": None},
    "not Base64": {"origins": "@@"},
    "not compressed": {"origins": "AAAA"},
    "no bytes": {"origins": ""},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_what_does_not_fit_is_no_map(change: dict[str, object]) -> None:
    found = json.loads(row_map([(3, 0), (3, 7), (4, 1)]).to_text())
    assert RowMap.from_text(json.dumps(found).encode(), NEW, 3) is not None
    assert RowMap.from_text(json.dumps({**found, **change}).encode(), NEW, 3) is None


@pytest.mark.parametrize(
    ("firsts", "lengths"),
    [
        ([0, 0], [1, 2]),  # a row twice
        ([0, 5], [3, -1]),
        ([0, 5], [0, 3]),
        ([0, 5], [1, 1]),  # a row is missing
        ([-1, 5], [1, 2]),
        ([0, 2 << 40], [1, 2]),  # there are two old files
        ([0, 5], [2**62, -(2**62) + 3]),
    ],
)
def test_impossible_origins_are_no_map(firsts: list[int], lengths: list[int]) -> None:
    made = RowOrigins.of(NEW, np.array(firsts), np.array(lengths))
    text = RowMap(sources=(PATHS[3], PATHS[4]), origins=made).to_text()
    assert RowMap.from_text(text.encode(), NEW, 3) is None


@given(data=st.binary(max_size=60))
@example(data=b"[" * 100_000)
def test_any_bytes_are_read(data: bytes) -> None:
    assert RowMap.from_text(data, NEW, 3) is None
