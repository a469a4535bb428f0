"""How many rows a filter is taken to leave: a guess that decides which reader is quicker."""

import decimal

import pytest
from pyiceberg.expressions.parser import parse
from pyiceberg.schema import Schema
from pyiceberg.types import BooleanType, DateType, DecimalType, DoubleType, LongType, NestedField, StringType

from dml.pruning.bound_expressions import bound_filter
from dml.pruning.row_tests import Bounds
from dml.spark_scan.filter_share import share

SCHEMA = Schema(
    NestedField(1, "l", LongType()),
    NestedField(2, "d", DoubleType()),
    NestedField(3, "s", StringType()),
    NestedField(4, "day", DateType()),
    NestedField(5, "n", DecimalType(9, 2)),
    NestedField(6, "b", BooleanType()),
    NestedField(7, "unknown", LongType()),
)
KNOWN = {
    1: Bounds(lower=0, upper=99),
    2: Bounds(lower=0.0, upper=4.0),
    3: Bounds(lower="b", upper="y"),
    4: Bounds(lower=0, upper=9),
    5: Bounds(lower=decimal.Decimal("1.00"), upper=decimal.Decimal("3.00")),
    6: Bounds(lower=False, upper=True),
    7: Bounds(),
}


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("l = 5", 0.01),
        ("l in (1, 2, 3)", 0.03),
        ("l <> 5", 1.0),
        ("l is not null", 1.0),
        ("l is null", 0.0),
        ("l < 49.5", 0.5),
        ("l < 0", 0.0),
        ("l > 99", 0.0),
        ("l >= 0 and l <= 99", 1.0),
        ("l > 1000 or l < -1", 0.0),
        ("d > 1.0", 0.75),
        ("d > 1.0 and l < 200", 0.75),
        ("d > 1.0 or d < 3.0", 1.0),
        ("d = 1.0", 0.0),
        ("s > 'm'", 0.0),
        ("s < 'm'", 0.0),
        ("s > 'a'", 1.0),
        ("s like 'm%'", 0.0),
        ("s not like 'm%'", 1.0),
        ("day >= '1970-01-10'", 0.0),
        ("day < '1970-01-10'", 1.0),
        ("day = '1970-01-02'", 0.1),
        ("n > 1.50", 0.75),
        ("b = true", 0.5),
        ("b < true", 1.0),
        ("unknown > 5", 0.0),
        ("unknown < 5", 0.0),
        ("unknown = 5", 0.0),
    ],
)
def test_share_that_a_condition_leaves(condition, expected):
    bound = bound_filter(parse(condition), SCHEMA, case_sensitive=True)
    assert share(bound, KNOWN.__getitem__) == pytest.approx(expected, abs=0.011)


def test_a_column_of_one_value():
    bound = bound_filter(parse("l = 5 and s = 'x'"), SCHEMA, case_sensitive=True)
    known = {1: Bounds(lower=5, upper=5), 3: Bounds(lower="x", upper="x")}
    assert share(bound, known.__getitem__) == 1.0
