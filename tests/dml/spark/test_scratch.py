"""Temporary files are on Spark's disks, used in turn, and removed at the end of their block."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from dml.files import scratch
from dml.files.scratch import local_folders, scratch_folder
from dml.spark.workers import scratch_folder as folder_of_driver


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary directory, in a process that is not a worker."""
    for variable in scratch.VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    system = tmp_path / "system"
    system.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(system))
    return system


@pytest.mark.parametrize("variable", ["SPARK_LOCAL_DIRS", "LOCAL_DIRS"])
def test_folders_are_spread_over_the_disks_of_a_worker(tmp_path, monkeypatch, elsewhere, variable):
    disks = [str(tmp_path / name) for name in ("a", "b", "c")]
    monkeypatch.setenv(variable, ",".join(disks))
    assert local_folders() == disks
    folders = [scratch_folder() for _ in range(9)]
    assert Counter(str(Path(folder.name).parent) for folder in folders) == dict.fromkeys(disks, 3)
    for folder in folders:
        folder.cleanup()
    assert [found for disk in disks for found in Path(disk).iterdir()] == []
    assert list(elsewhere.iterdir()) == []


def test_those_of_spark_come_before_those_of_yarn(monkeypatch):
    monkeypatch.setenv("LOCAL_DIRS", "/yarn")
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/spark")
    assert local_folders() == ["/spark"]
    monkeypatch.setenv("SPARK_LOCAL_DIRS", " ")
    assert local_folders() == ["/yarn"]


def test_a_disk_that_cannot_be_written_is_passed_over(tmp_path, monkeypatch, elsewhere):
    (tmp_path / "file").touch()
    good = tmp_path / "good"
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/file,{good}")
    for _ in range(3):
        with scratch_folder() as folder:
            assert Path(folder).parent == good
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path}/file")
    with scratch_folder() as folder:
        assert Path(folder).parent == elsewhere


def folder_of_task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return where a task's temporary files are, and the directories that Spark passed to it."""
    for _ in batches:
        pass
    with scratch_folder() as folder:
        yield pa.RecordBatch.from_pylist([{"folder": folder, "given": os.environ["SPARK_LOCAL_DIRS"]}])


@pytest.mark.spark
def test_tasks_and_the_driver_use_the_folders_that_spark_uses(spark: SparkSession, elsewhere: Path) -> None:
    rows = spark.range(0, 4, 1, 2).mapInArrow(folder_of_task, "folder STRING, given STRING").collect()
    local = Path(spark.sparkContext._temp_dir).parents[1]  # where PySpark keeps its own: a folder in one of Spark's
    assert len(rows) == 2
    for row in rows:
        assert str(Path(row.folder).parent) in row.given.split(",")
        assert Path(row.folder).parents[1] == local
        assert not Path(row.folder).exists()
    with folder_of_driver(spark.sparkContext) as folder:
        assert Path(folder).parents[1] == local
    assert list(elsewhere.iterdir()) == []
