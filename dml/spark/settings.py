"""Settings of a session, each read once until one changes, and built-in functions that the user has replaced. Driver.

`replaces_any` detects built-in SQL functions that the user has replaced: before Spark 4.3, `spark.udf.register("upper",
f)` and CREATE OR REPLACE TEMPORARY FUNCTION replace the function in the session's registry. Spark 4.3 searches
functions along a path, on which built-in functions come first by default. Source: Spark's `FunctionRegistry` and
`FunctionResolution`.
"""

import importlib
from collections.abc import Callable, Iterable
from typing import Any, Final, cast
from weakref import WeakKeyDictionary

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.spark.bridge.gateway import JavaObject, java_class
from dml.spark.bridge.sessions import session_state
from dml.spark.runtime import Runtime
from dml.spark.versions import Feature

__all__ = ["replaces_any", "settings_below", "settings_of"]


class SettingsReader:
    """Reads the settings of a session, each only once until one of them changes.

    A statement needs some twenty settings, and each is a command to the JVM. Comparing all settings takes one command.

    Args:
        spark: A session, classic or Connect.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._get = spark.conf.get
        is_remote = Runtime.of(spark).is_connect
        self._client = cast("Any", spark).client if is_remote else None
        self._settings = None if is_remote else session_state(spark).conf().settings()
        self._read: tuple[JavaObject | None, dict[str, str | None]] = (None, {})
        self._names: tuple[JavaObject | None, list[str]] = (None, [])

    def now(self) -> Callable[[str, str | None], str | None]:
        """Return a getter of current settings: `get(key, default)`."""
        if self._settings is None:
            return self._get
        copy, known = self._read
        if copy is None or not self._settings.equals(copy):
            copy, known = self._read = java_class("java.util.HashMap")(self._settings), {}

        def get(key: str, default: str | None) -> str | None:
            if key not in known:
                known[key] = copy.get(key)
            return default if known[key] is None else known[key]

        return get

    def below(self, prefix: str) -> dict[str, str]:
        """Return the current settings whose names begin with a prefix, by the rest of their names."""
        if self._settings is None:
            request = importlib.import_module("pyspark.sql.connect.proto").ConfigRequest
            answer = cast("Any", self._client).config(request.Operation(get_all=request.GetAll(prefix=prefix)))
            return {name: value for name, value in answer.pairs if value is not None}
        get = self.now()
        of, names = self._names
        if of is not (copy := self._read[0]):  # one command for all names, which are many and rarely change
            assert copy is not None
            names = str(java_class("java.lang.String").join("\n", copy.keySet())).split("\n")
            self._names = copy, names
        found = ((name, get(name, None)) for name in names if name.startswith(prefix))
        return {name[len(prefix) :]: value for name, value in found if value is not None}


READERS: Final[WeakKeyDictionary[SparkSession, SettingsReader]] = WeakKeyDictionary()


def settings_of(spark: SparkSession) -> Callable[[str, str | None], str | None]:
    """Return a getter of a session's current settings: `get(key, default)`, as `spark.conf.get`."""
    return settings_reader(spark).now()


def settings_below(spark: SparkSession, prefix: str) -> dict[str, str]:
    """Return the current settings of a session whose names begin with a prefix, by the rest of their names."""
    return settings_reader(spark).below(prefix)


def settings_reader(spark: SparkSession) -> SettingsReader:
    reader = READERS.get(spark)
    if reader is None:
        reader = READERS[spark] = SettingsReader(spark)
    return reader


ORDER: Final = "spark.sql.functionResolution.sessionOrder"


BUILT_INS_FIRST: Final = frozenset({"second", "last"})


PATH: Final = "spark.sql.path.enabled"


BUILT_IN_CLASSES: Final = "org.apache.spark.sql.catalyst."


def replaces_any(spark: SparkSession, names: Iterable[str]) -> bool:
    """Return True if a user-defined function may replace one of these built-in functions.

    Args:
        spark: The session, classic or Connect. It is queried only if there is a name.
        names: Names of built-in functions.
    """
    names = list(names)
    if not names:
        return False
    get = settings_of(spark)
    if (get(ORDER, None) or "last").lower() not in BUILT_INS_FIRST or (get(PATH, None) or "false").lower() != "false":
        return True
    if Feature.FUNCTION_PATH in Runtime.of(spark).features:
        return False
    return not all(is_built_in(spark, name) for name in names)


def is_built_in(spark: SparkSession, name: str) -> bool:
    try:
        found = spark.catalog.getFunction(name)
    except PySparkException:
        return False
    return (found.className or "").startswith(BUILT_IN_CLASSES)
