"""Workers that run another Python than the driver."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dml.errors import SetupError
from dml.spark import workers
from dml.spark.handlers import session_key
from dml.spark.workers import check_workers
from tests.dml.spark.other_python import python_without_packages, with_python_first

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession
import dml
settings = {"spark.ui.enabled": "false", "spark.driver.memory": "640m", "spark.executor.memory": "512m"}
builder = SparkSession.builder.master("local-cluster[1,1,512]")
for key, value in settings.items():
    builder = builder.config(key, value)
lake = dml.connect(sys.argv[1], spark=builder.getOrCreate(), progress=False)
lake.sql("CREATE NAMESPACE db")
lake.sql("CREATE TABLE db.t (id BIGINT)")
try:
    lake.sql("INSERT INTO db.t VALUES (1), (2)")
    lake.sql("DELETE FROM db.t WHERE id = 1")
except dml.errors.SetupError as error:
    print("SETUP", error)
"""


@pytest.mark.nightly
def test_a_cluster_whose_python3_lacks_the_package(tmp_path: Path) -> None:
    """As when a job is started as `venv/bin/python job.py`: the venv is not in PATH, and `python3` is another one.

    With every change, `test_workers_without_the_package` covers the error, and `test_own_process.py` a local master.
    """
    outcome = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path / "lake")],
        cwd=tmp_path,
        env=with_python_first(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )
    assert "SETUP" in outcome.stdout, outcome.stdout + outcome.stderr[-3000:]
    assert "RowDelta is not installed there" in outcome.stdout
    assert "PYSPARK_PYTHON" in outcome.stdout


def package_without(folder: Path) -> Path:
    """Create a Python that has only RowDelta's worker daemon, which the session sets."""
    (folder / "dml/spark").mkdir(parents=True)
    for package in ("dml", "dml/spark"):
        (folder / package / "__init__.py").touch()
    daemon = "from pyspark.daemon import manager\nif __name__ == '__main__':\n    manager()\n"
    (folder / "dml/spark/worker_daemon.py").write_text(daemon)
    return python_without_packages(folder, PYTHONPATH=f"{folder}:$PYTHONPATH")


def refused(spark: SparkSession, program: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the error of workers that run a Python."""
    monkeypatch.setenv("PYSPARK_PYTHON", str(program))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    monkeypatch.setattr(workers, "CHECKED", set())
    with pytest.raises(SetupError) as caught:
        check_workers(spark)
    assert "PYSPARK_PYTHON" in str(caught.value)
    assert session_key(spark) not in workers.CHECKED
    return str(caught.value)


def test_workers_without_the_package(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = package_without(tmp_path)
    assert "RowDelta is not installed there" in refused(spark, program, monkeypatch)


def test_another_version_of_the_package(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = package_without(tmp_path)
    (tmp_path / "dml/write").mkdir()
    (tmp_path / "dml/write/__init__.py").touch()
    (tmp_path / "rowdelta-0.0.1.dist-info").mkdir()
    (tmp_path / "rowdelta-0.0.1.dist-info" / "METADATA").write_text("Name: rowdelta\nVersion: 0.0.1\n")
    assert "with RowDelta 0.0.1" in refused(spark, program, monkeypatch)


def test_the_drivers_own_python_is_asked_nothing(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "CHECKED", set())
    monkeypatch.setattr(workers, "python_of_workers", lambda _: pytest.fail("a job"))
    check_workers(spark)
    assert session_key(spark) in workers.CHECKED


def test_a_task_sees_our_sqlparse_and_that_of_pypi(spark: SparkSession) -> None:
    """Workers have a path of their own: it begins with the driver's folder, which may be this checkout."""

    def seen(batches):
        before = sys.path
        sys.path = [folder for folder in before if not Path(folder, "sqlparse", "statements.py").exists()]
        ours, theirs = importlib.import_module("dml.sqlparse"), importlib.import_module("sqlparse")
        sys.path = before
        for batch in batches:
            yield batch.from_pydict({"ours": [ours.__name__], "theirs": [theirs.__version__]})

    row = spark.range(1).mapInArrow(seen, "ours STRING, theirs STRING").first()
    assert row.ours == "dml.sqlparse"
    assert row.theirs
