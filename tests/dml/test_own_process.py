"""The life cycle of sessions in a process of its own: they start, run statements and are stopped.

Starting Spark in a process takes many seconds, so one program runs all parts, and each test checks a part of its
output. The program runs as `venv/bin/python program.py`: the venv is not in PATH, and `python3` is another one.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.dml.spark.other_python import with_python_first

pytestmark = pytest.mark.spark

PROGRAM = """
import json, os, sys, threading
import dml, dml.session, dml.shell
from pyspark import SparkContext
from pyspark.sql import SparkSession

def report(part, *values):
    print(json.dumps([part, *values]), flush=True)

lake = dml.connect(sys.argv[1], progress=False)
for text in (
    "CREATE NAMESPACE db",
    "CREATE TABLE db.t (id INT, name STRING) PARTITIONED BY (id)",
    "ALTER TABLE db.t ADD COLUMN extra DOUBLE",
    "SHOW TABLES IN db",
    "DESCRIBE db.t",
    "DELETE FROM db.t WHERE id = 1",
    "TRUNCATE TABLE db.t",
):
    dml.shell.run_sql(lake, text, output="csv", limit=10)
dml.shell.run_sql(lake, "ALTER TABLE db.t DROP COLUMN extra", output="table", limit=10, confirms=True)
dml.shell.run_sql(lake, "ALTER TABLE db.t ADD COLUMN extra DOUBLE", output="table", limit=10)
lake.health("db.t")
report("before", lake.verify("db.t").ok, SparkContext._gateway is None)
known = dict(dml.session.runner_of(lake).engine.lazy_session.known)
lake.sql("INSERT INTO db.t SELECT 1, 'a', 0.5D")
sessions = []
threads = [threading.Thread(target=lambda: sessions.append(lake.spark)) for _ in range(4)]
[one.start() for one in threads], [one.join() for one in threads]
report("one session", len(sessions), all(one is lake.spark for one in sessions))
report("settings", {key: lake.spark.conf.get(key) for key in known} == known)
report("names", *[row.name for row in lake.spark.sql("SELECT name FROM lake.db.t").collect()])
report("deleted", lake.sql("DELETE FROM db.t WHERE id = 1").rows_deleted)

def many(batches):
    for batch in batches:
        for _ in range(2000):
            yield batch

report("cut short", len(lake.spark.range(0, 20000, 1, 2).mapInArrow(many, "id BIGINT").limit(1).collect()))

lake.sql("CREATE TABLE db.u (id INT)")
stopped = lake.spark
stopped.stop()
for use in (
    lambda: lake.sql("SELECT * FROM db.u"),
    lambda: dml.sql("DELETE FROM db.u"),
    lambda: lake.table("db.u"),
    lambda: lake.update("db.u", {"id": 1}),
    lambda: lake.merge_into("db.u", "db.u t", "1 = 1").whenMatched().delete().merge(),
    lambda: lake.stream_merge(None, "db.u", ["id"]),
    lambda: stopped.sql("DELETE FROM lake.db.u"),
):
    try:
        use()
    except dml.SetupError as error:
        report("stopped", str(error))
lake.close()
again = dml.connect(sys.argv[1], settings={"spark.master": "local[1]"}, progress=False)
report("again", again.sql("INSERT INTO db.u VALUES (1)").rows_inserted, again.table("db.u").count())
again.spark.stop()
again.close()

del os.environ["PYSPARK_PYTHON"]  # which a session that RowDelta starts sets
spark = SparkSession.builder.master("local[2]").getOrCreate()
report("python before", spark.sparkContext.pythonExec)
own = dml.connect(sys.argv[1], spark=spark, progress=False)
own.sql("INSERT INTO db.u VALUES (2), (3)")
own.sql("DELETE FROM db.u WHERE id = 2")
report("rows", sorted(row.id for row in own.table("db.u").collect()))
report("python after", spark.range(1).mapInArrow(
    lambda batches: (batch.from_pydict({"python": [sys.executable]}) for batch in batches), "python STRING"
).first().python)
spark.stop()
"""


class ProgramOutput:
    """The output of the program.

    Args:
        stdout: Standard output. The lines of `report` are JSON arrays that begin with the name of a part.
        stderr: Standard error.
    """

    def __init__(self, stdout: str, stderr: str) -> None:
        self.stdout, self.stderr = stdout, stderr
        self._lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("[")]

    def of(self, part: str) -> list[Any]:
        """Return the values of all lines of a part."""
        found = [value for name, *values in self._lines if name == part for value in values]
        assert found, f"{self.stdout}\n{self.stderr[-3000:]}"
        return found


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> ProgramOutput:
    """Run the program."""
    folder: Path = tmp_path_factory.mktemp("process")
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(folder / "warehouse")],
        cwd=folder,
        env=with_python_first(folder),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert outcome.returncode == 0, outcome.stderr[-3000:]
    return ProgramOutput(outcome.stdout, outcome.stderr)


def test_spark_starts_on_first_use_with_the_earlier_settings(output: ProgramOutput) -> None:
    """Table statements, a DELETE, `verify` and `health` start no JVM. The session that starts later has RowDelta."""
    assert output.of("before") == [True, True]
    assert "db,t,False" in output.stdout
    assert output.stdout.count("OK") == 1
    assert output.of("one session") == [4, True]
    assert output.of("settings") == [True]
    assert output.of("names") == ["a"]
    assert output.of("deleted") == [1]


def test_a_limit_leaves_no_traceback_on_the_terminal(output: ProgramOutput) -> None:
    assert output.of("cut short") == [1]
    assert "Traceback" not in output.stderr
    assert "BrokenPipe" not in output.stderr


def test_calls_after_spark_was_stopped_raise_an_error_with_a_hint(output: ProgramOutput) -> None:
    """Another session can be opened afterwards."""
    message = "The Spark session has been stopped. Open a new session with dml.connect(...)"
    assert output.of("stopped") == [message] * 7
    assert output.of("again") == [1, 1]


def test_workers_of_a_session_of_the_program_have_the_package(output: ProgramOutput) -> None:
    """Without RowDelta's setting they would run the `python3` in PATH, which lacks it."""
    assert output.of("python before") == ["python3"]
    assert output.of("rows") == [[1, 3]]
    assert output.of("python after") == [sys.executable]
