"""Queries of groups, of which tasks compute their part: the same as of rows, and of fewer rows."""

from functools import partial

import pytest
from pyspark.sql import functions
from pyspark.sql.functions import count_distinct, lit

import dml.scan.table_scan
import dml.spark_scan.scan
import dml.spark_scan.workers
from dml.errors import SetupError
from dml.spark.handlers import run_as_handler
from tests.conftest import session_settings
from tests.marks import by_night

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


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings under which Spark compiles no query: to compile a wide one takes longer than to run it."""


def texts(rows):
    return sorted(map(repr, rows))


def plan_of(frame):
    """As Spark made it when it was first asked for: what counts rows is known while a query runs."""
    return frame._jdf.queryExecution().executedPlan().toString()


def is_computed_in_tasks(frame):
    """Whether its scan gives groups, when it is run."""
    frame.collect()
    return "in each task" in plan_of(frame)


@pytest.fixture
def off(spark):
    """The rows of the same query of rows, which Spark interprets."""

    def run(make):
        with session_settings(spark, {SETTING: "false", **INTERPRETED}):
            frame = make()
            found = frame.collect()
            assert "in each task" not in plan_of(frame)
            return found

    return run


@pytest.fixture
def same(spark, off):
    """Sees that a query is computed in tasks, and says the same as of rows."""

    def check(query, expected=None):
        frame = spark.sql(query)
        found = texts(frame.collect())
        assert "in each task" in plan_of(frame), query
        assert found == texts(off(lambda: spark.sql(query)) if expected is None else expected), query
        return found

    return check


def filled(lake, rows=400, partitioning="", **properties):
    """A table of rows of all types, whose files other tables read too."""
    key = (filled, rows, partitioning, *properties.items())
    return lake.copy_of(key, lambda: new_table(lake, rows, partitioning, properties))


def new_table(lake, rows, partitioning, properties):
    """Create the table that `filled` copies."""
    name = lake.create(COLUMNS, partitioning, **properties)
    lake.session.sql(f"INSERT INTO {name} {ROWS.format(rows=rows)}")
    return name


@pytest.mark.parametrize(
    ("file_format", "groups_in_turn"),
    by_night(
        [("parquet", GROUPS), *((each, GROUPS[first::3]) for each in ("orc", "avro") for first in range(3))],
        lambda case: case in {("parquet", GROUPS), ("orc", GROUPS[::3]), ("avro", GROUPS[1::3])},
    ),
)
def test_groups_are_those_of_rows(lake, spark, same, off, file_format, groups_in_turn):
    """Of every type that can be a group, NULLs among them, and no groups at all; the rows are those of Parquet.

    With every change each type is a group in Parquet files, and most in those of one of the other formats.
    """
    name = filled(lake, **{"write.format.default": file_format})
    parquet = lake.once("rows in Parquet files", lambda: filled(lake))

    def checked(query):
        expected = lake.once(("of rows", query), lambda: off(lambda: spark.sql(query.format(f"lake.{parquet}"))))
        return same(query.format(f"lake.{name}"), expected)

    for groups in groups_in_turn:
        assert checked(f"SELECT {groups}, {ASKED} FROM {{}} GROUP BY {groups}")
    assert len(checked(f"SELECT {ASKED} FROM {{}}")) == 1


OF_ROWS = (
    (
        "max(f)",
        "min(g)",
        "sum(id)",
        "sum(m)",
        "sum(f)",
        "avg(id)",
        "max(upper(s))",
        "count(*) FILTER (WHERE i > 2)",
        "count(st)",
        "max(st.a)",
        "collect_set(s)",
        "max_by(s, i)",
        "stddev(g)",
        "count(s, i)",
    ),
    ("count(DISTINCT s)",),
    ("sum(DISTINCT i)",),
)
"""Aggregations that tasks do not compute. Each query runs alone; the expected values of several are computed at once.

DISTINCT is computed alone: beside it, Spark adds up rows in another order.
"""


def test_what_is_not_the_same_in_tasks_is_computed_of_rows(lake, spark, off):
    """Floats as groups (NaN, both zeros) and their extremes, sums that may overflow, DISTINCT, FILTER, expressions."""
    name = filled(lake)
    for asked in OF_ROWS:
        for groups in ("", " GROUP BY b"):
            query = f"SELECT {{}}, max(s) FROM lake.{name}{groups}"
            expected = off(lambda query=query, asked=asked: spark.sql(query.format(", ".join(asked))))
            for place, one in enumerate(asked):
                frame = spark.sql(query.format(one))
                assert texts(map(tuple, frame.collect())) == texts((row[place], row[-1]) for row in expected), one
                assert "in each task" not in plan_of(frame), one
    for groups in ("f", "g", "st", "st.a", "upper(s)", "i % 2", "s, f", "_file", "_partition"):
        assert not is_computed_in_tasks(spark.sql(f"SELECT {groups}, count(s) FROM lake.{name} GROUP BY {groups}")), (
            groups
        )
    assert not is_computed_in_tasks(spark.sql(f"SELECT s, count(*) FROM lake.{name} WHERE i > 2 GROUP BY s"))
    assert not is_computed_in_tasks(spark.sql(f"SELECT s, count(*) FROM lake.{name} WHERE rand() > 2 GROUP BY s"))
    assert not is_computed_in_tasks(spark.sql(f"SELECT s, i, count(*) FROM lake.{name} GROUP BY ROLLUP (s, i)"))


@pytest.mark.parametrize(
    ("version", "mode"),
    by_night(
        [("2", "merge-on-read"), ("3", "merge-on-read"), ("2", "copy-on-write")],
        lambda case: case[1] == "merge-on-read",
    ),
)
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


@pytest.mark.usefixtures("compiled")
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
        assert texts(frame.collect()) == texts(off(lambda query=query: lake.session.sql(query)))
        assert "in each task" in plan_of(frame), query
    lake.session.sql(f"INSERT INTO {name} (s, id) SELECT s, count(*) FROM {name} GROUP BY s")
    assert spark.table(f"lake.{name}").count() == 405


def test_many_groups_are_not_held_by_a_task(lake, spark, same):
    """More groups than are put together at once, and some of them twice in a task."""
    name = lake.create("k bigint, s string")
    lake.session.sql(f"INSERT INTO {name} SELECT id % 300000, concat('v', id % 7) FROM range(600000)")
    frame = spark.sql(f"SELECT k, count(*) AS c, max(s) AS m FROM lake.{name} GROUP BY k")
    totals = frame.selectExpr("count(*)", "min(c)", "max(c)", "count(m)")
    assert totals.collect() == [(300000, 2, 2, 300000)]
    assert "in each task" in plan_of(totals)
    assert frame.select("m").distinct().count() == 6


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
    shown = spark.sql(f"EXPLAIN SELECT s, count(i), max(d) FROM lake.{name} GROUP BY s").first()[0]
    assert "count(i), max(d) by s in each task" in shown
    frame = spark.sql(f"SELECT s, count(*), max(d) FROM lake.{name} GROUP BY s")
    assert is_computed_in_tasks(frame)
    assert "count(*), max(d) by s in each task" in plan_of(frame)
    unknown = spark.sql(f"SELECT s, count(*) FROM lake.{name} GROUP BY s")
    assert "in each task" not in plan_of(unknown), "it is asked for its plan, and not run"
    assert len(unknown.collect()) == 5


CONSTANT = "(SELECT s, 'web' AS src FROM {0})"
COUNTED = "count(DISTINCT src) AS n, count(*) > 1 AS many"
IN_TURN = {("", 0), ("2", 1), ("3", 2)}


def constants(lake, spark, name):
    """Yield calls that give queries of the different values of a constant, in groups and in all, in SQL and PySpark."""
    table, session = f"lake.{name}", lake.session
    spark.sql(f"SELECT s, 'web' AS src FROM {table}").createOrReplaceTempView("of_a_constant")
    session.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_a_statement AS SELECT s, 'web' AS src FROM {name}")
    with run_as_handler():
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW of_spark AS SELECT s, 'web' AS src FROM {table}")
    for run, source in (
        (session.sql, CONSTANT.format(name)),
        (spark.sql, CONSTANT.format(table)),
        (spark.sql, "of_a_constant"),
        (spark.sql, "of_a_statement"),
        (spark.sql, "of_spark"),
    ):
        yield partial(run, f"SELECT s, {COUNTED} FROM {source} GROUP BY s")
        yield partial(run, f"SELECT {COUNTED} FROM {source}")
        yield partial(run, f"WITH c AS (SELECT * FROM {source}) SELECT s, {COUNTED} FROM c GROUP BY s")
        yield partial(run, f"SELECT n, true AS many FROM (SELECT count(DISTINCT src) AS n FROM {source})")
        yield partial(run, f"SELECT 1, (SELECT count(DISTINCT src) FROM {source}) AS n, true AS many")
    for one in ("count(DISTINCT 1)", "count_if(DISTINCT true)", "regr_count(DISTINCT 1, 1)"):
        yield partial(session.sql, f"SELECT {one} AS n, true AS many FROM {name}")
        yield partial(
            spark.sql, f"SELECT s, coalesce(if({one} > 0, {one}, NULL), 3) AS n, true AS many FROM {table} GROUP BY s"
        )
    for made in (
        spark.table(table),
        session.table(name),
        session.sql(f"SELECT * FROM {name}"),
        session.sql(f"SELECT s, count(*) FROM {name} GROUP BY s"),
    ):
        frame = made.withColumn("src", lit("web"))
        for rows in (frame.groupBy("s"), frame.groupBy()):
            yield partial(rows.agg, count_distinct("src").alias("n"), functions.expr("true").alias("many"))
            yield partial(rows.agg, count_distinct(lit(7)).alias("n"), functions.expr("true").alias("many"))


@pytest.mark.parametrize(
    ("deletes", "third"),
    by_night([(deletes, third) for deletes in ("", "2", "3") for third in range(3)], lambda case: case in IN_TURN),
)
def test_different_values_of_a_constant_are_one(lake, spark, deletes, third):
    """Spark's optimizer tells a source to count rows there; wherever the constant and the count are written.

    With every change each query is run without deletes, with position deletes or with vectors, by night with all.
    """
    name = lake.create(
        "id bigint, s string", **{"format-version": deletes or "2", "write.delete.mode": "merge-on-read"}
    )
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('s', id % 2) FROM range(12)")
    if deletes:
        lake.session.sql(f"DELETE FROM {name} WHERE id < 4")
    for number, make in enumerate(constants(lake, spark, name)):
        if number % 3 != third:
            continue
        found = make().collect()
        assert found, number
        assert [(row["n"], row["many"]) for row in found] == [(1, True)] * len(found), number
    counted = lake.session.sql(f"SELECT s, count(*) AS n FROM {name} GROUP BY s")
    assert sorted(counted.collect()) == [("s0", 4 if deletes else 6), ("s1", 4 if deletes else 6)]
    assert "in each task" in plan_of(counted)


def test_a_count_that_is_kept_is_of_values_too(lake, spark):
    """Rows that are cached are planned while nothing runs."""
    name = filled(lake, 20)
    frame = spark.table(f"lake.{name}").withColumn("src", lit("web")).groupBy("b").agg(count_distinct("src").alias("n"))
    frame.cache()
    try:
        assert frame.count() == 2
        assert {row["n"] for row in frame.collect()} == {1}
    finally:
        frame.unpersist()


def test_a_join_leaves_out_files_of_groups(lake, spark, monkeypatch):
    """By the columns of partition fields that groups are made of: Spark finds them by name, as it does a value's."""
    name = lake.create("p int, value0 string, v string", "PARTITIONED BY (p, truncate(1, value0))")
    lake.session.sql(f"INSERT INTO {name} SELECT id % 6, concat('a', id % 2), concat('v', id) FROM range(60)")
    found: list[int] = []

    def narrowed(self, predicates):
        narrow(self, predicates)
        found.append(len(self.tasks))

    narrow = dml.spark_scan.scan.SparkScan.filter
    monkeypatch.setattr(dml.spark_scan.scan.SparkScan, "filter", narrowed)
    few = lake.create("id int, label string")
    lake.session.sql(f"INSERT INTO {few} SELECT id, concat('d', id) FROM range(9)")
    for query, expected in (
        (
            "SELECT p, m FROM (SELECT p, max(v) AS m FROM {0} GROUP BY p) JOIN {1} ON p = id WHERE label = 'd3'",
            [(3, "v9")],
        ),
        (
            "SELECT p, n FROM (SELECT p, value0, count(*) n FROM {0} GROUP BY ALL) JOIN {1} ON p = id AND label = 'd3'",
            [(3, 10)],
        ),
    ):
        frame = spark.sql(query.format(f"lake.{name}", f"lake.{few}"))
        assert sorted(frame.collect()) == expected
        assert "in each task" in plan_of(frame), plan_of(frame)
        assert "dynamicpruning" in frame._jdf.queryExecution().executedPlan().toString(), query
        assert found[-1] == 1


def test_files_are_planned_once_where_spark_makes_groups_itself(lake, spark, monkeypatch):
    """It has to be known which files are read to know who reads them."""
    name = filled(lake)
    plans = []
    plan_scan = dml.scan.table_scan.plan_scan

    def counted(*given, **more):
        plans.append(plan_scan(*given, **more))
        return plans[-1]

    monkeypatch.setattr(dml.scan.table_scan, "plan_scan", counted)
    monkeypatch.setattr("dml.limits.MIN_SPARK_READER_BYTES", 0)
    frame = spark.sql(f"SELECT i, sum(g) FROM lake.{name} GROUP BY i")
    assert not is_computed_in_tasks(frame)
    assert len(plans) == 1
    assert is_computed_in_tasks(spark.sql(f"SELECT s, max(x) FROM lake.{name} GROUP BY s"))
    assert len(plans) == 2


def test_workers_without_us_are_not_asked_for_groups(lake, spark, monkeypatch):
    """A query that Spark's own reader reads needs no Python."""
    name = filled(lake)

    def refuse(_):
        raise SetupError("no RowDelta there")

    monkeypatch.setattr("dml.limits.MIN_SPARK_READER_BYTES", 0)
    monkeypatch.setattr(dml.spark_scan.workers, "check_workers", refuse)
    monkeypatch.setattr(dml.spark_scan.workers, "UNFIT", set())
    for _ in range(2):
        frame = spark.table(f"lake.{name}").groupBy("s").agg(functions.max("x"))
        assert not is_computed_in_tasks(frame)
        assert len(dml.spark_scan.workers.UNFIT) == 1


def test_a_scan_of_no_column_reads_one_that_the_statement_names(lake):
    """The cheapest of the table may be none of them."""
    name = lake.create("id bigint, s string, f float, b boolean", **{"write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id, 'x', 1, true FROM range(9)")
    lake.session.sql(f"DELETE FROM {name} WHERE id = 3")
    for query, expected in (
        ("SELECT max(src) FROM (SELECT s, 'web' AS src FROM {0})", [("web",)]),
        ("SELECT count(*) FROM (SELECT s FROM {0})", [(8,)]),
        ("SELECT count(*) FROM (SELECT _file FROM {0})", [(8,)]),
        ("SELECT 1 WHERE EXISTS (SELECT s FROM {0})", [(1,)]),
        ("SELECT count(*) FROM (SELECT s, f FROM {0} WHERE s > 'a')", [(8,)]),
    ):
        assert lake.session.sql(query.format(name)).collect() == expected, query
