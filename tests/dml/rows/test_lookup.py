"""Keys of one or more columns find the rows that a dictionary of tuples finds."""

import math
from datetime import date
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml.rows import lookup
from dml.rows.lookup import NOWHERE, KeyLookup

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
    index = KeyLookup(columns(keys, width))
    known = [key[:width] for key in keys if None not in key[:width]]
    assert index.is_unique == (len(set(known)) == len(known))
    if index.is_unique:
        places = {key[:width]: place for place, key in enumerate(keys) if None not in key[:width]}
        found = index.places(columns([*asked, *keys], width))
        assert found.tolist() == [places.get(key[:width], NOWHERE) for key in [*asked, *keys]]


LONG = st.none() | st.text("ab\0é", max_size=20)


@given(st.lists(LONG, max_size=30), st.lists(LONG, max_size=30), st.integers(0, 3))
def test_texts_of_all_lengths_and_slices_of_columns(
    keys: list[str | None], asked: list[str | None], skipped: int
) -> None:
    def column(texts: list[str | None]) -> pa.Array:
        return pa.array(["skipped"] * skipped + texts, pa.string()).slice(skipped)

    unique = list(dict.fromkeys(keys))
    index = KeyLookup([column(unique)])
    assert index.is_unique
    places = {key: place for place, key in enumerate(unique) if key is not None}
    found = index.places([column([*asked, *keys])])
    assert found.tolist() == [NOWHERE if key is None else places.get(key, NOWHERE) for key in [*asked, *keys]]
    if keys:
        assert KeyLookup([column([*keys, *keys])]).is_unique == (set(keys) == {None})


@pytest.mark.parametrize(
    "values",
    [
        pa.array([Decimal("1.10"), None, Decimal(-7), Decimal("99999999999999999999.99")], pa.decimal128(38, 2)),
        pa.array([1, None, -(2**60), 5], pa.timestamp("us", "UTC")),
        pa.array([b"0123456789abcdef", None, b"\0" * 16, b"0123456789abcdeg"], pa.binary(16)),
        pa.array([True, None, False, False], pa.bool_()),
    ],
)
def test_keys_of_other_types(values: pa.Array) -> None:
    for column in (values.slice(0, 3), values.slice(1, 2)):
        index = KeyLookup([column, pa.array(range(len(column)))])
        assert index.is_unique
        expected = [place if valid else NOWHERE for place, valid in enumerate(column.is_valid().to_pylist())]
        assert index.places([column, pa.array(range(len(column)))]).tolist() == expected
        assert index.contains([values.slice(3, 1), pa.array([0])]).tolist() == [False]
    assert not KeyLookup([values.take(pa.array([0, 0])), pa.array([1, 1])]).is_unique


def decimals(precision: int) -> st.SearchStrategy[Decimal | None]:
    limit = 10**precision - 1
    whole = st.sampled_from([0, 1, -1, limit, -limit]) | st.integers(-limit, limit)
    return st.none() | whole.map(lambda number: Decimal(number).scaleb(-2, EXACT))


EXACT = Context(prec=38)
FLOATS = st.none() | st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan, 1.5]) | st.floats(width=32)
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.none() | st.booleans(),
    pa.int32(): st.none() | st.integers(-2, 2),
    pa.date32(): st.none() | st.dates(date(1969, 12, 30), date(1970, 1, 2)),
    pa.timestamp("us", "UTC"): st.none() | st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2),
    pa.timestamp("us"): st.none() | st.integers(-2, 2),
    pa.time64("us"): st.none() | st.integers(0, 2),
    pa.float32(): FLOATS,
    pa.float64(): FLOATS,
    pa.decimal128(18, 2): decimals(18),
    pa.decimal128(38, 2): decimals(38),
    pa.string(): st.none() | st.sampled_from(["", "\0", "a", "é"]),
    pa.binary(): st.none() | st.sampled_from([b"", b"\0", b"\xff"]),
    pa.binary(16): st.none() | st.sampled_from([bytes(16), bytes(15) + b"1"]),
}
KEYS = st.lists(st.tuples(st.sampled_from(list(VALUES)), st.booleans()), min_size=1, max_size=3)


def equal_to(value: object) -> object:
    """Return a value that is equal for equal keys: NaN equals itself."""
    return "NaN" if isinstance(value, float) and math.isnan(value) else value


@settings(max_examples=300, deadline=None)
@given(st.data(), KEYS)
def test_places_of_keys_of_all_types_are_those_of_sparks_equality(
    data: st.DataObject, kinds: list[tuple[pa.DataType, bool]]
) -> None:
    rows = st.lists(st.tuples(*(VALUES[kind] for kind, _ in kinds)), max_size=12)
    keys, asked = data.draw(rows), data.draw(rows)

    def arrays(rows: list[tuple[object, ...]]) -> list[pa.Array]:
        return [pa.array([None, *(row[place] for row in rows)], kind).slice(1) for place, (kind, _) in enumerate(kinds)]

    def key(row: tuple[object, ...]) -> tuple[object, ...] | None:
        """Return what the row is looked up by; None if it equals nothing."""
        is_key = all(is_null_safe or value is not None for value, (_, is_null_safe) in zip(row, kinds, strict=True))
        return tuple(map(equal_to, row)) if is_key else None

    lookup = KeyLookup(arrays(keys), [place for place, (_, is_null_safe) in enumerate(kinds) if is_null_safe])
    known = [found for found in map(key, keys) if found is not None]
    assert lookup.is_unique == (len(set(known)) == len(known))
    places = {key(row): place for place, row in enumerate(keys)}
    expected = [NOWHERE if key(row) is None else places.get(key(row), NOWHERE) for row in [*asked, *keys]]
    contained = lookup.contains(arrays([*asked, *keys])).tolist()
    assert contained == [place != NOWHERE for place in expected]
    if lookup.is_unique:
        assert lookup.places(arrays([*asked, *keys])).tolist() == expected


@given(st.lists(ROW, max_size=12), st.lists(ROW, max_size=12), st.integers(2, 3))
def test_different_keys_with_equal_hashes_are_told_apart(
    keys: list[tuple[object, ...]], asked: list[tuple[object, ...]], width: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "mix_hashes", lambda hashes, values: hashes & np.uint64(1))
        index = KeyLookup(columns(keys, width))
        known = [key[:width] for key in keys if None not in key[:width]]
        assert index.is_unique == (len(set(known)) == len(known))
        rows = [*asked, *keys]
        assert index.contains(columns(rows, width)).tolist() == [row[:width] in known for row in rows]
        if index.is_unique:
            places = {key[:width]: place for place, key in enumerate(keys) if None not in key[:width]}
            found = index.places(columns(rows, width)).tolist()
            assert found == [places.get(row[:width], NOWHERE) for row in rows]


NUMBERS = st.lists(st.none() | st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1), max_size=30)


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32()])
@given(NUMBERS, NUMBERS)
def test_places_of_whole_numbers_that_lie_close_and_far_apart(
    kind: pa.DataType, keys: list[int | None], asked: list[int | None]
) -> None:
    index = KeyLookup([pa.array(keys, pa.int32()).cast(kind)])
    known = [key for key in keys if key is not None]
    assert index.is_unique == (len(set(known)) == len(known))
    if index.is_unique:
        places = {key: place for place, key in enumerate(keys) if key is not None}
        found = index.places([pa.array([*asked, *keys], pa.int32()).cast(kind)])
        assert found.tolist() == [NOWHERE if key is None else places.get(key, NOWHERE) for key in [*asked, *keys]]


@pytest.mark.parametrize("rows", [0, 3])
def test_no_keys_and_keys_that_are_null(rows: int) -> None:
    index = KeyLookup([pa.nulls(rows, pa.int32())])
    assert index.is_unique
    assert index.places([pa.array([1, None], pa.int32())]).tolist() == [NOWHERE, NOWHERE]
    assert index.places([pa.array([], pa.int32())]).tolist() == []


@given(st.lists(ROW, max_size=30), st.lists(ROW, max_size=30), st.integers(1, 3))
def test_contains_finds_keys_that_are_not_unique(
    keys: list[tuple[object, ...]], asked: list[tuple[object, ...]], width: int
) -> None:
    rows = [*asked, *keys]
    found = KeyLookup(columns([*keys, *keys], width)).contains(columns(rows, width)).tolist()
    known = {key[:width] for key in keys if None not in key[:width]}
    assert found == [row[:width] in known for row in rows]


@pytest.mark.parametrize("spread", [1, 5, 1 << 40], ids=["dense", "close", "far apart"])
@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.date32()], ids=str)
def test_many_integers_are_found_in_any_order(kind: pa.DataType, spread: int) -> None:
    random = np.random.default_rng(spread)
    limit = 2**31 - 1 if kind.bit_width == 32 else 2**62
    keys = random.integers(-min(limit, 1000 * spread), min(limit, 1000 * spread), 3000)
    asked = np.concatenate([random.permutation(keys)[:500], keys[:500] + 1, [-limit, limit, 0]])
    rows = pa.array([None, *asked.tolist()], pa.int32() if kind == pa.date32() else kind).cast(kind)
    built = KeyLookup([pa.array([*keys.tolist(), None], rows.type if kind != pa.date32() else pa.int32()).cast(kind)])
    assert built.contains([rows]).tolist() == [False, *np.isin(asked, keys).tolist()]
