"""What all tests share: one Spark session, the profiles of Hypothesis, and that CI skips nothing."""

import gc
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession
from sqlalchemy import Engine, event

from dml import tracebacks
from dml.errors import SetupError
from dml.spark.launch import LOG_SETTINGS, spark_session
from dml.spark.versions import INSTALLED_FEATURES
from tests.class_archive import JVM_OPTIONS

ROOT = Path(__file__).parents[1]
LOGGING = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
# A statement leaves some 10 MB of garbage. By default the JVM sizes its young generation by the memory of the machine.
HEAP = "-Xms1g -Xmn512m"

settings.register_profile("default", max_examples=50, deadline=None)
settings.register_profile(
    "ci", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("nightly", max_examples=2_000, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default"))


def part_settings() -> dict[str, str]:
    """Return the Spark settings of the running part of tests/suite.py, for sessions and programs of its tests."""
    found: dict[str, str] = json.loads(os.environ.get("TEST_SPARK_SETTINGS", "{}"))
    return found


def keep_frames() -> None:
    """Keep RowDelta's own frames in the tracebacks of failed tests, which users do not see."""
    original = tracebacks.without_libraries
    if not hasattr(original, "__wrapped__"):
        setattr(tracebacks, "without_libraries", wraps(original)(lambda trace: trace))  # noqa: B010


keep_frames()

# With the default thresholds, garbage collection takes 10 % of the time of the tests in Python.
gc.set_threshold(50_000, 20, 100)


@event.listens_for(Engine, "connect")
def do_not_wait_for_the_disk(connection: Any, _: object) -> None:
    """Let SQLite commit without waiting for the disk: no table of a test has to survive a crash of the machine."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def importable_tests(folder: Path) -> str:
    """A folder that other processes can import `tests` from; the checkout has folders of the package in it as well.

    Args:
        folder: Where it is made.
    """
    path = folder / "importable"
    path.mkdir()
    (path / "tests").symlink_to(ROOT / "tests")
    return str(path)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session with our SQL extension and no handler: small, quiet, in UTC."""
    folder: Path = tmp_path_factory.mktemp("spark")
    chosen = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1500m",
        "spark.driver.extraJavaOptions": f"{LOGGING} {JVM_OPTIONS} {HEAP}",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.ui.explainMode": "simple",  # Spark describes each plan for its web page, in the longest form
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **part_settings(),
    }
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setenv("PYTHONPATH", importable_tests(folder), prepend=os.pathsep)  # for workers
            session = spark_session(settings=chosen)
    except SetupError as error:
        pytest.exit(str(error), returncode=1)
    yield session
    session.stop()


@contextmanager
def session_settings(spark: SparkSession, chosen: Mapping[str, str]) -> Iterator[None]:
    """Set settings of a session during the block."""
    before = {key: spark.conf.get(key, None) for key in chosen}
    for key, value in chosen.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, earlier)


COMPILED = {
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.lightweightPlanChangeValidation": "true",
}
"""Spark's defaults of what a part of tests/suite.py may switch off."""


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[None]:
    """Let Spark compile queries, as it does for users; otherwise its Parquet reader gives no batches of columns."""
    with session_settings(spark, COMPILED):
        yield


@pytest.fixture
def in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the tasks of every statement in Spark's workers; by default, the driver runs small ones."""
    monkeypatch.setattr("dml.limits.MAX_DRIVER_JOB_BYTES", -1)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs a feature that the PySpark that runs has not; the newest has all of them."""
    lacking = [
        item
        for item in items
        if not all(feature in INSTALLED_FEATURES for mark in item.iter_markers("needs") for feature in mark.args)
    ]
    if lacking:
        config.hook.pytest_deselected(items=lacking)
        items[:] = [item for item in items if item not in lacking]


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI a skipped test is a failed run: nobody would see that a part of the suite is gone."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = len(reporter.stats.get("skipped", ())) if reporter else 0
    if os.environ.get("CI") and skipped and session.exitstatus == pytest.ExitCode.OK:
        reporter.write_line(f"\n{skipped} tests were skipped, and CI allows none", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
