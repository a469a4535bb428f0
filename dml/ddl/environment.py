"""What these statements need to know of the session: how names resolve, and its time zone. Driver."""

from typing import Protocol

from pyiceberg.catalog import Catalog

__all__ = ["Environment"]


class Environment(Protocol):
    """The session, as far as table and namespace statements need it."""

    def catalog_of(self, parts: tuple[str, ...]) -> tuple[str, Catalog, tuple[str, ...]]:
        """Resolve a table's name.

        Args:
            parts: As written, with or without catalog and namespace.

        Returns:
            The catalog's name, the catalog, and the identifier inside it: namespace and table.

        Raises:
            NotFoundError: no such catalog.
        """
        ...

    def namespace_of(self, parts: tuple[str, ...] | None) -> tuple[str, Catalog, tuple[str, ...]]:
        """Resolve a namespace's name; None is the current namespace, and the catalog alone an empty one.

        Args:
            parts: As written, with or without a catalog.

        Returns:
            The catalog's name, the catalog, and the namespace inside it.

        Raises:
            NotFoundError: no such catalog.
        """
        ...

    def time_zone(self) -> str:
        """The session's time zone, by which TIMESTAMP literals without a zone are read."""
        ...
