"""A session of a stopped Spark raises an error that says so, and a new session can be opened."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys

import dml

settings = {"spark.master": "local[1]", "spark.driver.memory": "1g", "spark.local.dir": sys.argv[1]}
lake = dml.connect(sys.argv[1] + "/lake", settings=settings)
lake.sql("CREATE NAMESPACE db; CREATE TABLE db.t (id INT)")
stopped = lake.spark
stopped.stop()
for use in (
    lambda: lake.sql("SELECT * FROM db.t"),
    lambda: dml.sql("DELETE FROM db.t"),
    lambda: lake.table("db.t"),
    lambda: lake.update("db.t", {"id": 1}),
    lambda: lake.merge_into("db.t", "db.t t", "1 = 1").whenMatched().delete().merge(),
    lambda: lake.stream_merge(None, "db.t", ["id"]),
    lambda: stopped.sql("DELETE FROM lake.db.t"),
):
    try:
        use()
    except dml.SetupError as error:
        print(error)
lake.close()
again = dml.connect(sys.argv[1] + "/lake", settings=settings)
print(again.sql("INSERT INTO db.t VALUES (1)").rows_inserted, again.table("db.t").count())
again.spark.stop()
"""


@pytest.mark.spark
def test_a_session_whose_spark_was_stopped_says_what_to_do(tmp_path: Path) -> None:
    outcome = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False, timeout=300
    )
    message = "The Spark session has been stopped. Open a new session with dml.connect(...)"
    assert outcome.stdout.splitlines() == [message] * 7 + ["1 1"], outcome.stderr[-3000:]
