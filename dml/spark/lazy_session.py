"""Own the Spark session of a `Session`: an existing one, or one that starts on first use. Driver.

Input: a session, or the settings of one to start. Output: the session, and before it has started, its settings.

A new session has exactly the settings that it is given, if nothing else in the environment can add some: no
`spark-defaults.conf`, no options for the JVM, a local master. Then a setting can be read before the session starts. If
that is uncertain, reading a setting starts Spark.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pyspark
from pyspark.sql import SparkSession

from dml.spark.bridge.sessions import (
    PendingContext,
    active_context,
    builder_options,
    has_pending_context,
    set_pending_context,
)
from dml.spark.extension import is_remote
from dml.spark.handlers import check_not_stopped
from dml.spark.launch import active_session, default_settings, spark_session
from dml.spark.master import SettingReader, is_local_master
from dml.spark.runtime import Runtime
from dml.spark.settings import settings_below, settings_of

__all__ = ["LazySession", "known_settings", "machine_time_zone"]

TIME_ZONE: Final = "spark.sql.session.timeZone"


class LazySession:
    """A Spark session that starts on first use, or wraps an existing one.

    Args:
        spark: The session; None starts one on first use, unless the program has started one by then.
        settings: Spark settings for a new session, which override `default_settings`.

    """

    def __init__(self, spark: SparkSession | None = None, *, settings: Mapping[str, str] | None = None) -> None:
        self._spark = spark
        self._given = dict(settings or {})
        self._is_ready = spark is not None
        self._lock = threading.RLock()
        self._prepare: list[Callable[[], object]] = []
        self._starter: int | None = None

    @staticmethod
    def of(spark: SparkSession | None, *, settings: Mapping[str, str] | None = None) -> "LazySession":
        """Wrap the given session, else the pending or active one, else a new one that starts on first use.

        A new session starts immediately on Spark Connect and in a JVM that spark-submit has started.

        Raises:
            SetupError: The given session has been stopped, or the new one does not start.
        """
        if spark is not None:
            check_not_stopped(spark)
        pending = pending_session()
        if spark is None and pending is not None:
            return pending
        found = spark if spark is not None else active_session()
        if found is None and ("PYSPARK_GATEWAY_PORT" in os.environ or is_remote(dict(settings or {}))):
            found = spark_session(settings=settings)
        return LazySession(found, settings=settings)

    @property
    def is_started(self) -> bool:
        """Whether a session exists, started here or by the program. Its settings then apply to statements."""
        return self._spark is not None or (not has_pending_context() and active_session() is not None)

    @property
    def spark(self) -> SparkSession:
        """The session. Other threads wait until it has been prepared.

        Raises:
            SetupError: Java is missing or too old, or Spark does not start.
        """
        if self._is_ready:
            assert self._spark is not None
            return self._spark
        with self._lock:  # preparing it asks for the session in this thread
            if self._spark is None:
                self._starter = threading.get_ident()
                if self in PENDING:
                    set_pending_context(None)
                try:
                    self._spark = spark_session(settings=self._given)
                    for prepare in self._prepare:
                        prepare()
                except BaseException:
                    self._spark = None
                    raise
                finally:
                    self._starter = None
                    self._forget()
                self._is_ready = True
            return self._spark

    @property
    def runtime(self) -> Runtime:
        """The kind and capabilities of the session. Starts it if necessary.

        Raises:
            SetupError: Java is missing or too old, or Spark does not start.
            PySparkException: The Connect server does not respond.
        """
        return Runtime.of(self.spark)

    @property
    def starts_here(self) -> bool:
        """Whether this thread is starting the session."""
        return self._starter == threading.get_ident()

    def announce(self, prepare: Callable[[], object]) -> None:
        """Let PySpark's own calls start this session, until it has started.

        `SparkSession.builder.getOrCreate()`, `SparkSession.getActiveSession()` and `F.col("id")` find the session of
        the process, which `dml.connect` has opened.

        Args:
            prepare: Called once with the session that has started, before anything else uses it.
        """
        self._prepare.append(prepare)
        PENDING[:] = [self]
        set_pending_context(PendingContext(lambda: self.spark.sparkContext))
        builder: Any = SparkSession.Builder
        if builder.getOrCreate is not get_or_create:
            ORIGINAL[:] = [builder.getOrCreate]
            builder.getOrCreate = get_or_create

    def withdraw(self, prepare: Callable[[], object]) -> None:
        """Undo `announce`."""
        self._prepare = [other for other in self._prepare if other != prepare]
        if not self._prepare:
            self._forget()

    def _forget(self) -> None:
        if self in PENDING:
            PENDING.clear()
            set_pending_context(None)

    @cached_property
    def _known(self) -> Mapping[str, str] | None:
        return known_settings(os.environ, self._given)

    @property
    def known(self) -> Mapping[str, str] | None:
        """The settings with which Spark will start; None if it has started, or if others may apply.

        A session in a context that the program has started has the settings of that context.
        """
        return None if self.is_started or active_context() is not None else self._known

    @property
    def is_deferred(self) -> bool:
        """Whether statements can run without Spark: it has not started, and its settings are known."""
        return self.known is not None

    def settings(self) -> SettingReader:
        """Return a getter of the current settings: `get(key, default)`, as `spark.conf.get`."""
        known = self.known
        return settings_of(self.spark) if known is None else known.get

    def settings_below(self, prefix: str) -> dict[str, str]:
        """Return the current settings whose names begin with a prefix, by the rest of their names."""
        known = self.known
        if known is None:
            return settings_below(self.spark, prefix)
        return {name.removeprefix(prefix): value for name, value in known.items() if name.startswith(prefix)}

    @property
    def time_zone(self) -> str:
        """`spark.sql.session.timeZone`, which is the JVM's time zone unless it is set."""
        known = self.known
        return (self.spark.conf.get(TIME_ZONE) or "UTC") if known is None else known[TIME_ZONE]


PENDING: Final[list[LazySession]] = []
"""The session that PySpark's own calls will start; empty or one element."""

ORIGINAL: Final[list[Callable[[Any], SparkSession]]] = []
"""PySpark's `SparkSession.Builder.getOrCreate`, once it has been replaced."""


def pending_session() -> LazySession | None:
    """Return the session that PySpark's own calls will start, or None. Another thread may start it at any time."""
    return next(iter(PENDING), None)


def get_or_create(self: Any) -> SparkSession:
    """Do PySpark's `getOrCreate`, after starting the session that is pending.

    Other threads wait for the one that starts it: their builders would make a session with other settings.
    """
    pending = pending_session()
    if pending is not None and not pending.starts_here and not is_remote(builder_options(self)):
        _ = pending.spark
    return ORIGINAL[0](self)


ENVIRONMENT: Final = (
    "PYSPARK_GATEWAY_PORT",
    "PYSPARK_SUBMIT_ARGS",
    "SPARK_CONF_DIR",
    "SPARK_HOME",
    "SPARK_LAUNCHER_OPTS",
    "SPARK_SUBMIT_OPTS",
    "SPARK_TESTING",
)
"""Variables that may give a new session other settings, or another Spark than PySpark's."""

JAVA_OPTIONS: Final = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
JAVA_PROPERTY: Final = re.compile(r"-D(spark|user)\.|@")
"""Options that set Spark's settings or the JVM's time zone, or name a file of options."""

UNDERSTOOD: Final = re.compile(
    r"spark\.(app\.name|master|default\.parallelism|driver\.memory|local\.dir|wap\.\w+|rowdelta\..*"
    r"|sql\.(ansi\.enabled|caseSensitive|iceberg\..*|session\.timeZone|shuffle\.partitions|storeAssignmentPolicy"
    r"|sources\.partitionOverwriteMode)|ui\..*)"
)
"""The user's settings that change no more of a statement than RowDelta reads from them. Others may add rules, functions
or catalogs to Spark."""

POLICY: Final = "spark.sql.storeAssignmentPolicy"
ANSI: Final = "ANSI"
"""The policy by which values are stored without Spark: STRICT refuses some, for example NULL."""

HARMLESS_FILES: Final = re.compile(r".*\.template|log4j2?\.\w+")


def known_settings(environment: Mapping[str, str], chosen: Mapping[str, str]) -> Mapping[str, str] | None:
    """Return all settings that a new session will have, the time zone included; None if they are uncertain.

    Settings that Spark itself makes, such as the id of the application, are not among them.

    Args:
        environment: The process's environment variables.
        chosen: The user's settings.
    """
    options = " ".join(environment.get(name, "") for name in JAVA_OPTIONS)
    configuration = Path(pyspark.__file__).parent / "conf"
    if (
        any(name in environment for name in ENVIRONMENT)
        or JAVA_PROPERTY.search(options)
        or not all(UNDERSTOOD.fullmatch(name) for name in chosen)
        or not re.fullmatch(r"\d+\.\d+\.\d+", pyspark.__version__)
        or (configuration.exists() and not all(HARMLESS_FILES.fullmatch(file.name) for file in configuration.iterdir()))
    ):
        return None
    settings = {**default_settings(environment, chosen), **chosen}
    zone = settings.get(TIME_ZONE) or machine_time_zone(environment)
    if zone is None or not is_local_master(settings["spark.master"]) or settings.get(POLICY, ANSI).upper() != ANSI:
        return None
    return {**settings, TIME_ZONE: zone}


LOCAL_TIME: Final = Path("/etc/localtime")
NAMED_ZONE: Final = Path("/etc/timezone")
ZONE: Final = re.compile(r"UTC|GMT|[A-Z]\w+(/[\w+-]+)+")


def machine_time_zone(environment: Mapping[str, str]) -> str | None:
    """Return the name of the machine's time zone as the JVM finds it; None if it is uncertain.

    Args:
        environment: `TZ` names the time zone, if it is set.
    """
    found = environment.get("TZ")
    if found is None and LOCAL_TIME.is_symlink():
        found = str(LOCAL_TIME.readlink()).rpartition("zoneinfo/")[2]
        if NAMED_ZONE.is_file() and NAMED_ZONE.read_text(encoding="utf-8").strip() != found:
            return None  # which of the two counts depends on the JVM
    return found if found is not None and is_zone(found) else None


def is_zone(name: str) -> bool:
    """Return whether a name is a time zone's in the database that Python and the JVM share."""
    try:
        return ZONE.fullmatch(name) is not None and ZoneInfo(name) is not None
    except (ValueError, OSError, KeyError):  # there is none of this name
        return False
