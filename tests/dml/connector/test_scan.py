"""Reading our tables through Spark's connector API."""

import pytest

pytestmark = pytest.mark.spark


def test_a_table_is_read(lake, spark):
    """By `spark.table`, `read.table`; empty and without a snapshot too."""
    name = lake.create("id bigint, v string, d decimal(9,2)", "PARTITIONED BY (bucket(3, id))")
    assert spark.table(f"lake.{name}").collect() == []
    assert spark.table(f"lake.{name}").count() == 0
    lake.session.sql(f"INSERT INTO {name} SELECT id, concat('v', id), id FROM range(100)")
    assert spark.table(f"lake.{name}").count() == 100
    assert spark.read.table(f"lake.{name}").where("id = 7").collect() == [(7, "v7", 7)]
    assert spark.table(f"lake.{name}").agg({"d": "sum"}).first()[0] == 4950
    assert spark.table(f"lake.{name}").select("v", "id").where("id < 2").orderBy("id").collect() == [
        ("v0", 0),
        ("v1", 1),
    ]


def test_deleted_rows_are_not_read(lake, spark):
    name = lake.create("id bigint", **{"format-version": "3", "write.delete.mode": "merge-on-read"})
    lake.session.sql(f"INSERT INTO {name} SELECT id FROM range(50)")
    lake.session.sql(f"DELETE FROM {name} WHERE id % 2 = 0")
    assert spark.table(f"lake.{name}").count() == 25
