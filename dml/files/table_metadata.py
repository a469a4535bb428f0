"""Read and write table metadata files as JSON, compressed or not, and parse a long history only once. Worker-safe.

Input: a FileIO and a location, or the file's bytes. Output: the metadata, or the JSON of a new metadata file.
Spec: "Table Metadata", "Naming for GZIP compressed metadata JSON files".

Each commit writes a metadata file with all snapshots, and each statement reads it, so that both would slow down with
every snapshot. But the list of snapshots begins with that of the previous file. A prefix with the same text is not
parsed again, and snapshots that were parsed from a text are written as that text. Other lists (snapshots have expired,
another program formats them differently) are parsed and written as a whole. Threads share the cache.
"""

import json
import re
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from threading import Lock
from typing import Any, Final

import pydantic
from pyiceberg.exceptions import ValidationError
from pyiceberg.io import FileIO
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.types import NestedField

from dml import (
    limits,
    pyiceberg_patch,  # noqa: F401 - lets PyIceberg load tables with variants
)
from dml.errors import CorruptFileError, NotSupportedError, storage_failure

__all__ = [
    "cached_metadata_json",
    "only_adds_a_snapshot",
    "parse_metadata",
    "plain_json",
    "prepend_history",
    "read_table_metadata",
    "without_snapshots",
]

# Unique in a metadata file: quotes inside JSON strings are escaped, and only the list of snapshots has this key.
SNAPSHOTS: Final = '"snapshots":['

DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The snapshots of a table.

    Attributes:
        text: The elements of the list in the metadata file, without its brackets.
        snapshots: The parsed elements; they must not be changed.
    """

    text: str
    snapshots: tuple[Snapshot, ...]


KNOWN: Final[OrderedDict[str, History]] = OrderedDict()
"""Histories by the folder of the metadata files, the most recently used one last."""

LOCK: Final = Lock()


def parse_metadata(text: str, location: str) -> TableMetadata:
    """Parse the metadata in a file.

    Args:
        text: The JSON.
        location: The location of the file.

    Raises:
        ValidationError: PyIceberg rejects the metadata.
    """
    if text.count('"manifest-list"') < limits.MIN_CACHED_HISTORY or text.count(SNAPSHOTS) != 1:
        return TableMetadataUtil.parse_raw(text)
    start = text.index(SNAPSHOTS) + len(SNAPSHOTS)
    try:
        history = history_at(text, start, cached_history(location))
        metadata = TableMetadataUtil.parse_raw(text[:start] + text[start + len(history.text) :])
    except (ValueError, RecursionError, ValidationError):
        return TableMetadataUtil.parse_raw(text)  # raises PyIceberg's error if the metadata is invalid
    cache_history(location, history)
    return metadata.model_copy(update={"snapshots": list(history.snapshots)})


def history_at(text: str, start: int, known: History | None) -> History:
    """Parse the history whose list begins at an offset of a metadata file.

    Raises:
        ValueError: There is no such list, or it is not formatted as PyIceberg writes it.
    """
    if known is None or not text.startswith(known.text, start):
        known = History(text="", snapshots=())
    place = start + len(known.text)
    new = list(elements(text, place, is_first=not known.snapshots))
    parsed = (Snapshot.model_validate_json(text[first:end]) for first, end in new)
    return History(text=text[start : new[-1][1] if new else place], snapshots=(*known.snapshots, *parsed))


def elements(text: str, place: int, *, is_first: bool) -> Iterator[tuple[int, int]]:
    """Yield start and end of each element of a list, from an offset between two of them on."""
    while text[place : place + 1] != "]":
        if not is_first and text[place : place + 1] != ",":
            raise ValueError("no list")
        first = place if is_first else place + 1
        _, place = DECODER.raw_decode(text, first)
        yield first, place
        is_first = False


def cached_metadata_json(to_json: Callable[[TableMetadata], str], metadata: TableMetadata, location: str) -> str:
    """Return the JSON of a new metadata file.

    Args:
        to_json: Converts metadata to JSON.
        metadata: The metadata.
        location: The location of the new file.
    """
    known, snapshots = cached_history(location), metadata.snapshots
    if known is None or not begins_with(snapshots, known.snapshots):
        return to_json(metadata)
    text = to_json(metadata.model_copy(update={"snapshots": []}))
    if text.count(SNAPSHOTS + "]") != 1:
        return to_json(metadata)
    new = (snapshot.model_dump_json() for snapshot in snapshots[len(known.snapshots) :])
    start = text.index(SNAPSHOTS) + len(SNAPSHOTS)
    return "".join((text[:start], ",".join((known.text, *new)), text[start:]))


def begins_with(snapshots: list[Snapshot], known: tuple[Snapshot, ...]) -> bool:
    """Return True if a list begins with these very snapshot objects."""
    return len(snapshots) >= len(known) and all(one is other for one, other in zip(snapshots, known, strict=False))


def cached_history(location: str) -> History | None:
    """Return the cached history of the table that has a metadata file."""
    with LOCK:
        return KNOWN.get(folder_of(location))


def cache_history(location: str, history: History) -> None:
    """Cache a history, and evict the least recently used ones."""
    with LOCK:
        KNOWN[folder_of(location)] = history
        KNOWN.move_to_end(folder_of(location))
        nbytes = sum(len(kept.text) for kept in KNOWN.values())
        while nbytes > limits.SNAPSHOT_CACHE_CHARACTERS:
            _, oldest = KNOWN.popitem(last=False)
            nbytes -= len(oldest.text)


def folder_of(location: str) -> str:
    return location.rpartition("/")[0]


PYICEBERG: Final = version("pyiceberg")
OF_LATER_VERSIONS: Final = re.compile(r"(geometry|geography)( *\(.*\))?")
"""Types of format version 3 that PyIceberg lacks or spells differently from the specification."""

GZIP: Final = b"\x1f\x8b"
GZIP_WINDOW: Final = 31


def read_table_metadata(io: FileIO, location: str) -> TableMetadata:
    """Read a table's metadata.

    Args:
        io: The table's FileIO.
        location: The location of the metadata file.

    Raises:
        CorruptFileError: The file is missing or is not a metadata file.
        NotSupportedError: A column has a type that PyIceberg cannot load.
        ExecutionError: The storage failed.
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
        return check_refs(parse_metadata(plain_json(content).decode(), location))
    except Exception as error:
        # The block above does not access the storage, so that every exception comes from the content.
        unknown = column_of_unknown_type(content)
        if unknown is not None:
            name, kind = unknown
            raise NotSupportedError(
                f"The column '{name}' has the type {kind}, with which PyIceberg {PYICEBERG} cannot load a table",
                hint="The table is not damaged: use an engine that supports the type, or drop the column there",
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
    """Return the first column of a metadata file whose type PyIceberg cannot load; None if there is none."""
    try:
        schemas = json.loads(plain_json(content))["schemas"]
        return next((found for schema in schemas for found in unknown_types("", schema)), None)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None  # not a metadata file


def unknown_types(path: str, kind: Any) -> Iterator[tuple[str, str]]:
    """Yield paths and types below a type of the metadata that PyIceberg cannot load."""
    match kind:
        case str() if OF_LATER_VERSIONS.fullmatch(kind):
            try:
                NestedField.model_validate({"id": 1, "name": "n", "required": False, "type": kind})
            except Exception:  # noqa: BLE001 - PyIceberg rejects each type with another exception
                yield path, kind
        case {"type": "struct", "fields": fields}:
            for field in fields:
                yield from unknown_types(f"{path}.{field['name']}".removeprefix("."), field["type"])
        case {"type": "list", "element": element}:
            yield from unknown_types(f"{path}.element", element)
        case {"type": "map", "key": key, "value": value}:
            yield from unknown_types(f"{path}.key", key)
            yield from unknown_types(f"{path}.value", value)


def check_refs(metadata: TableMetadata) -> TableMetadata:
    """Check redundant references to snapshots.

    Without this check, a damaged name would make a table look empty.
    """
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
    """Return True if updates only add one new snapshot and move branches to it."""
    added = [update.snapshot.snapshot_id for update in updates if isinstance(update, AddSnapshotUpdate)]
    moved = [update.snapshot_id for update in updates if isinstance(update, SetSnapshotRefUpdate)]
    is_all = len(added) == 1 and set(moved) <= set(added) and len(added) + len(moved) == len(updates)
    return is_all and metadata.snapshot_by_id(added[0]) is None


def without_snapshots(metadata: TableMetadata) -> TableMetadata:
    """Return metadata with an empty history, for `only_adds_a_snapshot`: PyIceberg copies it for every update."""
    return metadata.model_copy(update={"snapshots": [], "snapshot_log": []})


def prepend_history(before: TableMetadata, metadata: TableMetadata) -> TableMetadata:
    """Return metadata whose history is preceded by that of earlier metadata."""
    return metadata.model_copy(
        update={
            "snapshots": [*before.snapshots, *metadata.snapshots],
            "snapshot_log": [*before.snapshot_log, *metadata.snapshot_log],
        }
    )


def plain_json(content: bytes) -> bytes:
    """Return the JSON of a metadata file, decompressed if it is compressed, regardless of the file name.

    Raises:
        ValueError: It is cut short, does not decompress, or is too long to be a metadata file.
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
    """Return the cause of an error without the content, because the file may be an unrelated one."""
    found = error.__cause__ or error
    if isinstance(found, pydantic.ValidationError):
        first = found.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        return f"{place}: {first['msg']}" if place else str(first["msg"])
    return str(error).split("\n", 1)[0] or type(error).__name__
