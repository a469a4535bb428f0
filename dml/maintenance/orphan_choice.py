"""Selects the orphans among the files below a table's folders, and compares file names. Pure; driver.

    s3a://b/t/data/a%20b.parquet  and  s3://b/t/data/a b.parquet        are one file
    file:/t/a.parquet, file:///t/a.parquet  and  /t/a.parquet           are one file
    s3://b1/t/a.parquet  and  s3://b2/t/a.parquet                       may be one file: the path is the same

Input: the files that a storage lists, the locations that the table's metadata needs, and the rules. Output: the
orphans, the other unneeded files with the reason why they are kept, and the ambiguous files.

A file is an orphan only if all rules allow it. Names that might mean the same file
are treated as equal: this may keep an orphan, but never deletes a needed file. Source: Iceberg's
`DeleteOrphanFilesSparkAction` (`FileURI`), `HiddenPathFilter`, `PartitionAwareHiddenPathFilter`.
"""

import posixpath
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote

from dml.maintenance.retention import time_text

__all__ = [
    "Equivalents",
    "ListedFile",
    "NeededFiles",
    "OrphanRules",
    "PrefixMismatch",
    "PrefixMismatchMode",
    "choose_orphans",
    "identity_of",
    "is_hidden",
    "is_inside",
    "path_of",
]


EQUAL_SCHEMES: Final[Mapping[str, str]] = MappingProxyType({"s3n,s3a": "s3"})
"""The schemes that always mean the same storage: the reference's default."""

LOCATION: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalents:
    """Equivalent schemes and authorities.

    Attributes:
        schemes: Maps each scheme, in lower case, to its canonical one.
        authorities: The same for authorities: buckets, hosts.
    """

    schemes: Mapping[str, str]
    authorities: Mapping[str, str]

    @staticmethod
    def of(schemes: Mapping[str, str], authorities: Mapping[str, str]) -> "Equivalents":
        """Combine a call's equivalents with the schemes that are always equal.

        Args:
            schemes: Maps one or more schemes, comma-separated, to the canonical one.
            authorities: The same for authorities.
        """
        return Equivalents(schemes=flatten_names({**EQUAL_SCHEMES, **schemes}), authorities=flatten_names(authorities))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """The normalized form of a location, for comparisons.

    Attributes:
        scheme: The canonical scheme in lower case; empty if the location has none.
        authority: The bucket or host, likewise.
        path: The absolute path, decoded, without empty parts and dots.
    """

    scheme: str
    authority: str
    path: str

    def has_prefix_of(self, other: "FileIdentity") -> bool:
        """Return True if scheme and authority match the other's; a missing one matches any."""
        return may_equal(self.scheme, other.scheme) and may_equal(self.authority, other.authority)


def identity_of(location: str, equivalents: Equivalents) -> FileIdentity:
    """Normalize a location for comparisons.

    Args:
        location: A URI, or the path of a local file.
        equivalents: Equivalent schemes and authorities.
    """
    scheme, authority, path = split_location(location)
    return FileIdentity(
        scheme=equivalents.schemes.get(scheme, scheme),
        authority=equivalents.authorities.get(authority, authority),
        path=normalize(decode(path)),
    )


def path_of(location: str) -> str:
    """Return the path of a location in its storage, not decoded."""
    return normalize(split_location(location)[2])


def is_inside(location: str, folder: str, equivalents: Equivalents) -> bool:
    """Return True if a location is a folder or below it. Paths are not decoded: `a%2Fb` is one name.

    Args:
        location: The location of a file or folder.
        folder: The location of a folder.
        equivalents: Equivalent schemes and authorities.
    """
    path, root = path_of(location), path_of(folder)
    below = path == root or path.startswith(root.rstrip("/") + "/")
    return below and identity_of(location, equivalents).has_prefix_of(identity_of(folder, equivalents))


def split_location(location: str) -> tuple[str, str, str]:
    match = LOCATION.fullmatch(location)
    if match is None:
        return "", "", location
    return match["scheme"].lower(), (match["authority"] or "").lower(), match["path"]


def normalize(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def decode(path: str) -> str:
    # Names may be encoded more than once: a partition value in its folder name, and then the whole path in a URI.
    while (plain := unquote(path)) != path:
        path = plain
    return path


def flatten_names(names: Mapping[str, str]) -> Mapping[str, str]:
    return {name.strip().lower(): one.strip().lower() for listed, one in names.items() for name in listed.split(",")}


def may_equal(one: str, other: str) -> bool:
    return not one or not other or one == other


VERSION_HINT: Final = "version-hint.text"
"""The pointer of a Hadoop catalog to the newest metadata file; no metadata names it."""

HIDDEN: Final = ("_", ".")


class PrefixMismatchMode(StrEnum):
    """The handling of files that metadata names with another scheme or authority."""

    ERROR = "error"
    IGNORE = "ignore"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file as its storage lists it.

    Attributes:
        folder: The folder that was listed, without a trailing slash.
        relative: The path of the file below the folder.
        path: The name of the file in the storage, by which it is deleted.
        real_location: The location with symbolic links resolved.
        modified_ms: The time of the last write, in milliseconds since 1970; None if the storage has none.
        size: The size in bytes; None if the storage does not list it.
    """

    folder: str
    relative: str
    path: str
    real_location: str
    modified_ms: int | None
    size: int | None = None

    @property
    def location(self) -> str:
        """The location, with the prefix of the folder."""
        return f"{self.folder}/{self.relative}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRules:
    """The rules that allow deleting a file.

    Attributes:
        older_than_ms: Only files that were written before this time, in milliseconds since 1970.
        equivalents: Equivalent schemes and authorities.
        prefix_mismatch: The handling of files that metadata names with another scheme or authority.
        partition_fields: Names of partition fields; their folders are never hidden.
        others: Folders of other tables.
        within: Only files below this folder; None for all.
    """

    older_than_ms: int
    equivalents: Equivalents
    prefix_mismatch: PrefixMismatchMode = PrefixMismatchMode.ERROR
    partition_fields: frozenset[str] = frozenset()
    others: tuple[str, ...] = ()
    within: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMismatch:
    """A file that metadata names with another scheme or authority.

    Attributes:
        listed: The location as listed.
        scheme: The scheme of the path in metadata.
        authority: The authority of the path in metadata.
    """

    listed: str
    scheme: str
    authority: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanChoice:
    """The selected files.

    Attributes:
        orphans: The files that are not needed and may be deleted.
        kept: The files that are not needed but must not be deleted, each with the reason.
        needed: The number of files that the metadata needs.
        conflicts: The ambiguous files; none of them is an orphan.
    """

    orphans: tuple[ListedFile, ...]
    kept: tuple[tuple[ListedFile, str], ...] = ()
    needed: int = 0
    conflicts: tuple[PrefixMismatch, ...] = ()


class NeededFiles:
    """The locations that a table needs, indexed by path.

    Args:
        equivalents: Equivalent schemes and authorities.
    """

    def __init__(self, equivalents: Equivalents) -> None:
        self._equivalents = equivalents
        self._by_path: defaultdict[str, set[FileIdentity]] = defaultdict(set)

    def add(self, locations: Iterable[str]) -> None:
        """Add locations."""
        for location in locations:
            identity = identity_of(location, self._equivalents)
            self._by_path[identity.path].add(identity)

    def named_like(self, file: ListedFile) -> Mapping[FileIdentity, bool]:
        """Return the needed locations with the path of a file, each with True if scheme and authority match."""
        found: dict[FileIdentity, bool] = {}
        for location in {file.location, file.real_location}:
            identity = identity_of(location, self._equivalents)
            for needed in self._by_path.get(identity.path, ()):
                found[needed] = found.get(needed, False) or identity.has_prefix_of(needed)
        return found


def choose_orphans(listed: Iterable[ListedFile], needed: NeededFiles, rules: OrphanRules) -> OrphanChoice:
    """Select the files that are not needed.

    Args:
        listed: The files in the storage.
        needed: The locations that the table needs.
        rules: The rules for deletion.

    Returns:
        The orphans in the order of `listed`, the unneeded files that are kept, and the ambiguous files.
    """
    orphans: list[ListedFile] = []
    kept: list[tuple[ListedFile, str]] = []
    conflicts: list[PrefixMismatch] = []
    number = 0
    for file in listed:
        alike = needed.named_like(file)
        if any(alike.values()):
            number += 1
        elif reason := reason_to_keep(file, rules):
            kept.append((file, reason))
        elif not alike or rules.prefix_mismatch is PrefixMismatchMode.DELETE:
            orphans.append(file)
        elif rules.prefix_mismatch is PrefixMismatchMode.IGNORE:
            other = next(iter(alike))
            kept.append((file, f"the metadata names its path in '{other.scheme}://{other.authority}'"))
        else:
            conflicts += [
                PrefixMismatch(listed=file.location, scheme=other.scheme, authority=other.authority) for other in alike
            ]
    return OrphanChoice(orphans=tuple(orphans), kept=tuple(kept), needed=number, conflicts=tuple(conflicts))


def is_hidden(relative: str, partition_fields: frozenset[str]) -> bool:
    """Return True if the name of a file, or of a folder in its relative path, starts with `_` or `.`.

    Args:
        relative: The path of the file below the listed folder.
        partition_fields: Names of partition fields, whose folders, such as `_day=2026-01-31`, are not hidden.
    """
    return any(
        part.startswith(HIDDEN) and not ("=" in part and part.partition("=")[0] in partition_fields)
        for part in relative.split("/")
    )


def reason_to_keep(file: ListedFile, rules: OrphanRules) -> str | None:
    """Return why a file must not be deleted even if it is not needed; None if all rules allow deleting it."""
    if rules.within is not None and not is_inside(file.real_location, rules.within, rules.equivalents):
        return f"it is outside of '{rules.within}'"
    if file.relative.rpartition("/")[2] == VERSION_HINT:
        return "a Hadoop catalog finds the table by it"
    if is_hidden(file.relative, rules.partition_fields):
        return "its name, or that of a folder, starts with _ or ."
    other = next((one for one in rules.others if is_inside(file.real_location, one, rules.equivalents)), None)
    if other is not None:
        return f"another table is in '{other}'"
    if file.modified_ms is None:
        return "the storage does not list when it was written"
    if file.modified_ms >= rules.older_than_ms:
        return f"it was not written before {time_text(rules.older_than_ms)}"
    return None
