"""What is known of a session: its kind, its features, where its tasks run."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dml.engine.engine import tree_reading
from dml.spark.runtime import Runtime, SessionKind
from dml.spark.versions import INSTALLED_FEATURES, Feature, features_of
from dml.sqlparse.dialect import TreeReading


class Context:
    """Stands in for the context of a classic session.

    Args:
        master: The master URL.
        encrypts: `spark.io.encryption.enabled`.
    """

    def __init__(self, master: str, encrypts: str) -> None:
        conf = SimpleNamespace(get=lambda *_: encrypts)
        self.master = master
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))


class Server:
    """Stands in for a session of Spark Connect.

    Args:
        version: The version of the server, which counts how often it is asked.
    """

    def __init__(self, version: str) -> None:
        self.asked = 0
        self._version = version

    @property
    def version(self) -> str:
        self.asked += 1
        return self._version


Server.__module__ = "pyspark.sql.connect.session"


@pytest.mark.oldest
@pytest.mark.spark
def test_classic_sessions_of_an_application_are_alike(spark: SparkSession) -> None:
    runtime = Runtime.of(spark)
    has_catalogs = Feature.DATA_SOURCE_V2 in INSTALLED_FEATURES
    assert runtime == Runtime(
        kind=SessionKind.CLASSIC if has_catalogs else SessionKind.CLASSIC_WITHOUT_CATALOGS,
        features=INSTALLED_FEATURES,
        is_local=True,
        shares_files=True,
    )
    assert Runtime.of(spark.newSession()) is runtime


@pytest.mark.parametrize(
    ("master", "encrypts", "is_local", "shares_files"),
    [
        ("local[2]", "false", True, True),
        ("local", "TRUE", True, False),
        ("local-cluster[2,1,1024]", "false", False, False),
        ("spark://head:7077", "false", False, False),
    ],
)
def test_only_local_tasks_of_a_spark_that_encrypts_nothing_share_files(
    master: str, encrypts: str, is_local: bool, shares_files: bool
) -> None:
    session: Any = SimpleNamespace(sparkContext=Context(master, encrypts))
    runtime = Runtime.of(session)
    assert (runtime.is_local, runtime.shares_files, runtime.is_connect) == (is_local, shares_files, False)


def test_a_feature_needs_the_client_and_the_server() -> None:
    """A statement's text is parsed by the server: what an older one reads otherwise is not read here."""
    newer, older = Server("99.1.0"), Server("3.5.2")
    session: Any = newer
    assert Runtime.of(session) == Runtime(kind=SessionKind.CONNECT, features=INSTALLED_FEATURES)
    session = older
    runtime = Runtime.of(session)
    assert runtime is Runtime.of(session)
    assert older.asked == 1
    assert runtime.is_connect
    assert runtime.features == features_of("3.5") <= INSTALLED_FEATURES
    assert tree_reading(False, runtime.features) is TreeReading.WITHOUT_QUOTES


@pytest.mark.parametrize("version", ["4.1.2", "4.1.0-SNAPSHOT", "4.1", "4.1.0.dev3"])
def test_features_are_those_of_a_minor_version(version: str) -> None:
    found = features_of(version)
    assert Feature.REPARTITION_BY_ID in found
    assert Feature.CATALOG_VIEWS not in found
