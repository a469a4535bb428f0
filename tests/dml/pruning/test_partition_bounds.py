"""Partition values at the ends of types, of our writers and of others: no file with a matching row is pruned."""

import datetime
import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import to_bytes
from pyiceberg.expressions import (
    BooleanExpression,
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    NotEqualTo,
    NotIn,
    NotNull,
    Reference,
)
from pyiceberg.expressions.literals import DateLiteral, Literal, TimestampLiteral, literal
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from dml.errors import DataError
from dml.model.arrow_types import primitive_arrow_type
from dml.model.manifest import ContentFile, FileContent, ManifestFile, PartitionSummary
from dml.pruning.partition_bounds import rows_bounds
from dml.pruning.pruner import PartitionSet, Pruner
from dml.pruning.row_tests import Bounds
from dml.write.partition_values import PartitionRouter

DAY = 86_400_000_000
TIMES: list[Transform[Any, Any]] = [YearTransform(), MonthTransform(), DayTransform()]


def around(*values: int) -> list[int]:
    return [value + step for value in values for step in (-1, 0, 1)]


def within(bits: int, values: list[int]) -> list[int]:
    return [value for value in values if -(1 << bits - 1) <= value < 1 << bits - 1]


INTS = within(32, around(-(1 << 31), -(1 << 31) + 10_000, 0, 5, -5, 10_000, 1 << 30, (1 << 31) - 1))
LONGS = within(64, [*around(-(1 << 63), -(1 << 63) + 10, (1 << 63) - 1, 1 << 31), *INTS])
# Python's first and last day, Rust's, and the ends of DATE.
DATES = within(32, around(-(1 << 31), -96_465_293, -719_163, 0, 2_932_896, 95_026_236, (1 << 31) - 1))
INSTANTS = within(
    64,
    around(-(1 << 63), -719_163 * DAY, -DAY, 0, 2_932_897 * DAY, (1 << 31) * DAY // 24, (1 << 63) - 1)
    + around(-(1 << 31) * DAY // 24, 95_026_237 * DAY, -96_465_293 * DAY),
)
SMALL = [Decimal(unscaled).scaleb(-2) for unscaled in (-9999, -9998, -9990, -70, -1, 0, 1, 70, 9990, 9999)]
GREATEST = 10**38 - 1
LARGE = [Decimal(value) for value in (-GREATEST, -GREATEST + 1, -(10**30), -1, 0, 1, 10**30, GREATEST - 1, GREATEST)]
TEXTS = ["", "a", "ab", "a\ud7ff", "a\ue000", "\ud7ff\ue000", "\U0010ffff", "\U0010ffff\U0010ffffx", "a\U0001f600b"]
BYTES = [b"", b"\x00", b"\xff", b"\xff\xff", b"\xff\xff\xff", b"a\xff", b"a\xff\xff", b"b"]
KINDS: list[tuple[PrimitiveType, list[Any], list[Transform[Any, Any]]]] = [
    (IntegerType(), INTS, [TruncateTransform(width) for width in (1, 7, 10_000, 1 << 30)]),
    (LongType(), LONGS, [TruncateTransform(width) for width in (1, 10, 10_000, (1 << 31) - 1)]),
    (DateType(), DATES, TIMES),
    (TimestampType(), INSTANTS, [*TIMES, HourTransform()]),
    (DecimalType(4, 2), SMALL, [TruncateTransform(width) for width in (1, 70, 2000)]),
    (DecimalType(38, 0), LARGE, [TruncateTransform(70)]),
    (StringType(), TEXTS, [TruncateTransform(1), TruncateTransform(2)]),
    (BinaryType(), BYTES, [TruncateTransform(1), TruncateTransform(2)]),
]
CASES = [
    pytest.param(kind, values, transform, id=f"{kind}-{transform}")
    for kind, values, transforms in KINDS
    for transform in [*transforms, BucketTransform(16), IdentityTransform()]
]
COMPARISONS: dict[type[Any], Callable[[Any, Any], bool]] = {
    EqualTo: eq,
    NotEqualTo: ne,
    LessThan: lt,
    LessThanOrEqual: le,
    GreaterThan: gt,
    GreaterThanOrEqual: ge,
}


def as_literal(kind: IcebergType, value: Any) -> Literal[Any]:
    match kind:
        case DateType():
            return DateLiteral(value)
        case TimestampType():
            return TimestampLiteral(value)
    return literal(value)


@st.composite
def filters(draw: st.DrawFn, kind: IcebergType, values: list[Any]) -> tuple[BooleanExpression, Any]:
    """A filter of the column, and what it says of a value."""
    term = Reference("c")
    one = draw(st.sampled_from(values))
    some = set(draw(st.lists(st.sampled_from(values), min_size=2, max_size=4, unique=True)))
    others: list[type[Any]] = [In, NotIn, IsNull, NotNull]
    made = draw(st.sampled_from([*COMPARISONS, *others]))
    if made in COMPARISONS:
        compare = COMPARISONS[made]
        return made(term, as_literal(kind, one)), lambda value: value is not None and compare(value, one)
    if made in (In, NotIn):
        literals = {as_literal(kind, value) for value in some}
        return made(term, literals), lambda value: value is not None and (value in some) is (made is In)
    return made(term), lambda value: (value is None) is (made is IsNull)


def partition_of(kind: PrimitiveType, transform: Transform[Any, Any], value: Any) -> Any:
    """What our writer makes of a value.

    Raises:
        DataError: the partition value does not fit.
    """
    router = PartitionRouter(PartitionSpec(PartitionField(1, 1000, transform, "p")), (NestedField(1, "c", kind),))
    target = primitive_arrow_type(kind)
    assert target is not None
    numbers = {DateType: pa.int32(), TimestampType: pa.int64()}
    values = pa.array([value], numbers.get(type(kind), target)).view(target)
    ((partition, _),) = router.split(pa.record_batch([values], names=["c"]))
    return partition[0]


def wrapped(kind: PrimitiveType, transform: Transform[Any, Any], value: Any) -> Any:
    """What Java makes of a number or an instant: with 32 or 64 bits, and nothing is refused."""
    match transform:
        case _ if value is None:
            return None
        case HourTransform():
            return in_bits(value // 3_600_000_000, 32)
        case TruncateTransform(width=width) if isinstance(kind, IntegerType | LongType):
            bits = 32 if isinstance(kind, IntegerType) else 64
            remainder = in_bits(cut_off(value, width) + width, bits)
            return in_bits(value - cut_off(remainder, width), bits)
    return partition_of(kind, transform, value)


def in_bits(number: int, bits: int) -> int:
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def cut_off(number: int, divisor: int) -> int:
    """Java's remainder, which has the sign of the dividend."""
    return number % divisor if number >= 0 else -(-number % divisor)


def files_of(kind: PrimitiveType, transform: Transform[Any, Any], partition: Any) -> tuple[ContentFile, ManifestFile]:
    """A file of a partition without metrics, and its manifest."""
    bound = None if partition is None else to_bytes(transform.result_type(kind), partition)
    summary = PartitionSummary(contains_null=partition is None, lower_bound=bound, upper_bound=bound)
    manifest = ManifestFile(manifest_path="m", manifest_length=1, partition_spec_id=0, added_snapshot_id=1)
    file = ContentFile(
        content=FileContent.DATA,
        path="data.parquet",
        file_format="parquet",
        spec_id=0,
        partition=(partition,),
        record_count=1,
        file_size_in_bytes=1,
    )
    return file, replace(manifest, partitions=(summary,))


def check(kind: PrimitiveType, transform: Transform[Any, Any], partition: Any, value: Any, asked: Any) -> None:
    """No answer contradicts the row."""
    row_filter, matches = asked
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"), spec_id=0)
    pruner = Pruner({0: spec}, Schema(NestedField(1, "c", kind, required=False)), row_filter, case_sensitive=True)
    file, manifest = files_of(kind, transform, partition)
    if matches(value):
        assert pruner.may_match_partition(0, (partition,))
        assert pruner.may_match(file)
        assert pruner.may_list_matches(manifest)
    else:
        assert not pruner.must_match(file)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (UUIDType(), uuid.UUID(int=5)),
        (FixedType(2), b"ab"),
        (BinaryType(), b"ab"),
        (StringType(), "ab"),
        (DecimalType(4, 2), Decimal("1.20")),
        (BooleanType(), False),
        (DoubleType(), -0.0),
        (DateType(), 3),
        (TimestamptzType(), 3),
        (LongType(), None),
    ],
    ids=repr,
)
def test_a_set_of_partitions_selects_the_manifest_that_lists_them(kind: PrimitiveType, value: Any) -> None:
    schema = Schema(NestedField(1, "c", kind, required=False))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p"))
    metadata = new_table_metadata(schema, spec, UNSORTED_SORT_ORDER, "file:///t", {"format-version": "2"})
    file, manifest = files_of(kind, IdentityTransform(), value)
    chosen = PartitionSet([(0, (value,))], metadata)
    assert chosen.may_list_matches(manifest)
    assert chosen.may_match(file)
    other = files_of(kind, IdentityTransform(), None if value is not None else 1)
    assert not chosen.may_list_matches(other[1])
    assert not chosen.may_match(other[0])


@pytest.mark.parametrize("made", [GreaterThan, GreaterThanOrEqual, NotEqualTo])
def test_a_comparison_that_holds_for_every_date_does_not_select_the_partition_of_null(made: Any) -> None:
    """The day before the least date is none, and PyIceberg says that every partition is after it."""
    least = DateLiteral(-(1 << 31))
    check(DateType(), DayTransform(), None, None, (made(Reference("c"), least), lambda value: value is not None))


@pytest.mark.parametrize(("kind", "values", "transform"), CASES)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_a_file_with_a_matching_row_is_never_pruned(kind, values, transform, data) -> None:
    """By the partition values of our writers; what they refuse is in no file."""
    value = data.draw(st.none() | st.sampled_from(values))
    asked = data.draw(filters(kind, values))
    try:
        partition = partition_of(kind, transform, value)
    except DataError:
        assume(False)
    check(kind, transform, partition, value, asked)


@pytest.mark.parametrize(
    ("kind", "values", "transform"),
    [
        *(case for case in CASES if isinstance(case.values[0], IntegerType | LongType)),
        pytest.param(IntegerType(), INTS, TruncateTransform((1 << 31) - 1), id="int-wide"),
        pytest.param(TimestampType(), INSTANTS, HourTransform(), id="hours"),
    ],
)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_partition_values_that_wrapped_around_prune_no_matching_row(kind, values, transform, data) -> None:
    value = data.draw(st.none() | st.sampled_from(values))
    check(kind, transform, wrapped(kind, transform, value), value, data.draw(filters(kind, values)))


@pytest.mark.parametrize("transform", [YearTransform(), MonthTransform()], ids=str)
@pytest.mark.parametrize(
    ("kind", "values"),
    [pytest.param(DateType(), DATES, id="date"), pytest.param(TimestampType(), INSTANTS, id="timestamp")],
)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_years_that_rust_makes_null_prune_no_matching_row(kind, values, transform, data) -> None:
    value = data.draw(st.sampled_from(values))
    source = pa.array([value], pa.int32() if isinstance(kind, DateType) else pa.int64())
    computed = transform.pyarrow_transform(kind)(source.view(primitive_arrow_type(kind)))[0].as_py()
    check(kind, transform, computed, value, data.draw(filters(kind, values)))


@given(value=st.sampled_from(INTS), data=st.data())
@settings(max_examples=100, deadline=None)
def test_partition_values_that_wrapped_around_before_a_column_became_a_bigint(value, data) -> None:
    transform: Transform[Any, Any] = TruncateTransform(10_000)
    partition = wrapped(IntegerType(), transform, value)
    check(LongType(), transform, partition, value, data.draw(filters(LongType(), INTS)))


@given(
    width=st.sampled_from([1, 2, 7, 10, 100, 1000, 1024, 10_000, 2**30]),
    values=st.lists(st.sampled_from([*INTS, *LONGS]) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=4),
    was_int=st.booleans(),
)
@settings(max_examples=500, deadline=None)
def test_bounds_of_many_partition_values_hold_the_exact_transform_of_each(
    width: int, values: list[int], was_int: bool
) -> None:
    """A manifest's summary spans the partitions of many files, some written while the column was an INT."""
    transform: Transform[Any, Any] = TruncateTransform(width)
    partitions = [
        wrapped(IntegerType() if was_int and -(2**31) <= value < 2**31 else LongType(), transform, value)
        for value in values
    ]
    turned = rows_bounds(transform, LongType())
    assert turned is not None
    found = turned(Bounds(lower=min(partitions), upper=max(partitions)))
    for value in values:
        exact = value - value % width
        assert found.lower is None or found.lower <= exact
        assert found.upper is None or found.upper >= exact


def test_unknown_bounds_of_partition_values_stay_unknown() -> None:
    turned = rows_bounds(TruncateTransform(10_000), LongType())
    assert turned is not None
    assert (turned(Bounds()).lower, turned(Bounds()).upper) == (None, None)


@pytest.mark.parametrize("width", [10, 100, 1000, 10_000])
def test_a_manifest_across_the_ends_of_int_is_opened_for_rows_below_them(width: int) -> None:
    """Its least partition is far below that of the least INT, which may have wrapped around to one in its middle."""
    spec = PartitionSpec(PartitionField(1, 1000, TruncateTransform(width), "p"), spec_id=0)
    schema = Schema(NestedField(1, "c", LongType(), required=False))
    bounds = [to_bytes(LongType(), value) for value in (-5_000_000_000, 5_000_000_000)]
    summary = PartitionSummary(contains_null=False, lower_bound=bounds[0], upper_bound=bounds[1])
    for row_filter in (EqualTo("c", -4_000_000_000), LessThan("c", -3_000_000_000), EqualTo("c", 4_000_000_000)):
        pruner = Pruner({0: spec}, schema, row_filter, case_sensitive=True)
        manifest = ManifestFile(manifest_path="m", manifest_length=1, partition_spec_id=0, added_snapshot_id=1)
        assert pruner.may_list_matches(replace(manifest, partitions=(summary,))), row_filter


def test_a_manifest_of_wrapped_and_other_values_is_opened() -> None:
    """The least INT lies in 2147477296, and the manifest's bounds are about that number."""
    transform: Transform[Any, Any] = TruncateTransform(10_000)
    spec = PartitionSpec(PartitionField(1, 1000, transform, "p"), spec_id=0)
    schema = Schema(NestedField(1, "c", IntegerType(), required=False))
    bounds = [to_bytes(IntegerType(), value) for value in (10_000, 2_147_477_296)]
    summary = PartitionSummary(contains_null=False, lower_bound=bounds[0], upper_bound=bounds[1])
    manifest = ManifestFile(manifest_path="m", manifest_length=1, partition_spec_id=0, added_snapshot_id=1)
    least = -(1 << 31)
    for row_filter, opened in (
        (LessThan("c", 0), True),
        (EqualTo("c", least), True),
        (GreaterThan("c", 1 << 31), False),
    ):
        pruner = Pruner({0: spec}, schema, row_filter, case_sensitive=True)
        assert pruner.may_list_matches(replace(manifest, partitions=(summary,))) is opened, row_filter


@pytest.mark.parametrize(
    ("kind", "transform", "value", "message"),
    [
        (IntegerType(), TruncateTransform(10_000), -(1 << 31), "-2147483648 .* 'p': truncate"),
        (LongType(), TruncateTransform(10), -(1 << 63), "-9223372036854775808"),
        (DecimalType(4, 2), TruncateTransform(70), Decimal("-99.99"), "-99.99"),
        (DecimalType(38, 0), TruncateTransform(70), Decimal(-GREATEST), str(-GREATEST)),
        (TimestampType(), HourTransform(), (1 << 63) - 1, r"\+294247-01-10T04:00:54.775807"),
        (TimestampType(), HourTransform(), -(1 << 63), "-290308-12-21T19:59:05.224192"),
    ],
    ids=str,
)
def test_a_value_whose_partition_value_does_not_fit_is_refused(kind, transform, value, message) -> None:
    with pytest.raises(DataError, match=message) as caught:
        partition_of(kind, transform, value)
    assert "replace the partition field" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("value", "years", "months"),
    [
        (datetime.date(9999, 12, 31).toordinal() - 719_163, 8029, 96_359),
        (2_932_897, 8030, 96_360),
        ((1 << 31) - 1, 5_879_610, 70_555_326),
        (-(1 << 31), -5_879_611, -70_555_327),
        (-719_529, -1971, -23_641),
    ],
)
def test_years_and_months_of_all_dates(value: int, years: int, months: int) -> None:
    assert partition_of(DateType(), YearTransform(), value) == years
    assert partition_of(DateType(), MonthTransform(), value) == months
    if abs(value) < 100_000_000:
        assert partition_of(TimestampType(), YearTransform(), value * DAY + DAY - 1) == years
        assert partition_of(TimestampType(), MonthTransform(), value * DAY) == months


def test_a_sentinel_after_the_year_9999_prunes_years() -> None:
    """PyIceberg's projection stops at Python's dates, and every partition would match."""
    spec = PartitionSpec(PartitionField(1, 1000, YearTransform(), "p"), spec_id=0)
    schema = Schema(NestedField(1, "c", TimestampType(), required=False))
    sentinel = TimestampLiteral(2_932_897 * DAY + 7 * DAY // 24)
    pruner = Pruner({0: spec}, schema, EqualTo(Reference("c"), sentinel), case_sensitive=True)
    assert [pruner.may_match_partition(0, (year,)) for year in (54, 8029, 8030)] == [False, False, True]
