"""`TableHealth`: the health of a table as a value, with reports for terminals and notebooks. Driver."""

import io
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from rich.console import Console, RenderableType

from dml.errors import ExecutionError
from dml.maintenance.retention import time_text
from dml.table_health.figures import (
    Advice,
    Certainty,
    DeleteFigures,
    FileFigures,
    GainFigures,
    ManifestFigures,
    MetadataFigures,
    OverlapFigures,
    PartitionFigures,
    PartitionFiles,
    SizeRange,
    SnapshotFigures,
    StatisticsAge,
)
from dml.table_health.page import fragment, render_page
from dml.table_health.text import WIDTH, layout
from dml.table_health.view import Bar, Chart, Fact, Part, TextTable, bytes_text, days_text, plural

__all__ = ["TableHealth"]

SHOWN_DAYS: Final = 14
"""The maximum number of days with snapshots to print."""

SHOWN_REFS: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TableHealth:
    """The health of a snapshot of a table, from metadata alone: no data file and no delete file is read.

    A figure is exact unless `dml.table_health.figures` documents it as an estimate or an upper limit.

    Attributes:
        table: The full name of the table.
        reference: The branch or tag; None for the table's current snapshot.
        snapshot_id: The snapshot; None for a table without snapshots, whose figures are 0.
        format_version: The table's format version.
        measured_ms: The time of the measurement, from which ages are computed.
        files: The data files.
        deletes: The delete files.
        partitions: The partitions.
        overlap: The overlap of files in the sort order.
        manifests: The manifests.
        snapshots: The snapshots, branches and tags of the whole table.
        metadata: The metadata file.
        statistics: The statistics of columns, and of partitions.
        gain: The changes of a compaction.
        is_maintained: True if the snapshot is the head of a branch, or the table has no snapshot. `maintain` rewrites
            no other files, so there is no advice on them.
        advice: The recommendations, in the order in which to follow them.
    """

    table: str
    reference: str | None
    snapshot_id: int | None
    format_version: int
    measured_ms: int
    files: FileFigures
    deletes: DeleteFigures
    partitions: PartitionFigures
    overlap: OverlapFigures
    manifests: ManifestFigures
    snapshots: SnapshotFigures
    metadata: MetadataFigures
    statistics: tuple[StatisticsAge, ...]
    gain: GainFigures
    is_maintained: bool
    advice: tuple[Advice, ...]

    @property
    def title(self) -> str:
        """The heading of the report."""
        reference = "" if self.reference is None else f", {self.reference}"
        return f"Health of {self.table}{reference}"

    @property
    def subtitle(self) -> str:
        """The snapshot and the time of the measurement."""
        snapshot = "no snapshot" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"
        return f"{snapshot}, format version {self.format_version}, measured {moment(self.measured_ms)}"

    @property
    def verdict(self) -> str:
        """The heading of the recommendations."""
        if not self.is_maintained:
            return "No advice: only the head of a branch is maintained"
        return "What to do" if self.advice else "Nothing to do"

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of the report."""
        return (
            file_part(self.files),
            delete_part(self.deletes, self.files),
            partition_part(self.partitions),
            overlap_part(self.overlap),
            manifest_part(self.manifests),
            snapshot_part(self.snapshots),
            metadata_part(self.metadata, self.statistics),
            *((gain_part(self.gain),) if self.is_maintained else ()),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all attributes as plain values, for logs and programs."""
        return {one.name: plain_value(getattr(self, one.name)) for one in fields(self)}

    def to_html(self, path: str | Path) -> None:
        """Write the report as one self-contained HTML file.

        Args:
            path: The file on the local disk; an existing one is overwritten.

        Raises:
            ExecutionError: The file cannot be written.
        """
        try:
            Path(path).write_text(render_page(self.title, self._repr_html_()), encoding="utf-8")
        except OSError as error:
            raise ExecutionError(
                f"Cannot write the report to '{path}': {error.strerror or error}", hint="Name a file in a local folder"
            ) from error

    def __rich__(self) -> RenderableType:
        return layout(self.title, self.subtitle, self.verdict, self.advice, self.parts)

    def __str__(self) -> str:
        console = Console(width=WIDTH, file=io.StringIO(), color_system=None, force_jupyter=False, legacy_windows=False)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        return fragment(self.title, self.subtitle, self.verdict, self.advice, self.parts)


def plain_value(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: plain_value(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple):
        return [plain_value(item) for item in value]
    return str(value) if isinstance(value, StrEnum) else value


# ---- the parts ------------------------------------------------------------------------------------------------------


def file_part(files: FileFigures) -> Part:
    facts = [
        Fact(name="Data files", value=f"{files.files:,}", note=bytes_text(files.bytes)),
        Fact(name="Rows", value=f"{files.rows:,}", note="deleted ones included"),
        Fact(name="Target size", value=bytes_text(files.target_bytes)),
    ]
    charts: tuple[Chart, ...] = ()
    if files.files:
        facts += [
            Fact(
                name="Below 75 % of target",
                value=f"{files.small_files:,}",
                note=f"{percent(files.small_files, files.files)} of files, {bytes_text(files.small_bytes)}",
            ),
            Fact(name="Above 180 % of target", value=f"{files.large_files:,}"),
            Fact(
                name="Least, median, greatest",
                value=", ".join(map(bytes_text, (files.min_bytes, files.median_bytes, files.max_bytes))),
            ),
        ]
        charts = (histogram(files),)
    return Part(title="Data files", facts=tuple(facts), charts=charts)


def histogram(files: FileFigures) -> Chart:
    return Chart(
        title="Data files by size",
        bars=tuple(
            Bar(label=range_text(one), length=one.files, text=f"{one.files:,}", is_good=not one.is_rewritten)
            for one in files.histogram
        ),
        mark=next(place for place, one in enumerate(files.histogram) if one.from_bytes == files.target_bytes),
        mark_text=f"target {bytes_text(files.target_bytes)}",
    )


def range_text(sizes: SizeRange) -> str:
    if sizes.to_bytes is None:
        return f"from {bytes_text(sizes.from_bytes)}"
    return f"{bytes_text(sizes.from_bytes)} to {bytes_text(sizes.to_bytes)}"


def delete_part(deletes: DeleteFigures, files: FileFigures) -> Part:
    kinds = (
        plural(deletes.deletion_vectors, "deletion vector"),
        plural(deletes.position_delete_files, "position delete file"),
        plural(deletes.equality_delete_files, "equality delete file"),
    )
    facts = [Fact(name="Delete files", value=f"{deletes.files:,}", note=bytes_text(deletes.bytes))]
    if deletes.files:
        prefix, note = {
            Certainty.EXACT: ("", ""),
            Certainty.AT_MOST: ("at most ", "position delete files may name a row twice, or a removed file"),
            Certainty.ESTIMATE: ("about ", "rows of equality delete files are not counted"),
        }[deletes.certainty]
        facts += [
            Fact(name="By kind", value=", ".join(kinds)),
            Fact(
                name="Deleted rows",
                value=f"{prefix}{deletes.deleted_rows:,}, {deletes.deleted_ratio:.1%}".replace("%", " %"),
                note=note,
            ),
            Fact(
                name="Data files with deletes",
                value=f"{deletes.affected_files:,}",
                note=f"{percent(deletes.affected_files, files.files)} of files",
            ),
            Fact(name="Dangling", value=f"{deletes.dangling_files:,}", note="delete files that apply to no data file"),
        ]
    tables: tuple[TextTable, ...] = ()
    if deletes.most_deleted:
        rows = tuple(
            (
                one.path,
                f"{one.deleted_rows:,}",
                percent(one.deleted_rows, one.rows),
                f"{one.delete_files:,}",
            )
            for one in deletes.most_deleted
        )
        tables = (
            TextTable(
                title="Data files with the most deleted rows",
                columns=("file", "deleted", "share", "delete files"),
                rows=rows,
            ),
        )
    return Part(title="Deleted rows", facts=tuple(facts), tables=tables)


def partition_part(partitions: PartitionFigures) -> Part:
    facts = [Fact(name="Partitions with files", value=f"{partitions.partitions:,}")]
    tables: tuple[TextTable, ...] = ()
    if partitions.partitions > 1:
        facts += [
            Fact(name="Mean size", value=bytes_text(partitions.mean_bytes)),
            Fact(name="Skew", value=f"{partitions.skew:,.1f}", note="largest by mean size"),
            Fact(name="Most files", value=f"{partitions.max_files:,}", note="in one partition"),
        ]
        tables = (partition_table("Largest partitions", partitions.largest),)
    return Part(title="Partitions", facts=tuple(facts), tables=tables)


def partition_table(title: str, partitions: tuple[PartitionFiles, ...]) -> TextTable:
    return TextTable(
        title=title,
        columns=("partition", "files", "size", "manifests", "depth"),
        rows=tuple(
            (
                one.name or "(all files)",
                f"{one.files:,}",
                bytes_text(one.bytes),
                f"{one.manifests:,}",
                "-" if one.max_depth is None else f"{one.max_depth:,}",
            )
            for one in partitions
        ),
    )


def overlap_part(overlap: OverlapFigures) -> Part:
    title = "Overlap of files in the sort order"
    if overlap.column is None:
        return Part(title=title, facts=(Fact(name="Sort column", value="none", note=overlap.reason),))
    facts = [
        Fact(name="Sort column", value=overlap.column),
        Fact(name="Mean depth", value=f"{overlap.mean_depth:,.1f}", note="where a file begins; 1 is best"),
        Fact(name="Greatest depth", value=f"{overlap.max_depth:,}", note="files that a query for one value reads"),
        Fact(name="Partitions with overlap", value=f"{overlap.overlapping_partitions:,}"),
    ]
    if overlap.files_without_bounds:
        facts.append(Fact(name="Files without bounds", value=f"{overlap.files_without_bounds:,}", note="not counted"))
    tables = (partition_table("Deepest partitions", overlap.deepest),) if overlap.deepest else ()
    return Part(title=title, facts=tuple(facts), tables=tables)


def manifest_part(manifests: ManifestFigures) -> Part:
    facts = [Fact(name="Manifests", value=f"{manifests.manifests:,}", note=bytes_text(manifests.bytes))]
    if manifests.manifests:
        sizes = ", ".join(map(bytes_text, (manifests.min_bytes, manifests.median_bytes, manifests.max_bytes)))
        facts += [
            Fact(name="Of data, of deletes", value=f"{manifests.data_manifests:,}, {manifests.delete_manifests:,}"),
            Fact(name="Target size", value=bytes_text(manifests.target_bytes)),
            Fact(name="Least, median, greatest", value=sizes),
            Fact(name="Without live files", value=f"{manifests.without_live_files:,}"),
            Fact(
                name="Manifests per partition",
                value=f"{manifests.mean_spread:,.1f}, at most {manifests.max_spread:,}",
                note="1 is best",
            ),
        ]
    return Part(title="Manifests", facts=tuple(facts))


def snapshot_part(snapshots: SnapshotFigures) -> Part:
    facts = [Fact(name="Snapshots", value=f"{snapshots.snapshots:,}", note="of all branches")]
    charts: tuple[Chart, ...] = ()
    tables: tuple[TextTable, ...] = ()
    if snapshots.oldest_ms is not None and snapshots.newest_ms is not None:
        facts += [
            Fact(name="Oldest, newest", value=f"{moment(snapshots.oldest_ms)}, {moment(snapshots.newest_ms)}"),
            Fact(
                name="Expired by properties",
                value=f"{plural(snapshots.expiring, 'snapshot')}, "
                f"{plural(snapshots.expiring_refs, 'branch or tag', 'branches and tags')}",
            ),
        ]
        shown = snapshots.by_day[-SHOWN_DAYS:]
        title = "Snapshots by day (UTC)"
        title += f", the last {SHOWN_DAYS} days with any" if len(snapshots.by_day) > SHOWN_DAYS else ""
        charts = (
            Chart(title=title, bars=tuple(Bar(label=day, length=count, text=f"{count:,}") for day, count in shown)),
        )
    if snapshots.refs:
        oldest = sorted(snapshots.refs, key=lambda ref: -(ref.age_ms or 0))[:SHOWN_REFS]
        more = len(snapshots.refs) - len(oldest)
        tables = (
            TextTable(
                title="Branches and tags" + (f", the oldest; {more:,} more" if more else ""),
                columns=("name", "kind", "age", "expires"),
                rows=tuple(
                    (ref.name, ref.kind, days_text(ref.age_ms), "yes" if ref.expires else "no") for ref in oldest
                ),
            ),
        )
    return Part(title="Snapshots", facts=tuple(facts), charts=charts, tables=tables)


def metadata_part(metadata: MetadataFigures, statistics: tuple[StatisticsAge, ...]) -> Part:
    deleted = "are deleted" if metadata.deletes_old_files else "stay in the storage"
    return Part(
        title="Metadata and statistics",
        facts=(
            Fact(name="Metadata file", value=bytes_text(metadata.bytes)),
            Fact(
                name="Old metadata files",
                value=f"{metadata.old_files:,}",
                note=f"listed, at most {metadata.previous_versions_max:,}; older ones {deleted}",
            ),
            *(statistics_fact(one) for one in statistics),
        ),
    )


def statistics_fact(statistics: StatisticsAge) -> Fact:
    name = f"{statistics.kind.capitalize()} statistics"
    if statistics.snapshots_behind is None:
        return Fact(name=name, value="none")
    if not statistics.snapshots_behind:
        return Fact(name=name, value="of this snapshot")
    behind = plural(statistics.snapshots_behind, "snapshot")
    return Fact(name=name, value=f"{behind} behind", note=days_text(statistics.age_ms))


def gain_part(gain: GainFigures) -> Part:
    if not gain.groups:
        facts = (Fact(name="Data files to rewrite", value="0"),)
        return Part(title="What compaction would change", facts=facts)
    now, after = map(bytes_text, (gain.manifest_bytes, gain.manifest_bytes_after))
    return Part(
        title="What compaction would change",
        facts=(
            Fact(
                name="Data files to rewrite",
                value=f"{gain.rewritten_files:,}",
                note=f"{bytes_text(gain.rewritten_bytes)} in {plural(gain.groups, 'group')}",
            ),
            Fact(name="Data files", value=f"{gain.files_before:,} now, about {gain.files_after:,} afterwards"),
            Fact(
                name="Manifests",
                value=f"{now} now, about {after} afterwards",
                note="once they list live files only",
            ),
        ),
    )


def percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "0.0 %"


def moment(millis: int) -> str:
    """Return a time in UTC to the minute."""
    return time_text(millis)[:16]
