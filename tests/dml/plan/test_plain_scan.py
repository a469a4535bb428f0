"""Which queries select values of the rows of one table that tasks can compute, and which values these are."""

from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from dml.plan.names import SqlRules
from dml.plan.plain_scan import PlainScan, plain_scan
from dml.plan.row_delta_plan import ThroughSpark
from dml.rows.expressions import TRUE, Arithmetic, Column, Comparison, Literal, Operator
from dml.sqlparse import parse
from dml.sqlparse.dialect import TreeReading

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "Name", StringType(), required=False),
    NestedField(3, "s", StructType(NestedField(4, "a", IntegerType(), required=False)), required=False),
)
ALL = (1, 2, 3)


def literal(value, kind) -> Literal:
    return Literal(value=value, type=kind)


def found(query: str, schema: Schema = SCHEMA, **settings) -> PlainScan | ThroughSpark:
    fragment = parse(query).fragment
    (reference,) = fragment.tables
    return plain_scan(fragment, reference, schema, SqlRules(**settings))


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
    assert isinstance(scan, PlainScan)
    assert tuple(value.field_id for value in scan.values) == field_ids


ID = Column(field_id=1, type=pa.int64())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("id * 2", Arithmetic(operator=Operator.MULTIPLY, left=ID, right=literal(2, pa.int64()), type=pa.int64())),
        ("((id)) AS x", ID),
        ("7", literal(7, pa.int32())),
        ("7L", literal(7, pa.int64())),
        ("-1.50", literal(Decimal("-1.50"), pa.decimal128(3, 2))),
        ("0.05", literal(Decimal("0.05"), pa.decimal128(2, 2))),
        ("1e3", literal(1000.0, pa.float64())),
        ("'x'", literal("x", pa.string())),
        ("true", literal(True, pa.bool_())),
        ("X'1F'", literal(b"\x1f", pa.binary())),
        ("DATE '1970-01-03'", literal(2, pa.date32())),
        ("TIMESTAMP_NTZ '1970-01-01 00:00:01'", literal(1_000_000, pa.timestamp("us"))),
        ("NULL", literal(None, pa.null())),
        ("CAST(NULL AS INT)", literal(None, pa.null())),
    ],
)
def test_values_that_tasks_compute(text, value):
    assert found(f"SELECT {text} FROM db.t").values == (value,)


def test_the_condition_selects_the_rows():
    assert found("SELECT id FROM db.t").condition.pruning == AlwaysTrue()
    assert found("SELECT id FROM db.t").condition.rows == TRUE
    condition = found("SELECT id FROM db.t WHERE 5 = id AND id % 10 = 3").condition
    assert condition.pruning == EqualTo("id", 5)
    assert len(condition.rows.parts) == 2
    assert all(isinstance(part, Comparison) for part in condition.rows.parts)
    assert condition.rows_are_exact


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id AS x, x + 1 FROM db.t",
        "SELECT id + rand() FROM db.t",
        "SELECT id + (SELECT 1) FROM db.t",
        "SELECT count(*) FROM db.t",
        "SELECT sum(id) OVER () FROM db.t",
        "SELECT explode(array(1, 2)) FROM db.t",
        "SELECT Name COLLATE UNICODE_CI FROM db.t",
        "SELECT id, s.a + 1 FROM db.t",
        "SELECT y.id + 1 FROM db.t x",
        "SELECT current_date FROM db.t",
        "SELECT 'a' 'b' || Name FROM db.t",
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
        "SELECT id FROM db.t WHERE soundex(name) = 'x'",
        "SELECT id FROM db.t WHERE s.a = 3",
        "SELECT id FROM db.t WHERE id = 1 AND rand() < 0.5",
        "SELECT id FROM db.t WHERE id IN (SELECT 1)",
        "SELECT id FROM db.t |> WHERE id = 1",
        "SELECT id FROM db.t PIVOT (count(*) FOR id IN (1, 2))",
        "WITH x AS (SELECT 1) SELECT id FROM db.t",
    ],
)
def test_everything_else_is_left_to_spark(query):
    assert isinstance(found(query), ThroughSpark)


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        ("SELECT id FROM db.t LIMIT 3", "the query is not a simple SELECT from one table"),
        ("SELECT id, initcap(Name) FROM db.t", "tasks cannot compute INITCAP(Name) as Spark does"),
        (
            "SELECT id FROM db.t WHERE id = 1 AND initcap(Name) = 'X'",
            "tasks cannot compute INITCAP(Name) as Spark does",
        ),
        ("SELECT s.* FROM db.t", "tasks cannot compute s.* as Spark does"),
    ],
)
def test_why_spark_computes_the_rows(query, reason):
    assert found(query) == ThroughSpark(reason=reason)


def test_names_are_compared_as_the_session_says():
    assert found("SELECT NAME FROM db.t", case_sensitive=True).reason == "tasks cannot compute NAME as Spark does"
    assert [value.field_id for value in found("SELECT Name FROM db.t", case_sensitive=True).values] == [2]
    two = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "ID", LongType(), required=False))
    assert found("SELECT id FROM db.t", two).reason == "column names differ only in case"
    assert found("SELECT id FROM db.t", two, case_sensitive=True).values == (ID,)


def test_a_text_that_spark_may_read_otherwise_is_left_to_it():
    scan = found("SELECT id FROM db.t WHERE name = 'x'", trees=TreeReading.OTHERWISE)
    assert scan.reason == "a setting or a function of the session changes how Spark reads the query"
