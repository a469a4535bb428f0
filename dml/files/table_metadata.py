"""Table metadata files: JSON, compressed or not. Worker-safe.

Input: a FileIO and a location, or the file's bytes. Output: the metadata. Spec: "Table Metadata", "Naming for GZIP
compressed metadata JSON files".
"""

import json
import re
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from typing import Any, Final

from pydantic import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.types import NestedField

from dml import (
    limits,
    pyiceberg_patch,  # noqa: F401 - PyIceberg can load tables with variants from now on
)
from dml.errors import CorruptFileError, NotSupportedError, storage_failure
from dml.files.snapshot_texts import parsed_metadata

__all__ = ["only_adds_a_snapshot", "plain_json", "read_table_metadata", "with_snapshots_of", "without_snapshots"]

PYICEBERG: Final = version("pyiceberg")
OF_LATER_VERSIONS: Final = re.compile(r"(geometry|geography)( *\(.*\))?")
"""Types of format version 3 that PyIceberg does not know, or not as the specification writes them."""

GZIP: Final = b"\x1f\x8b"
GZIP_WINDOW: Final = 31


def read_table_metadata(io: FileIO, location: str) -> TableMetadata:
    """A table's metadata.

    Args:
        io: The table's FileIO.
        location: Of the metadata file.

    Raises:
        CorruptFileError: it is missing or is no metadata file.
        NotSupportedError: a column has a type that PyIceberg cannot load.
        ExecutionError: the storage failed.
    """
    try:
        with io.new_input(location).open() as stream:
            content = bytes(stream.read())
    except FileNotFoundError as error:
        raise CorruptFileError(
            f"The table's metadata file '{location}' is missing",
            hint="Restore the file, or register an earlier metadata file of the table with the catalog",
            file=location,
        ) from error
    except OSError as error:
        raise storage_failure("Reading", location, error) from error
    try:
        return with_checked_head(parsed_metadata(plain_json(content).decode(), location))
    except Exception as error:
        # Nothing was read from a storage here: whatever was raised, the bytes led to it.
        unknown = column_of_unknown_type(content)
        if unknown is not None:
            name, kind = unknown
            raise NotSupportedError(
                f"The column '{name}' has the type {kind}, with which PyIceberg {PYICEBERG} cannot load a table",
                hint="The table is not damaged: use an engine that knows the type, or drop the column there",
                file=location,
                column=name,
                type=kind,
            ) from error
        raise CorruptFileError(
            f"The table's metadata file '{location}' cannot be read: {reason_of(error)}",
            hint="Restore the file, or register an earlier metadata file of the table with the catalog",
            file=location,
        ) from error


def column_of_unknown_type(content: bytes) -> tuple[str, str] | None:
    """The first column of a metadata file whose type PyIceberg does not know; None where there is none."""
    try:
        schemas = json.loads(plain_json(content))["schemas"]
        return next((found for schema in schemas for found in unknown_types("", schema)), None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # no metadata file


def unknown_types(path: str, kind: Any) -> Iterator[tuple[str, str]]:
    """The paths and types below a type, as metadata has it, that PyIceberg does not know."""
    match kind:
        case str() if OF_LATER_VERSIONS.fullmatch(kind):
            try:
                NestedField.model_validate({"id": 1, "name": "n", "required": False, "type": kind})
            except Exception:  # noqa: BLE001 - each type is refused in a way of its own
                yield path, kind
        case {"type": "struct", "fields": fields}:
            for field in fields:
                yield from unknown_types(f"{path}.{field['name']}".removeprefix("."), field["type"])
        case {"type": "list", "element": element}:
            yield from unknown_types(f"{path}.element", element)
        case {"type": "map", "key": key, "value": value}:
            yield from unknown_types(f"{path}.key", key)
            yield from unknown_types(f"{path}.value", value)


def with_checked_head(metadata: TableMetadata) -> TableMetadata:
    """What is there twice has to agree: without this a damaged name makes a table look as if it had no rows."""
    main = metadata.refs.get(MAIN_BRANCH)
    if main is not None and main.snapshot_id != metadata.current_snapshot_id:
        raise ValueError(
            f"its current snapshot is {metadata.current_snapshot_id}, and its branch main is at {main.snapshot_id}"
        )
    known = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    for name, ref in metadata.refs.items():
        if ref.snapshot_id not in known:
            raise ValueError(f"'{name}' is at the snapshot {ref.snapshot_id}, which it does not have")
    return metadata


def only_adds_a_snapshot(metadata: TableMetadata, updates: tuple[TableUpdate, ...]) -> bool:
    """Whether updates add one snapshot that is not there yet, and move branches to no other one."""
    added = [update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)]
    moved = [update.snapshot_id for update in updates if isinstance(update, SetSnapshotRefUpdate)]
    is_all = len(added) == 1 and set(moved) <= set(added) and len(added) + len(moved) == len(updates)
    return is_all and metadata.snapshot_by_id(added[0]) is None


def without_snapshots(metadata: TableMetadata) -> TableMetadata:
    """Metadata with an empty history, for `only_adds_a_snapshot`: PyIceberg copies all of it for every update."""
    return metadata.model_copy(update={"snapshots": [], "snapshot_log": []})


def with_snapshots_of(before: TableMetadata, metadata: TableMetadata) -> TableMetadata:
    """Metadata whose history begins with that of metadata before."""
    return metadata.model_copy(
        update={
            "snapshots": [*before.snapshots, *metadata.snapshots],
            "snapshot_log": [*before.snapshot_log, *metadata.snapshot_log],
        }
    )


def plain_json(content: bytes) -> bytes:
    """The JSON of a metadata file, decompressed if it is compressed, whatever its name says.

    Raises:
        ValueError: it is cut short, does not decompress, or is too long to be a metadata file.
    """
    if not content.startswith(GZIP):
        return content
    limit = min(
        limits.MAX_DECOMPRESSED_BYTES, max(limits.FREE_METADATA_BYTES, limits.MAX_DECOMPRESSION_RATIO * len(content))
    )
    inflater = zlib.decompressobj(GZIP_WINDOW)
    try:
        plain = inflater.decompress(content, limit + 1)
    except zlib.error as error:
        raise ValueError(f"it does not decompress ({error})") from error
    if len(plain) > limit:
        raise ValueError(f"it has more than {limit} bytes when it is decompressed")
    if not inflater.eof:
        raise ValueError("its compressed bytes end too early")
    return plain


def reason_of(error: Exception) -> str:
    """What is wrong, without the content: the file may be another one than it should be."""
    found = error.__cause__ or error
    if isinstance(found, ValidationError):
        first = found.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return str(error).split("\n", 1)[0] or type(error).__name__
