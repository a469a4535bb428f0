"""Workers that run another Python than the driver."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dml.errors import SetupError
from dml.spark import workers
from dml.spark.handlers import session_key
from dml.spark.workers import check_workers

pytestmark = pytest.mark.spark

JOB = """
import sys
from pyspark.sql import SparkSession
import dml
settings = {"spark.ui.enabled": "false", "spark.driver.memory": "640m", "spark.executor.memory": "512m"}
builder = SparkSession.builder.master(sys.argv[1])
for key, value in settings.items():
    builder = builder.config(key, value)
lake = dml.connect(sys.argv[2], spark=builder.getOrCreate(), progress=False)
lake.sql("CREATE NAMESPACE db")
lake.sql("CREATE TABLE db.t (id BIGINT)")
try:
    lake.sql("INSERT INTO db.t VALUES (1), (2)")
    lake.sql("DELETE FROM db.t WHERE id = 1")
    print("ROWS", [row.id for row in lake.table("db.t").collect()])
except dml.errors.SetupError as error:
    print("SETUP", error)
"""


def python_without_packages(folder: Path, **environment: str) -> Path:
    """A `python3` of the driver's version that finds what its environment names, and nothing that is installed."""
    program = folder / "python3"
    exports = "".join(f"export {key}={value}\n" for key, value in environment.items())
    # Python looks for modules in its working folder first, and tests run in a folder that has the package.
    program.write_text(f'#!/bin/sh\n{exports}cd {folder}\nexec {os.path.realpath(sys.executable)} -S "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("master", "expected"),
    [("local[2]", "ROWS [2]"), ("local-cluster[1,1,512]", "RowDelta is not installed there")],
)
def test_a_python_of_the_path_without_the_package(tmp_path: Path, master: str, expected: str) -> None:
    """As when a job is started as `venv/bin/python job.py`: the venv is not in PATH, and `python3` is another one."""
    python_without_packages(tmp_path)
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "PYTHON"))}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    outcome = subprocess.run(
        [sys.executable, "-c", JOB, master, str(tmp_path / "lake")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert expected in outcome.stdout, outcome.stdout + outcome.stderr[-3000:]
    if "ROWS" not in expected:
        assert "SETUP" in outcome.stdout
        assert "PYSPARK_PYTHON" in outcome.stdout


def test_another_version_of_the_package(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("dml", "dml/write", "dml/spark"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    daemon = "from pyspark.daemon import manager\nif __name__ == '__main__':\n    manager()\n"
    (tmp_path / "dml/spark/worker_daemon.py").write_text(daemon)  # the session names it
    (tmp_path / "rowdelta-0.0.1.dist-info").mkdir()
    (tmp_path / "rowdelta-0.0.1.dist-info" / "METADATA").write_text("Name: rowdelta\nVersion: 0.0.1\n")
    program = python_without_packages(tmp_path, PYTHONPATH=f"{tmp_path}:$PYTHONPATH")
    monkeypatch.setenv("PYSPARK_PYTHON", str(program))
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    monkeypatch.setattr(workers, "CHECKED", set())
    with pytest.raises(SetupError) as caught:
        check_workers(spark)
    assert "with RowDelta 0.0.1" in str(caught.value)
    assert "PYSPARK_PYTHON" in str(caught.value)
    assert session_key(spark) not in workers.CHECKED


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
