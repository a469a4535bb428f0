"""RowDelta's catalogs in a Spark session, and the format `iceberg` of its readers and writers. Driver; not on Connect.

Input: a session and its catalogs. Output: the same catalogs under the same names in Spark's `CatalogManager`, so that
`spark.table("lake.db.t")`, `df.writeTo(...)`, `spark.catalog` and views find their tables. Spark instantiates catalogs
from Java class names in its settings; RowDelta's Python catalogs go into the private map where Spark keeps the
instances.

A data source named `iceberg` lets `df.write.format("iceberg").saveAsTable("lake.db.t")` reach the catalog of the table:
Spark looks up the format first and would find none. `load` and `save` with a table name are handled earlier
(`dml.format_calls`); all other uses raise an error with the alternative. If Iceberg's JAR is present, Spark uses
the JAR's format.
"""

import importlib
import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from dml.catalog.registry import CatalogRegistry
from dml.connector.catalog import SparkCatalog
from dml.engine.engine import Engine
from dml.engine.ownership import SESSION_CATALOG
from dml.errors import NotSupportedError, SetupError
from dml.spark.bridge.gateway import JavaObject, Py4JError, Py4JJavaError, python_function
from dml.spark.bridge.internals import works
from dml.spark.bridge.names import CATALOGS
from dml.spark.bridge.sessions import is_connect, jar_loader, session_state, weak_session
from dml.spark.bridge.values import java_class
from dml.spark.callbacks import take_callbacks
from dml.spark.handlers import Binding, StatementHandler, session_key
from dml.spark.lazy_session import LazySession
from dml.spark.runtime import Runtime
from dml.spark.settings import settings_below
from dml.spark_scan.workers import has_python_readers, user_data_source

__all__ = ["check_catalog_settings", "install", "install_in_derived_sessions", "register_format", "uninstall"]

LOG = logging.getLogger(__name__)

ICEBERG: Final = "iceberg"

LOOKED_UP: Final = threading.Event()
"""Set once a session of this process has the format."""


def register_format(spark: SparkSession) -> None:
    """Register the format in a session, unless it has one of that name.

    The first registration makes Spark look for data sources of Python packages, in a Python process that it starts for
    it. That takes nearly a second, so programs that never name the format should not call this.
    """
    if not has_python_readers():
        return
    LOOKED_UP.set()
    inherit_format(spark)


def inherit_format(spark: SparkSession) -> None:
    """Register the format in a session if another session of the process has it, so the slow look-up is over."""
    if not LOOKED_UP.is_set():
        return
    manager = session_state(spark).dataSourceManager()
    if not manager.dataSourceExists(ICEBERG):
        manager.registerDataSource(ICEBERG, user_data_source(python_function(data_source())))


def data_source() -> type:
    """Return the class of the format. It is built at run time because PySpark before 4.0 has no base class for it."""
    base = importlib.import_module("pyspark.sql.datasource").DataSource
    return type("Iceberg", (base,), {"name": classmethod(lambda _: ICEBERG), "__init__": raise_unsupported})


def raise_unsupported(*_: Any, **__: Any) -> None:
    """Raise an error that names the calls to use instead. Worker.

    Raises:
        NotSupportedError: Always.
    """
    raise NotSupportedError(
        "The format 'iceberg' loads and saves tables by name, and this name does not begin with a catalog",
        hint="Give load() and save() a name such as 'lake.db.t', or use spark.table('lake.db.t')",
    )


BUILT_IN: Final = "builtin"
"""The value of the session catalog's setting when it is not set, from Spark 4.0 on."""


def check_catalog_settings(spark: SparkSession, names: Iterable[str]) -> None:
    """Reject settings that define a catalog by a missing class; warn about other leftover settings of Iceberg's JAR.

    A catalog that Spark's settings define stays Spark's. If its class is missing, it fails only at the first table that
    is looked up in it.

    Args:
        spark: The session; Spark Connect sessions are not checked.
        names: RowDelta's catalogs. Spark's session catalog is checked too, because every statement may need it.

    Raises:
        SetupError: A setting names a missing class.
    """
    if Runtime.of(spark).is_connect:
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
    catalogs, extensions = settings_below(spark, CATALOG_SETTINGS), spark.conf.get(EXTENSION_SETTING, None) or ""
    for message in leftover_settings(catalogs, extensions, partial(has_class, spark)):
        if message not in WARNED:
            WARNED.add(message)
            LOG.warning("%s", message)


WARNED: Final[set[str]] = set()
"""The warnings of `check_catalog_settings` so far: each is logged once."""

CATALOG_SETTINGS: Final = "spark.sql.catalog."
EXTENSION_SETTING: Final = "spark.sql.extensions"
OF_THE_JAR: Final = "org.apache.iceberg."


def leftover_settings(catalogs: Mapping[str, str], extensions: str, is_present: Callable[[str], bool]) -> Iterator[str]:
    """Yield a warning for each setting for Iceberg's JAR whose class is missing.

    They do not affect RowDelta's catalogs: Spark ignores an extension that it cannot load, and a catalog fails only
    when a statement names it.

    Args:
        catalogs: The settings that begin with `spark.sql.catalog.`, by the rest of their names.
        extensions: The value of `spark.sql.extensions`.
        is_present: Returns whether Spark finds a class.
    """
    for name, kind in catalogs.items():
        if "." not in name and kind.startswith(OF_THE_JAR) and not is_present(kind):
            yield (
                f"Spark's setting {CATALOG_SETTINGS}{name} is for Iceberg's JAR, which is not on the class path. "
                f"Remove it and all that begin with it; add_catalog('{name}', ...) makes the catalog available"
            )
    for kind in map(str.strip, extensions.split(",")):
        if kind.startswith(OF_THE_JAR) and not is_present(kind):
            yield (
                f"Spark's setting {EXTENSION_SETTING} names {kind} of Iceberg's JAR, which is not on the class path. "
                "Remove it: RowDelta needs no extension, and dml.extend(builder) adds its own"
            )


def install(engine: Engine) -> bool:
    """Register RowDelta's catalogs with Spark; catalogs that are registered already are replaced.

    A catalog that Spark's own settings define (`spark.sql.catalog.<name>`) stays Spark's.

    Args:
        engine: The session and its catalogs.

    Returns:
        False on Spark Connect and on a Spark that cannot run Python readers, else True.
    """
    return put_catalogs(engine, lambda: engine)


def install_in_derived_sessions(binding: Binding, registry: CatalogRegistry) -> Binding:
    """Wrap a binding for derived sessions, to install the catalogs in each when it is first used.

    Args:
        binding: Returns the handler of such a session.
        registry: The session's catalogs.
    """
    seen: set[str] = set()

    def bind(spark: SparkSession) -> StatementHandler:
        key = session_key(spark)
        if key not in seen and not is_connect(spark):  # `Runtime` would send a request for a session of others
            seen.add(key)
            # Nothing reports the end of such a session: a catalog with a strong reference would keep both forever.
            session = weak_session(spark)
            put_catalogs(
                Engine(lazy_session=LazySession(spark), registry=registry),
                lambda: Engine(lazy_session=LazySession(session()), registry=registry),
            )
        return binding(spark)

    return bind


def put_catalogs(engine: Engine, provide: Callable[[], Engine]) -> bool:
    """Register the catalogs in the map where a session's Spark looks for them; return False if that is impossible.

    Args:
        engine: The session and its catalogs.
        provide: Returns both when a catalog needs them.
    """
    if engine.runtime.is_connect:
        return False
    if not has_python_readers() or not works(
        "the registry of catalogs", lambda: catalogs_of(engine), CATALOGS.fallback
    ):
        return False
    catalogs = catalogs_of(engine)
    take_callbacks()
    inherit_format(engine.spark)
    for name in engine.registry.catalogs:
        if name != SESSION_CATALOG and engine.spark.conf.get(f"spark.sql.catalog.{name}", None) is None:
            catalogs.put(name, SparkCatalog(provide, name))
    return True


def uninstall(engine: Engine) -> None:
    """Remove a session's catalogs from Spark. Do nothing if there are none or the session has ended."""
    if is_connect(engine.spark):  # `Runtime` may need a session that has ended
        return
    try:
        catalogs = catalogs_of(engine)
        installed = [name for name in engine.registry.catalogs if is_rowdelta_catalog(catalogs.get(name))]
        if engine.spark.catalog.currentCatalog() in installed:
            engine.spark.catalog.setCurrentCatalog(SESSION_CATALOG)  # or Spark could not resolve any name
        for name in installed:
            catalogs.remove(name)
    except (Py4JError, PySparkException, OSError, SetupError):
        return  # the JVM or the session has ended, together with the catalogs; or this Spark keeps them elsewhere


def catalogs_of(engine: Engine) -> JavaObject:
    """Return the map in which Spark keeps a session's catalogs.

    Raises:
        UnknownInternalsError: This Spark keeps them elsewhere.
    """
    catalogs = CATALOGS.of(session_state(engine.spark).catalogManager())
    catalogs.get("")  # fails unless it is a Scala map
    return catalogs


def is_rowdelta_catalog(found: JavaObject) -> bool:
    """Return True if a name is registered and its catalog is implemented in Python."""
    return bool(found.nonEmpty()) and bool(java_class("java.lang.reflect.Proxy").isProxyClass(found.get().getClass()))


def has_class(spark: SparkSession, name: str) -> bool:
    """Return whether the JVM finds a class, including in JARs that were added to the running session."""
    loader = jar_loader(spark)
    try:
        java_class("java.lang.Class").forName(name, False, loader)
    except Py4JJavaError as error:
        return str(error.java_exception.getClass().getSimpleName()) != "ClassNotFoundException"
    return True
