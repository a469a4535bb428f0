"""What names without a catalog mean on Spark Connect, and what `spark.catalog` says of current ones. Driver.

Input: names as written, and PySpark's own methods. Output: names with their catalog; answers. The server's current
catalog is none of ours: while one of ours was entered, by `USE` or `setCurrentCatalog`, names without a catalog are
looked up in it, behind the server's temporary views, and the server goes on with its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.catalog import CatalogMetadata, Database

from dml.catalog import list_namespaces
from dml.ddl import matching
from dml.engine.current import names_a_catalog_of_spark
from dml.engine.dispatch import run_use
from dml.engine.engine import Engine, is_connect
from dml.errors import NotFoundError
from dml.remote.catalog import Namespaces
from dml.remote.refusals import ErrorCondition, refusal, said_by
from dml.spark.handlers import is_temporary_view, running
from dml.sqlparse.names import name_parts
from dml.sqlparse.quoting import quote_name, quoted
from dml.sqlparse.statements import Span, Use

__all__ = ["CurrentCatalog", "whole_namespace_name", "whole_table_name"]

Parts = tuple[str, ...]
GLOBAL_TEMPORARY = "global_temp"


def whole_table_name(engine: Engine, parts: Parts) -> Parts:
    """The name of a table with its catalog first; empty where it is Spark's.

    Args:
        engine: The session and its catalogs.
        parts: The name as written.
    """
    registry = engine.registry
    if len(parts) > 1 and parts[0] in registry.catalogs:
        return parts
    if not parts or not is_entered(engine) or is_sparks(engine, parts):
        return ()
    if len(parts) == 1 and is_temporary_view(engine.spark, parts[0]):
        return ()
    name, identifier = registry.split(parts)
    return (name, *identifier)


def whole_namespace_name(engine: Engine, parts: Parts) -> Parts:
    """The name of a namespace with its catalog first, the current one's where there is none; empty where it is Spark's.

    Args:
        engine: The session and its catalogs.
        parts: The name as written.
    """
    registry = engine.registry
    if len(parts) > 1 and parts[0] in registry.catalogs:
        return parts
    if not is_entered(engine) or (parts and is_sparks(engine, parts)):
        return ()
    return (registry.current_catalog, *(parts or registry.current_namespace))


def is_entered(engine: Engine) -> bool:
    """Whether names without a catalog are ours."""
    return is_connect(engine.spark) and engine.registry.is_entered


def is_sparks(engine: Engine, parts: Parts) -> bool:
    """Whether a name begins with a catalog of Spark's, or its namespace of temporary views."""
    if parts[0].lower() == GLOBAL_TEMPORARY:
        return True
    return len(parts) > 1 and names_a_catalog_of_spark(engine, parts[0])


Answer = Callable[[Callable[[], Any]], Any]
"""Runs a call, given PySpark's own method."""


@dataclass(frozen=True, slots=True)
class CurrentCatalog:
    """Methods of `spark.catalog` that name no table.

    Each takes the arguments of a call and returns a function that runs it, or None if the call is Spark's.

    Attributes:
        engine: The session and its catalogs.
    """

    engine: Engine

    def answers(self) -> Mapping[str, Callable[..., Answer | None]]:
        """The methods, by PySpark's names of them."""
        return {
            "currentCatalog": self.name,
            "currentDatabase": self.namespace,
            "listCatalogs": self.catalogs,
            "listDatabases": self.namespaces,
            "setCurrentCatalog": self.enter,
            "setCurrentDatabase": self.enter_namespace,
        }

    def name(self) -> Answer | None:
        """`currentCatalog`."""
        return (lambda _: self.engine.registry.current_catalog) if is_entered(self.engine) else None

    def namespace(self) -> Answer | None:
        """`currentDatabase`."""
        return (lambda _: quote_name(self.engine.registry.current_namespace)) if is_entered(self.engine) else None

    def catalogs(self, pattern: str | None = None) -> Answer | None:
        """`listCatalogs`: the server's, and ours."""
        names = matching(self.engine.registry.catalogs, pattern)
        ours = [CatalogMetadata(name=name, description=None) for name in names]

        def listed(original: Callable[[], list[CatalogMetadata]]) -> list[CatalogMetadata]:
            theirs = original()
            known = {getattr(found, "name", None) for found in theirs}
            return [*theirs, *(found for found in ours if found.name not in known)]

        return listed

    def namespaces(self, pattern: str | None = None) -> Answer | None:
        """`listDatabases`: of the current catalog."""
        return (lambda _: self._namespaces(pattern)) if is_entered(self.engine) else None

    def _namespaces(self, pattern: str | None) -> list[Database]:
        registry, namespaces = self.engine.registry, Namespaces(self.engine)
        catalog = registry.current_catalog
        names = {quote_name(found): found for found in list_namespaces(registry.catalog(catalog), ())}
        return [namespaces.get((catalog, *names[name])) for name in matching(names, pattern)]

    def enter(self, catalogName: str) -> Answer | None:  # noqa: N803  PySpark's name
        """`setCurrentCatalog`."""
        if catalogName in self.engine.registry.catalogs:
            return lambda _: self._use((catalogName,), catalog_only=True)
        return self._leave if is_entered(self.engine) else None

    def _leave(self, original: Callable[[], None]) -> None:
        original()
        self.engine.registry.is_entered = False

    def enter_namespace(self, dbName: str) -> Answer | None:  # noqa: N803  PySpark's name
        """`setCurrentDatabase`."""
        return (lambda _: self._enter_namespace(dbName)) if is_entered(self.engine) else None

    def _enter_namespace(self, name: str) -> None:
        parts = name_parts(name)
        try:
            self._use((self.engine.registry.current_catalog, *parts))
        except NotFoundError as error:
            raise refusal(ErrorCondition.SCHEMA_NOT_FOUND, parts, said_by(error)) from error

    def _use(self, name: Parts, *, catalog_only: bool = False) -> None:
        text = ".".join(map(quoted, name))
        with running():
            run_use(self.engine, Use(name=name, span=Span(0, len(text)), catalog_only=catalog_only), text)
