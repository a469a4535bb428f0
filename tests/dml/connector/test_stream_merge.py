"""`stream_merge`: micro-batches merged, each once; which rows of one count; and what is refused before it starts."""

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import array, col, count, create_map, lit, struct

from dml.errors import (
    AnalysisError,
    CommitConflictError,
    DataError,
    ErrorKind,
    NotFoundError,
    NotSupportedError,
    SqlError,
)
from tests.dml.connector.streams import Stream
from tests.dml.connector.test_stream_write import epochs

pytestmark = pytest.mark.spark

ALIKE = {"write.delete.mode", "write.update.mode", "write.merge.mode"}


@pytest.fixture
def stream(spark, tmp_path):
    return Stream(spark, tmp_path, "id bigint, k string, at bigint, gone boolean")


def merge(lake, stream, name, frame=None, **how):
    how = {"on": ["id"], "latest_by": "at"} | how
    return lake.session.stream_merge(stream.frame() if frame is None else frame, name, **how)


def upsert(lake, stream, name, **how):
    """A stream of changes, the newest of each id; those that are gone are deleted."""
    return (
        merge(lake, stream, name, **how)
        .whenMatched("source.gone").delete()
        .whenMatched().update({"k": "source.k", "at": "source.at"})
        .whenNotMatched("NOT source.gone").insert({"id": "source.id", "k": "source.k", "at": "source.at"})
    )  # fmt: skip


def run(stream, merging, **how):
    query = merging.trigger(availableNow=True).start(str(stream.checkpoint), **how)
    assert query.awaitTermination(120)


AUTO = {"write.auto.enabled": "true", "write.auto.max-deleted-ratio": "0.5"}


def table(lake, mode="merge-on-read", version="2"):
    if mode == "auto":
        return lake.create("id bigint, k string, at bigint", **{"format-version": version}, **AUTO)
    return lake.create("id bigint, k string, at bigint", **{"format-version": version}, **dict.fromkeys(ALIKE, mode))


@pytest.mark.parametrize(("mode", "version"), [("copy-on-write", "2"), ("merge-on-read", "3"), ("auto", "3")])
def test_micro_batches_are_merged_each_once(lake, stream, mode, version):
    """The newest change of each id; what runs again after a kill is left out, also after others have written."""
    name = table(lake, mode, version)
    stream.add(id=[1, 2, 1], k=["a", "b", "A"], at=[1, 1, 2], gone=[False] * 3)
    stream.add(id=[1, 3, 2], k=["x", "c", "B"], at=[4, 4, 5], gone=[True, False, False])
    run(stream, upsert(lake, stream, name))
    assert lake.rows(name) == [(2, "B", 5), (3, "c", 4)]
    assert epochs(lake, name) == ["1", "0"]
    lake.session.sql(f"UPDATE {name} SET k = 'mine' WHERE id = 3")
    stream.forget(1)
    run(stream, upsert(lake, stream, name))
    assert lake.rows(name) == [(2, "B", 5), (3, "mine", 4)]
    stream.add(id=[3], k=["later"], at=[9], gone=[False])
    run(stream, upsert(lake, stream, name))
    assert epochs(lake, name) == ["2", None, "1", "0"]
    assert lake.rows(name) == [(2, "B", 5), (3, "later", 9)]


def test_rows_without_a_key_are_about_no_other_row(lake, stream):
    """Each of them is inserted."""
    name = table(lake)
    stream.add(id=[None, None, 1, 1], k=["a", "b", "c", "d"], at=[1, 2, 3, None], gone=[False] * 4)
    run(stream, upsert(lake, stream, name))
    assert lake.rows(name) == [(1, "c", 3), (None, "a", 1), (None, "b", 2)]


def test_a_condition_with_keys_beside_it_and_a_branch(lake, stream):
    """As with `merge_into`; the table may have an alias, and the micro-batches are looked for on the branch."""
    name = table(lake)
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'old', 0)")
    made = lake.table(name)
    made.manage_snapshots().create_branch(made.current_snapshot().snapshot_id, "audit").commit()
    stream.add(id=[1, 1], k=["a", "b"], at=[1, 2], gone=[False] * 2)
    on = (col("t.id") == col("s.id")) & (col("s.at") > col("t.at"))
    for _ in range(2):
        merging = merge(lake, stream, f"{name}.branch_audit t", on=on, keys="id", source_alias="s")
        run(stream, merging.whenMatched().update({"k": "s.k"}))
        stream.forget(0)
    assert lake.rows(f"{name}.branch_audit") == [(1, "b", 0)]
    assert lake.rows(name) == [(1, "old", 0)]
    assert epochs(lake, name, "audit") == ["0", None]


def test_counts_of_an_aggregation_are_merged_in_update_mode(lake, stream):
    """What Spark says has changed."""
    name = lake.create("k string, n bigint")
    stream.add(id=[1, 2], k=["a", "b"], at=[1, 1], gone=[False] * 2)
    stream.add(id=[3], k=["b"], at=[1], gone=[False])
    counts = stream.frame().groupBy("k").agg(count(lit(1)).alias("n"))
    merging = merge(lake, stream, name, counts, on=["k"], latest_by=None).outputMode("update").queryName("counts")
    run(stream, merging.whenMatched().updateAll().whenNotMatched().insertAll())
    assert lake.rows(name) == [("a", 1), ("b", 2)]


def test_two_rows_for_one_are_an_error_without_an_order(lake, stream):
    """As in any MERGE; the error is raised where the query is waited for, and nothing is written."""
    name = table(lake)
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 'old', 0)")
    before = lake.state(name)
    stream.add(id=[1, 1], k=["a", "b"], at=[1, 2], gone=[False] * 2)
    with pytest.raises(DataError) as caught:
        run(stream, upsert(lake, stream, name, latest_by=None))
    assert caught.value.kind is ErrorKind.CARDINALITY_VIOLATION
    assert lake.state(name) == before


def test_a_null_ends_the_stream_and_so_does_a_source_whose_columns_changed(lake, stream):
    """A required column without a value; then the same checkpoint with a source that has other types and columns."""
    name = lake.create("id bigint, k string not null")
    stream.add(id=[1, 2], k=["a", "b"], at=[1, 1], gone=[False] * 2)

    def merging(frame):
        return merge(lake, stream, name, frame, latest_by=None).whenMatched().updateAll().whenNotMatched().insertAll()

    run(stream, merging(stream.frame().select("id", "k")))
    before = lake.state(name)
    stream.add(id=[2, 3], k=["c", None], at=[1, 1], gone=[False] * 2)
    with pytest.raises(DataError, match="'k' requires a value"):
        run(stream, merging(stream.frame().select("id", "k")))
    for columns in (["id", "array(k) AS k"], ["id AS key", "k"]):
        with pytest.raises(AnalysisError):
            run(stream, merging(stream.frame().selectExpr(*columns)))
    assert lake.state(name) == before
    assert epochs(lake, name) == ["0"]


def test_the_table_of_a_running_merge_is_dropped(lake, stream):
    """The micro-batch fails, says why, and makes no table."""
    name = table(lake)
    stream.add(id=[1], k=["a"], at=[1], gone=[False])
    query = upsert(lake, stream, name).start(str(stream.checkpoint))
    try:
        query.processAllAvailable()
        lake.session.sql(f"DROP TABLE {name}")
        stream.add(id=[2], k=["b"], at=[1], gone=[False])
        with pytest.raises((NotFoundError, StreamingQueryException), match="no table"):
            query.processAllAvailable()
    finally:
        query.stop()
    with pytest.raises(NotFoundError):
        lake.session.sql(f"SELECT * FROM {name}")


@pytest.mark.nightly
def test_values_of_another_type_end_the_stream(lake, stream):
    """With the error of any MERGE, and nothing is written."""
    name = table(lake)
    before = lake.state(name)
    stream.add(id=[1], k=["a"], at=[1], gone=[False])
    merging = merge(lake, stream, name, stream.frame().selectExpr("id", "k", "array(at) AS at"))
    with pytest.raises(AnalysisError, match="at") as caught:
        run(stream, merging.whenMatched().updateAll().whenNotMatched().insertAll())
    assert caught.value.kind in {ErrorKind.TYPE_MISMATCH, ErrorKind.INVALID_ASSIGNMENT}
    assert lake.state(name) == before


def test_columns_that_come_with_the_stream(lake, stream):
    """With schema evolution the table gets them; without it a star is refused before the query starts."""
    name = lake.create("id bigint, k string")
    stream.add(id=[1], k=["a"], at=[7], gone=[False])
    frame = stream.frame().drop("gone")
    evolving = merge(lake, stream, name, frame, latest_by=None).withSchemaEvolution()
    run(stream, evolving.whenMatched().updateAll().whenNotMatched().insertAll())
    assert lake.rows(name) == [(1, "a", 7)]


@pytest.mark.parametrize(
    ("begin", "error", "message"),
    [
        (lambda lake, s, t: merge(lake, s, t, s.spark.range(1)), AnalysisError, "not a batch"),
        (lambda lake, s, t: merge(lake, s, "db.nothing"), NotFoundError, "nothing"),
        (lambda lake, s, t: merge(lake, s, t, on=["idd"]), AnalysisError, "'idd', which the source does not have"),
        (lambda lake, s, t: merge(lake, s, t, latest_by="when"), AnalysisError, "'when', which the source does"),
        (lambda lake, s, t: merge(lake, s, t, on="t.id = source.id"), AnalysisError, "latest_by needs the columns"),
        (lambda lake, s, t: merge(lake, s, t, on=[]), AnalysisError, "names no column"),
        (lambda lake, s, t: merge(lake, s, t, latest_by=7), AnalysisError, "column names, got int"),
        (lambda lake, s, t: merge(lake, s, t, latest_by=col("at")), AnalysisError, "column names, got Column"),
        (
            lambda lake, s, t: merge(lake, s, t, s.frame().withColumn("m", array(create_map("k", "k"))), latest_by="M"),
            AnalysisError,
            "'m' of the source, which latest_by names, is ARRAY<MAP<STRING,STRING>>, which has no order",
        ),
        (
            lambda lake, s, t: merge(lake, s, t, s.frame().withColumn("m", struct(create_map("k", "id"))), keys="m"),
            AnalysisError,
            "which keys names",
        ),
        (lambda lake, s, t: upsert(lake, s, t).start(""), AnalysisError, "needs a checkpoint"),
        (lambda lake, s, t: merge(lake, s, t).start("c"), SqlError, "at least one WHEN"),
        (
            lambda lake, s, t: merge(lake, s, t).whenMatched().update({"nope": "1"}).start("c"),
            AnalysisError,
            "nope",
        ),
        (
            lambda lake, s, t: merge(lake, s, t, s.frame().drop("k")).whenNotMatched().insertAll().start("c"),
            AnalysisError,
            "k",
        ),
        (lambda lake, s, t: upsert(lake, s, f"{t}.branch_nowhere").start("c"), NotFoundError, "nowhere"),
        (lambda lake, s, t: upsert(lake, s, f"{t}.files t").start("c"), NotSupportedError, "metadata table 'files'"),
        (lambda lake, s, t: upsert(lake, s, f"{t}.tag_v1 t").start("c"), NotSupportedError, "tag"),
        (lambda lake, s, t: upsert(lake, s, f"{t}.files.branch_b t").start("c"), NotSupportedError, "metadata table"),
        (lambda lake, s, t: upsert(lake, s, t, on="id", keys="id").start("c"), AnalysisError, "'id' is ambiguous"),
        (
            lambda lake, s, t: (
                merge(lake, s, f"{t} t", on="t.nope = source.id", keys="id").whenMatched().delete().start("c")
            ),
            AnalysisError,
            "no column 't.nope'",
        ),
        (
            lambda lake, s, t: merge(lake, s, t).whenMatched("source.nope = 1").delete().start("c"),
            AnalysisError,
            "no column 'source.nope'",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_before_the_query_starts(lake, stream, begin, error, message):
    """No checkpoint is made, and nothing is written."""
    name = table(lake)
    stream.add(id=[1], k=["a"], at=[1], gone=[False])
    before = lake.state(name)
    with pytest.raises((error), match=message):
        begin(lake, stream, name)
    assert lake.state(name) == before
    assert not stream.checkpoint.exists()


def test_a_table_that_is_not_the_one_of_the_checkpoint(lake, stream):
    """Another table, one that was replaced, and one that was created anew under the query."""
    name, other = table(lake), table(lake)
    stream.add(id=[1], k=["a"], at=[1], gone=[False])
    run(stream, upsert(lake, stream, name))
    stream.add(id=[2], k=["b"], at=[1], gone=[False])
    with pytest.raises(AnalysisError, match="belongs to a stream into another table"):
        run(stream, upsert(lake, stream, other))
    run(stream, upsert(lake, stream, other), adopt_checkpoint=True)
    assert lake.rows(other) == [(2, "b", 1)]
    query = upsert(lake, stream, other).start(str(stream.checkpoint))
    try:
        query.processAllAvailable()
        lake.session.sql(f"DROP TABLE {other}")
        lake.session.sql(f"CREATE TABLE {other} (id bigint, k string, at bigint)")
        stream.add(id=[3], k=["c"], at=[1], gone=[False])
        with pytest.raises((CommitConflictError, StreamingQueryException), match="is not the one that the stream"):
            query.processAllAvailable()
    finally:
        query.stop()
    lake.session.sql(f"DROP TABLE {other}")
    with pytest.raises(NotFoundError, match=r"no table"):
        upsert(lake, stream, other)
