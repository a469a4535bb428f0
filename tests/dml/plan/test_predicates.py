"""Conditions to Iceberg expressions: never narrower than the condition, and exact where they say so."""

import datetime as dt
import math
import re
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
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
    TimestampType,
    TimestamptzType,
)

from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import equi_keys, pushable, split_conjuncts, target_only_pushdown
from dml.plan.row_delta_plan import MergeSource
from dml.pruning.row_tests import Bounds, all_match, any_match
from dml.rows.evaluate import CompiledPredicate
from dml.sqlparse.dialect import parse_expression

SCHEMA = Schema(
    NestedField(1, "i", IntegerType(), required=False),
    NestedField(2, "l", LongType(), required=False),
    NestedField(3, "d", DoubleType(), required=False),
    NestedField(4, "f", FloatType(), required=False),
    NestedField(5, "n", DecimalType(9, 2), required=False),
    NestedField(6, "s", StringType(), required=False),
    NestedField(7, "b", BooleanType(), required=False),
    NestedField(8, "day", DateType(), required=False),
    NestedField(9, "ts", TimestamptzType(), required=False),
    NestedField(10, "ntz", TimestampType(), required=False),
    NestedField(11, "bin", BinaryType(), required=False),
    NestedField(
        12,
        "st",
        StructType(
            NestedField(13, "a", IntegerType(), required=False), NestedField(14, "must", IntegerType(), required=True)
        ),
        required=False,
    ),
    NestedField(15, "With Space", IntegerType(), required=False),
)


def names(zone="UTC", *, case_sensitive=False):
    rules = SqlRules(case_sensitive=case_sensitive, time_zone=zone, catalogs=("lake",))
    return TargetNames(schema=SCHEMA, qualifiers=(("t",),), rules=rules)


def pushed(text, zone="UTC", **options):
    tree = parse_expression(text)
    assert tree is not None, text
    return pushable(tree, names(zone, **options))


def shown(text, zone="UTC"):
    """The expression in short, or None where nothing is known."""
    found = pushed(text, zone)
    if not found.pruning_is_exact:
        return None
    return str(found.pruning)


SAME = [
    ("i = 3", "3 = i"),
    ("i = 3", "t.i = 3"),
    ("i = 3", "`I` = 3"),
    ("i = 3", "(i) = (3)"),
    ("i = 3", "i = 3.0"),
    ("i = 3", "i = 3L"),
    ("i = 3", "i = 3D"),
    ("i = 3", "i = '3'"),
    ("i = 3", "i = cast('3' as int)"),
    ("i = 3", "i = cast(3 as bigint)"),
    ("i = 3", "i <=> 3"),
    ("i = 3", "i in (3)"),
    ("i = 3", "i in (3, NULL, 2.5, 99999999999)"),
    ("i = 3", "NOT (i <> 3)"),
    ("i = 3", "NOT NOT i = 3"),
    ("i <= 2", "i < 2.5"),
    ("i > 2", "i >= 2.5"),
    ("i > -3", "i > - 2.5D"),
    ("i IS NOT NULL", "i < 3000000000"),
    ("i IS NOT NULL", "i <> 2.5"),
    ("false", "i = 3000000000"),
    ("false", "i = 2.5"),
    ("false", "i > 3000000000"),
    ("false", "i = NULL"),
    ("false", "NOT (i = NULL)"),
    ("false", "i NOT IN (1, NULL)"),
    ("false", "i > NULL"),
    ("l = 9223372036854775807", "l = 9223372036854775807.0"),
    ("false", "l = 9223372036854775808"),
    ("n = 1.50", "n = 1.5"),
    ("n <= 1.55", "n < 1.555"),
    ("false", "n = 1.555"),
    ("n = 2.00", "n = 2"),
    ("n IS NOT NULL", "n < 100000000"),
    ("n > -1.56", "n > -1.555"),
    ("i >= 1 AND i <= 5", "i BETWEEN 1 AND 5"),
    ("i < 1 OR i > 5", "i NOT BETWEEN 1 AND 5"),
    ("i < 1 OR i > 5", "NOT (i >= 1 AND i <= 5)"),
    ("day = DATE '2020-01-31'", "day = '2020-01-31'"),
    ("day = DATE '2020-01-31'", "day = cast('2020-01-31' as date)"),
    ("ts = TIMESTAMP '2020-01-31 00:00:00'", "ts = '2020-01-31'"),
    ("ts = TIMESTAMP '2020-01-31 00:00:00'", "ts = DATE '2020-01-31'"),
    ("ts = TIMESTAMP '2020-01-31 10:00:00'", "ts = '2020-01-31T12:00:00.000+02:00'"),
    ("ntz = TIMESTAMP_NTZ '2020-01-31 10:00:00'", "ntz = TIMESTAMP '2020-01-31 10:00'"),
    ("day >= DATE '2026-01-01' AND day < DATE '2027-01-01'", "system.years(day) = 56"),
    ("day < DATE '2027-01-01'", "56 >= lake.system.years(day)"),
    ("day < DATE '2026-01-01' OR day >= DATE '2027-01-01'", "System.`Years`(day) <> 56"),
    ("day < DATE '1970-01-01'", "system.months(day) < 0"),
    ("day >= DATE '1970-01-01'", "system.months(day) > -1"),
    ("day >= DATE '2024-02-01' AND day < DATE '2024-03-01'", "system.months(day) = 649"),
    ("day >= DATE '2026-01-01' AND day < DATE '2026-01-02'", "system.days(day) = DATE '2026-01-01'"),
    (
        "ts >= TIMESTAMP '2026-01-01 00:00:00' AND ts < TIMESTAMP '2026-01-02 00:00:00'",
        "system.days(t.ts) = DATE '2026-01-01'",
    ),
    ("ntz < TIMESTAMP_NTZ '2026-01-02 00:00:00'", "NOT (system.days(ntz) > DATE '2026-01-01')"),
    (
        "ntz >= TIMESTAMP_NTZ '1969-12-31 23:00:00' AND ntz < TIMESTAMP_NTZ '1970-01-01 00:00:00'",
        "system.hours(ntz) = -1",
    ),
    ("false", "system.days(ts) = NULL"),
    ("system.truncate(10, i) = 10 OR system.truncate(10, i) = 20", "system.truncate(10, i) IN (10, NULL, 20)"),
    ("day < DATE '2026-01-01' OR day >= DATE '2027-01-01'", "system.years(day) NOT IN (56)"),
    ("false", "system.years(day) NOT IN (56, NULL)"),
    ("system.years(day) = 56", "56 <=> system.years(day)"),
    ("system.bucket(16, i) = 3", "3 = lake.`SYSTEM`.Bucket(16, t.I)"),
    ("system.bucket(16, i) = 3", "system.bucket(16, i) <=> 3"),
    ("system.bucket(16, i) = 3", "NOT (system.bucket(16, i) <> 3)"),
    ("system.bucket(16, i) = 3", "system.bucket(16, i) IN (3, NULL, 99)"),
    ("system.bucket(16, i) <> 3", "NOT (system.bucket(16, i) = 3)"),
    ("system.bucket(16, i) <> 3", "system.bucket(16, i) NOT IN (3, -1)"),
    ("system.bucket(16, i) <> 3 OR i IS NULL", "NOT (system.bucket(16, i) <=> 3)"),
    ("system.bucket(16, i) IN (0, 1, 2)", "system.bucket(16, i) < 3"),
    ("system.bucket(16, i) IN (14, 15)", "14 <= system.bucket(16, i)"),
    ("system.bucket(16, i) >= 1 AND system.bucket(16, i) <= 2", "system.bucket(16, i) BETWEEN 1 AND 2"),
    ("false", "system.bucket(16, i) = 16"),
    ("i IS NOT NULL", "system.bucket(16, i) <> 16"),
    ("i IS NOT NULL", "system.bucket(16, i) >= 0"),
    ("i IS NOT NULL", "system.bucket(1, i) = 0"),
    ("i IS NULL", "system.bucket(16, i) IS NULL"),
    ("i IS NULL", "system.bucket(16, i) <=> NULL"),
    ("i IS NOT NULL", "system.bucket(16, i) IS NOT NULL"),
    ("false", "system.bucket(16, i) NOT IN (3, NULL)"),
    ("s = 'abc'", "system.truncate(4, s) = 'abc'"),
    ("s LIKE 'abcd%'", "system.truncate(4, s) = 'abcd'"),
    ("s NOT LIKE 'abcd%'", "system.truncate(4, s) <> 'abcd'"),
    ("s LIKE 'äöü€%'", "system.truncate(4, s) = 'äöü€'"),
    ("false", "system.truncate(4, s) = 'abcde'"),
    ("i >= 20 AND i < 30", "system.truncate(10, i) = 20"),
    ("l >= -10 AND l < 0", "system.truncate(10, l) = -10"),
    ("l < -10 OR l >= 0", "NOT (system.truncate(10, l) = -10)"),
    ("s = 'abc'", "s LIKE 'abc'"),
    ("s IS NOT NULL", "s LIKE '%'"),
    ("s LIKE 'abc%'", "startswith(s, 'abc')"),
    ("NOT s LIKE 'abc%'", "s NOT LIKE 'abc%'"),
    ("b", "b = true"),
    ("b", "b IS TRUE"),
    ("NOT b", "b <> true"),
    ("NOT b", "b = false"),
    ("st.a > 3", "t.st.a > 3"),
    ("st.a > 3", "T.ST.A > 3"),
    ("`With Space` = 1", "t.`with space` = 1"),
    ("bin = X'1F'", "bin = X'1f'"),
    ("d = double('NaN')", "d = cast('nan' as double)"),
    ("d = double('NaN')", "d >= double('NaN')"),
    ("false", "d > double('NaN')"),
    ("true", "21 = 21"),
    ("true", "NOT (50 <> 50)"),
    ("true", "i = 1 OR 1 = 1"),
    ("false", "1 > NULL"),
    ("false", "50 <> 50 AND f(i)"),
    ("false", "NULL"),
    ("false", "'a' > 'b'"),
    ("false", "NULL IS NOT NULL"),
]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_two_ways_to_say_one_thing_give_one_expression(one, other):
    assert shown(one) is not None
    assert shown(one) == shown(other)


UNCERTAIN = [
    "system.bucket(0, i) = 1",
    "system.bucket(4, d) = 1",
    "system.bucket(4, i) = 1.0",
    "system.bucket(4, i) = '1'",
    "system.bucket(4, i) IN (1, '2')",
    "system.bucket(4, i) IN (1, 2.5)",
    "system.bucket(4, i) = system.bucket(4, l)",
    "system.bucket(4, i + 1) = 1",
    "system.bucket(i, i) = 1",
    "system.bucket(i) = 1",
    "other.system.bucket(4, i) = 1",
    "bucket(4, i) = 1",
    "system.bucket(1000000, i) > 1",
    "system.truncate(4, n) IS NULL",
    "system.truncate(10, i) IN (20, 25)",
    "NOT (system.truncate(10, i) <=> 20)",
    "system.truncate(10, i) > 20",
    "system.truncate(10, i) = -2147483650",  # what is below the least multiple wraps around
    "system.hours(ts) > 9999999999",
    "system.truncate(10, i) = 25",
    "system.truncate(0, i) = 0",
    "system.truncate(4, s) > 'abc'",
    "system.days(ts) = '2026-01-01'",
    "system.days(f(ts)) = DATE '2026-01-01'",
    "system.years(day) = 20000",
    "other.system.years(day) = 56",
    "years(day) = 56",
    "s = 3",
    "s > 3.5",
    "s = DATE '2020-01-01'",
    "i = 'x'",
    "i = '03'",
    "i = ' 3'",
    "i = 3.0f",
    "l = 9007199254740993D",
    "d = '1.5'",
    "n = 1.5D",
    "n = '1.5'",
    "f = 16777217",
    "f > 1e300",
    "day = '2020-1-1'",
    "day = '2020-02-30'",
    "day = TIMESTAMP '2020-01-01 00:00:00'",
    "ts = 'now'",
    "ts = '2020-01-01 25:00:00'",
    "ts IN ('2020-01-01')",
    "day IN ('2020-01-01 10:00')",
    "day NOT IN ('2020-01-02', '2020-01-01T')",
    "day IN ('02020-01-01')",
    "i IN (1, 'x')",
    "s LIKE 'a_c%'",
    "s LIKE '%abc'",
    "s LIKE 'a\\\\%'",
    "s LIKE 'x' ESCAPE '/'",
    "s ILIKE 'a%'",
    "s LIKE ANY ('a%', 'b%')",
    "i + 1 = 3",
    "length(s) > 3",
    "i = l",
    "i IN (SELECT 1)",
    "EXISTS (SELECT 1)",
    "NOT isnan(d)",
    "st.must IS NULL",
    "st.must = 1",
    "st.missing = 1",
    "missing = 1",
    "x.i = 1",
    "st = NULL IS NULL",
    "NOT (length(s) > 3)",
    "(i, l) IN ((1, 2))",
    "i = :p",
]


@pytest.mark.parametrize("text", UNCERTAIN)
def test_what_is_not_certain_is_left_out(text):
    tree = parse_expression(text)
    found = pushable(tree, names())
    assert isinstance(found.pruning, AlwaysTrue)
    assert not found.pruning_is_exact
    assert not found.always
    assert not found.never


def test_no_tree_means_that_nothing_is_known():
    assert not pushable(None, names()).pruning_is_exact


def test_known_conjuncts_are_kept_beside_unknown_ones():
    found = pushed("i = 1 AND length(s) > 3 AND s = 'x'")
    assert str(found.pruning) == str(pushed("i = 1 AND s = 'x'").pruning)
    assert not found.pruning_is_exact


def test_an_unknown_side_of_or_makes_all_of_it_unknown():
    assert isinstance(pushed("i = 1 OR length(s) > 3").pruning, AlwaysTrue)
    assert str(pushed("(i = 1 AND length(s) > 3) OR i = 2").pruning) == str(pushed("i = 1 OR i = 2").pruning)


def test_negation_of_a_conjunction_with_an_unknown_part_is_unknown():
    assert isinstance(pushed("NOT (i = 1 AND length(s) > 3)").pruning, AlwaysTrue)
    assert str(pushed("NOT (i = 1 OR length(s) > 3)").pruning) == str(pushed("i <> 1").pruning)


def test_constant_conditions_are_decided():
    assert pushed("true").always
    assert pushed("21 = 21").always
    assert pushed("1 > NULL").never
    assert pushed("50 <> 50").never
    assert not pushed("i = 1").never


def test_case_sensitive_names_must_match():
    assert pushed("i = 1", case_sensitive=True).pruning_is_exact
    assert not pushed("I = 1", case_sensitive=True).pruning_is_exact


def test_a_contradiction_that_does_not_fold_is_not_taken_for_never():
    assert not pushed("i = 1 AND i > 20").never


def micros(text, zone):
    found = pushed(f"ts = TIMESTAMP '{text}'", zone).pruning
    return found.literal.value if hasattr(found, "literal") else None


def test_timestamps_are_read_in_the_sessions_time_zone():
    utc = dt.datetime(2020, 7, 1, 12, tzinfo=dt.UTC).timestamp() * 1_000_000
    assert micros("2020-07-01 12:00:00", "UTC") == utc
    assert micros("2020-07-01 14:00:00", "Europe/Berlin") == utc
    assert micros("2020-07-01 14:00:00", "+02:00") == utc
    assert micros("2020-07-01 12:00:00Z", "America/New_York") == utc


def test_a_local_time_in_a_gap_or_an_overlap_is_what_java_makes_of_it():
    # Java moves a time in the gap forward, and takes the earlier of two instants.
    assert micros("2020-03-29 02:30:00", "Europe/Berlin") == micros("2020-03-29 01:30:00", "UTC")
    assert micros("2020-10-25 02:30:00", "Europe/Berlin") == micros("2020-10-25 00:30:00", "UTC")


def test_times_of_which_zone_tables_may_differ_are_left_out():
    assert micros("1890-01-01 00:00:00", "Europe/Berlin") is None
    assert micros("2020-01-01 00:00:00", "PST") is None
    assert micros("1890-01-01 00:00:00", "UTC") is not None


def test_a_very_long_condition_is_left_out():
    assert not pushable(parse_expression("i IN (" + ",".join(map(str, range(30_000))) + ")"), names()).pruning_is_exact


@pytest.mark.parametrize("operator", ["AND", "OR"])
def test_a_long_chain_does_not_overflow_the_stack(operator):
    found = pushed(f" {operator} ".join(f"i <> {number}" for number in range(700)))
    assert not found.pruning_is_exact
    any_match(found.pruning, SCHEMA, case_sensitive=True)


# ---- MERGE ----------------------------------------------------------------------------------------------------

SOURCE = MergeSource(view="src", alias="src", columns=("i", "k", "other"))


def keys(text):
    return [(key.target.name, key.source_column) for key in found_keys(text)]


def found_keys(text):
    return equi_keys(parse_expression(text), names(), SOURCE)


def test_equi_keys_are_found_on_either_side_among_all_conjuncts():
    assert keys("t.i = src.k AND src.other = t.l AND t.d > 1") == [("i", "k"), ("l", "other")]
    assert keys("(t.i = SRC.K)") == [("i", "K")]
    assert keys("l = k") == [("l", "k")]


def test_equi_keys_of_nested_fields_and_null_safe_ones_are_told_apart():
    nested, null_safe, plain = found_keys("t.st.a = src.k AND src.k <=> t.i AND t.l = src.k")
    assert [key.target.name for key in (nested, null_safe, plain)] == ["st.a", "i", "l"]
    assert [key.null_safe for key in (nested, null_safe, plain)] == [False, True, False]
    assert nested.field is None
    assert [key.field.name for key in (null_safe, plain)] == ["i", "l"]


@pytest.mark.parametrize(
    "text",
    ["t.i = src.k + 1", "t.i = src.k OR t.l = 1", "t.st = src.k OR true", "i = k", "t.i = t.l", "t.i = 3"],
)
def test_other_conjuncts_give_no_key(text):
    assert keys(text) == []


def test_only_the_targets_conjuncts_narrow_the_target_of_a_merge():
    found = target_only_pushdown(parse_expression("t.i = src.k AND t.l = 5 AND src.other = 7"), names(), SOURCE)
    assert str(found) == str(pushed("l = 5").pruning)


def test_a_name_that_the_source_has_too_is_not_taken_for_the_targets():
    assert isinstance(target_only_pushdown(parse_expression("i = 5"), names(), SOURCE), AlwaysTrue)
    assert isinstance(target_only_pushdown(parse_expression("src.l = 5"), names(), SOURCE), AlwaysTrue)


def test_conjuncts_come_in_order():
    assert [node.sql() for node in split_conjuncts(parse_expression("a AND (b AND c) AND d"))] == ["a", "b", "c", "d"]


# ---- against DuckDB -------------------------------------------------------------------------------------------

INTS = [-2147483648, -3, -1, 0, 1, 2, 3, 2147483647]
LONGS = [*INTS, -9223372036854775808, 9223372036854775807, 9007199254740993]
DOUBLES = [float("nan"), -1.5, -0.0, 0.0, 1.0, 2.5, 1e300, float("inf"), float("-inf")]
FLOATS = [float("nan"), -1.5, 0.0, 1.0, 2.5, float("inf")]
DECIMALS = [Decimal("-1.55"), Decimal("0.00"), Decimal("1.50"), Decimal("2.00"), Decimal("9999999.99")]
STRINGS = ["", "a", "ab", "abc", "abcd", "b", "é", "\U0001f600"]
DAYS = [dt.date(1969, 12, 31), dt.date(1970, 1, 1), dt.date(2020, 1, 31), dt.date(2020, 2, 1)]
STAMPS = [dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2020, 1, 31), dt.datetime(2020, 1, 31, 10, 0, 1)]  # noqa: DTZ001

VALUES: dict[str, tuple[list[Any], Any]] = {
    "i": (INTS, pa.int32()),
    "l": (LONGS, pa.int64()),
    "d": (DOUBLES, pa.float64()),
    "f": (FLOATS, pa.float32()),
    "n": (DECIMALS, pa.decimal128(9, 2)),
    "s": (STRINGS, pa.string()),
    "b": ([True, False], pa.bool_()),
    "day": (DAYS, pa.date32()),
    "ntz": (STAMPS, pa.timestamp("us")),
}

NUMBER_TEXTS = ["-3", "0", "1", "2", "2.5", "-1.55", "1.555", "3000000000", "99999999999999999999", "1.0"]
LITERALS = {
    "i": NUMBER_TEXTS,
    "l": [*NUMBER_TEXTS, "9223372036854775807"],
    "d": ["-1.5", "0", "1", "2.5", "1e300", "cast('NaN' as double)", "100"],
    "f": ["-1.5", "0", "1", "2.5", "cast('NaN' as double)"],
    "n": ["-1.555", "0", "1.5", "2", "1.55", "100000000", "9999999.99"],
    "s": ["''", "'a'", "'abc'", "'b'", "'é'"],
    "b": ["true", "false"],
    "day": ["DATE '1970-01-01'", "DATE '2020-01-31'"],
    "ntz": ["TIMESTAMP_NTZ '2020-01-31 00:00:00'", "TIMESTAMP_NTZ '2020-01-31 10:00:01'"],
}

columns = st.sampled_from(sorted(VALUES))


@st.composite
def leaves(draw):
    column = draw(columns)
    texts = st.sampled_from([*LITERALS[column], "NULL"])
    kind = draw(st.sampled_from(["compare", "flipped", "in", "between", "null", "like", "flag", "unknown", "safe"]))
    negation = draw(st.sampled_from(["", "NOT "]))
    match kind:
        case "compare" | "flipped":
            operator = draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="]))
            sides = (column, draw(texts))
            left, right = sides if kind == "compare" else sides[::-1]
            return f"{left} {operator} {right}"
        case "in":
            items = ", ".join(draw(st.lists(texts, min_size=1, max_size=4)))
            return f"{column} {negation}IN ({items})"
        case "between":
            return f"{column} {negation}BETWEEN {draw(texts)} AND {draw(texts)}"
        case "null":
            return f"{column} IS {negation}NULL"
        case "like":
            return f"s {negation}LIKE '{draw(st.sampled_from(['a%', 'ab%', 'abc', '%', 'é%']))}'"
        case "flag":
            return f"{negation}b"
        case "safe":
            return f"{column} IS {negation}DISTINCT FROM {draw(texts)}"
    return "length(s) > 1"


conditions = st.recursive(
    leaves(),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda text: f"NOT ({text})"),
    ),
    max_leaves=5,
)
rows = st.lists(
    st.fixed_dictionaries({name: st.sampled_from([None, *values]) for name, (values, _) in VALUES.items()}),
    min_size=1,
    max_size=6,
)


def as_table(data):
    arrays = [pa.array([row[name] for row in data], kind) for name, (_, kind) in VALUES.items()]
    return pa.table(arrays, names=list(VALUES))


def true_rows(table, text, connection):
    """Which rows DuckDB finds: like Spark it takes NaN for equal to itself and greater than all else."""
    connection.register("t", table)
    duck = text.replace("TIMESTAMP_NTZ", "TIMESTAMP")
    return [bool(value) for (value,) in connection.execute(f"SELECT {duck} FROM t").fetchall()]


IDS = {SCHEMA.find_field(name).field_id: name for name in VALUES}


def internal(value):
    match value:
        case dt.datetime():
            return (value - dt.datetime(1970, 1, 1)) // dt.timedelta(microseconds=1)  # noqa: DTZ001
        case dt.date():
            return (value - dt.date(1970, 1, 1)).days
    return value


def bounds_of(table):
    """Exact bounds of every column, without NaN, as manifests have them."""

    def of(field_id):
        column = table.column(IDS[field_id]).to_pylist()
        nans = [value for value in column if isinstance(value, float) and math.isnan(value)]
        plain = [internal(value) for value in column if value is not None and value not in nans]
        plain = [value for value in plain if value == value]
        return Bounds(
            lower=min(plain, default=None),
            upper=max(plain, default=None),
            nulls=None in column,
            nans=bool(nans),
            values=bool(plain),
        )

    return of


@pytest.fixture(scope="module")
def connection():
    with duckdb.connect() as opened:
        yield opened


@settings(
    max_examples=max(150, settings.default.max_examples),  # more by night
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(text=conditions, data=rows)
def test_no_row_that_satisfies_a_condition_is_ever_pruned_or_filtered(connection, text, data):
    """The expression, its row filter and pruning by bounds are compared with DuckDB's answer."""
    table = as_table(data)
    expected = true_rows(table, text, connection)
    found = pushed(text)
    assert not (found.never and any(expected))
    assert not found.always or all(expected)
    bounds = bounds_of(table)
    assert any_match(found.pruning, SCHEMA, case_sensitive=True)(bounds) or not any(expected)
    if found.pruning_is_exact and all_match(found.pruning, SCHEMA, case_sensitive=True)(bounds):
        assert all(expected)
    rows = CompiledPredicate(found.rows)
    columns = {field_id: table.column(IDS[field_id]).combine_chunks() for field_id in rows.column_ids}
    kept = rows.mask(columns, table.num_rows).tolist()
    assert all(keep or not wanted for keep, wanted in zip(kept, expected, strict=True))
    if found.rows_are_exact:
        assert kept == expected
    else:
        assert {"d", "f", "st", "bin"} & set(re.findall(r"\w+", text)) or not found.pruning_is_exact


@pytest.mark.parametrize("text", ["f IN (0.1D, 0.10000000149011612D)", "f NOT IN (0.1D, 0.10000000149011612D)"])
def test_numbers_that_are_one_32_bit_number_do_not_hide_each_other(text):
    """Spark compares floats as doubles; PyIceberg's set of a float column's literals would keep one of the two."""
    assert not pushed(text).pruning_is_exact


def test_pruning_is_as_sharp_as_bounds_allow():
    """Guards against an evaluator that keeps everything."""
    bounds = bounds_of(as_table([dict.fromkeys(VALUES) | {"i": 1, "s": "ab", "d": 1.0}]))
    for text in ("i = 2", "i > 1", "i < 1", "i IN (0, 2)", "i IS NULL", "s LIKE 'b%'", "s > 'b'", "d > 1", "l = 1"):
        assert not any_match(pushed(text).pruning, SCHEMA, case_sensitive=True)(bounds), text
    for text in ("i = 1", "i >= 1", "s LIKE 'a%'", "d <= 1", "l IS NULL", "i <> 2"):
        assert all_match(pushed(text).pruning, SCHEMA, case_sensitive=True)(bounds), text


def test_never_is_an_expression_that_is_always_false():
    assert isinstance(pushed("false").pruning, AlwaysFalse)
