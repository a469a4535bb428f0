"""The session as table and namespace statements see it. Driver."""

from dataclasses import dataclass

from pyiceberg.catalog import Catalog

from dml.engine.engine import Engine

__all__ = ["SessionEnvironment"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnvironment:
    """Implements `dml.ddl.environment.Environment`.

    Attributes:
        engine: The session's means.
        time_zone_name: `spark.sql.session.timeZone`.
    """

    engine: Engine
    time_zone_name: str

    def catalog_of(self, parts: tuple[str, ...]) -> tuple[str, Catalog, tuple[str, ...]]:
        """The catalog and identifier of a table's name."""
        registry = self.engine.registry
        name, identifier = registry.split(parts)
        return name, registry.catalog(name), identifier

    def namespace_of(self, parts: tuple[str, ...] | None) -> tuple[str, Catalog, tuple[str, ...]]:
        """The catalog and namespace of a namespace's name."""
        registry = self.engine.registry
        if parts is None:
            return registry.current_catalog, registry.catalog(registry.current_catalog), registry.current_namespace
        if parts[0] in registry.catalogs:
            return parts[0], registry.catalog(parts[0]), parts[1:]
        return registry.current_catalog, registry.catalog(registry.current_catalog), parts

    def time_zone(self) -> str:
        """The session's time zone."""
        return self.time_zone_name
