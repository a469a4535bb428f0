"""Spellings that sqlglot accepts and Spark rejects."""

import pytest

from dml.sqlparse.spellings import is_read_otherwise, is_surely_spark

REJECTED = (
    "id IN (1, 2,)",
    "id IN (1,)",
    "abs(id,) = 1",
    "id ISNULL",
    "id NOTNULL",
    "name ~~ 'a'",
    "name = STRING 'x'",
    "name = VARCHAR(3) 'x'",
    "id = INT '1'",
    "at = TIMESTAMP WITH TIME ZONE '2024-01-05 00:00:00'",
    "at = TIMESTAMPTZ '2024-01-05 00:00:00'",
    "name = CAST('x' AS TEXT)",
    "name = CAST('x' AS VARCHAR)",
    "id = CAST('1' AS INT64)",
    "id = CAST('1' AS INT(3))",
    "id = SAFE_CAST('1' AS INT)",
    "day = CAST('2024-01-05' AS DATE FORMAT 'yyyy')",
    "price = CAST('1' AS DECIMAL(50, 2))",
    "price = CAST('1' AS DECIMAL(2, 5))",
    "price = CAST('1' AS DECIMAL(10, 2, 3))",
    "amount < 1e400",
    "big > 99999999999999999999999999999999999999999",
    "data = 0x1F",
    "id = 1_000",
    "id = nvl(id)",
    "id = nullif(id)",
    "id = 1 /*+ x */",
    "id = '1'::INT",  # an error before Spark 4
    "id NOT NULL",
    "id ! IN (1)",
    "id IS ! NULL",
    "id BETWEEN ASYMMETRIC 3 AND 5",
    "id IS DISTINCT FROM CAST(NULL AS DATE)",
    "id = CAST((NULL) AS INT)",
    "id = CAST(",
)
ACCEPTED = (
    "id IN (1, 2) AND name LIKE 'a%' OR NOT name <=> 'b'",
    "name BETWEEN 'a' AND 'b' AND CASE name WHEN 'a' THEN 'b' ELSE 'c' END = 'x'",
    "day = DATE '2024-01-05' AND at < TIMESTAMP_NTZ'2024-01-05 00:00:00' AND data = X'1F'",
    "price = CAST('1' AS DECIMAL(10, 2)) AND id = CAST(CAST('1' AS BIGINT) AS INT) AND price < 1.50BD",
    "coalesce(nvl(id, 1), ifnull(big, 2)) > 1e3 AND isnull(id) AND amount > 0.5D",
    "name = 'a!' AND NOT id IS NOT NULL AND id != +5 AND id + big > 3 AND (id) + big > amount[0] + id",
    "`isnull` = 1 AND t.id = 5L AND concat(name, 'a', 'b') = 'c' -- 1e400",
)


@pytest.mark.parametrize("condition", REJECTED)
def test_a_spelling_that_spark_may_reject_is_found(condition: str) -> None:
    assert not is_surely_spark(f"DELETE FROM t WHERE {condition}")


@pytest.mark.parametrize("condition", ACCEPTED)
def test_spellings_of_spark_are_known(condition: str) -> None:
    assert is_surely_spark(f"DELETE FROM t WHERE {condition}")
    assert is_surely_spark("")


@pytest.mark.parametrize(
    "condition",
    [
        "name = +'10'",
        "+name = '10'",
        "id = 1 AND +name = '10'",
        "name IN (+'10', '3')",
        "upper(+name) = 'A'",
        "name = - +'10'",
        "name = '${spark.app.name}'",
        "id = ${my.id}",
    ],
)
def test_what_spark_reads_otherwise_is_found(condition: str) -> None:
    assert is_read_otherwise(f"DELETE FROM t WHERE {condition}")
    assert not is_surely_spark(f"DELETE FROM t WHERE {condition}")


@pytest.mark.parametrize(
    "condition", [*ACCEPTED, "id = 1 + id", "id = -id + id", "f(id) + id = a[1] + +7", "x + id = date + id"]
)
def test_a_plus_between_operands_is_read_alike(condition: str) -> None:
    assert not is_read_otherwise(f"DELETE FROM t WHERE {condition}")
