"""Our catalogs in a Spark session. Driver; on Spark Connect nothing happens.

Input: a session and its catalogs. Output: the same catalogs under the same names in Spark's `CatalogManager`, so that
`spark.table("lake.db.t")`, `df.writeTo(...)`, `spark.catalog` and views find their tables. Spark makes catalogs of Java
classes that its settings name; ours are put where Spark keeps the ones that it has made, in a field that has no name
for others.
"""

from collections.abc import Callable, Iterable
from typing import Final

from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.catalog.registry import CatalogRegistry
from dml.connector.catalog import SparkCatalog
from dml.connector.iceberg_format import inherit_format
from dml.engine.current import SESSION_CATALOG
from dml.engine.engine import Engine, is_connect
from dml.errors import SetupError
from dml.spark.handlers import Binding, StatementHandler, session_key
from dml.spark.internals import works
from dml.spark.java import java_class
from dml.spark.jvm import classic_session, field_of, jvm_view, session_state, take_callbacks, weak_session
from dml.spark_scan.workers import has_python_readers

__all__ = ["check_catalog_settings", "inheriting", "install", "uninstall"]

BUILT_IN: Final = "builtin"
"""The value of the session catalog's setting when it is not set, from Spark 4.0 on."""


def check_catalog_settings(spark: SparkSession, names: Iterable[str]) -> None:
    """Refuse settings that define a catalog by a missing class, such as settings for Iceberg's JAR without the JAR.

    A catalog that Spark's settings define stays Spark's. If its class is missing, it fails only at the first table that
    is looked up in it.

    Args:
        spark: The session; Spark Connect sessions are not checked.
        names: RowDelta's catalogs. Spark's session catalog is checked too, because every statement may need it.

    Raises:
        SetupError: there is such a setting.
    """
    if is_connect(spark):
        return
    for name in (*names, SESSION_CATALOG):
        key = f"spark.sql.catalog.{name}"
        kind = spark.conf.get(key, None)
        if kind is None or kind == BUILT_IN or has_class(spark, kind):
            continue
        instead = "" if name == SESSION_CATALOG else f": dml.connect makes the catalog '{name}' itself"
        raise SetupError(
            f"Spark's setting {key} names the class {kind}, which is not on the class path",
            hint=f"Remove this setting and all that begin with {key}{instead}. Or add the JAR that has the class",
            setting=key,
        )


WITHOUT_CATALOGS: Final = "Spark works without RowDelta's catalogs; only SQL finds RowDelta's tables"


def install(engine: Engine) -> bool:
    """Let Spark find the catalogs of a session; those that it has already are put anew.

    A catalog that Spark's own settings define (`spark.sql.catalog.<name>`) stays Spark's.

    Args:
        engine: The session and its catalogs.

    Returns:
        Whether it has them now: not on Spark Connect, nor on a Spark that cannot run Python readers.
    """
    return put(engine, lambda: engine)


def inheriting(binding: Binding, registry: CatalogRegistry) -> Binding:
    """A binding for sessions that are made of others, which gives such a session the catalogs when it is first used.

    Args:
        binding: Says which handler such a session has.
        registry: Its catalogs.
    """
    seen: set[str] = set()

    def bound(spark: SparkSession) -> StatementHandler:
        key = session_key(spark)
        if key not in seen and not is_connect(spark):
            seen.add(key)
            # Such a session comes and goes unseen: a catalog that held it would keep both for ever.
            session = weak_session(spark)
            put(Engine(spark=spark, registry=registry), lambda: Engine(spark=session(), registry=registry))
        return binding(spark)

    return bound


def put(engine: Engine, provide: Callable[[], Engine]) -> bool:
    """Put the catalogs where a session's Spark looks for them; whether they are there now.

    Args:
        engine: The session and its catalogs.
        provide: Gives both to the catalogs, when these are asked.
    """
    if is_connect(engine.spark):
        return False
    if not has_python_readers() or not works("the registry of catalogs", lambda: catalogs_of(engine), WITHOUT_CATALOGS):
        return False
    catalogs = catalogs_of(engine)
    take_callbacks()
    inherit_format(engine.spark)
    for name in engine.registry.catalogs:
        if name != SESSION_CATALOG and engine.spark.conf.get(f"spark.sql.catalog.{name}", None) is None:
            catalogs.put(name, SparkCatalog(provide, name))
    return True


def uninstall(engine: Engine) -> None:
    """Leave Spark without the catalogs of a session; nothing happens where it has none, or has ended."""
    if is_connect(engine.spark):
        return
    try:
        catalogs = catalogs_of(engine)
        ours = [name for name in engine.registry.catalogs if is_ours(catalogs.get(name))]
        if engine.spark.catalog.currentCatalog() in ours:
            engine.spark.catalog.setCurrentCatalog(SESSION_CATALOG)  # or Spark would find no table at all
        for name in ours:
            catalogs.remove(name)
    except (Py4JError, PySparkException, OSError, AttributeError):
        return  # the JVM or the session has ended, and with it the catalogs; or this Spark keeps them elsewhere


def catalogs_of(engine: Engine) -> JavaObject:
    """Return the map in which Spark keeps a session's catalogs.

    Raises:
        AttributeError: this Spark keeps them elsewhere.
    """
    catalogs = field_of(session_state(engine.spark).catalogManager(), "catalogs")
    catalogs.get("")  # a map of Scala's
    return catalogs


def is_ours(found: JavaObject) -> bool:
    """Whether what is under a name, if anything is, is implemented in Python."""
    return bool(found.nonEmpty()) and bool(java_class("java.lang.reflect.Proxy").isProxyClass(found.get().getClass()))


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the JVM finds a class, including in JARs that were added to the running session."""
    loader = classic_session(spark).sharedState().jarClassLoader()
    try:
        jvm_view().java.lang.Class.forName(name, False, loader)
    except Py4JJavaError as error:
        return str(error.java_exception.getClass().getSimpleName()) != "ClassNotFoundException"
    return True
