"""Keys of space-filling curves: the order of values, bits interleaved, and steps of a Hilbert curve."""

import math
import struct
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dml import limits
from dml.rows.space_filling_curves import (
    Curve,
    CurveKind,
    curve_words,
    hilbert_transpose,
    interleave,
    ordered_bytes,
)


def rank_of_float(value: float) -> tuple[int, float, float]:
    """Java's order of doubles: -0.0 before 0.0, NaN last."""
    return int(math.isnan(value)), 0.0 if math.isnan(value) else value, math.copysign(1, value)


def same(value: Any) -> Any:
    return value


def leading_digits(value: Decimal) -> int:
    """The part of a decimal of 38 digits that a key keeps: all but the low 64 bits of its unscaled value."""
    return int(value.scaleb(6)) >> 64


int64, int32 = st.integers(-(2**63), 2**63 - 1), st.integers(-(2**31), 2**31 - 1)
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any], Callable[[Any], Any]]] = {
    "int": (pa.int32(), int32, same),
    "long": (pa.int64(), int64 | st.integers(-3, 3), same),
    "float": (pa.float32(), st.floats(width=32), rank_of_float),
    "double": (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, math.inf, math.nan]), rank_of_float),
    "boolean": (pa.bool_(), st.booleans(), same),
    "date": (pa.date32(), st.dates(), same),
    "time": (pa.time64("us"), st.times(), same),
    "timestamp": (pa.timestamp("us"), st.datetimes(), same),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        st.datetimes(timezones=st.just(UTC)),
        lambda value: value.replace(microsecond=0),
    ),
    "nanoseconds": (pa.timestamp("ns"), int64.filter(lambda value: value > -(2**63)), same),
    "decimal(9, 2)": (pa.decimal128(9, 2), st.decimals(-9999999, 9999999, places=2), same),
    "decimal(18, 0)": (pa.decimal128(18, 0), st.decimals(-(10**18) + 1, 10**18 - 1, places=0), same),
    "decimal(21, 3)": (
        pa.decimal128(21, 3),
        st.decimals(-(10**18) + 1, 10**18 - 1, places=3),
        lambda value: int(value.scaleb(3)) >> 7,
    ),
    "decimal(38, 6)": (
        pa.decimal128(38, 6),
        st.integers(-(10**38) + 1, 10**38 - 1).map(lambda number: Decimal((int(number < 0), digits(number), -6))),
        lambda value: int(Decimal((int(value < 0), value.as_tuple().digits, 0))) >> 64,
    ),
    "string": (pa.string(), st.text(max_size=12), lambda text: text.encode()[:8].ljust(8, b"\0")),
    "large string": (pa.large_string(), st.text(max_size=9), lambda text: text.encode()[:8].ljust(8, b"\0")),
    "binary": (pa.binary(), st.binary(max_size=12), lambda data: data[:8].ljust(8, b"\0")),
    "fixed": (pa.binary(5), st.binary(min_size=5, max_size=5), same),
    "uuid": (pa.uuid(), st.uuids(), lambda value: value.bytes[:8]),
}


def digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


def combine_chunks(values: list[Any], kind: pa.DataType) -> pa.Array:
    if kind == pa.uuid():
        raw = [value if value is None else value.bytes for value in values]
        return pa.ExtensionArray.from_storage(kind, pa.array(raw, pa.binary(16)))
    return pa.array(values, kind)


@pytest.mark.parametrize("name", VALUES)
@given(data=st.data())
def test_bytes_are_in_the_order_of_values(name: str, data: Any) -> None:
    """Equal where the values are, or differ only in what a key leaves out; NULL is not above any value."""
    kind, strategy, rank = VALUES[name]
    values = data.draw(st.lists(st.none() | strategy, min_size=1, max_size=12))
    before = data.draw(st.integers(0, 3))
    array = combine_chunks([values[0]] * before + values, kind).slice(before)
    assert array.offset == before
    keys = [bytes(row) for row in ordered_bytes(array)]
    known = [(rank(value), key) for value, key in zip(values, keys, strict=True) if value is not None]
    for left, right in product(known, repeat=2):
        assert (left[0] < right[0]) == (left[1] < right[1]), (left, right)
    assert all(key == bytes(8) for value, key in zip(values, keys, strict=True) if value is None)
    assert {len(key) for key in keys} == {8}


def test_bytes_are_those_of_java() -> None:
    """What `ZOrderByteUtils` and `SparkZOrderUDF` of Iceberg 1.10.2 return."""
    tz = pa.timestamp("us", "UTC")
    cases: list[tuple[Any, pa.DataType, str]] = [
        (1, pa.int32(), "8000000000000001"),
        (-1, pa.int64(), "7fffffffffffffff"),
        (1.5, pa.float32(), "bff8000000000000"),
        (-2.0, pa.float64(), "3fffffffffffffff"),
        (-0.0, pa.float64(), "7fffffffffffffff"),
        (struct.unpack(">d", bytes.fromhex("fff8000000000001"))[0], pa.float64(), "fff8000000000000"),
        (True, pa.bool_(), "8100000000000000"),
        (date(1969, 12, 31), pa.date32(), "7fffffffffffffff"),
        (np.datetime64("1970-01-01T00:00:01", "us"), pa.timestamp("us"), "80000000000f4240"),
        (datetime(1969, 12, 31, 23, 59, 59, 500_000, tzinfo=UTC), tz, "7fffffffffffffff"),
        (time(0, 0, 1), pa.time64("us"), "80000000000f4240"),
        ("Iceberg tables", pa.string(), b"Iceberg ".hex()),
        (b"\xff", pa.binary(), "ff00000000000000"),
    ]
    for value, kind, expected in cases:
        assert bytes(ordered_bytes(pa.array([value], kind))[0]).hex() == expected, value
    number = uuid.UUID("01234567-89ab-cdef-0123-456789abcdef")
    assert bytes(ordered_bytes(combine_chunks([number], pa.uuid()), 10)[0]).hex() == "0123456789abcdef0123"


def test_other_types_have_no_order() -> None:
    with pytest.raises(TypeError, match="list"):
        ordered_bytes(pa.array([[1]]))


def interleave_slowly(columns: list[bytes], size: int) -> bytes:
    """Bit after bit: the first of each column, the second of each, ...; a column that has ended is left out."""
    bits = [
        column[place] >> bit & 1
        for place in range(max(map(len, columns)))
        for bit in range(7, -1, -1)
        for column in columns
        if place < len(column)
    ]
    padded = bits + [0] * (-len(bits) % 8)
    whole = bytes(int("".join(map(str, padded[start : start + 8])), 2) for start in range(0, len(padded), 8))
    return whole[:size]


@given(data=st.data(), size=st.integers(1, 30))
def test_bits_are_interleaved(data: Any, size: int) -> None:
    widths = data.draw(st.lists(st.integers(1, 10), min_size=1, max_size=5))
    rows = data.draw(
        st.lists(st.tuples(*(st.binary(min_size=width, max_size=width) for width in widths)), min_size=1, max_size=4)
    )
    columns = [np.array([[*row[place]] for row in rows], np.uint8) for place in range(len(widths))]
    assert [bytes(key) for key in interleave(columns, size)] == [interleave_slowly([*row], size) for row in rows]
    assert [bytes(key) for key in interleave(columns)] == [interleave_slowly([*row], 1000) for row in rows]


def hilbert_index(points: np.ndarray, bits: int) -> list[int]:
    axes = hilbert_transpose([np.ascontiguousarray(axis).astype(np.uint64) for axis in points.T], bits)
    index = [0] * len(points)
    for bit in range(bits - 1, -1, -1):
        for axis in axes:
            index = [number << 1 | int(value) >> bit & 1 for number, value in zip(index, axis, strict=True)]
    return index


@pytest.mark.parametrize(("dimensions", "bits"), [(1, 6), (2, 1), (2, 5), (3, 1), (3, 4), (4, 3)])
def test_each_step_of_the_curve_goes_to_a_neighbor(dimensions: int, bits: int) -> None:
    points = np.array([*product(range(1 << bits), repeat=dimensions)])
    index = hilbert_index(points, bits)
    assert sorted(index) == [*range(len(points))], "every place of the curve, once"
    path = points[np.argsort(index)]
    assert path[0].tolist() == [0] * dimensions
    assert all(abs(left - right).sum() == 1 for left, right in pairwise(path))


def test_the_curve_is_that_of_java() -> None:
    """`HilbertByteUtils` of Iceberg, which is the curve of Skilling's paper."""
    square = hilbert_index(np.array([*product(range(4), repeat=2)]), 2)
    assert square == [0, 3, 4, 5, 1, 2, 7, 6, 14, 13, 8, 9, 15, 12, 11, 10]
    cube = hilbert_index(np.array([*product(range(2), repeat=3)]), 1)
    assert cube == [0, 1, 3, 2, 7, 6, 4, 5]
    assert hilbert_index(np.array([[5, 10, 20]]), 5) == [7865], "the example of the paper"


ROWS = {"a": [5, -1, None, 5, 0], "b": ["x", None, "yy", "xa", ""]}


@pytest.mark.parametrize("kind", CurveKind)
def test_keys_are_words_in_the_order_of_the_curve(kind: CurveKind, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [pa.array(ROWS["a"], pa.int32()), pa.array(ROWS["b"], pa.string())]
    curve = Curve(kind=kind, columns=("a", "b"), field_ids=(1, 2))
    coordinates = [ordered_bytes(column) for column in columns]
    if kind is CurveKind.HILBERT:
        axes = [column.view(">u8").ravel().astype(np.uint64) for column in coordinates]
        turned = hilbert_transpose(axes, 64)
        coordinates = [axis.astype(">u8").view(np.uint8).reshape(-1, 8) for axis in turned]
    expected = [bytes(row) for row in interleave(coordinates)]
    monkeypatch.setattr(limits, "CURVE_BATCH_ROWS", 2)
    words = curve_words(curve, columns)
    assert [b"".join(int(word[row]).to_bytes(8) for word in words) for row in range(5)] == expected
    assert [len(word) for word in curve_words(curve, [column[:0] for column in columns])] == [0, 0]


def test_a_key_may_be_short() -> None:
    """`max-output-size` and `var-length-contribution`; the last word is padded with zeros."""
    columns = [pa.array([1], pa.int64()), pa.array(["abcdefghijklm"])]
    curve = Curve(kind=CurveKind.ZORDER, columns=("a", "b"), field_ids=(1, 2), prefix_bytes=10, max_key_bytes=9)
    (first, second) = curve_words(curve, columns)
    expected = interleave_slowly([bytes(ordered_bytes(columns[0])[0]), b"abcdefghij"], 9)
    assert int(first[0]).to_bytes(8) + int(second[0]).to_bytes(8) == expected + bytes(7)
    assert str(curve) == "zorder(a, b)"


@pytest.mark.parametrize(
    ("names", "order"),
    [
        (("i", "d"), [6, 2, 1, 4, 3, 7, 5, 0]),
        (("s", "i"), [2, 1, 6, 5, 3, 0, 7, 4]),
        (("t", "s"), [2, 1, 6, 5, 3, 0, 7, 4]),
        (("d", "s", "i"), [6, 4, 2, 1, 3, 5, 0, 7]),
        (("i", "s", "d", "t"), [6, 2, 1, 4, 5, 3, 0, 7]),
    ],
)
def test_rows_are_in_the_order_of_java(names: tuple[str, ...], order: list[int]) -> None:
    """The rows of the file that `rewrite_data_files` of Iceberg 1.10.2 writes for `zorder(...)`, by number."""
    times = [
        "2026-01-01T00:00:00", "1969-12-31T23:59:59.5", None, "2000-02-29T12:00:00", "2026-01-01T00:00:01",
        "2012-06-30T23:59:59", "1900-01-01T00:00:00", "2026-01-01T00:00:00.9",
    ]  # fmt: skip
    columns = {
        "i": pa.array([5, -5, None, 100000, 7, 2147483647, -2147483648, 6], pa.int32()),
        "d": pa.array([math.nan, 1.5, 0.0, 0.0, -2.5, math.inf, None, 1e300], pa.float64()),
        "s": pa.array(["apple", "banana", None, "app", "zebra crossing", "", "zebra crosses", "b"]),
        "t": pa.array([None if text is None else np.datetime64(text, "us") for text in times], pa.timestamp("us")).cast(
            pa.timestamp("us", "UTC")
        ),
    }
    curve = Curve(kind=CurveKind.ZORDER, columns=names, field_ids=tuple(range(len(names))))
    words = curve_words(curve, [columns[name] for name in names])
    assert np.lexsort(words[::-1]).tolist() == order
