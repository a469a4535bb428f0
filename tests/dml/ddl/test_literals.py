"""Constants of DEFAULT clauses."""

import datetime
import math
import uuid
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from dml.ddl import parse_type
from dml.ddl.literals import constant, literal_text
from dml.errors import AnalysisError, NotSupportedError

UTC = datetime.UTC


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("7", "int", 7),
        ("-7L", "bigint", -7),
        ("(1)", "bigint", 1),
        ("2147483647", "int", 2147483647),
        ("1", "double", 1.0),
        ("1.5", "float", 1.5),
        ("1e3", "double", 1000.0),
        ("1.5BD", "decimal(9,2)", Decimal("1.50")),
        ("-0.10", "decimal(3,1)", Decimal("-0.1")),
        ("TRUE", "boolean", True),
        ("'it''s'", "string", "it's"),
        ("'a\\nb'", "string", "a\nb"),
        ('"x"', "string", "x"),
        (r"'\U0001F600'", "string", "😀"),
        (r"r'\d\n'", "string", r"\d\n"),
        ("'a' \"b\" r'\\'", "string", "ab\\"),
        ("X'00fF'", "binary", b"\x00\xff"),
        ("X'F'", "binary", b"\x0f"),
        ("CAST('7' AS INT)", "bigint", 7),
        ("X'00ff'", "fixed(2)", b"\x00\xff"),
        ("DATE '2020-02-29'", "date", datetime.date(2020, 2, 29)),
        ("TIMESTAMP '2020-01-01 00:00:00'", "timestamp", datetime.datetime(2019, 12, 31, 23, tzinfo=UTC)),
        ("TIMESTAMP '2020-07-01 00:00:00 Asia/Tokyo'", "timestamp", datetime.datetime(2020, 6, 30, 15, tzinfo=UTC)),
        ("TIMESTAMP '2020-01-01 00:00:00Z'", "timestamp", datetime.datetime(2020, 1, 1, tzinfo=UTC)),
        ("DATE '2020-01-01'", "timestamp", datetime.datetime(2019, 12, 31, 23, tzinfo=UTC)),
        ("DATE '9999-12-31'", "timestamp", datetime.datetime(9999, 12, 30, 23, tzinfo=UTC)),
        ("TIMESTAMP '1900-01-01 00:00:00'", "timestamp", datetime.datetime(1899, 12, 31, 23, tzinfo=UTC)),
        ("TIMESTAMP '2020-07-01 00:00:00Z'", "timestamp_ntz", datetime.datetime(2020, 7, 1, 2)),  # noqa: DTZ001
        ("TIMESTAMP_NTZ '2020-07-01 00:00:00'", "timestamp", datetime.datetime(2020, 6, 30, 22, tzinfo=UTC)),
        ("'12:30'", "time", datetime.time(12, 30)),
        ("TIMESTAMP '2020-01-01 00:00:00.5'", "timestamp_ntz", datetime.datetime(2020, 1, 1, microsecond=500000)),  # noqa: DTZ001
        ("TIME '12:30:00'", "time", datetime.time(12, 30)),
        (f"'{uuid.UUID(int=5)}'", "uuid", uuid.UUID(int=5)),
        ("NULL", "struct<a: int>", None),
        ("NULL", "int", None),
    ],
)
def test_a_constant_becomes_a_value_of_the_columns_type(text: str, kind: str, value: Any) -> None:
    found = constant(text, parse_type(kind), column="c", time_zone="Europe/Berlin")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("2147483648", "int"),
        ("9223372036854775808", "bigint"),
        ("1.0", "int"),
        ("'1'", "int"),
        ("1", "string"),
        ("1", "boolean"),
        ("true", "int"),
        ("1.005", "decimal(9,2)"),
        ("100", "decimal(2,0)"),
        ("1e3", "decimal(9,2)"),
        ("1e39", "float"),
        ("1e999", "double"),
        ("CAST('NaN' AS DOUBLE)", "double"),
        ("'2020-01-01'", "date"),
        ("DATE '2020-02-30'", "date"),
        ("TIMESTAMP '2020-01-01 00:00:00'", "date"),
        ("TIMESTAMP '2020-01-01 00:00:00 Nowhere/Land'", "timestamp"),
        ("TIMESTAMP 'soon'", "timestamp"),
        ("X'00'", "fixed(2)"),
        ("'not-a-uuid'", "uuid"),
        ("current_date()", "date"),
        ("1 + 1", "int"),
        ("id", "int"),
        ("(SELECT 1)", "int"),
        ("1 2", "int"),
        ("", "int"),
        ("-'a'", "string"),
    ],
)
def test_a_value_that_does_not_fit_is_an_error_and_never_another_value(text: str, kind: str) -> None:
    with pytest.raises(AnalysisError) as caught:
        constant(text, parse_type(kind), column="c")
    assert "'c'" in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("kind", ["struct<a: int>", "array<int>", "map<int, int>", "timestamp_ns"])
def test_types_without_defaults_are_refused(kind: str) -> None:
    with pytest.raises(NotSupportedError):
        constant("1", parse_type(kind), column="c")


VALUES = st.one_of(
    st.tuples(st.integers(-(2**63), 2**63 - 1), st.just(LongType())),
    st.tuples(st.floats(allow_nan=False, allow_infinity=False), st.just(DoubleType())),
    st.tuples(st.decimals(-99999, 99999, places=4), st.just(DecimalType(9, 4))),
    st.tuples(st.text(), st.just(StringType())),
    st.tuples(st.binary(), st.just(BinaryType())),
    st.tuples(st.dates(), st.just(DateType())),
    st.tuples(st.datetimes(), st.just(TimestampType())),
    st.tuples(st.datetimes(timezones=st.just(UTC)), st.just(TimestamptzType())),
)


@given(VALUES)
def test_a_default_reads_back_from_the_text_that_is_shown(case: tuple[Any, Any]) -> None:
    value, kind = case
    found = constant(literal_text(value, kind), kind, column="c", time_zone="America/New_York")
    assert found == value
    assert not isinstance(value, float) or math.copysign(1, found) == math.copysign(1, value)
