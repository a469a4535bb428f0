"""Which queries make groups of one table's rows, of which tasks can compute a part."""

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IntegerType, LongType, NestedField, StringType, StructType

from dml.plan.names import SqlRules
from dml.plan.table_read import TableRead, table_read
from dml.sqlparse import parse

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "Name", StringType(), required=False),
    NestedField(3, "f", FloatType(), required=False),
    NestedField(4, "g", DoubleType(), required=False),
    NestedField(5, "i", IntegerType(), required=False),
    NestedField(6, "s", StructType(NestedField(7, "a", IntegerType(), required=False)), required=False),
)


def found(query: str) -> TableRead:
    fragment = parse(query).fragment
    (reference,) = fragment.tables
    return table_read(fragment, reference, SCHEMA, SqlRules())


@pytest.mark.parametrize(
    "query",
    [
        "SELECT max(name) FROM db.t",
        "SELECT name, count(*), count(g), sum(i), avg(g) FROM db.t GROUP BY name HAVING min(id) > 3",
        "SELECT t.name AS n, count(1) FROM db.t GROUP BY n, id",
        "SELECT name, upper(max(name)) FROM db.t GROUP BY 1 ORDER BY count(*)",
        "SELECT name, i, count(*) FROM db.t GROUP BY ALL",
    ],
)
def test_groups_of_which_tasks_compute_a_part(query):
    assert found(query).is_grouped
    assert not found(query).is_filtered


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM db.t",
        "SELECT max(f) FROM db.t",
        "SELECT min(g) FROM db.t",
        "SELECT count(f) FROM db.t",
        "SELECT sum(id) FROM db.t",
        "SELECT max(name), max(f) FROM db.t GROUP BY name",
        "SELECT count(DISTINCT name) FROM db.t",
        "SELECT count(name, id) FROM db.t",
        "SELECT count(*) FILTER (WHERE id > 3) FROM db.t GROUP BY name",
        "SELECT name, count(*) OVER () FROM db.t",
        "SELECT max(s) FROM db.t",
        "SELECT max(nothing) FROM db.t",
        "SELECT f, count(*) FROM db.t GROUP BY f",
        "SELECT upper(name) AS n, count(*) FROM db.t GROUP BY n",
        "SELECT name, f, count(*) FROM db.t GROUP BY 1, 2",
        "SELECT name, g, count(*) FROM db.t GROUP BY ALL",
        "SELECT name, count(*) FROM db.t GROUP BY ROLLUP (name)",
        "SELECT name, count(*) FROM db.t GROUP BY name WITH CUBE",
        "SELECT name, count(*) FROM db.t GROUP BY name HAVING max(f) > 1",
    ],
)
def test_groups_that_spark_makes_of_rows(query):
    assert not found(query).is_grouped


def test_conditions_may_hold_for_whole_files():
    read = found("SELECT name, max(i) FROM db.t WHERE id = 3 GROUP BY name")
    assert read.is_grouped
    assert read.is_filtered
