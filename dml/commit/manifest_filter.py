"""Taking files out of a snapshot's manifests. Driver.

Input: manifests, and what the commit removes. Output: the manifests to carry on, of which only those that lose a file
are written anew: what stays is EXISTING, what goes is DELETED by this snapshot, what was deleted before is dropped.

Files that are removed by name are looked for where the statement saw them listed; where another commit has moved them,
among their partitions; and then everywhere.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind, extract_field_ids
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from dml.commit.changes import FileChanges
from dml.commit.new_manifests import NewManifests
from dml.commit.window import ManifestReader
from dml.errors import CommitConflictError, ValidationFailedError
from dml.model.manifest import ContentFile, EntryStatus, ManifestEntry, ManifestFile, Partition
from dml.pruning.filter_text import filter_text
from dml.pruning.pruner import PartitionSet, Pruner

__all__ = ["FilteredManifests", "ManifestFilter", "commit_pruner"]

ManifestTest = Callable[[ManifestFile], bool]
FileTest = Callable[[ManifestEntry], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredManifests:
    """What is left of a snapshot's manifests of one content.

    Attributes:
        manifests: In their order; each is carried over, or stands for one that lost files.
        removed: Entries of the files that were taken out, as they were.
    """

    manifests: tuple[ManifestFile, ...]
    removed: tuple[ManifestEntry, ...]


class ManifestFilter:
    """Takes out what one commit removes.

    Args:
        metadata: The table as it is now.
        named_by: The schema whose names a row filter has.
        changes: What the commit does.
        reader: Reads manifests.
        written: Writes those that change.
    """

    def __init__(
        self,
        metadata: TableMetadata,
        named_by: Schema,
        changes: FileChanges,
        reader: ManifestReader,
        written: NewManifests,
    ) -> None:
        self._metadata = metadata
        self._changes = changes
        self._reader = reader
        self._written = written
        self._replaced = PartitionSet(changes.replaced_partitions, metadata)
        self._rows = (
            None
            if changes.row_filter is None
            else commit_pruner(changes.row_filter, metadata, case_sensitive=changes.case_sensitive, named_by=named_by)
        )

    def data_files(self, manifests: Sequence[ManifestFile]) -> FilteredManifests:
        """Take out data files.

        Args:
            manifests: Of data files.

        Raises:
            CommitConflictError: V9: the filter matches some rows of a file that a concurrent commit added.
            ValidationFailedError: V9: the filter matches some rows of a file, but not all.
            DmlError: a manifest cannot be read or written.
        """
        paths, listing = self._changes.removed_data_files, self._changes.listing

        def selects(entry: ManifestEntry) -> bool:
            file = entry.data_file
            return file.path in paths or self._replaced.may_match(file) or self._matches(file)

        def all_found(found: FilteredManifests) -> bool:
            return len({entry.data_file.path for entry in found.removed} & paths) == len(paths)

        places: list[ManifestTest] = [everywhere]
        if not paths:
            places = [nowhere]
        elif listing is not None:
            places = [at(listing.data_manifests), self._in_partitions(listing.partitions), everywhere]
        return self._filter(manifests, places, all_found, selects)

    def delete_files(
        self, manifests: Sequence[ManifestFile], removed: Iterable[ManifestEntry], least_sequence_number: int
    ) -> FilteredManifests:
        """Take out delete files: those that the commit names, and those that apply to nothing any more.

        Args:
            manifests: Of delete files.
            removed: Entries of the data files that were taken out: their deletion vectors go with them.
            least_sequence_number: Of the data files that stay: an older delete file applies to none of them.

        Raises:
            DmlError: a manifest cannot be read or written.
        """
        keys = self._changes.removed_delete_files
        gone = {entry.data_file.path: (entry.data_file.spec_id, entry.data_file.partition) for entry in removed}

        def selects(entry: ManifestEntry) -> bool:
            file = entry.data_file
            return (
                file.key in keys
                or (file.is_deletion_vector and file.referenced_data_file in gone)
                or self._replaced.may_match(file)
                or (self._rows is not None and self._rows.must_match(file))
            )

        def applies_to_nothing(entry: ManifestEntry) -> bool:
            return 0 < (entry.data_sequence_number or 0) < least_sequence_number

        def all_found(found: FilteredManifests) -> bool:
            return len({entry.data_file.key for entry in found.removed} & keys) == len(keys)

        # A delete file that is replaced lies where the one lies that replaces it.
        partitions = {(file.spec_id, file.partition) for file in self._changes.added_delete_files} | set(gone.values())
        places: list[ManifestTest] = [self._in_partitions(partitions), everywhere] if keys or gone else [nowhere]
        listing = self._changes.listing
        if listing is not None and listing.delete_manifests <= {manifest.manifest_path for manifest in manifests}:
            places.insert(0, self._at_or_since(listing.delete_manifests, gone.values()))
        return self._filter(manifests, places, all_found, selects, applies_to_nothing)

    def _at_or_since(self, locations: frozenset[str], partitions: Iterable[Partition]) -> ManifestTest:
        """Manifests that the statement knows, and newer ones: there a removed data file may have got a vector since."""
        start_id = self._changes.validation.starting_snapshot_id
        start = None if start_id is None else self._metadata.snapshot_by_id(start_id)
        number = (start.sequence_number or 0) if start is not None else 0
        known, near = at(locations), self._in_partitions(partitions)
        return lambda manifest: known(manifest) or ((manifest.sequence_number or 0) > number and near(manifest))

    def _in_partitions(self, partitions: Iterable[Partition]) -> ManifestTest:
        return PartitionSet(partitions, self._metadata).manifest

    def _matches(self, file: ContentFile) -> bool:
        if self._rows is None or not self._rows.may_match(file):
            return False
        if self._rows.must_match(file):
            return True
        shown = filter_text(self._rows.expression)
        message = f"Cannot delete file where some, but not all, rows match filter {shown}: {file.path}"
        if self._changes.planned_filter:
            hint = "The file came after the statement was planned: run the statement again"
            raise CommitConflictError(message, hint=hint, file=file.path)
        raise ValidationFailedError(message, hint="Choose a filter that matches whole files", file=file.path)

    def _filter(
        self,
        manifests: Sequence[ManifestFile],
        places: Sequence[ManifestTest],
        all_found: Callable[[FilteredManifests], bool],
        selects: FileTest,
        drops: FileTest = lambda _: False,
    ) -> FilteredManifests:
        """Look for files that are removed by name in one place after the other, until all are found."""
        for place in places:
            found = self._without(manifests, place, selects, drops)
            if all_found(found):
                break
        return found

    def _without(
        self, manifests: Sequence[ManifestFile], named: ManifestTest, selects: FileTest, drops: FileTest
    ) -> FilteredManifests:
        """Take out what is selected, and out of the manifests that are written anyway also what may be dropped."""
        live = [manifest for manifest in manifests if manifest.has_live_files]
        opened = set(self._reader.prepare(manifest for manifest in live if named(manifest) or self._matching(manifest)))
        kept: list[ManifestFile] = []
        removed: list[ManifestEntry] = []
        for manifest in live:
            entries = [entry for entry in self._reader.entries(manifest) if entry.is_live] if manifest in opened else []
            if not any(selects(entry) for entry in entries):
                kept.append(manifest)
                continue
            gone = [entry for entry in entries if selects(entry) or drops(entry)]
            removed += gone
            kept.append(self._written.rewritten(manifest, rewritten(entries, gone, self._written.snapshot_id)))
        return FilteredManifests(manifests=tuple(kept), removed=tuple(removed))

    def _matching(self, manifest: ManifestFile) -> bool:
        """Whether a manifest may list a file to remove that is not named: of a partition, or of a filter's rows."""
        return self._replaced.manifest(manifest) or (self._rows is not None and self._rows.manifest(manifest))


def at(locations: frozenset[str]) -> ManifestTest:
    return lambda manifest: manifest.manifest_path in locations


def everywhere(_: ManifestFile) -> bool:
    return True


def nowhere(_: ManifestFile) -> bool:
    return False


def rewritten(
    entries: Iterable[ManifestEntry], gone: Iterable[ManifestEntry], snapshot_id: int
) -> tuple[ManifestEntry, ...]:
    leaving = {id(entry) for entry in gone}
    return tuple(
        replace(entry, status=EntryStatus.DELETED, snapshot_id=snapshot_id)
        if id(entry) in leaving
        else replace(entry, status=EntryStatus.EXISTING)
        for entry in entries
    )


def commit_pruner(
    expression: BooleanExpression, metadata: TableMetadata, *, case_sensitive: bool, named_by: Schema
) -> Pruner:
    """The files that hold rows of a filter, in the table as it is now.

    Args:
        expression: The filter, unbound.
        metadata: The table: its current schema, all its specs.
        case_sensitive: How names in the filter match.
        named_by: The schema whose names they are.

    Raises:
        CommitConflictError: the filter does not fit the table's schema any more.
    """
    now = metadata.schema()
    # Names of columns can be exchanged: each has to mean what it meant.
    for field_id in extract_field_ids(bind(named_by, expression, case_sensitive)):
        name = named_by.find_column_name(field_id)
        if name != (now.find_column_name(field_id) if field_id in now.field_ids else None):
            raise outdated(expression, f"the column {name} was dropped or renamed")
    try:
        return Pruner(metadata.specs(), now, expression, case_sensitive=case_sensitive, older_schemas=metadata.schemas)
    except ValueError as error:
        raise outdated(expression, str(error)) from error


def outdated(expression: BooleanExpression, reason: str) -> CommitConflictError:
    return CommitConflictError(
        f"The filter {filter_text(expression)} does not fit the table's schema any more: {reason}",
        hint="The schema was changed meanwhile: run the statement again",
    )
