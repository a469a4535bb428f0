"""`dml.disable` and `dml.enable` restore Spark, by every way to call them and for every kind of session."""

import logging

import pytest
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions import captured
from pyspark.sql import SparkSession

import dml
from dml.connector.install import catalogs_of
from dml.patches import PATCHES
from dml.session import runner_of
from dml.spark import callbacks
from dml.spark.bridge import gateway
from dml.spark.bridge.gateway import KnownClass, is_worth_logging, jvm_view
from dml.spark.handlers import ORIGIN, session_key
from dml.spark.replaced_methods import ORIGINALS
from dml.statement_runner import StatementRunner
from tests.lake import Lake

pytestmark = pytest.mark.spark


@pytest.fixture
def active(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> dml.Session:
    """Make the test's session the one of the module's functions, whatever other tests have opened."""
    monkeypatch.setattr("dml.active_session.ACTIVE", [lake.session])
    return lake.session


@pytest.mark.parametrize("of_module", [True, False])
def test_disable_takes_the_catalogs_out_of_spark(lake, active, spark, of_module):
    name = lake.create("id bigint")
    spark.catalog.setCurrentCatalog("lake")
    assert spark.table(name).columns == ["id"]
    if of_module:
        dml.disable(spark)
    else:
        active.disable()
    assert not catalogs_of(lake.engine).contains("lake")
    assert spark.catalog.currentCatalog() == "spark_catalog"
    assert spark.conf.get(ORIGIN, None) is None
    with pytest.raises(AnalysisException):
        spark.table(f"lake.{name}")
    dml.disable(spark)  # nothing happens
    dml.enable(spark)
    assert spark.table(f"lake.{name}").columns == ["id"]


def test_a_session_that_inherits_is_left_to_spark_by_itself(lake, active, spark):
    name = lake.create("id bigint")
    other = spark.newSession()
    assert other.sql(f"SELECT * FROM lake.{name}").columns == ["id"]
    assert catalogs_of(runner_of(active).on(other).engine).contains("lake")
    dml.disable(other)
    assert not catalogs_of(runner_of(active).on(other).engine).contains("lake")
    with pytest.raises(AnalysisException):
        other.table(f"lake.{name}")
    assert spark.table(f"lake.{name}").columns == ["id"]


def test_another_session_has_the_settings_of_the_active_one(lake, active, spark, monkeypatch):
    """No progress bar if `connect` disabled it, and the same callbacks."""
    other = spark.newSession()
    enabled: list[StatementRunner] = []

    def note(runner: StatementRunner) -> None:
        enabled.append(runner)

    monkeypatch.setattr(StatementRunner, "enable", note)
    dml.enable(other)
    (bound,) = enabled
    assert session_key(bound.spark) == session_key(other)
    assert not lake.engine.progress
    assert bound.engine.progress == lake.engine.progress
    assert bound.engine.callbacks is lake.engine.callbacks


def patches() -> list[object]:
    """Return the replaced parts of PySpark and py4j."""
    filtered = [name for name in gateway.LOGGERS if is_worth_logging in logging.getLogger(name).filters]
    known = [name for name, found in vars(jvm_view()).items() if isinstance(found, KnownClass)]
    converted = ["convert_exception"] if hasattr(captured.convert_exception, "__wrapped__") else []
    return [*filtered, *known, *converted, *ORIGINALS]


def state_of_pyspark() -> dict[str, object]:
    """Return the attributes that RowDelta replaces or sets in PySpark and py4j, by name."""
    owners = {(patch.owner_class, patch.name) for patch in PATCHES if patch.owner_class is not None}
    parameters = [vars(gateway.gateway()).get(name) for name in ("python_parameters", "callback_server_parameters")]
    return {
        **{f"{owner.__module__}.{owner.__name__}.{name}": vars(owner).get(name) for owner, name in owners},
        "convert_exception": captured.convert_exception,
        "classes": {name for name, found in vars(jvm_view()).items() if isinstance(found, KnownClass)},
        "filters": [list(logging.getLogger(name).filters) for name in ("", *gateway.LOGGERS)],
        "parameters": [getattr(each, "propagate_java_exceptions", None) for each in parameters],
    }


def test_after_disable_each_replaced_attribute_is_the_one_of_before(lake, active, spark, monkeypatch):
    monkeypatch.setattr(callbacks, "PARSER_STAYS", type(callbacks.PARSER_STAYS)())
    dml.disable(spark)
    before = state_of_pyspark()
    session = runner_of(lake.session).on(spark)
    session.enable()
    changed = state_of_pyspark()
    session.disable()
    assert state_of_pyspark() == before
    assert {name for name in before if before[name] != changed[name]} >= {
        *(
            name
            for name in before
            if name.endswith(("session.SparkSession.sql", "DataFrameWriterV2.overwritePartitions"))
            and "connect" not in name
        ),
        "convert_exception",
        "filters",
        "parameters",
    }


def test_with_the_last_session_pyspark_and_py4j_are_as_they_were(lake, active, spark, monkeypatch):
    assert patches()
    monkeypatch.setattr(callbacks, "PARSER_STAYS", type(callbacks.PARSER_STAYS)())
    other = spark.newSession()
    dml.enable(other)
    dml.disable(other)
    assert len(patches()) > len(ORIGINALS) > 0
    dml.disable(spark)
    assert patches() == []
    assert spark.sql("SELECT 1 AS a").collect() == [(1,)]
    dml.enable(spark)
    assert len(patches()) > len(ORIGINALS) > 0


def test_errors_of_a_parser_that_stays_are_carried_on(lake, active, spark: SparkSession):
    """A session that was created with our parser keeps it."""
    assert callbacks.PARSER_STAYS.is_set()
    dml.disable(spark)
    assert hasattr(captured.convert_exception, "__wrapped__")
