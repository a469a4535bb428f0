"""Values of metadata tables as Arrow arrays."""

from decimal import Decimal

from pyiceberg.types import DecimalType

from dml.metadata_tables.values import value_array


def test_a_decimal_with_more_digits_than_its_type_is_null() -> None:
    """PyIceberg writes `truncate[70]` of -99.99 as -100.10, also where the type is decimal(4,2)."""
    found = value_array([Decimal("-100.10"), Decimal("-99.40"), None], DecimalType(4, 2))
    assert found.to_pylist() == [None, Decimal("-99.40"), None]
