"""Which state of a table a DataFrame reads: of `lake.table`, of `spark.table`, of views and caches."""

import re
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql.functions import expr

from dml.connector import table
from dml.connector.state import TableState
from dml.engine import row_level
from dml.engine.merge_source import MergeSourceFrame
from dml.errors import AnalysisError, NotFoundError
from dml.plan.row_delta_plan import ThroughSpark
from dml.spark.handlers import run_as_handler
from dml.spark.versions import INSTALLED_FEATURES, Feature

pytestmark = pytest.mark.spark


def plan_of(frame):
    return frame._jdf.queryExecution().executedPlan().toString()


def in_spark(spark, text):
    """A statement that Spark runs itself, on the catalog that it knows."""
    with run_as_handler():
        return spark.sql(text)


@pytest.fixture
def name(lake):
    """A table of ten rows, in partitions of one value each."""
    made = lake.create("id bigint, v string, p int", "PARTITIONED BY (p)")
    lake.session.sql(f"INSERT INTO {made} SELECT id, concat('v', id), id % 2 FROM range(10)")
    return made


def test_lake_table_prunes_what_is_chosen_later(lake, name):
    """Columns and files, and it counts without a job."""
    table = lake.session.table(name)
    assert re.search(
        r"BatchScan lake\.\S+\[v#\d+\] RowDelta \S+ "
        r"\(snapshot \d+, (\d) of \d data files, filter \(p IS NOT NULL AND p = 1\)\)",
        plan_of(table.where("p = 1").select("v")),
    )
    assert sorted(row.v for row in table.where("p = 1").select("v").collect()) == ["v1", "v3", "v5", "v7", "v9"]
    counted = table.groupBy().count()
    assert counted.collect() == [(10,)]
    assert "LocalTableScan" in plan_of(counted)
    last = name.split(".")[1]
    for qualifier in (last, name, f"lake.{name}"):
        assert table.where(f"{qualifier}.id = 3").select(f"{qualifier}.v").collect() == [("v3",)]


def test_lake_table_stays_at_its_snapshot_and_spark_table_follows(lake, spark, name):
    """One rule for each way in: see decision 021."""
    fixed, following = lake.session.table(name), spark.table(f"lake.{name}")
    assert (fixed.count(), following.count()) == (10, 10)
    lake.session.sql(f"DELETE FROM {name} WHERE id < 4")
    assert (fixed.count(), following.count()) == (10, 6)
    assert (fixed.where("id < 4").count(), following.where("id < 4").count()) == (4, 0)
    assert lake.session.table(name).count() == 6
    assert fixed.join(following, "id", "left_anti").count() == 4


def test_lake_table_finds_what_it_found_before(lake, spark, name):
    """Branches, tags, metadata tables, temporary views; and says what is not there."""
    table = lake.table(name)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    lake.session.sql(f"DELETE FROM {name} WHERE id < 4")
    assert lake.session.table(f"{name}.branch_audit").count() == 10
    assert lake.session.table(f"{name}.files").count() == 2
    spark.range(3).createOrReplaceTempView("seen_by_table")
    assert lake.session.table("seen_by_table").count() == 3
    with pytest.raises(NotFoundError, match="There is no table"):
        lake.session.table("lake.db.nothing")
    with pytest.raises(NotFoundError):
        lake.session.table(f"{name}.branch_other")


def test_lake_table_reads_after_the_session_left_spark(lake, name):
    """The catalog is gone from Spark, not from the DataFrame."""
    before = lake.session.table(name)
    lake.session.disable()
    assert before.where("id = 3").collect() == [(3, "v3", 1)]
    assert lake.session.table(name).count() == 10


def test_caches_are_read_anew_after_changes(lake, spark, name):
    """CACHE TABLE and cache() of what follows the table; a DataFrame of `lake.table` keeps its rows."""
    in_spark(spark, f"CACHE TABLE lake.{name}")
    fixed, following = lake.session.table(name).cache(), spark.table(f"lake.{name}").where("p = 1").cache()
    assert (fixed.count(), following.count(), spark.table(f"lake.{name}").count()) == (10, 5, 10)
    assert "InMemoryRelation" in plan_of(spark.table(f"lake.{name}").select("v"))
    lake.session.sql(f"DELETE FROM {name} WHERE id IN (1, 2)")
    assert (fixed.count(), following.count(), spark.table(f"lake.{name}").count()) == (10, 4, 8)
    assert spark.table(f"lake.{name}").where("p = 1").count() == 4
    in_spark(spark, f"REFRESH TABLE lake.{name}")
    assert spark.table(f"lake.{name}").count() == 8
    in_spark(spark, f"UNCACHE TABLE lake.{name}")
    fixed.unpersist()
    following.unpersist()


def test_views_of_spark_over_our_tables(lake, spark, name):
    """Temporary ones and those that stay follow the table."""
    spark.table(f"lake.{name}").where("id > 5").createOrReplaceTempView("late_rows")
    in_spark(spark, f"CREATE OR REPLACE VIEW default.kept_view AS SELECT p, count(*) AS n FROM lake.{name} GROUP BY p")
    try:
        assert spark.table("late_rows").count() == 4
        assert sorted(spark.table("default.kept_view").collect()) == [(0, 5), (1, 5)]
        lake.session.sql(f"DELETE FROM {name} WHERE id = 9")
        assert spark.table("late_rows").count() == 3
        assert sorted(spark.table("default.kept_view").collect()) == [(0, 5), (1, 4)]
    finally:
        in_spark(spark, "DROP VIEW IF EXISTS default.kept_view")
        spark.catalog.dropTempView("late_rows")


def test_a_table_that_is_dropped_is_gone_for_spark_table(lake, spark, name):
    following = spark.table(f"lake.{name}")
    lake.session.sql(f"DROP TABLE {name}")
    with pytest.raises((AnalysisException, NotFoundError)):  # Spark's words, or before 4.1 ours
        following.count()


def test_a_table_that_spark_keeps_is_loaded_anew_for_each_scan(lake, spark, name, monkeypatch):
    """As before Spark 4.1: its newer rows, and no other table of the name."""
    monkeypatch.setattr(table, "INSTALLED_FEATURES", INSTALLED_FEATURES - {Feature.TABLE_RELOAD})
    engine = lake.engine
    resolved = engine.registry.resolve(("lake", *name.split(".")))
    kept = table.SparkTable(lambda: engine, TableState.of(engine, resolved, None, None))
    lake.session.sql(f"DELETE FROM {name} WHERE id < 4")
    lake.session.sql(f"ALTER TABLE {name} ADD COLUMN more INT")
    now = kept._current_state()
    assert now.snapshot_id == lake.table(name).current_snapshot().snapshot_id != kept.state.snapshot_id
    assert kept.identity == table.SparkTable(lambda: engine, now).identity
    lake.session.sql(f"ALTER TABLE {name} DROP COLUMN v")
    with pytest.raises(AnalysisError, match="its columns changed"):
        kept._current_state()
    lake.session.sql(f"DROP TABLE {name}")
    with pytest.raises(NotFoundError, match="There is no table"):
        kept._current_state()


@pytest.mark.parametrize("way", ["mergeInto", "view"])
def test_a_statement_reads_a_table_that_follows_in_one_state(lake, spark, name, way, monkeypatch):
    """A MERGE takes the keys of its source first and the rows later: what others add between is in neither."""
    source = lake.create("id bigint, v string, p int")
    lake.session.sql(f"INSERT INTO {source} VALUES (1, 'new', 1)")
    keys = MergeSourceFrame.keys
    added: list[Any] = []

    def keys_and_then_others(frame):
        found = keys(frame)
        if not added:
            added.append(lake.table(source).scan().to_arrow().set_column(0, "id", [pa.array([2])]))
            lake.table(source).append(added[0])
        return found

    monkeypatch.setattr(MergeSourceFrame, "keys", keys_and_then_others)
    monkeypatch.setattr(row_level, "send_source", lambda *_: ThroughSpark(reason="the test says so"))
    rows = spark.table(f"lake.{source}")
    if way == "view":
        rows.createOrReplaceTempView("following")
        clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        lake.session.sql(f"MERGE INTO {name} t USING following s ON t.id = s.id {clauses}")
    else:
        on = expr(f"s.id = {name[3:]}.id")
        rows.alias("s").mergeInto(f"lake.{name}", on).whenMatched().updateAll().whenNotMatched().insertAll().merge()
    assert added
    assert lake.rows(f"SELECT id FROM {name} WHERE v = 'new'") == [(1,)]
    assert len(lake.rows(name)) == 10
    assert spark.table(f"lake.{source}").count() == 2
