"""Queries of groups, of which tasks compute their part: the same as of rows, and of fewer rows."""

import pytest
from pyspark.sql import functions

pytestmark = pytest.mark.spark

SETTING = "spark.sql.iceberg.aggregate-push-down.enabled"
COLUMNS = (
    "id bigint, i int, s string, b boolean, d date, t timestamp, n timestamp_ntz, m decimal(20, 2), x binary, "
    "f float, g double, st struct<a: int>"
)
ROWS = (
    "SELECT IF(id % 11 = 0, NULL, id) AS id, CAST(IF(id % 5 = 0, NULL, id % 7) AS INT) AS i, "
    "IF(id % 6 = 0, NULL, concat('é', id % 4)) AS s, id % 3 = 0 AS b, "
    "date_add(DATE'1960-01-01', CAST(id % 40 AS INT)), "
    "timestamp_micros(id % 8), timestamp_ntz'1969-12-31 23:59:58' + make_dt_interval(0, 0, 0, id % 5), "
    "CAST(id % 9 - 4 AS DECIMAL(20, 2)) / 4, unhex(IF(id % 2 = 0, 'ff', '0a')), "
    "IF(id % 50 = 0, float('nan'), CAST(id % 10 AS FLOAT)), IF(id % 17 = 0, CAST(NULL AS DOUBLE), id / 4), "
    "named_struct('a', CAST(id AS INT)) FROM range({rows})"
)
GROUPS = ("s", "i", "b", "d", "t", "n", "m", "x", "i, s", "b, d, s", "id")
ASKED = (
    "count(*), count(i), count(s), sum(i), sum(g), min(s), max(s), min(i), max(d), min(t), max(n), min(m), max(x), "
    "min(b), count(g), avg(g), avg(i)"
)


def plan_of(frame):
    return frame._jdf.queryExecution().optimizedPlan().toString()


def is_computed_in_tasks(frame):
    """Whether its scan gives groups."""
    return "in each task" in frame._jdf.queryExecution().executedPlan().toString()


def rows_of(frame):
    return sorted(map(repr, frame.collect()))


@pytest.fixture
def off(spark):
    """The same query, of rows."""

    def run(make):
        spark.conf.set(SETTING, "false")
        try:
            frame = make()
            assert not is_computed_in_tasks(frame)
            return rows_of(frame)
        finally:
            spark.conf.unset(SETTING)

    return run


@pytest.fixture
def same(spark, off):
    """Sees that a query is computed in tasks, and says the same as of rows."""

    def check(query):
        frame = spark.sql(query)
        assert is_computed_in_tasks(frame), query
        found = rows_of(frame)
        assert found == off(lambda: spark.sql(query)), query
        return found

    return check


def filled(lake, rows=400, partitioning="", **properties):
    name = lake.create(COLUMNS, partitioning, **properties)
    lake.session.sql(f"INSERT INTO {name} {ROWS.format(rows=rows)}")
    return name


@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_groups_are_those_of_rows(lake, same, file_format):
    """Of every type that can be a group, NULLs among them, and no groups at all."""
    name = filled(lake, **{"write.format.default": file_format})
    for groups in GROUPS:
        assert same(f"SELECT {groups}, {ASKED} FROM lake.{name} GROUP BY {groups}")
    assert len(same(f"SELECT {ASKED} FROM lake.{name}")) == 1


def test_what_is_not_the_same_in_tasks_is_computed_of_rows(lake, spark, off):
    """Floats as groups (NaN, both zeros) and their extremes, sums that may overflow, DISTINCT, FILTER, expressions."""
    name = filled(lake)
    for asked in (
        "max(f)",
        "min(g)",
        "sum(id)",
        "sum(m)",
        "sum(f)",
        "avg(id)",
        "count(DISTINCT s)",
        "sum(DISTINCT i)",
        "max(upper(s))",
        "count(*) FILTER (WHERE i > 2)",
        "count(st)",
        "max(st.a)",
        "collect_set(s)",
        "max_by(s, i)",
        "stddev(g)",
        "count(s, i)",
    ):
        for groups in ("", " GROUP BY b"):
            query = f"SELECT {asked}, max(s) FROM lake.{name}{groups}"
            frame = spark.sql(query)
            assert not is_computed_in_tasks(frame), asked
            assert rows_of(frame) == off(lambda query=query: spark.sql(query))
    for groups in ("f", "g", "st", "st.a", "upper(s)", "i % 2", "s, f", "_file", "_partition"):
        assert not is_computed_in_tasks(spark.sql(f"SELECT {groups}, count(s) FROM lake.{name} GROUP BY {groups}")), (
            groups
        )
    assert not is_computed_in_tasks(spark.sql(f"SELECT s, count(*) FROM lake.{name} WHERE i > 2 GROUP BY s"))
    assert not is_computed_in_tasks(spark.sql(f"SELECT s, count(*) FROM lake.{name} WHERE rand() > 2 GROUP BY s"))
    assert not is_computed_in_tasks(spark.sql(f"SELECT s, i, count(*) FROM lake.{name} GROUP BY ROLLUP (s, i)"))


@pytest.mark.parametrize(("version", "mode"), [("2", "merge-on-read"), ("3", "merge-on-read"), ("2", "copy-on-write")])
def test_deleted_rows_are_in_no_group(lake, spark, same, version, mode):
    name = filled(lake, **{"format-version": version, "write.delete.mode": mode, "write.update.mode": mode})
    before = same(f"SELECT s, {ASKED} FROM lake.{name} GROUP BY s")
    lake.session.sql(f"DELETE FROM {name} WHERE id % 5 = 2 OR s = 'é1'")
    lake.session.sql(f"UPDATE {name} SET s = 'z' WHERE s = 'é3'")
    after = same(f"SELECT s, {ASKED} FROM lake.{name} GROUP BY s")
    assert before != after
    assert not any("'é1'" in row or "'é3'" in row for row in after)
    assert same(f"SELECT min(s), max(s) FROM lake.{name}") == ["Row(min(s)='z', max(s)='é2')"]
    lake.session.sql(f"DELETE FROM {name} WHERE s IS NOT NULL")
    assert same(f"SELECT count(s), max(s), sum(i) IS NULL, sum(g) > 0 FROM lake.{name}")


def test_a_table_without_rows_has_no_groups_or_one(lake, spark, same, off):
    """Counts of nothing are 0, all else is NULL: with no snapshot, no files, nothing but deleted rows, a filter."""
    name = lake.create(COLUMNS, "PARTITIONED BY (s)", **{"format-version": "3", "write.delete.mode": "merge-on-read"})

    def check():
        query = f"SELECT count(*) AS a, count(i) AS b, max(s) AS c, sum(i) AS d, avg(g) AS e FROM lake.{name}"
        assert same(query) == ["Row(a=0, b=0, c=None, d=None, e=None)"]
        assert same(f"SELECT s, count(*) FROM lake.{name} GROUP BY s") == []

    check()
    lake.session.sql(f"INSERT INTO {name} {ROWS.format(rows=30)}")
    assert same(f"SELECT count(*), max(s) FROM lake.{name} WHERE s = 'no'") == ["Row(count(1)=0, max(s)=None)"]
    lake.session.sql(f"DELETE FROM {name} WHERE length(s) > 0 OR i IS NULL OR i >= 0")
    check()


def test_partitions_and_their_conditions(lake, spark, same):
    """A condition that partitions meet whole leaves Spark nothing to ask of rows."""
    name = filled(lake, partitioning="PARTITIONED BY (s, bucket(2, i))")
    assert len(same(f"SELECT s, {ASKED} FROM lake.{name} GROUP BY s")) == 5
    assert len(same(f"SELECT i, {ASKED} FROM lake.{name} WHERE s = 'é2' GROUP BY i")) == 8
    assert len(same(f"SELECT s, max(d) FROM lake.{name} WHERE s IN ('é1', 'é3') GROUP BY s")) == 2
    assert len(same(f"SELECT i, count(*) FROM lake.{name} WHERE s IS NULL GROUP BY i")) > 2


def test_columns_that_changed_since_the_files_were_written(lake, spark, same):
    """Added, with and without a default, renamed, widened, dropped and added again."""
    name = lake.create("id bigint, i int, s string, m decimal(5, 2)", **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, id % 3, concat('a', id % 2), id FROM range(20)")
    for change in (
        "ADD COLUMN extra string",
        "RENAME COLUMN s TO label",
        "ALTER COLUMN i TYPE bigint",
        "ALTER COLUMN m TYPE decimal(12, 2)",
    ):
        lake.session.sql(f"ALTER TABLE {name} {change}")
    lake.session.sql(f"INSERT INTO {name} SELECT id, 5000000000 + id, 'b', 1e9, 'x' FROM range(5)")
    for groups in ("extra", "label", "i", "m"):
        asked = "count(extra), min(extra), max(i), min(m), max(label), count(*)"
        assert same(f"SELECT {groups}, {asked} FROM lake.{name} GROUP BY {groups}")
    lake.session.sql(f"ALTER TABLE {name} DROP COLUMN label")
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN label string")
    assert same(f"SELECT label, max(extra) FROM lake.{name} GROUP BY label") == ["Row(label=None, max(extra)='x')"]


def test_what_spark_makes_of_groups(lake, spark, same):
    """HAVING, ORDER BY, expressions of aggregates, joins, unions, subqueries, windows."""
    name = filled(lake)
    table = f"lake.{name}"
    for query in (
        f"SELECT s, max(i) - min(i) AS w FROM {table} GROUP BY s HAVING count(*) > 50 ORDER BY w DESC, s LIMIT 3",
        f"SELECT upper(s), max(i) FROM {table} GROUP BY s",
        f"SELECT a.s, c, m FROM (SELECT s, count(*) c FROM {table} GROUP BY s) a "  # noqa: ISC004
        f"JOIN (SELECT s, max(d) m FROM {table} GROUP BY s) b ON a.s <=> b.s",
        f"SELECT s, count(*) FROM {table} GROUP BY s UNION ALL SELECT 'all', count(s) FROM {table}",
        f"SELECT i, s FROM {table} WHERE s = (SELECT max(s) FROM {table})",
        f"SELECT s, c, sum(c) OVER (ORDER BY s) FROM (SELECT s, count(*) AS c FROM {table} GROUP BY s)",
        f"SELECT label, count(*) FROM (SELECT s AS label FROM {table}) GROUP BY label",
        f"SELECT count(*) FROM (SELECT DISTINCT s, i FROM {table})",
    ):
        assert same(query), query
    frame = spark.table(table).groupBy("s").agg(functions.max("i"), functions.count("*"))
    assert is_computed_in_tasks(frame)
    assert frame.count() == 5
    assert frame.where("s = 'é1'").count() == 1
    spark.table(table).createOrReplaceTempView("groups_of_rows")
    assert same("SELECT s, count(i) FROM groups_of_rows GROUP BY s")
    first = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots").first()[0]
    lake.session.sql(f"DELETE FROM {name} WHERE s IS NULL")
    assert len(same(f"SELECT s, count(*) FROM {table} VERSION AS OF {first} GROUP BY s")) == 5
    assert len(same(f"SELECT s, count(*) FROM {table} GROUP BY s")) == 4


def test_queries_in_sql_of_ours_are_computed_so_too(lake, spark, off):
    name = filled(lake)
    for query in (
        f"SELECT s, count(*), sum(g) FROM {name} GROUP BY s",
        f"SELECT max(s), max(x) FROM {name}",
        f"SELECT s, max(d) FROM {name} GROUP BY s HAVING count(*) > 1 ORDER BY s",
    ):
        frame = lake.session.sql(query)
        assert is_computed_in_tasks(frame), query
        assert rows_of(frame) == off(lambda query=query: lake.session.sql(query))
    lake.session.sql(f"INSERT INTO {name} (s, id) SELECT s, count(*) FROM {name} GROUP BY s")
    assert spark.table(f"lake.{name}").count() == 405


def test_many_groups_are_not_held_by_a_task(lake, spark, same):
    """More groups than are put together at once, and some of them twice in a task."""
    name = lake.create("k bigint, s string")
    lake.session.sql(f"INSERT INTO {name} SELECT id % 300000, concat('v', id % 7) FROM range(600000)")
    frame = spark.sql(f"SELECT k, count(*) AS c, max(s) AS m FROM lake.{name} GROUP BY k")
    assert is_computed_in_tasks(frame)
    assert frame.selectExpr("count(*)", "min(c)", "max(c)", "count(DISTINCT m)").collect() == [(300000, 2, 2, 6)]


def test_the_setting_of_a_session_turns_it_off(lake, spark):
    name = filled(lake, 10)
    spark.conf.set(SETTING, "false")
    try:
        assert not is_computed_in_tasks(spark.sql(f"SELECT max(s) FROM lake.{name}"))
    finally:
        spark.conf.unset(SETTING)
    assert is_computed_in_tasks(spark.sql(f"SELECT max(s) FROM lake.{name}"))


def test_explain_says_what_tasks_compute(lake, spark):
    name = filled(lake, 10)
    shown = spark.sql(f"SELECT s, count(*), max(d) FROM lake.{name} GROUP BY s")._jdf.queryExecution().toString()
    assert "count(*), max(d) by s in each task" in shown
