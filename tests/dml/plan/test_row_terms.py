"""Conditions and values that tasks compute: what they are, and that they are what a database makes of the same text."""

import math
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
)

from dml.errors import DataError
from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import pushable, row_value
from dml.read.projection import arrow_field
from dml.rows.evaluate import CompiledPredicate, UncomputableValueError, evaluate
from dml.rows.program import TRUE
from dml.sqlparse.dialect import parse_expression

SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "j", IntegerType(), required=False),
    NestedField(3, "l", LongType(), required=False),
    NestedField(4, "d", DoubleType(), required=False),
    NestedField(5, "e", DoubleType(), required=False),
    NestedField(6, "s", StringType(), required=False),
    NestedField(7, "u", StringType(), required=False),
    NestedField(8, "f", FloatType(), required=False),
    NestedField(9, "n", DecimalType(9, 2), required=False),
    NestedField(10, "day", DateType(), required=False),
    NestedField(11, "st", StructType(NestedField(12, "a", IntegerType(), required=False)), required=False),
    NestedField(13, "b", BooleanType(), required=False),
    NestedField(14, "must", IntegerType(), required=True),
)
NAMES = TargetNames(schema=SCHEMA, qualifiers=(("t",),), rules=SqlRules())

EXACT = [
    "i % 100 = 7",
    "mod(i, 100) = 7",
    "7 = i % 100",
    "NOT (i % 100 = 7)",
    "t.i % 2 = 0 AND l > 5",
    "i % 2 = 0 OR l > 5",
    "i + 1 > j",
    "i < j",
    "i < l",
    "d * 1.5 > 10",
    "d / 3 > 10",
    "i / 3 > 10",
    "d > i",
    "s < u",
    "i % 3 IN (0, 2)",
    "i % 3 NOT IN (0, 2)",
    "i % 5 BETWEEN 1 AND 3",
    "(i + j) * 2 - 5L <> l",
    "i % 2 = 0 OR i = 99999999999999999999",
]


@pytest.mark.parametrize("text", EXACT)
def test_rows_are_decided_where_they_are_read(text: str) -> None:
    found = pushable(parse_expression(text), NAMES)
    assert found.rows_are_exact
    assert not found.pruning_is_exact


LEFT_TO_SPARK = [
    "i % j = 1",  # may divide by zero
    "i % 0 = 1",
    "d % 2 = 1",
    "i * 1.5 > 10",  # decimals
    "i / 2.5 > 10",
    "n + 1 > 2",
    "f * 2 > 10",  # a float or a double, as the session says
    "st.a % 2 = 0",
    "i % '2' = 0",
    "s + 1 > 2",
    "day + 1 > DATE '2026-01-01'",
    "i DIV 2 = 1",
    "sqrt(i) = 1",
    "i & 1 = 1",
    "i < s",
    "i % 2 = 0 OR sqrt(j) = 1",
    "i % 3 IN (0, 1.5, s)",
    "9223372036854775808 + i > 0",
    "l IN (9007199254740993, 2D)",
    "l NOT IN (9007199254740993, 2D)",
]


@pytest.mark.parametrize("text", LEFT_TO_SPARK)
def test_rows_that_spark_alone_decides(text: str) -> None:
    found = pushable(parse_expression(text), NAMES)
    assert not found.rows_are_exact
    assert found.rows == TRUE


def test_a_part_of_a_condition_leaves_rows_out() -> None:
    found = pushable(parse_expression("i % 2 = 0 AND sqrt(j) = 1 AND l > 3"), NAMES)
    assert not found.rows_are_exact
    assert masked(found.rows, rows(i=[1, 2, 4, 4], l=[4, 4, 4, 3])) == [False, True, True, False]


def test_a_part_that_is_never_true_keeps_no_row() -> None:
    found = pushable(parse_expression("i % 2 = 0 OR i = 99999999999999999999"), NAMES)
    assert masked(found.rows, rows(i=[1, 2, None])) == [False, True, False]


def rows(**given: list[Any]) -> pa.Table:
    """Columns of the schema; those that are not given are NULL."""
    number = len(next(iter(given.values())))
    fields = [arrow_field(field, spark=False) for field in SCHEMA.fields]
    return pa.table(
        [pa.array(given.get(field.name, [None] * number), field.type) for field in fields], pa.schema(fields)
    )


def by_id(table: pa.Table) -> dict[int, pa.Array]:
    return {field.field_id: table.column(field.name).combine_chunks() for field in SCHEMA.fields}


def masked(condition: Any, table: pa.Table) -> list[bool]:
    found = CompiledPredicate(condition)
    columns = by_id(table)
    mask: list[bool] = found.mask({key: columns[key] for key in found.column_ids}, table.num_rows).tolist()
    return mask


VALUES = {
    "i": st.sampled_from([None, 0, 1, -1, 7, -7, 100, 2**31 - 1, -(2**31)]),
    "l": st.sampled_from([None, 0, 1, -1, 9, -100, 2**31, 2**53 + 1, 2**63 - 1, -(2**63)]),
    "d": st.sampled_from([None, 0.0, -0.0, 1.5, -2.25, math.nan, math.inf, -math.inf, 1e300, 9007199254740993.0]),
    "s": st.sampled_from([None, "", "a", "b", "ä", "\U0001f600", "\uffff"]),
}
KINDS = {"i": "i", "j": "i", "l": "l", "d": "d", "e": "d", "s": "s", "u": "s"}
TABLES = st.lists(st.tuples(*(VALUES[kind] for kind in KINDS.values())), min_size=1, max_size=30)
NUMBERS = st.recursive(
    st.sampled_from(["i", "j", "l", "d", "e", "1", "7", "-3", "2147483648", "1e3", "CAST(2 AS DOUBLE)"]),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*"), inner),
        st.builds("({} {} {})".format, inner, st.sampled_from("%/"), st.sampled_from(["2", "-3", "100", "7"])),
    ),
    max_leaves=4,
)
COMPARISONS = st.one_of(
    st.builds("{} {} {}".format, NUMBERS, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), NUMBERS),
    st.builds("{} {} {}".format, st.sampled_from("su"), st.sampled_from(["=", "<", ">="]), st.sampled_from("su")),
)
CONDITIONS = st.recursive(
    COMPARISONS,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=3,
)


def fitting(function: Callable[[], Any]) -> Any:
    """What a function gives; None where a number does not fit its type."""
    try:
        return function()
    except UncomputableValueError:
        return None


@cache
def database() -> duckdb.DuckDBPyConnection:
    """Return the database of all examples: to start one takes longer than a query."""
    started = duckdb.connect()
    started.execute("PRAGMA disable_optimizer")  # which would take `1 = i + 1` for `i = 0`
    return started


def by_duckdb(text: str, given: list[tuple[Any, ...]]) -> list[Any] | None:
    """The value of an expression for each row; None where a number does not fit its type."""
    table = rows(**{name: [row[place] for row in given] for place, name in enumerate(KINDS)})
    database().register("rows", table.select(list(KINDS)))
    try:
        return [row[0] for row in database().sql(f"SELECT {text} FROM rows").fetchall()]
    except (duckdb.OutOfRangeException, duckdb.ConversionException):
        return None


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(CONDITIONS, TABLES)
def test_conditions_are_true_where_a_database_says_so(text: str, given_rows: list[tuple[Any, ...]]) -> None:
    found = pushable(parse_expression(text), NAMES)
    table = rows(**{name: [row[place] for row in given_rows] for place, name in enumerate(KINDS)})
    assume(found.rows_are_exact)
    expected = by_duckdb(text, given_rows)
    found_rows = fitting(lambda: masked(found.rows, table))
    if found_rows is None:  # a database need not compute both sides of AND and OR
        assert expected is None or " AND " in text or " OR " in text
    else:
        assert expected is not None
        assert found_rows == [value is True for value in expected]


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(NUMBERS, st.sampled_from(["i", "l", "d"]), TABLES)
def test_values_are_those_of_a_database(text: str, column: str, given_rows: list[tuple[Any, ...]]) -> None:
    term = row_value(parse_expression(text), SCHEMA.find_field(column), NAMES)
    assume(term is not None)
    assert term is not None
    table = rows(**{name: [row[place] for row in given_rows] for place, name in enumerate(KINDS)})
    expected = by_duckdb(text, given_rows)
    found = fitting(lambda: evaluate(term, by_id(table), table.num_rows))
    if found is None or expected is None:
        assert found is expected
        return
    assert found.type == arrow_field(SCHEMA.find_field(column), spark=True).type
    assert repr(found.to_pylist()) == repr([None if v is None else type_of(column)(v) for v in expected])


def type_of(column: str) -> type:
    return float if column == "d" else int


@pytest.mark.parametrize(
    ("column", "text", "value"),
    [
        ("i", "5", 5),
        ("l", "-5", -5),
        ("d", "5", 5.0),
        ("d", "0.1", 0.1),
        ("s", "'x'", "x"),
        ("b", "true", True),
        ("day", "DATE '1970-01-03'", "1970-01-03"),
        ("n", "NULL", None),
        ("s", "u", "there"),
        ("i", "j + 1", 8),
        ("d", "d * 2", 5.0),
        ("l", "(j)", 7),
        ("d", "j", 7.0),
        ("d", "f", 0.5),
        ("n", "1.5", Decimal("1.50")),
        ("n", "-7", Decimal("-7.00")),
    ],
)
def test_values_that_need_no_spark(column: str, text: str, value: Any) -> None:
    term = row_value(parse_expression(text), SCHEMA.find_field(column), NAMES)
    assert term is not None
    (found,) = evaluate(term, by_id(rows(j=[7], u=["there"], d=[2.5], f=[0.5])), 1).to_pylist()
    assert (str(found) if column == "day" else found) == value


@pytest.mark.parametrize("text", ["-0.0", "d * -0.0"])
def test_a_decimal_has_no_negative_zero(text: str) -> None:
    term = row_value(parse_expression(text), SCHEMA.find_field("d"), NAMES)
    assert term is not None
    (found,) = evaluate(term, by_id(rows(d=[2.5])), 1).to_pylist()
    assert str(found) == "0.0"


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("i", "2147483648"),
        ("i", "l"),
        ("i", "i + l"),
        ("f", "d"),
        ("i", "1.5"),
        ("i", "'5'"),
        ("s", "5"),
        ("f", "1.5"),
        ("n", "1.555"),
        ("n", "12345678.5"),
        ("n", "n + 1"),
        ("day", "'2026-01-01'"),
        ("must", "NULL"),
        ("must", "i"),
        ("must", "must + 1"),
        ("st", "st"),
        ("s", "initcap(s)"),
        ("i", "CAST('5' AS INT)"),
    ],
)
def test_values_that_spark_stores(column: str, text: str) -> None:
    assert row_value(parse_expression(text), SCHEMA.find_field(column), NAMES) is None


@pytest.mark.parametrize(
    ("column", "text", "given_rows"),
    [
        ("i", "i + 1", {"i": [2**31 - 1]}),
        ("i", "i + -2147483648", {"i": [-1]}),  # the least int, and no bigint
        ("i", "i * j", {"i": [2**16], "j": [2**15]}),
        ("l", "l - 1", {"l": [-(2**63)]}),
        ("l", "l + -9223372036854775808", {"l": [-1]}),
    ],
)
def test_numbers_that_do_not_fit(column: str, text: str, given_rows: dict[str, list[Any]]) -> None:
    term = row_value(parse_expression(text), SCHEMA.find_field(column), NAMES)
    assert term is not None
    with pytest.raises(DataError, match="does not fit int"):
        evaluate(term, by_id(rows(**given_rows)), 1)


def test_a_bigint_makes_the_other_side_one() -> None:
    for text in ("i + 2147483648", "i + -(2147483648)", "i + 5L", "l + i"):
        assert row_value(parse_expression(text), SCHEMA.find_field("i"), NAMES) is None, text
    found = pushable(parse_expression("i + 2147483648 > 2147483650"), NAMES)
    assert masked(found.rows, rows(i=[2, 3, 2**31 - 1])) == [False, True, True]
