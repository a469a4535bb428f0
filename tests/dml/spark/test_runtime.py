"""Test `Runtime`: session kind, features, and task location."""

from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from dml.engine.engine import tree_reading
from dml.errors import SetupError
from dml.spark.lazy_session import LazySession
from dml.spark.runtime import Runtime, SessionKind
from dml.spark.versions import INSTALLED_FEATURES, Feature, features_of
from dml.sqlparse.dialect import TreeReading


class FakeContext:
    """A fake SparkContext of a classic session.

    Args:
        master: The master URL.
        encryption: `spark.io.encryption.enabled`.
    """

    def __init__(self, master: str, encryption: str) -> None:
        conf = SimpleNamespace(get=lambda *_: encryption)
        self.master = master
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(conf=lambda: conf))


class FakeConnectSession:
    """A fake Spark Connect session that counts requests for the server's version.

    Args:
        version: The server's version.
    """

    def __init__(self, version: str) -> None:
        self.version_requests = 0
        self._version = version

    @property
    def version(self) -> str:
        self.version_requests += 1
        return self._version


FakeConnectSession.__module__ = "pyspark.sql.connect.session"


@pytest.mark.oldest
@pytest.mark.spark
def test_classic_sessions_of_an_application_share_one_runtime(spark: SparkSession) -> None:
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
    ("master", "encryption", "is_local", "shares_files"),
    [
        ("local[2]", "false", True, True),
        ("local", "TRUE", True, False),
        ("local-cluster[2,1,1024]", "false", False, False),
        ("spark://head:7077", "false", False, False),
    ],
)
def test_files_are_shared_only_locally_and_without_encryption(
    master: str, encryption: str, is_local: bool, shares_files: bool
) -> None:
    session: Any = SimpleNamespace(sparkContext=FakeContext(master, encryption), version="4.1.0")
    runtime = Runtime.of(session)
    assert (runtime.is_local, runtime.shares_files, runtime.is_connect) == (is_local, shares_files, False)


def test_a_stopped_session_is_an_error() -> None:
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None))
    with pytest.raises(SetupError, match="has been stopped"):
        LazySession.of(session)


def test_connect_features_are_those_of_the_server() -> None:
    """An older server parses doubled quotes differently, so RowDelta does not rely on its own parse of them."""
    newer, older = FakeConnectSession("99.1.0"), FakeConnectSession("3.5.2")
    session: Any = newer
    assert Runtime.of(session) == Runtime(kind=SessionKind.CONNECT, features=frozenset(Feature))
    session = older
    runtime = Runtime.of(session)
    assert runtime is Runtime.of(session)
    assert older.version_requests == 1
    assert runtime.is_connect
    assert runtime.features == frozenset()
    assert tree_reading(False, runtime.features) is TreeReading.WITHOUT_QUOTES


@pytest.mark.parametrize("version", ["4.1.2", "4.1.0-SNAPSHOT", "4.1-SNAPSHOT", "4.1", "4.1.0.dev3", "4.1.x-scala2.13"])
def test_features_depend_only_on_major_and_minor_version(version: str) -> None:
    found = features_of(version)
    assert Feature.REPARTITION_BY_ID in found
    assert Feature.CATALOG_VIEWS not in found
    assert not features_of("unknown")
