"""The files that the tables of a catalog may have: none but where the catalog is set up for. Driver.

Input: a PyIceberg catalog. Output: the same catalog, whose tables have a FileIO that refuses other files.

PyIceberg gives a table's FileIO the properties of the table beside those of the catalog. What chooses the FileIO, what
it may open, and where the storage is that it sends the catalog's credentials to, is taken from the catalog alone; of a
REST catalog, also from what its server says for a table beside the table's metadata.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Any, Final

from pyiceberg.catalog import Catalog, MetastoreCatalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from dml.errors import NotSupportedError
from dml.files.file_io import with_single_puts
from dml.files.schemes import ALLOWED_SCHEMES, allowed_schemes, check_location, restricted
from dml.files.table_metadata import read_table_metadata
from dml.options import WRITE_METADATA_PATH

__all__ = ["check_new_location", "metadata_read_once", "restrict_files"]

NO_FOLDERS: Final = frozenset({"", ".", ".."})
NOT_IN_FOLDERS: Final = re.compile(r"[/#?\x00-\x1f\x7f]")
# They name classes that are loaded, and what may be opened.
NOT_FROM_TABLES: Final = frozenset(
    {"py-io-impl", "s3.retry-strategy-impl", "DEFAULT_SCHEME", "DEFAULT_NETLOC", ALLOWED_SCHEMES}
)
# They say where storages and servers are, and so to whom the catalog's credentials go.
PLACES: Final = ("s3.", "gcs.", "adls.", "hdfs.", "hf.", "client.", "uri", "token", "credential", "auth")


def restrict_files(catalog: Catalog) -> Catalog:
    """Let a catalog's tables have files where it is set up for, and nowhere else.

    Args:
        catalog: Any catalog.

    Returns:
        The same catalog.
    """
    load_any = catalog._load_file_io  # noqa: SLF001 - all catalogs open the files of tables through it
    # What a server says for a table is among these properties as well.
    places = () if isinstance(catalog, RestCatalog) else PLACES

    def load_restricted(properties: Any = None, location: str | None = None) -> FileIO:
        given = {
            key: value
            for key, value in (properties or {}).items()
            if key not in NOT_FROM_TABLES and not key.startswith(places)
        }
        io = with_single_puts(load_any(given, location))
        return restricted(io, allowed_schemes(catalog.properties, io.properties, location or ""))

    setattr(catalog, "_load_file_io", load_restricted)  # noqa: B010 - a method, on this object alone
    if isinstance(catalog, SqlCatalog):
        read_metadata_restricted(catalog)
    if isinstance(catalog, RestCatalog):
        for name in ("_response_to_table", "_response_to_staged_table"):
            setattr(catalog, name, partial(table_of_answer, getattr(catalog, name)))
    return catalog


KNOWN: Final[ContextVar[dict[str, TableMetadata] | None]] = ContextVar("KNOWN", default=None)


@contextmanager
def metadata_read_once() -> Iterator[None]:
    """While the block runs this thread reads each metadata file of a SQL catalog once.

    A statement loads its table when it starts, when it commits, and once more when the catalog takes the commit: each
    time the catalog says which file it is, and the file is still the one that was read unless somebody else committed.
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
    """The table of a server's answer, whose FileIO has what the server says, and no place that the table names."""
    table, metadata = make(identifier, answer), answer.metadata
    harmless = {key: value for key, value in metadata.properties.items() if not key.startswith(PLACES)}
    plain = answer.model_copy(update={"metadata": metadata.model_copy(update={"properties": harmless})})
    table.io = make(identifier, plain).io
    return table


def check_new_location(
    catalog: Catalog, identifier: tuple[str, ...], location: str | None, properties: Mapping[str, str]
) -> None:
    """Refuse a location for a new table that could not be loaded afterwards, or that could be another table's.

    Args:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        location: Where the user wants the table; None lets the catalog choose.
        properties: Of the table; they may name another place for its metadata.

    Raises:
        NotSupportedError: the catalog is not set up for files there; or it makes the location of the names, and one of
            them is no name of a folder.
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


def read_metadata_restricted(catalog: SqlCatalog) -> None:
    """PyIceberg opens a metadata file before it knows a table, so not through the method above; and it says too little.

    What else it checks stays with it.
    """
    convert = catalog._convert_orm_to_iceberg  # noqa: SLF001

    def load_table(row: Any) -> Table:
        if not (row.metadata_location and row.table_namespace and row.table_name):
            return convert(row)
        location = row.metadata_location
        known = KNOWN.get()
        metadata = None if known is None else known.get(location)
        if metadata is None:
            metadata = read_table_metadata(catalog._load_file_io(location=location), location)  # noqa: SLF001
            if known is not None:
                known[location] = metadata
        return Table(
            identifier=(*Catalog.identifier_to_tuple(row.table_namespace), row.table_name),
            metadata=metadata,
            metadata_location=location,
            io=catalog._load_file_io(metadata.properties, location),  # noqa: SLF001
            catalog=catalog,
        )

    setattr(catalog, "_convert_orm_to_iceberg", load_table)  # noqa: B010 - a method, on this object alone
