"""The catalogs of a session, and the resolution of names in statements. Driver.

Input: the parts of a name as written (`prod.db.t`, `db.t`, `t`, `db.t.branch_audit`, `db.t.snapshots`).
Output: a `ResolvedTable`, or None if no RowDelta catalog has the table and Spark should resolve the name.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from dml.catalog.translation import translate_errors
from dml.catalog.views import load_view
from dml.errors import NotFoundError, NotSupportedError
from dml.hints import did_you_mean, nearest

__all__ = ["METADATA_TABLES", "CatalogRegistry", "ResolvedTable"]

METADATA_TABLES: Final = frozenset(
    {
        "all_data_files",
        "all_delete_files",
        "all_entries",
        "all_files",
        "all_manifests",
        "data_files",
        "delete_files",
        "entries",
        "files",
        "history",
        "manifests",
        "metadata_log_entries",
        "partitions",
        "position_deletes",
        "refs",
        "snapshots",
    }
)
"""Suffixes of a table's name that refer to its metadata tables."""

BRANCH_PREFIX: Final = "branch_"
TAG_PREFIX: Final = "tag_"
SNAPSHOT_PREFIX: Final = "snapshot_id_"
TIMESTAMP_PREFIX: Final = "at_timestamp_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedTable:
    """A resolved table name of a statement.

    Attributes:
        catalog_name: The name of the catalog in the session.
        catalog: The catalog.
        identifier: Namespace and name in the catalog.
        table: The table, loaded once per statement, so that all reads use the same metadata.
        branch: The branch in the name's suffix.
        tag: The tag in the name's suffix.
        metadata_table: The metadata table in the name's suffix.
        snapshot_id: The snapshot in the name's suffix, `snapshot_id_123`.
        timestamp_ms: The time in the name's suffix, `at_timestamp_1700000000000`.
    """

    catalog_name: str
    catalog: Catalog = field(repr=False)
    identifier: tuple[str, ...]
    table: Table = field(repr=False)
    branch: str | None = None
    tag: str | None = None
    metadata_table: str | None = None
    snapshot_id: int | None = None
    timestamp_ms: int | None = None

    @property
    def is_part(self) -> bool:
        """True if the name refers to a branch, tag, snapshot, time or metadata table."""
        return any(
            part is not None
            for part in (self.branch, self.tag, self.metadata_table, self.snapshot_id, self.timestamp_ms)
        )

    @property
    def name(self) -> str:
        """The full dotted name, catalog first."""
        return ".".join((self.catalog_name, *self.identifier))

    @property
    def branch_parts(self) -> tuple[str, ...]:
        """The full name, catalog first, with the branch at its end."""
        suffix = () if self.branch is None else (f"branch_{self.branch}",)
        return (self.catalog_name, *self.identifier, *suffix)

    @property
    def identity(self) -> tuple[str, ...]:
        """A key that identifies the table, or the state of it that the name refers to."""
        parts = (self.branch, self.tag, self.snapshot_id, self.timestamp_ms)
        return (self.name, *("" if part is None else str(part) for part in parts))


def parse_suffix(last: str) -> dict[str, Any]:
    """Parse the last part of a name into fields of `ResolvedTable`; empty if it is not a suffix."""
    folded = last.lower()
    if folded.startswith(BRANCH_PREFIX):
        return {"branch": last[len(BRANCH_PREFIX) :]}
    if folded.startswith(TAG_PREFIX):
        return {"tag": last[len(TAG_PREFIX) :]}
    if folded in METADATA_TABLES:
        return {"metadata_table": folded}
    for prefix, name in ((SNAPSHOT_PREFIX, "snapshot_id"), (TIMESTAMP_PREFIX, "timestamp_ms")):
        number = folded.removeprefix(prefix)
        if number != folded and number.isascii() and number.isdigit():
            return {name: int(number)}
    return {}


@dataclass(slots=True, kw_only=True)
class CatalogRegistry:
    """The catalogs of a session, and the defaults for unqualified names.

    Attributes:
        catalogs: The catalogs by name.
        current_catalog: The catalog of unqualified names.
        current_namespace: The namespace of bare table names.
        is_current_on_connect: On Spark Connect, resolve names without a catalog here first, also in `spark.sql` and
            PySpark calls, because the server cannot have a RowDelta catalog as its current one. Classic Spark tracks
            this itself.
    """

    catalogs: dict[str, Catalog]
    current_catalog: str
    current_namespace: tuple[str, ...] = ("default",)
    is_current_on_connect: bool = False

    def catalog(self, name: str) -> Catalog:
        """Return a catalog by name.

        Raises:
            NotFoundError: The session has no catalog with that name.
        """
        found = self.catalogs.get(name)
        if found is None:
            raise NotFoundError(f"There is no catalog '{name}'", hint=did_you_mean(name, self.catalogs))
        return found

    def split(self, parts: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        """Split a name into the catalog's name and the rest; a bare table name gets the current namespace."""
        if len(parts) > 1 and parts[0] in self.catalogs:
            return parts[0], parts[1:]
        if len(parts) == 1:
            return self.current_catalog, (*self.current_namespace, parts[0])
        return self.current_catalog, parts

    def namespace(self, parts: tuple[str, ...] | None) -> tuple[str, Catalog, tuple[str, ...]]:
        """Resolve a namespace to the catalog's name, the catalog and the namespace inside it.

        Args:
            parts: The name as written, with or without a catalog. None means the current namespace; a catalog alone
                means an empty one.

        Raises:
            NotFoundError: The session has no catalog with that name.
        """
        if parts is None:
            return self.current_catalog, self.catalog(self.current_catalog), self.current_namespace
        if parts[0] in self.catalogs:
            return parts[0], self.catalog(parts[0]), parts[1:]
        return self.current_catalog, self.catalog(self.current_catalog), parts

    def resolve(
        self, parts: tuple[str, ...], loaded: dict[tuple[str, ...], Table] | None = None
    ) -> ResolvedTable | None:
        """Resolve a table name, or return None if no RowDelta catalog has such a table.

        Args:
            parts: The name as written.
            loaded: Tables that the statement has loaded, by catalog and identifier; newly loaded tables are added.
        """
        catalog_name, rest = self.split(parts)
        tables = {} if loaded is None else loaded
        table = self.load(catalog_name, rest, tables)
        if table is not None:
            return self.resolved_table(catalog_name, rest, table)
        if len(parts) == 1 or len(rest) < 2:
            return None
        suffix = parse_suffix(rest[-1])
        if not suffix:
            return None
        rest = rest[:-1]
        if "metadata_table" not in suffix and len(rest) > 1 and rest[-1].lower() in METADATA_TABLES:
            # `t.files.branch_audit`; a table with that name takes precedence.
            table = self.load(catalog_name, rest, tables)
            if table is None:
                suffix["metadata_table"] = rest[-1].lower()
                rest = rest[:-1]
        owner = rest if len(rest) > 1 else (*self.current_namespace, *rest)
        table = self.load(catalog_name, owner, tables)
        return None if table is None else self.resolved_table(catalog_name, owner, table, suffix)

    def find(self, parts: tuple[str, ...]) -> ResolvedTable:
        """Resolve a table name.

        Raises:
            NotFoundError: There is no such table.
            NotSupportedError: The name is that of a view.
        """
        resolved = self.resolve(parts)
        if resolved is not None:
            return resolved
        name, (catalog_name, identifier) = ".".join(parts), self.split(parts)
        if load_view(self.catalog(catalog_name), identifier) is not None:
            raise NotSupportedError(f"'{name}' is a view", hint="Name a table that the view reads", table=name)
        raise NotFoundError(f"There is no table '{name}'", hint=self.suggestion(parts), parts=parts)

    def resolved_table(
        self, catalog_name: str, identifier: tuple[str, ...], table: Table, suffix: Mapping[str, Any] | None = None
    ) -> ResolvedTable:
        """Build the `ResolvedTable` of a loaded table."""
        return ResolvedTable(
            catalog_name=catalog_name,
            catalog=self.catalogs[catalog_name],
            identifier=identifier,
            table=table,
            **(suffix or {}),
        )

    def load(
        self, catalog_name: str, identifier: tuple[str, ...], loaded: dict[tuple[str, ...], Table]
    ) -> Table | None:
        """Load a table by its exact identifier, once per statement; return None if it does not exist."""
        if len(identifier) < 2:
            return None
        key = (catalog_name, *identifier)
        if key not in loaded:
            catalog = self.catalog(catalog_name)
            with translate_errors(f"Loading the table '{'.'.join(identifier)}'", catalog):
                try:
                    loaded[key] = catalog.load_table(identifier)
                except (NoSuchTableError, NoSuchNamespaceError):
                    return None
        return loaded[key]

    def table_names(self, namespace: tuple[str, ...], catalog_name: str) -> list[str]:
        """Return the table names of a namespace, for suggestions; empty if it does not exist."""
        if not namespace:  # for example `lake.t`
            return []
        catalog = self.catalog(catalog_name)
        with translate_errors(f"Listing the tables of '{'.'.join(namespace)}'", catalog):
            try:
                return [identifier[-1] for identifier in catalog.list_tables(namespace)]
            except NoSuchNamespaceError:
                return []

    def suggestion(self, parts: tuple[str, ...], others: Iterable[str] = ()) -> str:
        """Return a hint that suggests names for a table that was not found.

        Args:
            parts: The name as written.
            others: Further names of tables, such as temporary views.
        """
        catalog_name, rest = self.split(parts)
        if len(rest) > 2 and self.resolve(parts[:-1]) is not None:
            kinds = f"branches ('{BRANCH_PREFIX}...') and tags ('{TAG_PREFIX}...')"
            near = nearest(rest[-1], METADATA_TABLES)
            return near or f"A table's name can have a suffix for metadata tables ('snapshots', ...), {kinds}"
        if len(parts) > 2 and parts[0] not in self.catalogs:
            return f"There is no catalog '{parts[0]}'. {did_you_mean(parts[0], self.catalogs)}"
        namespace = rest[:-1]
        if not namespace and not others:
            return f"Include the namespace, for example 'db.{rest[-1]}'"
        known = [*others, *self.table_names(namespace, catalog_name)]
        if known:
            return did_you_mean(rest[-1], known)
        near = nearest(".".join(namespace), [".".join(name) for name in self.catalog(catalog_name).list_namespaces()])
        nothing = f"The catalog '{catalog_name}' has no table in the namespace '{'.'.join(namespace)}'"
        return nothing if near is None or f"'{'.'.join(namespace)}'" in near else f"{nothing}. {near}"
