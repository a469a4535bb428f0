"""Fixtures: a cluster of two workers, a session on it, and a lake in object storage with a REST catalog."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import dml
from dml.session import Session
from dml.spark.launch import spark_session
from tests.cluster.standalone import Standalone, standalone
from tests.conftest import LOGGING, importable_tests, part_settings
from tests.services.seaweedfs import SeaweedFs, seaweedfs


@pytest.fixture(autouse=True)
def workers_run_tasks(in_workers: None) -> None:
    """Run all tasks in workers, which this folder tests."""


@pytest.fixture(scope="session")
def storage() -> Iterator[SeaweedFs]:
    """S3 and a REST catalog."""
    with seaweedfs() as server:
        server.create_bucket("plain")
        server.create_table_bucket("tables")
        yield server


@pytest.fixture(scope="session")
def private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path that is a different folder for the driver and for each worker."""
    return tmp_path_factory.mktemp("private")


@pytest.fixture(scope="session")
def half_private(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A path whose folder the driver shares with one worker but not with the other."""
    return tmp_path_factory.mktemp("half-private")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, private: Path, half_private: Path) -> Iterator[Standalone]:
    """Two workers."""
    with standalone(tmp_path_factory.mktemp("cluster"), [[private], [private, half_private]]) as running:
        yield running


@pytest.fixture(scope="session")
def spark(cluster: Standalone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on the cluster, as `dml.connect` starts it."""
    path = importable_tests(tmp_path_factory.mktemp("driver"))
    settings = {
        **cluster.settings,
        "spark.driver.extraJavaOptions": LOGGING,
        "spark.executorEnv.PYTHONPATH": os.pathsep.join([path, *filter(None, [os.environ.get("PYTHONPATH")])]),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.cores.max": "2",
        **part_settings(),
    }
    session = spark_session(settings=settings)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lake(spark: SparkSession, storage: SeaweedFs) -> Iterator[Session]:
    """A lake in object storage."""
    session = dml.connect(catalog="lake", spark=spark, progress=False, **storage.rest_catalog("tables"))
    session.sql("CREATE NAMESPACE IF NOT EXISTS db")
    yield session
    session.close()
