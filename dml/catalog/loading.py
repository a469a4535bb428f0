"""Loads catalogs by name or properties, and the embedded catalog, which needs no server. Driver.

Input: a name, a warehouse folder, properties. Output: a PyIceberg catalog that handles format versions 1 to 3. Requests
of REST catalogs have timeouts.
"""

import sqlite3
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from pyiceberg.catalog import Catalog, CatalogType, infer_catalog_type, list_catalogs, load_catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config, merge_config
from sqlalchemy import URL, make_url
from sqlalchemy.exc import DatabaseError, IntegrityError, OperationalError, ProgrammingError

from dml import limits
from dml.catalog.file_access import restrict_files
from dml.catalog.translation import error_text
from dml.errors import DmlError, NotFoundError, SetupError
from dml.iceberg import support_format_version_3

__all__ = ["DATABASE_FILE", "embedded_database", "is_embedded", "load"]

DATABASE_FILE: Final = "catalog.db"
"""The embedded catalog's SQLite file in its warehouse folder."""

SNAPSHOT_LOADING_MODE: Final = "snapshot-loading-mode"

DAMAGE_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
"""SQLite's error codes for a damaged database, and for a file that is not a database."""

KINDS: Final = ("uri", "type", "py-catalog-impl")
LIBPQ_DRIVERS: Final = frozenset({"psycopg", "psycopg2"})


def load(name: str, warehouse: str | None = None, **properties: object) -> Catalog:
    """Load a catalog.

    If the properties include `uri`, `type` or `py-catalog-impl`, or if `.pyiceberg.yaml` or the environment configures
    the name, this loads that catalog. Otherwise it loads the embedded one: PyIceberg's SQL catalog on a SQLite file in
    the warehouse folder, next to the tables' files.

    Args:
        name: The catalog's name.
        warehouse: For the embedded catalog a local folder, created if it does not exist; other catalogs interpret it.
        **properties: PyIceberg's properties of the catalog and of its FileIO.

    Returns:
        The catalog.

    Raises:
        NotFoundError: The catalog is not configured.
        SetupError: It cannot be loaded: a package, a setting or the server is missing.
    """
    settings = {key: property_value(value) for key, value in properties.items() if value is not None}
    configured: dict[str, Any] = {}
    try:
        configured.update(Config().get_catalog_config(name) or {})
        catalog = connect_catalog(name, warehouse, configured, settings)
    except DmlError:
        raise
    except Exception as error:  # noqa: BLE001 - drivers, servers and missing packages raise anything
        # Text and cause of the error may contain credentials: the text is masked, the cause is dropped.
        text = error_text(error, merge_config(configured, settings))
        raise SetupError(
            f"The catalog '{name}' cannot be loaded: {type(error).__name__}: {text}",
            hint="Check its uri, its credentials and that PyIceberg's extra for its type is installed",
            catalog=name,
        ) from None
    # PyIceberg would load only the heads of branches and tags, and orphan removal would delete the files of other
    # snapshots, which time travel and the checks of concurrent commits need, too.
    catalog.properties.pop(SNAPSHOT_LOADING_MODE, None)
    return restrict_files(support_format_version_3(catalog))


def connect_catalog(name: str, warehouse: str | None, configured: dict[str, Any], settings: dict[str, Any]) -> Catalog:
    if not is_embedded(name, settings):
        given = {**settings, **({"warehouse": warehouse} if warehouse else {})}
        return make_catalog(name, given, merge_config(configured, given))
    if warehouse is not None:
        return embedded_catalog(name, warehouse, settings)
    raise NotFoundError(
        f"The catalog '{name}' is not configured",
        hint="Give a warehouse folder, properties such as uri='http://...', or settings in .pyiceberg.yaml; "
        f"configured are: {', '.join(sorted(list_catalogs())) or 'none'}",
    )


def is_embedded(name: str, properties: Mapping[str, object]) -> bool:
    """Return True if `load` with a warehouse loads the embedded catalog, because no other one is configured."""
    return not any(properties.get(kind) is not None for kind in KINDS) and name not in list_catalogs()


def make_catalog(name: str, given: dict[str, Any], merged: dict[str, Any]) -> Catalog:
    """Create PyIceberg's catalog with timeouts, so that an unresponsive server cannot block forever."""
    match kind_of(name, merged):
        case CatalogType.REST if "uri" in merged:
            # Imported here because it loads an HTTP client and the models of a protocol, a tenth of a second.
            return import_module("dml.catalog.rest").BoundedRestCatalog(name, **merged)  # type: ignore[no-any-return]
        case CatalogType.SQL if isinstance(merged.get("uri"), str):
            return sql_catalog(name, {**given, "uri": with_timeout(merged["uri"])})
        case _:
            return load_catalog(name, **given)


def kind_of(name: str, merged: dict[str, Any]) -> CatalogType | None:
    """Return the catalog type that PyIceberg would infer, or None to let PyIceberg raise the error."""
    if "py-catalog-impl" in merged:
        return None
    try:
        return CatalogType(merged["type"].lower()) if merged.get("type") else infer_catalog_type(name, merged)
    except (ValueError, AttributeError):
        return None


def sql_catalog(name: str, given: dict[str, Any]) -> Catalog:
    try:
        return load_catalog(name, **given)
    except (IntegrityError, ProgrammingError):
        # Two processes may both find the database empty and create the tables; on the second try they exist.
        return load_catalog(name, **given)


def with_timeout(uri: str) -> str:
    """Add a connect timeout to a database URI if the driver supports one and none is set."""
    url = make_url(uri)
    if url.get_backend_name() != "postgresql" or "connect_timeout" in url.query:
        return uri
    if url.drivername.partition("+")[2] not in LIBPQ_DRIVERS | {""}:
        return uri
    bounded = url.update_query_dict({"connect_timeout": str(limits.DATABASE_CONNECT_SECONDS)})
    return bounded.render_as_string(hide_password=False)


def property_value(value: object) -> Any:
    """Convert a property to PyIceberg's form: text, or nested settings such as `auth`."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, dict) else str(value)


def embedded_catalog(name: str, warehouse: str, settings: dict[str, str]) -> SqlCatalog:
    folder = local_folder(name, warehouse)
    database = folder / DATABASE_FILE
    uri = URL.create("sqlite", database=str(database), query={"timeout": str(limits.CATALOG_LOCK_SECONDS)})
    settings = {**settings, "uri": uri.render_as_string(hide_password=False), "warehouse": f"file://{folder}"}
    try:
        prepare_database(database)
        try:
            return SqlCatalog(name, **settings)
        except OperationalError:
            # Two processes may both find the file empty and create the tables; on the second try they exist.
            return SqlCatalog(name, **settings)
    except (sqlite3.DatabaseError, DatabaseError) as error:
        cause = error.orig if isinstance(error, DatabaseError) else error
        if getattr(cause, "sqlite_errorcode", None) not in DAMAGE_CODES:
            raise
        raise SetupError(
            f"The database '{database}' of the embedded catalog '{name}' is damaged: {cause}",
            hint="Restore it from a backup. Without a backup, move the file away, and add each table again with "
            "CALL system.register_table and its newest metadata file",
            catalog=name,
            file=str(database),
        ) from None


def embedded_database(warehouse: str) -> Path:
    """Return the path of the embedded catalog's SQLite file for a warehouse folder, whether it exists or not."""
    path = warehouse.removeprefix("file://") if warehouse.startswith("file://") else warehouse.removeprefix("file:")
    return Path(path).expanduser().absolute() / DATABASE_FILE


def local_folder(name: str, warehouse: str) -> Path:
    if "://" in warehouse.removeprefix("file://"):
        raise SetupError(
            f"The embedded catalog '{name}' keeps its tables in a local folder, not in '{warehouse}'",
            hint="Give the uri of a catalog, for example uri='http://...' of a REST catalog, beside the warehouse",
            catalog=name,
        )
    folder = embedded_database(warehouse).parent
    if any(character in str(folder) for character in "#?%"):
        raise SetupError(
            f"The path of the warehouse '{folder}' has one of the characters # ? %",
            hint="Choose another folder: Iceberg locations cannot hold them",
            catalog=name,
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(f"The warehouse '{folder}' cannot be created: {error.strerror}", catalog=name) from error
    return folder


def prepare_database(database: Path) -> None:
    # With a write-ahead log readers never wait for a writer. The mode is stored in the file. On a file system without
    # shared memory SQLite keeps its old mode.
    connection = sqlite3.connect(database, timeout=limits.CATALOG_LOCK_SECONDS)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
