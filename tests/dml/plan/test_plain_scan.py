"""Which queries are rows of one table as they are, and which columns they have."""

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from dml.plan.plain_scan import PlainScan, plain_scan
from dml.sqlparse import parse
from dml.sqlparse.dialect import TreeReading

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "Name", StringType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "a", IntegerType(), required=False)), required=False),
)
ALL = (1, 2, 3)


def found(query: str, schema: Schema = SCHEMA, **settings) -> PlainScan | None:
    fragment = parse(query).fragment
    (reference,) = fragment.tables
    return plain_scan(fragment, reference, schema, **settings)


@pytest.mark.parametrize(
    ("query", "field_ids"),
    [
        ("SELECT * FROM db.t", ALL),
        ("TABLE db.t", ALL),
        ("FROM db.t SELECT name", (2,)),
        ("SELECT t.* FROM db.t", ALL),
        ("SELECT x.id, *, NAME AS other FROM lake.db.t AS x", (1, *ALL, 2)),
        ("SELECT id, id AS b FROM db.t VERSION AS OF 3", (1, 1)),
        ("SELECT id FROM db.t TIMESTAMP AS OF '2026-01-01' x WHERE x.id = 1 AND name IS NOT NULL", (1,)),
    ],
)
def test_columns_as_they_are(query, field_ids):
    scan = found(query)
    assert scan is not None
    assert scan.field_ids == field_ids


def test_the_condition_is_the_whole_filter():
    assert found("SELECT id FROM db.t").row_filter == AlwaysTrue()
    assert found("SELECT id FROM db.t WHERE 5 = id").row_filter == EqualTo("id", 5)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id + 0 FROM db.t",
        "SELECT 1 FROM db.t",
        "SELECT s.a FROM db.t",
        "SELECT s.* FROM db.t",
        "SELECT db.t.id FROM db.t",
        "SELECT nothing FROM db.t",
        "SELECT _file FROM db.t",
        "SELECT y.id FROM db.t x",
        "SELECT s.id FROM db.t AS s",  # a field of the column `s`, or the column of the table
        "SELECT * EXCEPT (id) FROM db.t",
        "SELECT DISTINCT id FROM db.t",
        "SELECT /*+ REPARTITION(3) */ id FROM db.t",
        "SELECT id FROM db.t ORDER BY id",
        "SELECT id FROM db.t SORT BY id",
        "SELECT id FROM db.t CLUSTER BY id",
        "SELECT id FROM db.t LIMIT 3",
        "SELECT id FROM db.t OFFSET 3",
        "SELECT id FROM db.t GROUP BY id",
        "SELECT id FROM db.t HAVING id > 1",
        "SELECT id FROM db.t TABLESAMPLE (10 PERCENT)",
        "SELECT id FROM db.t LATERAL VIEW explode(array(1, 2)) AS e",
        "SELECT id FROM db.t AS x (id, name, s)",
        "SELECT id FROM (SELECT * FROM db.t)",
        "SELECT id FROM db.t, range(3)",
        "SELECT id FROM db.t JOIN range(3) USING (id)",
        "SELECT id FROM db.t UNION ALL SELECT 1",
        "SELECT id FROM db.t WINDOW w AS (PARTITION BY id)",
        "SELECT id FROM db.t QUALIFY row_number() OVER (ORDER BY id) = 1",
        "SELECT id FROM db.t WHERE length(name) = 3",
        "SELECT id FROM db.t WHERE id % 10 = 3",
        "SELECT id FROM db.t WHERE s.a = 3",
        "SELECT id FROM db.t WHERE id = 1 AND rand() < 0.5",
        "SELECT id FROM db.t WHERE id IN (SELECT 1)",
        "SELECT id FROM db.t |> WHERE id = 1",
        "SELECT id FROM db.t PIVOT (count(*) FOR id IN (1, 2))",
        "WITH x AS (SELECT 1) SELECT id FROM db.t",
    ],
)
def test_everything_else_is_left_to_spark(query):
    assert found(query) is None


def test_names_are_compared_as_the_session_says():
    assert found("SELECT NAME FROM db.t", case_sensitive=True) is None
    assert found("SELECT Name FROM db.t", case_sensitive=True).field_ids == (2,)
    two = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "ID", LongType(), required=False))
    assert found("SELECT id FROM db.t", two) is None
    assert found("SELECT id FROM db.t", two, case_sensitive=True).field_ids == (1,)


def test_a_text_that_spark_may_read_otherwise_is_left_to_it():
    assert found("SELECT id FROM db.t WHERE name = 'x'", trees=TreeReading.OTHERWISE) is None
