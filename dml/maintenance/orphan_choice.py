"""Which of the files below a table's folders nobody needs, and which names mean one file. Pure; driver.

    s3a://b/t/data/a%20b.parquet  and  s3://b/t/data/a b.parquet        are one file
    file:/t/a.parquet, file:///t/a.parquet  and  /t/a.parquet           are one file
    s3://b1/t/a.parquet  and  s3://b2/t/a.parquet                       may be one file: the path is the same

Input: the files that a storage lists, the locations that the table's metadata needs, and the rules. Output: the
orphans, and the files that are in doubt. A file is chosen only if every rule lets it go. Where two names might
mean one file they are made equal: a file too many is kept then, and none is lost. Source: Iceberg's
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
"""The schemes that mean one storage, whatever else is given: the reference's default."""

LOCATION: Final = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.\-]*):(?://(?P<authority>[^/]*))?(?P<path>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Equivalents:
    """Schemes and authorities that are other names of one.

    Attributes:
        schemes: From each scheme, lower case, to the one that stands for it.
        authorities: The same for authorities: buckets, hosts.
    """

    schemes: Mapping[str, str]
    authorities: Mapping[str, str]

    @staticmethod
    def of(schemes: Mapping[str, str], authorities: Mapping[str, str]) -> "Equivalents":
        """What a call gives, beside the schemes that are always equal.

        Args:
            schemes: From one or more schemes, with commas between them, to the one that stands for them.
            authorities: The same for authorities.
        """
        return Equivalents(schemes=flat({**EQUAL_SCHEMES, **schemes}), authorities=flat(authorities))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIdentity:
    """What a location is compared by.

    Attributes:
        scheme: Lower case, one for all equal ones; empty where the location has none.
        authority: The bucket or host, likewise.
        path: Absolute, decoded, without empty parts and dots.
    """

    scheme: str
    authority: str
    path: str

    def has_prefix_of(self, other: "FileIdentity") -> bool:
        """Whether scheme and authority are the other's; one that a location leaves out may be any."""
        return may_be(self.scheme, other.scheme) and may_be(self.authority, other.authority)


def identity_of(location: str, equivalents: Equivalents) -> FileIdentity:
    """What a location is compared by.

    Args:
        location: A URI, or the path of a local file.
        equivalents: Which schemes and authorities are equal.
    """
    scheme, authority, path = parts(location)
    return FileIdentity(
        scheme=equivalents.schemes.get(scheme, scheme),
        authority=equivalents.authorities.get(authority, authority),
        path=normal(decoded(path)),
    )


def path_of(location: str) -> str:
    """The path of a location as its storage has it: nothing is decoded."""
    return normal(parts(location)[2])


def is_inside(location: str, folder: str, equivalents: Equivalents) -> bool:
    """Whether a location is a folder or lies below it. Nothing is decoded: `a%2Fb` is one name.

    Args:
        location: Of a file or folder.
        folder: Of a folder.
        equivalents: Which schemes and authorities are equal.
    """
    path, root = path_of(location), path_of(folder)
    below = path == root or path.startswith(root.rstrip("/") + "/")
    return below and identity_of(location, equivalents).has_prefix_of(identity_of(folder, equivalents))


def parts(location: str) -> tuple[str, str, str]:
    match = LOCATION.fullmatch(location)
    if match is None:
        return "", "", location
    return match["scheme"].lower(), (match["authority"] or "").lower(), match["path"]


def normal(path: str) -> str:
    return posixpath.normpath("/" + path.lstrip("/"))


def decoded(path: str) -> str:
    # A name may be encoded more than once: a partition's value in the name of its folder, and then all of it in a URI.
    while (plain := unquote(path)) != path:
        path = plain
    return path


def flat(names: Mapping[str, str]) -> Mapping[str, str]:
    return {name.strip().lower(): one.strip().lower() for listed, one in names.items() for name in listed.split(",")}


def may_be(one: str, other: str) -> bool:
    return not one or not other or one == other


VERSION_HINT: Final = "version-hint.text"
"""Says to a catalog of folders which metadata file is the newest; no metadata names it."""

HIDDEN: Final = ("_", ".")


class PrefixMismatchMode(StrEnum):
    """What becomes of a file that metadata names with another scheme or authority."""

    ERROR = "error"
    IGNORE = "ignore"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedFile:
    """A file as its storage lists it.

    Attributes:
        folder: The folder that was listed, without a final slash.
        relative: Its path below the folder.
        path: Its name in the storage: what is deleted.
        real_location: Its location with links of the file system resolved.
        modified_ms: When it was written last, in milliseconds since 1970; None where the storage does not say.
    """

    folder: str
    relative: str
    path: str
    real_location: str
    modified_ms: int | None

    @property
    def location(self) -> str:
        """Its location, written as the folder's."""
        return f"{self.folder}/{self.relative}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRules:
    """What lets a file go.

    Attributes:
        older_than_ms: Only files that were written before, in milliseconds since 1970.
        equivalents: Schemes and authorities that are equal.
        prefix_mismatch: What becomes of a file that metadata names with another scheme or authority.
        partition_fields: Names of partition fields: a folder of one is not hidden, whatever its name begins with.
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
        listed: Its location as listed.
        scheme: The scheme that metadata has for the path.
        authority: The authority that metadata has for it.
    """

    listed: str
    scheme: str
    authority: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanChoice:
    """What was found.

    Attributes:
        orphans: The files that nobody needs.
        conflicts: The files in doubt; none of them is an orphan.
    """

    orphans: tuple[ListedFile, ...]
    conflicts: tuple[PrefixMismatch, ...] = ()


class NeededFiles:
    """Locations that a table needs, to be asked by file.

    Args:
        equivalents: Which schemes and authorities are equal.
    """

    def __init__(self, equivalents: Equivalents) -> None:
        self._equivalents = equivalents
        self._by_path: defaultdict[str, set[FileIdentity]] = defaultdict(set)

    def add(self, locations: Iterable[str]) -> None:
        """Take locations in."""
        for location in locations:
            identity = identity_of(location, self._equivalents)
            self._by_path[identity.path].add(identity)

    def named_like(self, file: ListedFile) -> Mapping[FileIdentity, bool]:
        """All that is needed with the path of a file, and whether scheme and authority are the file's, too."""
        found: dict[FileIdentity, bool] = {}
        for location in {file.location, file.real_location}:
            identity = identity_of(location, self._equivalents)
            for needed in self._by_path.get(identity.path, ()):
                found[needed] = found.get(needed, False) or identity.has_prefix_of(needed)
        return found


def choose_orphans(listed: Iterable[ListedFile], needed: NeededFiles, rules: OrphanRules) -> OrphanChoice:
    """Choose the files that nobody needs.

    Args:
        listed: What is there.
        needed: What the table needs.
        rules: What lets a file go.

    Returns:
        The orphans in the order of `listed`, and what is in doubt.
    """
    orphans: list[ListedFile] = []
    conflicts: list[PrefixMismatch] = []
    for file in listed:
        if not may_go(file, rules):
            continue
        alike = needed.named_like(file)
        if any(alike.values()):
            continue
        if not alike or rules.prefix_mismatch is PrefixMismatchMode.DELETE:
            orphans.append(file)
        elif rules.prefix_mismatch is PrefixMismatchMode.ERROR:
            conflicts += [
                PrefixMismatch(listed=file.location, scheme=other.scheme, authority=other.authority) for other in alike
            ]
    return OrphanChoice(orphans=tuple(orphans), conflicts=tuple(conflicts))


def is_hidden(relative: str, partition_fields: frozenset[str]) -> bool:
    """Whether a file is none of the table's: its name, or that of a folder on the way to it, begins with `_` or `.`.

    Args:
        relative: Its path below the folder that was listed.
        partition_fields: Names of partition fields; `_day=2026-01-31` is a partition then.
    """
    return any(
        part.startswith(HIDDEN) and not ("=" in part and part.partition("=")[0] in partition_fields)
        for part in relative.split("/")
    )


def may_go(file: ListedFile, rules: OrphanRules) -> bool:
    """The rules that have nothing to do with what is needed."""
    return (
        file.modified_ms is not None
        and file.modified_ms < rules.older_than_ms
        and file.relative.rpartition("/")[2] != VERSION_HINT
        and not is_hidden(file.relative, rules.partition_fields)
        and (rules.within is None or is_inside(file.real_location, rules.within, rules.equivalents))
        and not any(is_inside(file.real_location, other, rules.equivalents) for other in rules.others)
    )
