"""The snapshots of a long history, parsed and written once. Driver; threads share what is known.

Input: the JSON of a metadata file, or metadata that becomes one. Output: the metadata, or the JSON.

Each commit writes a metadata file with all snapshots, and each statement reads it: both would cost more with each one.
But the list of snapshots begins as that of the file before. What has not changed, letter by letter, is not parsed
again, and snapshots that were parsed from a text are written as that text. Other lists (snapshots have expired, another
program writes them in its own way) are parsed and written as a whole.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Final

from pyiceberg.exceptions import ValidationError
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.table.snapshots import Snapshot

from dml import limits

__all__ = ["parsed_metadata", "with_known_texts"]


# No text inside JSON looks like this, for quotes in a text have a backslash; and no other key has a list for its value.
SNAPSHOTS: Final = '"snapshots":['

DECODER: Final = json.JSONDecoder()


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The snapshots of a table.

    Attributes:
        text: The elements of the list in the metadata file, without its brackets.
        snapshots: The same, parsed; nobody changes one.
    """

    text: str
    snapshots: tuple[Snapshot, ...]


KNOWN: Final[OrderedDict[str, History]] = OrderedDict()
"""By the folder of the metadata files, the one used last at the end."""

LOCK: Final = Lock()


def parsed_metadata(text: str, location: str) -> TableMetadata:
    """The metadata in a file.

    Args:
        text: Its JSON.
        location: Where it is.

    Raises:
        ValidationError: it is none, says PyIceberg.
    """
    if text.count('"manifest-list"') < limits.MIN_CACHED_HISTORY or text.count(SNAPSHOTS) != 1:
        return TableMetadataUtil.parse_raw(text)
    start = text.index(SNAPSHOTS) + len(SNAPSHOTS)
    try:
        history = history_at(text, start, known_at(location))
        metadata = TableMetadataUtil.parse_raw(text[:start] + text[start + len(history.text) :])
    except (ValueError, RecursionError, ValidationError):
        return TableMetadataUtil.parse_raw(text)  # which says what is wrong, if anything is
    keep(location, history)
    return metadata.model_copy(update={"snapshots": list(history.snapshots)})


def history_at(text: str, start: int, known: History | None) -> History:
    """The history whose list begins at a place of a metadata file.

    Raises:
        ValueError: there is no such list, or it is written in another way than PyIceberg writes it.
    """
    if known is None or not text.startswith(known.text, start):
        known = History(text="", snapshots=())
    place = start + len(known.text)
    new = list(elements(text, place, is_first=not known.snapshots))
    parsed = (Snapshot.model_validate_json(text[first:end]) for first, end in new)
    return History(text=text[start : new[-1][1] if new else place], snapshots=(*known.snapshots, *parsed))


def elements(text: str, place: int, *, is_first: bool) -> Iterator[tuple[int, int]]:
    """The begin and the end of each element of a list, from a place between two of them on."""
    while text[place : place + 1] != "]":
        if not is_first and text[place : place + 1] != ",":
            raise ValueError("no list")
        first = place if is_first else place + 1
        _, place = DECODER.raw_decode(text, first)
        yield first, place
        is_first = False


def with_known_texts(to_json: Callable[[TableMetadata], str], metadata: TableMetadata, location: str) -> str:
    """The JSON of a new metadata file.

    Args:
        to_json: Makes it of metadata.
        metadata: The metadata.
        location: Where the file will be.
    """
    known, snapshots = known_at(location), metadata.snapshots
    if known is None or not begins_with(snapshots, known.snapshots):
        return to_json(metadata)
    text = to_json(metadata.model_copy(update={"snapshots": []}))
    if text.count(SNAPSHOTS + "]") != 1:
        return to_json(metadata)
    new = (snapshot.model_dump_json() for snapshot in snapshots[len(known.snapshots) :])
    start = text.index(SNAPSHOTS) + len(SNAPSHOTS)
    return "".join((text[:start], ",".join((known.text, *new)), text[start:]))


def begins_with(snapshots: list[Snapshot], known: tuple[Snapshot, ...]) -> bool:
    """Whether a list has these very snapshots in front."""
    return len(snapshots) >= len(known) and all(one is other for one, other in zip(snapshots, known, strict=False))


def known_at(location: str) -> History | None:
    """What is known of the table that has a metadata file."""
    with LOCK:
        return KNOWN.get(folder_of(location))


def keep(location: str, history: History) -> None:
    """Know a history from now on; what was used least goes when there is no room."""
    with LOCK:
        KNOWN[folder_of(location)] = history
        KNOWN.move_to_end(folder_of(location))
        nbytes = sum(len(kept.text) for kept in KNOWN.values())
        while nbytes > limits.SNAPSHOT_CACHE_CHARACTERS:
            _, oldest = KNOWN.popitem(last=False)
            nbytes -= len(oldest.text)


def folder_of(location: str) -> str:
    return location.rpartition("/")[0]
