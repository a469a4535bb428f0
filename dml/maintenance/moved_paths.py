"""Replace the prefix of the locations in a table's metadata. Pure; driver.

Input: a location or the JSON of a metadata file, and two prefixes. Output: the same with the new prefix. A location
without the source prefix is an error. A prefix is a folder, so `s3://b/t` is not a prefix of `s3://b/t2/x`. `file:/t`,
`file:///t` and `/t` are the same folder. The schemes `s3`, `s3a` and `s3n` are equal, too. Source: Iceberg's
`RewriteTablePathUtil`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dml.errors import NotSupportedError
from dml.options import FOLDER_PROPERTIES

__all__ = ["PathPrefix", "below", "moved_metadata"]

S3_SCHEMES: Final = ("s3a:", "s3n:")
LOCAL: Final = "file:"
ROOTS: Final = ("://", ":///")
"""Endings of prefixes that are only a scheme, or the root of the local file system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPrefix:
    """The prefix of a table's locations, and the one that replaces it.

    Attributes:
        source: The folder of all files of the table.
        target: The folder to which they move.
    """

    source: str
    target: str

    def relative(self, location: str, what: str) -> str:
        """Return the path of a location below the source prefix; empty for the prefix itself.

        Args:
            location: A file or folder.
            what: The kind of file, for the message.

        Raises:
            NotSupportedError: The location is elsewhere.
        """
        found = self._relative(location)
        if found is not None:
            return found
        raise NotSupportedError(
            f"Encountered {what} {location} not under the source prefix {self.source}",
            hint="Give a prefix that all locations of the table have, or move the table in another way",
            file=location,
        )

    def move(self, location: str, what: str) -> str:
        """Return the new location below the target prefix. Arguments and errors are those of `relative`."""
        return below(self.target, self.relative(location, what))

    def move_if_below(self, location: str) -> str:
        """Return the new location below the target prefix; a location elsewhere is returned unchanged."""
        found = self._relative(location)
        return location if found is None else below(self.target, found)

    def _relative(self, location: str) -> str | None:
        folder, one = as_folder(spelled(self.source)), spelled(location)
        if one.startswith(folder):
            return one[len(folder) :]
        return "" if f"{one}/" == folder else None


def below(folder: str, relative: str) -> str:
    """Return the location of a file in a folder; the folder itself if the path is empty."""
    whole = as_folder(folder)
    return f"{whole}{relative}" if relative or whole.endswith(ROOTS) else whole.rstrip("/")


def as_folder(prefix: str) -> str:
    """Return a prefix that ends with the slash after the folder's name."""
    return prefix if prefix.endswith(ROOTS) else f"{prefix.rstrip('/')}/"


def spelled(location: str) -> str:
    """Return the normalized form of a location that can be written in several ways."""
    if location.startswith("/"):
        return f"file:///{location.lstrip('/')}"
    if location.startswith(f"{LOCAL}/"):
        return f"file:///{location.removeprefix(LOCAL).lstrip('/')}"
    return f"s3:{location[4:]}" if location.startswith(S3_SCHEMES) else location


def moved_metadata(content: Mapping[str, Any], prefix: PathPrefix) -> dict[str, Any]:
    """Return the JSON of a metadata file with the new prefix in all locations. Everything else is kept.

    Args:
        content: The JSON.
        prefix: The prefixes.

    Raises:
        NotSupportedError: A location is elsewhere, or a snapshot of version 1 has no manifest list.
    """
    moved = dict(content)
    moved["location"] = prefix.move(content["location"], "the table's location")
    properties = content.get("properties") or {}
    folders = {
        key: prefix.move(properties[key], f"the property {key} =") for key in FOLDER_PROPERTIES if properties.get(key)
    }
    if folders:
        moved["properties"] = {**properties, **folders}
    for snapshot in content.get("snapshots") or ():
        if "manifest-list" not in snapshot:
            raise NotSupportedError(
                f"The snapshot {snapshot.get('snapshot-id')} has no manifest list",
                hint="Snapshots of version 1 may list manifests in the metadata file: expire the snapshot first",
            )
    for key, name, what in LISTS:
        if content.get(key):
            moved[key] = [{**one, name: prefix.move(one[name], what)} for one in content[key]]
    return moved


LISTS: Final = (
    ("snapshots", "manifest-list", "the manifest list"),
    ("metadata-log", "metadata-file", "the metadata file"),
    ("statistics", "statistics-path", "the statistics file"),
    ("partition-statistics", "statistics-path", "the partition statistics file"),
)
"""The lists of a metadata file with locations: the key, the field of an element, and what it is."""
