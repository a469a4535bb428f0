"""Which of the files below a table's folders nobody needs. Pure; driver.

Input: the files that a storage lists, the locations that the table's metadata needs, and the rules. Output: the
orphans, and the files of which it cannot be told. A file is chosen only if every rule lets it go. Source: Iceberg's
`DeleteOrphanFilesSparkAction`, `HiddenPathFilter`, `PartitionAwareHiddenPathFilter`.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dml.maintenance.file_identity import Equivalents, FileIdentity, identity_of, is_inside

__all__ = [
    "Conflict",
    "ListedFile",
    "NeededFiles",
    "OrphanChoice",
    "OrphanRules",
    "PrefixMismatchMode",
    "choose_orphans",
    "is_hidden",
]

VERSION_HINT: Final = "version-hint.text"
"""Tells a catalog of folders which metadata file is the newest; no metadata names it."""

_HIDDEN: Final = ("_", ".")


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
        modified_ms: When it was written last, in milliseconds since 1970; None where the storage does not tell.
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
class Conflict:
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
        conflicts: The files of which it cannot be told; none of them is an orphan.
    """

    orphans: tuple[ListedFile, ...]
    conflicts: tuple[Conflict, ...] = ()


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
        The orphans in the order of `listed`, and what could not be told.
    """
    orphans: list[ListedFile] = []
    conflicts: list[Conflict] = []
    for file in listed:
        if not _may_go(file, rules):
            continue
        alike = needed.named_like(file)
        if any(alike.values()):
            continue
        if not alike or rules.prefix_mismatch is PrefixMismatchMode.DELETE:
            orphans.append(file)
        elif rules.prefix_mismatch is PrefixMismatchMode.ERROR:
            conflicts += [
                Conflict(listed=file.location, scheme=other.scheme, authority=other.authority) for other in alike
            ]
    return OrphanChoice(orphans=tuple(orphans), conflicts=tuple(conflicts))


def is_hidden(relative: str, partition_fields: frozenset[str]) -> bool:
    """Whether a file is none of the table's: its name, or that of a folder on the way to it, begins with `_` or `.`.

    Args:
        relative: Its path below the folder that was listed.
        partition_fields: Names of partition fields; `_day=2026-01-31` is a partition then.
    """
    return any(
        part.startswith(_HIDDEN) and not ("=" in part and part.partition("=")[0] in partition_fields)
        for part in relative.split("/")
    )


def _may_go(file: ListedFile, rules: OrphanRules) -> bool:
    """The rules that have nothing to do with what is needed."""
    return (
        file.modified_ms is not None
        and file.modified_ms < rules.older_than_ms
        and file.relative.rpartition("/")[2] != VERSION_HINT
        and not is_hidden(file.relative, rules.partition_fields)
        and (rules.within is None or is_inside(file.real_location, rules.within, rules.equivalents))
        and not any(is_inside(file.real_location, other, rules.equivalents) for other in rules.others)
    )
