"""Rewrite manifests so that files of one partition are listed together, in manifests of the target size. Driver.

Input: a table, a branch, a partition spec and the partition fields to sort by. Output: a snapshot with operation
`replace` that lists the same files, with the same sequence numbers and row ids.

Files are sorted by partition and cut into parts of about equal numbers of files. The size of the old manifests gives
the number of parts. A part ends at the end of a partition, so planning a query on a partition opens few manifests. At
most `limits.MANIFEST_REWRITE_ENTRIES` files are in memory, unless one part has more. The manifests of a larger table
are read once to count the files of each partition, and again to write each part.

Source: Iceberg's `RewriteManifestsSparkAction` and `BaseRewriteManifests`.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, groupby
from math import ceil, isnan
from operator import attrgetter
from typing import Any, Final
from uuid import uuid4

from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from dml import limits
from dml.commit import CommittedSnapshot, RewriteManifests, commit
from dml.commit.attempt import TargetBranch, parent_of
from dml.deletes.delete_file_index import partition_key
from dml.errors import AnalysisError, CommitStateUnknownError, ErrorKind, ValidationFailedError
from dml.files.file_io import delete_files
from dml.hints import did_you_mean
from dml.manifests.entry_fields import PARTITION
from dml.manifests.live_entries import LiveEntry, live_entries
from dml.manifests.read import manifests_of, read_all, read_each
from dml.manifests.read_arrays import read_arrays
from dml.manifests.write import UNASSIGNED_SNAPSHOT, ManifestWriter
from dml.model.manifest import ManifestContent, ManifestFile, Partition, is_unpartitioned
from dml.options import CommitOptions
from dml.pruning.pruner import PartitionSet

__all__ = ["ManifestDecision", "ManifestRewrite", "ReplacedManifests", "plan_manifest_rewrite", "rewrite_manifests"]

OVERSHOOT: Final = 1.2
"""A manifest may exceed the target size by this factor, as the sizes of new manifests are estimates. From Iceberg."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestDecision:
    """What a rewrite does with a manifest.

    Attributes:
        manifest: The manifest.
        is_rewritten: True if it is replaced.
        reason: The reason, for users.
    """

    manifest: ManifestFile
    is_rewritten: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestRewrite:
    """The plan of a rewrite.

    Attributes:
        table: The table.
        branch: The branch.
        spec: The partition spec whose manifests are rewritten.
        sort_by: Names of partition fields; the files are sorted by these first, then by the others.
        decisions: A decision for each manifest of the branch's head.
        target_size: `commit.manifest.target-size-bytes`.
    """

    table: Table = field(repr=False)
    branch: str
    spec: PartitionSpec
    sort_by: tuple[str, ...]
    decisions: tuple[ManifestDecision, ...]
    target_size: int

    @property
    def removed(self) -> tuple[ManifestFile, ...]:
        """The manifests to replace."""
        return tuple(decision.manifest for decision in self.decisions if decision.is_rewritten)

    @property
    def sources(self) -> tuple["ManifestSource", ...]:
        """The manifests to replace, grouped by content."""
        by_content = {content: [one for one in self.removed if one.content is content] for content in ManifestContent}
        return tuple(ManifestSource(self, tuple(manifests)) for manifests in by_content.values() if manifests)

    def estimate_added(self) -> int:
        """Read the manifests to replace, and estimate the number of new ones from their sizes."""
        return sum(source.estimate_added() for source in self.sources)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedManifests:
    """The outcome of a rewrite.

    Attributes:
        removed: The manifests that were replaced.
        added: The manifests that replace them.
        snapshot: The snapshot; None if there was nothing to rewrite.
    """

    removed: tuple[ManifestFile, ...] = ()
    added: tuple[ManifestFile, ...] = ()
    snapshot: CommittedSnapshot | None = None


def plan_manifest_rewrite(
    table: Table, *, branch: str | None = None, spec_id: int | None = None, sort_by: Sequence[str] | None = None
) -> ManifestRewrite:
    """Decide which manifests to rewrite. No manifest is read.

    All manifests of a partition spec are rewritten, data manifests and delete manifests separately, unless there is
    only one, within the target size.

    Args:
        table: The table, newly loaded.
        branch: The branch; None for main.
        spec_id: The partition spec; None for the current one.
        sort_by: Names of partition fields of the spec; None for all, in the order of the spec.

    Raises:
        AnalysisError: The table has no such spec, or the spec has no such fields.
        NotFoundError: The branch does not exist.
        ValidationFailedError: A manifest list of version 1 does not count the files of a manifest.
        CorruptFileError: The manifest list is missing or damaged.
        ExecutionError: The storage failed.
    """
    spec = spec_of(table, spec_id)
    fields = sort_fields(spec, sort_by)
    branch = MAIN_BRANCH if branch is None else branch
    manifests = manifests_of(table.io, parent_of(table.metadata, TargetBranch(branch=branch)))
    target = CommitOptions.from_properties(table.properties).manifest_target_size
    chosen = frozenset(
        manifest.manifest_path
        for content in ManifestContent
        for manifest in worth_rewriting(
            [one for one in manifests if one.content is content and one.partition_spec_id == spec.spec_id], target
        )
    )
    return ManifestRewrite(
        table=table,
        branch=branch,
        spec=spec,
        sort_by=fields,
        decisions=tuple(
            ManifestDecision(
                manifest=manifest,
                is_rewritten=manifest.manifest_path in chosen,
                reason=reason_of(manifest, spec, target, is_rewritten=manifest.manifest_path in chosen),
            )
            for manifest in manifests
        ),
        target_size=target,
    )


def spec_of(table: Table, spec_id: int | None) -> PartitionSpec:
    if spec_id is None:
        return table.spec()
    if spec_id not in table.specs():
        raise AnalysisError(
            f"Invalid spec id {spec_id}",
            kind=ErrorKind.INVALID_VALUE,
            hint=f"The table has the partition specs {', '.join(map(str, sorted(table.specs())))}",
            option="spec_id",
        )
    return table.specs()[spec_id]


def sort_fields(spec: PartitionSpec, sort_by: Sequence[str] | None) -> tuple[str, ...]:
    if sort_by is None:
        return ()
    if not sort_by:
        raise AnalysisError(
            "sort_by must not be empty when provided",
            kind=ErrorKind.INVALID_VALUE,
            hint="Leave it out to sort by all partition fields",
        )
    known = [partition_field.name for partition_field in spec.fields]
    missing = [name for name in sort_by if name not in known]
    if missing:
        raise AnalysisError(
            f"Cannot set manifest sorting because specified field(s) [{', '.join(map(str, missing))}] were not found "
            f"in the partition spec {spec.spec_id}, which has [{', '.join(known)}]",
            kind=ErrorKind.INVALID_VALUE,
            hint=did_you_mean(str(missing[0]), known) or "Name partition fields, such as ts_day, not columns",
            option="sort_by",
        )
    return tuple(sort_by)


def worth_rewriting(manifests: Sequence[ManifestFile], target: int) -> Sequence[ManifestFile]:
    """Return the manifests of a content, or none if there is only one manifest that needs no split."""
    for manifest in manifests:
        if None in (manifest.added_files_count, manifest.existing_files_count, manifest.deleted_files_count):
            raise ValidationFailedError(
                f"No file counts in manifest: {manifest.manifest_path}",
                hint="A writer of format version 1 left them out: upgrade the table to version 2",
                file=manifest.manifest_path,
            )
    return () if len(manifests) < 2 and parts_for(manifests, target) < 2 else manifests


def parts_for(manifests: Iterable[ManifestFile], target: int) -> int:
    """Return the number of manifests of the target size that the given manifests fill."""
    return -(-sum(manifest.manifest_length for manifest in manifests) // target)


def reason_of(manifest: ManifestFile, spec: PartitionSpec, target: int, *, is_rewritten: bool) -> str:
    if manifest.partition_spec_id != spec.spec_id:
        return f"of partition spec {manifest.partition_spec_id}, not {spec.spec_id}"
    size, limit = size_text(manifest.manifest_length), size_text(target)
    if not is_rewritten:
        return f"{size}, the only one of its kind, within target {limit}"
    if manifest.manifest_length > target:
        return f"{size}, above target {limit}"
    return f"{size}, below target {limit}"


def size_text(size: int) -> str:
    """Format bytes for users, as in `2.1 MB`."""
    for unit, scale in (("MB", 2**20), ("kB", 2**10)):
        if size >= scale:
            return f"{size / scale:.1f}".removesuffix(".0") + f" {unit}"
    return f"{size} bytes"


def rewrite_manifests(plan: ManifestRewrite, summary: Mapping[str, str] | None = None) -> ReplacedManifests:
    """Write the new manifests and commit them.

    Args:
        plan: The plan.
        summary: Keys of the engine and of the user for the snapshot's summary.

    Raises:
        CommitConflictError: A manifest was replaced by another commit meanwhile; the new ones are deleted.
        ValidationFailedError: Old and new manifests list different files; the new ones are deleted.
        CommitStateUnknownError: The commit may have landed; no file is deleted.
        CorruptFileError: A manifest is missing or damaged; the new ones are deleted.
        ExecutionError: The storage failed; the new manifests are deleted.
    """
    removed = plan.removed
    if not removed:
        return ReplacedManifests()
    table, locations = plan.table, list[str]()

    def location() -> str:
        locations.append(table.location_provider().new_metadata_location(f"optimized-m-{uuid4()}.avro"))
        return locations[-1]

    writer = ManifestWriter(table.io, table.metadata, UNASSIGNED_SNAPSHOT)
    try:
        added = tuple(manifest for source in plan.sources for manifest in source.write(writer, location))
    except BaseException:
        delete_files(table.io, locations)
        raise
    try:
        snapshot = commit(
            table, RewriteManifests(manifests=added, removed_manifests=removed), branch=plan.branch, summary=summary
        )
    except CommitStateUnknownError:
        raise
    except Exception:  # not on an interrupt: the commit may have landed
        delete_files(table.io, locations)
        raise
    return ReplacedManifests(removed=removed, added=added, snapshot=snapshot)


PartitionCounts = Sequence[tuple[Partition, int]]
"""Partitions with their numbers of live files. Pairs, because the partitions -0.0 and 0.0 are equal as dict keys."""


@dataclass(frozen=True, slots=True)
class ManifestSource:
    """The manifests of one content that a rewrite replaces.

    Attributes:
        plan: The plan.
        manifests: The manifests, at least one.
    """

    plan: ManifestRewrite
    manifests: tuple[ManifestFile, ...]

    def parts(self, counts: PartitionCounts) -> "ManifestParts":
        """Cut the files into parts.

        Args:
            counts: The partitions.
        """
        return ManifestParts.of(counts, parts_for(self.manifests, self.plan.target_size), self.plan)

    def estimate_added(self) -> int:
        """Read the manifests, and estimate the number of new ones from their sizes."""
        counts = self.count_files()
        files, size = sum(number for _, number in counts), sum(manifest.manifest_length for manifest in self.manifests)
        return self.parts(counts).estimate(OVERSHOOT * self.plan.target_size * files / size)

    def write(self, writer: ManifestWriter, location: Callable[[], str]) -> Iterator[ManifestFile]:
        """Write the new manifests, and yield their entries in a manifest list.

        Args:
            writer: Writes manifests.
            location: Returns the location of the next one.
        """
        plan, content = self.plan, self.manifests[0].content
        total = sum((one.added_files_count or 0) + (one.existing_files_count or 0) for one in self.manifests)
        held = list(self.entries(None)) if total <= limits.MANIFEST_REWRITE_ENTRIES else None
        counts = self.count_files() if held is None else count_partitions(plan.spec, held)
        parts = self.parts(counts)
        size = int(OVERSHOOT * plan.target_size)
        for batch in parts.batches(total if held is not None else limits.MANIFEST_REWRITE_ENTRIES):
            files: Iterable[LiveEntry] = held if held is not None else self.entries(batch)
            if len(batch) > 1:
                files = sorted(files, key=parts.rank_of)
            for _, part in groupby(files, key=parts.numbering()):
                yield from writer.write_existing(
                    location, plan.spec.spec_id, content, sort_vectors(content, part), size
                )

    def entries(self, wanted: Sequence[Partition] | None) -> Iterator[LiveEntry]:
        """Yield the live files of some partitions, in the order of the manifests; None for all."""
        io, metadata, spec_id = self.plan.table.io, self.plan.table.metadata, self.plan.spec.spec_id
        manifests: Sequence[ManifestFile] = self.manifests
        test: Callable[[tuple[Any, ...]], bool] | None = None
        if wanted is not None:
            manifests = list(filter(PartitionSet(wanted, metadata).may_list_matches, manifests))
            keys = {partition_key(*partition) for partition in wanted}

            def test(values: tuple[Any, ...]) -> bool:
                return partition_key(spec_id, values) in keys

        # A few at a time, because fetched manifests are kept in memory until they are decoded.
        for start in range(0, len(manifests), limits.READ_THREADS):
            group = manifests[start : start + limits.READ_THREADS]
            for entries in read_all(group, lambda manifest: live_entries(manifest, io, test)):
                yield from entries

    def count_files(self) -> PartitionCounts:
        """Read the manifests and count the live files of each partition."""
        spec, io = self.plan.spec, self.plan.table.io

        def count_one(manifest: ManifestFile) -> list[tuple[tuple[Any, ...], int]]:
            arrays = read_arrays((manifest,), lambda _: io, (PARTITION,))
            return [pair for some in arrays for pair in some.partition_counts().items()]

        found = (pair for _, pairs in read_each(self.manifests, count_one) for pair in pairs)
        return sum_partitions(spec, found)


def sort_vectors(content: ManifestContent, part: Iterator[LiveEntry]) -> Iterable[LiveEntry]:
    """Return the files of a part, with deletion vectors in the order of their Puffin file.

    DuckDB 1.5.5 mixes up vectors in any other order if its file cache is on.
    """
    return sorted(part, key=attrgetter("place")) if content is ManifestContent.DELETES else part


def count_partitions(spec: PartitionSpec, entries: Iterable[LiveEntry]) -> PartitionCounts:
    return sum_partitions(spec, ((entry.partition, 1) for entry in entries))


def sum_partitions(spec: PartitionSpec, counts: Iterable[tuple[tuple[Any, ...], int]]) -> PartitionCounts:
    names: dict[Hashable, Partition] = {}
    sums: Counter[Hashable] = Counter()
    for values, files in counts:
        key = partition_key(spec.spec_id, values)
        names.setdefault(key, (spec.spec_id, values))
        sums[key] += files
    return [(names[key], files) for key, files in sums.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestParts:
    """The files of new manifests, by partition.

    Attributes:
        partitions: The partitions in sort order.
        files: The number of files of each.
        ranks: The index of each partition in that order, by key.
        numbers: The part number of each partition.
        slices: For an unpartitioned spec, the number of parts, which are cut anywhere; otherwise 1.
    """

    partitions: tuple[Partition, ...]
    files: tuple[int, ...]
    ranks: Mapping[Hashable, int]
    numbers: tuple[int, ...]
    slices: int

    @staticmethod
    def of(counts: PartitionCounts, parts: int, plan: ManifestRewrite) -> "ManifestParts":
        """Sort the partitions, and cut them into parts of about equal numbers of files.

        Args:
            counts: The partitions.
            parts: The maximum number of parts; fewer if a partition has more files than a part.
            plan: The plan, with the order of partition fields.
        """
        names = [partition_field.name for partition_field in plan.spec.fields]
        places = [names.index(name) for name in dict.fromkeys((*plan.sort_by, *names))]
        ordered = sorted(counts, key=lambda pair: [sort_key(pair[0][1][place]) for place in places])
        partitions, files = [pair[0] for pair in ordered], [pair[1] for pair in ordered]
        before = [0, *accumulate(files)]
        return ManifestParts(
            partitions=tuple(partitions),
            files=tuple(files),
            ranks={partition_key(*partition): rank for rank, partition in enumerate(partitions)},
            numbers=tuple(start * parts // before[-1] for start in before[:-1]),
            slices=parts if is_unpartitioned(plan.spec) else 1,
        )

    def estimate(self, most: float) -> int:
        """Estimate the number of new manifests.

        Args:
            most: The number of files that fit into one manifest.
        """
        if self.slices > 1:
            return min(self.slices, sum(self.files))
        sizes: Counter[int] = Counter()
        for number, files in zip(self.numbers, self.files, strict=True):
            sizes[number] += files
        return sum(ceil(size / most) for size in sizes.values())

    def rank_of(self, entry: LiveEntry) -> int:
        """Return the index of a file's partition in sort order."""
        return self.ranks[partition_key(self.partitions[0][0], entry.partition)]

    def batches(self, most: int) -> Iterator[tuple[Partition, ...]]:
        """Yield the partitions of consecutive parts with at most `most` files together, or of one larger part."""
        batch: list[Partition] = []
        size = 0
        for _, ranks in groupby(range(len(self.partitions)), key=self.numbers.__getitem__):
            part = list(ranks)
            files = sum(self.files[rank] for rank in part)
            if batch and size + files > most:
                yield tuple(batch)
                batch, size = [], 0
            batch += [self.partitions[rank] for rank in part]
            size += files
        if batch:
            yield tuple(batch)

    def numbering(self) -> Callable[[LiveEntry], int]:
        """Return a function that returns the part number of each file. Call it once for each file, in sort order.

        Files of an unpartitioned spec are cut by count.
        """
        if self.slices > 1:
            place, total = count(), sum(self.files)
            return lambda _: next(place) * self.slices // total
        return lambda entry: self.numbers[self.rank_of(entry)]


def sort_key(value: Any) -> tuple[int, Any]:
    """Return the key by which partition values are sorted: NULL first, NaN last."""
    if value is None:
        return 0, None
    return (2, None) if isinstance(value, float) and isnan(value) else (1, value)
