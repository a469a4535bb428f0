"""A tree is either right or absent."""

import pytest
from sqlglot import exp

from dml.sqlparse import parse


def condition(text):
    return parse(f"delete from t where {text}").condition


@pytest.mark.parametrize(
    "text",
    [
        "a <=> 3",
        "a in (1, 2) and not b",
        "a = 'it''s'",
        "a rlike '\\\\d+'",
        "date '2024-01-01' < d",
        "a between 1 and 2 or b is not null",
        "exists(xs, x -> x > 1)",
        "m['k'].z = 1",
        "a || 'b' = c",
        "x % 2 == 0",
        "cast(a as int) > try_cast(b as bigint)",
        "end > value",
        'a = "b"',
        "a & 3 = 1",
        "not a = b",
        "s.`x y`.z in (select q from r)",
    ],
)
def test_usual_conditions_have_a_tree(text):
    assert isinstance(condition(text).ast, exp.Expression)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a = 'it''s'", "it's"),
        ('a = "x""y"', 'x"y'),
        (r"a = 'x\ty'", "x\ty"),
        (r"a = '\u0041'", "A"),
        ("a = r'\\d'", "\\d"),
        ("a = 'x\"\"y'", 'x""y'),
    ],
)
def test_a_literal_in_the_tree_has_sparks_value(text, value):
    tree = condition(text).ast
    assert tree is None or tree.expression.name == value


def test_plain_and_doubled_quotes_are_read():
    assert condition("a = 'it''s'").ast.expression.name == "it's"


@pytest.mark.parametrize(
    "text",
    [
        "a = b in (1)",
        "a = b like 'x'",
        "a = b < c",
        "a | b & c = 1",
        "a || b + 1 = c",
        "a < CAST('2024-01-01 00:00:00+05:00' AS TIMESTAMP without TIME  ZONE)",
    ],
)
def test_no_tree_where_sqlglot_reads_another_precedence_or_value(text):
    assert condition(text).ast is None


def test_is_null_applies_to_the_comparison_as_in_spark():
    assert isinstance(condition("a = b is null").ast, exp.Is)
    assert isinstance(condition("a = b is not null").ast, exp.Not)


def test_brackets_make_the_precedence_plain():
    assert condition("a = (b is null)").ast is not None
    assert condition("(a = b) is null").ast is not None


@pytest.mark.parametrize(
    "sql",
    [
        "table a.b",
        "(select 1) union all (select 2)",
        "from t select a",
        "select * from t for system_version as of 3 x",
        "with a as (select 1) select * from a",
        "values (1, 2)",
        "((select 1)) limit 3",
        "select * from t system_version as of 'b'",
    ],
)
def test_whole_queries_have_a_tree(sql):
    assert parse(sql).fragment.ast is not None
