"""Streams on a cluster: from a table, to a table, and merged into a table; each row exactly once, across restarts."""

from pathlib import Path

import pytest

from dml.session import Session

pytestmark = pytest.mark.spark


def test_a_stream_copies_a_table_and_goes_on_where_it_ended(lake: Session, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE db.events (id BIGINT, kind STRING) PARTITIONED BY (kind)")
    lake.sql("CREATE TABLE db.copies (id BIGINT, kind STRING) PARTITIONED BY (bucket(2, id))")
    for first in (0, 1000):
        lake.sql(f"INSERT INTO db.events SELECT id, concat('k', id % 3) FROM range({first}, {first + 1000})")
        stream = lake.spark.readStream.table("lake.db.events").writeStream
        query = stream.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).toTable("lake.db.copies")
        query.awaitTermination()
        (sums,) = lake.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM db.copies").collect()
        assert tuple(sums) == (first + 1000, first + 1000, sum(range(first + 1000)))
    lake.verify("db.copies").raise_for_problems()


def test_a_stream_is_merged_into_a_table(lake: Session, tmp_path: Path) -> None:
    lake.sql("CREATE TABLE db.changes (id BIGINT, state STRING, at BIGINT)")
    lake.sql("CREATE TABLE db.orders (id BIGINT, state STRING, at BIGINT)")
    lake.sql("INSERT INTO db.orders SELECT id, 'new', 0 FROM range(500)")
    lake.sql("INSERT INTO db.changes SELECT id % 1000, concat('s', id DIV 1000), 1 + id DIV 1000 FROM range(3000)")
    changes = lake.spark.readStream.table("lake.db.changes")
    query = (
        lake.stream_merge(changes, "db.orders", on=["id"], latest_by="at")
        .whenMatched()
        .updateAll()
        .whenNotMatched()
        .insertAll()
        .trigger(availableNow=True)
        .start(str(tmp_path))
    )
    query.awaitTermination()
    found = lake.sql("SELECT state, at, count(*), sum(id) FROM db.orders GROUP BY state, at").collect()
    assert [tuple(row) for row in found] == [("s2", 3, 1000, sum(range(1000)))]
    lake.verify("db.orders").raise_for_problems()
