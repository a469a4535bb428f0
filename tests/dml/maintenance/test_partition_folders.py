"""Partition values survive the way through folder names, and have the type of the table's column."""

import math
import uuid
from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform, VoidTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from dml.errors import AnalysisError
from dml.maintenance.partition_folders import HIVE_NULL, PartitionTyper, folder_texts
from dml.sqlparse.constants import TimeZone

EPOCH = date(1970, 1, 1)


def typer(*kinds, zone="UTC", void=()):
    fields = [NestedField(place, f"c{place}", kind, required=False) for place, kind in enumerate(kinds, start=1)]
    spec = PartitionSpec(
        *(
            PartitionField(
                one.field_id, 999 + one.field_id, VoidTransform() if one.name in void else IdentityTransform(), one.name
            )
            for one in fields
        )
    )
    return PartitionTyper(spec, StructType(*fields), TimeZone.of(zone, certain=False))


def value(kind, text, zone="UTC"):
    return typer(kind, zone=zone).partition((("c1", text),))[0]


ESCAPED = frozenset("\"#%'*/:=?\\{}[]^\x7f") | {chr(code) for code in range(1, 32)}


def spark_escaped(text):
    """As Spark and Hive write a value: special ASCII characters in two hexadecimal digits, others as they are."""
    return "".join(f"%{ord(one):02X}" if one in ESCAPED else one for one in text)


def uri_escaped(text):
    """As PyArrow and others write it: all bytes but letters and digits."""
    return "".join(f"%{byte:02X}" if not chr(byte).isalnum() or byte > 127 else chr(byte) for byte in text.encode())


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1).filter(
    lambda text: text != HIVE_NULL
)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=3), st.sampled_from([spark_escaped, uri_escaped]))
def test_any_text_comes_back_from_a_folder_name(pairs, escaped):
    folders = [f"{escaped(name)}={escaped(text)}" for name, text in pairs]
    assert all("/" not in folder for folder in folders)
    assert folder_texts(folders) == tuple(pairs)


@pytest.mark.parametrize("folders", [["sub"], ["a=1", "sub"], ["=1"], ["sub", "a=1"]])
def test_other_folders_are_no_partitions(folders):
    assert folder_texts(folders) is None


def test_escapes_that_are_no_text_are_refused():
    with pytest.raises(AnalysisError, match="not UTF-8"):
        folder_texts(["a=%FF"])


@given(st.integers(-(2**63), 2**63 - 1), st.booleans())
def test_whole_numbers(number, padded):
    text = f"{number:020d}" if padded and abs(number) < 10**18 else str(number)
    assert value(LongType(), text[-19:] if padded and number >= 0 else str(number)) == number
    if -(2**31) <= number < 2**31:
        assert value(IntegerType(), str(number)) == number
    else:
        with pytest.raises(AnalysisError, match="is not a int"):
            value(IntegerType(), str(number))


@given(st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**20), max_value=10**20))
def test_decimals_are_exact(number):
    found = value(DecimalType(38, 5), str(number))
    assert (found, found.as_tuple().exponent) == (number, -5)


@given(st.dates())
def test_days(day):
    assert value(DateType(), day.isoformat()) == (day - EPOCH).days


@given(st.floats(width=32))
def test_floats(number):
    found = value(FloatType(), str(number))
    assert found == number or (math.isnan(found) and math.isnan(number))


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (StringType(), "001", "001"),
        (StringType(), "1.0", "1.0"),
        (StringType(), "null", "null"),
        (IntegerType(), "001", 1),
        (BooleanType(), "TRUE", True),
        (BooleanType(), "false", False),
        (DoubleType(), "1e3", 1000.0),
        (DoubleType(), "-Infinity", -math.inf),
        (FloatType(), "0.1", 0.10000000149011612),
        (DecimalType(9, 2), "1.5", Decimal("1.50")),
        (DecimalType(9, 2), "1E2", Decimal("100.00")),
        (DateType(), "2024-1-2", 19724),
        (DateType(), "+10000-01-01", 2932897),
        (TimestampType(), "2024-01-02 03:04:05.6", 1704164645600000),
        (TimestamptzType(), "2024-01-02 03:04:05", 1704164645000000),
        (UUIDType(), "00000000-0000-0000-0000-00000000000A", uuid.UUID(int=10)),
        (BinaryType(), "é", "é".encode()),
        (FixedType(2), "ab", b"ab"),
    ],
)
def test_values_have_the_type_of_the_column(kind, text, expected):
    """The reference infers the type of a path where a table of Spark has the folder: '001' becomes 1."""
    found = value(kind, text)
    assert (found, type(found)) == (expected, type(expected))


def test_instants_are_in_the_session_zone():
    assert value(TimestamptzType(), "2024-01-02 03:04:05", "Asia/Tokyo") == 1704132245000000
    assert value(TimestamptzType(), "2024-01-02 03:04:05Z", "Asia/Tokyo") == 1704164645000000


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (IntegerType(), "1.5"),
        (IntegerType(), "1_000"),
        (IntegerType(), "2147483648"),
        (IntegerType(), " 1"),
        (LongType(), "٣"),
        (LongType(), "9223372036854775808"),
        (BooleanType(), "yes"),
        (FloatType(), "1e39"),
        (DoubleType(), "1e9999"),
        (DecimalType(5, 2), "1.555"),
        (DecimalType(5, 2), "1000"),
        (DecimalType(5, 2), "1E99999"),
        (DecimalType(5, 2), "NaN"),
        (DateType(), "2024-02-30"),
        (DateType(), "20240101"),
        (TimestampType(), "2024-01-02 03:04:05Z"),
        (TimestampType(), "noon"),
        (UUIDType(), "{00000000-0000-0000-0000-000000000001}"),
        (FixedType(2), "abc"),
        (StringType(), ""),
    ],
)
def test_other_texts_are_refused(kind, text):
    """Nothing is rounded, cut or read as NULL; the error names the column and its type."""
    with pytest.raises(AnalysisError, match="of the partition column 'c1' is not a"):
        value(kind, text)


def test_types_without_a_text_are_refused():
    with pytest.raises(AnalysisError, match="is time\\(6\\), which folder names cannot hold"):
        value(TimeType(), "01:02:03")
    assert value(TimeType(), HIVE_NULL) is None


def test_void_fields_are_null():
    """Version 1 keeps the field of a dropped partition column."""
    found = typer(StringType(), IntegerType(), void=("c1",))
    assert found.names == ("c2",)
    assert found.partition((("c2", "7"),)) == (None, 7)
    assert found.source_ids == (None, 2)


@pytest.mark.parametrize(
    ("texts", "partition", "selected"),
    [
        ({}, ("a", 1), True),
        ({"c2": "01"}, ("a", 1), True),
        ({"c1": "a", "c2": "2"}, ("a", 1), False),
        ({"c1": HIVE_NULL}, (None, 1), True),
        ({"c1": HIVE_NULL}, ("a", 1), False),
        ({"c1": "a"}, (None, 1), False),
    ],
)
def test_filters_compare_values(texts, partition, selected):
    assert typer(StringType(), IntegerType()).filter(texts, "t")(partition) is selected


@pytest.mark.parametrize(
    ("kinds", "texts", "message"),
    [
        ((), {"c1": "a"}, "Cannot use partition filter with an unpartitioned table db.t"),
        ((StringType(),), {"c1": "a", "c2": "b"}, r"partition filter \(2\) is greater than the number .* table \(1\)"),
        ((StringType(),), {"x": "a"}, r"columns that are not partitioned: \[x\] . Valid partition columns: \[c1\]"),
    ],
)
def test_filters_of_other_columns_are_refused(kinds, texts, message):
    """With the reference's messages."""
    with pytest.raises(AnalysisError, match=message):
        typer(*kinds).filter(texts, "db.t")
