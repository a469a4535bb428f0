"""Tables in SQL are read by the scans that Spark plans: which files, how much, which side of a join is sent to all."""

import re
from unittest.mock import patch

import pytest
from pyiceberg.types import LongType, NestedField

import dml.scan.table_scan
from dml.engine import row_level
from dml.engine.delta_query import delta_frame
from dml.engine.query import run_query
from dml.scan.planner import plan_scan
from dml.sqlparse import parse

pytestmark = pytest.mark.spark

SETTING = "spark.sql.autoBroadcastJoinThreshold"


def plan_of(frame):
    """The physical plan as text."""
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.fixture
def planned(monkeypatch):
    """How many files each scan was left with, in the order in which scans were planned."""
    found = []

    def counted(*arguments, **options):
        plan = plan_scan(*arguments, **options)
        found.append(len(plan.tasks))
        return plan

    monkeypatch.setattr(dml.scan.table_scan, "plan_scan", counted)
    return found


def as_on_connect(lake, text):
    """A query as it is read where Spark does not plan our scans."""
    with patch("dml.engine.query.unplanned_reason", lambda *_: "a test reads so"):
        return run_query(lake.engine, parse(text), text)


@pytest.fixture(scope="module")
def facts(connector_lake):
    """A thousand rows in forty files: partitions of four buckets and ten days, a hundred `id`s a day."""
    lake = connector_lake
    name = lake.create("id bigint, day date, v string, s struct<x: int>", "PARTITIONED BY (bucket(4, id), day)")
    lake.session.sql(
        f"INSERT INTO {name} SELECT id, date_add(DATE'2020-01-01', CAST(id DIV 100 AS INT)), concat('v', id), "
        "named_struct('x', CAST(id AS INT)) FROM range(1000)"
    )
    return name


CONDITIONS = (
    ("day = DATE'2020-01-03'", 4),
    ("system.bucket(4, id) = 1", 10),
    ("lake.system.bucket(4, id) = 1 AND day = '2020-01-03'", 1),
    ("system.days(day) < DATE'2020-01-02'", 4),
    ("id = 55 AND length(v) = 3", 1),
    ("year(day) = 2020", 40),
    ("day > DATE'2020-01-05' AND day < DATE'2020-01-05'", 0),
    ("NOT (day > DATE'2020-01-01') AND id IN (SELECT 12L)", 4),
    ("day = DATE'2020-01-02' AND rand() >= 0", 4),
)


@pytest.mark.parametrize(("condition", "files"), CONDITIONS)
def test_no_more_files_are_read_than_by_the_conditions_of_the_statement(lake, facts, planned, condition, files):
    """Spark's optimizer may leave out more; what it tells a scan nothing of leaves out what it did before."""
    query = f"SELECT id, v FROM (SELECT * FROM {facts} WHERE {condition})"
    before = sorted(as_on_connect(lake, query).collect())
    alone = planned[-1]
    assert sorted(lake.session.sql(query).collect()) == before
    assert planned[-1] <= alone
    assert planned[-1] == files


def test_spark_plans_the_scans_of_all_but_rows_of_one_table(lake, facts):
    """Arrow batches of Python workers go to a SELECT of one table directly: its rows are copied once less."""
    for alone in (f"SELECT * FROM {facts}", f"SELECT v, _file FROM {facts} AS f WHERE f.day > DATE'2020-01-03'"):
        assert "MapInArrow" in plan_of(lake.session.sql(alone)), alone
    for query in (
        f"SELECT sum(id) FROM {facts} AS f WHERE f.day > DATE'2020-01-03'",
        f"SELECT DISTINCT v FROM {facts}",
        f"SELECT day FROM {facts} GROUP BY day",
        f"SELECT * FROM {facts} a, {facts} b WHERE a.id = b.id",
        f"SELECT id FROM {facts} WHERE id IN (SELECT id FROM {facts})",
        f"SELECT id FROM (SELECT * FROM {facts})",
        f"WITH c AS (SELECT id FROM {facts}) SELECT * FROM c",
        f"SELECT id FROM {facts} UNION ALL SELECT id FROM {facts}",
        f"SELECT v FROM {facts} JOIN range(3) r ON {facts}.id = r.id",
    ):
        plan = plan_of(lake.session.sql(query))
        assert "BatchScan" in plan, query
        assert "MapInArrow" not in plan, query


def test_conditions_from_elsewhere_leave_out_files(lake, facts, planned):
    """What stands outside of the SELECT that names the table, which the statement's own analysis does not look at."""
    for query in (
        f"SELECT v FROM (SELECT * FROM {facts}) WHERE day = DATE'2020-01-03'",
        f"WITH late AS (SELECT id, day, v FROM {facts}) SELECT v FROM late WHERE day = DATE'2020-01-03' AND id > 0",
        f"SELECT a.v FROM {facts} a LEFT JOIN (SELECT 1 AS one) ON true WHERE date_add(DATE'2020-01-01', 2) = a.day",
    ):
        assert len(lake.session.sql(query).collect()) == 100
        assert planned[-1] == 4, query


def test_conditions_on_a_temporary_view_leave_out_files(lake, facts, planned):
    """The view is one SELECT of one table, but queries of it have conditions, columns and aggregations of their own."""
    lake.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW all_facts AS SELECT * FROM {facts}")
    found = lake.session.sql("SELECT v FROM all_facts WHERE day = DATE'2020-01-03'")
    assert "MapInArrow" not in plan_of(found)
    assert len(found.collect()) == 100
    assert planned[-1] == 4
    counted = lake.session.sql("SELECT count(*) FROM all_facts")
    assert counted.collect() == [(1000,)]
    assert "LocalTableScan" in plan_of(counted)
    lake.session.spark.catalog.dropTempView("all_facts")


def test_columns_of_a_star_that_nobody_needs_are_not_read(lake, facts):
    frame = lake.session.sql(f"SELECT v FROM (SELECT * FROM {facts}) WHERE id % 2 = 0")
    assert re.search(r"BatchScan lake\.\S+\[id#\d+L, v#\d+\] RowDelta", plan_of(frame))
    counted = lake.session.sql(f"SELECT count(*) FROM {facts}")
    assert counted.collect() == [(1000,)]
    assert "LocalTableScan" in plan_of(counted)
    assert lake.session.sql(f"SELECT count(*) FROM {facts} WHERE system.bucket(4, id) >= 0").collect() == [(1000,)]
    assert lake.session.sql(f"SELECT 1 FROM {facts} a, {facts} b LIMIT 3").collect() == [(1,)] * 3


def test_rows_that_insert_and_create_write_are_read_alike(lake, facts, planned):
    target = lake.create("id bigint, v string")
    lake.session.sql(f"INSERT INTO {target} SELECT id, v FROM (SELECT * FROM {facts}) WHERE day = DATE'2020-01-03'")
    assert planned[-1] == 4
    made = lake.new_name()
    lake.session.sql(f"CREATE TABLE {made} AS SELECT * FROM (SELECT * FROM {facts}) WHERE day = DATE'2020-01-04'")
    assert 4 in planned[1:], planned
    lake.session.sql(
        f"MERGE INTO {target} AS t USING (SELECT id, v FROM (SELECT * FROM {facts}) WHERE day = DATE'2020-01-04') AS s "
        "ON t.id = s.id WHEN NOT MATCHED THEN INSERT *"
    )
    assert lake.rows(f"SELECT count(*), min(id), max(id) FROM {target}") == [(200, 200, 399)]
    assert lake.rows(f"SELECT count(*), min(id), max(id) FROM {made}") == [(100, 300, 399)]
    assert lake.session.sql(f"DELETE FROM {target} WHERE id IN (SELECT id FROM {made})").rows_deleted == 100


def test_sql_knows_how_large_tables_are(lake, spark):
    """Two large ones are not sent to every task; a small one is, and one that is small after its condition."""
    left, right = lake.create("id bigint, v string"), lake.create("id bigint, w string")
    for name in (left, right):
        lake.session.sql(f"INSERT INTO {name} SELECT id, repeat('x', 20) FROM range(20000)")
    join = f"SELECT v, w FROM {left} JOIN {right} ON {left}.id = {right}.id"
    ((cost,),) = lake.session.sql(f"EXPLAIN COST {join}").collect()
    found = re.search(r"RelationV2.* Statistics\(sizeInBytes=([\d.]+) KiB", cost)
    assert found is not None, cost
    assert 100 < float(found[1]) < 2000
    spark.conf.set(SETTING, "100000")
    try:
        joined = lake.session.sql(join)
        assert "SortMergeJoin" in plan_of(joined)
        assert joined.count() == 20000
        assert "BroadcastHashJoin" in plan_of(lake.session.sql(f"{join} WHERE {right}.id < 0"))
    finally:
        spark.conf.unset(SETTING)
    assert "BroadcastHashJoin" in plan_of(lake.session.sql(join))


def test_a_large_target_of_merge_is_not_sent_to_every_task(lake, spark, monkeypatch):
    """Where no keys narrow it; the rows are right however it is joined."""
    target, source = lake.create("id bigint, v string"), lake.create("id bigint, v string")
    lake.session.sql(f"INSERT INTO {target} SELECT id, 'old' FROM range(10000)")
    lake.session.sql(f"INSERT INTO {source} SELECT id, 'new' FROM range(9995, 10005)")
    plans = []

    def recorded(*arguments):
        frame = delta_frame(*arguments)
        plans.append(plan_of(frame))
        return frame

    monkeypatch.setattr(row_level, "delta_frame", recorded)
    merge = f"MERGE INTO {target} AS t USING {source} AS s ON t.id + 0 = s.id + 0"
    for threshold, clauses, joined, changed in (
        ("50000", "WHEN MATCHED THEN UPDATE SET v = s.v", "BuildRight", (0, 5, 0)),
        ("50000", "WHEN MATCHED THEN UPDATE SET v = 'x' WHEN NOT MATCHED THEN INSERT *", "SortMergeJoin", (5, 5, 0)),
        ("10MB", "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *", "BuildLeft", (0, 0, 10)),
        ("50000", "WHEN NOT MATCHED THEN INSERT *", "SortMergeJoin", (10, 0, 0)),
    ):
        spark.conf.set(SETTING, threshold)
        try:
            result = lake.session.sql(f"{merge} {clauses}")
        finally:
            spark.conf.unset(SETTING)
        assert joined in plans[-1], plans[-1]
        assert (result.rows_inserted, result.rows_updated, result.rows_deleted) == changed
    assert lake.rows(f"SELECT count(*), count_if(v = 'old') FROM {target}") == [(10005, 9995)]


def test_a_join_in_sql_leaves_out_partitions_at_runtime(lake, facts, planned):
    """Dynamic partition pruning: what the small side has says which files of the large one are read."""
    days = lake.create("day date, name string")
    lake.session.sql(f"INSERT INTO {days} SELECT date_add(DATE'2020-01-01', CAST(id AS INT)), 'd' || id FROM range(10)")
    joined = lake.session.sql(
        f"SELECT f.id, f._file FROM {facts} f JOIN {days} d ON f.day = d.day WHERE d.name = 'd3' AND f.id >= 0"
    )
    assert "dynamicpruning" in plan_of(joined), plan_of(joined)
    del planned[:]
    assert sorted(row.id for row in joined.collect()) == [*range(300, 400)]
    assert 4 in planned
    assert len({row._file for row in joined.collect()}) == 4


QUERIES = (
    "SELECT *, count(*) OVER () FROM {0} ORDER BY id LIMIT 3",
    "SELECT a.id FROM {0} a JOIN {0} b ON a.id = b.id + 1 WHERE b.day = DATE'2020-01-03'",
    "SELECT id, _pos, _spec_id, _partition.day FROM {0} WHERE id < 30",
    "SELECT *, _file FROM {0} WHERE _pos = 0",
    "SELECT {0}.id, lake.{0}.v FROM lake.{0} WHERE {0}.id > 995",
    "SELECT day, count(*) FROM {0} GROUP BY day HAVING count(*) > (SELECT count(*) FROM {0} WHERE id < 3)",
    "SELECT id FROM {0} o WHERE EXISTS (SELECT 1 FROM {0} i WHERE i.id = o.id * 2)",
    "SELECT id FROM {0} WHERE id NOT IN (SELECT id FROM {0} WHERE s.x % 3 = 0)",
    "SELECT * FROM {0} PIVOT (count(id) FOR v IN ('v1', 'v2'))",
    "FROM {0} |> WHERE id > 990 |> SELECT id, v",
    "VALUES (1), (2) UNION ALL SELECT id FROM {0} WHERE id = 3",
)


@pytest.mark.parametrize("query", QUERIES)
def test_queries_give_the_rows_that_they_give_without(lake, facts, query):
    text = f"WITH found AS ({query.format(facts)}) SELECT * FROM found"
    frame, before = lake.session.sql(text), as_on_connect(lake, text)
    assert frame.schema == before.schema
    assert sorted(map(repr, frame.collect())) == sorted(map(repr, before.collect()))


def test_a_query_stays_at_its_snapshot(lake):
    """Its DataFrame, its cache and a temporary view of it; a query that comes later sees what has changed."""
    name = lake.create("id bigint, p int", "PARTITIONED BY (p)")
    lake.session.sql(f"INSERT INTO {name} SELECT id, id % 2 FROM range(10)")
    fixed = lake.session.sql(f"SELECT * FROM (SELECT * FROM {name})")
    cached = lake.session.sql(f"SELECT * FROM (SELECT * FROM {name} WHERE p = 1)").cache()
    assert (fixed.count(), cached.count()) == (10, 5)
    lake.session.sql(f"CREATE OR REPLACE TEMPORARY VIEW before_delete AS SELECT * FROM {name}")
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (1, 2)")
    assert (fixed.count(), cached.count()) == (10, 5)
    assert "BatchScan" in plan_of(lake.session.sql("SELECT * FROM before_delete"))
    assert lake.session.sql("SELECT * FROM before_delete").count() == 10
    assert lake.session.sql(f"SELECT * FROM (SELECT * FROM {name} WHERE p = 1)").count() == 4
    assert fixed.join(lake.session.sql(f"SELECT * FROM {name}"), "id", "left_anti").count() == 2
    cached.unpersist()


def test_tables_that_are_read_in_other_schemas(lake):
    """A snapshot with the columns of its time, a table without a snapshot, one without columns, a new type."""
    name = lake.create("id bigint, gone string")
    assert lake.rows(f"SELECT count(*), max(id) FROM {name}") == [(0, None)]
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'x')")
    first = lake.table(name).current_snapshot().snapshot_id
    lake.session.sql(f"ALTER TABLE {name} DROP COLUMN gone")
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN gone int")
    lake.session.sql(f"INSERT INTO {name} VALUES (2, 5)")
    assert lake.rows(f"SELECT * FROM (SELECT * FROM {name} VERSION AS OF {first}) WHERE gone = 'x'") == [(1, "x")]
    assert lake.rows(f"SELECT * FROM (SELECT * FROM {name}) WHERE gone = 5 OR gone IS NULL") == [(1, None), (2, 5)]
    with lake.table(name).update_schema(allow_incompatible_changes=True) as update:
        for field in lake.table(name).schema().fields:
            update.delete_column(field.name)
    assert lake.rows(f"SELECT count(*) FROM {name}") == [(2,)]
    with lake.table(name).update_schema() as update:
        update.add_column("back", LongType())
    assert isinstance(lake.table(name).schema().fields[0], NestedField)
    assert lake.rows(name) == [(None,), (None,)]
