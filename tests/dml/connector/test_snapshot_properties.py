"""Keys that users put into the summaries of snapshots: from the session, from options, from a block of code."""

import re
import threading

import pytest
from pyspark.sql.functions import lit

import dml
from dml.commit import is_reserved
from dml.engine.target import properties_of_block
from dml.errors import AnalysisError
from tests.dml.connector.streams import Stream

SETTING = "spark.sql.iceberg.snapshot-property."


@pytest.fixture
def settings(spark):
    """Sets settings of the session for one test."""
    names = []

    def set_all(**values):
        for key, value in values.items():
            names.append(SETTING + key)
            spark.conf.set(SETTING + key, value)

    yield set_all
    for name in names:
        spark.conf.unset(name)


def summary_of(lake, name):
    return lake.table(name).current_snapshot().summary.additional_properties


# ---- blocks


def test_blocks_nest_and_end():
    """The inner one counts where both have a key, and what was before is there after it, also after an error."""
    with dml.commit_properties({"a": "1", "b": "1"}):
        with dml.commit_properties({"snapshot-property.b": "2", "c": "2"}):
            assert properties_of_block() == {"a": "1", "b": "2", "c": "2"}
        assert properties_of_block() == {"a": "1", "b": "1"}
        with pytest.raises(KeyError), dml.commit_properties({"a": "3"}):
            raise KeyError
        assert properties_of_block() == {"a": "1", "b": "1"}
    assert properties_of_block() == {}


def test_a_block_is_its_threads_alone():
    found, inside, done = [], threading.Event(), threading.Event()

    def other():
        with dml.commit_properties({"thread": "other"}):
            inside.set()
            done.wait(10)
            found.append(dict(properties_of_block()))

    thread = threading.Thread(target=other)
    with dml.commit_properties({"thread": "main"}):
        thread.start()
        assert inside.wait(10)
        assert properties_of_block() == {"thread": "main"}
        done.set()
        thread.join(10)
    assert found == [{"thread": "other"}]


def test_what_the_caller_changes_later_does_not_count():
    mine = {"a": "1"}
    with dml.commit_properties(mine):
        mine["a"] = "2"
        assert properties_of_block() == {"a": "1"}


@pytest.mark.parametrize(
    ("properties", "says"),
    [
        (None, "takes a dictionary, not NoneType"),
        ("a=1", "takes a dictionary, not str"),
        ({"a": 1}, "'a' with the value 1: keys and values"),
        ({1: "a"}, "1 with the value 'a'"),
        ({"": "a"}, "names no property"),
        ({"operation": "append"}, "the key 'operation' is reserved"),
        ({"Added-Records": "1"}, "the key 'Added-Records' is reserved"),
        ({"snapshot-property.wap.id": "1"}, "the key 'wap.id' is reserved"),
    ],
)
def test_a_block_that_cannot_be_does_not_begin(properties, says):
    with pytest.raises(AnalysisError, match=says), dml.commit_properties(properties):
        raise AssertionError


@pytest.mark.parametrize(
    ("key", "reserved"),
    [
        ("total-files-size", True),
        ("changed-partition-count", True),
        ("partitions.day=2026-01-01", True),
        ("published-wap-id", True),
        ("spark.sql.streaming.queryId", True),
        ("spark.merge-into.num-target-rows-copied", True),
        ("rowdelta.rows-deleted", True),
        ("job", False),
        ("app-id", False),
        ("partitions", False),
        ("my.total-records", False),
    ],
)
def test_keys_that_mean_something_are_known(key, reserved):
    assert is_reserved(key) is reserved


# ---- statements


@pytest.mark.spark
def test_every_statement_has_the_properties(lake, spark, settings):
    """Also one that whole files answer, and the rows of CREATE TABLE AS SELECT; the nearest of three places counts."""
    name = lake.create("id bigint, k string", "PARTITIONED BY (k)", **{"write.update.mode": "merge-on-read"})
    settings(job="session", a="session")
    session, frame = lake.session, spark.range(4).select("id", lit("x").alias("k"))
    made = f"{name}_made"
    with dml.commit_properties({"run": "7"}):
        statements = [
            lambda: session.sql(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'b')"),
            lambda: session.sql(f"DELETE FROM {name} WHERE k = 'a'"),
            lambda: session.sql(f"UPDATE {name} SET id = 9 WHERE id = 2"),
            lambda: frame.writeTo(f"lake.{name}").append(),
            lambda: session.sql(f"TRUNCATE TABLE {name}"),
        ]
        for statement in statements:
            statement()
            summary = summary_of(lake, name)
            assert (summary["job"], summary["a"], summary["run"]) == ("session", "session", "7")
        session.sql(f"CREATE TABLE {made} AS SELECT 1 AS id")
        assert summary_of(lake, made)["run"] == "7"
        with dml.commit_properties({"job": "block"}):
            session.sql(
                f"INSERT INTO {name} WITH ('snapshot-property.job' = 'option', 'snapshot-property.a' = 'option') "
                "VALUES (1, 'a')"
            )
    summary = summary_of(lake, name)
    assert (summary["job"], summary["a"], summary["run"]) == ("block", "option", "7")
    result = session.sql(f"DELETE FROM {name}")
    assert "run" not in result.summary


@pytest.mark.spark
def test_a_reserved_key_of_the_session_stops_a_statement_before_it_writes(lake, settings):
    name = lake.create("id bigint")
    before = lake.state(name)
    settings(**{"added-records": "5"})
    with pytest.raises(AnalysisError, match=f"setting '{re.escape(SETTING)}added-records'"):
        lake.session.sql(f"INSERT INTO {name} VALUES (1)")
    assert lake.rows(name) == []
    assert lake.state(name) == before


@pytest.mark.spark
def test_micro_batches_have_those_of_their_session_and_of_their_writer(lake, spark, settings, tmp_path):
    """A block around the start of a stream is over when its threads commit: it is none of theirs."""
    name, stream = lake.create("id bigint, k string"), Stream(spark, tmp_path)
    stream.add(id=[1], k=["a"])
    settings(a="session", b="session")
    with dml.commit_properties({"c": "block"}):
        stream.run(f"lake.{name}", **{"snapshot-property.b": "writer"})
    summary = summary_of(lake, name)
    assert (summary["a"], summary["b"], summary.get("c")) == ("session", "writer", None)


@pytest.mark.spark
def test_a_block_in_the_function_of_foreach_batch(lake, spark, tmp_path):
    name, stream = lake.create("id bigint, k string"), Stream(spark, tmp_path)
    stream.add(id=[1], k=["a"])

    def write(batch, number):
        with dml.commit_properties({"batch": str(number)}):
            batch.writeTo(f"lake.{name}").append()

    query = stream.writer().foreachBatch(write).trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    assert summary_of(lake, name)["batch"] == "0"
