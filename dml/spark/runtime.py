"""Describe a Spark session: its kind, its features, and where its tasks run. Driver.

Input: a session. Output: its `Runtime`.
"""

from dataclasses import dataclass
from enum import Flag, auto
from typing import Any, Final
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from dml.spark.bridge.names import CONTEXT
from dml.spark.bridge.sessions import is_connect
from dml.spark.master import is_local_master
from dml.spark.versions import INSTALLED_FEATURES, Feature, features_of

__all__ = ["Runtime", "SessionKind"]


class SessionKind(Flag):
    """How RowDelta integrates with a session. A flag, so that `Replacement.on` can combine kinds."""

    CLASSIC = auto()
    CLASSIC_WITHOUT_CATALOGS = auto()  # PySpark 3.5: RowDelta's catalogs cannot be registered in Spark
    CONNECT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """The kind and capabilities of a Spark session, read once.

    Attributes:
        kind: The kind of the session.
        features: The features of the session's Spark. A Connect server may be older or newer than its client.
        is_local: Whether tasks run in the driver's JVM, so they can read its local files. False on Connect, where the
            master is unknown.
        shares_files: Whether tasks and the driver may exchange rows through local files. Requires a local master and
            no `spark.io.encryption.enabled`.
    """

    kind: SessionKind
    features: frozenset[Feature]
    is_local: bool = False
    shares_files: bool = False

    @staticmethod
    def of(spark: SparkSession) -> "Runtime":
        """Return the runtime of a session, cached per Spark application or Connect session.

        The first call for a Connect session requests the server's version.

        Raises:
            PySparkException: The Connect server does not respond.
        """
        key = spark if is_connect(spark) else spark.sparkContext
        runtime = RUNTIMES.get(key)
        if runtime is None:
            runtime = RUNTIMES[key] = connect_runtime(spark) if is_connect(spark) else classic_runtime(spark)
        return runtime

    @property
    def is_connect(self) -> bool:
        """Whether this is a Spark Connect session, whose client cannot access the driver's JVM."""
        return self.kind is SessionKind.CONNECT


RUNTIMES: Final[WeakKeyDictionary[Any, Runtime]] = WeakKeyDictionary()
"""Cached runtimes, keyed by SparkContext for classic sessions and by session for Spark Connect."""


def connect_runtime(spark: SparkSession) -> Runtime:
    return Runtime(kind=SessionKind.CONNECT, features=features_of(spark.version))


def classic_runtime(spark: SparkSession) -> Runtime:
    has_catalogs = Feature.DATA_SOURCE_V2 in INSTALLED_FEATURES
    is_local = is_local_master(spark.sparkContext.master)
    conf = CONTEXT.of(spark.sparkContext).sc().conf()
    return Runtime(
        kind=SessionKind.CLASSIC if has_catalogs else SessionKind.CLASSIC_WITHOUT_CATALOGS,
        features=features_of(spark.version),
        is_local=is_local,
        shares_files=is_local and str(conf.get("spark.io.encryption.enabled", "false")).lower() != "true",
    )
