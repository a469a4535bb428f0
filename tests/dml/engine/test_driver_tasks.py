"""Small statements run in the driver instead of in a Spark job: the same rows, unique file names, failures."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import dml.engine.by_tasks
from dml.errors import DataError, ExecutionError
from dml.write.output_files import DRIVER_PARTITION, OutputFileFactory
from tests.lake import Lake

pytestmark = pytest.mark.spark

JOB_STARTS = "dml.engine.by_tasks.task_frame"


class JobStartsError(Exception):
    """A Spark job was about to start."""


def fail(*_: object, **__: object) -> None:
    raise JobStartsError


@pytest.fixture
def without_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JOB_STARTS, fail)


def small(lake: Lake, mode: str) -> str:
    modes = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
    name = lake.create("id BIGINT, s STRING", **modes)
    for first in (0, 100):
        lake.session.sql(f"INSERT INTO {name} SELECT id, concat('s', id) FROM range({first}, {first + 100})")
    return name


def paths_of(lake: Lake, name: str) -> list[str]:
    return [file.path for file in lake.data_files(name)]


STATEMENTS = (
    "DELETE FROM {t} WHERE id % 10 = 1",
    "UPDATE {t} SET s = upper(s) WHERE id > 150",
    (
        "MERGE INTO {t} AS t USING (VALUES (5, 'x'), (105, 'y'), (300, 'z')) AS v(id, s) ON t.id = v.id "
        "WHEN MATCHED AND v.id = 5 THEN DELETE WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ),
    "INSERT INTO {t} VALUES (400, 'new'), (401, NULL)",
    "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))",
)


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_small_statements_run_no_job_and_have_the_results_of_workers(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, mode: str
) -> None:
    here, there = small(lake, mode), small(lake, mode)
    with monkeypatch.context() as patched:
        patched.setattr(JOB_STARTS, fail)
        for statement in STATEMENTS:
            lake.session.sql(statement.format(t=here))
    assert any(f"{DRIVER_PARTITION}-" in path for path in paths_of(lake, here))
    request.getfixturevalue("in_workers")
    for statement in STATEMENTS:
        lake.session.sql(statement.format(t=there))
    query = "SELECT * FROM {t} ORDER BY id"
    assert lake.rows(query.format(t=here)) == lake.rows(query.format(t=there))
    assert len(lake.rows(query.format(t=here))) == 182


@pytest.mark.usefixtures("without_jobs")
@pytest.mark.parametrize(("limit", "value"), [("MAX_DRIVER_JOB_FILES", 1), ("MAX_DRIVER_JOB_BYTES", 500)])
def test_larger_statements_run_as_a_job(lake: Lake, monkeypatch: pytest.MonkeyPatch, limit: str, value: int) -> None:
    name = small(lake, "merge-on-read")
    monkeypatch.setattr(f"dml.limits.{limit}", value)
    with pytest.raises(JobStartsError):
        lake.session.sql(f"UPDATE {name} SET s = 'u' WHERE id % 2 = 0")
    assert lake.rows(f"SELECT count(*) FROM {name}") == [(200,)]


def test_the_driver_and_a_job_of_one_statement_write_other_files(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver changes the few target rows; a job inserts the rows that exceed the driver's limit."""
    name = small(lake, "merge-on-read")
    monkeypatch.setattr("dml.limits.MIN_INSERTS_PER_TASK", 10)
    monkeypatch.setattr("dml.limits.MAX_DRIVER_INSERT_BYTES", 0)
    monkeypatch.setattr("dml.limits.MAX_TASK_HELD_BYTES", 0)
    monkeypatch.setattr("dml.engine.by_tasks.fits_driver", lambda lazy_session, files, inserted_bytes=0: bool(files))
    changed = lake.session.sql(
        f"MERGE INTO {name} AS t USING (SELECT id, 'm' AS s FROM range(150, 250)) AS v ON t.id = v.id "
        "WHEN MATCHED THEN UPDATE SET s = v.s WHEN NOT MATCHED THEN INSERT *"
    )
    assert (changed.rows_updated, changed.rows_inserted) == (50, 50)
    assert lake.rows(f"SELECT count(*), count(DISTINCT id), count_if(s = 'm') FROM {name}") == [(250, 250, 100)]
    written = [Path(path).name.partition("-")[0] for path in paths_of(lake, name)]
    assert str(DRIVER_PARTITION) in written
    assert "00000" in written


def test_a_merge_into_several_small_files_adds_one_file(lake: Lake) -> None:
    """A Spark job would read them in two tasks."""
    name = lake.create("id BIGINT, s STRING", **{"write.merge.mode": "merge-on-read"})
    for first in range(10):
        lake.session.sql(f"INSERT INTO {name} VALUES ({first}, 's')")
    merged = lake.session.sql(
        f"MERGE INTO {name} AS t USING (VALUES (2, 'm'), (7, 'm'), (20, 'm')) AS v(id, s) ON t.id = v.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert (merged.rows_updated, merged.rows_inserted, merged.data_files_added) == (2, 1, 1)


def test_a_job_retries_a_storage_failure_of_the_driver_if_spark_retries_tasks(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = small(lake, "copy-on-write")
    driver = OutputFileFactory.open

    def fails_in_the_driver(self, *args, **kwargs):
        if self.task.partition_id == DRIVER_PARTITION:
            raise OSError("the storage has a moment")
        return driver(self, *args, **kwargs)

    monkeypatch.setattr(OutputFileFactory, "open", fails_in_the_driver)
    update = f"UPDATE {name} SET s = 'u' WHERE id = 7"
    with pytest.raises(ExecutionError, match="Writing failed in the driver: OSError: the storage has a moment"):
        lake.session.sql(update)
    monkeypatch.setattr("dml.engine.engine.max_task_failures", lambda get: 2)
    assert lake.session.sql(update).rows_updated == 1
    assert lake.rows(f"SELECT id FROM {name} WHERE s = 'u'") == [(7,)]


@pytest.mark.usefixtures("without_jobs")
def test_an_interrupt_in_the_driver_leaves_no_file(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = small(lake, "copy-on-write")
    before, closed = lake.state(name), OutputFileFactory.close

    def interrupted(self, file):
        closed(self, file)
        raise KeyboardInterrupt

    monkeypatch.setattr(OutputFileFactory, "close", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lake.session.sql(f"UPDATE {name} SET s = 'u' WHERE id = 7")
    monkeypatch.undo()
    assert lake.state(name) == before


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO {t} VALUES (1, STRING 'x')",
        "UPDATE {t} SET s = 'x' WHERE id IN (1, 2,)",
        "DELETE FROM {t} WHERE id NOTNULL",
        "UPDATE {t} SET id = 1e400",
    ],
)
def test_spark_rejects_syntax_that_only_sqlglot_accepts(lake: Lake, statement: str) -> None:
    name = small(lake, "merge-on-read")
    before = lake.state(name)
    with pytest.raises((PySparkException, dml.errors.DmlError)):
        lake.session.sql(statement.format(t=name))
    assert lake.state(name) == before


def test_changed_session_settings_apply_in_the_driver(lake: Lake, spark: SparkSession) -> None:
    """The time zone and the overflow checks of the running session, as for a Spark job."""
    name = lake.create("id INT, at TIMESTAMP")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        lake.session.sql(f"INSERT INTO {name} VALUES (1, TIMESTAMP '2024-01-01 09:00:00')")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert lake.rows(f"SELECT CAST(at AS STRING) FROM {name}") == [("2024-01-01 00:00:00",)]
    with pytest.raises((PySparkException, DataError)):
        lake.session.sql(f"INSERT INTO {name} VALUES (5000000000, NULL)")
    with pytest.raises((PySparkException, DataError)):
        lake.session.sql(f"UPDATE {name} SET id = id + 2147483647")


SUBSTITUTED = (
    "INSERT INTO {t} VALUES (1, '${{spark.app.name}}')",
    "INSERT INTO {t} (id, s) SELECT 1, '${{spark.app.name}}'",
    "UPDATE {t} SET s = '${{spark.app.name}}' WHERE id = 1",
    "MERGE INTO {t} t USING (VALUES (1)) v(id) ON t.id = v.id WHEN MATCHED THEN UPDATE SET s = '${{spark.app.name}}'",
)


@pytest.mark.parametrize("statement", SUBSTITUTED)
def test_variables_of_spark_are_replaced(lake: Lake, spark: SparkSession, statement: str) -> None:
    name = lake.create("id BIGINT, s STRING")
    if not statement.startswith("INSERT"):
        lake.session.sql(f"INSERT INTO {name} VALUES (1, 'x')")
    lake.session.sql(statement.format(t=name))
    assert lake.rows(name) == [(1, spark.conf.get("spark.app.name"))]
    assert lake.session.sql(f"DELETE FROM {name} WHERE s = '${{spark.app.name}}'").rows_deleted == 1


def test_a_plus_sign_casts_a_string(lake: Lake) -> None:
    name = lake.create("id BIGINT, s STRING")
    lake.session.sql(f"INSERT INTO {name} VALUES (1, '10'), (2, '10.0')")
    lake.session.sql(f"INSERT INTO {name} VALUES (3, +'5')")
    assert lake.rows(f"SELECT s FROM {name} WHERE id = 3") == [("5.0",)]
    assert lake.rows(f"SELECT id FROM {name} WHERE s = +'10' ORDER BY id") == [(1,), (2,)]
    assert lake.session.sql(f"UPDATE {name} SET s = +s WHERE id = 1").rows_updated == 1
    assert lake.session.sql(f"DELETE FROM {name} WHERE +s = '10'").rows_deleted == 2
    assert lake.rows(name) == [(3, "5.0")]


REJECTED = (
    "DELETE FROM {t} WHERE id NOT NULL",
    "DELETE FROM {t} WHERE k ! IN (1)",
    "DELETE FROM {t} WHERE k BETWEEN ASYMMETRIC 0 AND 5",
    "DELETE FROM {t} WHERE k IS DISTINCT FROM CAST(NULL AS DATE)",
    "DELETE FROM {t} WHERE id = 1 OR CAST(NULL AS INT)",
    "DELETE FROM {t} WHERE k = CONVERT(1, INT)",
    "DELETE FROM {t} WHERE m = NULL",
    "DELETE FROM {t} WHERE m IN (NULL)",
    "DELETE FROM {t} WHERE m <=> NULL",
    "UPDATE {t} SET k = 2 WHERE CASE WHEN m <=> NULL THEN true ELSE false END",
    "UPDATE {t} SET b = CAST(NULL AS DATE)",
    "UPDATE {t} SET k = TRY_CONVERT(id, INT)",
)


@pytest.mark.parametrize("statement", REJECTED)
def test_what_spark_rejects_changes_nothing(lake: Lake, statement: str) -> None:
    name = lake.copy_of(
        "with a map", lambda: filled(lake, "id BIGINT, k INT, b BOOLEAN, m MAP<STRING, INT>", "1, 1, true, map('a', 1)")
    )
    before = lake.state(name)
    with pytest.raises((PySparkException, dml.errors.DmlError)):
        lake.session.sql(statement.format(t=name))
    assert lake.state(name) == before


def filled(lake: Lake, columns: str, row: str) -> str:
    name = lake.create(columns)
    lake.session.sql(f"INSERT INTO {name} SELECT {row}")
    return name


def test_an_insert_of_constants_is_retried(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    name = small(lake, "copy-on-write")
    opened, failures = OutputFileFactory.open, iter([OSError("the storage has a moment")])

    def fails_once(self, *args, **kwargs):
        for failure in failures:
            raise failure
        return opened(self, *args, **kwargs)

    monkeypatch.setattr(OutputFileFactory, "open", fails_once)
    monkeypatch.setattr("dml.engine.engine.max_task_failures", lambda get: 2)
    assert lake.session.sql(f"INSERT INTO {name} VALUES (500, 'i')").rows_inserted == 1
    assert lake.rows(f"SELECT count(*) FROM {name}") == [(201,)]


def test_files_that_a_failed_driver_left_are_deleted(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage fails while the driver writes, and while it deletes what it wrote; a job runs the tasks again."""
    name = small(lake, "copy-on-write")
    (_, before), closed = lake.state(name), OutputFileFactory.close

    def fails_in_the_driver(self, file):
        closed(self, file)
        if self.task.partition_id == DRIVER_PARTITION:
            raise OSError("the storage has a moment")

    monkeypatch.setattr(OutputFileFactory, "close", fails_in_the_driver)
    monkeypatch.setattr("dml.write.output_files.delete_files", lambda io, paths: tuple(paths))
    monkeypatch.setattr("dml.engine.engine.max_task_failures", lambda get: 2)
    assert lake.session.sql(f"UPDATE {name} SET s = 'u' WHERE id = 7").rows_updated == 1
    _, after = lake.state(name)
    assert not {path.name for path in after - before if str(DRIVER_PARTITION) in path.name}
