"""What a small statement costs whatever it changes, counted: commands to the JVM, Spark jobs, metadata files read."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from py4j.clientserver import ClientServerConnection
from pyiceberg.io.pyarrow import PyArrowFile
from pyspark.sql import SparkSession

from tests.lake import COMMANDS, Lake

pytestmark = pytest.mark.spark

WARMING = 2
SOURCE = "(SELECT id + {round} AS id, 1 AS k FROM range(10))"
STATEMENTS = {
    "DELETE": "DELETE FROM {table} WHERE id % 100 = {round}",
    "UPDATE": "UPDATE {table} SET k = 1 WHERE id % 100 = 5{round}",
    "MERGE": f"MERGE INTO {{table}} t USING {SOURCE} s ON t.id = s.id WHEN MATCHED THEN UPDATE SET k = s.k "
    "WHEN NOT MATCHED THEN INSERT *",
    "INSERT": "INSERT INTO {table} VALUES ({round}, 7)",
    "CREATE TABLE": "CREATE TABLE {table}_{round} (id BIGINT)",
}
MOST_COMMANDS = {"DELETE": 30, "UPDATE": 30, "MERGE": 200, "INSERT": 30, "CREATE TABLE": 20}
MOST_JOBS = {"DELETE": 0, "UPDATE": 0, "MERGE": 2, "INSERT": 0, "CREATE TABLE": 0}
METADATA_READ = {"DELETE": 1, "UPDATE": 1, "MERGE": 1, "INSERT": 1, "CREATE TABLE": 1}


@contextmanager
def counted(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Counts while the block runs; garbage, which py4j collects in a thread of its own, is left out."""
    counts: Counter[str] = Counter()
    send, open_file = ClientServerConnection.send_command, PyArrowFile.open
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()

    def sent(self, command):
        counts["commands"] += not command.startswith("m")
        return send(self, command)

    def opened(self, *args, **kwargs):
        counts["metadata"] += self.location.endswith(".metadata.json")
        return open_file(self, *args, **kwargs)

    before = scheduler.nextJobId()
    with monkeypatch.context() as patched:
        patched.setattr(ClientServerConnection, "send_command", sent)
        patched.setattr(PyArrowFile, "open", opened)
        yield counts
    counts["jobs"] = scheduler.nextJobId() - before


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_small_statement_makes_few_commands_and_jobs(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """A table has one metadata file to read in a statement, and nobody needs a Spark job to be told of no rows."""
    modes = {f"write.{command}.mode": "merge-on-read" for command in COMMANDS}
    name = lake.create("id BIGINT, k INT", **modes, **{"format-version": "3"})
    lake.session.sql(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, 0 FROM range(1000)")
    for number in range(WARMING):
        lake.session.sql(STATEMENTS[statement].format(table=f"lake.{name}", round=number))
    with counted(spark, monkeypatch) as counts:
        lake.session.sql(STATEMENTS[statement].format(table=f"lake.{name}", round=WARMING))
    assert counts["commands"] <= MOST_COMMANDS[statement]
    assert counts["jobs"] <= MOST_JOBS[statement]
    assert counts["metadata"] == METADATA_READ[statement]


def test_a_small_query_by_spark_table_is_planned_in_few_commands(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's maps and lists are not gone through until Java raises, which costs eighty commands each time."""
    name = lake.create("id BIGINT, k INT")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, 2)")
    lake.session.enable()
    try:
        for _ in range(WARMING):
            with counted(spark, monkeypatch) as counts:
                planned = spark.table(f"lake.{name}").where("id = 1").select("k")
                planned._jdf.queryExecution().executedPlan()
    finally:
        lake.session.disable()
    assert counts["commands"] <= 120
    assert counts["jobs"] == 0
    assert planned.collect() == [(2,)]
