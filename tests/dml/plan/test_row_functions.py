"""Functions that tasks compute: which calls are translated, and their values. Spark's are in tests/dml/engine."""

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, DoubleType, NestedField
from sqlglot import exp

from dml.errors import DataError
from dml.plan.names import SqlRules, TargetNames
from dml.plan.predicates import pushable, row_value, uncomputed_text
from dml.plan.row_functions import BUILDERS
from dml.rows.evaluate import UncomputableValueError, evaluate
from dml.rows.program import Column, TypeCast
from dml.sqlparse.dialect import BUILT_INS, NO_BUILT_INS, RowDeltaSpark, called_functions, parse_expression
from dml.sqlparse.statements import Fragment, Span
from tests.dml.plan.test_row_terms import NAMES, SCHEMA, by_id, masked, rows

I_MIN, I_MAX, L_MIN, L_MAX = -(2**31), 2**31 - 1, -(2**63), 2**63 - 1


def computed(column: str, text: str, **given: list[Any]) -> list[Any]:
    """The new values of a column."""
    value = row_value(parse_expression(text), SCHEMA.find_field(column), NAMES)
    assert value is not None, text
    table = rows(**given)
    found = evaluate(value, by_id(table), table.num_rows)
    assert found.type == value.type
    found.validate(full=True)
    values: list[Any] = found.to_pylist()
    return values


TEXTS = [None, "", "a", "Ab\x00c", "~{}`@Z[z", "x" * 100]
MARKED = [None, "", "e\u0301", "\U0001f600a", "\u0130\u00df\u03a3", "\ud7ff\ue000\U0010ffff"]


@pytest.mark.parametrize(
    ("column", "text", "given", "expected"),
    [
        ("i", "coalesce(i, j, 7)", {"i": [1, None, None], "j": [None, 2, None]}, [1, 2, 7]),
        ("i", "NVL(i, 0)", {"i": [None, 5]}, [0, 5]),
        ("l", "ifnull(i, l)", {"i": [None, 5], "l": [L_MAX, 1]}, [L_MAX, 5]),
        ("d", "coalesce(d, 0)", {"d": [None, -0.0, math.inf]}, [0.0, -0.0, math.inf]),
        ("d", "coalesce(d, -0.0)", {"d": [None]}, [0.0]),
        ("d", "coalesce(NULL, l, d)", {"d": [None, 1.5], "l": [2**53 + 1, None]}, [2.0**53, 1.5]),
        ("s", "coalesce(s, u, 'none')", {"s": [None, "a", None], "u": ["b", None, None]}, ["b", "a", "none"]),
        ("b", "coalesce(b, false)", {"b": [None, True]}, [False, True]),
        ("n", "coalesce(n, n)", {"n": [None, 1]}, [None, Decimal("1.00")]),
        ("i", "if(i > 1, i, -1)", {"i": [None, 1, 2]}, [-1, -1, 2]),
        ("l", "CASE WHEN i > 1 THEN 10 WHEN i > 0 THEN 5L END", {"i": [None, 0, 1, 2]}, [None, None, 5, 10]),
        (
            "s",
            "CASE i WHEN 1 THEN 'one' WHEN j THEN s ELSE u END",
            {"i": [1, 2, 3, None], "j": [1, 2, None, None], "s": list("abcd"), "u": list("efgh")},
            ["one", "b", "g", "h"],
        ),
        ("i", "CASE WHEN 1 = 2 THEN 5 WHEN s LIKE 'a%' AND i IS NULL THEN 6 WHEN true THEN 7 ELSE i END",
         {"s": ["ab", "ab", None], "i": [None, 1, 2]}, [6, 7, 7]),
        ("i", "nullif(i, 0)", {"i": [0, 1, None]}, [None, 1, None]),
        ("d", "nullif(d, i)", {"d": [math.nan, 2.0, -0.0], "i": [1, 2, 0]}, [math.nan, None, None]),
        ("i", "abs(i)", {"i": [None, 0, -5, I_MIN + 1, I_MAX]}, [None, 0, 5, I_MAX, I_MAX]),
        ("l", "abs(l)", {"l": [None, L_MIN + 1, L_MAX]}, [None, L_MAX, L_MAX]),
        ("d", "abs(d)", {"d": [-0.0, -math.inf, math.nan, None]}, [0.0, math.inf, math.nan, None]),
        ("i", "-i", {"i": [None, 0, 5, -I_MAX]}, [None, 0, -5, I_MAX]),
        ("d", "-(d)", {"d": [0.0, -0.0, math.inf]}, [-0.0, 0.0, -math.inf]),
        ("l", "CAST(i AS BIGINT) * 4", {"i": [I_MAX, I_MIN, None]}, [I_MAX * 4, I_MIN * 4, None]),
        ("i", "CAST(l AS INT)", {"l": [I_MAX, I_MIN, None]}, [I_MAX, I_MIN, None]),
        ("i", "int(d)", {"d": [1.9, -1.9, -0.0, None, I_MAX + 0.9, I_MIN - 0.9]}, [1, -1, 0, None, I_MAX, I_MIN]),
        ("l", "CAST(d AS LONG)", {"d": [9007199254740993.0, -(2.0**63), 0.5]}, [2**53, L_MIN, 0]),
        ("d", "CAST(l AS DOUBLE)", {"l": [L_MAX, 2**53 + 1, None]}, [2.0**63, 2.0**53, None]),
        ("d", "CAST(f AS DOUBLE)", {"f": [0.5, None]}, [0.5, None]),
        ("s", "CAST(l AS STRING)", {"l": [L_MIN, L_MAX, 0, None]}, [str(L_MIN), str(L_MAX), "0", None]),
        ("s", "CAST(s AS VARCHAR(2))", {"s": ["abc"]}, ["abc"]),  # to Spark that is a STRING
        ("i", "length(s)", {"s": [*TEXTS, *MARKED]}, [None, 0, 1, 4, 8, 100, None, 0, 2, 2, 3, 3]),
        ("i", "char_length(s || u)", {"s": ["a", "\u00e4", None], "u": ["\u20ac", "", "x"]}, [2, 1, None]),
        ("s", "substring(s, 2, 2)", {"s": MARKED}, [None, "", "\u0301", "a", "\u00df\u03a3", "\ue000\U0010ffff"]),
        ("s", "substr(s, -2)", {"s": ["abc", "a", ""]}, ["bc", "a", ""]),
        ("s", "substring(s FROM 0 FOR 1)", {"s": ["abc", ""]}, ["a", ""]),
        ("s", "substring(s, -5, 3)", {"s": ["abc", "abcde", "abcdef"]}, ["a", "abc", "bcd"]),
        ("s", "substring(s, 1, -1)", {"s": ["abc", None]}, ["", None]),
        ("s", "substring(s, -2, 2147483647)", {"s": ["abc"]}, ["bc"]),
        ("s", "upper(s)", {"s": TEXTS}, [None, "", "A", "AB\x00C", "~{}`@Z[Z", "X" * 100]),
        ("s", "lcase(s)", {"s": TEXTS}, [None, "", "a", "ab\x00c", "~{}`@z[z", "x" * 100]),
        ("s", "concat(s, '-', u)", {"s": ["a", None, ""], "u": ["\U0001f600", "b", ""]}, ["a-\U0001f600", None, "-"]),
        ("s", "s || '-' || CAST(i AS STRING)", {"s": ["a"], "i": [-5]}, ["a--5"]),
        ("i", "year(day)", {"day": [0, -1, None, -719162, -719163, 2932896, I_MAX, I_MIN]},
         [1970, 1969, None, 1, 0, 9999, 5881580, -5877641]),
        ("i", "month(day) * 100 + dayofmonth(day)", {"day": [0, -1, None, 11016, 18321, I_MAX, I_MIN]},
         [101, 1231, None, 229, 229, 711, 623]),
        ("i", "day(to_date(day))", {"day": [58]}, [28]),
        ("must", "coalesce(i, 0)", {"i": [None, 4]}, [0, 4]),
        ("must", "CASE WHEN i = 1 THEN 2 ELSE 3 END", {"i": [None, 1]}, [3, 2]),
    ],
)  # fmt: skip
def test_values_are_those_of_sql(column: str, text: str, given: dict[str, list[Any]], expected: list[Any]) -> None:
    assert repr(computed(column, text, **given)) == repr(expected)


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("i", "coalesce(i, l)"),
        ("i", "CASE WHEN i > 1 THEN 10 WHEN i > 0 THEN 5L END"),
        ("n", "coalesce(n, 0)"),
        ("d", "coalesce(n, d)"),
        ("d", "coalesce(d, f)"),
        ("s", "coalesce(s, i)"),
        ("i", "coalesce(1, 2)"),
        ("l", "coalesce(CAST(NULL AS BIGINT), i)"),
        ("must", "coalesce(i, j)"),
        ("must", "CASE WHEN i = 1 THEN 2 END"),
        ("must", "nullif(must, 1)"),
        ("s", "CASE WHEN sqrt(i) = 1 THEN 'x' END"),
        ("s", "CASE WHEN i = 1 THEN initcap(s) END"),
        ("s", "CASE WHEN i = 1 THEN NULL END"),
        ("i", "CASE WHEN true THEN i END"),
        ("i", "CAST(s AS INT)"),
        ("i", "CAST(n AS INT)"),
        ("i", "CAST(b AS INT)"),
        ("i", "CAST(i AS SMALLINT)"),
        ("s", "CAST(d AS STRING)"),
        ("s", "CAST(day AS STRING)"),
        ("f", "CAST(d AS FLOAT)"),
        ("i", "length(i)"),
        ("i", "length('abc')"),
        ("i", "octet_length(s)"),
        ("s", "substring(s, i)"),
        ("s", "substring(s, 1L)"),
        ("s", "substring(s, '1')"),
        ("s", "substring(s, NULL)"),
        ("s", "upper(i)"),
        ("s", "upper(s) COLLATE UTF8_LCASE"),
        ("s", "concat(s, i)"),
        ("s", "concat(s, NULL)"),
        ("s", "builtin.upper(s)"),
        ("s", "system.builtin.upper(s)"),
        ("i", "year(s)"),
        ("i", "year('2020-01-01')"),
        ("i", "abs(s)"),
        ("i", "abs(i) FILTER (WHERE i > 1)"),
        ("n", "abs(n)"),
        ("d", "-f"),
        ("s", "-s"),
        ("i", "abs(DISTINCT i)"),
        ("i", "length(s) OVER ()"),
        ("i", "CAST(d AS INT FORMAT 'x')"),
        ("i", "abs(" * 30 + "i" + ")" * 30),
        ("i", f"CASE {' '.join(f'WHEN i = {number} THEN {number}' for number in range(101))} END"),
    ],
)
def test_what_is_left_to_spark(column: str, text: str) -> None:
    tree = parse_expression(text)
    assert tree is None or row_value(tree, SCHEMA.find_field(column), NAMES) is None


@pytest.mark.parametrize(
    ("text", "given", "expected"),
    [
        ("upper(s) = 'AB'", {"s": ["ab", "aB", None, "b"]}, [True, True, False, False]),
        ("'AB' <> upper(s)", {"s": ["ab", None, "b"]}, [False, False, True]),
        ("lower(s) IN ('a', 'b')", {"s": ["A", "b", "c", None]}, [True, True, False, False]),
        ("lower(s) NOT IN ('a', 'b')", {"s": ["A", "b", "c", None]}, [False, False, True, False]),
        ("substring(s, 1, 1) BETWEEN 'a' AND 'b'", {"s": ["az", "c", "", None]}, [True, False, False, False]),
        ("NOT (length(s) > 1)", {"s": ["a", "ab", None]}, [True, False, False]),
        ("coalesce(s, '') = u", {"s": [None, "a", None], "u": ["", "a", None]}, [True, True, False]),
        ("coalesce(day, DATE '2020-02-29') >= DATE '2020-02-29'", {"day": [None, 0]}, [True, False]),
        ("year(day) = 1970 AND month(day) IN (1, 2)", {"day": [0, 60, None]}, [True, False, False]),
        ("CASE WHEN i > 1 THEN 'a' ELSE s END = 'a'", {"i": [2, 1, None], "s": ["b", "a", None]}, [True, True, False]),
        ("CASE WHEN i > 1 THEN i + 2147483646 ELSE i END > 0", {"i": [1, 0, None]}, [True, False, False]),
        ("abs(i) % 2 = 1", {"i": [-3, 2, None]}, [True, False, False]),
        ("CAST(d AS INT) = 1", {"d": [1.9, 2.1, None]}, [True, False, False]),
    ],
)
def test_conditions_are_decided_in_tasks(text: str, given: dict[str, list[Any]], expected: list[bool]) -> None:
    found = pushable(parse_expression(text), NAMES)
    assert found.rows_are_exact, found.needs_spark
    assert masked(found.rows, rows(**given)) == expected


def test_functions_that_sqlglot_prints_as_nothing_are_left_to_spark() -> None:
    assert not pushable(parse_expression("read_parquet(i, 1)"), NAMES).rows_are_exact


def test_deep_conditions_are_left_to_spark() -> None:
    """The time to find that out, and the part that is to blame, does not double with each level."""
    shallow = deep = "i = 1"
    for level in range(25):
        deep = f"CASE WHEN {deep} THEN 1 ELSE 2 END = 1"
        shallow = deep if level == 3 else shallow
    assert pushable(parse_expression(shallow), NAMES).rows_are_exact
    assert not pushable(parse_expression(deep), NAMES).rows_are_exact
    unknown = pushable(parse_expression(deep.replace("i = 1", "sqrt(i) = 1")), NAMES)
    assert unknown.needs_spark == "SQRT(i)"


@pytest.mark.parametrize(
    ("column", "text", "given"),
    [
        ("i", "abs(i)", {"i": [I_MIN]}),
        ("l", "-l", {"l": [L_MIN]}),
        ("i", "CAST(l AS INT)", {"l": [I_MAX + 1]}),
        ("i", "CAST(d AS INT)", {"d": [float(I_MAX) + 1]}),
        ("i", "CAST(d AS INT)", {"d": [I_MIN - 1.0]}),
        ("i", "CAST(d AS INT)", {"d": [math.nan]}),
        ("l", "CAST(d AS BIGINT)", {"d": [2.0**63]}),
        ("l", "CAST(d AS BIGINT)", {"d": [-math.inf, None]}),
        ("s", "upper(s)", {"s": ["stra\u00dfe"]}),
        ("s", "lower(s)", {"s": [None, "\u0130"]}),
        ("i", "coalesce(CAST(l AS INT), 1)", {"l": [2**40]}),
    ],
)
def test_values_that_only_spark_can_judge(column: str, text: str, given: dict[str, list[Any]]) -> None:
    with pytest.raises(UncomputableValueError):
        computed(column, text, **given)


def test_bytes_that_are_not_utf8_are_left_to_spark() -> None:
    """A continuation byte alone and a surrogate: Spark counts characters by lead bytes."""
    for data in (b"a\x80", b"\xed\xa0\x80", b"\xff"):
        table = rows(s=["x"])
        broken = pa.array([data]).view(pa.string())
        columns = {**by_id(table), 6: broken}
        for text in ("substring(s, 1, 1)", "upper(s)", "coalesce(substr(s, 2), '')"):
            value = row_value(parse_expression(text), SCHEMA.find_field("s"), NAMES)
            assert value is not None
            with pytest.raises(UncomputableValueError):
                evaluate(value, columns, 1)


def test_branches_that_are_not_taken_are_not_computed() -> None:
    """An overflow, or a text that tasks cannot change, in another row: neither is an error to Spark."""
    given = {"i": [I_MAX, 5, None], "s": ["\u00e4", "a", None]}
    assert computed("i", "CASE WHEN i < 10 THEN i + 1 ELSE -1 END", **given) == [-1, 6, -1]
    assert computed("s", "if(i = 5, upper(s), s)", **given) == ["\u00e4", "A", None]
    assert computed("i", "coalesce(length(s), i + 1)", i=[I_MAX, 5], s=["", None]) == [0, 6]
    assert computed("i", "CASE WHEN i > 10 THEN 1 WHEN i + 2147483640 > 0 THEN 2 END", **given) == [1, 2, None]


def test_an_empty_batch_has_no_values() -> None:
    for text in ("CASE WHEN i = 1 THEN 2 END", "coalesce(i, 1)", "abs(i)", "year(day)", "length(s)"):
        value = row_value(parse_expression(text), SCHEMA.find_field("i"), NAMES)
        assert value is not None
        columns = {key: array.slice(0, 0) for key, array in by_id(rows(i=[1])).items()}
        assert evaluate(value, columns, 0).to_pylist() == []


def test_a_cast_to_the_same_type_is_no_cast() -> None:
    value = row_value(parse_expression("CAST(s AS STRING)"), SCHEMA.find_field("s"), NAMES)
    assert value == Column(field_id=6, type=pa.string())
    assert isinstance(row_value(parse_expression("CAST(i AS BIGINT)"), SCHEMA.find_field("l"), NAMES), TypeCast)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("abs(initcap(s))", "INITCAP(s)"),
        ("CASE WHEN i = 1 THEN sqrt(d) + 1 ELSE d END", "SQRT(d)"),
        ("CASE WHEN sqrt(i) = 1 THEN d END", "SQRT(i)"),
        ("coalesce(d, d + 1, pi() * d)", "PI()"),
        ("CASE i WHEN 1 THEN 'a' ELSE initcap(s) END", "INITCAP(s)"),
        ("coalesce(s, i)", "COALESCE(s, i)"),
        ("year(s)", "YEAR(s)"),
        ("year(trunc(day, 'month'))", "TRUNC(day, 'MONTH')"),
        ("upper(s) || 5", "UPPER(s) || 5"),
    ],
)
def test_the_reason_is_the_innermost_part(text: str, reason: str) -> None:
    fragment = Fragment(text=text, span=Span(0, len(text)), ast=parse_expression(text))
    assert uncomputed_text(fragment, NAMES) == reason


NODES = frozenset(BUILDERS) | {exp.Array, exp.IsNan, exp.Like, exp.Mod, exp.StartsWith, exp.VarMap}
"""The calls that planning interprets. (`and (a)` is no call to Spark.)"""


def test_each_name_that_is_read_as_a_function_of_spark_is_known() -> None:
    """The check for replaced functions goes by names; sqlglot forgets how a function was called."""
    parsers = {*RowDeltaSpark.Parser.FUNCTIONS, *RowDeltaSpark.Parser.FUNCTION_PARSERS}
    words = {*parsers, "IF", "INT", "LEFT", "DATE", "DOUBLE", "STRING", "LIKE", "TIMESTAMP", "BIGINT", "SMALLINT"}
    found = set()
    for name in words:
        for arguments in ("a", "a, b", "a, b, c", "a, 1", "a, INT", "'x'"):
            tree = parse_expression(f"{name}({arguments})")
            if tree is not None and type(tree) in NODES:
                found.add(name.lower())
    assert found == BUILT_INS | NO_BUILT_INS


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("SELECT upper(s), Lower (t) FROM x WHERE year = 1", {"upper", "lower"}),
        ("SELECT `upper`(s)", {"upper"}),
        ("SELECT upper -- why\n (s)", {"upper"}),
        ("SELECT upper /* a /* b */ */ (s), year", {"upper", "year"}),
        ("SELECT my_upper(s), uppercase(s), coalesce, 'length('", {"length"}),
    ],
)
def test_calls_in_a_text(text: str, names: set[str]) -> None:
    assert called_functions(text, BUILT_INS) == names


def test_an_error_says_which_value_it_is() -> None:
    with pytest.raises(DataError, match="does not fit int32"):
        computed("i", "CAST(l AS INT)", l=[2**40])


def test_a_cast_to_a_collated_string_is_left_to_spark() -> None:
    assert parse_expression("CAST(s AS STRING COLLATE UTF8_LCASE) = 'abc'") is None
    assert parse_expression("s = CAST('abc' AS STRING COLLATE UTF8_LCASE)") is None
    assert parse_expression("CAST(s AS STRING) = 'abc'") is not None


def test_decimals_are_not_compared_with_doubles() -> None:
    """Arrow and Java round 6.6496171E-11 of a decimal(38, 18) to different doubles."""
    amount = NestedField(1, "amt", DecimalType(38, 18), required=False)
    schema = Schema(amount, NestedField(2, "d", DoubleType(), required=False))
    names = TargetNames(schema=schema, qualifiers=(("t",),), rules=SqlRules())
    for text in ("nullif(amt, 0) = 6.6496171E-11", "coalesce(amt, amt) = d", "coalesce(amt, amt) * d > 1.5D"):
        assert not pushable(parse_expression(text), names).rows_are_exact, text


@pytest.mark.parametrize("step", ["nullif({0}, {1})", "CASE {0} WHEN {1} THEN 1 WHEN 3 THEN 2 WHEN 4 THEN i END"])
def test_operands_that_are_repeated_do_not_repeat_others(step: str) -> None:
    text = "i"
    for level in range(14):
        text = step.format(text, level)
    assert row_value(parse_expression(text), SCHEMA.find_field("i"), NAMES) is None
    assert row_value(parse_expression(step.format("i", 7)), SCHEMA.find_field("i"), NAMES) is not None


def test_the_cast_of_a_number_that_does_not_fit_is_left_to_spark() -> None:
    for text, fits in (("-9223372036854775808", True), ("-CAST(9223372036854775808 AS BIGINT)", False)):
        value = row_value(parse_expression(f"coalesce(l, {text})"), SCHEMA.find_field("l"), NAMES)
        assert (value is not None) is fits, text
