"""Filters in messages read like conditions, not like Python objects."""

import datetime

import pytest
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    Not,
    NotEqualTo,
    NotIn,
    NotNaN,
    NotStartsWith,
    Or,
    StartsWith,
    literal,
)
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral

from dml.pruning.bucket_predicate import InBuckets
from dml.pruning.filter_text import filter_text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (AlwaysTrue(), "TRUE"),
        (AlwaysFalse(), "FALSE"),
        (EqualTo("id", 2), "id = 2"),
        (NotEqualTo("s", "it's"), "s <> 'it''s'"),
        (In("id", {3, 1, 2}), "id IN (1, 2, 3)"),
        (NotIn("id", set(range(100))), "id NOT IN (0, 1, 2, 3, 4, and 95 more)"),
        (InBuckets("id", count=16, buckets=frozenset({3})), "system.bucket(16, id) = 3"),
        (~InBuckets("id", count=16, buckets=frozenset({3})), "system.bucket(16, id) <> 3"),
        (
            InBuckets("id", count=16, buckets=frozenset({11, 2, 3, 1, 9, 10})),
            "system.bucket(16, id) IN (1, 2, 3, 9, 10, and 1 more)",
        ),
        (GreaterThan("d", literal(datetime.date(2026, 2, 1))), "d > '2026-02-01'"),
        (GreaterThan("d", DateLiteral(2**31 - 1)), "d > '+5881580-07-11'"),
        (EqualTo("t", TimestampLiteral(253_402_329_599_000_000)), "t = '+10000-01-01 07:59:59'"),
        (
            EqualTo("t", literal(datetime.datetime.fromisoformat("2026-02-01T03:04:05.000006"))),
            "t = '2026-02-01 03:04:05.000006'",
        ),
        (
            And(IsNull("a.b"), Or(NotNaN("x"), Not(StartsWith("s", "p")))),
            "(a.b IS NULL AND (NOT isnan(x) OR NOT (startswith(s, 'p'))))",
        ),
        (NotStartsWith("s", "p"), "NOT startswith(s, 'p')"),
    ],
)
def test_a_filter_is_written_as_a_condition(expression: BooleanExpression, text: str) -> None:
    assert filter_text(expression) == text


def test_names_have_the_format_of_the_caller() -> None:
    expression = And(EqualTo("a.b", 1), InBuckets("a.b", count=4, buckets=frozenset({3})))
    assert filter_text(expression, "`{}`".format) == "(`a.b` = 1 AND system.bucket(4, `a.b`) = 3)"
