"""Streams whose driver is killed, by SIGKILL, and started again: every row once."""

import os
import random
import signal
import time

import pytest

import dml
from tests.dml.connector.killed_streams import APPENDED, MERGED, start
from tests.dml.connector.streams import Stream
from tests.dml.connector.test_stream_write import epochs
from tests.faults.processes import running
from tests.lake import Lake

pytestmark = pytest.mark.spark

KILLS = int(os.environ.get("SOAK_KILLS", "4"))
SEED = int(os.environ.get("SOAK_SEED", "0"))
MODULE = "tests.dml.connector.killed_streams"


@pytest.fixture
def killed_lake(spark, tmp_path):
    """A warehouse that another process works on as well."""
    session = dml.connect(str(tmp_path / "warehouse"), spark=spark, progress=False)
    session.sql("CREATE NAMESPACE db")
    for name in (APPENDED, MERGED):
        session.sql(f"CREATE TABLE {name} (id bigint, k string) TBLPROPERTIES ('write.merge.mode' = 'merge-on-read')")
    yield Lake(session)
    session.close()


def inputs(spark, folder):
    """Where the two streams read."""
    for name in ("append", "merge"):
        (folder / name).mkdir()
    return Stream(spark, folder / "append"), Stream(spark, folder / "merge")


def finish(lake, folder):
    """Run both streams to their end."""
    for query in start(lake.session, folder):
        assert query.awaitTermination(300)


def test_a_driver_that_dies_between_its_commit_and_the_checkpoint(spark, killed_lake, tmp_path):
    """The micro-batch runs again, and is not applied again; what follows is."""
    appended, merged = inputs(spark, tmp_path)
    for number in range(3):
        appended.add(id=[2 * number, 2 * number + 1], k=["a", "b"])
        merged.add(id=[100, number], k=[f"seen {number}", "new"])
    (tmp_path / "run").mkdir()
    with running(MODULE, [str(tmp_path / "warehouse"), str(tmp_path), "between"], tmp_path / "run") as process:
        assert process.wait(180) == -signal.SIGKILL
    assert epochs(killed_lake, APPENDED) == epochs(killed_lake, MERGED) == ["1", "0"]
    assert sorted(path.name for path in (appended.checkpoint / "commits").glob("[0-9]")) == ["0"]
    finish(killed_lake, tmp_path)
    assert killed_lake.rows(APPENDED) == [(number, "ab"[number % 2]) for number in range(6)]
    assert killed_lake.rows(MERGED) == [(0, "new"), (1, "new"), (100, "seen 2"), (2, "new")]
    assert epochs(killed_lake, APPENDED) == epochs(killed_lake, MERGED) == ["2", "1", "0"]


@pytest.mark.soak
def test_drivers_that_die_anywhere(spark, killed_lake, tmp_path):
    """At random times, again and again: with four kills about five minutes."""
    appended, merged = inputs(spark, tmp_path)
    batches = 24 * KILLS  # more than a driver has time for, each of both
    for number in range(batches):
        appended.add(id=list(range(10 * number, 10 * number + 10)), k=["a"] * 10)
        merged.add(id=[number % 50, 50 + number], k=[str(number)] * 2)
    chance, killed = random.Random(SEED), 0
    for kill in range(KILLS):
        folder = tmp_path / f"run{kill}"
        folder.mkdir()
        with running(MODULE, [str(tmp_path / "warehouse"), str(tmp_path)], folder) as process:
            end = time.monotonic() + chance.uniform(12, 30)
            while process.poll() is None and time.monotonic() < end:
                time.sleep(0.1)
            if process.poll() is None:
                process.kill()
                assert process.wait(60) == -signal.SIGKILL
                killed += 1
    assert killed > KILLS // 2, "drivers had nothing left to read before they were killed"
    finish(killed_lake, tmp_path)
    assert killed_lake.rows(APPENDED) == sorted([(number, "a") for number in range(10 * batches)], key=repr)
    newest = {number % 50: str(number) for number in range(batches)}
    expected = {**newest, **{50 + number: str(number) for number in range(batches)}}
    assert killed_lake.rows(MERGED) == sorted(expected.items(), key=repr)
    for name in (APPENDED, MERGED):
        numbers = [int(number) for number in epochs(killed_lake, name)]
        # Of a driver that dies before Spark has written down a micro-batch, the next one has the file as well.
        assert numbers == list(range(len(numbers)))[::-1]
        assert batches - killed <= len(numbers) <= batches
        assert killed_lake.session.verify(name, every_file=True).ok
