"""Removes unneeded files below a table's folders. Driver.

Input: a catalog, a table's identifier and the validated options. Output: the locations of the orphans, and with
`dry_run` the decisions.

The order matters. Files are listed before metadata is read, so that files of a commit in between are either not listed
or needed. Before each batch is deleted the newest metadata is read again: a file may be in use again. Source: Iceberg's
`DeleteOrphanFilesSparkAction` and its Spark procedure (`RemoveOrphanFilesProcedure`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Self
from urllib.parse import quote_plus

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from dml import limits
from dml.catalog.tables import load_table
from dml.catalog.translation import translate_errors
from dml.errors import AnalysisError, CommitConflictError, ErrorKind, ExecutionError
from dml.hints import did_you_mean
from dml.maintenance.deletion import SHOWN_FILES, check_max_concurrent_deletes, delete_all, refuse_shared_files
from dml.maintenance.orphan_choice import (
    Equivalents,
    ListedFile,
    NeededFiles,
    OrphanChoice,
    OrphanRules,
    PrefixMismatch,
    PrefixMismatchMode,
    choose_orphans,
    is_inside,
)
from dml.maintenance.reachable_files import (
    ReachableFiles,
    folders_of,
    folders_of_others,
    outermost,
    refuse_shared_folders,
)
from dml.maintenance.retention import duration
from dml.maintenance.storage import RealNames, Storage, storage_of
from dml.result import Decision

__all__ = ["OrphanRemoval", "RemoveOrphanFiles", "remove_orphan_files"]


DEFAULT_AGE: Final = timedelta(days=3)
LEAST_AGE: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveOrphanFiles:
    """The options of a call.

    Attributes:
        older_than: Only files that were written before this time; by default three days ago.
        location: Only files below this folder of the table; None for all.
        dry_run: List the files without deleting them.
        max_concurrent_deletes: The number of files to delete at once.
        equal_schemes: Maps comma-separated schemes to the canonical one.
        equal_authorities: The same for authorities.
        prefix_mismatch_mode: The handling of files that metadata names with another scheme or authority.
    """

    older_than: datetime = field(default_factory=lambda: datetime.now(UTC) - DEFAULT_AGE)
    location: str | None = None
    dry_run: bool = False
    max_concurrent_deletes: int = limits.DELETE_THREADS
    equal_schemes: Mapping[str, str] = field(default_factory=dict)
    equal_authorities: Mapping[str, str] = field(default_factory=dict)
    prefix_mismatch_mode: PrefixMismatchMode = PrefixMismatchMode.ERROR

    @classmethod
    def of(cls, **options: Any) -> Self:
        """Build the call from a user's options.

        Args:
            **options: The attributes by name; None means that an option is not set.

        Raises:
            AnalysisError: An option is unknown or has an invalid value.
        """
        given = {name: value for name, value in options.items() if value is not None}
        for name, value in options.items():
            check_option(name, value)
        if "prefix_mismatch_mode" in given:
            given["prefix_mismatch_mode"] = prefix_mismatch_mode(given["prefix_mismatch_mode"])
        return cls(**given)

    def __post_init__(self) -> None:
        if self.older_than.tzinfo is None:
            raise AnalysisError(f"older_than ({self.older_than}) has no time zone", kind=ErrorKind.INVALID_VALUE)
        check_max_concurrent_deletes(self.max_concurrent_deletes)
        if not self.dry_run and self.older_than > datetime.now(UTC) - LEAST_AGE:
            raise AnalysisError(
                f"Cannot remove orphan files with an interval less than 24 hours: older_than is {self.older_than}",
                kind=ErrorKind.INVALID_VALUE,
                hint="Files of statements that run now belong to no snapshot yet, and would be lost; "
                "dry_run lists files of any age",
                option="older_than",
            )

    @property
    def older_than_ms(self) -> int:
        """`older_than` in milliseconds since 1970."""
        return int(self.older_than.timestamp() * 1000)

    @property
    def equivalents(self) -> Equivalents:
        """The equivalent schemes and authorities."""
        return Equivalents.of(self.equal_schemes, self.equal_authorities)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRemoval:
    """The outcome of a call.

    Attributes:
        orphans: The locations of the deleted files; for a dry run, of the files to delete.
        decisions: The decisions of a dry run, those about the orphans first and in their order.
    """

    orphans: tuple[str, ...]
    decisions: tuple[Decision, ...] = ()


def is_map_of_texts(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair)


OPTIONS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "older_than": (lambda value: isinstance(value, datetime), "a datetime"),
    "location": (lambda value: isinstance(value, str), "a text"),
    "dry_run": (lambda value: isinstance(value, bool), "True or False"),
    "max_concurrent_deletes": (lambda value: isinstance(value, int) and not isinstance(value, bool), "a whole number"),
    "equal_schemes": (is_map_of_texts, "a mapping of texts to texts"),
    "equal_authorities": (is_map_of_texts, "a mapping of texts to texts"),
    "prefix_mismatch_mode": (lambda value: isinstance(value, str), "a text"),
}
"""Per option: a test of the value's type, and the name of the type."""


def check_option(name: str, value: object) -> None:
    """Refuse an unknown option or a value of the wrong type.

    Raises:
        AnalysisError: The option is unknown, or its value has the wrong type.
    """
    if name not in OPTIONS:
        raise AnalysisError(
            f"remove_orphan_files has no option '{name}'",
            kind=ErrorKind.INVALID_VALUE,
            hint=did_you_mean(name, OPTIONS),
            option=name,
        )
    fits, kind = OPTIONS[name]
    if value is not None and not fits(value):
        raise AnalysisError(f"{name} is {kind}, not {type(value).__name__}", kind=ErrorKind.INVALID_VALUE, option=name)


def prefix_mismatch_mode(text: str) -> PrefixMismatchMode:
    """Parse a mode, in any case.

    Raises:
        AnalysisError: The mode is unknown.
    """
    mode = next((mode for mode in PrefixMismatchMode if mode == text.strip().lower()), None)
    if mode is None:
        raise AnalysisError(
            f"The prefix_mismatch_mode is '{text}'",
            kind=ErrorKind.INVALID_VALUE,
            hint="It must be ERROR, IGNORE or DELETE",
            option="prefix_mismatch_mode",
        )
    return mode


def remove_orphan_files(catalog: Catalog, identifier: tuple[str, ...], call: RemoveOrphanFiles) -> OrphanRemoval:
    """Remove the unneeded files below a table's folders.

    Args:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        call: The options.

    Raises:
        NotFoundError: The table does not exist.
        AnalysisError: Metadata names files with another scheme or authority, or `location` is not a folder of the
            table.
        NotSupportedError: Other tables have files in the same folders, the table's property `gc.enabled` is false, or
            the storage cannot list files.
        CorruptFileError: Metadata of the table is missing or damaged; nothing was deleted.
        ExecutionError: The storage failed, or some of the orphans could not be deleted.
    """
    with translate_errors(f"Removing the orphan files of the table '{'.'.join(identifier)}'", catalog):
        search = OrphanSearch.begin(catalog, load_table(catalog, identifier), call)
        listed, rules = search.list_files()
        choice = choose_orphans(listed, search.needed, rules)
        if choice.conflicts:
            raise prefix_mismatch_error(choice.conflicts)
        orphans = choice.orphans if call.dry_run else delete_orphans(search, rules, choice.orphans)
        return OrphanRemoval(
            orphans=tuple(file.location for file in orphans),
            decisions=tuple(decisions_of(choice, int(datetime.now(UTC).timestamp() * 1000))) if call.dry_run else (),
        )


def decisions_of(choice: OrphanChoice, now_ms: int) -> Iterator[Decision]:
    """Yield a decision about each unneeded file, and one about the needed files together."""
    unneeded = "the table's metadata does not need it"
    for file in choice.orphans:
        yield Decision(decision="delete", object=file.location, reason=f"{unneeded}, and {age_text(file, now_ms)}")
    for file, reason in choice.kept:
        age = "" if file.modified_ms is None else f" ({age_text(file, now_ms)})"
        yield Decision(decision="keep", object=file.location, reason=f"{unneeded}, but {reason}{age}")
    if choice.needed:
        yield Decision(decision="keep", object=f"{choice.needed} files", reason="the table's metadata needs them")


def age_text(file: ListedFile, now_ms: int) -> str:
    assert file.modified_ms is not None
    return f"it is {duration(now_ms - file.modified_ms)} old"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanSearch:
    """A search for orphans.

    Attributes:
        catalog: The catalog.
        identifier: Namespace and name of the table.
        uuid: The table's UUID, to detect that it was replaced.
        call: The options.
        storages: The storages of the listed folders, by folder.
        names: Resolves symbolic links.
        needed: The needed locations that were read so far.
        reachable: Reads the needed locations.
    """

    catalog: Catalog
    identifier: tuple[str, ...]
    uuid: object
    call: RemoveOrphanFiles
    storages: dict[str, Storage]
    names: RealNames = field(repr=False)
    needed: NeededFiles = field(repr=False)
    reachable: ReachableFiles = field(repr=False)

    @staticmethod
    def begin(catalog: Catalog, table: Table, call: RemoveOrphanFiles) -> "OrphanSearch":
        """Determine the folders to list, and refuse tables whose orphans cannot be determined."""
        refuse_shared_files(".".join(table.name()), table.properties, "remove orphan files")
        folders = outermost(folders_of(table.location(), table.properties), call.equivalents)
        names = RealNames()
        check_location(table, folders, call, names)
        location = table.location().rstrip("/")
        outside = [folder for folder in folders if not is_inside(folder, location, call.equivalents)]
        refuse_shared_folders(catalog, table, outside, call.equivalents)
        return OrphanSearch(
            catalog=catalog,
            identifier=table.name(),
            uuid=table.metadata.table_uuid,
            call=call,
            storages={folder: storage_of(table.io, folder) for folder in folders},
            names=names,
            needed=NeededFiles(call.equivalents),
            reachable=ReachableFiles(table.io, call.older_than_ms),
        )

    def list_files(self) -> tuple[list[ListedFile], OrphanRules]:
        """List the files, then read the metadata; return the files and the rules for them."""
        listed = [file for folder, storage in self.storages.items() for file in storage.files(folder)]
        table = self.read_metadata()
        own_folders = [self.names.of(folder) for folder in self.storages]
        rules = OrphanRules(
            older_than_ms=self.call.older_than_ms,
            equivalents=self.call.equivalents,
            prefix_mismatch=self.call.prefix_mismatch_mode,
            partition_fields=partition_fields_of(table),
            others=folders_of_others(table, own_folders, listed, self.needed, self.call.equivalents),
            within=None if self.call.location is None else self.names.of(self.call.location),
        )
        return listed, rules

    def read_metadata(self) -> Table:
        """Add the locations that the newest metadata needs."""
        table = load_table(self.catalog, self.identifier)
        if table.metadata.table_uuid != self.uuid:
            raise CommitConflictError(f"The table '{'.'.join(self.identifier)}' was replaced by another one meanwhile")
        self.needed.add(name for location in self.reachable.of(table) for name in self.names.all_of(location))
        return table


def delete_orphans(search: OrphanSearch, rules: OrphanRules, orphans: tuple[ListedFile, ...]) -> list[ListedFile]:
    """Delete the files that are still orphans, and return them."""

    def delete(file: ListedFile) -> None:
        search.storages[file.folder].delete(file.path)

    chosen: list[ListedFile] = []
    failed: list[tuple[ListedFile, Exception]] = []
    for start in range(0, len(orphans), limits.ORPHAN_BATCH_FILES):
        search.read_metadata()
        batch = choose_orphans(orphans[start : start + limits.ORPHAN_BATCH_FILES], search.needed, rules).orphans
        chosen += batch
        failed += delete_all(batch, delete, search.call.max_concurrent_deletes)
    if failed:
        reasons = "; ".join(f"'{file.location}' ({error})" for file, error in failed[:SHOWN_FILES])
        raise ExecutionError(
            f"{len(failed)} of {len(chosen)} orphan files could not be deleted: {reasons}",
            hint="The others are deleted. Call it again for the rest",
            files=tuple(file.location for file, _ in failed),
        ) from failed[0][1]
    return chosen


def check_location(table: Table, folders: Iterable[str], call: RemoveOrphanFiles, names: RealNames) -> None:
    if call.location is None:
        return
    real = names.of(call.location)
    if not any(is_inside(real, names.of(folder), call.equivalents) for folder in folders):
        raise AnalysisError(
            f"The location '{call.location}' is no folder of the table '{'.'.join(table.name())}'",
            kind=ErrorKind.INVALID_VALUE,
            hint=f"It must be one of {', '.join(folders)}, or a folder below: files elsewhere may be of other tables",
            option="location",
        )


def partition_fields_of(table: Table) -> frozenset[str]:
    names = {field.name for spec in table.specs().values() for field in spec.fields}
    return frozenset(names | {quote_plus(name) for name in names})


def prefix_mismatch_error(conflicts: tuple[PrefixMismatch, ...]) -> AnalysisError:
    shown = "; ".join(
        f"'{conflict.listed}' is '{conflict.scheme}://{conflict.authority}' in the metadata"
        for conflict in conflicts[:SHOWN_FILES]
    )
    return AnalysisError(
        f"Cannot determine if {len(conflicts)} files are orphans: metadata has the same paths with "
        f"another scheme or authority: {shown}",
        kind=ErrorKind.INVALID_VALUE,
        hint="Declare equal ones with equal_schemes and equal_authorities, skip such files with "
        "prefix_mismatch_mode 'IGNORE', or delete them with 'DELETE'",
        conflicts=tuple((conflict.listed, conflict.scheme, conflict.authority) for conflict in conflicts),
    )
