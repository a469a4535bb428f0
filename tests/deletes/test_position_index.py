"""The set of deleted positions, against Python's sets."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.deletes.position_index import MAX_POSITION, PositionDeleteIndex
from dml.errors import DataError

# Positions cluster: near the borders of containers (2**16), of bitmaps (2**32), of the whole, and anywhere.
BORDERS = [0, 2**16, 2**31, 2**32, 2**33, 5 * 2**32, 2**62, MAX_POSITION]
POSITIONS = st.one_of(
    st.builds(
        lambda border, distance: min(max(border + distance, 0), MAX_POSITION),
        st.sampled_from(BORDERS),
        st.integers(-20, 20),
    ),
    st.integers(0, 300_000),
    st.integers(0, MAX_POSITION),
)
POSITION_SETS = st.sets(POSITIONS, max_size=60)


def index_of(positions):
    return PositionDeleteIndex.from_positions(sorted(positions))


@given(st.lists(POSITIONS, max_size=60))
def test_index_holds_each_position_once_and_in_order(positions):
    index = PositionDeleteIndex.from_positions(positions)
    expected = sorted(set(positions))
    assert index.to_numpy().tolist() == expected
    assert index.to_numpy().dtype == np.int64
    assert len(index) == len(expected)
    assert index.is_empty == (not expected)
    assert bool(index) == bool(expected)
    assert (index.min(), index.max()) == ((expected[0], expected[-1]) if expected else (None, None))


@given(st.lists(POSITIONS, max_size=40))
def test_every_way_of_adding_gives_the_same_index(positions):
    one_by_one, ranges = PositionDeleteIndex(), PositionDeleteIndex()
    for position in positions:
        one_by_one.add(position)
        ranges.add_range(position, position + 1)
    values = np.array(positions, dtype=np.int64)
    half = len(positions) // 2
    chunked = pa.chunked_array([pa.array(values[:half]), pa.array(values[half:])], pa.int64())
    for source in (positions, iter(positions), values, values.astype(np.uint64), pa.array(values), chunked):
        assert PositionDeleteIndex.from_positions(source) == one_by_one
    assert ranges == one_by_one


@given(POSITION_SETS, POSITION_SETS)
def test_set_operations_are_those_of_sets(first, second):
    one, other = index_of(first), index_of(second)
    assert one.union(other) == index_of(first | second)
    assert one.intersection(other) == index_of(first & second)
    assert one.difference(other) == index_of(first - second)
    assert (one == other) == (first == second)
    assert (one, other) == (index_of(first), index_of(second)), "the operands are left as they are"
    assert all(one.intersection(other).bitmaps.values()), "no empty bitmap is kept"
    one.update(other)
    assert one == index_of(first | second)
    assert other == index_of(second)


def test_copy_and_union_share_nothing_with_their_source():
    source = index_of({1, 2})
    for taken in (source.copy(), source.union(PositionDeleteIndex()), PositionDeleteIndex().union(source)):
        taken.add(3)
        assert source == index_of({1, 2})


@given(POSITION_SETS, POSITIONS, st.integers(0, 200))
def test_mask_tells_each_row_of_a_batch(positions, near, length):
    start = max(0, near - 100)
    mask = index_of(positions).deleted_mask(start, length)
    assert mask.dtype == np.bool_
    assert mask.tolist() == [position in positions for position in range(start, start + length)]


@pytest.mark.parametrize("start", [0, 1, 65_535, 65_536, 99_999, 2**32 - 50_000])
def test_mask_of_dense_and_of_whole_ranges(start):
    index = PositionDeleteIndex()
    index.add_range(0, 70_000)
    index.add_many(np.arange(80_000, 160_000, 2))
    index.add_range(2**32 - 10, 2**32 + 10)
    expected = np.isin(np.arange(start, start + 100_000), index.to_numpy())
    np.testing.assert_array_equal(index.deleted_mask(start, 100_000), expected)


@given(st.integers(0, 2**33), st.integers(0, 200_000), POSITIONS)
def test_range_holds_exactly_its_positions(start, length, other):
    index = PositionDeleteIndex()
    index.add_range(start, start + length)
    assert len(index) == length
    assert (other in index) == (start <= other < start + length)
    assert (start + length) not in index
    assert (start - 1) not in index


def test_range_over_whole_bitmaps_is_cheap():
    index = PositionDeleteIndex()
    index.add_range(2**32 - 1, 3 * 2**32 + 1)
    assert len(index) == 2 * 2**32 + 2
    assert index.deleted_mask(2**33 - 5, 10).all()


def test_empty_range_adds_nothing():
    index = PositionDeleteIndex()
    index.add_range(7, 7)
    index.add_range(9, 8)
    assert index.is_empty


@pytest.mark.parametrize("position", [-1, -(2**40), MAX_POSITION + 1, 2**63, 2**70])
def test_position_out_of_range_is_refused_whichever_way_it_comes(position):
    index = index_of({4})
    with pytest.raises(DataError, match=str(position)):
        index.add(position)
    with pytest.raises(DataError, match=str(position)):
        index.add_many([1, position])
    with pytest.raises(DataError):
        index.add_range(position, position + 1)
    assert index == index_of({4})
    assert position not in index


def test_unsigned_position_out_of_range_is_refused():
    with pytest.raises(DataError, match="positions go from 0"):
        PositionDeleteIndex.from_positions(np.array([2**64 - 1], dtype=np.uint64))


def test_nulls_and_fractions_are_refused():
    with pytest.raises(DataError, match="1 positions of deleted rows are null"):
        PositionDeleteIndex.from_positions(pa.array([1, None]))
    with pytest.raises(DataError, match="float64"):
        PositionDeleteIndex.from_positions(np.array([1.5]))
    with pytest.raises(DataError, match="float64"):
        PositionDeleteIndex.from_positions([1, 2.0])


def test_index_survives_pickling_and_is_not_hashable():
    index = index_of({1, 2**32, 2**40})
    assert pickle.loads(pickle.dumps(index)) == index
    assert index != {1, 2**32, 2**40}
    with pytest.raises(TypeError):
        hash(index)
