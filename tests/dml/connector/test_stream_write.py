"""`df.writeStream.toTable`: rows, snapshots and files of micro-batches, each once, and what is refused."""

import json
from pathlib import Path

import pytest
from pyiceberg.table.snapshots import Operation
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import count, lit

from dml.errors import AnalysisError, CommitConflictError, DataError, DmlError, NotFoundError, NotSupportedError
from dml.model.summary_keys import EPOCH_ID, QUERY_ID
from dml.session import runner_of
from dml.spark_connect.writes import WriteAction, WriteCall, start_stream
from tests.dml.connector.streams import Stream

pytestmark = pytest.mark.spark


@pytest.fixture
def stream(spark, tmp_path):
    return Stream(spark, tmp_path)


def epochs(lake, name, branch="main"):
    """The numbers of the micro-batches in the history of a branch, newest first."""
    metadata = lake.table(name).metadata
    found, snapshot = [], metadata.snapshot_by_name(branch)
    while snapshot is not None:
        found.append(snapshot.summary.additional_properties.get(EPOCH_ID))
        snapshot = metadata.snapshot_by_id(snapshot.parent_snapshot_id or -1)
    return found


def parquet_files(lake, name):
    return set(lake.folder(name).rglob("*.parquet"))


def test_each_micro_batch_is_a_fast_append(lake, stream):
    """Its snapshot names the query and the number; Spark shows how many rows it had."""
    name = lake.create("id bigint, k string")
    for start in (0, 2):
        stream.add(id=[start, start + 1], k=["a", "b"])
    query = stream.run(f"lake.{name}")
    assert lake.rows(name) == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]
    assert epochs(lake, name) == ["1", "0"]
    summary = lake.table(name).current_snapshot().summary
    assert summary.operation is Operation.APPEND
    assert summary.additional_properties[QUERY_ID] == query.id
    assert [progress.sink.numOutputRows for progress in query.recentProgress if progress.numInputRows] == [2, 2]
    assert name in query.lastProgress.sink.description
    stream.add(id=[4], k=["c"])
    stream.run(f"lake.{name}")
    assert epochs(lake, name) == ["2", "1", "0"]


def test_a_micro_batch_that_runs_again_is_not_appended_again(lake, stream):
    """After a kill between the commit and the checkpoint; other writers may have come, and its files go."""
    name = lake.create("id bigint, k string", "PARTITIONED BY (k)")
    for start in (0, 2):
        stream.add(id=[start, start + 1], k=["a", "b"])
    stream.run(f"lake.{name}")
    lake.session.sql(f"INSERT INTO {name} VALUES (9, 'z')")
    before = parquet_files(lake, name)
    stream.forget(1)
    stream.run(f"lake.{name}")
    assert lake.rows(name) == [(0, "a"), (1, "b"), (2, "a"), (3, "b"), (9, "z")]
    assert epochs(lake, name) == [None, "1", "0"]
    assert parquet_files(lake, name) == before


def test_complete_mode_replaces_all_rows_at_once(lake, stream):
    """Also those that others have written, and also what runs again; columns that the query has not are NULL."""
    name = lake.create("n bigint, k string, note string")
    lake.session.sql(f"INSERT INTO {name} VALUES (100, 'old', 'old')")
    stream.add(id=[1, 2, 3], k=["a", "a", "b"])
    counts = stream.frame().groupBy("k").agg(count(lit(1)).alias("n"))
    stream.run(f"lake.{name}", counts, mode="complete")
    assert lake.rows(name) == [(1, "b", None), (2, "a", None)]
    stream.add(id=[4], k=["b"])
    stream.run(f"lake.{name}", counts, mode="complete")
    assert lake.rows(name) == [(2, "a", None), (2, "b", None)]
    assert lake.table(name).current_snapshot().summary.operation is Operation.OVERWRITE
    stream.forget(1)
    stream.run(f"lake.{name}", counts, mode="complete")
    assert epochs(lake, name) == ["1", "0", None]


def run_by_function(lake, stream, name, frame, mode="append"):
    """Write all available rows with a function, as `toTable` does on Spark Connect and before Spark 4.0."""

    def start(function):
        writer = stream.writer(frame).outputMode(mode).trigger(availableNow=True)
        return writer.foreachBatch(function).start()

    options = {"checkpointLocation": str(stream.checkpoint)}
    table, action = ("lake", *name.split(".")), WriteAction.APPEND_OR_CREATE
    call = WriteCall(rows=frame, table=table, action=action, options=options)
    query = start_stream(runner_of(lake.session).engine, call, mode, start)
    assert query.awaitTermination(120)
    return query


def test_a_function_writes_micro_batches_as_sparks_own_sink_does(lake, stream):
    """Columns by name, narrower types widened, each micro-batch once. Spark's own sink can continue the query."""
    name = lake.create("note string, id bigint, k string", "PARTITIONED BY (k)")
    for start in (0, 2):
        stream.add(id=[start, start + 1], k=["a", "b"])
    frame = stream.frame().selectExpr("k", "CAST(id AS int) AS id")
    query = run_by_function(lake, stream, name, frame)
    lake.session.sql(f"INSERT INTO {name} VALUES ('z', 9, 'z')")
    before = parquet_files(lake, name)
    stream.forget(1)
    run_by_function(lake, stream, name, frame)
    assert lake.rows(name) == [("z", 9, "z"), *((None, number, "ab"[number % 2]) for number in range(4))]
    assert epochs(lake, name) == [None, "1", "0"]
    assert parquet_files(lake, name) == before
    summary = lake.table(name).snapshots()[1].summary
    assert (summary.operation, summary.additional_properties[QUERY_ID]) == (Operation.APPEND, query.id)
    with pytest.raises(AnalysisError, match="'id' is STRING"):
        run_by_function(lake, stream, name, stream.frame().selectExpr("k AS id"))
    stream.add(id=[4], k=["b"])
    stream.run(f"lake.{name}", frame)
    assert epochs(lake, name) == ["2", None, "1", "0"]


def test_a_branch_knows_its_own_micro_batches(lake, stream):
    """By the table's name, or by an option: main does not move, and what runs again is recognized there."""
    name = lake.create("id bigint, k string")
    lake.session.sql(f"INSERT INTO {name} VALUES (9, 'z')")
    table = lake.table(name)
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "audit").commit()
    stream.add(id=[1], k=["a"])
    stream.run(f"lake.{name}.branch_audit")
    stream.add(id=[2], k=["b"])
    stream.run(f"lake.{name}", branch="audit")
    stream.forget(1)
    stream.run(f"lake.{name}", branch="audit")
    assert epochs(lake, name, "audit") == ["1", "0", None]
    assert lake.rows(name) == [(9, "z")]
    assert lake.rows(f"{name}.branch_audit") == [(1, "a"), (2, "b"), (9, "z")]


@pytest.mark.parametrize(
    ("clauses", "options", "most"),
    [
        ("PARTITIONED BY (k)", {}, 3),
        ("PARTITIONED BY (k)", {"fanout-enabled": "false"}, 3),
        ("PARTITIONED BY (truncate(1, k))", {}, 3),
        ("PARTITIONED BY (bucket(2, id))", {}, 2),
        ("PARTITIONED BY (k)", {"distribution-mode": "none"}, 3),
        ("", {}, 1),
    ],
)
def test_a_micro_batch_leaves_as_many_files_as_it_has_partitions(lake, spark, tmp_path, clauses, options, most):
    """Its source has two partitions, each with rows of each partition of the table."""
    name = lake.create("id bigint, k string", clauses)
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", "30").option("numPartitions", "2").load()
    rows = rows.selectExpr("value AS id", "substr('abc', 1 + CAST(value DIV 2 % 3 AS int), 1) AS k")
    stream = Stream(spark, tmp_path)
    query = stream.writer(rows, **options).trigger(once=True).toTable(f"lake.{name}")
    assert query.awaitTermination(120)
    files = lake.data_files(name)
    partitions = {str(file.partition) for file in files}
    assert len(partitions) <= len(files) <= most
    assert sum(file.record_count for file in files) == 30


def test_a_table_that_is_missing_is_made(lake, stream):
    """With the columns of the query and the partitioning that the writer names; Iceberg has no clustering."""
    name = lake.new_name()
    stream.add(id=[1, 2], k=["a", "b"])
    writer = stream.writer().partitionBy("k").trigger(availableNow=True)
    assert writer.toTable(f"lake.{name}").awaitTermination(120)
    assert lake.rows(name) == [(1, "a"), (2, "b")]
    assert [field.name for field in lake.table(name).spec().fields] == ["k"]
    with pytest.raises(Exception, match="cluster"):
        Stream(stream.spark, stream.folder).writer(stream.frame()).clusterBy("k").toTable(f"lake.{lake.new_name()}")


def test_programs_for_icebergs_jar_name_the_format(lake, stream, tmp_path):
    """`format("iceberg")` with the table's name as the path, or as an option."""
    name = lake.create("id bigint, k string", "PARTITIONED BY (k)")
    starts = (
        lambda writer: writer.format("iceberg").start(f"lake.{name}"),
        lambda writer: writer.format("iceberg").option("path", f"lake.{name}").start(),
        lambda writer: writer.start(path=f"lake.{name}", format="iceberg", outputMode="append", queryName="named"),
        lambda writer: writer.format("iceberg").toTable(f"lake.{name}"),
    )
    for number, start in enumerate(starts):
        stream.add(id=[number], k=["a"])
        assert start(stream.writer().trigger(availableNow=True)).awaitTermination(120)
    assert lake.rows(name) == [(number, "a") for number in range(4)]
    assert epochs(lake, name) == ["3", "2", "1", "0"]
    with pytest.raises(NotFoundError, match=r"no table 'lake\.db\.missing'"):
        stream.writer().format("iceberg").start("lake.db.missing")
    files = stream.writer().format("parquet").trigger(availableNow=True)
    files.option("checkpointLocation", str(tmp_path / "c")).start(str(tmp_path / "out")).awaitTermination(120)
    assert list((tmp_path / "out").glob("*.parquet"))


def test_micro_batches_without_rows_make_no_snapshot_but_the_first(lake, stream):
    """Which says that the query has written to this table; the checkpoint is not taken for another stream's then."""
    name = lake.create("id bigint, k string")
    for number in range(3):
        stream.add(id=[number], k=["a"])
    stream.run(f"lake.{name}", stream.frame().where("id > 1"))
    assert epochs(lake, name) == ["2", "0"]
    assert lake.rows(name) == [(2, "a")]


def test_columns_are_found_by_name_and_widened(lake, stream):
    """In any order; one that is left out gets the table's default."""
    name = lake.create("k string, d double, id bigint, note string DEFAULT 'none'", **{"format-version": "3"})
    stream.add(id=[1], k=["a"])
    narrow = stream.frame().selectExpr("CAST(id AS int) AS id", "CAST(0.5 AS float) AS d", "k AS K")
    stream.run(f"lake.{name}", narrow)
    assert lake.rows(name) == [("a", 0.5, 1, "none")]


def test_a_column_that_comes_while_the_stream_goes_on(lake, stream):
    """The table is read anew for each micro-batch; what it has no more is an error, and nothing is written."""
    name = lake.create("id bigint, k string")
    stream.add(id=[1], k=["a"])
    query = stream.writer().toTable(f"lake.{name}")
    try:
        query.processAllAvailable()
        lake.session.sql(f"ALTER TABLE {name} ADD COLUMN v int")
        stream.add(id=[2], k=["b"])
        query.processAllAvailable()
        assert lake.rows(name) == [(1, "a", None), (2, "b", None)]
        lake.session.sql(f"ALTER TABLE {name} DROP COLUMN k")
        before = lake.state(name)
        stream.add(id=[3], k=["c"])
        with pytest.raises((DmlError, StreamingQueryException), match="has a column 'k', which the table"):
            query.processAllAvailable()
        assert lake.state(name) == before
    finally:
        query.stop()


def failure(stream, lake, name, *, frame=None, error=AnalysisError, **options):
    """The message of a stream that fails and writes nothing."""
    before = lake.state(name)
    with pytest.raises(error) as caught:
        stream.run(f"lake.{name}", frame, **options)
    assert lake.state(name) == before
    return str(caught.value)


def test_rows_that_do_not_fit_are_refused(lake, stream):
    """By what is wrong with them; and nothing is written."""
    name = lake.create("id bigint NOT NULL, k string")
    stream.add(id=[1, None], k=["a", "b"])
    frame = stream.frame()
    assert "has no column 'id'" in failure(stream, lake, name, frame=frame.select("k"))
    unknown = failure(stream, lake, name, frame=frame.withColumn("v", lit(1)))
    assert "has a column 'v', which the table" in unknown
    assert unknown.endswith("ADD COLUMNS. There are 'id', 'k'")
    mistyped = frame.selectExpr("CAST(id AS string) AS id", "k")
    assert "col('id').cast('bigint')" in failure(stream, lake, name, frame=mistyped)
    assert "The column 'id' requires a value" in failure(stream, lake, name, error=DataError)
    lake.session.sql(f"ALTER TABLE {name} ALTER COLUMN id DROP NOT NULL")
    stream.run(f"lake.{name}")
    assert lake.rows(name) == [(1, "a"), (None, "b")]


def test_what_a_stream_cannot_have_is_refused(lake, stream):
    """Update mode, options that are not known or have no meaning, branches that are not there."""
    name = lake.create("id bigint, k string")
    stream.add(id=[1], k=["a"])
    for mode in ("update", "UPDATE"):
        refused = failure(stream, lake, name, mode=mode, error=NotSupportedError)
        assert f"A stream into 'lake.{name}' does not support update mode" in refused
        assert "lake.stream_merge to merge updates by a key" in refused
    assert "is not known" in failure(stream, lake, name, error=NotSupportedError, **{"made-up": "1"})
    assert "for streams" in failure(stream, lake, name, error=NotSupportedError, **{"overwrite-mode": "dynamic"})
    assert "does not exist" in failure(stream, lake, name, error=NotFoundError, branch="nowhere")


def test_continuous_mode_is_refused(lake, spark, stream):
    """A table takes micro-batches."""
    name = lake.create("timestamp timestamp, value bigint")
    writer = stream.writer(spark.readStream.format("rate").load()).trigger(continuous="1 second")
    with pytest.raises(NotSupportedError, match="not in continuous mode"):
        writer.toTable(f"lake.{name}")


def test_a_checkpoint_of_another_query_is_refused(lake, stream):
    """Rows of its earlier micro-batches are in another table; who wants to go on all the same says so."""
    first, second = lake.create("id bigint, k string"), lake.create("id bigint, k string")
    stream.add(id=[1], k=["a"])
    stream.run(f"lake.{first}")
    stream.add(id=[2], k=["b"])
    assert "belongs to a stream into another table" in failure(stream, lake, second)
    stream.run(f"lake.{second}", **{"adopt-checkpoint": "true"})
    assert lake.rows(second) == [(2, "b")]


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ("DROP TABLE {0}", NotFoundError, "does not exist any more"),
        (
            "DROP TABLE {0}; CREATE TABLE {0} (id bigint, k string)",
            CommitConflictError,
            "is not the one that the stream was started on",
        ),
        ("CREATE OR REPLACE TABLE {0} AS SELECT 7L AS id, 'new' AS k", AnalysisError, "was replaced or rolled back"),
    ],
)
def test_a_table_that_changes_its_identity_under_a_stream(lake, stream, change, error, message):
    """Dropped, created anew, replaced: rows of earlier micro-batches are gone, so the stream ends."""
    name = lake.create("id bigint, k string")
    stream.add(id=[1], k=["a"])
    query = stream.writer().toTable(f"lake.{name}")
    try:
        query.processAllAvailable()
        for statement in change.format(name).split(";"):
            lake.session.sql(statement)
        stream.add(id=[2], k=["b"])
        with pytest.raises((error, StreamingQueryException), match=message):
            query.processAllAvailable()
    finally:
        query.stop()


def test_the_checkpoint_names_the_query(lake, stream):
    """The id in the summary is that of the checkpoint, so that either side can be asked for it."""
    name = lake.create("id bigint, k string")
    stream.add(id=[1], k=["a"])
    stream.run(f"lake.{name}")
    written = json.loads(Path(stream.checkpoint, "metadata").read_text())["id"]
    assert lake.table(name).current_snapshot().summary.additional_properties[QUERY_ID] == written
