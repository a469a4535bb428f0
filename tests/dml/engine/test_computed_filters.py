"""Queries with computed conditions: tasks leave out rows, and Spark sees all that it would have kept."""

import pytest

from dml.engine.engine import StatementSettings
from dml.engine.query import query_views
from dml.sqlparse import parse
from dml.sqlparse.statements import Query
from dml.views import StatementTables
from tests.lake import Lake
from tests.marks import by_night

pytestmark = pytest.mark.spark

COLUMNS = "id BIGINT, k INT, d DOUBLE, s STRING, at TIMESTAMP, ok BOOLEAN"
ROW = (
    "SELECT id, CASE WHEN id % 11 = 0 THEN NULL WHEN id = 5 THEN 2147483647 ELSE int(id % 9) - 4 END AS k, "
    "CASE id % 5 WHEN 0 THEN double('NaN') WHEN 1 THEN NULL ELSE id / 4 END AS d, "
    "IF(id % 7 = 0, NULL, concat(IF(id % 6 = 0, 'Ä', 'n'), id)) AS s, timestamp_seconds(id * 360000) AS at, "
    "nullif(id % 4, 3) = 1 AS ok"
)
CONDITIONS = (
    "abs(k) = 3",
    "length(s) = 3",
    "k + id < 10",
    "coalesce(k, 7) = 7",
    "CASE WHEN ok THEN k ELSE id END = 2",
    "NOT (k * 2L > 1)",
    "upper(s) = 'N8'",
    "d > id OR d / 2 > 4",
    "k > id",
    "substring(s, 2, 1) = '2' AND initcap(s) <> 'N21'",
    "year(at) = 1970 AND month(at) > 1",
    "k % 3 IN (1, 2)",
)


def table(lake: Lake) -> str:
    """Return a table whose rows RowDelta's reader reads: some are deleted."""

    def new() -> str:
        properties = {"write.delete.mode": "merge-on-read"}
        name = lake.create(COLUMNS, **properties)
        lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ * FROM ({ROW} FROM range(0, 60))")
        lake.session.sql(f"DELETE FROM {name} WHERE id = 12")
        return name

    name: str = lake.once("table of test_computed_filters", new)
    return name


def rows_read(lake: Lake, query: str) -> int:
    """Return the number of rows that Spark gets of the only table of a query."""
    statement = parse(query)
    assert isinstance(statement, Query)
    engine = lake.engine
    tables = StatementTables(statement=query, lazy_session=engine.lazy_session, registry=engine.registry)
    views = query_views(engine, statement.fragment, tables, StatementSettings.of(engine, query))
    (frame,) = views.frames.values()
    return len(frame().collect())


@pytest.mark.parametrize("condition", by_night(list(CONDITIONS), lambda each: CONDITIONS.index(each) % 4 == 0))
def test_conditions_keep_the_rows_that_spark_keeps(lake: Lake, condition: str) -> None:
    """The twin computes the condition in the SELECT list, of all rows."""
    name = table(lake)
    query = f"SELECT * FROM {name} WHERE {condition}"
    found = lake.rows(query)
    selected = lake.rows(f"SELECT *, {condition} AS chosen FROM {name}")
    assert repr(found) == repr([row[:-1] for row in selected if row[-1]])
    assert 0 < len(found) < 59
    assert lake.session.table(name).where(condition).count() == len(found)
    assert lake.rows(f"SELECT count(*) FROM {name} WHERE {condition}") == [(len(found),)]


def test_fewer_rows_reach_spark(lake: Lake) -> None:
    name = table(lake)
    assert rows_read(lake, f"SELECT id FROM {name} WHERE id > -1") == 59
    assert rows_read(lake, f"SELECT id FROM {name} WHERE abs(k) = 3") == len(
        lake.rows(f"SELECT id FROM {name} WHERE abs(k) = 3")
    )
    assert rows_read(lake, f"SELECT id FROM {name} WHERE initcap(s) = 'N8'") == 59
    # An overflow keeps all rows of its batch: Spark decides whether it is an error.
    assert rows_read(lake, f"SELECT id FROM {name} WHERE k + 1 = 3") == 59
