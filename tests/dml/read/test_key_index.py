"""Keys of one or more columns find the rows that a dictionary of tuples finds."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml.read.key_index import NOWHERE, KeyIndex

KINDS = (pa.int32(), pa.string(), pa.int64())
ROW = st.tuples(
    st.none() | st.integers(-3, 3), st.none() | st.sampled_from(["", "a", "é"]), st.none() | st.integers(-(2**63), 5)
)


def columns(rows: list[tuple[object, ...]], width: int) -> list[pa.Array]:
    return [pa.array([row[place] for row in rows], KINDS[place]) for place in range(width)]


@given(st.lists(ROW, max_size=30), st.lists(ROW, max_size=30), st.integers(1, 3))
def test_places_are_those_of_a_dictionary(
    keys: list[tuple[object, ...]], asked: list[tuple[object, ...]], width: int
) -> None:
    index = KeyIndex(columns(keys, width))
    known = [key[:width] for key in keys if None not in key[:width]]
    assert index.is_unique == (len(set(known)) == len(known))
    if index.is_unique:
        places = {key[:width]: place for place, key in enumerate(keys) if None not in key[:width]}
        found = index.places(columns([*asked, *keys], width))
        assert found.tolist() == [places.get(key[:width], NOWHERE) for key in [*asked, *keys]]


NUMBERS = st.lists(st.none() | st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1), max_size=30)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32()])
@given(NUMBERS, NUMBERS)
def test_places_of_whole_numbers_that_lie_close_and_far_apart(
    kind: pa.DataType, keys: list[int | None], asked: list[int | None]
) -> None:
    index = KeyIndex([pa.array(keys, pa.int32()).cast(kind)])
    known = [key for key in keys if key is not None]
    assert index.is_unique == (len(set(known)) == len(known))
    if index.is_unique:
        places = {key: place for place, key in enumerate(keys) if key is not None}
        found = index.places([pa.array([*asked, *keys], pa.int32()).cast(kind)])
        assert found.tolist() == [NOWHERE if key is None else places.get(key, NOWHERE) for key in [*asked, *keys]]


@pytest.mark.parametrize("rows", [0, 3])
def test_no_keys_and_keys_that_are_null(rows: int) -> None:
    index = KeyIndex([pa.nulls(rows, pa.int32())])
    assert index.is_unique
    assert index.places([pa.array([1, None], pa.int32())]).tolist() == [NOWHERE, NOWHERE]
    assert index.places([pa.array([], pa.int32())]).tolist() == []
