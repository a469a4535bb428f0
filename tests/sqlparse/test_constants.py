"""Constants as values, as conditions and as DEFAULT use them."""

from decimal import Decimal
from typing import Any

import pytest

from dml.sqlparse.constants import Constant, Kind, TimeZone, constant
from dml.sqlparse.dialect import parse_expression

HOUR = 3_600_000_000


def value_of(text: str, zone: TimeZone) -> Constant | None:
    """The value of a text."""
    strings = (text.lstrip("-"),) if text.endswith("'") and text.lstrip("-")[0] == "'" else ()
    tree = parse_expression(text, strings)
    assert tree is not None
    return constant(tree, zone)


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("1", Kind.INTEGER, 1),
        ("-1", Kind.INTEGER, -1),
        ("- (-3)", Kind.INTEGER, 3),
        ("5L", Kind.INTEGER, 5),
        ("2S", Kind.INTEGER, 2),
        ("1.50", Kind.DECIMAL, Decimal("1.50")),
        ("1.5BD", Kind.DECIMAL, Decimal("1.5")),
        ("-123456789012345678901234567890.5BD", Kind.DECIMAL, Decimal("-123456789012345678901234567890.5")),
        ("1e3", Kind.DOUBLE, 1000.0),
        ("TRUE", Kind.BOOLEAN, True),
        ("(FALSE)", Kind.BOOLEAN, False),
        ("'it\\'s'", Kind.STRING, "it's"),
        ("X'1F'", Kind.BINARY, b"\x1f"),
        ("X'F'", Kind.BINARY, b"\x0f"),
        ("NULL", Kind.NULL, None),
        ("DATE '1970-01-02'", Kind.DATE, 1),
        ("DATE '1970-01-02 00:00:00'", Kind.DATE, 1),
        ("date('1970-01-02 23:59:59.999')", Kind.DATE, 1),
        ("date('1970-01-02T and whatever follows')", Kind.DATE, 1),
        ("to_date('1970-01-02')", Kind.DATE, 1),
        ("CAST('1970-01-02 ' AS DATE)", Kind.DATE, 1),
        ("timestamp('1971-01-01 01:00:00')", Kind.TIMESTAMP, (365 * 24) * HOUR),
        ("to_timestamp('1971-01-01 01:00:00')", Kind.TIMESTAMP, (365 * 24) * HOUR),
        ("timestamp_ntz('1971-01-01 01:00:00')", Kind.TIMESTAMP_NTZ, (365 * 24 + 1) * HOUR),
        ("DATE '+10000-01-01'", Kind.DATE, 2_932_897),
        ("DATE '10000-01-01'", Kind.DATE, 2_932_897),
        ("DATE '-0044-03-15'", Kind.DATE, -735_525),
        ("DATE '0000-12-31'", Kind.DATE, -719_163),
        ("DATE '+5881580-07-11'", Kind.DATE, (1 << 31) - 1),
        ("DATE '-5877641-06-23'", Kind.DATE, -(1 << 31)),
        ("TIMESTAMP '+10000-01-01 00:00:00Z'", Kind.TIMESTAMP, 2_932_897 * 24 * HOUR),
        ("TIMESTAMP_NTZ '+294247-01-10 04:00:54.775807'", Kind.TIMESTAMP_NTZ, (1 << 63) - 1),
        ("TIME '01:00'", Kind.TIME, HOUR),
        ("TIMESTAMP '1971-01-01 01:00:00'", Kind.TIMESTAMP, (365 * 24) * HOUR),
        ("TIMESTAMP '1971-01-01 01:00:00Z'", Kind.TIMESTAMP, (365 * 24 + 1) * HOUR),
        ("TIMESTAMP '1971-01-01 01:00+09:00'", Kind.TIMESTAMP, (365 * 24 - 8) * HOUR),
        ("TIMESTAMP_NTZ '1971-01-01 01:00:00.5'", Kind.TIMESTAMP_NTZ, (365 * 24 + 1) * HOUR + 500_000),
    ],
)
def test_a_constant_is_a_value_with_its_type(text: str, kind: Kind, value: Any) -> None:
    found = value_of(text, TimeZone.of("Europe/Berlin"))
    assert found == Constant(kind=kind, value=value)
    assert found is not None
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "1e400",
        "-1e400D",
        "1" + 38 * "0",
        f"CAST(1{400 * '0'} AS DOUBLE)",
        f"1{400 * '0'}.5",
        "a",
        "1 + 1",
        "-'x'",
        "-TRUE",
        "upper(a)",
        "a IS NULL",
        "CAST(1.5 AS DECIMAL)",
        "DATE '2020-02-30'",
        "DATE '2020-02-30 10:00'",
        "DATE '2020-02-03Z'",
        "to_date('2020-02-03', 'yyyy-dd-MM')",
        "to_timestamp('2020-02-03', 'yyyy-dd-MM')",
        "DATE '10001-02-29'",
        "DATE '+5881580-07-12'",
        "DATE '999-01-01'",
        "TIMESTAMP_NTZ '+294247-01-10 04:00:54.775808'",
        "TIMESTAMP '2020-01-01 00:00 Asia/Tokyo'",
        "TIMESTAMP '2020-01-01 00:00 Nowhere/Land'",
        "TIMESTAMP '2020-01-01 24:00'",
    ],
)
def test_what_is_no_constant_or_not_certain_has_no_value(text: str) -> None:
    assert value_of(text, TimeZone.of("UTC")) is None


@pytest.mark.parametrize(
    ("text", "zone", "same"),
    [
        ("9999-12-31 00:00:00", "Europe/Berlin", "9999-12-30 23:00:00Z"),
        ("1900-01-01 00:00:00", "Asia/Tokyo", "1899-12-31 15:00:00Z"),
        ("2020-01-01 00:00:00", "CET", "2019-12-31 23:00:00Z"),
        ("2020-01-01 00:00:00 Asia/Tokyo", "UTC", "2019-12-31 15:00:00Z"),
    ],
)
def test_a_default_is_kept_as_python_reads_it_where_java_might_not_agree(text: str, zone: str, same: str) -> None:
    """A condition prunes by what is certain: it has no value then."""
    text = f"TIMESTAMP '{text}'"
    assert value_of(text, TimeZone.of(zone)) is None
    expected = value_of(f"TIMESTAMP '{same}'", TimeZone.of("UTC"))
    assert value_of(text, TimeZone.of(zone, certain=False)) == expected
    assert expected is not None
