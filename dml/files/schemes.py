"""Restrict the storages of a table's files: metadata may name any file, and is not trusted. Worker-safe.

Input: a catalog's properties and the location of a table's metadata file. Output: the URI schemes that the table's
files may have; a FileIO that rejects all others, on the driver and on workers.

Anyone who can write to the table can write metadata. Without a rule, a table in an object store could list
`file:///etc/passwd` as a data file to have it read, or have `file:///home` searched for orphan files. The rule:

- a table's files may be in the storage of its metadata file, and in each object store that the catalog configures by
  its `warehouse` or by properties such as `s3.endpoint`;
- local files are allowed only for tables whose metadata file is local, and such tables only in catalogs that do not
  configure an object store alone;
- the catalog's property `io.allowed-schemes` allows more.

Schemes that are names of one storage, such as `s3` and `s3a`, are allowed together.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlparse

from pyiceberg.io import FileIO

from dml.errors import NotSupportedError

__all__ = [
    "ALLOWED_SCHEMES",
    "allowed_schemes",
    "check_location",
    "local_path",
    "reject_other_file",
    "restrict_schemes",
]

ALLOWED_SCHEMES: Final = "io.allowed-schemes"
"""Comma-separated schemes: further ones as a property of a catalog, all allowed ones as a property of a FileIO."""

LOCAL: Final = "file"

WAREHOUSE: Final = "warehouse"
S3: Final = frozenset({"s3", "s3a", "s3n"})
GCS: Final = frozenset({"gs", "gcs"})
ADLS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
HDFS: Final = frozenset({"hdfs", "viewfs"})
FAMILIES: Final = (S3, GCS, ADLS, HDFS)
# Schemes of the storages that properties with a prefix configure.
PREFIXES: Final = {"s3.": S3, "gcs.": GCS, "adls.": ADLS, "hdfs.": HDFS, "hf.": frozenset({"hf"})}


def allowed_schemes(
    catalog_properties: Mapping[str, Any], io_properties: Mapping[str, Any], metadata_location: str
) -> frozenset[str]:
    """Return the schemes of the files that a table may have.

    Args:
        catalog_properties: The catalog's properties from the user or the catalog's server.
        io_properties: The properties of the table's FileIO. Some may come from the table, so that they only configure
            object stores.
        metadata_location: The table's metadata file, or its location.
    """
    warehouse = location_scheme(str(catalog_properties.get(WAREHOUSE) or ""), catalog_properties)
    stores = {*configured_stores(catalog_properties), *family_of(warehouse)} - {LOCAL}
    own = family_of(urlparse(metadata_location).scheme or LOCAL) if metadata_location else family_of(warehouse)
    if LOCAL in own and stores and warehouse != LOCAL:
        own = frozenset()
    listed = str(catalog_properties.get(ALLOWED_SCHEMES) or "")
    further = {scheme for name in listed.split(",") if name.strip() for scheme in family_of(name.strip().lower())}
    return frozenset({*own, *stores, *configured_stores(io_properties), *further})


def restrict_schemes(io: FileIO, schemes: frozenset[str]) -> FileIO:
    """Make a FileIO reject files of other schemes.

    Args:
        io: A FileIO that no other code uses.
        schemes: The allowed schemes. They become one of its properties, which workers receive.

    Returns:
        The same FileIO.
    """
    io.properties = {**io.properties, ALLOWED_SCHEMES: ",".join(sorted(schemes))}
    for name in ("new_input", "new_output", "delete"):
        # Patch this object instead of wrapping it: other code selects how to list files by its class.
        setattr(io, name, partial(call_checked, io, getattr(io, name)))
    return io


def check_location(io: FileIO, location: str) -> None:
    """Reject a location that a FileIO does not accept.

    Args:
        io: The FileIO; one that is not restricted accepts all schemes.
        location: A file or a folder.

    Raises:
        NotSupportedError: The scheme is not allowed, or the FileIO would access another file.
    """
    allowed = io.properties.get(ALLOWED_SCHEMES)
    scheme, path = parse_location(io, location)
    if allowed is None:
        return
    if scheme in allowed.split(","):
        reject_other_file(location, path)
        return
    known = allowed.replace(",", ", ") or "none"
    raise NotSupportedError(
        f"The table names '{location}', and its catalog is not set up for the scheme '{scheme}', only for {known}",
        hint=f"If you trust the table, add '{scheme}' to the catalog's property '{ALLOWED_SCHEMES}'",
        file=location,
        scheme=scheme,
        property=ALLOWED_SCHEMES,
    )


def local_path(location: str) -> str | None:
    """Return the path of a local file or folder, as PyIceberg reads a location; None for any other storage."""
    scheme, separator, rest = location.partition(":")
    if not separator or "/" in scheme:
        return location or None
    if scheme.lower() != LOCAL:
        return None
    return rest.removeprefix("//")


def call_checked(io: FileIO, action: Callable[[Any], Any], location: Any) -> Any:
    check_location(io, location if isinstance(location, str) else location.location)
    return action(location)


def parse_location(io: FileIO, location: str) -> tuple[str, str | None]:
    """Return the scheme that selects the storage of a FileIO, and the path there; None if the storage parses it."""
    # PyArrow's FileIO, which has a default scheme, is recognized without importing it: not every worker needs it.
    parse = getattr(io, "parse_location", None)
    if parse is None:
        return urlparse(location).scheme or LOCAL, None
    scheme, _, path = parse(location, io.properties)
    return str(scheme), str(path)


def reject_other_file(location: str, path: str | None) -> None:
    """Reject a location that PyIceberg's FileIO on PyArrow would truncate.

    It parses locations as URIs, and drops what follows # or ?, and line ends.
    """
    if path is not None and urlparse(location).scheme and not location.endswith(path):
        raise NotSupportedError(
            f"The file '{location}' cannot be distinguished from '{path}': "
            "its name has one of the characters # ? or a line end",
            hint="Give the table, and its properties such as write.data.path, a location without them",
            file=location,
        )


def location_scheme(warehouse: str, catalog_properties: Mapping[str, Any]) -> str | None:
    """Return the scheme of a warehouse, or None if it is not a location but a name on the catalog's server."""
    if warehouse.startswith("/") or (warehouse and ":" not in warehouse and is_sql(catalog_properties)):
        return LOCAL
    scheme = urlparse(warehouse).scheme
    return scheme if "://" in warehouse or scheme == LOCAL else None


def is_sql(catalog_properties: Mapping[str, Any]) -> bool:
    """Return True if the catalog is a database, where a warehouse without a scheme is a folder, not a name."""
    uri = str(catalog_properties.get("uri") or "")
    return catalog_properties.get("type") == "sql" or uri.startswith(("sqlite", "postgresql"))


def configured_stores(properties: Mapping[str, Any]) -> Iterator[str]:
    for prefix, schemes in PREFIXES.items():
        if any(key.startswith(prefix) for key in properties):
            yield from schemes


def family_of(scheme: str | None) -> frozenset[str]:
    if scheme is None:
        return frozenset()
    return next((family for family in FAMILIES if scheme in family), frozenset({scheme}))
