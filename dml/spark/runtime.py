"""What a Spark session is and what it can do: one frozen value per session. Driver.

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

__all__ = ["RUNTIMES", "Runtime", "SessionKind"]


class SessionKind(Flag):
    """A kind of session."""

    CLASSIC = auto()
    CLASSIC_WITHOUT_CATALOGS = auto()  # before Spark 4.0, which does not find RowDelta's tables in catalogs
    CONNECT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """What a Spark session is and what it can do.

    Attributes:
        kind: The kind of the session.
        features: The features that both the installed PySpark and the session's Spark have: a Connect server may be
            older than its client.
        is_local: Whether tasks run in the driver's JVM, and so see its files and run its Python.
        shares_files: Whether tasks and driver may exchange rows in files: tasks run locally, and Spark does not encrypt
            its files.
    """

    kind: SessionKind
    features: frozenset[Feature]
    is_local: bool = False
    shares_files: bool = False

    @staticmethod
    def of(spark: SparkSession) -> "Runtime":
        """Return the runtime of a session. The first call for a session of Spark Connect asks its server.

        Args:
            spark: A session, classic or Connect. Classic sessions of an application share one runtime.

        Raises:
            PySparkException: The Connect server does not answer.
        """
        key = spark if is_connect(spark) else spark.sparkContext
        runtime = RUNTIMES.get(key)
        if runtime is None:
            runtime = RUNTIMES[key] = connect_runtime(spark) if is_connect(spark) else classic_runtime(spark)
        return runtime

    @property
    def is_connect(self) -> bool:
        """Whether another process is the driver of the session."""
        return self.kind is SessionKind.CONNECT


RUNTIMES: Final[WeakKeyDictionary[Any, Runtime]] = WeakKeyDictionary()
"""The runtimes so far, by the context of classic sessions and by the session of Spark Connect."""


def connect_runtime(spark: SparkSession) -> Runtime:
    """Return the runtime of a session of Spark Connect."""
    return Runtime(kind=SessionKind.CONNECT, features=INSTALLED_FEATURES & features_of(spark.version))


def classic_runtime(spark: SparkSession) -> Runtime:
    """Return the runtime of a classic session."""
    has_catalogs = Feature.DATA_SOURCE_V2 in INSTALLED_FEATURES
    is_local = is_local_master(spark.sparkContext.master)
    conf = CONTEXT.of(spark.sparkContext).sc().conf()
    return Runtime(
        kind=SessionKind.CLASSIC if has_catalogs else SessionKind.CLASSIC_WITHOUT_CATALOGS,
        features=INSTALLED_FEATURES,
        is_local=is_local,
        shares_files=is_local and str(conf.get("spark.io.encryption.enabled", "false")).lower() != "true",
    )
