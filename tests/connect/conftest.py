"""Fixtures for Spark Connect tests. They need a separate process: PySpark allows only one kind of session in each."""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from dml.spark.bridge.sessions import active_context
from dml.spark.launch import WORKER_SETTINGS
from tests.conftest import importable_tests, part_settings
from tests.connect.sessions import connect_session
from tests.lake import Lake, new_lake


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session whose server has the worker settings that docs/deploy recommends."""
    if active_context() is not None:
        pytest.exit("Spark Connect needs a process of its own: python tests/suite.py connect", returncode=1)
    folder: Path = tmp_path_factory.mktemp("connect")
    with pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark sets the settings of the server once more in the session
        for name in [name for name in os.environ if name.startswith(("PYSPARK_", "SPARK_"))]:
            patched.delenv(name)
        patched.setenv("PYTHONPATH", importable_tests(folder), prepend=os.pathsep)  # for workers
        session = connect_session({"spark.sql.session.timeZone": "UTC", **WORKER_SETTINGS, **part_settings()})
    yield session
    session.stop()


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """An enabled lake on a new catalog."""
    with new_lake(spark, tmp_path_factory.mktemp("lake")).enabled() as lake:
        yield lake
        lake.session.close()
