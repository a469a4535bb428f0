"""The keys of a join as a filter: true for every key, with ranges that leave out wide gaps."""

import datetime as dt
import math
import random
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, And, BooleanExpression, IsNull, Or
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml import limits
from dml.pruning.key_ranges import KeyRanges, range_between, ranges_of
from dml.pruning.row_tests import Bounds, any_match
from dml.read.row_predicates import select_rows
from dml.rows.program import TRUE

DRAWN = random.Random(22)
TIMES = pa.timestamp("us", tz="Asia/Kolkata")

KINDS: list[tuple[IcebergType, pa.DataType, Any]] = [
    (IntegerType(), pa.int32(), lambda n: n),
    (LongType(), pa.int64(), lambda n: n * 10**12),
    (DateType(), pa.date32(), lambda n: n * 1000),  # years outside of Python's dates
    (TimestampType(), pa.timestamp("us"), lambda n: n * 10**13),
    (TimestamptzType(), TIMES, lambda n: n * 10**13),
    (TimeType(), pa.time64("ns"), lambda n: abs(n) * 1000),
    (DecimalType(38, 2), pa.decimal128(38, 2), lambda n: Decimal(n * 10**30).scaleb(-2)),
    (DoubleType(), pa.float64(), lambda n: n * 1e300),
    (FloatType(), pa.float32(), lambda n: n * 0.5),
    (StringType(), pa.string(), lambda n: f"{n + 10**6:09}ü"),
    (BinaryType(), pa.binary(), lambda n: (n + 10**6).to_bytes(8, "big")),
    (FixedType(8), pa.binary(), lambda n: (n + 10**6).to_bytes(8, "big")),
    (UUIDType(), pa.binary(), lambda n: uuid.UUID(int=(n + 10**6) << 90).bytes),
]


def internal(kind: IcebergType, value: Any) -> Any:
    """Convert a value to the form of `Bounds`; Spark's times are in nanoseconds."""
    return value // 1000 if isinstance(kind, TimeType) else value


def finds(expression: BooleanExpression, kind: IcebergType, value: Any) -> bool:
    """Whether a file whose rows all have this value may match."""
    schema = Schema(NestedField(1, "k", kind, required=False))
    bounds = Bounds(lower=value, upper=value, nulls=False, nans=False)
    return any_match(expression, schema, case_sensitive=True)(lambda _: bounds)


def parts(expression: BooleanExpression) -> int:
    return parts(expression.left) + parts(expression.right) if isinstance(expression, Or) else 1


def array(kind: pa.DataType, values: list[Any]) -> pa.ChunkedArray:
    plain = pa.int32() if pa.types.is_date32(kind) else pa.int64() if pa.types.is_temporal(kind) else kind
    return pa.chunked_array([pa.array(values, plain).cast(kind)])


@pytest.mark.parametrize("count", [1, limits.MAX_LISTED_KEYS, 10 * limits.MAX_LISTED_KEYS + 1])
@pytest.mark.parametrize(("kind", "arrow", "value"), KINDS, ids=str)
def test_every_key_is_found_and_what_is_outside_is_not(
    kind: IcebergType, arrow: pa.DataType, value: Any, count: int
) -> None:
    drawn = DRAWN.sample(range(100_000), count)
    keys = [value(number) for number in drawn]
    expression = ranges_of(kind, array(arrow, [*keys, None])).expression("k")
    assert isinstance(expression, Or), "NULL was a key"
    for key in keys[:500]:
        assert finds(expression, kind, internal(kind, key))
    assert not finds(expression, kind, internal(kind, value(100_001)))


@pytest.mark.parametrize(("kind", "arrow", "value"), KINDS[:9], ids=str)
def test_a_wide_gap_between_many_keys_is_left_out(kind: IcebergType, arrow: pa.DataType, value: Any) -> None:
    numbers = [*range(2_000), *range(50_000, 51_000)]
    DRAWN.shuffle(numbers)
    found = ranges_of(kind, array(arrow, [value(number) for number in numbers]))
    assert found.ranges == tuple(
        tuple(internal(kind, value(end)) for end in ends) for ends in ((0, 1_999), (50_000, 50_999))
    )
    assert not finds(found.expression("k"), kind, internal(kind, value(30_000)))


def test_random_keys_are_one_range_and_many_groups_no_more_than_some() -> None:
    dense = ranges_of(LongType(), pa.chunked_array([pa.array(DRAWN.sample(range(10**9), 50_000))]))
    assert len(dense.ranges) == 1
    groups = pa.array([group * 10**6 + number for group in range(60) for number in range(100)])
    found = ranges_of(LongType(), pa.chunked_array([groups]))
    assert len(found.ranges) == limits.MAX_KEY_RANGES
    assert all(any(least <= key <= greatest for least, greatest in found.ranges) for key in groups.to_pylist())


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
@pytest.mark.parametrize("most_listed", [0, limits.MAX_LISTED_KEYS])
def test_floats_that_are_no_plain_numbers(kind: IcebergType, most_listed: int) -> None:
    """-0.0 equals 0.0, NaN equals NaN, and PyIceberg cannot compare with infinity."""
    arrow = pa.float32() if isinstance(kind, FloatType) else pa.float64()

    def expression(*keys: float) -> BooleanExpression:
        return ranges_of(kind, pa.chunked_array([pa.array(keys, arrow)]), most_listed=most_listed).expression("k")

    assert finds(expression(-0.0), kind, 0.0)
    assert finds(expression(0.0), kind, -0.0)
    assert not finds(expression(0.0), kind, 1.0)
    for infinite in (math.inf, -math.inf):
        assert finds(expression(infinite), kind, infinite)
        assert not finds(expression(infinite), kind, 7.0)
        assert finds(expression(infinite, 1.0), kind, infinite)
        assert finds(expression(infinite, 1.0), kind, 1.0)
    both = expression(math.inf, -math.inf, 3.0)
    assert all(finds(both, kind, value) for value in (math.inf, -math.inf, 3.0))
    schema = Schema(NestedField(1, "k", kind, required=False))
    nans = any_match(expression(math.nan), schema, case_sensitive=True)
    assert nans(lambda _: Bounds(nulls=False, values=False))
    assert not nans(lambda _: Bounds(lower=1.0, upper=2.0, nulls=False, nans=False))


def test_no_keys_match_nothing() -> None:
    assert isinstance(ranges_of(LongType(), pa.chunked_array([], pa.int64())).expression("k"), AlwaysFalse)
    nothing = pa.chunked_array([pa.nulls(1, pa.int64())])
    assert isinstance(range_between(LongType(), nothing, nothing, nulls=False, nans=False).expression("k"), AlwaysFalse)
    nulls = range_between(LongType(), nothing, nothing, nulls=True, nans=False).expression("k")
    assert nulls == IsNull("k")


def test_ends_of_keys_are_one_range_and_a_margin_widens_it() -> None:
    ends = (pa.chunked_array([pa.array([dt.date(2024, 1, day)])]) for day in (3, 9))
    found = range_between(DateType(), *ends, nulls=False, nans=False).widen(1)
    expression = found.expression("k")
    assert isinstance(expression, And)
    days = [(dt.date(2024, 1, day) - dt.date(1970, 1, 1)).days for day in (1, 2, 10, 11)]
    assert [finds(expression, DateType(), day) for day in days] == [False, True, True, False]


def test_both_booleans_are_listed_however_many_keys_there_are() -> None:
    found = ranges_of(BooleanType(), pa.chunked_array([pa.array([True] * 5_000)]))
    assert found == KeyRanges(field_type=BooleanType(), ranges=((True, True),))


@pytest.mark.parametrize(("kind", "limit"), [(DateType(), 1 << 31), (TimestampType(), 1 << 63)], ids=str)
def test_a_margin_does_not_leave_the_type(kind: IcebergType, limit: int) -> None:
    """Tasks compare the ends with arrays, which cannot hold more."""
    widened = KeyRanges(field_type=kind, ranges=((-limit, -limit + 5), (7, limit - 1))).widen(10)
    assert widened.ranges == ((-limit, -limit + 15), (-3, limit - 1))
    found = select_rows(widened.expression("k"), Schema(NestedField(1, "k", kind)), case_sensitive=True)
    assert found.predicate != TRUE


def test_a_span_that_no_double_holds_has_gaps_too() -> None:
    keys = [sign * (1e308 + number * 1e300) for sign in (-1, 1) for number in range(1_500)]
    found = ranges_of(DoubleType(), pa.chunked_array([pa.array(keys)]))
    assert found.ranges == ((min(keys), -1e308), (1e308, max(keys)))


@pytest.mark.parametrize("count", [1, 10 * limits.MAX_LISTED_KEYS + 1])
def test_strings_that_are_not_utf_8_prune_nothing(count: int) -> None:
    texts = pa.chunked_array([pa.array([b"a\xff"] * count).view(pa.string())])
    assert isinstance(ranges_of(StringType(), texts).expression("k"), AlwaysTrue)
    end = texts.slice(0, 1)
    assert isinstance(range_between(StringType(), end, end, nulls=False, nans=False).expression("k"), AlwaysTrue)
