"""Restricts the tables of a catalog to the catalog's storage locations. Driver.

Input: a PyIceberg catalog. Output: the same catalog, whose tables have a FileIO that refuses other files.

PyIceberg merges a table's properties into those of the catalog for the table's FileIO. Settings that select the FileIO,
the files that it may open, and the endpoints that receive the catalog's credentials are only taken from the catalog.
Endpoints may also come from a REST server's configuration for the table, but never from table metadata.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from dml.errors import NotSupportedError
from dml.files.file_io import with_single_puts
from dml.files.schemes import ALLOWED_SCHEMES, allowed_schemes, check_location, restrict_schemes
from dml.files.table_metadata import read_table_metadata
from dml.lazy_imports import loaded_class
from dml.options import WRITE_METADATA_PATH

__all__ = ["check_new_location", "metadata_at", "metadata_read_once", "restrict_files"]

NO_FOLDERS: Final = frozenset({"", ".", ".."})
NOT_IN_FOLDERS: Final = re.compile(r"[/#?\x00-\x1f\x7f]")
# Properties that name classes to load, or widen what may be opened.
NOT_FROM_TABLES: Final = frozenset(
    {"py-io-impl", "s3.retry-strategy-impl", "DEFAULT_SCHEME", "DEFAULT_NETLOC", ALLOWED_SCHEMES}
)
# Prefixes of properties that locate storages and servers, which receive the catalog's credentials.
PLACES: Final = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "uri", "token", "credential", "auth")


def restrict_files(catalog: Catalog) -> Catalog:
    """Restrict a catalog's tables to the locations that the catalog is configured for.

    Returns:
        The same catalog, modified in place.
    """
    load_any = catalog._load_file_io  # noqa: SLF001 - the one method through which all catalogs open files
    # For REST catalogs these properties include the server's configuration for the table.
    is_rest = isinstance(catalog, loaded_class("pyiceberg.catalog.rest", "RestCatalog"))
    places = () if is_rest else PLACES

    def load_restricted(properties: Any = None, location: str | None = None) -> FileIO:
        given = {
            key: value
            for key, value in (properties or {}).items()
            if key not in NOT_FROM_TABLES and not key.startswith(places)
        }
        io = with_single_puts(load_any(given, location))
        return restrict_schemes(io, allowed_schemes(catalog.properties, io.properties, location or ""))

    setattr(catalog, "_load_file_io", load_restricted)  # noqa: B010 - replaces the method of this object only
    if isinstance(catalog, SqlCatalog):
        read_metadata_restricted(catalog)
    if is_rest:
        for name in ("_response_to_table", "_response_to_staged_table"):
            setattr(catalog, name, partial(table_of_answer, getattr(catalog, name)))
    return catalog


KNOWN: Final[ContextVar[dict[str, TableMetadata] | None]] = ContextVar("KNOWN", default=None)


@contextmanager
def metadata_read_once() -> Iterator[None]:
    """Read each metadata file of a SQL catalog once while the block runs in this thread.

    A statement loads its table when it starts, when it commits, and when the catalog processes the commit. Each time
    the catalog returns the location of the metadata file, which changes only with another commit.
    """
    if KNOWN.get() is not None:
        yield
        return
    token = KNOWN.set({})
    try:
        yield
    finally:
        KNOWN.reset(token)


def table_of_answer(make: Callable[[Any, Any], Any], identifier: Any, answer: Any) -> Any:
    """Build the table of a server's response, whose FileIO takes no locations from table metadata."""
    table, metadata = make(identifier, answer), answer.metadata
    harmless = {key: value for key, value in metadata.properties.items() if not key.startswith(PLACES)}
    plain = answer.model_copy(update={"metadata": metadata.model_copy(update={"properties": harmless})})
    table.io = make(identifier, plain).io
    return table


def check_new_location(
    catalog: Catalog, identifier: tuple[str, ...], location: str | None, properties: Mapping[str, str]
) -> None:
    """Refuse a location for a new table that the catalog could not load, or that another table could share.

    Args:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        location: The user's location; None lets the catalog choose.
        properties: The properties of the table; they may set another folder for its metadata.

    Raises:
        NotSupportedError: The catalog is not configured for files there; or it builds the location from the names, and
            one of them is not a folder name.
    """
    if location is not None or isinstance(catalog, MetastoreCatalog):
        io = catalog._load_file_io(location=location)  # noqa: SLF001
        for place in (location, properties.get(WRITE_METADATA_PATH)):
            if place is not None:
                check_location(io, place)
    if location is not None:
        return
    bad = next((part for part in identifier if part in NO_FOLDERS or NOT_IN_FOLDERS.search(part)), None)
    if isinstance(catalog, MetastoreCatalog) and bad is not None:
        raise NotSupportedError(
            f"The name {bad!r} cannot be that of a folder, and the catalog makes the table's location of its names",
            hint="Give the table a LOCATION, or a name without / # ? and control characters",
            name=bad,
        )


def metadata_at(catalog: Catalog, location: str) -> TableMetadata:
    """Read a metadata file with the FileIO of a catalog.

    Raises:
        CorruptFileError: The file is missing or is not a metadata file.
        NotSupportedError: The catalog is not configured for files there.
        ExecutionError: The storage failed.
    """
    return read_table_metadata(catalog._load_file_io(location=location), location)  # noqa: SLF001


def read_metadata_restricted(catalog: SqlCatalog) -> None:
    """Make a SQL catalog read metadata files through the restricted FileIO.

    PyIceberg opens the metadata file without the method that `restrict_files` replaces, and with less helpful errors.
    Incomplete rows are passed to PyIceberg, which rejects them.
    """
    convert = catalog._convert_orm_to_iceberg  # noqa: SLF001

    def load_table(row: Any) -> Table:
        if not (row.metadata_location and row.table_namespace and row.table_name):
            return convert(row)
        location = row.metadata_location
        known = KNOWN.get()
        metadata = None if known is None else known.get(location)
        if metadata is None:
            metadata = metadata_at(catalog, location)
            if known is not None:
                known[location] = metadata
        return Table(
            identifier=(*Catalog.identifier_to_tuple(row.table_namespace), row.table_name),
            metadata=metadata,
            metadata_location=location,
            io=catalog._load_file_io(metadata.properties, location),  # noqa: SLF001
            catalog=catalog,
        )

    setattr(catalog, "_convert_orm_to_iceberg", load_table)  # noqa: B010 - replaces the method of this object only
