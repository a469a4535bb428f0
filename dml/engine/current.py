"""Where Spark looks names without a catalog up, and that it is in a catalog of ours. Driver.

Spark has a current catalog of its own: `spark_catalog`, unless `spark.sql.defaultCatalog` or
`spark.catalog.setCurrentCatalog` say another. While it is one of ours, the session's registry and Spark mean the same
by a name: names without a catalog are ours, those of namespaces too, and `USE` changes both. Otherwise they are
Spark's first.

A server of Spark Connect that is not ours cannot have one of ours: there the registry says whether it was entered.
"""

import logging
from contextlib import suppress
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from dml.engine.engine import Engine, is_connect
from dml.spark.jvm import activate
from dml.spark.versions import Feature, has
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name

__all__ = ["DEFAULT_NAMESPACE", "SESSION_CATALOG", "enter", "follow_spark", "leaves_ours", "names_a_catalog_of_spark"]

LOG = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final[tuple[str, ...]] = ("default",)
"""The current namespace of a catalog that has just become the current one; it need not be there."""

SESSION_CATALOG: Final = "spark_catalog"


def follow_spark(engine: Engine) -> bool:
    """Make Spark's current catalog and namespace the registry's, if the catalog is one of ours.

    Args:
        engine: The session and its catalogs.

    Returns:
        Whether it is.
    """
    if is_connect(engine.spark):
        return engine.registry.is_entered
    if not has(Feature.DATA_SOURCE_V2):
        return False
    catalog, registry = engine.spark.catalog, engine.registry
    try:
        activate(engine.spark)
        name = catalog.currentCatalog()
        if name not in registry.catalogs:
            return False
        namespace = name_parts(catalog.currentDatabase())
    except (PySparkException, Py4JError, OSError, AttributeError) as error:
        # Its default catalog is none that it can make, or it has ended: whatever it is, the statement meets it again.
        LOG.debug("Spark cannot be asked for its current catalog: %s", error)
        return False
    registry.current_catalog, registry.current_namespace = name, namespace or DEFAULT_NAMESPACE
    return True


def enter(engine: Engine, name: str, namespace: tuple[str, ...]) -> None:
    """Make a catalog of ours, and a namespace in it, Spark's current one, so that `spark.table` finds short names.

    Nothing happens where Spark does not know the catalog: the session is a classic one that is not enabled.

    Args:
        engine: The session and its catalogs.
        name: The catalog.
        namespace: The namespace, which is there unless it is the default one.
    """
    if is_connect(engine.spark):
        engine.registry.is_entered = True
        return
    if not has(Feature.DATA_SOURCE_V2):
        return
    catalog = engine.spark.catalog
    with suppress(PySparkException, Py4JError):
        if namespace == DEFAULT_NAMESPACE:
            catalog.setCurrentCatalog(SESSION_CATALOG)  # a catalog that is entered has its default namespace
        catalog.setCurrentCatalog(name)
        if namespace != DEFAULT_NAMESPACE:
            catalog.setCurrentDatabase(quote_name(namespace))


def names_a_catalog_of_spark(engine: Engine, name: str) -> bool:
    """Whether the first part of a name is a catalog that Spark has and we do not."""
    if name in engine.registry.catalogs:
        return False
    return name == SESSION_CATALOG or engine.spark.conf.get(f"spark.sql.catalog.{name}", None) is not None


def leaves_ours(engine: Engine, name: tuple[str, ...]) -> bool:
    """Whether `USE name` goes from a catalog of ours to one of Spark's, on Spark Connect."""
    return is_connect(engine.spark) and engine.registry.is_entered and names_a_catalog_of_spark(engine, name[0])
