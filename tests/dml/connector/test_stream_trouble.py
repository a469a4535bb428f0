"""What happens beside a stream, or to it: its branch goes, others write, it is stopped in a micro-batch."""

import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import count, udf

from dml.errors import AnalysisError, NotFoundError
from tests.dml.connector.streams import Stream
from tests.dml.connector.test_stream_merge import merge
from tests.dml.connector.test_stream_write import epochs, parquet_files

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark, tmp_path):
    return Stream(spark, tmp_path)


def branched(lake):
    """A table with a row and a branch, `audit`."""
    name = lake.create("id bigint, k string")
    lake.session.sql(f"INSERT INTO {name} VALUES (9, 'z')")
    table = lake.table(name)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    return name


@pytest.mark.parametrize("merges", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_the_branch_of_a_stream_is_dropped(lake, stream, merges):
    """It is not made again, and main gets nothing."""
    name = branched(lake)
    stream.add(id=[1], k=["a"])
    target = f"{name}.branch_audit"
    if merges:
        merging = merge(lake, stream, target, latest_by=None).whenNotMatched().insertAll()
        query = merging.start(str(stream.checkpoint))
    else:
        query = stream.writer().toTable(f"lake.{target}")
    try:
        query.processAllAvailable()
        lake.table(name).manage_snapshots().remove_branch("audit").commit()
        before = lake.state(name)
        stream.add(id=[2], k=["b"])
        with pytest.raises((NotFoundError, AnalysisError, StreamingQueryException), match="branch"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert lake.state(name) == before
    assert list(lake.table(name).refs()) == ["main"]


def test_a_result_that_becomes_empty_empties_the_table(lake, stream):
    """Complete mode: of partitions, of rows that others deleted from, and in a micro-batch without rows."""
    name = lake.create(
        "k string, n bigint", "PARTITIONED BY (k)", **{"format-version": "3", "write.delete.mode": "merge-on-read"}
    )
    stream.add(id=[1, 2], k=["a", "b"])
    counts = stream.frame().groupBy("k").agg(count("*").alias("n")).where("n < 2")
    stream.run(f"lake.{name}", counts, "complete")
    assert lake.rows(name) == [("a", 1), ("b", 1)]
    lake.session.sql(f"DELETE FROM {name} WHERE n = 1 AND k = 'b'")
    stream.add(id=[3, 4], k=["a", "b"])
    stream.run(f"lake.{name}", counts, "complete")
    assert lake.rows(name) == []
    stream.add(id=[5], k=["c"])
    stream.run(f"lake.{name}", counts, "complete")
    assert lake.rows(name) == [("c", 1)]
    assert epochs(lake, name)[0] == "2"


@pytest.mark.nightly
def test_two_streams_and_a_statement_write_one_table(lake, spark, tmp_path):
    """Each with its own numbers; nobody waits for another, and nothing is lost."""
    name = lake.create("id bigint, k string", **{"format-version": "3", "write.update.mode": "merge-on-read"})
    streams = [Stream(spark, tmp_path / side) for side in "ab"]
    for place, stream in enumerate(streams):
        stream.folder.mkdir()
        for number in range(3):
            stream.add(id=[10 * place + number], k=["new"])
    lake.session.sql(f"INSERT INTO {name} VALUES (99, 'old')")
    queries = [stream.writer().trigger(availableNow=True).toTable(f"lake.{name}") for stream in streams]
    lake.session.sql(f"UPDATE {name} SET k = 'mine' WHERE id = 99")
    assert all(query.awaitTermination(120) for query in queries)
    expected = [*((10 * place + number, "new") for place in (0, 1) for number in range(3)), (99, "mine")]
    assert lake.rows(name) == sorted(expected, key=repr)
    assert sorted(filter(None, epochs(lake, name))) == ["0", "0", "1", "1", "2", "2"]


@pytest.mark.nightly
def test_a_stream_that_is_stopped_in_a_micro_batch_leaves_nothing_and_goes_on(lake, stream):
    name = lake.create("id bigint, k string")
    stream.add(id=list(range(4)), k=["a"] * 4)

    @udf("string")
    def slow(value):
        time.sleep(2)
        return value

    rows = stream.frame().select("id", slow("k").alias("k"))
    query = stream.writer(rows).toTable(f"lake.{name}")
    deadline = time.monotonic() + 60
    while not query.status["isDataAvailable"] and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1)
    query.stop()
    assert epochs(lake, name) == []
    assert not parquet_files(lake, name)
    stream.run(f"lake.{name}")
    assert lake.rows(name) == [(number, "a") for number in range(4)]
    assert len(parquet_files(lake, name)) == len(lake.data_files(name))
