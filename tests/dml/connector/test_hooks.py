"""What is done after commits: of statements, of DataFrame writes and of micro-batches."""

import json
import logging
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRefType

from tests.dml.connector.streams import Stream

pytestmark = pytest.mark.spark


def tags(lake, name):
    refs = lake.table(name).refs()
    return {ref.snapshot_id for ref in refs.values() if ref.snapshot_ref_type is SnapshotRefType.TAG}


def snapshots(lake, name):
    return {snapshot.snapshot_id for snapshot in lake.table(name).metadata.snapshots}


def test_every_way_to_commit_is_followed_by_the_hooks(lake, spark, tmp_path, caplog):
    """A tag and a call for each snapshot, a line for each statement, also of one that changes nothing."""
    name = lake.create("id bigint, k string", **{"commit.tag.creation": "commit"})
    stream, session = Stream(spark, tmp_path), lake.session
    seen: list[Any] = []
    stream.add(id=[1], k=["a"])
    merging = session.stream_merge(stream.frame(), name, on=["id", "k"]).whenNotMatched().insertAll()
    remove = session.after_commit(seen.append)
    caplog.set_level(logging.INFO, logger="dml.metrics")
    try:
        session.sql(f"INSERT INTO {name} VALUES (1, 'a')")
        spark.createDataFrame([(2, "b")], "id bigint, k string").writeTo(f"lake.{name}").append()
        stream.run(f"lake.{name}")
        session.sql(f"DELETE FROM {name} WHERE id = 1")
        merging.trigger(availableNow=True).start(str(tmp_path / "merged")).awaitTermination(120)
        spark.newSession().sql(f"DELETE FROM lake.{name} WHERE id = 2")
        session.sql(f"DELETE FROM {name} WHERE id = 77")
        session.sql(f"INSERT INTO {name} VALUES (9, 'z')", idempotency_key="once")
        session.sql(f"INSERT INTO {name} VALUES (9, 'z')", idempotency_key="once")
    finally:
        remove()
    assert tags(lake, name) == snapshots(lake, name)
    assert {result.snapshot_id for result in seen} == snapshots(lake, name)
    assert [result.command for result in seen] == ["INSERT", "INSERT", "INSERT", "DELETE", "MERGE", "DELETE", "INSERT"]
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "dml.metrics"]
    commands = [*["INSERT"] * 3, "DELETE", "MERGE", "DELETE", "DELETE", "INSERT", "INSERT"]
    assert [line["command"] for line in lines] == commands
    assert [line["snapshot_id"] is None for line in lines] == [False] * 6 + [True] + [False] * 2
    assert [line["replayed"] for line in lines] == [False] * 8 + [True]
    assert [line.get("epoch_id") for line in lines] == [None, None, "0", None, "0", *[None] * 4]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_callback_may_write_to_the_same_table(lake, spark, caplog):
    """It sees what was committed, by SQL and as a DataFrame; its own commits call nobody; its errors are warnings."""
    name, session, seen = lake.create("id bigint"), lake.session, []

    def follow(result):
        seen.append(sorted(row[0] for row in spark.table(f"lake.{name}").collect()))
        spark.range(100, 101).writeTo(f"lake.{name}").append()
        session.sql(f"INSERT INTO {name} SELECT id + 1 FROM {name} WHERE id = 100")
        session.sql("DELETE FROM db.nothing")

    remove = session.after_commit(follow)
    try:
        spark.range(1).writeTo(f"lake.{name}").append()
    finally:
        remove()
    assert seen == [[0]]
    assert lake.rows(name) == [(0,), (100,), (101,)]
    (record,) = (record for record in caplog.records if record.name == "dml.hooks")
    assert "follow failed" in record.getMessage()
    assert "nothing" in str(record.exc_info[1])


def test_a_session_sets_what_a_table_does_not(lake, spark):
    name = lake.create("id bigint")
    spark.conf.set("spark.sql.iceberg.commit.tag.creation", "commit")
    try:
        lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    finally:
        spark.conf.unset("spark.sql.iceberg.commit.tag.creation")
    lake.session.sql(f"INSERT INTO {name} VALUES (2)")
    assert len(tags(lake, name)) == 1
    assert len(snapshots(lake, name)) == 2
